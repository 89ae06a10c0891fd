"""EqualSplit: the A/B/n test as it is usually run, to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from steadyarm.arms import ArmSet
from steadyarm.policies.base import (
    Policy,
    Recommendations,
    State,
    Ties,
    best_arm,
    start_values,
)
from steadyarm.policies.tally import TallyState, empty_tally
from steadyarm.segments import Segment, SegmentStats

__all__ = ["EqualSplit"]


@dataclass(frozen=True)
class EqualSplit(Policy[TallyState]):
    """Every arm equally often, in one random order; the highest mean reward is named.

    Features are ignored. Rounds that cannot be shared equally are not played; in a live test with
    rewards outstanding `ask` names these rewards when the plan has been assigned, since plays whose
    reward is given up are made again.

    Examples
    --------
    >>> policy = EqualSplit()
    >>> policy.next_segment(policy.start(ArmSet.one_hot(["A", "B"]), budget=101)).counts
    array([[50, 50]])
    """

    name: ClassVar[str] = "A/B-test"
    waits: ClassVar[bool] = False
    state_type: ClassVar[type[State]] = TallyState

    ties: Ties = "random"

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> TallyState:
        """Nothing is known."""
        return TallyState(
            **start_values(arms, budget, trials, seed, self.ties), **empty_tally(trials, arms.size)
        )

    def next_segment(self, state: TallyState) -> Segment | None:
        """The whole test at once; later, what is left of it."""
        each = state.budget // state.arms.size
        segment = Segment.shuffled(np.maximum(each - state.counts, 0))
        return segment if segment.rounds.any() else None

    def observe(self, state: TallyState, segment: Segment, stats: SegmentStats) -> TallyState:
        """Add the sums."""
        return state.after(segment, stats)

    def recommend(self, state: TallyState) -> Recommendations:
        """The arm with the highest mean."""
        means = state.sums / np.maximum(state.counts, 1)
        return Recommendations(best_arm(means, state.ties), means, None)
