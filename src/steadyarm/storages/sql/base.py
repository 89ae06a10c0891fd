"""What all parts of `SQLStorage` share: transactions, lookups of rows, and the storage's clock.

All processes that share a database go by one clock, whatever their own clocks say. PostgreSQL has a
clock on its own machine. It is asked now and then, and the time between is measured by the
monotonic clock of this machine. An SQLite file has no clock, but all of its processes run on one
machine and share its uptime. The mark "clock" says at which time of day the machine was started, as
the writers see it: their time of day minus the uptime. A process that sees another start by more
than a second has a wrong clock; it goes by the mark and does not write it. A process that sees its
own value change knows that the machine's clock was set, and writes the new value. If the mark is
older than a minute, or the machine was restarted, the next process writes it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from sqlalchemy import Connection, Table, bindparam, case, func, literal_column, select
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.engine import URL

from steadyarm.errors import UnknownExperimentError
from steadyarm.segments import Draws, Segment
from steadyarm.storages.base import Storage
from steadyarm.storages.records import (
    ArmDay,
    EarlySums,
    ExperimentRecord,
    ExperimentState,
    LogRow,
    MetricEvent,
    SegmentRecord,
    Target,
    is_of,
)
from steadyarm.storages.series import NO_METRICS, Metrics, SeriesPlace
from steadyarm.storages.sql.engine import Database, Rows, Statement, Values, together
from steadyarm.storages.sql.schema import (
    Among,
    AnyRow,
    assignments,
    events,
    experiments,
    inserting,
    lookup,
    marks,
    segments,
    series,
    tallies,
)

T = TypeVar("T")
S = TypeVar("S", bound="SQLBase")
P = ParamSpec("P")

log = logging.getLogger("steadyarm")


# Transactions


def reads(work: Callable[Concatenate[S, Connection, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that only reads, and sees one consistent state of the database."""

    @wraps(work)
    def call(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        return self._database.read(lambda connection: work(self, connection, *args, **named))

    return call


def writes(work: Callable[Concatenate[S, Connection, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that is one transaction, repeated if another one got in its way."""

    @wraps(work)
    def call(self: S, /, *args: P.args, **named: P.kwargs) -> T:
        return self._write(lambda connection: work(self, connection, *args, **named))

    return call


class Facts(NamedTuple):
    """What storages need of an experiment and what never changes."""

    seed: int
    sticky: bool
    tag: str
    metrics: Metrics


class SQLBase(Storage):
    """The database, its clock, and what is remembered of its experiments."""

    def __init__(self, url: URL) -> None:
        self._database = Database(url)
        self._clock = Clock(self._database)
        self._draws = Draws()
        self._known: dict[int, Facts] = {}
        self._configs: dict[int, Mapping[str, Any]] = {}

    def now(self) -> int:
        """The time by the clock that all processes of the database share."""
        return self._clock.now()

    def _write(self, work: Callable[[Connection], T], seconds: float | None = None) -> T:
        def kept(connection: Connection) -> T:
            self._clock.keep(connection)
            return work(connection)

        return self._database.write(kept, seconds=seconds)

    def _facts(self, connection: Connection, key: int) -> Facts:
        """Facts of an experiment; UnknownExperimentError if there is none."""
        if key not in self._known:
            text, tag = known(key, CONFIG(connection, {"key": key}).first)
            config = json.loads(text)
            sticky = config.get("sticky") == "unit"
            metrics = Metrics.of(config) if config.get("metrics") else NO_METRICS
            self._known[key] = Facts(config["seed"], sticky, tag, metrics)
        return self._known[key]

    def _known_facts(self, key: int) -> Facts:
        """The same, outside of a transaction."""
        if key not in self._known:
            self._database.read(lambda connection: self._facts(connection, key))
        return self._known[key]


# Rows


def dump(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """JSON; floats are read back bit for bit."""
    return json.dumps(value, separators=(",", ":"))


def loaded(text: str | None) -> Any:
    """What `dump` wrote; None for NULL."""
    return None if text is None else json.loads(text)


def experiment_of(row: AnyRow) -> ExperimentRecord:
    """A whole row of `experiments`."""
    parsed = {
        "config": json.loads(row.config),
        "policy_state": json.loads(row.policy_state),
        "outside": loaded(row.outside),
    }
    return ExperimentRecord(**dict(row._mapping) | parsed)


LISTS = ("weights", "reference", "arms")  # columns of a segment that hold JSON


def segment_of(row: Sequence[Any]) -> SegmentRecord:
    """A whole row of `segments`; columns 7 to 13 are fields of the record, in their order."""
    stored = dict(zip(segments.c.keys(), row, strict=True))
    lists = {name: json.loads(stored[name]) for name in LISTS if stored[name] is not None}
    flags = bool(row[7]), bool(row[8])  # SQLite has no truth values
    early = None if stored["early"] is None else EarlySums.read(json.loads(stored["early"]))
    return SegmentRecord(row[1], Segment.from_dict(stored | lists), *flags, *(*row[9:14], early))


def segment_row(key: int, record: SegmentRecord) -> dict[str, Any]:
    """The row that `segment_of` reads."""
    fields = {name: value for name, value in vars(record).items() if name != "segment"}
    stored = record.segment.to_dict()
    lists = {name: dump(stored[name]) for name in LISTS if stored[name] is not None}
    early = None if record.early is None else dump(record.early)
    return fields | stored | lists | {"key": key, "early": early}


# Lookups


NUMBERS = 2**63  # no assignment has a number beyond what a database can hold

Call = tuple[Statement, Values]  # a statement and its parameters

# Held to the end of the transaction, so that `move` waits for transactions that have begun.
STATE = Statement(
    select(experiments.c.state, experiments.c.outside)
    .where(experiments.c.key == bindparam("key"))
    .with_for_update(read=True, key_share=True)
)
STANDING = Statement(  # the same without a lock, for those who only read
    select(experiments.c.state, experiments.c.outside).where(experiments.c.key == bindparam("key"))
)
CONFIG = Statement(
    select(experiments.c.config, experiments.c.tag).where(experiments.c.key == bindparam("key"))
)
SEGMENTS = Statement(
    select(segments).where(segments.c.key == bindparam("key"), Among(segments.c.index, "indices"))
)
BY_NUMBER = lookup(assignments.c.number)
_first = assignments.c.repeat == literal_column("0")
BY_UNIT = lookup(assignments.c.unit, _first)
BY_UNIT_AND_STANDING = lookup(assignments.c.unit, _first, standing=True)


def known(key: int, found: T | None) -> T:
    """What was found of an experiment; UnknownExperimentError if nothing was."""
    if found is None:
        raise UnknownExperimentError(f"there is no experiment with key {key}.")
    return found


def state_in(key: int, rows: Rows) -> ExperimentState:
    """The state of an experiment, as `STATE` reads it; it stays so until the transaction ends."""
    return standing_in(key, rows)[0]


def standing_in(key: int, rows: Rows) -> tuple[ExperimentState, Any]:
    """The state, and what is shown outside of the test."""
    state, outside = known(key, rows.first)
    return state, loaded(outside)


def segments_of(
    connection: Connection, key: int, indices: Iterable[int]
) -> dict[int, SegmentRecord]:
    """Segments by their index."""
    found = map(segment_of, SEGMENTS(connection, {"key": key, "indices": sorted(set(indices))}))
    return {record.index: record for record in found}


def finding(key: int, sticky: bool, targets: Iterable[Target]) -> list[Call]:
    """The statements that read the assignments of targets; by unit only if units are sticky."""
    numbers, units = set(), set()
    for target in targets:
        if isinstance(target, str):
            units.add(target)
        else:
            numbers.add(target if isinstance(target, int) else target[0])
    possible = sorted(number for number in numbers if 0 <= number < NUMBERS)
    calls: list[Call] = [(BY_NUMBER, {"key": key, "values": possible})] if possible else []
    if sticky and units:
        calls.append((BY_UNIT, {"key": key, "values": sorted(units)}))
    return calls


def found_in(
    results: Iterable[Rows], targets: Iterable[Target], sticky: bool
) -> list[LogRow | None]:
    """The assignments of targets in what these statements found."""
    rows: dict[int | str, LogRow] = {}
    for row in chain.from_iterable(results):
        rows[row[0]] = rows[row[1]] = LogRow(*row)

    def found(target: Target) -> LogRow | None:
        if isinstance(target, str):
            return rows.get(target) if sticky else None
        if isinstance(target, int):
            return rows.get(target)
        row = rows.get(target[0])
        return row if row is not None and is_of(row.unit, target[1]) else None

    return [found(target) for target in targets]


def by_targets(
    connection: Connection, key: int, sticky: bool, targets: Sequence[Target]
) -> list[LogRow | None]:
    """The assignments of targets; by unit only if units are sticky."""
    return found_in(together(connection, *finding(key, sticky, targets)), targets, sticky)


# Events of metrics


EVENTS = Statement(
    select(
        events.c.number,
        events.c.metric,
        events.c.event,
        events.c.value,
        func.coalesce(events.c.at, events.c.created),
        case((events.c.at.is_not(None), events.c.created)),
    ).where(events.c.key == bindparam("key"), Among(events.c.number, "values"))
)


def with_events(rows: Iterable[LogRow], found: Rows) -> list[LogRow]:
    """Assignments with their events, as `EVENTS` has found them."""
    events_of: dict[int, list[MetricEvent]] = {}
    for number, *event in found:
        events_of.setdefault(number, []).append(MetricEvent(*event))
    return [
        replace(row, events=tuple(sorted(events_of[row.number])))
        if row.number in events_of
        else row
        for row in rows
    ]


def read_events(
    connection: Connection, key: int, metrics: Metrics, rows: list[LogRow]
) -> list[LogRow]:
    """Assignments with their events, which are only read if the experiment has any metrics."""
    if not metrics or not rows:
        return rows
    values = [row.number for row in rows]
    return with_events(rows, EVENTS(connection, {"key": key, "values": values}))


def event_row(key: int, number: int, event: MetricEvent) -> dict[str, Any]:
    """A row of `events`."""
    return {
        "key": key,
        "number": number,
        "metric": event.metric,
        "event": event.event,
        "value": event.value,
        "created": event.arrived,
        "at": None if event.received is None else event.at,
    }


# Counts of segments, arms and days

Place = tuple[int, int, int]  # segment, arm and day
AnyPlace = TypeVar("AnyPlace", Place, SeriesPlace)
PLACE = ("segment", "arm", "day", "series")
ADDED = ("assigned", "rewarded", "waited", "late", "excluded", "events")


def _counting(table: Table, sums: bool) -> Statement:
    """Add the counts of rows to those in the table; sums and squares replace them, or stay."""

    def more(insert: Insert) -> Insert:
        new, old = insert.excluded, table.c
        values: dict[str, Any] = {name: old[name] + new[name] for name in ADDED if name in old}
        if "last" in old:
            newer = func.coalesce(new["last"], old["last"])
            values["last"] = case((old["last"] > new["last"], old["last"]), else_=newer)
        if sums:
            values |= {name: new[name] for name in ("sums", "squares")}
        return insert.on_conflict_do_update(index_elements=table.primary_key, set_=values)

    return inserting(table, more)


class Sums:
    """The statements for exact sums in a table: `tallies` or `series`.

    Attributes
    ----------
    read : read and lock the sums of a shard
    count : add counts, and make rows that are not there
    count_exactly : the same, and replace sums and squares
    """

    def __init__(self, table: Table) -> None:
        at = [table.c[name] for name in PLACE if name in table.c]
        self.read = Statement(
            select(*at, table.c.sums, table.c.squares)
            .where(
                table.c.key == bindparam("key"),
                Among(table.c.segment, "segments"),
                Among(table.c.arm, "arms"),
                table.c.shard == bindparam("shard"),
                Among(table.c.day, "days"),
            )
            .order_by(*at)
            .with_for_update()
        )
        self.count = _counting(table, sums=False)
        self.count_exactly = _counting(table, sums=True)


TALLIES, SERIES = Sums(tallies), Sums(series)


def counts_at(
    key: int, shard: int, counts: Iterable[tuple[AnyPlace, ArmDay]]
) -> list[dict[str, Any]]:
    """Rows of `tallies` or `series`, in the order in which they are locked."""
    return [
        {
            **vars(count),
            **dict(zip(PLACE, place, strict=False)),
            "key": key,
            "shard": shard,
            "sums": str(count.sums),
            "squares": str(count.squares),
        }
        for place, count in sorted(counts, key=lambda item: item[0])
    ]


# The clock


SECOND = 1_000_000
WRONG = SECOND  # difference from which on a process is warned that its clock is wrong
RELOAD = {"sqlite": 1.0, "postgresql": 10.0}  # seconds between two readings of the storage's clock
FRESH, STALE = 5.0, 60.0  # seconds: when the mark is written again, and when it counts no more
SLOW = 1.0  # seconds after which an answer of PostgreSQL does not say what time it is
CLOSE = 0.05  # seconds in which two clocks are read together
JITTER = 20_000  # microseconds by which readings of clocks may differ
UPTIME, BOOT = Path("/proc/uptime"), Path("/proc/sys/kernel/random/boot_id")
MARK = "clock"

READ = select(marks.c.value, marks.c.note).where(marks.c.name == MARK)
NOW = select(func.floor(func.extract("epoch", func.clock_timestamp()) * SECOND))
_new = insert(marks)
WRITE = _new.on_conflict_do_update(
    index_elements=["name"], set_={"value": _new.excluded.value, "note": _new.excluded.note}
)


class Boot(NamedTuple):
    """Seconds since the machine was started, and the id of that start."""

    uptime: float
    id: str


class Clock:
    """The time of one storage; any thread may ask.

    Parameters
    ----------
    database : whose clock it is
    wall : the clock of this process, in seconds since 1970
    boot : how long the machine has been up; None where that is unknown, and then processes are
        assumed to agree
    """

    def __init__(
        self,
        database: Database,
        wall: Callable[[], float] = time.time,
        boot: Callable[[], Boot | None] | None = None,
    ) -> None:
        self._database, self._wall, self._boot = database, wall, boot or _boot
        self._turn = Lock()
        self._ahead: int | None = None  # microseconds that the storage is ahead of `_steady`
        self._read = self._written = float("-inf")
        self._started: int | None = None  # when the machine was started, by this process's clock
        self._agrees = True  # whether this process and the storage agree
        self._warned = False

    def now(self) -> int:
        """Microseconds since 1970; a thread does not wait while another one reads the clock."""
        due = _steady() - self._read >= RELOAD[self._database.engine.dialect.name]
        if due and self._turn.acquire(blocking=self._ahead is None):
            try:
                if self._database.sqlite:
                    self._read_mark()
                else:
                    self._ask_server()
                self._read = _steady()
            finally:
                self._turn.release()
        assert self._ahead is not None
        return self._ahead + round(_steady() * SECOND)

    def keep(self, connection: Connection) -> None:
        """Write the mark of SQLite again if it is time, in a transaction that writes anyway."""
        if not self._database.sqlite or not self._agrees or self._started is None:
            return
        if _steady() - self._written < FRESH or (boot := self._boot()) is None:
            return
        note = json.dumps({"boot": boot.id, "uptime": boot.uptime})
        connection.execute(WRITE, {"name": MARK, "value": self._started, "note": note})
        self._written = _steady()

    def _ask_server(self) -> None:
        before = _steady()
        theirs = int(self._database.read_one(lambda c: c.execute(NOW).scalar_one()))
        waited = _steady() - before
        if waited > SLOW and self._ahead is not None:
            return  # the answer took too long to say what time it is
        self._compare(self._own(), theirs - round((before + waited / 2) * SECOND))

    def _read_mark(self) -> None:
        row = self._database.read_one(lambda c: c.execute(READ).one_or_none())
        own, before = self._own(), self._started
        while True:
            began = _steady()
            boot, steady = self._boot(), _steady()
            if steady - began < CLOSE:
                break
        if boot is None:
            self._compare(own, own)
            return
        started = own + round((steady - boot.uptime) * SECOND)
        self._started = started
        if before is not None and abs(started - before) > WRONG:
            log.warning(
                "the clock of this machine was set by %+.1f s; times of the storage %s follow it.",
                (started - before) / SECOND,
                self._database.shown,
            )
            self._written = float("-inf")
            row = None
        theirs = _marked(row, boot)
        self._compare(own, own if theirs is None else own + theirs - started)

    def _own(self) -> int:
        """How far the clock of this process is ahead of `_steady`; the closest of some readings."""
        best, least = 0, float("inf")
        for _ in range(5):
            before, wall, after = _steady(), self._wall(), _steady()
            if after - before < least:
                best, least = round((wall - (before + after) / 2) * SECOND), after - before
        return best

    def _compare(self, own: int, theirs: int) -> None:
        """Go by the clock of this process if it agrees with the storage's, else by the storage's.

        Both are given as what they are ahead of `_steady`. Tiny differences come from reading
        clocks: time must not jump by them.
        """
        self._agrees = abs(own - theirs) <= WRONG
        if not self._agrees and not self._warned:
            log.warning(
                "the clock of this process is %.1f s %s that of the storage %s; the storage's "
                "counts. Set this machine's clock, with NTP.",
                abs(own - theirs) / SECOND,
                "ahead of" if own > theirs else "behind",
                self._database.shown,
            )
        self._warned = not self._agrees
        ahead = own if self._agrees else theirs
        if self._ahead is None or abs(ahead - self._ahead) > JITTER:
            self._ahead = ahead


def _marked(row: Any, boot: Boot) -> int | None:
    """When the machine was started, by a mark that is fresh; None if it is not."""
    if row is None:
        return None
    note = json.loads(row.note)
    fresh = note["boot"] == boot.id and 0 <= boot.uptime - float(note["uptime"]) < STALE
    return int(row.value) if fresh else None


def _steady() -> float:
    """Seconds of a clock that nobody sets and that goes on while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _boot() -> Boot | None:
    try:
        return Boot(float(UPTIME.read_text().split()[0]), BOOT.read_text().strip())
    except (OSError, ValueError, IndexError):
        return None
