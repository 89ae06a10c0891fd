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
from steadyarm.designs.rounding import round_designs
from steadyarm.estimators import arm_values, least_squares, standard_errors
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

__all__ = ["EliminationPolicy", "EliminationState"]


@dataclass(frozen=True)
class EliminationState(State):
    """Who is left, and what the last epoch said.

    Attributes
    ----------
    epoch : (n,) epochs finished
    survivors : (n, K) mask of the arms that are left
    theta : (n, r) least-squares parameter of the last epoch; zero before the first
    covariance : (n, r, r) of theta if nothing drifts; None if squares were not recorded
    """

    epoch: NDArray[np.int64]
    survivors: NDArray[np.bool_]
    theta: NDArray[np.float64]
    covariance: NDArray[np.float64] | None


@dataclass(frozen=True)
class EliminationPolicy(Policy[EliminationState]):
    """A policy that plays fixed counts in random order, then drops arms for good."""

    waits: ClassVar[bool] = True
    state_type: ClassVar[type[State]] = EliminationState

    solver: Solver = "exact"
    ties: Ties = "random"

    @abstractmethod
    def planned_counts(self, state: EliminationState) -> NDArray[np.int64]:
        """(n, K) plays of the next epoch, cut to the budget afterwards; zeros to stop."""

    @abstractmethod
    def keep(self, state: EliminationState, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n, K) who survives the epoch, given all arms ordered (n, K) from best to worst."""

    def tie_rule(self, arms: ArmSet, budget: int) -> Ties:
        """How equal estimates are ordered."""
        return self.ties

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> EliminationState:
        """Everybody is left, nothing is known."""
        return EliminationState(
            **start_values(arms, budget, trials, seed, self.tie_rule(arms, budget)),
            epoch=np.zeros(trials, dtype=np.int64),
            survivors=np.ones((trials, arms.size), dtype=bool),
            theta=np.zeros((trials, arms.rank)),
            covariance=np.full((trials, arms.rank, arms.rank), np.nan),
        )

    def next_segment(self, state: EliminationState) -> Segment | None:
        """The next epoch's counts in random order; never more than the budget has left."""
        counts = self.planned_counts(state)
        left = state.budget - state.played
        total = counts.sum(axis=1)
        over = total > left
        if over.any():
            counts[over] = round_designs(counts[over] / total[over, None], left[over])
        segment = Segment.shuffled(counts)
        return segment if segment.rounds.any() else None

    def observe(
        self, state: EliminationState, segment: Segment, stats: SegmentStats
    ) -> EliminationState:
        """Estimate from this epoch alone and drop arms."""
        X = state.arms.coordinates
        active = segment.rounds > 0
        theta, covariance = least_squares(X, stats)
        theta = np.where(active[:, None], theta, state.theta)
        if covariance is not None and state.covariance is not None:
            covariance = np.where(active[:, None, None], covariance, state.covariance)
        after = replace(
            state,
            played=state.played + segment.rounds,
            epoch=state.epoch + active,
            theta=theta,
            covariance=covariance,
        )
        kept = self.keep(state, rank_arms(arm_values(X, theta), state.ties))
        return replace(after, survivors=np.where(active[:, None], kept, state.survivors))

    def recommend(self, state: EliminationState) -> Recommendations:
        """The survivor with the highest estimate."""
        X = state.arms.coordinates
        estimates = arm_values(X, state.theta)
        errors = None if state.covariance is None else standard_errors(X, state.covariance)
        return Recommendations(best_arm(estimates, state.ties, state.survivors), estimates, errors)
