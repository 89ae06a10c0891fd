"""The plain test: every variant is shown equally often, and the best mean wins.

Three kinds: visitors assigned at random, in turn, and at random with a least-squares fit of the
variants' features, which is how multivariate tests are analysed.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.stats import ttest_ind_from_stats

from benchmarks.peers.interface import Player, Task, Tool, highest

__all__ = ["TOOLS"]

LEVEL = 0.05


class EqualSplit(Player):
    """Equal shares; the highest mean wins."""

    def __init__(self, task: Task, in_turn: bool = False) -> None:
        self.K = K = task.arms.size
        self.rng = np.random.default_rng(task.seed)
        visits = np.arange(task.budget)
        self._plan: list[int] = (
            visits % K if in_turn else self.rng.integers(K, size=task.budget)
        ).tolist()
        self.counts, self.sums, self.squares = [0] * K, [0.0] * K, [0.0] * K
        self.winner = -1

    def choose(self, t: int) -> int:
        """As planned."""
        return self._plan[t]

    def learn(self, arm: int, reward: float) -> None:
        """Add it up."""
        self.counts[arm] += 1
        self.sums[arm] += reward
        self.squares[arm] += reward * reward

    def means(self) -> list[float]:
        """Of each variant; nan where it was never shown."""
        return [s / n if n else np.nan for s, n in zip(self.sums, self.counts, strict=True)]

    def decide(self) -> int:
        """The highest mean."""
        self.winner = highest(self.means(), self.rng)
        return self.winner

    def sure(self) -> bool | None:
        """Welch's test against every other variant, at 5% divided by their number."""
        others = [k for k in range(self.K) if k != self.winner]
        return all(self.p_value(self.winner, k) < LEVEL / len(others) for k in others)

    def p_value(self, a: int, b: int) -> float:
        """Welch's two-sided t-test of two variants; 1 where it cannot be done."""
        if min(self.counts[a], self.counts[b]) < 2:
            return 1.0
        spread = []
        for k in (a, b):
            n, mean = self.counts[k], self.sums[k] / self.counts[k]
            spread.append(np.sqrt(max(self.squares[k] - n * mean * mean, 0.0) / (n - 1)))
        if not any(spread):
            return 1.0
        first, second = ((self.sums[k] / self.counts[k], self.counts[k]) for k in (a, b))
        found = ttest_ind_from_stats(
            first[0], spread[0], first[1], second[0], spread[1], second[1], equal_var=False
        )
        return float(found.pvalue)


class Regression(EqualSplit):
    """Equal shares at random; least squares on the variants' features, the highest fit wins."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.X = np.asarray(task.arms.features)

    def decide(self) -> int:
        A = (self.X.T * self.counts) @ self.X
        theta, *_ = np.linalg.lstsq(A, self.X.T @ np.array(self.sums), rcond=None)
        self.winner = highest(self.X @ theta, self.rng)
        return self.winner

    def sure(self) -> None:
        """No claim: Welch's test is about means, not about the fit."""


TOOLS = (
    Tool("equal-split", EqualSplit),
    Tool("in-turn", partial(EqualSplit, in_turn=True)),
    Tool("regression", Regression),
)
