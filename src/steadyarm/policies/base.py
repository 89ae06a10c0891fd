"""Policy: the interface every algorithm implements, and the plain-array state it works on.

Configuration (the policy, a frozen dataclass), state and result are three things. All methods
are pure: `observe` returns a new state. All arrays have a leading axis of n independent trials.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import check_choice, whole_number

Ties = Literal["random", "first", "last"]
"""Which of several arms with equal estimates counts as better: one drawn at "random" before the
test, the "first" or the "last" by index."""
FIRST, LAST = -1, -2  # how equal estimates of a large set are ordered; else by a seed
MOST_OF_LARGE = 2**22  # in the table of a large set, for a policy that does not scale
MOST_AT_ALL = 2**27  # 1 GB, in the table of arms that have hardly fewer parameters
LONG = 1024  # numbers from which an array is written in base64
StateT = TypeVar("StateT", bound="State")


@dataclass(frozen=True)
class State:
    """The state that every policy has; each policy adds its own arrays.

    Attributes
    ----------
    arms, budget : as given to `Policy.start`
    played : (n,) rounds observed so far
    ties : (n, K) rank of each arm among arms with equal estimates, lowest first; of a large set
        that is played with few arms at a time (n, 1): FIRST, LAST, or a seed

    Examples
    --------
    >>> import steadyarm as sa
    >>> policy, arms = sa.GBAI(), sa.ArmSet.one_hot(["A", "B"])
    >>> state = policy.start(arms, budget=100, trials=3, seed=1)
    >>> state.trials, state.played.tolist(), state.trial(0).trials
    (3, [0, 0, 0], 1)
    >>> type(state).from_dict(state.to_dict(), arms).budget
    100
    """

    arms: ArmSet
    budget: int
    played: NDArray[np.int64]
    ties: NDArray[np.int64]

    @property
    def trials(self) -> int:
        """The batch size n."""
        return len(self.played)

    def trial(self, i: int) -> Self:
        """Trial i alone, as a batch of one."""
        rows: dict[str, Any] = {
            name: array[i : i + 1].copy() for name, array in self._arrays().items()
        }
        return replace(self, **rows)

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists only: everything but the arms."""
        return {"budget": self.budget} | {
            name: _write_array(array) for name, array in self._arrays().items()
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], arms: ArmSet) -> Self:
        """The state that `to_dict` wrote.

        Parameters
        ----------
        data : the result of `to_dict`
        arms : the variants, which it does not hold

        Returns
        -------
        State
        """
        values: dict[str, Any] = {f.name: None for f in fields(cls)}
        values |= {"arms": arms, "budget": data["budget"]}
        for name, entry in data.items():
            if name != "budget":
                values[name] = read_array(entry)
        return cls(**values)

    def resembles(self, other: State) -> bool:
        """Whether the other state has the same kinds and shapes of arrays, with values in range."""
        mine, theirs = self._arrays(), other._arrays()
        return (
            self.budget == other.budget
            and mine.keys() == theirs.keys()
            and all(
                mine[name].shape == theirs[name].shape and mine[name].dtype == theirs[name].dtype
                for name in mine
            )
            and np.array_equal(np.sort(other.ties), np.sort(self.ties))
            and bool(((other.played >= 0) & (other.played <= other.budget)).all())
        )

    def _arrays(self) -> dict[str, NDArray[Any]]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


@dataclass(frozen=True)
class Recommendations:
    """The recommendations of a policy, one row a trial.

    Attributes
    ----------
    arm : (n,) recommended arm
    estimates : (n, K) estimated time-averaged value of every arm
    standard_errors : (n, K) of the estimates; None where squared rewards were not recorded

    Examples
    --------
    >>> import steadyarm as sa
    >>> policy = sa.GBAI()
    >>> state = policy.start(sa.ArmSet.one_hot(["A", "B"]), budget=100)
    >>> segment = policy.next_segment(state)
    >>> stats = sa.SegmentStats(np.array([[50, 50]]), np.array([[20.0, 30.0]]))
    >>> found = policy.recommend(policy.observe(state, segment, stats))
    >>> found.arm.tolist(), found.estimates.round(3).tolist()
    ([1], [[0.4, 0.6]])
    """

    arm: NDArray[np.int64]
    estimates: NDArray[np.float64]
    standard_errors: NDArray[np.float64] | None


@dataclass(frozen=True)
class Policy(ABC, Generic[StateT]):
    """A rule that turns what was seen into the next segment, and at the end into an arm.

    Subclasses are frozen dataclasses whose fields are the configuration. They state

    name : the algorithm's name as in its paper
    waits : True if no further arm can be assigned before all rewards of a segment are known;
        False if the current allocation may go on meanwhile; policies that derive from `IPSPolicy`
        choose anew from the rewards so far. A shuffled segment goes on in whole
        repetitions of its plan; where none fits in the budget the policy waits all the same
    unbiased : True if every allocation reaches all directions of the arms, so that scores by
        inverse propensities exist and intervals can hold under drift
    estimator : what `recommend` estimates by, in a few words
    needs_squares : True if `observe` needs sums of squared rewards; simulations leave them out else
    takes_targets : True if arms may have `ArmSet.targets`, of which one is recommended
    scales : True if large sets (`ArmSet.large`) are played with few arms at a time, one trial at
        a time, and a state that does not grow with the number of arms

    Examples
    --------
    Four methods run a policy:

    >>> import steadyarm as sa
    >>> policy, rng = sa.GBAI(), np.random.default_rng(1)
    >>> state = policy.start(sa.ArmSet.one_hot(["A", "B"]), budget=100)
    >>> while (segment := policy.next_segment(state)) is not None:
    ...     counts = rng.multinomial(segment.rounds, segment.weights)
    ...     stats = sa.SegmentStats(counts, counts * np.array([0.2, 0.4]))
    ...     state = policy.observe(state, segment, stats)
    >>> policy.recommend(state).arm.tolist()
    [1]
    """

    name: ClassVar[str]
    waits: ClassVar[bool]
    unbiased: ClassVar[bool] = False
    estimator: ClassVar[str] = "the policy's own estimates"
    needs_squares: ClassVar[bool] = False
    takes_targets: ClassVar[bool] = False
    scales: ClassVar[bool] = False
    state_type: ClassVar[type[State]]

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for f in fields(self):
            if get_origin(hints[f.name]) is Literal:
                check_choice(getattr(self, f.name), f.name, get_args(hints[f.name]))

    @classmethod
    def published(cls) -> Self:
        """The configuration of the paper's published runs; the defaults follow its text."""
        return cls()

    def plays_few(self, arms: ArmSet) -> bool:
        """Whether the policy plays few of these arms at a time, in a state that does not grow.

        Parameters
        ----------
        arms : the variants
        """
        return self.scales and isinstance(arms, ArmSet) and arms.large

    @abstractmethod
    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> StateT:
        """The state before the first round; all randomness of the policy comes from the seed.

        Parameters
        ----------
        arms : the variants
        budget : T, rounds of the test
        trials : n, how many independent tests are played at once
        seed : the seed of the policy's own randomness

        Returns
        -------
        State : of n trials
        """

    @abstractmethod
    def next_segment(self, state: StateT) -> Segment | None:
        """The next segment; None when every trial has ended.

        Parameters
        ----------
        state : the state of a batch of n trials

        Returns
        -------
        Segment : with a row for each trial, zero rounds where one has ended
        """

    @abstractmethod
    def observe(self, state: StateT, segment: Segment, stats: SegmentStats) -> StateT:
        """The state after a segment; `segment.rounds` is the number of rounds in `stats`.

        In a live test the segment may have an older allocation than the state: read
        `segment.weights`.

        Parameters
        ----------
        state : from before the segment
        segment : the segment that was played
        stats : counts and sums per arm

        Returns
        -------
        State : a new one
        """

    @abstractmethod
    def recommend(self, state: StateT) -> Recommendations:
        """The recommendation from the rounds so far.

        Parameters
        ----------
        state : the state of a batch of n trials

        Returns
        -------
        Recommendations : an arm and estimates for each trial
        """

    def to_dict(self) -> dict[str, Any]:
        """The name and configuration as plain values."""
        return {"name": self.name} | asdict(self)


def start_values(
    arms: ArmSet,
    budget: int,
    trials: int,
    seed: int,
    ties: Ties,
    few: bool = False,
    targets: bool = False,
) -> dict[str, Any]:
    """Checked fields of `State` before the first round; `few` if none may grow with the arms.

    Parameters
    ----------
    arms, budget, trials, seed : as for `Policy.start`
    ties : how equal estimates are ordered
    few : whether no field may grow with the number of arms, for large sets
    targets : whether the arms may have targets, which are ranked then

    Returns
    -------
    values for `arms`, `budget`, `played` and `ties`

    Examples
    --------
    >>> values = start_values(ArmSet.one_hot(["A", "B"]), 100, trials=2, seed=0, ties="first")
    >>> values["played"].tolist(), values["ties"].tolist()
    ([0, 0], [[0, 1], [0, 1]])
    """
    if not isinstance(arms, ArmSet):
        raise InvalidInputError(
            f'arms is {arms!r}; expected an ArmSet, such as ArmSet.one_hot(["A", "B"]).'
        )
    if not targets:
        arms.refuse_targets("this policy")
    budget = whole_number(budget, "budget", least=1)
    trials = whole_number(trials, "trials", least=1)
    if few and trials > 1:
        raise InvalidInputError(
            f"trials is {trials}; large arm sets are played one trial at a time."
        )
    if not few and arms.size * arms.rank > (MOST_OF_LARGE if arms.large else MOST_AT_ALL):
        raise InvalidInputError(
            f"there are {arms.size:,} variants, and this policy keeps numbers for every one of "
            "them; use Steady(), P1RAGE() or GBAI(), which play few of them at a time."
        )
    K = 1 if few else arms.recommendable.size
    rank = np.tile(np.arange(K, dtype=np.int64), (trials, 1))
    if few:
        rank[:] = {"first": FIRST, "last": LAST, "random": seed % 2**62}[ties]
    elif ties == "last":
        rank = rank[:, ::-1].copy()
    elif ties == "random":
        rank = np.random.default_rng(seed).permuted(rank, axis=1)
    return {
        "arms": arms,
        "budget": budget,
        "played": np.zeros(trials, dtype=np.int64),
        "ties": rank,
    }


def rank_arms(
    estimates: ArrayLike,
    ties: NDArray[np.int64] | None = None,
    among: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """(n, K) arms of each trial from the highest estimate to the lowest.

    Estimates that differ by less than 2⁻³⁰ of the largest finite one are equal: such differences
    come from rounding, and would break ties by chance of the arithmetic instead of by the rule.

    Parameters
    ----------
    estimates : (n, K) values to rank by; infinite ones rank first or last, and nan is refused,
        except of arms that do not count
    ties : (n, K) rank of each arm among arms with equal estimates, as in `State.ties`; by default
        the lower index comes first
    among : the arms that count, as a boolean mask (n, K) or (K,) or as indices of arms; the other
        arms come after them. Use it to leave out eliminated arms.

    Returns
    -------
    (n, K) indices of arms, best first

    Examples
    --------
    >>> rank_arms([[0.1, 0.9, 0.5]]).tolist()
    [[1, 2, 0]]
    >>> rank_arms([[0.1, 0.9, 0.5]], among=[0, 2]).tolist()
    [[2, 0, 1]]
    >>> rank_arms([[0.1, 0.9, -np.inf]]).tolist()
    [[1, 0, 2]]
    """
    values = np.asarray(estimates, dtype=np.float64)
    if values.ndim != 2:
        raise InvalidInputError(
            f"the estimates have shape {values.shape}; expected (n, K): a row for each trial."
        )
    order = np.broadcast_to(np.arange(values.shape[1]), values.shape) if ties is None else ties
    if among is None:
        return np.lexsort((order, -_ranking_key(values)), axis=-1)
    mask = _mask(among, values.shape)
    known = np.where(~mask & np.isnan(values), -np.inf, values)
    return np.lexsort((order, -_ranking_key(known), ~mask), axis=-1)


def best_of_many(estimates: NDArray[np.float64], ties: int) -> int:
    """The best of many arms (K,); ties is FIRST, LAST or a seed for the order of equal ones."""
    key = _ranking_key(estimates[None])[0]
    best = np.flatnonzero(key == key.max())
    if ties < 0:
        return int(best[0 if ties == FIRST else -1])
    return int(np.random.default_rng(ties).choice(best))


def best_arm(
    estimates: NDArray[np.float64],
    ties: NDArray[np.int64],
    among: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """(n,) arm with the highest estimate of each trial; parameters as in `rank_arms`.

    Parameters
    ----------
    estimates, ties, among : see `rank_arms`

    Returns
    -------
    (n,) indices of arms

    Examples
    --------
    >>> best_arm(np.array([[0.1, 0.9, 0.5]]), np.array([[0, 1, 2]]), among=[True, False, True])
    array([2])
    """
    if ties.shape != estimates.shape:
        if among is not None:
            raise InvalidInputError(
                f"ties have shape {ties.shape} and estimates {estimates.shape}; among needs a "
                "rank among ties for every arm."
            )
        pairs = zip(estimates, ties[:, 0].tolist(), strict=True)
        return np.array([best_of_many(row, tie) for row, tie in pairs], dtype=np.int64)
    return rank_arms(estimates, ties, among)[:, 0]


def _ranking_key(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, K) estimates in units of 2⁻³⁰ of the row's largest finite one, rounded."""
    size = np.abs(values)
    largest = size.max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        if np.isnan(largest).any():
            trial, arm = np.argwhere(np.isnan(values))[0].tolist()
            raise InvalidInputError(
                f"the estimate of arm {arm} in trial {trial} is nan, which has no rank; leave such "
                "arms out with among, or give them -inf."
            )
        largest = np.where(np.isfinite(size), size, 0.0).max(axis=1, keepdims=True)
    scale = np.maximum(largest, np.finfo(np.float64).tiny)
    return np.asarray(np.rint(values / scale * 2.0**30))


def _mask(among: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """(n, K) the arms that count, from a mask or from indices; at least one in every trial."""
    given = np.asarray(among)
    if given.dtype == bool and given.shape in (shape, shape[1:]):
        mask = np.broadcast_to(given, shape)
    elif (
        np.issubdtype(given.dtype, np.integer)
        and given.ndim == 1
        and ((given >= 0) & (given < shape[1])).all()
    ):
        mask = np.zeros(shape, dtype=bool)
        mask[:, given] = True
    else:
        raise InvalidInputError(
            f"among has shape {given.shape} and type {given.dtype}; expected a boolean mask of "
            f"shape {shape} or {shape[1:]}, or indices of arms from 0 to {shape[1] - 1}."
        )
    if not mask.any(axis=1).all():
        raise InvalidInputError("among leaves out every arm of a trial; at least one must count.")
    return mask


def _write_array(array: NDArray[Any]) -> dict[str, Any]:
    """An array as JSON has it; a long one compressed in base64, which is read back bit for bit.

    Matrices of many separate arms are almost all zeros.
    """
    if array.size < LONG:
        return {"dtype": array.dtype.name, "values": array.tolist()}
    little = array.astype(array.dtype.newbyteorder("<"))
    text = b64encode(zlib.compress(little.tobytes(), 1)).decode()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "base64": text}


def read_array(entry: Mapping[str, Any]) -> NDArray[Any]:
    """An array as `State.to_dict` has written it."""
    dtype = np.dtype(entry["dtype"])
    if "values" in entry:
        return np.array(entry["values"], dtype=dtype)
    packed = zlib.decompress(b64decode(entry["base64"], validate=True))
    little = np.frombuffer(packed, dtype.newbyteorder("<"))
    return little.astype(dtype).reshape(entry["shape"])


# What policies remember that estimate from plain sums per arm, unweighted.


@dataclass(frozen=True)
class TallyState(State):
    """Sums over the rounds played.

    Attributes
    ----------
    counts : (n, K) plays of each arm
    sums : (n, K) sum of its rewards
    squares : (n, K) sum of its squared rewards; None if squares were not recorded

    Examples
    --------
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> state = TallyState(**start_values(arms, 10, 1, 0, "first"), **empty_tally(1, 2))
    >>> segment = Segment(np.array([[0.5, 0.5]]), np.array([4]))
    >>> played = state.after(segment, SegmentStats(np.array([[3, 1]]), np.array([[1.0, 1.0]])))
    >>> played.played.tolist(), played.counts.tolist()
    ([4], [[3, 1]])
    """

    counts: NDArray[np.int64]
    sums: NDArray[np.float64]
    squares: NDArray[np.float64] | None

    @property
    def tally(self) -> SegmentStats:
        """The sums as statistics."""
        return SegmentStats(self.counts, self.sums, self.squares)

    def after(self, segment: Segment, stats: SegmentStats) -> Self:
        """The state with a segment's sums added.

        Parameters
        ----------
        segment : the segment that was played
        stats : its sums

        Returns
        -------
        a new state
        """
        total = self.tally + stats
        return replace(
            self,
            played=self.played + segment.rounds,
            counts=total.counts,
            sums=total.sums,
            squares=total.squares,
        )


def empty_tally(trials: int, arms: int) -> dict[str, Any]:
    """Fields of `TallyState` before the first round.

    Parameters
    ----------
    trials : n, number of trials
    arms : K, number of arms

    Returns
    -------
    zeros for `counts`, `sums` and `squares`

    Examples
    --------
    >>> empty_tally(trials=1, arms=2)["counts"].tolist()
    [[0, 0]]
    """
    shape = (trials, arms)
    return {
        "counts": np.zeros(shape, dtype=np.int64),
        "sums": np.zeros(shape),
        "squares": np.zeros(shape),
    }
