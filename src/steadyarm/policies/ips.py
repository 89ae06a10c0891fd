"""The base of policies with inverse propensities: a sum of unbiased scores and a rule per segment.

A subclass defines the allocation that follows from the estimate, when the segment ends, and how
its own state changes, if it has any.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import ceil, floor, log2
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.optimal import TOLERANCE, Kind, Solver, SubsetDesigns, designs_for
from steadyarm.designs.rounding import Allocation, exact_allocation
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import ips, ips_squares
from steadyarm.kernels import quadratic_forms
from steadyarm.policies.base import (
    Policy,
    Recommendations,
    State,
    Ties,
    best_arm,
    start_values,
)
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import whole_number

IN_PLAY = 8  # times the rank: arms of a large set, above which an allocation is thinned out
MOST_IN_STATE = 2**28  # 2 GB, in the tables of a state
ROUNDING = 1e-9  # relative difference that may be rounding and must not decide
SLACK = 4 * TOLERANCE  # what the exact solver may be off by
Floats = NDArray[np.float64]
EpochLength = Literal["text", "published"]
"""How long epochs are: as in the paper's "text" or as in its "published" runs."""
IPSStateT = TypeVar("IPSStateT", bound="IPSState")


@dataclass(frozen=True)
class IPSState(State):
    """Sums over all rounds played.

    Attributes
    ----------
    scores : (n, r) sum of A(λ_t)⁻¹ x_t r_t
    squares : (n, r, r) sum of each score times itself; None if squares were not recorded
    weights : (n, K) the allocation in force; (1, m) of a large set
    support : (1, m) arms of a large set that it plays; None for all

    Examples
    --------
    >>> import steadyarm as sa
    >>> state = sa.GBAI().start(sa.ArmSet.one_hot(["A", "B"]), budget=100)
    >>> state.theta.tolist(), state.weights.round(3).tolist()
    ([[0.0, 0.0]], [[0.5, 0.5]])
    """

    scores: NDArray[np.float64]
    squares: NDArray[np.float64] | None
    weights: NDArray[np.float64]
    support: NDArray[np.int64] | None

    @classmethod
    def initial(cls, trials: int, arms: ArmSet, parameters: int) -> dict[str, Any]:
        """Fields of a state before the first round; a subclass adds its own.

        Parameters
        ----------
        trials : n, number of trials
        arms : the variants
        parameters : r, number of parameters

        Returns
        -------
        arrays with a leading axis of n, by the names of the fields
        """
        return {
            "scores": np.zeros((trials, parameters)),
            "squares": np.zeros((trials, parameters, parameters)),
        }

    @property
    def theta(self) -> NDArray[np.float64]:
        """(n, r) the paper's θ̂; zero before the first round."""
        return self.scores / np.maximum(self.played, 1)[:, None]

    def resembles(self, other: State) -> bool:
        """Compare with another state; on a large set allocations may have other shapes."""
        if not isinstance(other, IPSState) or (self.support is None) != (other.support is None):
            return False
        if other.support is None:
            return super().resembles(other)
        fits = other.support.shape == other.weights.shape and other.support.dtype == np.int64
        same = replace(other, weights=self.weights, support=self.support)
        return fits and super().resembles(same)


@dataclass(frozen=True)
class IPSPolicy(Policy[IPSStateT]):
    """A policy that draws arms from an allocation and weighs rewards by its inverse.

    Every allocation must span all arms, because `ips` inverts its information matrix; a policy that
    leaves arms out derives from `PhasedPolicy` or `Policy`. Subclasses implement `allocation` and
    `segment_end`, and `advance` if their state has fields of its own. Class variables:

    shares_features : False if every arm is estimated by itself, whatever its features
    centred : True if rewards are compared with the estimate so far, which matters only where a
        block is cut short or rewards are missing
    pieces : into how many segments a test is cut at least; their sums show drift and noise

    Parameters
    ----------
    solver : the solver of the designs; "frank-wolfe" is the paper's, and "exact" for large sets
    ties : which of arms with equal estimates counts as better: "random", "first" or "last"
    order : "iid" draws every round independently, as in the paper; "blocks" draws permuted
        blocks, which keeps every estimate unbiased in a world that does not react to the
        assignments, and removes the variance from which arm is drawn when
    block : length of a block; 0 for `automatic_block`

    Examples
    --------
    A policy that plays the G-optimal design in the first half and then favours the leader:

    >>> from dataclasses import dataclass
    >>> import steadyarm as sa
    >>> @dataclass(frozen=True)
    ... class HalfTime(IPSPolicy):
    ...     name = "Half-Time"
    ...     def allocation(self, state):
    ...         weights = np.full((state.trials, state.arms.size), 1 / state.arms.size)
    ...         leads = np.arange(state.arms.size) == self.recommend(state).arm[:, None]
    ...         late = state.played[:, None] > 0
    ...         return np.where(late, 0.5 * weights + 0.5 * leads, weights)
    ...     def segment_end(self, state):
    ...         return np.where(state.played < state.budget // 2, state.budget // 2, state.budget)
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(HalfTime(), world, trials=1000, seed=1)
    Results(Half-Time: 60 errors in 1000 trials)
    """

    waits: ClassVar[bool] = False
    unbiased: ClassVar[bool] = True
    estimator: ClassVar[str] = "inverse propensities of all rewards"
    state_type: ClassVar[type[State]] = IPSState
    shares_features: ClassVar[bool] = True
    centred: ClassVar[bool] = False
    pieces: ClassVar[int] = 0

    solver: Solver = "exact"
    ties: Ties = "random"
    order: Literal["iid", "blocks"] = "iid"
    block: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.block, "block")

    @abstractmethod
    def allocation(self, state: IPSStateT) -> Allocation | NDArray[np.float64]:
        """Probabilities for the next segment: (n, K), or on few arms of a large set.

        It is called before the first segment and whenever one has ended. Every row must be positive
        on arms that span all arms. Trials whose segment goes on ignore their row.

        Parameters
        ----------
        state : the state of a batch of n trials, with `theta`, `played` and the subclass's own
            fields

        Returns
        -------
        (n, K) rows that sum to one; an `Allocation` for large sets
        """

    @abstractmethod
    def segment_end(self, state: IPSStateT) -> NDArray[np.int64]:
        """(n,) the last round with that allocation; may lie beyond the budget.

        Parameters
        ----------
        state : the state of a batch of n trials

        Returns
        -------
        (n,) whole numbers above ``state.played``, counted from the start of the test
        """

    def features(self, arms: ArmSet, among: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """(K, r) vectors in which rewards are linear; (m, r) for the m arms in `among`.

        Parameters
        ----------
        arms : the variants
        among : indices of arms; all by default
        """
        if self.shares_features:
            return arms.coordinates_of(among)
        return np.eye(arms.size) if among is None else np.eye(arms.size)[among]

    def advance(self, before: IPSStateT, after: IPSStateT) -> IPSStateT:
        """Update the subclass's own state after a segment's scores were added.

        Parameters
        ----------
        before : the state before the segment
        after : the state with its scores

        Returns
        -------
        `after`, or a copy with changed fields
        """
        return after

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> IPSStateT:
        """No round played, no score."""
        few = self.plays_few(arms)
        values = start_values(arms, budget, trials, seed, self.ties, few, self.takes_targets)
        r = arms.rank if self.shares_features else arms.size
        _check_parameters(r, trials)
        K = 1 if few else arms.size
        values |= {"weights": np.full((trials, K), 1.0 / K)}
        values |= {"support": np.zeros((1, 1), dtype=np.int64) if few else None}
        kind: Any = self.state_type
        state: IPSStateT = kind(**values, **kind.initial(trials, arms, r))
        return replace(state, **self._redesign(state, np.ones(trials, dtype=bool)))

    def next_segment(self, state: IPSStateT) -> Segment | None:
        """The allocation in force, up to the segment's end or that of a piece."""
        rounds = np.minimum(self.segment_end(state), state.budget) - state.played
        if not rounds.any():
            return None
        block = self.block_length(state.arms, state.budget)
        if self.pieces:
            rounds = np.minimum(rounds, block * max(1, round(state.budget / self.pieces / block)))
        reference = state.theta if self.centred else None
        arms = None if state.support is None else state.support[0]
        return Segment(state.weights, rounds, self.order, block, reference, arms)

    def block_length(self, arms: ArmSet, budget: int) -> int:
        """Length of a block, at most the budget.

        Parameters
        ----------
        arms : the variants
        budget : rounds of the test
        """
        return min(self.block or automatic_block(arms, budget), budget)

    def observe(self, state: IPSStateT, segment: Segment, stats: SegmentStats) -> IPSStateT:
        """Add the segment's scores; choose a new allocation where the old one has ended."""
        X = self.features(state.arms, segment.arms)
        squares = None
        if state.squares is not None and stats.squares is not None:
            squares = state.squares + ips_squares(X, segment, stats, stats.squares)
        changed: dict[str, Any] = {
            "played": state.played + segment.rounds,
            "scores": state.scores + ips(X, segment, stats),
            "squares": squares,
        }
        after = self.advance(state, replace(state, **changed))
        ended = (after.played >= self.segment_end(state)) & (after.played < after.budget)
        if not ended.any():
            return after
        return replace(after, **self._redesign(after, ended))

    def _redesign(self, state: IPSStateT, ended: NDArray[np.bool_]) -> dict[str, Any]:
        """The allocation of the state's fields, chosen anew where a trial's old one has ended."""
        chosen = self.allocation(state)
        if not isinstance(chosen, Allocation):
            chosen = Allocation(chosen)
        if state.support is None:
            weights = chosen.everywhere(state.arms.size)
            return {"weights": np.where(ended[:, None], weights, state.weights)}
        arms, length = chosen.arms, IN_PLAY * state.arms.rank
        assert arms is not None
        if arms.size > length:  # stays whole where so few arms would lose a direction
            chosen = exact_allocation(state.arms.coordinates_of(arms), chosen, length)
        return {"weights": chosen.weights, "support": np.array([chosen.arms])}

    def g_optimal(self, arms: ArmSet) -> Allocation:
        """The G-optimal design λ* of all arms, in one row; of all targets if they span the arms."""
        if arms.targets is not None and np.linalg.matrix_rank(arms.target_coordinates) < arms.rank:
            arms = replace(arms, targets=None)
        return _design_of_all(arms, "g", self.solver).allocation()

    def estimates(self, state: IPSStateT) -> NDArray[np.float64]:
        """(n, K) estimated time-averaged value of every arm.

        Parameters
        ----------
        state : the state of a batch of n trials
        """
        return self.values(state, state.theta)

    def values(self, state: IPSStateT, theta: Floats) -> Floats:
        """(n, K) value of every arm, or of every target, under the parameters theta (n, r).

        Parameters
        ----------
        state : the state of a batch of n trials
        theta : (n, r) parameters
        """
        if state.support is not None:
            return state.arms.values(theta[0])[None]
        return np.asarray(theta @ self._targets(state.arms).T)

    def _targets(self, arms: ArmSet) -> Floats:
        return self.features(arms) if arms.targets is None else arms.target_coordinates

    def recommend(self, state: IPSStateT) -> Recommendations:
        """The arm with the highest estimate."""
        estimates = self.estimates(state)
        errors = None
        if state.squares is not None and state.support is None:
            T = state.played[:, None, None].astype(np.float64)
            mean = state.theta[:, :, None]
            with np.errstate(all="ignore"):  # unknown before two rounds: nan
                covariance = (state.squares - T * mean * mean.swapaxes(1, 2)) / (T * (T - 1))
            errors = np.sqrt(quadratic_forms(self._targets(state.arms), covariance))
        return Recommendations(best_arm(estimates, state.ties), estimates, errors)


def _check_parameters(r: int, trials: int) -> None:
    if trials * r * r > MOST_IN_STATE:
        raise InvalidInputError(
            f"the variants have {r:,} parameters to estimate, and policies keep a table of "
            f"{r:,} by {r:,} for each of {trials} trials; describe the variants by fewer features."
        )


def automatic_block(arms: ArmSet, budget: int) -> int:
    """Long enough for every direction to be seen twice or thrice, about 300 in a test at most.

    Parameters
    ----------
    arms : the variants
    budget : rounds of the test

    Returns
    -------
    int : rounds of a block

    Examples
    --------
    >>> automatic_block(ArmSet.one_hot(["A", "B", "C"]), budget=1000)
    9
    """
    return max(8, min(3 * arms.rank, 32), 2 * arms.rank, budget // 320)


def _design_of_all(arms: ArmSet, kind: Kind, solver: Solver) -> SubsetDesigns:
    return designs_for(arms, np.ones((1, arms.recommendable.size), dtype=bool), kind, solver)


def _log2_rho(arms: ArmSet, solver: Solver) -> float:
    """log2 of inf_λ ρ(X, λ), whole if it is so up to the solver's tolerance.

    At least 1/2, so that ρ ≤ 1, undefined in the paper, is one epoch.
    """
    logarithm = log2(_design_of_all(arms, "xy", solver).values[0])
    if solver == "exact" and abs(logarithm - round(logarithm)) < SLACK:
        logarithm = round(logarithm)
    return max(logarithm, 0.5)


def epoch_count(arms: ArmSet, solver: Solver) -> int:
    """⌈log2 ρ⌉, at least one: how often the optimal ρ can be halved.

    Parameters
    ----------
    arms : the variants
    solver : the solver of the XY design

    Returns
    -------
    int : a number of epochs

    Examples
    --------
    >>> epoch_count(ArmSet.one_hot(["A", "B", "C"]), "exact")  # ρ = 6
    3
    """
    return ceil(_log2_rho(arms, solver))


def epoch_end(state: State, solver: Solver, length: EpochLength) -> NDArray[np.int64]:
    """(n,) the next of rounds 1, 1 + R, 1 + 2R, … at which P1-RAGE and P1-Peace redesign.

    R = ⌊T / log2 ρ⌋ in the paper's text, ⌊T / ⌈log2 ρ⌉⌋ in its published runs, at least 1.

    Parameters
    ----------
    state : the state of a batch of n trials
    solver : the solver of the XY design
    length : which of the two

    Returns
    -------
    (n,) whole numbers

    Examples
    --------
    >>> import steadyarm as sa
    >>> state = sa.P1RAGE().start(sa.ArmSet.one_hot(["A", "B", "C"]), budget=900)
    >>> epoch_end(state, "exact", "published").tolist()
    [1]
    """
    epochs = _log2_rho(state.arms, solver)
    R = max(1, floor(state.budget / (ceil(epochs) if length == "published" else epochs)))
    return np.where(state.played < 1, 1, 1 + ((state.played - 1) // R + 1) * R)


# What eliminations share: Peace's for real, and the virtual ones whose designs are averaged.


def gaps_to_leader(estimates: Floats) -> Floats:
    """The gap of each arm to the leader; zero where that is rounding."""
    gaps = estimates.max(axis=1, keepdims=True) - estimates
    size = np.abs(estimates).max(axis=1, keepdims=True)
    return np.where(gaps > ROUNDING * size, gaps, 0.0)


def halve(
    arms: ArmSet, survivors: NDArray[np.bool_], order: NDArray[np.int64], solver: Solver
) -> NDArray[np.bool_]:
    """The longest prefix of `order` within `survivors` whose optimal ρ is at most half.

    The optimal ρ grows with the set, so the prefix is found by bisection.

    Parameters
    ----------
    survivors : (n, K) mask
    order : (n, K) all arms from best to worst
    """
    # Arms of each trial, survivors first, best first.
    place = np.argsort(~np.take_along_axis(survivors, order, axis=1), axis=1, kind="stable")
    ranked = np.take_along_axis(order, place, axis=1)
    position = np.argsort(ranked, axis=1, kind="stable")
    designs = designs_for(arms, survivors, kind="xy", solver=solver)
    half = designs.values[designs.index] / 2
    slack = SLACK if solver == "exact" else ROUNDING
    low = np.ones(len(order), dtype=np.int64)  # a single arm has ρ = 0
    high = np.maximum(survivors.sum(axis=1), 2)  # the whole set has more than half of its own ρ
    while (high - low > 1).any():
        middle = (low + high) // 2
        prefix = designs_for(arms, position < middle[:, None], kind="xy", solver=solver)
        fits = prefix.values[prefix.index] <= half * (1 + slack)
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle)
    return position < low[:, None]


def average_design(
    arms: ArmSet, phases: NDArray[np.bool_], solver: Solver, rising: bool = False
) -> Allocation:
    """Mean over the phases (n, p, K) with more than one arm of their XY-optimal designs.

    rising : phase i counts i + 1 times instead of once
    """
    n, p, _ = phases.shape
    counted = phases.sum(axis=2) > 1
    designs = designs_for(arms, phases[counted], kind="xy", solver=solver)
    index = np.zeros((n, p), dtype=np.int64)
    index[counted] = designs.index
    shares = counted * (np.arange(1.0, p + 1) if rising else 1.0)
    total = np.zeros((n, designs.weights.shape[1]))
    for phase in np.flatnonzero(counted.any(axis=0)):
        total += shares[:, phase, None] * designs.weights[index[:, phase]]
    return Allocation(total / shares.sum(axis=1)[:, None], designs.arms)
