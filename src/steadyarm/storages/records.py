"""What a storage keeps, as plain frozen objects; times are whole microseconds since 1970 (UTC)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import blake2b
from secrets import token_hex
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.segments import Segment, SegmentStats

__all__ = [
    "MOVES",
    "POSITIONS",
    "SKEW",
    "Assigned",
    "AuditEntry",
    "DaySums",
    "Decision",
    "Event",
    "ExperimentRecord",
    "ExperimentState",
    "Handed",
    "Lease",
    "LogRow",
    "Outcome",
    "Progress",
    "Pruned",
    "Scope",
    "SegmentRecord",
    "SessionRecord",
    "Snapshot",
    "Summary",
    "Tally",
    "Target",
    "TokenRecord",
    "check_of",
    "happened",
    "is_of",
    "number_of",
    "place_of",
    "pseudonym",
    "removable",
    "room_ahead",
]

ExperimentState = Literal["draft", "running", "paused", "stopped", "archived"]
Scope = Literal["read", "write", "admin"]

# From which states one may move to another.
MOVES: dict[ExperimentState, tuple[ExperimentState, ...]] = {
    "draft": (),
    "running": ("draft", "paused"),
    "paused": ("running",),
    "stopped": ("running", "paused"),
    "archived": ("draft", "stopped"),
}

# An assignment: its number, its number and the check of its unit, or its unit.
Target = int | tuple[int, str] | str

# A reward: whose it is, its value and, if it did not happen just now, when it did.
Event = tuple[Target, float] | tuple[Target, float, int]

POSITIONS = 2**32  # positions a segment may have, so that a place is one 64-bit number
ERASED = re.compile(r"erased-[0-9a-f]{32}")  # see `pseudonym`
SKEW = 300_000_000  # microseconds by which clocks of those who report rewards may differ from ours


def number_of(segment: int, position: int) -> int:
    """The number of a place: segments and the positions in them, in order."""
    return segment * POSITIONS + position


def place_of(number: int) -> tuple[int, int]:
    """Segment and position of a number."""
    return divmod(number, POSITIONS)


def check_of(unit: str) -> str:
    """A few characters that tell units apart, for ids of assignments.

    A position whose use was reported too late goes to another unit; rewards that were meant for
    the first one are recognised by this.

    Examples
    --------
    >>> check_of("visitor 1"), check_of("visitor 2")
    ('41242f', 'eefedb')
    """
    return blake2b(unit.encode(errors="surrogatepass"), digest_size=3).hexdigest()


def pseudonym() -> str:
    """What stands in the place of a unit whose identity was erased; random."""
    return f"erased-{token_hex(16)}"


def is_of(unit: str, check: str) -> bool:
    """Whether an assignment with that check may be the unit's; of an erased unit nobody knows.

    Examples
    --------
    >>> is_of("visitor 1", "41242f"), is_of("visitor 2", "41242f"), is_of(pseudonym(), "41242f")
    (True, False, True)
    """
    return check_of(unit) == check or ERASED.fullmatch(unit) is not None


def happened(
    event: Event, created: int, window: int | None, grace: int, now: int
) -> int | Literal["early", "late"]:
    """When a reward of an assignment happened; or why it does not count.

    It counts if it happened within the window after its assignment, and arrived within the grace
    after that: its segment is not handed to the policy before.

    Examples
    --------
    >>> happened(("visitor 1", 1.0, 130), created=100, window=50, grace=50, now=190)
    130
    >>> happened(("visitor 1", 1.0, 160), created=100, window=50, grace=50, now=190)
    'late'
    """
    at = now
    if len(event) == 3:
        at = min(event[2], now)
        if at < min(created, now) - SKEW:  # the clock may have been set back meanwhile
            return "early"
    at = max(at, created)
    if window is not None and (at - created > window or now - created > window + grace):
        return "late"
    return at


def room_ahead(left: int) -> int:
    """How many of the positions left in a segment one holder may lease ahead of their use.

    An eighth, so that the last ones are there for whoever asks, and a segment ends soon.
    """
    return left // 8


@dataclass(frozen=True)
class ExperimentRecord:
    """One experiment.

    Attributes
    ----------
    key : by which the storage knows it
    tag : random; ids of its assignments begin with it, so that those of others are recognised
    config : what it was created with, JSON-like; "seed" and "arms" are read by storages
    created : when
    version : counts decisions; a decision made on an older version is refused
    policy_state : the policy's state, JSON-like
    observed : segments handed to the policy so far
    """

    key: int
    name: str
    tag: str
    state: ExperimentState
    config: Mapping[str, Any]
    created: int
    version: int
    policy_state: Mapping[str, Any]
    observed: int


@dataclass(frozen=True)
class Summary:
    """One experiment in short, for lists; what is not said here is as in `ExperimentRecord`.

    Attributes
    ----------
    config : shared by all summaries of the experiment; not to be changed
    assigned, rewarded : assignments and rewards in all
    late : rewards that came too late and were refused, as in `DaySums`
    started : when the first segment was opened; None before
    last : time of the last assignment; None before the first
    corrected : the last entry of the audit log that corrected something; 0 if none did
    """

    key: int
    name: str
    tag: str
    state: ExperimentState
    config: Mapping[str, Any]
    created: int
    version: int
    observed: int
    assigned: int
    rewarded: int
    late: int
    started: int | None
    last: int | None
    corrected: int = 0


@dataclass(frozen=True)
class Pruned:
    """What `Storage.prune` has removed, or would.

    Attributes
    ----------
    positions : of leases that had run out, given back
    leases : rows of leases that ended long ago, or of archived experiments
    sessions : of people whose sign-in had run out
    experiments : names of those that were deleted
    """

    positions: int
    leases: int
    sessions: int
    experiments: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class SegmentRecord:
    """One segment: its allocation and reference are fixed when it opens.

    Attributes
    ----------
    index : counts the segments of an experiment from 0
    segment : a batch of one; its rounds shrink when the segment is superseded
    carried_on : with an old allocation, because rewards of earlier segments were still missing
    superseded : carried on, and they have come; it only finishes its block
    policy_version : segments the policy had observed when this one was opened
    opened : when
    handed : positions that were leased or handed out, the counter
    closed : as which (1, 2, ...) it was handed to the policy; None while it is open
    closed_at : when
    """

    index: int
    segment: Segment
    carried_on: bool
    superseded: bool
    policy_version: int
    opened: int
    handed: int = 0
    closed: int | None = None
    closed_at: int | None = None

    @property
    def rounds(self) -> int:
        """Positions it has."""
        return int(self.segment.rounds[0])

    def cut(self) -> SegmentRecord:
        """Superseded: it ends with the block in which the counter stands, the first at least."""
        return replace(self, segment=self.segment.cut_after(self.handed), superseded=True)


@dataclass(frozen=True)
class Tally:
    """Sums of one segment by arm; exact, so that they do not depend on the order of rewards.

    They have the segment's columns: all arms, or those that it plays.

    Attributes
    ----------
    assigned, rewarded : how often each arm was handed out, and got a reward
    sums, squares : exact sums of the rewards and of their squares
    last : time of the last assignment; None before the first
    excluded : how many of the assigned were excluded by hand: they and their rewards count nowhere
        else
    """

    assigned: tuple[int, ...]
    rewarded: tuple[int, ...]
    sums: tuple[Fraction, ...]
    squares: tuple[Fraction, ...]
    last: int | None = None
    excluded: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.excluded:
            object.__setattr__(self, "excluded", (0,) * len(self.assigned))

    @classmethod
    def empty(cls, columns: int) -> Tally:
        """Nothing handed out yet."""
        none = (Fraction(0),) * columns
        return cls((0,) * columns, (0,) * columns, none, none)

    @property
    def handed_out(self) -> int:
        """Assignments in all."""
        return sum(self.assigned)

    @property
    def told(self) -> int:
        """Rewards in all."""
        return sum(self.rewarded)

    @property
    def left_out(self) -> int:
        """Assignments in all that were excluded."""
        return sum(self.excluded)

    @property
    def waiting(self) -> int:
        """Assignments that have no reward and were not excluded."""
        return self.handed_out - self.left_out - self.told

    def counted(self) -> Tally:
        """The same without the assignments that were excluded."""
        if not self.left_out:
            return self
        kept = tuple(a - e for a, e in zip(self.assigned, self.excluded, strict=True))
        return replace(self, assigned=kept, excluded=())

    def stats(self) -> SegmentStats:
        """The sums as a policy reads them, each rounded once."""
        return SegmentStats(
            np.array([self.rewarded], dtype=np.int64), _floats(self.sums), _floats(self.squares)
        )


def _floats(values: tuple[Fraction, ...]) -> NDArray[np.float64]:
    return np.array([[float(value) for value in values]])


@dataclass(frozen=True)
class DaySums:
    """What was handed out from one segment on one day (UTC), and what came of it.

    Attributes
    ----------
    segment : its index
    day : of the assignments, in days since 1970
    tally : of these assignments, their rewards included, whenever they came
    waited : milliseconds from assignments to their rewards, summed by arm
    late : rewards of these assignments that happened after their window or arrived after the
        segment was closed, and were refused; by arm, and as often as they were told
    """

    segment: int
    day: int
    tally: Tally
    waited: tuple[int, ...]
    late: tuple[int, ...]


@dataclass(frozen=True)
class Snapshot:
    """An experiment and its segments with their tallies, in the order of their opening.

    Attributes
    ----------
    corrected : indices of segments whose sums were corrected after they were handed to the policy;
        empty in snapshots that do not have all segments
    """

    experiment: ExperimentRecord
    segments: tuple[tuple[SegmentRecord, Tally], ...]
    corrected: tuple[int, ...] = ()


@dataclass(frozen=True)
class Progress:
    """How far an open segment is, without what is long.

    Attributes
    ----------
    rounds : positions it has
    assigned, told : of these assigned, and with a reward or excluded
    last : time of the last assignment; None before the first
    """

    index: int
    rounds: int
    assigned: int
    told: int
    last: int | None


@dataclass(frozen=True)
class Decision:
    """What follows from a snapshot, to be stored as a whole or not at all.

    Attributes
    ----------
    policy_state : after the segments in `closed`
    closed : index and tally of the segments that the policy has now observed, in that order; the
        storage refuses the decision if a tally has changed meanwhile
    supersede : index of the segment that ends with its block (see `SegmentRecord.cut`), or None
    opened : the segment that is handed out from now on, or None
    """

    policy_state: Mapping[str, Any]
    closed: tuple[tuple[int, Tally], ...] = ()
    supersede: int | None = None
    opened: SegmentRecord | None = None


@dataclass(frozen=True)
class Lease:
    """Positions start..stop-1 of a segment, which nobody else hands out before they are released.

    Attributes
    ----------
    id : of the lease; unique in the experiment
    expires : when others may take what is left of it
    """

    id: int
    segment: int
    start: int
    stop: int
    expires: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Assigned:
    """One variant handed out to one unit.

    Attributes
    ----------
    number : the place, see `number_of`
    arm : index of the variant
    probability : with which it was drawn
    created : when
    new : False if the unit had it already
    """

    number: int
    unit: str
    arm: int
    probability: float
    created: int
    new: bool = True


@dataclass(frozen=True)
class Handed:
    """What `Storage.assign` gave.

    Attributes
    ----------
    assigned : one for every unit, None where positions ran out
    leases : what the caller holds from now on, in place of what it held before
    """

    assigned: tuple[Assigned | None, ...]
    leases: tuple[Lease, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one reward.

    Attributes
    ----------
    status : "stored"; "repeated", the same value was there; "conflict", another value was there;
        "unknown", there is no such assignment; "early", it happened before its assignment; "late",
        it happened after its window, or arrived after the grace; "closed", its segment was handed
        to the policy already
    number : of the assignment, None if unknown
    told : the value that was there, if any
    """

    status: Literal["stored", "repeated", "conflict", "unknown", "early", "late", "closed"]
    number: int | None = None
    told: float | None = None


@dataclass(frozen=True)
class LogRow:
    """One assignment with its reward, as the log has it.

    Attributes
    ----------
    created : when it was assigned
    rewarded : when the reward happened
    received : when the reward arrived; None if that was when it happened
    excluded : by which entry of the audit log it was excluded; None if it counts
    """

    number: int
    unit: str
    arm: int
    probability: float
    created: int
    reward: float | None
    rewarded: int | None
    received: int | None = None
    excluded: int | None = None

    def assigned(self) -> Assigned:
        """The assignment as one that was there already."""
        return Assigned(self.number, self.unit, self.arm, self.probability, self.created, new=False)


@dataclass(frozen=True)
class TokenRecord:
    """One token of the service; only its hash is kept."""

    name: str
    hash: str
    scope: Scope
    created: int


def removable(name: str, kept: Iterable[TokenRecord], lock_out: bool) -> TokenRecord:
    """The token of that name; refused if nobody could come in without it, unless that is meant."""
    others = {token.name: token for token in kept}
    token = others.pop(name, None)
    if token is None:
        raise InvalidInputError(f"there is no token {name!r}; list them to see which are.")
    if lock_out or any(other.scope == "admin" for other in others.values()):
        return token
    if not others:
        which, follows = "the last one", "nobody could use the service over HTTP"
    elif token.scope == "admin":
        which = "the last one with the scope admin"
        follows = "nobody could create or change experiments over HTTP"
    else:
        return token
    raise InvalidInputError(
        f"the token {name!r} is {which}; without it {follows} until somebody creates another one "
        "on a machine with access to the storage. Create another one with the scope admin first; "
        "or, if that is what you want, remove it with --lock-out (in Python, lock_out=True)."
    )


@dataclass(frozen=True)
class SessionRecord:
    """Somebody who has signed in to the dashboard.

    Attributes
    ----------
    id : a hash of the id in the cookie
    token : the hash of the token that was used
    expires : when it ends, if nobody ends it before
    """

    id: str
    token: str
    created: int
    expires: int


@dataclass(frozen=True)
class AuditEntry:
    """One entry of the audit log: who did what, and when. Entries are never changed or deleted.

    Attributes
    ----------
    id : counts upwards in the order in which entries were stored; some numbers may be missing
    created : when
    author : over HTTP the name of the token, on the command line the name of the user of the
        operating system; empty if nobody was named
    action : what was done, its object first, such as "token.created"
    experiment : the name of the experiment; None for what concerns the whole storage
    detail : further facts, JSON-like; no units, since these are erased on request, and no secrets
    """

    id: int
    created: int
    author: str
    action: str
    experiment: str | None
    detail: Mapping[str, Any]
