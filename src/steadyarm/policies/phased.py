"""What Peace and OD-LinBAI share: epochs of a rounded design, least squares, real elimination.

They were made for worlds that stand still: an eliminated arm never comes back, and estimates
use one epoch only. They stand here as the rivals that drift misleads.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.exact_design import round_designs
from steadyarm.estimators import arm_values, least_squares, least_squares_errors
from steadyarm.policies.base import (
    Policy,
    Recommendations,
    Solver,
    State,
    Ties,
    best_arm,
    rank_arms,
    start_values,
)
from steadyarm.segments import Segment, SegmentStats

__all__ = ["PhasedPolicy", "PhasedState"]


@dataclass(frozen=True)
class PhasedState(State):
    """Who is left, and what the last epoch said.

    Attributes
    ----------
    epoch : (n,) epochs finished
    survivors : (n, K) mask of the arms that are left
    theta : (n, r) least-squares parameter of the last epoch; zero before the first
    counts : (n, K) plays of that epoch
    variance : (n,) of the noise, if nothing drifts; None if squares were not recorded
    """

    epoch: NDArray[np.int64]
    survivors: NDArray[np.bool_]
    theta: NDArray[np.float64]
    counts: NDArray[np.int64]
    variance: NDArray[np.float64] | None


@dataclass(frozen=True)
class PhasedPolicy(Policy[PhasedState]):
    """A policy that plays fixed counts in random order, then drops arms for good.

    Parameters
    ----------
    solver : of the designs; "frank-wolfe" is the paper's
    ties : which of arms with equal estimates counts as better: "random", "first" or "last"
    """

    waits: ClassVar[bool] = True
    state_type: ClassVar[type[State]] = PhasedState

    solver: Solver = "exact"
    ties: Ties = "random"

    @abstractmethod
    def planned_counts(self, state: PhasedState) -> NDArray[np.int64]:
        """(n, K) plays of the next epoch, cut to the budget afterwards; zeros to stop."""

    @abstractmethod
    def keep(self, state: PhasedState, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n, K) who survives the epoch, given all arms ordered (n, K) from best to worst."""

    def tie_rule(self, arms: ArmSet, budget: int) -> Ties:
        """How equal estimates are ordered."""
        return self.ties

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> PhasedState:
        """Everybody is left, nothing is known."""
        return PhasedState(
            **start_values(arms, budget, trials, seed, self.tie_rule(arms, budget)),
            epoch=np.zeros(trials, dtype=np.int64),
            survivors=np.ones((trials, arms.size), dtype=bool),
            theta=np.zeros((trials, arms.rank)),
            counts=np.zeros((trials, arms.size), dtype=np.int64),
            variance=np.full(trials, np.nan),
        )

    def next_segment(self, state: PhasedState) -> Segment | None:
        """The next epoch's counts in random order; never more than the budget has left."""
        counts = self.planned_counts(state)
        left = state.budget - state.played
        total = counts.sum(axis=1)
        over = total > left
        if over.any():
            counts[over] = round_designs(counts[over] / total[over, None], left[over])
        segment = Segment.shuffled(counts)
        return segment if segment.rounds.any() else None

    def observe(self, state: PhasedState, segment: Segment, stats: SegmentStats) -> PhasedState:
        """Estimate from this epoch alone and drop arms."""
        X = state.arms.coordinates
        active = segment.rounds > 0
        theta, variance = least_squares(X, stats)
        theta = np.where(active[:, None], theta, state.theta)
        if variance is not None and state.variance is not None:
            variance = np.where(active, variance, state.variance)
        after = replace(
            state,
            played=state.played + segment.rounds,
            epoch=state.epoch + active,
            theta=theta,
            counts=np.where(active[:, None], stats.counts, state.counts),
            variance=variance,
        )
        kept = self.keep(state, rank_arms(arm_values(X, theta), state.ties))
        return replace(after, survivors=np.where(active[:, None], kept, state.survivors))

    def recommend(self, state: PhasedState) -> Recommendations:
        """The survivor with the highest estimate; nan for arms the last epoch says nothing of."""
        X = state.arms.coordinates
        estimates = arm_values(X, state.theta)
        arm = best_arm(estimates, state.ties, state.survivors)
        if state.variance is None:
            return Recommendations(arm, estimates, None)
        errors = least_squares_errors(X, state.counts, state.variance)
        unplayed = np.isnan(least_squares_errors(X, state.counts, np.ones(state.trials)))
        return Recommendations(arm, np.where(unplayed, np.nan, estimates), errors)
