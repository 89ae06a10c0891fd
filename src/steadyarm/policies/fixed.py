"""Policies whose allocation is fixed beforehand: Uniform, G-BAI and Adjacent-BAI.

They do not learn during the test, so that no drift can mislead them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.adjacency import adjacent_optimal
from steadyarm.designs.rounding import Allocation, round_designs
from steadyarm.estimators import least_squares, least_squares_errors
from steadyarm.policies.base import (
    Policy,
    Recommendations,
    State,
    TallyState,
    Ties,
    best_arm,
    empty_tally,
    start_values,
)
from steadyarm.policies.ips import IPSPolicy, IPSState
from steadyarm.segments import Segment, SegmentStats


@dataclass(frozen=True)
class Uniform(IPSPolicy[IPSState]):
    """Draw every arm with probability 1/K throughout.

    The estimate still uses the features. Robust to drift, but blind both to the shape of the
    arm set and to the rewards.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C", "D"])
    >>> policy = sa.Uniform()
    >>> policy.next_segment(policy.start(arms, budget=100)).weights
    array([[0.25, 0.25, 0.25, 0.25]])
    """

    name: ClassVar[str] = "Uniform"

    def allocation(self, state: IPSState) -> NDArray[np.float64]:
        """1/K for every arm."""
        return np.full((state.trials, state.arms.size), 1.0 / state.arms.size)

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        """The whole budget is one segment."""
        return np.full(state.trials, state.budget)


@dataclass(frozen=True)
class GBAI(IPSPolicy[IPSState]):
    """Draw from the G-optimal design λ* and recommend the largest inverse-propensity estimate.

    Minimax optimal when the world may move arbitrarily: error at most
    K exp(-T Δ²/(12 d)) (Theorem 1) for rewards of at most 1 in size. It learns nothing on the way.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.from_features([[1, 0], [0, 1], [0.5, 0.5]])
    >>> policy = sa.GBAI()
    >>> policy.next_segment(policy.start(arms, budget=100)).weights.round(3)
    array([[0.5, 0.5, 0. ]])
    """

    name: ClassVar[str] = "G-BAI"
    takes_targets: ClassVar[bool] = True
    scales: ClassVar[bool] = True

    @classmethod
    def published(cls) -> Self:
        """Frank-Wolfe designs, ties to the higher index."""
        return cls(solver="frank-wolfe", ties="last")

    def allocation(self, state: IPSState) -> Allocation:
        """λ* for every trial."""
        return self.g_optimal(state.arms)

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        """The whole budget is one segment."""
        return np.full(state.trials, state.budget)


@dataclass(frozen=True)
class ShuffledPlan(Policy[TallyState]):
    """Numbers of plays that are fixed beforehand, all in one random order.

    Parameters
    ----------
    ties : which of arms with equal estimates counts as better: "random", "first" or "last"
    """

    waits: ClassVar[bool] = False
    estimator: ClassVar[str] = "least squares of all rewards"
    state_type: ClassVar[type[State]] = TallyState

    ties: Ties = "random"

    @abstractmethod
    def plan(self, state: TallyState) -> NDArray[np.int64]:
        """(n, K) how often each arm is to be played, or the same for all trials."""

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> TallyState:
        """Nothing is known."""
        return TallyState(
            **start_values(arms, budget, trials, seed, self.ties), **empty_tally(trials, arms.size)
        )

    def next_segment(self, state: TallyState) -> Segment | None:
        """The whole plan at once; later, what is left of it."""
        segment = Segment.shuffled(np.maximum(self.plan(state) - state.counts, 0))
        return segment if segment.rounds.any() else None

    def observe(self, state: TallyState, segment: Segment, stats: SegmentStats) -> TallyState:
        """Add the sums."""
        return state.after(segment, stats)


@dataclass(frozen=True)
class AdjacentBAI(ShuffledPlan):
    """Play the design for pairs of arms joined by an edge of conv(X), all in one random order.

    The best arm is found by comparing neighbours only, and the random order turns drift into
    noise. It learns nothing on the way: the design, efficiently rounded, is fixed beforehand, and
    ordinary least squares on all rounds names the best. If the budget is smaller than the
    design's support the heavier arms are played, and the shortest least-squares solution counts.

    Parameters
    ----------
    ties : which of arms with equal estimates counts as better: "random", "first" or "last"

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.factorial({"a": ["0", "1"], "b": ["0", "1"]}, interactions=1)
    >>> world = sa.Environment.from_parameters(arms, [0.0, 0.2, 0.1], budget=300)
    >>> sa.simulate(sa.AdjacentBAI(), world, trials=1000, seed=1)
    Results(Adjacent-BAI: 53 errors in 1000 trials)

    References
    ----------
    Maynard-Zhang, Xiong, Jamieson, Fazel: On the complexity of best-arm identification in
    non-stationary linear bandits. COLT 2026.
    """

    name: ClassVar[str] = "Adjacent-BAI"

    def plan(self, state: TallyState) -> NDArray[np.int64]:
        """The design, rounded.

        Parameters
        ----------
        state : the state of n trials

        Returns
        -------
        (n, K) plays of every arm
        """
        return round_designs(adjacent_optimal(state.arms).weights[None], state.budget)

    def recommend(self, state: TallyState) -> Recommendations:
        """The arm with the highest least-squares value; nan where the plays say nothing of it."""
        X = state.arms.coordinates
        theta, variance = least_squares(X, state.tally)
        estimates = theta @ X.T
        arm = best_arm(estimates, state.ties)
        if variance is None:
            return Recommendations(arm, estimates, None)
        errors = least_squares_errors(X, state.counts, variance)
        unplayed = np.isnan(least_squares_errors(X, state.counts, np.ones(state.trials)))
        return Recommendations(arm, np.where(unplayed, np.nan, estimates), errors)
