"""What an experiment answers with: assignments and their ids, its status."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from steadyarm.errors import (
    InvalidInputError,
    RepeatedRewardError,
    RewardTooLateError,
    SteadyArmError,
    UnknownAssignmentError,
)
from steadyarm.live.settings import Settings
from steadyarm.storages.records import (
    POSITIONS,
    ExperimentState,
    Outcome,
    check_of,
    number_of,
    place_of,
)

__all__ = [
    "LATEST",
    "At",
    "LiveAssignment",
    "Reported",
    "Status",
    "id_of",
    "is_text",
    "parse_assignment_id",
    "shortened",
    "to_datetime",
    "to_micros",
    "told",
]

# What an experiment answers with: assignments and their ids, its status.


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ID = re.compile(r"([^-]+)-(0|[1-9]\d{0,8})-(0|[1-9]\d{0,9})-([0-9a-f]{6})")
LATEST = 2**53  # microseconds, some 285 years


@dataclass(frozen=True)
class LiveAssignment:
    """One variant handed out by an experiment.

    Attributes
    ----------
    id : give it back with the reward
    unit : who got it
    arm, name : the variant
    probability : with which it was drawn
    created : when it was handed out first
    new : False if the unit had it already
    """

    id: str
    unit: str
    arm: int
    name: str
    probability: float
    created: datetime
    new: bool


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
    segments, observed : opened, and of these handed to the policy
    leased : positions that are leased and not reported as used
    arms : of which variants `assigned` and `rewarded` are, by index; None for all of them. Of very
        many variants (`ArmSet.large`) only those that were handed out are counted
    others : assignments and rewards of further variants, where a service tells of the most
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
        """Assignments in all."""
        return sum(self.assigned) + self.others[0]

    @property
    def total_rewarded(self) -> int:
        """Rewards in all."""
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
    >>> number, check = ticket_in("k3v9x2ma-12-345-41242f", "k3v9x2ma")
    >>> place_of(number), check
    ((12, 345), '41242f')
    >>> ticket_in("visitor-7", "k3v9x2ma")
    """
    found = ID.fullmatch(text)
    if found is None or found[1] != tag or int(found[3]) >= POSITIONS:
        return None
    return number_of(int(found[2]), int(found[3])), found[4]


def to_datetime(to_micros: int) -> datetime:
    """A stored time as a datetime."""
    return EPOCH + timedelta(microseconds=to_micros)


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


def is_text(unit: str) -> bool:
    """Whether databases can keep it: no zero bytes, no halves of characters."""
    try:
        return b"\0" not in unit.encode()
    except UnicodeEncodeError:
        return False


def shortened(value: Any) -> str:
    """What was given, as far as it fits into a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


# What is answered to a reward: stored, there already, or why not. Nothing is stored here.


def told(
    name: str, settings: Settings, target: str, reward: float, outcome: Outcome
) -> Literal["stored", "repeated"] | SteadyArmError:
    """The answer to the reward of a target, in the experiment of that name."""
    if outcome.status == "stored" or outcome.status == "repeated":
        return outcome.status
    if outcome.status == "unknown":
        return UnknownAssignmentError(
            f"{target!r} is neither the id of an assignment of {name!r} nor a unit that has one; "
            "tell rewards by what ask() gave."
        )
    if outcome.status == "conflict":
        return RepeatedRewardError(
            f"{target!r} has the reward {outcome.told!r} already, {reward!r} is another; the first "
            "one counts."
        )
    if outcome.status == "early":
        return InvalidInputError(
            f"the reward of {target!r} is said to have happened before its assignment; check `at`, "
            "and the clock of whoever reported it, and tell it again."
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
