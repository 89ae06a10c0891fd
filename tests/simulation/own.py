"""A policy and worlds as users write them, in a module that processes can import.

python -m tests.simulation.own JOURNAL TRIALS     runs the sweep and prints its counts
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.policies.ips import IPSPolicy, IPSState

ARMS = sa.ArmSet.one_hot(["A", "B", "C", "D"])
MEANS = np.array([0.2, 0.5, 0.3, 0.1])
BUDGETS = [60, 120, 240]


@dataclass(frozen=True)
class Greedy(IPSPolicy[IPSState]):
    """Half of the rounds for the arm that leads."""

    name: ClassVar[str] = "Greedy half"

    share: float = 0.5

    def allocation(self, state: IPSState) -> NDArray[np.float64]:
        leads = self.estimates(state).argmax(axis=1)[:, None] == np.arange(state.arms.size)
        return np.asarray((1 - self.share) / state.arms.size + self.share * leads)

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        return np.asarray(state.played + max(state.budget // 4, 1))


def amounts(arms: NDArray[np.int64], rounds: NDArray[np.int64], rng: Any) -> Any:
    """Money: most visits bring nothing."""
    return (rng.random(len(arms)) < 0.3) * rng.exponential(MEANS[arms] / 0.3)


def money(budget: int) -> Any:
    return sa.Environment.from_callable(ARMS, amounts, budget, average=MEANS)


def still(budget: int) -> sa.Environment:
    return sa.Environment.from_means(ARMS, MEANS, sa.GaussianNoise(0.7), budget=budget)


POLICIES: dict[str, sa.Policy[Any]] = {
    "own": Greedy(),
    "balanced": sa.GBAI(order="blocks"),
    "Steady": sa.Steady(),
}
WORLDS: dict[str, Any] = {"money": money, "still": still}


def sweep(journal: str | None = None, trials: int = 300, **options: Any) -> sa.Comparison:
    return sa.compare(POLICIES, WORLDS, BUDGETS, trials, seed=4, journal=journal, **options)


def counted(
    world: str,
    parameter: str,
    value: float | None,
    policy: str,
    trials: int,
    errors: int,
    gap: float | None = 0.1,
    seconds: float = 1.0,
    **facts: Any,
) -> sa.Results:
    """Results with so many errors."""
    picks = {0: trials - errors, 1: errors}
    setting: dict[str, Any] = {"world": world, "parameter": parameter, "value": value, "gap": gap}
    return sa.Results(policy, picks, None, 0, seconds, **setting, **facts)


def counts(found: sa.Comparison) -> list[list[Any]]:
    return [[c.world, c.value, c.policy, c.trials, c.errors, c.regret] for c in found.cells]


if __name__ == "__main__":
    print(json.dumps(counts(sweep(sys.argv[1], int(sys.argv[2])))))
