"""Assignments and their ids, leases of positions, the status of an experiment, and its errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal, Self

from steadyarm.errors import (
    InvalidInputError,
    RepeatedRewardError,
    RewardTooLateError,
    SteadyArmError,
    UnknownAssignmentError,
)
from steadyarm.live.settings import Settings
from steadyarm.segments import Segment, columns_between
from steadyarm.storages.records import (
    POSITIONS,
    ExperimentState,
    Lease,
    Outcome,
    check_of,
    number_of,
    place_of,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ID = re.compile(r"([^-]+)-(0|[1-9]\d{0,8})-(0|[1-9]\d{0,9})-([0-9a-f]{6})")
LATEST = 2**53  # microseconds, some 285 years


@dataclass(frozen=True)
class LiveAssignment:
    """One variant that an experiment has assigned.

    Attributes
    ----------
    id : give it back with the reward
    unit : who got it
    arm, name : the variant
    probability : with which it was drawn
    created : when it was assigned first
    new : False if the unit had it already
    """

    id: str
    unit: str
    arm: int
    name: str
    probability: float
    created: datetime
    new: bool


class AssignmentId(str):
    """The id of an assignment, where a text alone might also be a unit."""

    __slots__ = ()


# When something happened: a time, microseconds since 1970, or how long ago; None for just now.
At = datetime | int | timedelta | None

# The reward of an assignment, of its id or of a unit; and when it happened.
Reported = tuple[LiveAssignment | str, float] | tuple[LiveAssignment | str, float, At]


@dataclass(frozen=True)
class Status:
    """Where an experiment stands, in numbers.

    Attributes
    ----------
    name, state, created, budget : of the experiment
    assigned, rewarded : by variant
    segments, observed : opened, and of these observed by the policy
    leased : positions that are leased and not reported as used
    arms : of which variants `assigned` and `rewarded` are, by index; None for all of them. Of very
        many variants (`ArmSet.large`) only those that were assigned are counted
    others : assignments and rewards of further variants, where a service reports the most
        frequent ones only
    excluded : assignments that were excluded; they are among the assigned and count nowhere else
    """

    name: str
    state: ExperimentState
    created: datetime
    budget: int
    assigned: tuple[int, ...]
    rewarded: tuple[int, ...]
    segments: int
    observed: int
    leased: int
    arms: tuple[int, ...] | None = None
    others: tuple[int, int] = (0, 0)
    excluded: int = 0

    @property
    def total_assigned(self) -> int:
        """Assignments of all variants."""
        return sum(self.assigned) + self.others[0]

    @property
    def total_rewarded(self) -> int:
        """Rewards of all variants."""
        return sum(self.rewarded) + self.others[1]


def id_of(tag: str, number: int, unit: str) -> str:
    """The id of an assignment: the experiment's tag, segment, position, and a check of the unit.

    Examples
    --------
    >>> id_of("k3v9x2ma", number_of(12, 345), "visitor 1")
    'k3v9x2ma-12-345-41242f'
    """
    segment, position = place_of(number)
    return f"{tag}-{segment}-{position}-{check_of(unit)}"


def parse_assignment_id(text: str, tag: str) -> tuple[int, str] | None:
    """Number and check in an id of that experiment; None if it is something else.

    Examples
    --------
    >>> number, check = parse_assignment_id("k3v9x2ma-12-345-41242f", "k3v9x2ma")
    >>> place_of(number), check
    ((12, 345), '41242f')
    >>> parse_assignment_id("visitor-7", "k3v9x2ma")
    """
    found = ID.fullmatch(text)
    if found is None or found[1] != tag or int(found[3]) >= POSITIONS:
        return None
    return number_of(int(found[2]), int(found[3])), found[4]


def to_datetime(micros: int) -> datetime:
    """A stored time, in microseconds since 1970, as a datetime."""
    return EPOCH + timedelta(microseconds=micros)


def to_micros(when: Any, now: int) -> int:
    """A time as it is stored; never later than `now`, for clocks differ."""
    if isinstance(when, datetime) and when.tzinfo is not None:
        stored = (when - EPOCH) // timedelta(microseconds=1)
    elif isinstance(when, int) and not isinstance(when, bool):
        stored = when
    else:
        raise InvalidInputError(
            f"the time is {shortened(when)}; expected a datetime with its time zone."
        )
    if not 0 <= stored < LATEST:
        raise InvalidInputError(f"the time is {shortened(when)}; expected one after 1970.")
    return min(stored, now)


def shortened(value: Any) -> str:
    """The value that was given, as far as it fits into a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


@dataclass(frozen=True, eq=False)
class LocalLease:
    """Positions start..stop-1 of a segment, and everything needed to draw their variants.

    Whoever holds it assigns without a request for each unit: the variant of a position is a pure
    function of these values.

    Attributes
    ----------
    id : to report the used positions with
    tag, seed : of the experiment
    names : of the variants that the segment plays, in the order of its columns
    index, segment : of the positions
    until : time (microseconds since 1970) up to which they may be assigned; used positions are to
        be reported within a minute after that
    """

    id: int
    tag: str
    seed: int
    names: Sequence[str]
    index: int
    segment: Segment
    start: int
    stop: int
    until: int

    @classmethod
    def of(
        cls, lease: Lease, segment: Segment, tag: str, seed: int, names: Sequence[str], until: int
    ) -> Self:
        """A stored lease with everything needed to use it elsewhere; names are of all variants."""
        if segment.arms is not None:
            names = tuple(names[arm] for arm in segment.arms.tolist())
        place = lease.segment, segment, lease.start, lease.stop
        return cls(lease.id, tag, seed, names, *place, until)

    def assignment(self, position: int, unit: str, now: int) -> LiveAssignment:
        """The variant of a position, for a unit."""
        column = self._columns[position - self.start]
        return LiveAssignment(
            id_of(self.tag, number_of(self.index, position), unit),
            unit,
            self.segment.arm_at(column),
            self.names[column],
            self._weights[column],
            to_datetime(now),
            True,
        )

    @cached_property
    def _columns(self) -> list[int]:
        drawn: list[int] = columns_between(
            self.segment, self.seed, self.index, self.start, self.stop
        ).tolist()
        return drawn

    @cached_property
    def _weights(self) -> list[float]:
        weights: list[float] = self.segment.weights[0].tolist()
        return weights

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists only."""
        segment = self.segment.to_dict()
        return {
            "id": self.id,
            "tag": self.tag,
            "seed": self.seed,
            "arms": list(self.names),
            "indices": segment["arms"],
            "segment": self.index,
            **{name: segment[name] for name in ("weights", "rounds", "order", "block")},
            "start": self.start,
            "stop": self.stop,
            "until": self.until,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The lease that `to_dict` wrote."""
        try:
            segment = Segment.from_dict({**data, "arms": data.get("indices")}).checked()
            if len(data["arms"]) != segment.columns:
                raise ValueError("not as many names as weights")
            return cls(
                data["id"],
                data["tag"],
                data["seed"],
                tuple(data["arms"]),
                data["segment"],
                segment,
                data["start"],
                data["stop"],
                data["until"],
            )
        except (LookupError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"this is no lease of positions: {error!r}; expected what LocalLease.to_dict wrote."
            ) from None


def reward_answer(
    name: str, settings: Settings, target: str, reward: float, outcome: Outcome
) -> Literal["stored", "repeated"] | SteadyArmError:
    """What the storage did with the reward of a target, or the error that says why it refused."""
    if outcome.status == "stored" or outcome.status == "repeated":
        return outcome.status
    if outcome.status == "unknown":
        return UnknownAssignmentError(
            f"{target!r} is neither the id of an assignment of {name!r} nor a unit that has one; "
            "report rewards by the id or the unit of an assignment."
        )
    if outcome.status == "conflict":
        return RepeatedRewardError(
            f"{target!r} has the reward {outcome.told!r} already, {reward!r} is another; the first "
            "one counts."
        )
    if outcome.status == "early":
        return InvalidInputError(
            f"the reward of {target!r} is said to have happened before its assignment; check `at`, "
            "and the clock of whoever reported it, and report it again."
        )
    if settings.reward_window is None:
        return RewardTooLateError(
            f"the rewards around {target!r} are closed already; this one came too late to count."
        )
    return RewardTooLateError(
        f"the reward of {target!r} happened after its window of {settings.reward_window:g} "
        f"seconds, or arrived more than {settings.reward_grace:g} seconds after it; what was "
        f"missing then counts as missing={settings.missing!r} says."
    )
