"""Storage: where live experiments are kept. It persists data and contains no allocation logic.

Each method is one transaction: when it returns, its effect is on disk (if there is one); when it
raises, it has had no effect. Any number of threads and processes may call at once.

**Positions.** The arm at a position of a segment is a pure function of the experiment's seed, the
segment's index and the position. A segment's counter `handed` runs from 0 to its rounds and never
goes back. A position below the counter is used by exactly one assignment. Only the segment opened
last gives new positions.

**Units.** If the experiment's config says ``"sticky": "unit"`` a unit keeps its first assignment
for ever, even when requests race. Otherwise each request is a new assignment.

**Outside of the test.** What an experiment shows to units that are not part of its test is
JSON-like and means nothing to a storage. Once there is something nothing new is assigned.

**Rewards.** An assignment has one reward, the first that was recorded. A reward counts in its own
segment, or is refused if the policy has observed that segment already. The sums of a segment that
plays some of very many arms (`Segment.arms`) have one column for each of these arms; assignments
and the log give the arm itself. The same sums are kept by the day (UTC) of the assignment, with the
time that passed until rewards came and the number of rewards that came too late.

**Metrics.** Beside its reward an assignment may have values of further metrics, and each value may
be made of several events; `series.Metrics` has the rules. An event counts once, however often it
comes. No decision rests on further metrics: their segments are never closed. Metrics whose role is
"covariate" are an exception: decisions rest on them, so they are refused like rewards if the policy
has observed their segment, and nobody voids them.

**Decisions.** Only `decide` opens, supersedes and closes segments. It stores a whole decision if
nothing that the decision rests on has changed, and nothing otherwise: so the policy observes each
segment exactly once, whichever process notices first. A decision must not supersede one segment and
open another: the rest of the superseded block would never be assigned. An opened segment may rest
on rewards of segments that stay open (`SegmentRecord.early`): these may change meanwhile.

**Corrections.** A reward is voided, the assignments of a unit or of a period are excluded, both
with a reason; sums follow in the same transaction. An excluded assignment counts nowhere but in
`assigned` and `excluded` of its tally, and its segment does not wait for it. Corrections never
touch a policy's state, which knows what it has observed. An erased unit gets a random name in all
tables; rewards that name one of its assignments still count.

**Time.** Times are whole microseconds since 1970. Callers read `now` and give times; no other
method reads a clock.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from threading import Lock
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.engine import URL

from steadyarm.errors import SteadyArmError, StorageError
from steadyarm.segments import Draws
from steadyarm.storages import assignments, corrections, experiments
from steadyarm.storages.access import Sessions, Tokens
from steadyarm.storages.audit import read_entries
from steadyarm.storages.changes import AuditEntry, Change, Corrected, Correction, Pruned, Trace
from steadyarm.storages.engine import HINTS, MEMORY, Database
from steadyarm.storages.records import (
    AssignmentResult,
    DaySums,
    Decision,
    Event,
    ExperimentRecord,
    ExperimentState,
    LogRow,
    Measured,
    Outcome,
    Progress,
    SegmentRecord,
    SeriesSums,
    Snapshot,
    Summary,
    Target,
)
from steadyarm.storages.rewards import record_events
from steadyarm.storages.rows import (
    LOGGED,
    Transaction,
    find_rows,
    known,
    read_segments,
    with_events,
)
from steadyarm.storages.schema import assignments as assignments_table
from steadyarm.storages.schema import experiments as experiments_table
from steadyarm.storages.schema import load, rewards, same_assignment
from steadyarm.storages.series import Metrics, as_measured
from steadyarm.storages.upkeep import prepare, prune
from steadyarm.storages.webhooks import Webhooks

T = TypeVar("T")

EVERY = 1.0  # seconds between two heartbeats
PATIENCE = 2.5  # seconds after which a heartbeat has failed
ROOM = 1 << 20  # free bytes below which a disk counts as full

CONFIG = select(experiments_table.c.config).where(experiments_table.c.key == bindparam("key"))
LOG = (
    LOGGED.where(assignments_table.c.number > bindparam("after"))
    .order_by(assignments_table.c.number)
    .limit(bindparam("most"))
)
EXTREME = (
    select(assignments_table.c.unit, rewards.c.reward)
    .select_from(rewards.join(assignments_table, same_assignment(assignments_table)))
    .where(rewards.c.key == bindparam("key"), assignments_table.c.excluded.is_(None))
    .order_by(func.abs(rewards.c.reward).desc(), rewards.c.number)
    .limit(1)
)


class Storage:
    """Experiments in a database; the module says what all methods guarantee.

    Attributes
    ----------
    tokens, sessions : who may use a service on it
    webhooks : endpoints, and messages to them
    in_memory : it belongs to one process, and ends with it
    """

    def __init__(self, url: URL) -> None:
        self._database = Database(url)
        self._draws = Draws()
        self._facts: dict[int, tuple[int, bool, Metrics]] = {}  # seed, sticky and metrics, by key
        self._configs: dict[int, Mapping[str, Any]] = {}
        self._heartbeat = Heartbeat(self._database)
        self.tokens = Tokens(self._database)
        self.sessions = Sessions(self._database)
        self.webhooks = Webhooks(self._database, self._database.now)
        self.in_memory = url == MEMORY
        try:
            prepare(self._database)
        except BaseException:
            self._database.close()
            raise

    def __repr__(self) -> str:
        return f"Storage({self._database.shown})"

    # Experiments

    def create(self, record: ExperimentRecord, *, by: str = "") -> ExperimentRecord:
        """Add an experiment without segments; returns its record with the key that it got.

        ExperimentExistsError if the name is taken. The audit log gets an entry
        "experiment.created", by `by`.
        """
        return self._database.write(lambda c: experiments.create(c, record, by))

    def find(self, name: str) -> ExperimentRecord:
        """The experiment of that name, or UnknownExperimentError with similar names."""
        return self._database.read(lambda c: experiments.find(c, name))

    def summaries(self, only: int | None = None) -> list[Summary]:
        """All experiments and their totals, in the order of their creation.

        only : the key of an experiment, to list just that one
        """
        return self._database.read(lambda c: experiments.read_summaries(c, only, self._configs))

    def move(
        self,
        key: int,
        to: ExperimentState,
        now: int,
        *,
        by: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> ExperimentRecord:
        """Move an experiment to another state; WrongStateError if that is not allowed.

        The audit log gets an entry, by `by`, unless it is in that state already.
        """
        return self._database.write(lambda c: experiments.move(c, key, to, now, by, detail))

    def show_outside(
        self,
        key: int,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any],
        action: str,
        now: int,
        *,
        by: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> bool:
        """Set what is shown outside of the test; False, and nothing is set, if it is not `before`.

        The audit log gets an entry with that action.
        """
        return self._database.write(
            lambda c: experiments.show_outside(c, key, before, after, action, now, by, detail)
        )

    def note_unmatched(self, events: Sequence[str]) -> None:
        """Keep the names of events that no experiment measures; snapshots have the latest."""
        now = self.now()
        self._database.write(lambda c: experiments.note_unmatched(c, events, now))

    def unmatched(self) -> tuple[str, ...]:
        """The names of events that no experiment measured, the latest ones."""
        return self._database.read(lambda c: experiments.read_unmatched(c, 0))

    # Decisions

    def snapshot(self, key: int, everything: bool = False) -> Snapshot:
        """The experiment with the segments that are open and the last one; or with all of them."""
        return self._read(key, lambda t: experiments.read_snapshot(t, everything))

    def progress(self, key: int, exhausted: bool = False) -> tuple[Progress, ...]:
        """How far the open segments have come, in the order of their opening; cheap.

        exhausted : only those whose counter is at its end, since no others can be over; cheaper
        """
        return self._database.read_one(lambda c: experiments.read_progress(c, key, exhausted))

    def decide(self, key: int, version: int, decision: Decision, now: int) -> bool:
        """Store a decision made on that version; False if something has changed, and then nothing.

        That is: the version is another; a segment to be closed is closed already, or has
        positions that are not assigned, or another tally, or other sums of covariates; `supersede`
        is not the last segment; the index of `opened` is not the next one.
        """
        return self._write(key, lambda t: experiments.decide(t, version, decision, now))

    # Traffic

    def assign(
        self,
        key: int,
        units: Sequence[str],
        values: Sequence[Mapping[str, float]] = (),
        *,
        now: int,
    ) -> AssignmentResult:
        """The assignment of each unit, an old one or a new one.

        When positions run out, a unit gets None: open another segment and ask again. Units without
        an assignment get None, too, if the experiment is not running or shows something outside of
        its test. A unit named twice in one call of a sticky experiment gets one assignment, new
        only the first time.

        values : attributes and covariates of each unit, by the names of their metrics, which are
            stored with new assignments; empty if no unit has any
        """
        rows: list[LogRow | None] | None = None
        if self._database.sqlite:  # where readers do not wait for the one writer
            rows = self._database.read_one(lambda c: find_rows(self._transaction(c, key), units))
            if None not in rows:
                return self.known(key, units)

        def work(t: Transaction) -> AssignmentResult:
            nonlocal rows
            before, rows = rows, None  # if others assign meanwhile, they are read once more
            return assignments.assign(t, self._draws, units, values, now, before)

        return self._write(key, work)

    def known(self, key: int, units: Sequence[str]) -> AssignmentResult:
        """The assignments that units have (none if units are not sticky); only reads."""
        return self._read(key, lambda t: assignments.look_up(t, units))

    def experiments_of(
        self, units: Sequence[str], keys: Sequence[int]
    ) -> tuple[frozenset[int], ...]:
        """The keys, among those given, of the experiments that each unit has an assignment in.

        Experiments whose units are not sticky, and those that do not exist, are never among them.
        """
        return self._database.read(lambda c: assignments.find_experiments(c, units, keys))

    def reward(
        self, key: int, rewards: Sequence[Event], window: int | None, now: int, grace: int = 0
    ) -> tuple[Outcome, ...]:
        """Record rewards of targets (units only if they are sticky), with one outcome each.

        WrongStateError if the experiment is archived.

        window : microseconds after an assignment in which its reward must happen; None for no limit
        grace : microseconds after its window in which the reward may still arrive
        """
        entries = [as_measured(reward) for reward in rewards]
        return self._write(key, lambda t: record_events(t, entries, now, (window, grace)))

    def measure(self, key: int, events: Sequence[Measured], now: int) -> tuple[Outcome, ...]:
        """Record events of metrics, with one outcome each.

        WrongStateError if the experiment is archived. InvalidInputError, and nothing is recorded,
        if it has no such metric, or an event has no key although there may be several.
        """
        return self._write(key, lambda t: record_events(t, events, now))

    # Corrections

    def correct(self, key: int, change: Change, *, now: int, by: str = "") -> Corrected:
        """Make a correction.

        UnknownAssignmentError if there is no such assignment or unit; InvalidInputError if nothing
        would change, or a period lies in the future; WrongStateError if the experiment is
        archived, unless a unit is erased.
        """
        # A unit or a period may have a million visits.
        seconds = None if change.kind == "void" else inf
        return self._write(key, lambda t: corrections.correct(t, change, now, by), seconds)

    def corrections(
        self, key: int, after: tuple[int, int] = (0, -1), most: int = 10_000
    ) -> list[Correction]:
        """All corrections, assignment by assignment, in the order of entry and number.

        after : entry and number of the last one seen
        """
        return self._read(key, lambda t: corrections.read_corrections(t, after, most))

    # Reading

    def days(self, key: int) -> tuple[DaySums, ...]:
        """Sums by segment and day, in that order, without days on which nothing was assigned."""
        return self._read(key, experiments.read_days)

    def series(self, key: int) -> tuple[SeriesSums, ...]:
        """Sums of metrics by segment, day and name, in that order, without those of nothing."""
        return self._read(key, experiments.read_series)

    def log(self, key: int, after: int = -1, most: int = 10_000) -> list[LogRow]:
        """The next assignments after a number, in the order of numbers, with rewards and events."""
        values = {"key": key, "after": after, "most": most}

        def work(t: Transaction) -> list[LogRow]:
            return with_events(t, [LogRow(*row) for row in t.connection.execute(LOG, values)])

        return self._read(key, work)

    def pages(self, key: int) -> Iterator[list[LogRow]]:
        """The whole log, some thousand rows at a time."""
        after = -1
        while page := self.log(key, after):
            yield page
            after = page[-1].number

    def extreme(self, key: int) -> tuple[str, float] | None:
        """The unit with the reward furthest from 0, and this reward; None without rewards."""
        row = self._database.read_one(lambda c: c.execute(EXTREME, {"key": key}).first())
        return None if row is None else (row.unit, row.reward)

    def segments(self, key: int, indices: Iterable[int]) -> dict[int, SegmentRecord]:
        """Segments by their index."""
        return self._read(key, lambda t: read_segments(t, indices))

    def find_assignments(self, key: int, targets: Sequence[Target]) -> list[LogRow | None]:
        """Assignments of targets (units only if they are sticky); None for those unknown."""

        def work(t: Transaction) -> list[LogRow | None]:
            rows = find_rows(t, targets)
            whole = with_events(t, [row for row in rows if row is not None])
            by_number = {row.number: row for row in whole}
            return [None if row is None else by_number[row.number] for row in rows]

        return self._read(key, work)

    # The audit log

    def audit(
        self, after: int = 0, most: int = 10_000, experiment: str | None = None
    ) -> list[AuditEntry]:
        """The next entries of the audit log after an id, in the order of their ids.

        experiment : only those of the experiment of that name
        """
        return self._database.read_one(lambda c: read_entries(c, after, most, experiment))

    def history(self, name: str) -> list[AuditEntry]:
        """All entries of the audit log about the experiment of that name."""
        entries: list[AuditEntry] = []
        while page := self.audit(entries[-1].id if entries else 0, experiment=name):
            entries += page
        return entries

    def trace(self, key: int, name: str) -> Trace:
        """The same with all corrections, which may be as many as there are assignments."""
        made, last = list[Correction](), (0, -1)
        while page := self.corrections(key, last):
            made += page
            last = page[-1].entry, page[-1].number
        return Trace(tuple(self.history(name)), tuple(made))

    # The storage itself

    def now(self) -> int:
        """The time: PostgreSQL's, or that of this machine with SQLite."""
        return self._database.now()

    def check(self) -> None:
        """Return if the storage takes durable writes, raise StorageError if not.

        Tests it with a write at most once a second, and repeats the last result in between.
        """
        self._heartbeat.check()

    def prune(self, now: int, archived_before: int | None = None, dry: bool = False) -> Pruned:
        """Remove what nobody needs any more, such as expired sessions.

        Works in many transactions, so that traffic goes on; the next call finishes what an
        interrupted one has left.

        archived_before : a time; experiments that were archived before it are deleted, except for
            their audit log
        dry : only return which experiments would be deleted
        """
        pruned = prune(self._database, now, archived_before, dry)
        if pruned.experiments and not dry:
            self._facts = {}
        return pruned

    def close(self) -> None:
        """Close connections; the storage must not be used after that."""
        self._database.close()

    def _read(self, key: int, work: Callable[[Transaction], T]) -> T:
        return self._database.read(lambda c: work(self._transaction(c, key)))

    def _write(self, key: int, work: Callable[[Transaction], T], seconds: float | None = None) -> T:
        return self._database.write(lambda c: work(self._transaction(c, key)), seconds)

    def _transaction(self, connection: Connection, key: int) -> Transaction:
        """A transaction on an experiment; UnknownExperimentError if there is none."""
        if key not in self._facts:
            config = load(known(key, connection.execute(CONFIG, {"key": key}).scalar()))
            sticky = config.get("sticky") == "unit"
            self._facts[key] = config["seed"], sticky, Metrics.of(config)
        return Transaction(connection, key, self._database.shard, *self._facts[key])


class Heartbeat:
    """Whether a database takes durable writes, tested at most once a second.

    The heartbeat is one row. It proves what a `SELECT 1` does not: that the storage takes a durable
    write now.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = Lock()
        self._beaten = -inf
        self._error: SteadyArmError | None = None

    def check(self) -> None:
        """Return if the last heartbeat succeeded; it is at most a second old."""
        with self._turn:
            if time.monotonic() - self._beaten >= EVERY:
                self._error = self._beat()
                self._beaten = time.monotonic()
            error = self._error
        if error is not None:
            again = type(error)(str(error))
            if isinstance(error, StorageError) and isinstance(again, StorageError):
                again.reason = error.reason
            raise again

    def _beat(self) -> SteadyArmError | None:
        file = self._database.file
        if file is not None:  # what a small write does not show
            if not file.exists():
                return self._failure("the file was deleted or moved")
            if not os.access(file, os.W_OK):
                return self._failure(HINTS[8])
            if shutil.disk_usage(file.parent).free < ROOM:
                return self._failure(HINTS[13])
        row = {"name": "heartbeat", "value": time.time_ns() // 1000}
        try:
            self._database.write(lambda c: c.execute(experiments.SET_MARK, row).close(), PATIENCE)
        except SteadyArmError as error:
            return error
        return None

    def _failure(self, reason: str) -> StorageError:
        error = StorageError(f"{self._database.shown}: {reason}.")
        error.reason = reason
        return error
