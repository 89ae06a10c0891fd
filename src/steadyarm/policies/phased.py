"""Policies that eliminate arms for good: Peace, OD-LinBAI and Sequential Halving.

They are made for stationary worlds: an eliminated arm never comes back, and estimates use one
epoch only, so drift misleads them. Peace and OD-LinBAI share `PhasedPolicy`: epochs of a rounded
design, estimated by least squares.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.optimal import Solver, designs_for
from steadyarm.designs.rounding import round_designs
from steadyarm.estimators import least_squares, least_squares_errors
from steadyarm.policies.base import (
    Policy,
    Recommendations,
    State,
    TallyState,
    Ties,
    best_arm,
    empty_tally,
    rank_arms,
    start_values,
)
from steadyarm.policies.ips import epoch_count, halve
from steadyarm.segments import Segment, SegmentStats


@dataclass(frozen=True)
class PhasedState(State):
    """The surviving arms, and the estimate from the last epoch.

    Attributes
    ----------
    epoch : (n,) epochs finished
    survivors : (n, K) mask of the surviving arms
    theta : (n, r) least-squares parameter of the last epoch; zero before the first
    counts : (n, K) plays of that epoch
    variance : (n,) of the noise, if nothing drifts; None if squares were not recorded

    Examples
    --------
    >>> import steadyarm as sa
    >>> state = sa.Peace().start(sa.ArmSet.one_hot(["A", "B"]), budget=100)
    >>> state.survivors.tolist(), state.epoch.tolist()
    ([[True, True]], [0])
    """

    epoch: NDArray[np.int64]
    survivors: NDArray[np.bool_]
    theta: NDArray[np.float64]
    counts: NDArray[np.int64]
    variance: NDArray[np.float64] | None


@dataclass(frozen=True)
class PhasedPolicy(Policy[PhasedState]):
    """A policy that plays fixed counts in random order, then drops arms for good.

    Subclasses implement `planned_counts` and `keep`.

    Parameters
    ----------
    solver : the solver of the designs; "frank-wolfe" is the paper's
    ties : which of arms with equal estimates counts as better: "random", "first" or "last"

    Examples
    --------
    A policy that plays survivors alike and drops the worst after each of K - 1 epochs:

    >>> from dataclasses import dataclass
    >>> import steadyarm as sa
    >>> @dataclass(frozen=True)
    ... class DropWorst(PhasedPolicy):
    ...     name = "Drop-Worst"
    ...     def planned_counts(self, state):
    ...         left = state.survivors.sum(axis=1, keepdims=True)
    ...         each = state.budget // (state.arms.size - 1) // left
    ...         return np.where(state.survivors & (left > 1), each, 0)
    ...     def keep(self, state, order):
    ...         rank = np.argsort(order, axis=1)
    ...         worst = np.where(state.survivors, rank, -1).argmax(axis=1)
    ...         return state.survivors & (np.arange(state.arms.size) != worst[:, None])
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(DropWorst(), world, trials=1000, seed=1)
    Results(Drop-Worst: 54 errors in 1000 trials)
    """

    waits: ClassVar[bool] = True
    estimator: ClassVar[str] = "least squares of the last epoch"
    state_type: ClassVar[type[State]] = PhasedState

    solver: Solver = "exact"
    ties: Ties = "random"

    @abstractmethod
    def planned_counts(self, state: PhasedState) -> NDArray[np.int64]:
        """(n, K) plays of the next epoch, cut to the budget afterwards; zeros to stop.

        Parameters
        ----------
        state : the state of a batch of n trials, with its `survivors` and `epoch`

        Returns
        -------
        (n, K) whole numbers
        """

    @abstractmethod
    def keep(self, state: PhasedState, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n, K) who survives the epoch, given all arms ordered (n, K) from best to worst.

        Parameters
        ----------
        state : from before the epoch
        order : (n, K) indices of arms by their new estimates

        Returns
        -------
        (n, K) mask; at least one arm of each trial
        """

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> PhasedState:
        """All arms survive, and nothing is known."""
        return PhasedState(
            **start_values(arms, budget, trials, seed, self.ties),
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
        kept = self.keep(state, rank_arms(theta @ X.T, state.ties))
        return replace(after, survivors=np.where(active[:, None], kept, state.survivors))

    def recommend(self, state: PhasedState) -> Recommendations:
        """The survivor with the highest estimate; nan for arms outside the last epoch."""
        X = state.arms.coordinates
        estimates = state.theta @ X.T
        arm = best_arm(estimates, state.ties, state.survivors)
        if state.variance is None:
            return Recommendations(arm, estimates, None)
        errors = least_squares_errors(X, state.counts, state.variance)
        unplayed = np.isnan(least_squares_errors(X, state.counts, np.ones(state.trials)))
        return Recommendations(arm, np.where(unplayed, np.nan, estimates), errors)


def keep_best(
    survivors: NDArray[np.bool_], order: NDArray[np.int64], most: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(n, K) mask of the first `most` (n,) survivors of all arms in `order` (n, K)."""
    alive = np.take_along_axis(survivors, order, axis=1)
    kept = np.empty_like(alive)
    np.put_along_axis(kept, order, alive & (np.cumsum(alive, axis=1) <= most[:, None]), axis=1)
    return kept


@dataclass(frozen=True)
class Peace(PhasedPolicy):
    """In each of ⌈log2 ρ⌉ epochs play the survivors' XY design, then halve their difficulty.

    As in the paper's experiments the optimal ρ stands for the Gaussian width of the original,
    each epoch is played in random order, and the last epoch takes the remainder of the budget.
    It stops early when one arm is left.

    Parameters
    ----------
    rounding_ties : which arm gets a round first where there are fewer rounds than arms, where
        the paper is silent: the "heavier" in the design, or the "first"

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.Peace(), world, trials=1000, seed=1)
    Results(Peace: 164 errors in 1000 trials)

    References
    ----------
    Katz-Samuels, Jain, Karnin, Jamieson: An empirical process approach to the union bound:
    practical algorithms for combinatorial and linear bandits. NeurIPS 2020.
    """

    name: ClassVar[str] = "Peace"

    solver: Solver = "frank-wolfe"
    rounding_ties: Literal["heavier", "first"] = "heavier"

    @classmethod
    def published(cls) -> Self:
        """Ties to the higher index; in rounding to the lower."""
        return cls(ties="last", rounding_ties="first")

    def planned_counts(self, state: PhasedState) -> NDArray[np.int64]:
        """The survivors' XY design, efficiently rounded to the epoch's length."""
        epochs = epoch_count(state.arms, self.solver)
        left = state.budget - state.played
        length = np.where(state.epoch + 1 < epochs, max(1, state.budget // epochs), left)
        ended = (state.epoch >= epochs) | (state.survivors.sum(axis=1) == 1)
        rounds = np.where(ended, 0, np.minimum(length, left))
        designs = designs_for(state.arms, state.survivors, kind="xy", solver=self.solver)
        weights = designs.allocation().everywhere(state.arms.size)
        return round_designs(weights, rounds, self.rounding_ties)

    def keep(self, state: PhasedState, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The longest prefix whose optimal ρ is at most half."""
        return halve(state.arms, state.survivors, order, self.solver)


@dataclass(frozen=True)
class ODLinBAI(PhasedPolicy):
    """In round r play the survivors' G-optimal design, then keep the best ⌈d / 2^r⌉ arms.

    There are ⌈log2 d⌉ rounds (one if d = 1) of ⌈π_i m⌉ plays per arm, where m leaves room for
    the rounding up. If the budget is so small that m ≤ 0, nothing is played and the
    recommendation is a random arm.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.ODLinBAI(), world, trials=1000, seed=1)
    Results(OD-LinBAI: 55 errors in 1000 trials)

    References
    ----------
    Yang, Tan: Minimax optimal fixed-budget best arm identification in linear bandits.
    NeurIPS 2022, Algorithm 1.
    """

    name: ClassVar[str] = "OD-LinBAI"

    solver: Solver = "frank-wolfe"

    @classmethod
    def published(cls) -> Self:
        """Ties to the higher index."""
        return cls(ties="last")

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> PhasedState:
        """All arms survive; where nothing is played, ties are random, so that any may be named."""
        state = super().start(arms, budget, trials, seed)
        if _plays_per_round(arms, budget) > 0:
            return state
        return replace(state, ties=start_values(arms, budget, trials, seed, "random")["ties"])

    def planned_counts(self, state: PhasedState) -> NDArray[np.int64]:
        """⌈π_i m⌉ plays of each survivor i."""
        m = _plays_per_round(state.arms, state.budget)
        if m <= 0:
            return np.zeros((state.trials, state.arms.size), dtype=np.int64)
        designs = designs_for(state.arms, state.survivors, kind="g", solver=self.solver)
        # 1e-9: a product that is whole up to rounding errors is not rounded up to the next number.
        weights = designs.allocation().everywhere(state.arms.size)
        counts: NDArray[np.int64] = np.ceil(weights * m - 1e-9).astype(np.int64)
        ended = state.epoch >= _halvings(state.arms.rank)
        counts[ended | (state.survivors.sum(axis=1) == 1)] = 0
        return counts

    def keep(self, state: PhasedState, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The best ⌈d / 2^r⌉ of the survivors."""
        most = -(-state.arms.rank // (np.int64(1) << (state.epoch + 1)))
        return keep_best(state.survivors, order, most)


def _halvings(d: int) -> int:
    return max(1, (d - 1).bit_length())


def _plays_per_round(arms: ArmSet, budget: int) -> float:
    """The m of the algorithm: an equal share of the budget less the room for rounding up."""
    K, d = arms.size, arms.rank
    halvings = _halvings(d)
    spare = sum(ceil(d / 2**r) for r in range(1, halvings))
    return float(budget - min(K, d * (d + 1) // 2) - spare) / halvings


@dataclass(frozen=True)
class HalvingState(TallyState):
    """The surviving arms; the sums are those of the last round alone.

    Attributes
    ----------
    epoch : (n,) rounds of halving finished
    survivors : (n, K) mask of the surviving arms
    """

    epoch: NDArray[np.int64]
    survivors: NDArray[np.bool_]


@dataclass(frozen=True)
class SequentialHalving(Policy[HalvingState]):
    """In each of ⌈log2 K⌉ rounds play all survivors alike, then keep the better half of them.

    Every survivor is played ⌊T / (|S| ⌈log2 K⌉)⌋ times, in random order, and judged by its mean in
    that round; features are ignored. What the rounding leaves of the budget is not spent. A budget
    below K ⌈log2 K⌉ is too small for the first round: the rounds without a single play halve
    the arms at random, and if even two arms cannot be compared the recommendation is a random arm.

    Parameters
    ----------
    ties : which of arms with equal estimates counts as better: "random", "first" or "last"

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.SequentialHalving(), world, trials=1000, seed=1)
    Results(Sequential-Halving: 54 errors in 1000 trials)

    References
    ----------
    Karnin, Koren, Somekh: Almost optimal exploration in multi-armed bandits. ICML 2013,
    Algorithm 1.
    """

    name: ClassVar[str] = "Sequential-Halving"
    waits: ClassVar[bool] = True
    estimator: ClassVar[str] = "least squares of the last epoch"
    state_type: ClassVar[type[State]] = HalvingState

    ties: Ties = "random"

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> HalvingState:
        """All arms survive, except those halved away by rounds too short for a single play."""
        state = HalvingState(
            **start_values(arms, budget, trials, seed, self.ties),
            **empty_tally(trials, arms.size),
            epoch=np.zeros(trials, dtype=np.int64),
            survivors=np.ones((trials, arms.size), dtype=bool),
        )
        while state.epoch[0] < _halvings_of(arms) and not _plays(state).any():
            state = _halve(state, np.argsort(state.ties, axis=1, kind="stable"))
        return state

    def next_segment(self, state: HalvingState) -> Segment | None:
        """Every survivor alike, in random order."""
        ended = state.epoch >= _halvings_of(state.arms)
        plays = np.where(ended, 0, _plays(state))
        segment = Segment.shuffled(np.where(state.survivors, plays[:, None], 0))
        return segment if segment.rounds.any() else None

    def observe(self, state: HalvingState, segment: Segment, stats: SegmentStats) -> HalvingState:
        """Judge by this round alone and keep the better half."""
        active = segment.rounds > 0
        here = active[:, None]
        squares = None
        if state.squares is not None and stats.squares is not None:
            squares = np.where(here, stats.squares, state.squares)
        after = replace(
            state,
            played=state.played + segment.rounds,
            counts=np.where(here, stats.counts, state.counts),
            sums=np.where(here, stats.sums, state.sums),
            squares=squares,
        )
        halved = _halve(after, rank_arms(_means(after), state.ties))
        return replace(
            halved,
            epoch=np.where(active, halved.epoch, state.epoch),
            survivors=np.where(here, halved.survivors, state.survivors),
        )

    def recommend(self, state: HalvingState) -> Recommendations:
        """The survivor with the highest mean; nan for arms that the last round did not play."""
        means = _means(state)
        arm = best_arm(means, state.ties, state.survivors)
        estimates = np.where(state.counts > 0, means, np.nan)
        if state.squares is None:
            return Recommendations(arm, estimates, None)
        spread = np.maximum(state.squares - state.counts * means**2, 0.0)
        freedom = state.counts * (state.counts - 1.0)
        known = freedom > 0
        errors = np.where(known, np.sqrt(spread / np.where(known, freedom, 1.0)), np.nan)
        return Recommendations(arm, estimates, errors)


def _halvings_of(arms: ArmSet) -> int:
    return (arms.size - 1).bit_length()


def _plays(state: HalvingState) -> NDArray[np.int64]:
    """(n,) plays of each survivor in the next round."""
    return np.asarray(state.budget // (state.survivors.sum(axis=1) * _halvings_of(state.arms)))


def _means(state: HalvingState) -> NDArray[np.float64]:
    """(n, K) mean reward of every arm in the last round; below all others where there is none."""
    means = state.sums / np.maximum(state.counts, 1)
    unplayed = state.counts == 0
    lowest = np.where(unplayed, np.inf, means).min(axis=1, keepdims=True)
    return np.where(unplayed, np.where(np.isfinite(lowest), lowest - 1.0, 0.0), means)


def _halve(state: HalvingState, order: NDArray[np.int64]) -> HalvingState:
    """The first ⌈|S|/2⌉ survivors of all arms in `order` (n, K) are kept."""
    kept = keep_best(state.survivors, order, (state.survivors.sum(axis=1) + 1) // 2)
    return replace(state, epoch=state.epoch + 1, survivors=kept)
