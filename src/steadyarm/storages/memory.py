"""MemoryStorage: experiments in the memory of one process, for tests, notebooks and sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from heapq import heappop, heappush
from itertools import chain, count, groupby, islice
from operator import itemgetter
from threading import RLock
from typing import Any, TypeVar

from steadyarm.errors import UnknownExperimentError
from steadyarm.segments import Draws
from steadyarm.storages.base import Storage
from steadyarm.storages.changes import (
    NO_TRACE,
    AuditEntry,
    Change,
    Corrected,
    Correction,
    Pruned,
    SessionRecord,
    TokenRecord,
    Trace,
    before_and_after,
    check_found,
    check_open,
    known_assignment,
    moved,
    name_taken,
    new_id,
    removable,
    token_removed,
    token_taken,
    unknown_experiment,
)
from steadyarm.storages.memory_webhooks import WebhooksInMemory
from steadyarm.storages.records import (
    Assigned,
    DaySums,
    Decision,
    Event,
    ExperimentRecord,
    ExperimentState,
    Handed,
    Known,
    Lease,
    LogRow,
    Measured,
    Outcome,
    Pages,
    Progress,
    RunningTally,
    SegmentRecord,
    SeriesSums,
    Snapshot,
    Summary,
    Tally,
    Target,
    check_not_archived,
    check_running,
    columns_of,
    is_of,
    json_copy,
    number_of,
    place_of,
    pseudonym,
    rewarded,
    room_ahead,
)
from steadyarm.storages.series import Metrics, RunningSeries, as_measured, series_sums
from steadyarm.storages.webhooks import KEPT

S = TypeVar("S", bound=Storage)


class Tables:
    """All that is kept of one experiment; its storage holds the lock.

    Attributes
    ----------
    tallies : counts of every segment
    series : counts of all metrics
    rows : assignments by number
    units : numbers by unit, if units are sticky
    unclosed : indices of the open segments
    leases : numbers of the unused positions of active leases, by the id of the lease
    issued : every lease there has ever been, by its id
    released : a heap of numbers
    corrections : in the order of entry and number
    corrected : indices of segments whose sums were corrected after they were closed
    """

    def __init__(self, record: ExperimentRecord) -> None:
        self.record = record
        self.sticky = record.config.get("sticky") == "unit"
        self.metrics = Metrics.of(record.config)
        self.series = RunningSeries(self.metrics)
        self.segments: list[SegmentRecord] = []
        self.tallies: list[RunningTally] = []
        self.unclosed: set[int] = set()
        self.rows: dict[int, LogRow] = {}
        self.units: dict[str, int] = {}
        self.leases: dict[int, set[int]] = {}
        self.issued: list[Lease] = []
        self.released: list[int] = []
        self.corrections: list[Correction] = []
        self.corrected: set[int] = set()

    # Segments and assignments

    def open(self, segment: SegmentRecord) -> None:
        """Add a segment, which may have been closed elsewhere."""
        self.segments.append(segment)
        self.tallies.append(RunningTally(columns_of(segment.segment)))
        if segment.closed is None:
            self.unclosed.add(segment.index)

    def may_close(self, index: int, tally: Tally) -> bool:
        """Whether all positions of an open segment are assigned, with that tally."""
        counted = self.tallies[index] if index in self.unclosed else None
        return (
            counted is not None
            and counted.assigned == self.segments[index].rounds
            and counted.tally() == tally
        )

    def steering(self, indices: Iterable[int]) -> tuple[SeriesSums, ...]:
        """Sums of covariates of some segments."""
        if not self.metrics.steering:
            return ()
        columns = {index: columns_of(self.segments[index].segment) for index in indices}
        places = (
            (place, count)
            for place, count in self.series.counts.items()
            if place[0] in columns and place[3] in self.metrics.steering
        )
        return series_sums(places, columns)

    def enter(self, row: LogRow) -> None:
        """Add an assignment, with its reward if it has one."""
        self.rows[row.number] = row
        self.tallies[place_of(row.number)[0]].add(row)
        if self.metrics or row.events:
            self.series.add(row)
        if self.sticky:
            self.units[row.unit] = row.number

    def find(self, target: Target) -> LogRow | None:
        """The assignment of a target."""
        if isinstance(target, tuple):
            row = self.rows.get(target[0])
            return row if row is not None and is_of(row.unit, target[1]) else None
        number = self.units.get(target) if isinstance(target, str) else target
        return None if number is None else self.rows.get(number)

    def rows_from(self, number: int) -> Iterator[LogRow]:
        """Assignments from a number on, in order."""
        index, start = place_of(max(number, 0))
        for segment in self.segments[index:]:
            for position in range(start, segment.handed):
                row = self.rows.get(number_of(segment.index, position))
                if row is not None:
                    yield row
            start = 0

    def summary(self) -> Summary:
        """A short record of the experiment."""
        head, tallies = vars(self.record).copy(), self.tallies
        del head["policy_state"]
        return Summary(
            **head,
            assigned=sum(tally.assigned for tally in tallies),
            rewarded=sum(tally.rewarded for tally in tallies),
            late=sum(tally.late for tally in tallies),
            started=self.segments[0].opened if self.segments else None,
            last=max((tally.last for tally in tallies if tally.last is not None), default=None),
            corrected=self.corrections[-1].entry if self.corrections else 0,
            measured=sum(count.events for count in self.series.counts.values()),
        )

    # Rewards and corrections

    def reward(self, event: Event, window: int | None, grace: int, now: int) -> Outcome:
        """Count a reward, or say why it does not count."""
        row = self.find(event[0])
        if row is None:
            return Outcome("unknown")
        index = place_of(row.number)[0]
        outcome, after = rewarded(row, event, index not in self.unclosed, window, grace, now)
        if after is not None:
            self.rows[row.number] = after
            self.tallies[index].reward(after)
        elif outcome.status in ("late", "closed") and row.excluded is None:
            self.tallies[index].refuse(row)
        return outcome

    def measure_all(
        self,
        given: Iterable[Measured],
        now: int,
        limits: tuple[int | None, int] | None = None,
    ) -> tuple[Outcome, ...]:
        """Count events of metrics; all of them must be good, or none is counted."""
        events = list(given)
        for event in events:
            self.metrics.event_of(event)
        return tuple(self._measure(event, now, limits) for event in events)

    def _measure(self, given: Measured, now: int, limits: tuple[int | None, int] | None) -> Outcome:
        """Count an event of a metric, or say why it does not count."""
        rule = self.metrics.rule(given.metric)
        row = self.find(given.target)
        if row is None:
            return Outcome("unknown")
        index = place_of(row.number)[0]
        closed = index not in self.unclosed
        outcome, after = self.metrics.measured(row, given, closed, now, limits)
        if after is not None:
            self.change(row, after)
        elif outcome.status in ("late", "closed") and row.excluded is None:
            if rule is self.metrics.primary:
                self.tallies[index].refuse(row)
            else:
                self.series.at(row, rule.name).late += 1
        return outcome

    def change(self, before: LogRow, after: LogRow) -> None:
        """Replace an assignment, and count it as it is now."""
        tally = self.tallies[place_of(before.number)[0]]
        tally.reward(before, -1)
        tally.reward(after)
        self.series.change(before, after)
        self.rows[after.number] = after

    def touched(self, change: Change) -> list[LogRow]:
        """The assignments that a change would correct, in order; refused if there are none."""
        if change.target is not None:
            row = known_assignment(self.find(change.target))
            before_and_after(change, row, self.metrics)  # refuses what changes nothing
            return [row]
        rows = [self.rows[number] for number in sorted(self.rows)]
        known = [row for row in rows if row.unit == change.unit]
        if change.kind == "include":
            found = [row for row in rows if row.excluded == change.entry]
        elif change.kind == "erase":
            found = known
        elif change.since is None or change.until is None:
            found = [row for row in known if row.excluded is None]
        else:
            inside = range(change.since, change.until)
            found = [row for row in rows if row.created in inside and row.excluded is None]
        check_found(change, len(found), bool(known))
        return found

    def correct(self, change: Change, rows: Sequence[LogRow], entry: int) -> None:
        """Correct the assignments that `touched` gave."""
        unit = pseudonym()
        for row in rows:
            index = place_of(row.number)[0]
            tally, closed = self.tallies[index], index not in self.unclosed
            made = Correction(entry, row.number, change.kind, None, None, closed)
            if change.target is not None:
                after, made = before_and_after(change, row, self.metrics, entry, closed)
            elif change.kind == "erase":
                self.units.pop(row.unit, None)
                after = replace(row, unit=unit)
                if self.sticky:
                    self.units[unit] = row.number
            elif change.kind == "exclude":
                tally.exclude(row)
                after, made = replace(row, excluded=entry), replace(made, before=row.reward)
            else:
                tally.exclude(row, -1)
                after, made = replace(row, excluded=None), replace(made, after=row.reward)
            self.change(row, after)
            if made.late:
                self.corrected.add(index)
            self.corrections.append(made)

    # Positions

    def take(self, wanted: int) -> list[int]:
        """Numbers of free positions: released ones, then new ones."""
        found = [heappop(self.released) for _ in range(min(wanted, len(self.released)))]
        return found + self._count(wanted - len(found))

    def take_ahead(self, wanted: int) -> list[int]:
        """Numbers of new positions, as far as `room_ahead` allows."""
        left = self.segments[-1].rounds - self.segments[-1].handed if self.segments else 0
        return self._count(min(wanted, room_ahead(left)))

    def _count(self, wanted: int) -> list[int]:
        """Move the counter of the segment opened last."""
        if not self.segments:
            return []
        last = self.segments[-1]
        stop = min(last.handed + wanted, last.rounds)
        self.segments[-1] = replace(last, handed=max(last.handed, stop))
        return [number_of(last.index, p) for p in range(last.handed, stop)]

    def lease(self, numbers: Sequence[int], expires: int) -> tuple[Lease, ...]:
        """Lease positions that were taken."""
        before = len(self.issued)
        for run in _runs(numbers):
            lease = Lease(len(self.issued), *run, expires)
            self.issued.append(lease)
            self.leases[lease.id] = {number_of(run[0], p) for p in range(*run[1:])}
        return tuple(self.issued[before:])

    def held(self, lease: Lease) -> list[int]:
        """Numbers that are left of a lease, of those that a caller claims to hold."""
        left = self.leases.get(lease.id, ())
        claimed = (number_of(lease.segment, p) for p in range(lease.start, lease.stop))
        return [number for number in claimed if number in left]

    def use(self, lease: int, number: int) -> None:
        """Take a position out of its lease, which ends with its last one."""
        self.leases[lease].remove(number)
        if not self.leases[lease]:
            del self.leases[lease]

    def pieces(self, numbers: Iterable[tuple[int, int]]) -> tuple[Lease, ...]:
        """Leased positions, given by lease and number; a lease with gaps comes in pieces."""
        return tuple(
            Lease(lease, *run, self.issued[lease].expires)
            for lease, group in groupby(numbers, itemgetter(0))
            for run in _runs(number for _, number in group)
        )

    def release(self, lease: int) -> int:
        """Release the rest of a lease; the number of its positions."""
        left = self.leases.pop(lease, set())
        for number in left:
            heappush(self.released, number)
        return len(left)

    def reclaim(self, now: int) -> int:
        """Release expired leases; the number of their positions."""
        expired = [lease for lease in self.leases if self.issued[lease].expires <= now]
        return sum(self.release(lease) for lease in expired)


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Consecutive numbers as segment, start and stop."""
    run: tuple[int, int, int] | None = None
    for segment, position in map(place_of, numbers):
        if run is not None and run[0] == segment and run[2] == position:
            run = segment, run[1], position + 1
        else:
            if run is not None:
                yield run
            run = segment, position, position + 1
    if run is not None:
        yield run


def synchronized(storage: type[S]) -> type[S]:
    """Let each method of the contract run alone: other threads wait."""

    def locked(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(self: MemoryStorage, /, *args: Any, **named: Any) -> Any:
            with self._lock:
                return method(self, *args, **named)

        return call

    for name in Storage.__abstractmethods__:
        setattr(storage, name, locked(getattr(storage, name)))
    return storage


@synchronized
class MemoryStorage(WebhooksInMemory):
    """Experiments in dictionaries; any number of threads may use one storage.

    Examples
    --------
    >>> storage = MemoryStorage()
    >>> record = ExperimentRecord(
    ...     name="button", tag="x7", state="draft", config={"seed": 1}, created=0, policy_state={}
    ... )
    >>> storage.create(record).key
    1
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = RLock()
        self._draws = Draws()
        self._tables: dict[int, Tables] = {}
        self._keys: dict[str, int] = {}
        self._unused = count(1)
        self._closed = False
        self._tokens: dict[str, TokenRecord] = {}
        self._sessions: dict[str, SessionRecord] = {}
        self._entries: list[AuditEntry] = []

    # Experiments

    def create(self, record: ExperimentRecord, *, by: str = "") -> ExperimentRecord:
        made = self._add(Tables(_copied(record)))
        self._note(record.created, by, "experiment.created", record.name, {"state": record.state})
        return made

    def find(self, name: str) -> ExperimentRecord:
        if name not in self._keys:
            raise unknown_experiment(name, self._keys)
        return self._tables[self._keys[name]].record

    def summaries(self, only: int | None = None) -> list[Summary]:
        keys = self._tables if only is None else {only} & self._tables.keys()
        return [self._tables[key].summary() for key in keys]

    def move(
        self,
        key: int,
        to: ExperimentState,
        now: int,
        *,
        by: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> ExperimentRecord:
        tables = self._of(key)
        name, state = tables.record.name, tables.record.state
        if to != state:
            self._note(now, by, moved(name, state, to), name, detail)
            tables.record = replace(tables.record, state=to)
        return tables.record

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
        tables = self._of(key)
        if tables.record.outside != before:
            return False
        self._note(now, by, action, tables.record.name, detail)
        tables.record = replace(tables.record, outside=json_copy(after))
        return True

    def restore(
        self, name: str, snapshot: Snapshot, rows: Pages, trace: Trace = NO_TRACE, *, by: str = ""
    ) -> ExperimentRecord:
        self._check_free(name)
        record = snapshot.experiment
        tables = Tables(_copied(replace(record, name=name)))
        for segment, _ in snapshot.segments:
            tables.open(segment)
        # New ids are known before anything is noted: an import that fails must leave nothing.
        first = len(self._entries) + 1
        ids = {entry.id: first + i for i, entry in enumerate(trace.entries)}
        for row in chain.from_iterable(rows):
            if row.excluded is not None:
                row = replace(row, excluded=new_id(ids, row.excluded))
            tables.enter(row)
        assigned = (
            number_of(segment.index, position)
            for segment in tables.segments
            for position in range(segment.handed)
        )
        tables.released = [number for number in assigned if number not in tables.rows]
        details = [trace.detail(entry, ids) for entry in trace.entries]
        tables.corrections = list(trace.renumbered(ids))
        tables.corrected = trace.segments()
        made = self._add(tables)
        for old, detail in zip(trace.entries, details, strict=True):
            self._note(old.created, old.author, old.action, name, detail)
        self._note(self.now(), by, "experiment.imported", name, {"from": record.name})
        return made

    # Decisions

    def snapshot(self, key: int, everything: bool = False) -> Snapshot:
        tables = self._of(key)
        indices = [*range(len(tables.segments))]
        if not everything:
            indices = sorted(tables.unclosed | {*indices[-1:]})
        found = tuple((tables.segments[i], tables.tallies[i].tally()) for i in indices)
        corrected = tuple(sorted(tables.corrected)) * everything
        return Snapshot(tables.record, found, corrected, tables.steering(indices))

    def progress(self, key: int, exhausted: bool = False) -> tuple[Progress, ...]:
        tables, found = self._of(key), []
        for index in sorted(tables.unclosed):
            record, tally = tables.segments[index], tables.tallies[index]
            if not exhausted or record.handed >= record.rounds:
                done = tally.rewarded + tally.excluded
                found.append(Progress(index, record.rounds, tally.assigned, done, tally.last))
        return tuple(found)

    def decide(self, key: int, version: int, decision: Decision, now: int) -> bool:
        tables = self._of(key)
        record, last = tables.record, len(tables.segments) - 1
        closing = [index for index, _ in decision.closed]
        if (
            record.version != version
            or decision.supersede not in (None, last)
            or (decision.opened is not None and decision.opened.index != last + 1)
            or len(set(closing)) < len(closing)
            or not all(tables.may_close(index, tally) for index, tally in decision.closed)
            or not decision.rests_on(tables.steering(closing))
        ):
            return False
        state = json_copy(decision.policy_state)
        if decision.supersede is not None:
            tables.segments[last] = decision.cut(tables.segments[last])
        for rank, index in enumerate(closing, record.observed + 1):
            tables.segments[index] = replace(tables.segments[index], closed=rank, closed_at=now)
            tables.unclosed.discard(index)
        if decision.opened is not None:
            tables.open(decision.opened)
        observed = record.observed + len(closing)
        tables.record = replace(record, version=version + 1, policy_state=state, observed=observed)
        return True

    # Traffic

    def assign(
        self,
        key: int,
        units: Sequence[str],
        held: Sequence[Lease] = (),
        ahead: int = 0,
        *,
        expires: int,
        now: int,
    ) -> Handed:
        tables = self._of(key)
        fresh: Sequence[str] = units
        if tables.sticky:
            fresh = [unit for unit in dict.fromkeys(units) if unit not in tables.units]
        outside = tables.record.outside
        if fresh:
            check_running(tables.record.state, outside)
        # The lease of each position that the caller holds; it may name a lease twice.
        mine = {number: lease.id for lease in held for number in tables.held(lease)}
        numbers, left = list(mine)[: len(fresh)], list(mine)[len(fresh) :]
        given = self._enter(tables, numbers, fresh, now)
        leases = tables.pieces((mine[number], number) for number in left)
        for number in numbers:
            tables.use(mine[number], number)
        if len(fresh) > len(given):
            tables.reclaim(now)
            rest = fresh[len(given) :]
            given += self._enter(tables, tables.take(len(rest)), rest, now)
            leases += tables.lease(tables.take_ahead(ahead), expires)
        if not tables.sticky:
            return Handed((*given, *[None] * (len(fresh) - len(given))), leases)
        new = {each.unit: each for each in given}
        found = tuple(new.pop(unit, None) or _known(tables, unit) for unit in units)
        return Handed(found, leases, outside)

    def known(self, key: int, units: Sequence[str]) -> Known:
        tables = self._of(key)
        found = tuple(_known(tables, unit) for unit in units)
        return Known(found, tables.record.state, tables.record.outside)

    def experiments_of(
        self, units: Sequence[str], keys: Sequence[int]
    ) -> tuple[frozenset[int], ...]:
        tables = {key: self._tables[key] for key in keys if key in self._tables}
        return tuple(
            frozenset(key for key in tables if _known(tables[key], unit) is not None)
            for unit in units
        )

    def lease(self, key: int, wanted: int, *, expires: int, now: int) -> tuple[Lease, ...]:
        tables = self._of(key)
        check_running(tables.record.state, tables.record.outside)
        tables.reclaim(now)
        return tables.lease(tables.take(wanted), expires)

    def report(
        self, key: int, lease: int, used: Sequence[tuple[int, str, int]], now: int
    ) -> tuple[Assigned | None, ...]:
        tables = self._of(key)
        check_not_archived(tables.record.state)
        issued = 0 <= lease < len(tables.issued)
        found: list[Assigned | None] = []
        for position, unit, at in used:
            number = number_of(tables.issued[lease].segment, position) if issued else -1
            known = _known(tables, unit)  # nothing if units are not sticky
            row = tables.rows.get(number)
            if row is not None and not tables.sticky and row.unit == unit:
                known = row.assigned()
            elif known is None and number in tables.leases.get(lease, ()):
                (known,) = self._enter(tables, [number], [unit], at)
                tables.use(lease, number)
            found.append(known)
        return tuple(found)

    def release(self, key: int, leases: Iterable[int]) -> int:
        tables = self._of(key)
        return sum(tables.release(lease) for lease in leases)

    def reward(
        self, key: int, rewards: Sequence[Event], window: int | None, now: int, grace: int = 0
    ) -> tuple[Outcome, ...]:
        tables = self._of(key)
        check_not_archived(tables.record.state)
        if tables.metrics.alone:
            return tuple(tables.reward(event, window, grace, now) for event in rewards)
        return tables.measure_all(map(as_measured, rewards), now, (window, grace))

    def measure(self, key: int, events: Sequence[Measured], now: int) -> tuple[Outcome, ...]:
        tables = self._of(key)
        check_not_archived(tables.record.state)
        return tables.measure_all(events, now)

    # Corrections

    def correct(self, key: int, change: Change, *, now: int, by: str = "") -> Corrected:
        tables = self._of(key)
        check_open(change, tables.record.name, tables.record.state, now)
        rows = tables.touched(change)
        detail = change.detail(len(rows))
        entry = self._note(now, by, change.action, tables.record.name, detail)
        tables.correct(change, rows, entry)
        return Corrected(entry, len(rows))

    def corrections(
        self, key: int, after: tuple[int, int] = (0, -1), most: int = 10_000
    ) -> list[Correction]:
        later = (c for c in self._of(key).corrections if (c.entry, c.number) > after)
        return list(islice(later, most))

    # Reading

    def days(self, key: int) -> tuple[DaySums, ...]:
        tallies = enumerate(self._of(key).tallies)
        return tuple(chain.from_iterable(tally.day_sums(i) for i, tally in tallies))

    def series(self, key: int) -> tuple[SeriesSums, ...]:
        tables = self._of(key)
        columns = {record.index: columns_of(record.segment) for record in tables.segments}
        return tables.series.sums(columns)

    def log(self, key: int, after: int = -1, most: int = 10_000) -> list[LogRow]:
        return list(islice(self._of(key).rows_from(after + 1), most))

    def extreme(self, key: int) -> tuple[str, float] | None:
        rows = self._of(key).rows_from(0)
        found = [(r.unit, r.reward) for r in rows if r.reward is not None and r.excluded is None]
        return max(found, key=lambda one: abs(one[1]), default=None)

    def segments(self, key: int, indices: Iterable[int]) -> dict[int, SegmentRecord]:
        segments = self._of(key).segments
        return {index: segments[index] for index in indices if index in range(len(segments))}

    def find_assignments(self, key: int, targets: Sequence[Target]) -> list[LogRow | None]:
        return [self._of(key).find(target) for target in targets]

    def leases(self, key: int) -> tuple[Lease, ...]:
        tables = self._of(key)
        return tables.pieces(
            (lease, number) for lease, left in tables.leases.items() for number in sorted(left)
        )

    # Tokens, sessions and the audit log

    def closed(self) -> bool:
        return self._closed

    def add_token(self, token: TokenRecord, *, by: str = "") -> None:
        if token.name in self._tokens:
            raise token_taken(token.name)
        self._tokens[token.name] = token
        self._closed = True
        self._note(token.created, by, "token.created", detail=token.detail)

    def tokens(self) -> list[TokenRecord]:
        return list(self._tokens.values())

    def remove_token(
        self, name: str, *, now: int, by: str = "", lock_out: bool = False
    ) -> TokenRecord:
        token = removable(name, self._tokens.values(), lock_out)
        del self._tokens[name]
        self._sessions = {id_: s for id_, s in self._sessions.items() if s.token != token.hash}
        self._note(now, by, "token.removed", detail=token.detail)
        return token

    def add_session(self, session: SessionRecord) -> None:
        if all(token.hash != session.token for token in self._tokens.values()):
            raise token_removed()
        kept = {id_: s for id_, s in self._sessions.items() if s.expires > session.created}
        self._sessions = kept | {session.id: session}

    def find_session(self, id: str, now: int) -> SessionRecord | None:
        session = self._sessions.get(id)
        return session if session is not None and session.expires > now else None

    def remove_session(self, id: str) -> None:
        self._sessions.pop(id, None)

    def audit(
        self, after: int = 0, most: int = 10_000, experiment: str | None = None
    ) -> list[AuditEntry]:
        later = islice(self._entries, max(after, 0), None)
        return list(islice((e for e in later if experiment in (None, e.experiment)), most))

    # The storage itself

    def now(self) -> int:
        """The clock of this process."""
        return time.time_ns() // 1000

    def check(self) -> None:
        """Do nothing: memory always takes writes."""

    def prune(self, now: int, archived_before: int | None = None, dry: bool = False) -> Pruned:
        archived = {k: t for k, t in self._tables.items() if t.record.state == "archived"}
        old = {
            key: tables.record.name
            for key, tables in archived.items()
            if archived_before is not None
            and max(tables.record.created, tables.summary().last or 0) < archived_before
        }
        if dry:
            return Pruned(0, 0, 0, tuple(old.values()))
        positions = sum(tables.reclaim(now) for tables in self._tables.values())
        rows = sum(len(tables.leases) for tables in archived.values())
        for tables in archived.values():
            tables.leases.clear()
        for key, name in old.items():
            del self._tables[key], self._keys[name]
            self._notices.pop(key, None)
        told = self._forget_deliveries(now - KEPT)
        return Pruned(positions, rows, 0, tuple(old.values()), told)

    def close(self) -> None:
        """Do nothing: the experiments stay in memory."""

    def _of(self, key: int) -> Tables:
        if key not in self._tables:
            raise UnknownExperimentError(f"there is no experiment with the key {key!r}.")
        return self._tables[key]

    def _check_free(self, name: str) -> None:
        if name in self._keys:
            raise name_taken(name)

    def _add(self, tables: Tables) -> ExperimentRecord:
        name = tables.record.name
        self._check_free(name)
        key = next(self._unused)
        tables.record = replace(tables.record, key=key)
        self._tables[key], self._keys[name] = tables, key
        return tables.record

    def _enter(
        self, tables: Tables, numbers: Sequence[int], units: Sequence[str], now: int
    ) -> list[Assigned]:
        """Assign positions to units, as long as there are both."""
        key, seed = tables.record.key, tables.record.config["seed"]
        numbers = numbers[: len(units)]
        places = map(place_of, numbers)
        drawn = self._draws.at(key, seed, places, lambda index: tables.segments[index].segment)
        found = []
        for number, unit, (arm, probability) in zip(numbers, units, drawn, strict=False):
            tables.enter(LogRow(number, unit, arm, probability, now, None, None))
            found.append(Assigned(number, unit, arm, probability, now))
        return found

    def _note(
        self,
        now: int,
        author: str,
        action: str,
        experiment: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> int:
        """Append an entry to the audit log; its id."""
        number = len(self._entries) + 1
        entry = AuditEntry(number, now, author, action, experiment, json_copy(detail or {}))
        self._entries.append(entry)
        return number


def _known(tables: Tables, unit: str) -> Assigned | None:
    row = tables.find(unit)
    return None if row is None else row.assigned()


def _copied(record: ExperimentRecord) -> ExperimentRecord:
    outside = None if record.outside is None else json_copy(record.outside)
    return replace(
        record,
        config=json_copy(record.config),
        policy_state=json_copy(record.policy_state),
        outside=outside,
    )
