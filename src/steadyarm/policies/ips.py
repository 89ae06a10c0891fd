"""What the inverse-propensity policies share: a sum of unbiased scores and a rule per segment.

A subclass defines only which allocation follows from the estimate and when the segment ends. With
``control_variate=True`` rewards are compared with a predictable reference, at the end of this file.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.compiled import exponentials, kernel, log2
from steadyarm.designs.cache import TOLERANCE, SubsetDesigns, designs_for
from steadyarm.designs.exact_design import Allocation, exact_allocation
from steadyarm.designs.optimal import Kind
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import arm_values, ips, ips_squares, standard_errors
from steadyarm.linalg import cholesky, cholesky_solve, information
from steadyarm.policies.base import (
    Policy,
    Recommendations,
    Solver,
    State,
    Ties,
    best_arm,
    start_values,
)
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import whole_number

__all__ = [
    "BLOCKS_PER_FIT",
    "EpochLength",
    "IPSPolicy",
    "IPSState",
    "automatic_block",
    "epoch_count",
    "epoch_end",
]

IN_PLAY = 8  # times the rank: arms of a large set, above which an allocation is thinned out
MOST_IN_STATE = 2**28  # 2 GB, in the tables of a state
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
    gram, moment, references, losses : memory of the control variate; None without it

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
    gram: NDArray[np.float64] | None
    moment: NDArray[np.float64] | None
    references: NDArray[np.float64] | None
    losses: NDArray[np.float64] | None

    @property
    def theta(self) -> NDArray[np.float64]:
        """(n, r) the paper's θ̂; zero before the first round."""
        return self.scores / np.maximum(self.played, 1)[:, None]

    def resembles(self, other: State) -> bool:
        """As for other states; on a large set the allocations need not have the same shape."""
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
    `segment_end`; the hooks after them have defaults.

    Parameters
    ----------
    solver : of the designs; "frank-wolfe" is the paper's
    ties : which of arms with equal estimates counts as better: "random", "first" or "last"
    order : "iid" draws every round independently, as in the paper; "blocks" draws permuted
        blocks, which keeps every estimate unbiased in a world that does not react to the
        assignments, and removes the variance from which arm is drawn when
    block : length of a block; 0 for `automatic_block`
    control_variate : compare rewards with a predictable reference, see the end of `ips.py`

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

    solver: Solver = "exact"
    ties: Ties = "random"
    order: Literal["iid", "blocks"] = "iid"
    block: int = 0
    control_variate: bool = False

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
        return arms.coordinates_of(among)

    def parameters(self, arms: ArmSet) -> int:
        """How many parameters r that are.

        Parameters
        ----------
        arms : the variants

        Returns
        -------
        int
        """
        return arms.rank

    def extra(self, arms: ArmSet, trials: int) -> dict[str, Any]:
        """What the subclass's own state holds before the first round.

        Parameters
        ----------
        arms : the variants
        trials : n, number of trials

        Returns
        -------
        arrays with a leading axis of n, by the names of the fields
        """
        return {}

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
        if few and self.solver != "exact":
            raise InvalidInputError(
                f"there are {arms.size:,} variants, which solver={self.solver!r} is not made for; "
                'use solver="exact", whose designs of large sets are proven.'
            )
        values = start_values(arms, budget, trials, seed, self.ties, few)
        r = self.parameters(arms)
        _check_parameters(r, trials)
        values |= {"scores": np.zeros((trials, r)), "squares": np.zeros((trials, r, r))}
        values |= dict.fromkeys(("gram", "moment", "references", "losses"))
        if self.control_variate:
            values |= new_memory(trials, r)
        K = 1 if few else arms.size
        values |= {"weights": np.full((trials, K), 1.0 / K), "support": None}
        state: IPSStateT = self.state_type(**values, **self.extra(arms, trials))  # type: ignore[assignment]  # state_type is the subclass's own
        if few:
            state = replace(state, support=np.zeros((1, 1), dtype=np.int64))
        return replace(state, **self._redesigned(state, np.ones(trials, dtype=bool)))

    def next_segment(self, state: IPSStateT) -> Segment | None:
        """The allocation in force, up to the segment's end or the next update of the reference."""
        rounds = np.minimum(self.segment_end(state), state.budget) - state.played
        if not rounds.any():
            return None
        block = self.block_length(state.arms, state.budget)
        most = self.rounds_between_sums(state)
        if most is not None:
            rounds = np.minimum(rounds, most)
        arms = None if state.support is None else state.support[0]
        return Segment(state.weights, rounds, self.order, block, self.reference(state), arms)

    def rounds_between_sums(self, state: IPSStateT) -> int | None:
        """Rounds after which a segment ends although the allocation stays; None for any number.

        Parameters
        ----------
        state : the state of a batch of n trials
        """
        if not self.control_variate:
            return None
        return BLOCKS_PER_FIT * self.block_length(state.arms, state.budget)

    def reference(self, state: IPSStateT) -> NDArray[np.float64] | None:
        """(n, r) what the next segment's rewards are compared with; None for zero.

        Parameters
        ----------
        state : the state of a batch of n trials
        """
        if state.references is None or state.losses is None:
            return None
        return best_reference(state.references, state.losses)

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
        if state.references is not None:
            names = ("gram", "moment", "references", "losses")
            blocks = segment.rounds / self.block_length(state.arms, state.budget)
            memory = {name: getattr(state, name) for name in names}
            changed |= remember(X, self._prior(state.arms), stats, blocks, memory)
        after = self.advance(state, replace(state, **changed))
        ended = (after.played >= self.segment_end(state)) & (after.played < after.budget)
        if not ended.any():
            return after
        return replace(after, **self._redesigned(after, ended))

    def _redesigned(self, state: IPSStateT, ended: NDArray[np.bool_]) -> dict[str, Any]:
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
        """The G-optimal design λ* of all arms, in one row."""
        return _design_of_all(arms, "g", self.solver).allocation()

    def _prior(self, arms: ArmSet) -> NDArray[np.float64]:
        """(r, r) information of a round of the design that references are first fitted with."""
        design = self.g_optimal(arms)
        A = np.empty((arms.rank, arms.rank))
        information(self.features(arms, design.arms), design.weights[0], A)
        return A

    def estimates(self, state: IPSStateT) -> NDArray[np.float64]:
        """(n, K) estimated time-averaged value of every arm.

        Parameters
        ----------
        state : the state of a batch of n trials
        """
        return self.values(state, state.theta)

    def values(self, state: IPSStateT, theta: Floats) -> Floats:
        """(n, K) value of every arm under the parameters theta (n, r).

        Parameters
        ----------
        state : the state of a batch of n trials
        theta : (n, r) parameters
        """
        if state.support is not None:
            return state.arms.values(theta[0])[None]
        return arm_values(self.features(state.arms), theta)

    def recommend(self, state: IPSStateT) -> Recommendations:
        """The arm with the highest estimate."""
        estimates = self.estimates(state)
        errors = None
        if state.squares is not None and state.support is None:
            T = state.played[:, None, None].astype(np.float64)
            mean = state.theta[:, :, None]
            with np.errstate(all="ignore"):  # unknown before two rounds: nan
                covariance = (state.squares - T * mean * mean.swapaxes(1, 2)) / (T * (T - 1))
            errors = standard_errors(self.features(state.arms), covariance)
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
    return designs_for(arms, np.ones((1, arms.size), dtype=bool), kind, solver)


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
    solver : of the XY design

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
    solver : of the XY design
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


# A predictable reference for rewards: the control variate
#
# With any m computed from the past, m + A(λ)⁻¹x(r - x'm) is as unbiased as A(λ)⁻¹xr, and varies
# only by what m does not explain. Several forgetful least-squares fits compete, with one that
# extrapolates and with no reference at all; the one that has predicted best lately is used, so that
# a bad reference costs little.


# In blocks: how far back each fit reaches. The last candidate extrapolates from the two shortest.
MEMORIES = (np.inf, 3.0, 1.25)
EXTRAPOLATION = 1.0
BLOCKS_PER_FIT = 2  # after which references are fitted again
LATELY = 10.0  # blocks over which predictions are judged
PRIOR_ROUNDS = 5.0  # of the G-optimal design with rewards of zero, that every fit starts from


def new_memory(trials: int, r: int) -> dict[str, Any]:
    """Fields of a state that remembers nothing yet."""
    fits = len(MEMORIES)
    return {
        "gram": np.zeros((trials, fits, r, r)),
        "moment": np.zeros((trials, fits, r)),
        "references": np.zeros((trials, fits + 1, r)),
        "losses": np.zeros((trials, fits + 1)),
    }


def best_reference(references: Floats, losses: Floats) -> Floats:
    """(n, r) the candidate with the smallest loss of late; zero if all did worse than zero."""
    best = losses.argmin(axis=1)
    rows = np.arange(len(losses))
    chosen = references[rows, best]
    return np.where((losses[rows, best] < 0)[:, None], chosen, 0.0)


def remember(
    X: Floats,
    prior: Floats,
    stats: SegmentStats,
    blocks: Floats,
    memory: dict[str, Any],
) -> dict[str, Any]:
    """The memory after a segment of `blocks` (n,) block lengths.

    X : (m, r) arms of the segment; prior : (r, r) information of a round of the G-optimal design
    """
    after = {name: array.copy() for name, array in memory.items()}
    decay = exponentials(-blocks[:, None] / np.array([*MEMORIES, LATELY]))
    _remember_kernel(
        X,
        stats.counts.astype(np.float64),
        stats.sums,
        decay,
        PRIOR_ROUNDS * prior,
        EXTRAPOLATION,
        after["gram"],
        after["moment"],
        after["references"],
        after["losses"],
    )
    return after


@kernel
def _remember_kernel(
    X: Floats,
    counts: Floats,
    sums: Floats,
    decay: Floats,
    prior: Floats,
    extrapolation: float,
    gram: Floats,
    moment: Floats,
    references: Floats,
    losses: Floats,
) -> None:
    """Judge the references by the segment, then fit them anew, in place.

    X : (K, r); counts, sums : (n, K); decay : (n, J + 1), the last for losses; prior : (r, r)
    gram : (n, J, r, r) lower part; moment : (n, J, r); references : (n, J + 1, r);
    losses : (n, J + 1), squared errors of prediction less those of predicting zero
    """
    n, J, r = moment.shape
    A, more, v, b = np.empty((r, r)), np.empty((r, r)), np.empty(r), np.empty(r)
    for i in range(n):
        information(X, counts[i], more)
        b[:] = 0.0
        for k in range(X.shape[0]):
            if sums[i, k] != 0.0:
                for a in range(r):
                    b[a] += sums[i, k] * X[k, a]
        for j in range(J + 1):
            # m'(X'NX)m - 2 m'b is the squared error less that of zero
            loss = 0.0
            for a in range(r):
                row = 0.5 * more[a, a] * references[i, j, a]
                for c in range(a):
                    row += more[a, c] * references[i, j, c]
                loss += 2.0 * references[i, j, a] * (row - b[a])
            losses[i, j] = decay[i, J] * losses[i, j] + loss
        for j in range(J):
            for a in range(r):
                moment[i, j, a] = decay[i, j] * moment[i, j, a] + b[a]
                v[a] = moment[i, j, a]
                for c in range(a + 1):
                    gram[i, j, a, c] = decay[i, j] * gram[i, j, a, c] + more[a, c]
                    A[a, c] = gram[i, j, a, c] + prior[a, c]
            cholesky(A, 0.0)
            cholesky_solve(A, v)
            for a in range(r):
                references[i, j, a] = v[a]
        for a in range(r):
            step = references[i, J - 1, a] - references[i, J - 2, a]
            references[i, J, a] = references[i, J - 1, a] + extrapolation * step
