"""Few: a policy that plays few of many arms at a time, or the same with a column for every arm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.policies import Policy, Recommendations, State
from steadyarm.segments import Segment, SegmentStats

LARGE = sa.ArmSet.factorial({f"s{i}": ["off", "on"] for i in range(13)})  # 8,192 arms


@dataclass(frozen=True)
class FewState(State):
    """`moment` is the sum of coordinates times rewards: all that the policy remembers."""

    moment: NDArray[np.float64]


@dataclass(frozen=True)
class Few(Policy[FewState]):
    """Which arms are played, and how often, depends on what was told.

    few : False for dense segments with zeros, which must be the same in all that follows
    most : arms of a segment
    """

    few: bool = True
    most: int = 40

    name: ClassVar[str] = "Few"
    waits: ClassVar[bool] = False
    state_type: ClassVar[type[State]] = FewState

    def start(self, arms: sa.ArmSet, budget: int, trials: int = 1, seed: int = 0) -> FewState:
        none = np.zeros(1, dtype=np.int64)
        return FewState(arms, budget, none, none[None].copy(), np.zeros((1, arms.rank)))

    def next_segment(self, state: FewState) -> Segment | None:
        played, K = int(state.played[0]), state.arms.size
        if played >= state.budget:
            return None
        told = int(np.abs(state.moment).sum() * 64) % 97  # exact: rewards are multiples of 1/64
        arms = np.unique((np.arange(self.most) * 7919 + 131 * told) % K).astype(np.int64)
        weights = np.arange(1.0, arms.size + 1)[None]
        weights /= weights.sum()
        rounds = np.array([min(state.budget // 4, state.budget - played)])
        if self.few:
            return Segment(weights, rounds, "blocks", 16, arms=arms)
        dense = np.zeros((1, K))
        dense[:, arms] = weights
        return Segment(dense, rounds, "blocks", 16)

    def observe(self, state: FewState, segment: Segment, stats: SegmentStats) -> FewState:
        moment = stats.sums @ state.arms.coordinates_of(segment.arms)
        return replace(state, played=state.played + segment.rounds, moment=state.moment + moment)

    def recommend(self, state: FewState) -> Recommendations:
        estimates = state.arms.values(state.moment[0] / max(int(state.played[0]), 1))[None]
        return Recommendations(estimates.argmax(axis=1), estimates, np.ones_like(estimates))


def reward_of(arm: int, number: int) -> float:
    """Multiples of 1/64, so that sums are exact in any order."""
    return ((arm * 37 + number * 11) % 64) / 64
