"""GrowthBook's statistics engine (`gbstats`) on an equal split, as GrowthBook runs its tests."""

from __future__ import annotations

from importlib import import_module

from benchmarks.peers.equal_split import EqualSplit
from benchmarks.peers.interface import Task, Tool, highest

__all__ = ["TOOLS"]

CHANCE = 0.95  # what GrowthBook calls a winner unless it is told otherwise


class ChanceToWin(EqualSplit):
    """Its Bayesian engine: the variant with the highest chance to beat the first one wins."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._engine = import_module("gbstats.bayesian.tests").EffectBayesianABTest
        self._statistic = import_module("gbstats.models.statistics").ProportionStatistic

    def decide(self) -> int:
        chances = [0.5] + [self.chance(0, k) for k in range(1, self.K)]
        self.winner = highest(chances, self.rng)
        return self.winner

    def sure(self) -> bool:
        """At least 95% chance to beat every other variant."""
        others = (k for k in range(self.K) if k != self.winner)
        return all(self.chance(k, self.winner) >= CHANCE for k in others)

    def chance(self, baseline: int, variant: int) -> float:
        """That the variant beats the baseline, as the engine says."""
        first, second = (
            self._statistic(n=self.counts[k], sum=int(self.sums[k])) for k in (baseline, variant)
        )
        return float(self._engine(first, second).compute_result().chance_to_win)


TOOLS = (Tool("growthbook", ChanceToWin, module="gbstats", package="gbstats"),)
