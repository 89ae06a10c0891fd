"""Records: an experiment and its assignments as a storage returns them.

Times are whole microseconds since 1970 (UTC).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from secrets import choice, token_hex
from typing import Any, Literal, NamedTuple

import numpy as np

from steadyarm.errors import InvalidInputError
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import check_choice
from steadyarm.wording import shortened

REWARD = "reward"  # names the primary metric, whatever its own name is

ExperimentState = Literal["draft", "running", "paused", "stopped", "archived"]

# An assignment: its number, its number and the check of its unit, or its unit.
Target = int | tuple[int, str] | str


@dataclass(frozen=True)
class Event:
    """A reward, or another event of a metric, that is to be recorded.

    Attributes
    ----------
    target : whose it is
    metric : name of the metric; "reward" for the primary metric, which may have a name of its own
    at : when it happened, if not just now
    key : identifies the event among those of its assignment and metric; only needed if these may be
        several
    """

    target: Target
    value: float
    metric: str = REWARD
    at: int | None = None
    key: str | None = None


class MetricEvent(NamedTuple):
    """An event of a metric as it is stored with its assignment.

    Attributes
    ----------
    metric : name of the metric
    event : what identifies it; empty if the metric has one event for each assignment, and for a
        value that an operator has corrected
    value : as it was reported
    at : when it happened
    received : when it arrived; None if that was when it happened
    """

    metric: str
    event: str
    value: float
    at: int
    received: int | None = None

    @property
    def arrived(self) -> int:
        """When it arrived."""
        return self.at if self.received is None else self.received


LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ID = re.compile(r"([^-]+)-(0|[1-9]\d{0,8})-(0|[1-9]\d{0,9})-([0-9a-f]{6})")
LATEST = 2**53  # microseconds, some 285 years
POSITIONS = 2**32  # that a segment may have, so that the number of an assignment fits into 64 bits
ERASED = re.compile(r"erased-[0-9a-f]{32}")  # see `pseudonym`
LONGEST_UNIT = 512  # characters of a unit, or of the key of an event
SKEW = 300_000_000  # microseconds by which the clocks of those who report rewards may be off


def validate_unit(
    unit: Any,
    what: str = "the unit",
    purpose: str = "names who gets the variant, such as a visitor's id",
) -> str:
    """Return a unit if databases can keep it: no zero bytes, no halves of characters.

    what, purpose : of another text with the same rules, for the error
    """
    if isinstance(unit, str) and 0 < len(unit) <= LONGEST_UNIT and "\0" not in unit:
        try:
            unit.encode()
            return unit
        except UnicodeEncodeError:
            pass
    given = "missing" if unit is None else shortened(unit)
    raise InvalidInputError(
        f"{what} is {given}; expected a text of 1 to {LONGEST_UNIT} characters that {purpose}."
    )


def dump(value: Any) -> str:
    """JSON; floats are read back bit for bit."""
    return json.dumps(value, separators=(",", ":"))


def load(text: str | None) -> Any:
    """What `dump` wrote; None for NULL."""
    return None if text is None else json.loads(text)


def new_tag() -> str:
    """A random text with which the ids of an experiment's assignments begin."""
    return "".join(choice(LETTERS) for _ in range(8))


def number_of(segment: int, position: int) -> int:
    """The number of the assignment at a position of a segment; numbers rise with both."""
    return segment * POSITIONS + position


def place_of(number: int) -> tuple[int, int]:
    """Segment and position of the assignment with a number."""
    return divmod(number, POSITIONS)


def hash_unit(unit: str) -> str:
    """A short hash of a unit, which is part of the ids of its assignments.

    After a backup was restored, positions go to other units. The hash tells rewards that were meant
    for the first unit from those of the second.

    Examples
    --------
    >>> hash_unit("visitor 1"), hash_unit("visitor 2")
    ('41242f', 'eefedb')
    """
    return blake2b(unit.encode(errors="surrogatepass"), digest_size=3).hexdigest()


def pseudonym() -> str:
    """A random name that replaces a unit whose identity was erased."""
    return f"erased-{token_hex(16)}"


def is_hash_of(unit: str, check: str) -> bool:
    """Whether an assignment id with that hash may belong to the unit; true of every erased unit.

    Examples
    --------
    >>> [is_hash_of(unit, "41242f") for unit in ("visitor 1", "visitor 2", pseudonym())]
    [True, False, True]
    """
    return hash_unit(unit) == check or ERASED.fullmatch(unit) is not None


def id_of(tag: str, number: int, unit: str) -> str:
    """The id of an assignment: the experiment's tag, segment, position, and a check of the unit.

    Examples
    --------
    >>> id_of("k3v9x2ma", number_of(12, 345), "visitor 1")
    'k3v9x2ma-12-345-41242f'
    """
    segment, position = place_of(number)
    return f"{tag}-{segment}-{position}-{hash_unit(unit)}"


def parse_assignment_id(text: str, tag: str) -> tuple[int, str] | None:
    """Number and check in an id of that experiment; None if it is something else.

    Examples
    --------
    >>> number, check = parse_assignment_id("k3v9x2ma-12-345-41242f", "k3v9x2ma")
    >>> place_of(number), check
    ((12, 345), '41242f')
    >>> parse_assignment_id("visitor-7", "k3v9x2ma")
    """
    match = ID.fullmatch(text)
    if match is None or match[1] != tag or int(match[3]) >= POSITIONS:
        return None
    return number_of(int(match[2]), int(match[3])), match[4]


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
        given = f"{when}" if isinstance(when, datetime) else shortened(when)
        raise InvalidInputError(f"the time is {given}; expected a datetime with its time zone.")
    if not 0 <= stored < LATEST:
        raise InvalidInputError(f"the time is {when}; expected one after 1970.")
    return min(stored, now)


def describe_state(state: ExperimentState) -> str:
    """Describe the state of an experiment: "a draft", "running" and so on."""
    return "a draft" if state == "draft" else state


@dataclass(frozen=True, kw_only=True)
class ExperimentHead:
    """The base of records and summaries of an experiment.

    Attributes
    ----------
    key : identifies it in its storage, which gives it
    tag : random text with which the ids of its assignments begin
    config : its settings, JSON-like, which must not be changed; storages read "seed", "sticky",
        "metrics" and "products"
    created : time of its creation
    version : number of decisions; a decision made on an older version is refused
    observed : number of segments that the policy has observed
    outside : what units outside of the test see, JSON-like; None until this is chosen. Once it is
        chosen, no further unit is assigned
    layer : the tests of a layer have no unit in common; None for no layer
    place : where its share of the layer begins, from 0 to below 1; None for no layer
    reopened : number of the look at which it had stopped itself when it was reopened last, 0 for
        none; None if it never was
    """

    key: int = 0
    name: str
    tag: str
    state: ExperimentState
    config: Mapping[str, Any]
    created: int
    version: int = 0
    observed: int = 0
    outside: Mapping[str, Any] | None = None
    layer: str | None = None
    place: float | None = None
    reopened: int | None = None


@dataclass(frozen=True, kw_only=True)
class ExperimentRecord(ExperimentHead):
    """One experiment.

    Attributes
    ----------
    policy_state : the policy's state, JSON-like
    """

    policy_state: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Summary(ExperimentHead):
    """An experiment and its totals, for lists.

    Attributes
    ----------
    assigned, rewarded : number of assignments and of rewards
    late : number of rewards that came too late and were refused, as in `DaySums`
    started : when the first segment was opened; None before
    last : time of the last assignment; None before the first
    corrected : id of the last audit entry that corrected something; 0 if there is none
    measured : number of events of metrics that count; it changes whenever another one is recorded
    """

    assigned: int
    rewarded: int
    late: int
    started: int | None
    last: int | None
    corrected: int = 0
    measured: int = 0

    @property
    def mark(self) -> tuple[str, int, int, int, int, int, int, int]:
        """A key and counts, of which one changes whenever results may have changed.

        The first is what operators change: the state, and what is shown outside of the test.
        """
        counts = self.assigned, self.rewarded, self.late, self.corrected, self.measured
        standing = json.dumps([self.state, self.outside])
        return (standing, self.key, self.version, *counts)


class EarlySums(NamedTuple):
    """The rewards of a segment that still waited for some, as they stood when another was opened.

    Numbers by arm have the segment's columns.

    Attributes
    ----------
    segment : its index
    counts : assignments that counted: those with a reward, or all where none counts as zero
    sums, squares : of their rewards, as the policy maximizes them
    """

    segment: int
    counts: tuple[int, ...]
    sums: tuple[float, ...]
    squares: tuple[float, ...]

    @classmethod
    def read(cls, stored: Any) -> tuple[EarlySums, ...] | None:
        """Read the early sums of a segment from JSON; None for none."""
        if stored is None:
            return None
        return tuple(
            cls(int(segment), tuple(map(int, counts)), tuple(sums), tuple(squares))
            for segment, counts, sums, squares in stored
        )


@dataclass(frozen=True, eq=False)
class SegmentRecord:
    """One segment: its allocation and reference are fixed when it opens.

    Attributes
    ----------
    index : counts the segments of an experiment from 0
    segment : a batch of one; its rounds shrink when the segment is superseded
    carried_on : opened with an old allocation because rewards of earlier segments were missing
    superseded : it was carried on and those rewards have come, so it only finishes its block
    policy_version : number of segments the policy had observed when this one was opened
    opened : time of its opening
    used : the counter: number of positions that were assigned
    closed : rank (1, 2, ...) in which the policy observed it; None while it is open
    closed_at : time of its closing
    early : rewards so far of earlier incomplete segments, if its allocation rests on them; None if
        it rests on complete segments alone
    """

    index: int
    segment: Segment
    carried_on: bool
    superseded: bool
    policy_version: int
    opened: int
    used: int = 0
    closed: int | None = None
    closed_at: int | None = None
    early: tuple[EarlySums, ...] | None = None

    @property
    def rounds(self) -> int:
        """Number of its positions."""
        return int(self.segment.rounds[0])

    def cut(self) -> SegmentRecord:
        """The superseded segment, which ends with the block in which its counter stands."""
        return replace(self, segment=self.segment.cut_after(self.used), superseded=True)


@dataclass(frozen=True)
class Snapshot:
    """An experiment and its segments with their tallies, in the order of their opening.

    Attributes
    ----------
    corrected : indices of segments whose sums were corrected after they were closed; empty in
        snapshots that do not have all segments
    series : sums of covariates of these segments, in the order of `Storage.series`; empty if none
        were declared
    unmatched : names of events received since the creation that no experiment measured, as
        `corrected`
    """

    experiment: ExperimentRecord
    segments: tuple[tuple[SegmentRecord, Tally], ...]
    corrected: tuple[int, ...] = ()
    series: tuple[SeriesSums, ...] = ()
    unmatched: tuple[str, ...] = ()

    def series_by_segment(self) -> dict[int, list[SeriesSums]]:
        """The sums of covariates by the index of their segment, where there are any."""
        by_segment: dict[int, list[SeriesSums]] = {}
        for part in self.series:
            by_segment.setdefault(part.segment, []).append(part)
        return by_segment


@dataclass(frozen=True)
class Progress:
    """The progress of an open segment.

    Attributes
    ----------
    rounds : number of its positions
    assigned : number of its assignments
    done : number of its assignments that have a reward or were excluded
    last : time of the last assignment; None before the first
    """

    index: int
    rounds: int
    assigned: int
    done: int
    last: int | None


@dataclass(frozen=True)
class Decision:
    """A decision that follows from a snapshot, stored as a whole or not at all.

    Attributes
    ----------
    policy_state : the policy's state after the segments in `closed`
    closed : index and tally of the segments that the policy has now observed, in that order; the
        storage refuses the decision if a tally has changed meanwhile
    supersede : index of the segment that ends with its block (see `SegmentRecord.cut`), or None
    opened : the segment that gives new positions from now on, or None
    series : those of the snapshot; the storage refuses the decision if the sums of segments in
        `closed` have changed meanwhile
    """

    policy_state: Mapping[str, Any]
    closed: tuple[tuple[int, Tally], ...] = ()
    supersede: int | None = None
    opened: SegmentRecord | None = None
    series: tuple[SeriesSums, ...] = ()

    def rests_on(self, series: Iterable[SeriesSums]) -> bool:
        """Whether it was made on these sums of covariates; those of other segments do not matter.

        Events that were refused as too late change no sum.
        """
        closed = {index for index, _ in self.closed}
        observed, stored = (
            {
                (part.segment, part.day, part.series): (part.rewarded, part.sums, part.squares)
                for part in sums
                if part.segment in closed and any(part.rewarded)
            }
            for sums in (self.series, series)
        )
        return observed == stored

    def cut(self, last: SegmentRecord) -> SegmentRecord:
        """The last segment after this decision, which supersedes it; refused if it must not."""
        if self.opened is not None:
            raise InvalidInputError(
                f"the decision supersedes segment {last.index} and opens another, so that the rest "
                "of its block would never be assigned; open one when the block has ended."
            )
        if last.segment.order == "shuffled":
            raise InvalidInputError(
                f"segment {last.index} is shuffled, and its plan is kept only as a whole; "
                "supersede segments in blocks or drawn independently."
            )
        return last.cut()


class StoredAssignment(NamedTuple):
    """One assignment of an arm to a unit.

    Attributes
    ----------
    number : its segment and position, see `number_of`
    arm : index of the arm
    probability : with which the arm was drawn
    created : time of the assignment
    new : False if the unit had this assignment before
    """

    number: int
    unit: str
    arm: int
    probability: float
    created: int
    new: bool = True


@dataclass(frozen=True)
class AssignmentResult:
    """The assignments of units, and the state of their experiment in the same transaction.

    Attributes
    ----------
    assigned : one for each unit; None where a unit has none, or where positions ran out
    state : the state of the experiment
    outside : what is shown outside of the test, as in `ExperimentHead`
    """

    assigned: tuple[StoredAssignment | None, ...]
    state: ExperimentState
    outside: Mapping[str, Any] | None


class Outcome(NamedTuple):
    """The outcome of one reward, or of one event of a metric.

    Attributes
    ----------
    status : "stored"; "repeated", the same value was stored before; "conflict", another value was
        stored before; "unknown", there is no such assignment; "early", it happened before its
        assignment; "late", it happened after its window or arrived after the grace; "closed", the
        policy has observed its segment already (only rewards); "archived", the experiment takes
        nothing any more
    number : the number of the assignment, None if unknown
    previous : the value that was stored before, if any
    created : when it was assigned, if the reward is late or its segment closed
    """

    status: Literal[
        "stored", "repeated", "conflict", "unknown", "early", "late", "closed", "archived"
    ]
    number: int | None = None
    previous: float | None = None
    created: int | None = None


class RecordResult(NamedTuple):
    """The outcomes of rewards and events that were reported together.

    Attributes
    ----------
    outcomes : one for each
    exhausted : whether an open segment has no positions left, so that it may be over; no other can
    """

    outcomes: tuple[Outcome, ...]
    exhausted: bool


class LogRow(NamedTuple):
    """One assignment with its reward and events, as the log has it.

    SQL rows are unpacked by position, so new fields come last.

    Attributes
    ----------
    created : when it was assigned
    reward : the value that counts
    rewarded : when the reward happened; of several events, the last one
    received : when the reward arrived; None if that was when it happened
    excluded : by which entry of the audit log it was excluded; None if it counts
    events : of all metrics, in the order of metric and event; of the reward only if it is made of
        events (see `Metrics`)
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
    events: tuple[MetricEvent, ...] = ()

    def assigned(self) -> StoredAssignment:
        """The assignment as one that was there already."""
        return StoredAssignment(
            self.number, self.unit, self.arm, self.probability, self.created, new=False
        )


Pages = Iterable[Sequence[LogRow]]  # a log, some rows at a time


@dataclass(frozen=True)
class Tally:
    """Sums of one segment by arm.

    They have the segment's columns: all arms, or the arms that the segment plays.

    Attributes
    ----------
    assigned, rewarded : how often each arm was assigned, and rewarded
    sums, squares : sums of the rewards and of their squares
    last : time of the last assignment; None before the first
    excluded : how many of the assigned were excluded by hand; they and their rewards count nowhere
        else
    """

    assigned: tuple[int, ...]
    rewarded: tuple[int, ...]
    sums: tuple[float, ...]
    squares: tuple[float, ...]
    last: int | None = None
    excluded: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.excluded:
            object.__setattr__(self, "excluded", (0,) * len(self.assigned))

    @classmethod
    def empty(cls, columns: int) -> Tally:
        """A tally without assignments."""
        return cls((0,) * columns, (0,) * columns, (0.0,) * columns, (0.0,) * columns)

    @property
    def total_assigned(self) -> int:
        """Number of assignments."""
        return sum(self.assigned)

    @property
    def total_rewarded(self) -> int:
        """Number of rewards."""
        return sum(self.rewarded)

    @property
    def total_excluded(self) -> int:
        """Number of assignments that were excluded."""
        return sum(self.excluded)

    @property
    def waiting(self) -> int:
        """Number of assignments that have no reward and were not excluded."""
        return self.total_assigned - self.total_excluded - self.total_rewarded

    def without_excluded(self) -> Tally:
        """The same sums without the assignments that were excluded."""
        if not self.total_excluded:
            return self
        kept = tuple(a - e for a, e in zip(self.assigned, self.excluded, strict=True))
        return replace(self, assigned=kept, excluded=())

    def stats(self) -> SegmentStats:
        """The sums as a policy reads them."""
        return SegmentStats(
            np.array([self.rewarded], dtype=np.int64),
            np.array([self.sums]),
            np.array([self.squares]),
        )


@dataclass(frozen=True)
class DaySums:
    """Assignments from one segment on one day (UTC), and their rewards.

    Attributes
    ----------
    segment : its index
    day : the day of the assignments, in days since 1970
    tally : the tally of these assignments, with their rewards, whenever those came
    waited : milliseconds from assignments to their rewards, summed by arm
    late : rewards of these assignments that were refused because they happened after their window
        or arrived after the segment was closed; by arm, one for each attempt
    """

    segment: int
    day: int
    tally: Tally
    waited: tuple[int, ...]
    late: tuple[int, ...]


@dataclass(frozen=True)
class SeriesSums:
    """Sums of one metric, or of a product, over the assignments of one segment and day (UTC).

    Attributes
    ----------
    segment : its index
    day : the day of the assignments, in days since 1970
    series : the name of the metric, or "a*b" for the products of two, "a*b*c" for those of three
    rewarded : number of assignments that have a value, by the segment's columns
    sums, squares : sums of these values and of their squares
    late : number of events that were refused because they came too late, one for each attempt
    """

    segment: int
    day: int
    series: str
    rewarded: tuple[int, ...]
    sums: tuple[float, ...]
    squares: tuple[float, ...]
    late: tuple[int, ...]


DAY = 86_400_000_000  # microseconds


def day_of(time: int) -> int:
    """Days since 1970 (UTC)."""
    return time // DAY


@dataclass
class ArmDay:
    """Counts of one arm of a segment on one day, or additions to them.

    The attributes are those of `Tally` and `DaySums`. In a difference they may be negative. Counts
    of a series (see `SeriesSums`) have `events`, too: how many were recorded.
    """

    arm: int
    assigned: int = 0
    rewarded: int = 0
    sums: float = 0.0
    squares: float = 0.0
    last: int | None = None
    waited: int = 0
    late: int = 0
    excluded: int = 0
    events: int = 0

    def assign(self, created: int) -> None:
        """Count an assignment."""
        self.assigned += 1
        self.last = created if self.last is None else max(self.last, created)

    def reward(self, value: float, waited: int = 0, times: int = 1) -> None:
        """Count a reward that came after so many milliseconds; -1 times to take it back."""
        self.rewarded += times
        self.sums += times * value
        self.squares += times * value * value
        self.waited += times * waited

    def reward_of(self, row: LogRow, times: int = 1) -> None:
        """Count the reward of an assignment, if it has one and counts."""
        if row.reward is None or row.excluded is not None:
            return
        happened = row.created if row.rewarded is None else row.rewarded
        waited = max(0, happened - row.created) // 1000  # clocks may say that it came before
        self.reward(row.reward, waited, times)


# What operators change by hand. A wrong reward is voided, visits that should not count (a bot's,
# those of an outage) are excluded, and a unit's identity is erased. Each change is an entry of the
# audit log, which keeps how every assignment that it touched stood before.


Kind = Literal["void", "exclude", "erase"]
ACTIONS: dict[Kind, str] = {  # the names of changes in the audit log
    "void": "reward.voided",
    "exclude": "visits.excluded",
    "erase": "unit.erased",
}
GIVEN = ("target", "unit", "since", "until")


@dataclass(frozen=True)
class Change:
    """A correction that is to be made, and why.

    Attributes
    ----------
    kind : "void" a reward, so that the assignment has none; "exclude" the assignments of a unit or
        of a period, which then count nowhere; "erase" the identity of a unit
    target : the assignment whose reward is voided
    unit : the unit that is excluded or erased
    since, until : the period that is excluded: assignments with since <= created < until
    reason : a sentence that stays in the audit log, so it must name no unit; optional for "erase"
    metric : which value of the assignment is voided; None for its reward

    Examples
    --------
    >>> Change("exclude", unit="bot 7", reason="an availability monitor").detail(touched=3)
    {'assignments': 3, 'reason': 'an availability monitor', 'what': 'a unit'}
    """

    kind: Kind
    target: Target | None = None
    unit: str | None = None
    since: int | None = None
    until: int | None = None
    reason: str = ""
    metric: str | None = None

    def __post_init__(self) -> None:
        check_choice(self.kind, "kind", tuple(ACTIONS))
        if self.metric is not None and self.kind != "void":
            raise InvalidInputError(
                f"to {self.kind} concerns all values of an assignment, but the metric "
                f"{self.metric!r} is given; leave it out.",
                field="metric",
            )
        given = {name for name in GIVEN if getattr(self, name) is not None}
        needed = {"target"} if self.kind == "void" else {"unit"}
        if self.kind == "exclude" and given & {"since", "until"}:
            needed = {"since", "until"}
        if given != needed:
            wants = " and ".join(sorted(needed))
            raise InvalidInputError(
                f"to {self.kind}, {wants} must be given and nothing else; "
                f"given: {', '.join(sorted(given)) or 'nothing'}."
            )
        if not isinstance(self.reason, str) or not (self.reason.strip() or self.kind == "erase"):
            raise InvalidInputError(
                f"the reason is {self.reason!r}; expected a sentence that says why, for those who "
                "read the audit log."
            )
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InvalidInputError("the period to exclude ends before it begins; swap its ends.")

    def detail(self, touched: int) -> dict[str, Any]:
        """The details for the audit log; they never name a unit.

        touched : number of assignments that were changed
        """
        detail: dict[str, Any] = {"assignments": touched}
        if self.reason:
            detail["reason"] = self.reason
        if self.kind == "exclude":
            detail["what"] = "a unit" if self.since is None else "a period"
        for name in ("since", "until", "metric"):
            if (value := getattr(self, name)) is not None:
                detail[name] = value
        return detail


@dataclass(frozen=True)
class CorrectionResult:
    """The result of a change.

    Attributes
    ----------
    entry : id of its entry in the audit log
    assignments : number of assignments that it changed
    """

    entry: int
    assignments: int


@dataclass(frozen=True)
class Correction:
    """The effect of a change on one assignment.

    Attributes
    ----------
    entry : id of the audit entry
    number : the number of the assignment
    kind : the kind of the change
    before : the value before, as it counted; None where there was none. If assignments are excluded
        it is that of their reward
    closed : whether the policy had observed the segment before
    metric : of the value that was changed; "reward" for the reward, and for what concerns all
    """

    entry: int
    number: int
    kind: Kind
    before: float | None
    closed: bool
    metric: str = REWARD

    @property
    def late(self) -> bool:
        """Whether it changed the sums that the policy had observed."""
        return self.closed and self.kind != "erase" and self.metric == REWARD


@dataclass(frozen=True)
class AuditEntry:
    """One entry of the audit log: who did what, and when. Entries are never changed or deleted.

    Attributes
    ----------
    id : counts upwards in the order in which entries were stored; some numbers may be missing
    created : time of the entry
    author : over HTTP the name of the token, on the command line the name of the user of the
        operating system; empty if unknown
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


@dataclass(frozen=True)
class Trace:
    """The history of an experiment: entries of its audit log, and corrections."""

    entries: tuple[AuditEntry, ...] = ()
    corrections: tuple[Correction, ...] = ()


def undo_corrections(row: LogRow, corrections: Iterable[Correction]) -> LogRow:
    """An assignment as it stood when the policy observed its segment.

    corrections : the corrections of this assignment, in their order

    Examples
    --------
    >>> now = LogRow(0, "u", 1, 0.5, created=3, reward=None, rewarded=None)
    >>> undo_corrections(now, [Correction(9, 0, "void", 1.0, closed=True)]).reward
    1.0
    """
    for each in reversed([each for each in corrections if each.metric == REWARD]):
        if not each.closed:
            break
        if each.kind == "void":
            row = row._replace(reward=each.before)
        elif each.kind == "exclude":
            row = row._replace(excluded=None)
    return row
