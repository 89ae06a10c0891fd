"""Policy: the interface every algorithm implements, and the plain-array state it works on.

Configuration (the policy, a frozen dataclass), state and result are three things. All methods
are pure: `observe` returns a new state. All arrays have a leading axis of n independent trials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.memo import Solver
from steadyarm.errors import InvalidInputError
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import check_choice, whole_number

__all__ = [
    "Policy",
    "Recommendations",
    "Solver",
    "State",
    "Ties",
    "best_arm",
    "rank_arms",
    "start_values",
]

Ties = Literal["random", "first", "last"]
StateT = TypeVar("StateT", bound="State")


@dataclass(frozen=True)
class State:
    """What every policy remembers; each policy adds its own arrays.

    Attributes
    ----------
    arms, budget : as given to `Policy.start`
    played : (n,) rounds observed so far
    ties : (n, K) rank of each arm among arms with equal estimates, lowest first
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
            name: {"dtype": array.dtype.name, "values": array.tolist()}
            for name, array in self._arrays().items()
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], arms: ArmSet) -> Self:
        """The state that `to_dict` wrote."""
        values: dict[str, Any] = {f.name: None for f in fields(cls)}
        values |= {"arms": arms, "budget": data["budget"]}
        for name, entry in data.items():
            if name != "budget":
                values[name] = np.array(entry["values"], dtype=entry["dtype"])
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
    """What a policy concludes, one row a trial.

    Attributes
    ----------
    arm : (n,) recommended arm
    estimates : (n, K) estimated time-averaged value of every arm
    standard_errors : (n, K) of the estimates; None where squared rewards were not recorded
    """

    arm: NDArray[np.int64]
    estimates: NDArray[np.float64]
    standard_errors: NDArray[np.float64] | None


@dataclass(frozen=True)
class Policy(ABC, Generic[StateT]):
    """A rule that turns what was seen into the next segment, and at the end into an arm.

    Leaves are frozen dataclasses whose fields are the configuration. They state

    name : the algorithm's name as in its paper
    waits : True if no further arm can be handed out before all rewards of a segment are known;
        False if the current allocation may simply go on meanwhile
    unbiased : True if every allocation reaches all directions of the arms, so that scores by
        inverse propensities exist and intervals can hold under drift
    """

    name: ClassVar[str]
    waits: ClassVar[bool]
    unbiased: ClassVar[bool] = False
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

    @abstractmethod
    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> StateT:
        """The state before the first round; all randomness of the policy comes from the seed."""

    @abstractmethod
    def next_segment(self, state: StateT) -> Segment | None:
        """The next segment; None when every trial has ended."""

    @abstractmethod
    def observe(self, state: StateT, segment: Segment, stats: SegmentStats) -> StateT:
        """The state after a segment; `segment.rounds` is the number of rounds in `stats`."""

    @abstractmethod
    def recommend(self, state: StateT) -> Recommendations:
        """What would be concluded now."""

    def to_dict(self) -> dict[str, Any]:
        """The name and configuration as plain values."""
        return {"name": self.name} | asdict(self)


def start_values(arms: ArmSet, budget: int, trials: int, seed: int, ties: Ties) -> dict[str, Any]:
    """Checked fields of `State` before the first round."""
    if not isinstance(arms, ArmSet):
        raise InvalidInputError(
            f'arms is {arms!r}; expected an ArmSet, such as ArmSet.one_hot(["A", "B"]).'
        )
    budget = whole_number(budget, "budget", least=1)
    trials = whole_number(trials, "trials", least=1)
    K = arms.size
    rank = np.tile(np.arange(K, dtype=np.int64), (trials, 1))
    if ties == "last":
        rank = rank[:, ::-1].copy()
    elif ties == "random":
        rank = np.random.default_rng(seed).permuted(rank, axis=1)
    return {
        "arms": arms,
        "budget": budget,
        "played": np.zeros(trials, dtype=np.int64),
        "ties": rank,
    }


def rank_arms(estimates: NDArray[np.float64], ties: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n, K) arms of each trial from the highest estimate to the lowest, ties as told.

    Estimates that differ by less than 2⁻⁴⁰ of the largest are equal: such differences come from
    rounding, and would break ties by chance of the arithmetic instead of by the rule.
    """
    scale = np.maximum(np.abs(estimates).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    key = np.rint(estimates / scale * 2.0**40)
    return np.lexsort((ties, -key), axis=-1)


def best_arm(
    estimates: NDArray[np.float64],
    ties: NDArray[np.int64],
    among: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """(n,) arm with the highest estimate, of those in the mask `among` (n, K) if given."""
    order = rank_arms(estimates, ties)
    if among is None:
        return order[:, 0]
    first = np.take_along_axis(among, order, axis=1).argmax(axis=1)
    return np.take_along_axis(order, first[:, None], axis=1)[:, 0]
