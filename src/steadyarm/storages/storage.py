"""Storage: where live experiments are kept. It persists data and contains no allocation logic.

Each method is one transaction: when it returns, its effect is on disk (if there is one); when it
raises, it has had no effect. Any number of threads and processes may call at once.

**Positions.** The arm at a position of a segment is a pure function of the experiment's seed, the
segment's index and the position. A segment's counter `used` runs from 0 to its rounds and never
goes back. A position below the counter is used by exactly one assignment. Only the segment opened
last gives new positions.

**Units.** If the experiment's config says ``"sticky": "unit"`` a unit keeps its first assignment
for ever, even when requests race. Otherwise each request is a new assignment.

**Outside of the test.** What an experiment shows to units that are not part of its test is
JSON-like and means nothing to a storage. Once there is something nothing new is assigned.

**Rewards.** An assignment has one reward, the first that was recorded. A reward counts in its own
segment, or is refused if the policy has observed that segment already. Sums are kept by segment,
arm and day (UTC) of the assignment. `counting.Metrics` has the rules, also of further metrics.

**Decisions.** Only `decide` opens, supersedes and closes segments. It stores a whole decision if
nothing that the decision rests on has changed, and nothing otherwise: so the policy observes each
segment exactly once, whichever process notices first. A decision must not supersede one segment and
open another: the rest of the superseded block would never be assigned. An opened segment may rest
on rewards of segments that stay open (`SegmentRecord.early`): these may change meanwhile.

**Corrections.** Sums follow in the same transaction. An excluded assignment counts nowhere but in
`assigned` and `excluded` of its tally, and its segment does not wait for it. Corrections never
touch a policy's state. An erased unit gets a random name in all tables; rewards that name one of
its assignments still count.

**Time.** Times are whole microseconds since 1970. Callers read `now` and give times; no other
method reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import groupby
from math import inf
from typing import Any, TypeVar

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.engine import URL

from steadyarm.errors import (
    ExperimentExistsError,
    InvalidInputError,
    UnknownExperimentError,
    WrongStateError,
)
from steadyarm.segments import Draws
from steadyarm.storages import corrections, traffic
from steadyarm.storages.corrections import note
from steadyarm.storages.counting import Metrics, columns_of, day_sums, series_sums, sum_tally
from steadyarm.storages.engine import MEMORY, Database
from steadyarm.storages.records import (
    AssignmentResult,
    AuditEntry,
    Change,
    Correction,
    CorrectionResult,
    DaySums,
    Decision,
    Event,
    ExperimentRecord,
    ExperimentState,
    LogRow,
    Progress,
    RecordResult,
    SegmentRecord,
    SeriesSums,
    Snapshot,
    StoredAssignment,
    Summary,
    Tally,
    Trace,
    describe_state,
    dump,
    load,
)
from steadyarm.storages.schema import (
    AnyRow,
    assignments,
    experiments,
    marks,
    notices,
    refusals_of,
    rewards,
    same_assignment,
    segments,
    series,
    tallies,
)
from steadyarm.storages.schema import corrections as corrections_table
from steadyarm.storages.service import (
    Heartbeat,
    Refusal,
    Sessions,
    Tokens,
    Webhooks,
    forget_refusals,
    note_refusals,
    read_refusals,
)
from steadyarm.storages.traffic import (
    MOST_ARRIVALS,
    Arrivals,
    Transaction,
    require_experiment,
    with_events,
)
from steadyarm.storages.upkeep import PruneResult, damage_of, prepare, prune
from steadyarm.wording import strung

T = TypeVar("T")

# The moves between states that are allowed, with their names in the audit log.
MOVED: dict[tuple[ExperimentState, ExperimentState], str] = {
    ("draft", "running"): "experiment.started",
    ("paused", "running"): "experiment.resumed",
    ("running", "paused"): "experiment.paused",
    ("running", "stopped"): "experiment.stopped",
    ("paused", "stopped"): "experiment.stopped",
    ("draft", "archived"): "experiment.archived",
    ("stopped", "archived"): "experiment.archived",
}

_key: BindParameter[Any] = bindparam("key")
_some: BindParameter[Any] = bindparam("indices", expanding=True)

CREATE = upsert(experiments).on_conflict_do_nothing().returning(experiments.c.key)
CONFIG = select(experiments.c.config).where(experiments.c.key == _key)
CONFIGS = select(experiments.c.key, experiments.c.config).where(
    experiments.c.key.in_(bindparam("keys", expanding=True))
)
LAYER = (
    select(experiments.c.name, experiments.c.place, experiments.c.config)
    .where(
        experiments.c.layer == bindparam("layer"),
        experiments.c.state != "archived",
        experiments.c.key != _key,
    )
    .order_by(experiments.c.place)
)
BY_NAME = select(experiments).where(experiments.c.name == bindparam("name"))
BY_KEY = select(experiments).where(experiments.c.key == _key)
ALONE = BY_KEY.with_for_update()
LOCKED = BY_KEY.with_for_update(key_share=True)  # traffic goes on, only `move` waits

_others = segments.alias("others")
LAST = select(func.max(_others.c.index)).where(_others.c.key == _key)
ALL_SEGMENTS = select(segments).where(segments.c.key == _key).order_by(segments.c.index)
OPEN_AND_LAST = ALL_SEGMENTS.where(
    or_(segments.c.closed.is_(None), segments.c.index == LAST.scalar_subquery())
)
LOCKED_SEGMENTS = ALL_SEGMENTS.where(segments.c.index.in_(_some)).with_for_update()
# In one order, because sums of floats depend on it.
COUNTS = (
    select(tallies)
    .where(tallies.c.key == _key)
    .order_by(tallies.c.segment, tallies.c.day, tallies.c.arm, tallies.c.shard)
)
SOME_COUNTS = COUNTS.where(tallies.c.segment.in_(_some))
SERIES = (
    select(series)
    .where(series.c.key == _key)
    .order_by(series.c.segment, series.c.arm, series.c.day, series.c.series, series.c.shard)
)
STEERING = SERIES.where(
    series.c.segment.in_(_some), series.c.series.in_(bindparam("names", expanding=True))
)
_tallied = (tallies.c.key == segments.c.key) & (tallies.c.segment == segments.c.index)
EXHAUSTED = (
    select(
        segments.c.index,
        segments.c.rounds,
        func.sum(tallies.c.assigned),
        func.sum(tallies.c.rewarded + tallies.c.excluded),
        func.max(tallies.c.last),
    )
    .select_from(segments.outerjoin(tallies, _tallied))
    .where(
        segments.c.key == _key,
        segments.c.closed.is_(None),
        segments.c.used >= segments.c.rounds,
    )
    .group_by(segments.c.index, segments.c.rounds)
    .order_by(segments.c.index)
)
LOG = (
    traffic.LOGGED.where(assignments.c.number > bindparam("after"))
    .order_by(assignments.c.number)
    .limit(bindparam("most"))
)
EXTREME = (
    select(assignments.c.unit, rewards.c.reward)
    .select_from(rewards.join(assignments, same_assignment(assignments)))
    .where(rewards.c.key == _key, assignments.c.excluded.is_(None))
    .order_by(func.abs(rewards.c.reward).desc(), rewards.c.number)
    .limit(1)
)

ROUNDING = 1e-9  # of sums of shares
TOTALS = ("assigned", "rewarded", "late", "corrected", "measured")
LONG = ("config", "policy_state")  # columns that lists do without


def _summaries(*which: ColumnElement[bool]) -> Select[Any]:
    """Experiments with their totals; `which` says of which tallies."""
    totals = (
        select(
            tallies.c.key,
            *(func.sum(tallies.c[name]).label(name) for name in ("assigned", "rewarded", "late")),
            func.max(tallies.c.last).label("last"),
        )
        .where(*which)
        .group_by(tallies.c.key)
        .subquery()
    )
    first = (segments.c.key == experiments.c.key) & (segments.c.index == 0)
    last_correction = (
        select(func.max(corrections_table.c.entry))
        .where(corrections_table.c.key == experiments.c.key)
        .scalar_subquery()
    )
    recorded = (
        select(func.sum(series.c.events)).where(series.c.key == experiments.c.key).scalar_subquery()
    )
    return (
        select(
            *(column for column in experiments.c if column.name not in LONG),
            totals.c.assigned,
            totals.c.rewarded,
            totals.c.late,
            segments.c.opened.label("started"),
            totals.c.last,
            last_correction.label("corrected"),
            recorded.label("measured"),
        )
        .select_from(
            experiments.outerjoin(segments, first).outerjoin(
                totals, totals.c.key == experiments.c.key
            )
        )
        .order_by(experiments.c.key)
    )


SUMMARIES = _summaries()
SUMMARY = _summaries(tallies.c.key == bindparam("only")).where(
    experiments.c.key == bindparam("only")
)


class Storage:
    """Experiments in a database; the module says what all methods guarantee.

    Attributes
    ----------
    tokens, sessions, heartbeat : who may use a service on it, and whether it takes writes
    webhooks : endpoints, and messages to them
    in_memory : it belongs to one process, and ends with it
    """

    def __init__(self, url: URL) -> None:
        self._database = Database(url)
        self._draws = Draws()
        self._facts: dict[int, tuple[int, bool, Metrics]] = {}  # seed, sticky and metrics, by key
        self._configs: dict[int, Mapping[str, Any]] = {}  # which never change, by key
        self.now = self._database.now
        self.heartbeat = Heartbeat(self._database)
        self.tokens = Tokens(self._database)
        self.sessions = Sessions(self._database)
        self.webhooks = Webhooks(self._database)
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

        An experiment with a layer gets a free part of it, as large as its traffic.
        ExperimentExistsError if the name is taken. The audit log gets an entry
        "experiment.created", by `by`.
        """
        row = {name: value for name, value in vars(record).items() if name != "key"}
        row |= {"config": dump(record.config), "policy_state": dump(record.policy_state)}
        row["outside"] = None if record.outside is None else dump(record.outside)
        row["layer"] = layer = record.config.get("layer")

        def work(connection: Connection) -> ExperimentRecord:
            key = connection.execute(CREATE, row).scalar()
            if key is None:
                raise ExperimentExistsError(
                    f"there is an experiment {record.name!r} in the storage already; choose "
                    "another name."
                )
            detail = {"state": record.state}
            # The entry comes first: until it is committed no other experiment is created.
            note(connection, record.created, by, "experiment.created", record.name, detail)
            if layer is not None:
                place = _find_place(connection, key, layer, record.config["traffic"])
                placed = update(experiments).where(experiments.c.key == key).values(place=place)
                connection.execute(placed)
            return _experiment_of(connection.execute(BY_KEY, {"key": key}).one())

        return self._database.write(work)

    def find(self, name: str) -> ExperimentRecord:
        """The experiment of that name, or UnknownExperimentError with similar names."""

        def work(connection: Connection) -> ExperimentRecord:
            row = connection.execute(BY_NAME, {"name": name}).one_or_none()
            if row is None:
                names = connection.execute(select(experiments.c.name)).scalars()
                near = get_close_matches(name, list(names))
                hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
                raise UnknownExperimentError(
                    f"there is no experiment {name!r} in the storage{hint}"
                )
            return _experiment_of(row)

        return self._database.read(work)

    def summaries(self, only: int | None = None) -> list[Summary]:
        """All experiments and their totals, in the order of their creation.

        only : the key of an experiment, to list just that one
        """

        def work(connection: Connection) -> list[Summary]:
            rows = connection.execute(SUMMARIES if only is None else SUMMARY, {"only": only}).all()
            new = [row.key for row in rows if row.key not in self._configs]
            for key, config in connection.execute(CONFIGS, {"keys": new}) if new else ():
                self._configs[key] = load(config)
            return [
                Summary(
                    **dict(row._mapping)
                    | {name: int(row._mapping[name] or 0) for name in TOTALS}
                    | {"config": self._configs[row.key], "outside": load(row.outside)}
                )
                for row in rows
            ]

        return self._database.read(work)

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

        def work(connection: Connection) -> ExperimentRecord:
            row = _lock_experiment(connection, key)
            if row.state != to:
                if (row.state, to) not in MOVED:
                    before = " or ".join(describe_state(begin) for begin, end in MOVED if end == to)
                    raise WrongStateError(
                        f"the experiment {row.name!r} is {describe_state(row.state)} and cannot "
                        f"become {describe_state(to)}; only one that is {before or 'new'} can."
                    )
                this = update(experiments).where(experiments.c.key == key)
                connection.execute(this.values(state=to))
                note(connection, now, by, MOVED[row.state, to], row.name, detail)
            return replace(_experiment_of(row), state=to)

        return self._database.write(work)

    def reopen(self, key: int, look: int, now: int, *, by: str, reason: str) -> None:
        """Let a stopped experiment run again, and forget what new units saw outside of its test.

        WrongStateError if it is not stopped, or a variant is rolled out.

        look : at which it has stopped itself; 0 for none
        """

        def work(connection: Connection) -> None:
            row = _lock_experiment(connection, key, "stopped", "reopened")
            if (load(row.outside) or {}).get("roll_out") is not None:
                raise WrongStateError(
                    f"a variant of {row.name!r} is rolled out, so its test cannot go on; create "
                    "another experiment."
                )
            this = update(experiments).where(experiments.c.key == key)
            connection.execute(this.values(state="running", outside=None, reopened=look))
            note(connection, now, by, "experiment.reopened", row.name, {"reason": reason})

        self._database.write(work)

    def delete_draft(self, key: int, now: int, *, by: str = "") -> None:
        """Delete an experiment that was never started; its entries in the audit log stay."""

        def work(connection: Connection) -> None:
            row = _lock_experiment(connection, key, "draft", "deleted")
            connection.execute(delete(notices).where(notices.c.key == key))
            connection.execute(delete(marks).where(refusals_of(key)))
            connection.execute(delete(experiments).where(experiments.c.key == key))
            note(connection, now, by, "experiment.deleted", row.name)

        self._database.write(work)

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

        def work(connection: Connection) -> bool:
            row = _lock_experiment(connection, key)
            if load(row.outside) != before:
                return False
            this = update(experiments).where(experiments.c.key == key)
            connection.execute(this.values(outside=dump(after)))
            note(connection, now, by, action, row.name, detail)
            return True

        return self._database.write(work)

    def note_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Keep the latest events that were refused; snapshots name those that nobody measures."""
        now = self.now()
        self._database.write(lambda c: note_refusals(c, refusals, now))

    def refusals(self, key: int, since: int) -> list[Refusal]:
        """Refused events of an experiment, and events since a time that no experiment measures.

        Of several events of one name with the same reason there is the latest.
        """
        return self._database.read(lambda c: read_refusals(c, key, since))

    # Decisions

    def snapshot(self, key: int, everything: bool = False) -> Snapshot:
        """The experiment with the segments that are open and the last one; or with all of them."""

        def work(t: Transaction) -> Snapshot:
            row = t.connection.execute(BY_KEY, {"key": key}).one()
            statement = ALL_SEGMENTS if everything else OPEN_AND_LAST
            records = list(map(traffic.read_segment, t.connection.execute(statement, {"key": key})))
            sums = _tallies(t, records, everything)
            pairs = tuple((record, sums[record.index]) for record in records)
            experiment, steering = _experiment_of(row), _steering(t, records)
            if not everything:
                return Snapshot(experiment, pairs, series=steering)
            corrected = corrections.find_corrected_segments(t.connection, key)
            unmatched = read_refusals(t.connection, 0, experiment.created)
            names = tuple(event.event for event in unmatched if event.at >= experiment.created)
            return Snapshot(experiment, pairs, corrected, steering, names)

        return self._read(key, work)

    def progress(self, key: int) -> tuple[Progress, ...]:
        """The progress of the open segments whose counter is at its end; cheap.

        They are in the order of their opening. No other segments can be over.
        """
        rows = self._database.read_one(lambda c: c.execute(EXHAUSTED, {"key": key}).all())
        return tuple(
            Progress(index, rounds, int(assigned or 0), int(done or 0), last)
            for index, rounds, assigned, done, last in rows
        )

    def decide(self, key: int, version: int, decision: Decision, now: int) -> bool:
        """Store a decision made on that version; False if something has changed, and then nothing.

        That is: the version is another; a segment to be closed is closed already, or has
        positions that are not assigned, or another tally, or other sums of covariates; `supersede`
        is not the last segment; the index of `opened` is not the next one.
        """
        return self._write(key, lambda t: _decide(t, version, decision, now))

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
        # Readers wait for no writer, so units that are known are answered without a turn.
        stored = self.find_assignments(key, units)
        running = stored.state == "running" and stored.outside is None
        if None not in stored.assigned or not running:
            return stored
        before: Sequence[StoredAssignment | None] | None = stored.assigned

        def work(t: Transaction) -> AssignmentResult:
            nonlocal before
            first, before = before, None  # if others assign meanwhile, they are read once more
            return traffic.assign(t, self._draws, units, values, now, first)

        return self._write(key, work)

    def find_assignments(self, key: int, units: Sequence[str]) -> AssignmentResult:
        """The assignments that units have (none if units are not sticky); only reads."""
        return self._database.read_one(
            lambda c: traffic.find_assigned(self._transaction(c, key), units)
        )

    def experiments_of(
        self, units: Sequence[str], keys: Sequence[int]
    ) -> tuple[frozenset[int], ...]:
        """The keys, among those given, of the experiments that each unit has an assignment in.

        Experiments whose units are not sticky, and those that do not exist, are never among them.
        """
        return self._database.read(lambda c: traffic.find_experiments(c, units, keys))

    def record(self, key: int, events: Sequence[Event], now: int) -> RecordResult:
        """Record rewards and events of targets (units only if they are sticky), each once.

        There is one outcome for each event. WrongStateError if the experiment is archived.
        InvalidInputError, and nothing is recorded, if it has no such metric, or an event has no key
        although there may be several.
        """
        return self._write(key, lambda t: traffic.record(t, events, now))

    # Corrections

    def correct(self, key: int, change: Change, *, now: int, by: str = "") -> CorrectionResult:
        """Make a correction.

        UnknownAssignmentError if there is no such assignment or unit; InvalidInputError if nothing
        would change, or a period lies in the future; WrongStateError if the experiment is
        archived, unless a unit is erased.
        """
        unit = change.unit
        if change.kind == "erase" and unit is not None:
            self._database.write(lambda c: forget_refusals(c, unit))
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

    def audit(
        self, after: int = 0, most: int = 10_000, experiment: str | None = None
    ) -> list[AuditEntry]:
        """The next entries of the audit log after an id, in the order of their ids.

        experiment : only those of the experiment of that name
        """
        return self._database.read_one(
            lambda c: corrections.read_entries(c, after, most, experiment)
        )

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

    # Reading

    def days(self, key: int) -> tuple[DaySums, ...]:
        """Sums by segment and day, in that order, without days on which nothing was assigned."""

        def work(t: Transaction) -> tuple[DaySums, ...]:
            columns = _columns(t)
            rows = t.connection.execute(COUNTS, {"key": key})
            return tuple(
                day_sums(segment, day, [*group], columns[segment])
                for (segment, day), group in groupby(rows, lambda row: (row.segment, row.day))
            )

        return self._read(key, work)

    def series(self, key: int) -> tuple[SeriesSums, ...]:
        """Sums of metrics by segment, day and name, in that order, without those of nothing."""

        def work(t: Transaction) -> tuple[SeriesSums, ...]:
            if not t.metrics:
                return ()
            return _series(t.connection.execute(SERIES, {"key": key}), _columns(t))

        return self._read(key, work)

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

    def arrivals(
        self, key: int, metrics: Sequence[str], since: int, most: int = MOST_ARRIVALS
    ) -> Arrivals:
        """The latest assignments, rewards and events of an experiment.

        metrics : names of those whose events count
        since : a time
        most : of the latest events
        """
        return self._read(key, lambda t: traffic.read_arrivals(t, metrics, since, most))

    def extreme(self, key: int) -> tuple[str, float] | None:
        """The unit with the reward furthest from 0, and this reward; None without rewards."""
        row = self._database.read_one(lambda c: c.execute(EXTREME, {"key": key}).first())
        return None if row is None else (row.unit, row.reward)

    def segments(self, key: int, indices: Iterable[int]) -> dict[int, SegmentRecord]:
        """Segments by their index."""
        return self._read(key, lambda t: traffic.read_segments(t, indices))

    # The storage itself

    def check(self) -> None:
        """Return if the storage takes durable writes, raise StorageError if not."""
        self.heartbeat.check()

    def find_damage(self) -> None:
        """Read a whole SQLite file; while it is damaged, `check` fails."""
        file = self._database.file
        self.heartbeat.damaged = bool(file and file.exists() and damage_of(file, quick=True))

    def prune(self, now: int, archived_before: int | None = None, dry: bool = False) -> PruneResult:
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
            config = load(
                require_experiment(key, connection.execute(CONFIG, {"key": key}).scalar())
            )
            sticky = config.get("sticky") == "unit"
            self._facts[key] = config["seed"], sticky, Metrics.of(config)
        return Transaction(connection, key, self._database.shard, *self._facts[key])


def _lock_experiment(
    connection: Connection, key: int, needed: ExperimentState | None = None, action: str = ""
) -> AnyRow:
    """The row of an experiment, locked; WrongStateError if an action needs another state."""
    row = require_experiment(key, connection.execute(ALONE, {"key": key}).one_or_none())
    if needed is not None and row.state != needed:
        raise WrongStateError(
            f"the experiment {row.name!r} is {describe_state(row.state)}; it can be {action} only "
            f"while it is {describe_state(needed)}."
        )
    return row


def _experiment_of(row: AnyRow) -> ExperimentRecord:
    parsed = {name: load(row._mapping[name]) for name in ("config", "policy_state", "outside")}
    return ExperimentRecord(**dict(row._mapping) | parsed)


def _find_place(connection: Connection, key: int, layer: str, share: float) -> float:
    """The beginning of the first free part of a layer that has room for a share of the traffic."""
    start, names = 0.0, list[str]()
    for name, place, config in connection.execute(LAYER, {"layer": layer, "key": key}):
        if start + share <= place + ROUNDING:
            break
        start = place + load(config)["traffic"]
        names.append(name)
    if start + share <= 1 + ROUNDING:
        return start
    raise InvalidInputError(
        f"the layer {layer!r} has no room for {share:.3g} of the traffic; it is shared with "
        f"{strung(names, 8)}. Ask for less traffic, or archive a test that is over.",
        field="traffic",
    )


def _decide(t: Transaction, version: int, decision: Decision, now: int) -> bool:
    """Store a decision; see `Storage.decide`."""
    row = t.connection.execute(LOCKED, {"key": t.key}).one()
    last = t.connection.execute(LAST, {"key": t.key}).scalar()
    last = -1 if last is None else last
    if row.version != version or decision.supersede not in (None, last):
        return False
    if decision.opened is not None and decision.opened.index != last + 1:
        return False
    closing = {index for index, _ in decision.closed}
    # The last segment is locked even if another is opened, to wait for who moves its counter.
    values = {"key": t.key, "indices": sorted({last, *closing})}
    rows = t.connection.execute(LOCKED_SEGMENTS, values)
    records = {record.index: record for record in map(traffic.read_segment, rows)}
    if len(closing) < len(decision.closed) or not closing <= records.keys():
        return False
    closed = [records[index] for index in closing]
    sums = _tallies(t, closed)
    for index, tally in decision.closed:
        is_open = records[index].closed is None
        if not is_open or sums[index] != tally or tally.total_assigned != records[index].rounds:
            return False
    if not decision.rests_on(_steering(t, closed)):
        return False
    mine = update(segments).where(segments.c.key == t.key)
    for rank, (index, _) in enumerate(decision.closed, row.observed + 1):
        this = mine.where(segments.c.index == index)
        t.connection.execute(this.values(closed=rank, closed_at=now))
    if decision.supersede is not None:
        rounds = decision.cut(records[last]).rounds
        this = mine.where(segments.c.index == last)
        t.connection.execute(this.values(rounds=rounds, superseded=True))
    if decision.opened is not None:
        t.connection.execute(insert(segments), segment_row(t.key, decision.opened))
    changes = {
        "version": version + 1,
        "observed": row.observed + len(decision.closed),
        "policy_state": dump(decision.policy_state),
    }
    t.connection.execute(update(experiments).where(experiments.c.key == t.key).values(changes))
    return True


def segment_row(key: int, record: SegmentRecord) -> dict[str, Any]:
    """The row that `traffic.read_segment` reads."""
    fields = {name: value for name, value in vars(record).items() if name != "segment"}
    stored = record.segment.to_dict()
    for name in ("weights", "reference", "arms"):
        stored[name] = None if stored[name] is None else dump(stored[name])
    early = None if record.early is None else dump(record.early)
    return fields | stored | {"key": key, "early": early}


def _columns(t: Transaction) -> dict[int, Any]:
    """The columns of all segments, by index."""
    records = map(traffic.read_segment, t.connection.execute(ALL_SEGMENTS, {"key": t.key}))
    return {record.index: columns_of(record.segment) for record in records}


def _steering(t: Transaction, records: Sequence[SegmentRecord]) -> tuple[SeriesSums, ...]:
    """Sums of covariates of some segments."""
    if not t.metrics.steering or not records:
        return ()
    columns = {record.index: columns_of(record.segment) for record in records}
    values = {"key": t.key, "indices": sorted(columns), "names": sorted(t.metrics.steering)}
    return _series(t.connection.execute(STEERING, values), columns)


def _series(rows: Iterable[AnyRow], columns: Mapping[int, Any]) -> tuple[SeriesSums, ...]:
    return series_sums(
        (((row.segment, row.arm, row.day, row.series), row) for row in rows), columns
    )


def _tallies(
    t: Transaction, records: Sequence[SegmentRecord], everything: bool = False
) -> dict[int, Tally]:
    """Tallies of segments, summed over days and shards.

    everything : of all segments
    """
    values = {"key": t.key, "indices": [record.index for record in records]}
    counts: dict[int, list[Any]] = {record.index: [] for record in records}
    for row in t.connection.execute(COUNTS if everything else SOME_COUNTS, values):
        if row.segment in counts:  # not so if rows are damaged
            counts[row.segment].append(row)
    return {r.index: sum_tally(counts[r.index], columns_of(r.segment)) for r in records}
