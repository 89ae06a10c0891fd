"""The books of one experiment in memory; whoever uses them takes care of locks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import groupby
from operator import itemgetter

from steadyarm.errors import WrongStateError
from steadyarm.storages.changes import Change, Correction, before_and_after, check_found
from steadyarm.storages.counting import RunningDays, RunningTally, columns_of, superseded
from steadyarm.storages.records import (
    Assigned,
    Decision,
    Event,
    ExperimentRecord,
    Lease,
    LogRow,
    Outcome,
    Progress,
    SegmentRecord,
    Summary,
    Tally,
    Target,
    happened,
    is_of,
    number_of,
    place_of,
    pseudonym,
    room_ahead,
)

__all__ = ["Books"]


class Books:
    """All that is kept of one experiment.

    Attributes
    ----------
    sums, days : of every segment
    rows : assignments by number
    units : numbers by unit, if they stick
    unclosed : indices of the segments that are open
    leases : those that are out, without what was used at their ends
    issued : the segment of every lease there ever was
    released : a heap of numbers
    corrections : in the order of entry and number
    corrected : indices of segments whose sums were corrected after they were closed
    """

    def __init__(self, record: ExperimentRecord) -> None:
        self.record = record
        self.sticky = record.config.get("sticky") == "unit"
        self.segments: list[SegmentRecord] = []
        self.sums: list[RunningTally] = []
        self.days: list[RunningDays] = []
        self.unclosed: set[int] = set()
        self.rows: dict[int, LogRow] = {}
        self.units: dict[str, int] = {}
        self.leases: dict[int, Lease] = {}
        self.issued: list[int] = []
        self.released: list[int] = []
        self.corrections: list[Correction] = []
        self.corrected: set[int] = set()

    def check_running(self) -> None:
        """Refuse what only a running experiment does."""
        if self.record.state != "running":
            raise WrongStateError(
                f"the experiment {self.record.name!r} is {self.record.state}; only a running one "
                "gives new assignments."
            )

    def open(self, segment: SegmentRecord) -> None:
        """Add a segment; also one that was closed elsewhere."""
        self.segments.append(segment)
        columns = columns_of(segment.segment)
        self.sums.append(RunningTally(columns))
        self.days.append(RunningDays(columns))
        if segment.closed is None:
            self.unclosed.add(segment.index)

    def current(self) -> set[int]:
        """Indices of the segments that are open, and of the last one."""
        return self.unclosed | {len(self.segments) - 1} if self.segments else set()

    def progress(self, index: int) -> Progress:
        """How far a segment is."""
        sums, rounds = self.sums[index], self.segments[index].rounds
        done = sums.told + sums.left_out
        return Progress(index, rounds, sums.handed_out, done, sums.last)

    def summary(self) -> Summary:
        """The experiment in short."""
        record, sums = self.record, self.sums
        return Summary(
            *(record.key, record.name, record.tag, record.state, record.config),
            *(record.created, record.version, record.observed),
            assigned=sum(tally.handed_out for tally in sums),
            rewarded=sum(tally.told for tally in sums),
            late=sum(days.refused() for days in self.days),
            started=self.segments[0].opened if self.segments else None,
            last=max((tally.last for tally in sums if tally.last is not None), default=None),
            corrected=self.corrections[-1].entry if self.corrections else 0,
        )

    def decide(self, version: int, decision: Decision, now: int) -> bool:
        """Store a decision, or nothing if what it rests on has changed."""
        record, last = self.record, len(self.segments) - 1
        closing = [index for index, _ in decision.closed]
        if (
            record.version != version
            or decision.supersede not in (None, last)
            or (decision.opened is not None and decision.opened.index != last + 1)
            or len(set(closing)) < len(closing)
            or not all(self._may_close(index, tally) for index, tally in decision.closed)
        ):
            return False
        if decision.supersede is not None:
            self.segments[last] = superseded(decision, self.segments[last])
        for place, index in enumerate(closing, record.observed + 1):
            self.segments[index] = replace(self.segments[index], closed=place, closed_at=now)
            self.unclosed.discard(index)
        if decision.opened is not None:
            self.open(decision.opened)
        self.record = replace(
            record,
            version=version + 1,
            policy_state=decision.policy_state,
            observed=record.observed + len(closing),
        )
        return True

    def _may_close(self, index: int, tally: Tally) -> bool:
        if index not in self.unclosed:
            return False
        sums = self.sums[index]
        return sums.handed_out == self.segments[index].rounds and sums.tally() == tally

    def enter(self, row: LogRow) -> None:
        """Add an assignment, with its reward if it has one."""
        self.rows[row.number] = row
        segment = place_of(row.number)[0]
        self.sums[segment].add(row)
        self.days[segment].add(row)
        if self.sticky:
            self.units[row.unit] = row.number

    def find(self, target: Target) -> LogRow | None:
        """The assignment of a target."""
        if isinstance(target, tuple):
            row = self.rows.get(target[0])
            return row if row is not None and is_of(row.unit, target[1]) else None
        number = self.units.get(target) if isinstance(target, str) else target
        return None if number is None else self.rows.get(number)

    def assigned(self, target: Target) -> Assigned | None:
        """The assignment as one that was there already."""
        row = self.find(target)
        return None if row is None else row.assigned()

    def rows_from(self, number: int) -> Iterator[LogRow]:
        """Assignments from a number on, in order."""
        index, start = place_of(max(number, 0))
        for segment in self.segments[index:]:
            for position in range(start, segment.handed):
                row = self.rows.get(number_of(segment.index, position))
                if row is not None:
                    yield row
            start = 0

    def reward(self, event: Event, window: int | None, grace: int, now: int) -> Outcome:
        """Count a reward, or say why not."""
        target, value = event[0], event[1]
        row = self.find(target)
        if row is None:
            return Outcome("unknown")
        number, segment = row.number, place_of(row.number)[0]
        if row.reward is not None:
            return Outcome("repeated" if row.reward == value else "conflict", number, row.reward)
        closed, at = segment not in self.unclosed, happened(event, row.created, window, grace, now)
        if at == "early":
            return Outcome(at, number)
        if closed or at == "late":
            if row.excluded is None:
                self.days[segment].refuse(row.arm, row.created)
            return Outcome("closed" if closed else "late", number)
        received = None if at == now else now
        self.rows[number] = replace(row, reward=value, rewarded=at, received=received)
        self._tell(self.rows[number])
        return Outcome("stored", number)

    def _tell(self, row: LogRow, times: int = 1) -> None:
        """Count the reward of an assignment, if it has one and counts."""
        if row.reward is not None and row.rewarded is not None and row.excluded is None:
            segment = place_of(row.number)[0]
            self.sums[segment].tell(row.arm, row.reward, times)
            self.days[segment].tell(row.arm, row.created, row.reward, row.rewarded, times)

    def touched(self, change: Change) -> list[LogRow]:
        """The assignments that a change would correct, in order; refused if there are none."""
        if change.target is not None:
            return [before_and_after(change, self.find(change.target))[0]]
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
        """Correct assignments that `touched` gave."""
        unit = pseudonym()
        for row in rows:
            index, after = place_of(row.number)[0], row.reward
            closed = index not in self.unclosed
            before = row.reward
            self._tell(row, -1)
            if change.kind == "void":
                after, row = None, replace(row, reward=None, rewarded=None, received=None)
            elif change.kind == "correct":
                after, row = change.reward, replace(row, reward=change.reward)
            elif change.kind == "erase":
                before, after = None, None
                self.units.pop(row.unit, None)
                row = replace(row, unit=unit)
                if self.sticky:
                    self.units[unit] = row.number
            else:
                out = change.kind == "exclude"
                self.sums[index].exclude(row.arm, 1 if out else -1)
                self.days[index].exclude(row.arm, row.created, 1 if out else -1)
                row = replace(row, excluded=entry if out else None)
                before, after = (before, None) if out else (None, after)
            self._tell(row)
            self.rows[row.number] = row
            if closed and change.kind != "erase":
                self.corrected.add(index)
            self.corrections.append(
                Correction(entry, row.number, change.kind, before, after, closed)
            )

    def take(self, wanted: int) -> list[int]:
        """Numbers of places that are nobody's: released ones, then new ones."""
        found = [heappop(self.released) for _ in range(min(wanted, len(self.released)))]
        return found + self._count(wanted - len(found))

    def take_ahead(self, wanted: int) -> list[int]:
        """Numbers of new places, as far as `room_ahead` allows."""
        if not self.segments:
            return []
        last = self.segments[-1]
        return self._count(min(wanted, room_ahead(last.rounds - last.handed)))

    def _count(self, wanted: int) -> list[int]:
        """Move the counter of the segment opened last."""
        if not self.segments:
            return []
        last = self.segments[-1]
        stop = min(last.handed + wanted, last.rounds)
        self.segments[-1] = replace(last, handed=max(last.handed, stop))
        return [number_of(last.index, p) for p in range(last.handed, stop)]

    def lease(self, numbers: Sequence[int], expires: int) -> tuple[Lease, ...]:
        """Lease places that were taken."""
        leases = []
        for segment, start, stop in _runs(numbers):
            leases.append(Lease(len(self.issued), segment, start, stop, expires))
            self.issued.append(segment)
        self.leases.update((lease.id, lease) for lease in leases)
        return tuple(leases)

    def has(self, lease: int, position: int) -> bool:
        """Whether a position is still to be used by a lease."""
        out = self.leases.get(lease)
        if out is None or not out.start <= position < out.stop:
            return False
        return number_of(out.segment, position) not in self.rows

    def left(self, lease: Lease) -> list[int]:
        """Numbers of what was not used of a lease."""
        numbers = (number_of(lease.segment, p) for p in range(lease.start, lease.stop))
        return [number for number in numbers if number not in self.rows]

    def held(self, lease: Lease) -> list[int]:
        """Numbers of what is left of a lease that somebody says to hold."""
        out = self.leases.get(lease.id)
        if out is None or out.segment != lease.segment:
            return []
        start, stop = max(lease.start, out.start), min(lease.stop, out.stop)
        return self.left(replace(out, start=start, stop=stop))

    def pieces(self, numbers: Iterable[tuple[int, int]]) -> tuple[Lease, ...]:
        """Leased places, given by lease and number; a lease has pieces where others were used."""
        return tuple(
            Lease(lease, *run, self.leases[lease].expires)
            for lease, group in groupby(numbers, itemgetter(0))
            for run in _runs(number for _, number in group)
        )

    def trim(self, lease: int) -> None:
        """Forget what was used at the ends of a lease, or the lease if it was used up."""
        if lease in self.leases:
            left = self.left(self.leases[lease])
            if left:
                start, stop = place_of(left[0])[1], place_of(left[-1])[1] + 1
                self.leases[lease] = replace(self.leases[lease], start=start, stop=stop)
            else:
                del self.leases[lease]

    def release(self, lease: int) -> int:
        """Take back what is left of a lease; how many places that is."""
        out = self.leases.pop(lease, None)
        left = [] if out is None else self.left(out)
        for number in left:
            heappush(self.released, number)
        return len(left)

    def release_unused(self) -> None:
        """Release all places below the counters that no assignment uses."""
        for segment in self.segments:
            for position in range(segment.handed):
                if number_of(segment.index, position) not in self.rows:
                    heappush(self.released, number_of(segment.index, position))

    def reclaim(self, now: int) -> int:
        """Take back leases that have expired; how many places that is."""
        expired = [lease.id for lease in self.leases.values() if lease.expires <= now]
        return sum(self.release(lease) for lease in expired)

    def reported(self, lease: int, position: int, unit: str) -> Assigned | None:
        """The assignment that counts, if it is known already."""
        if self.sticky or not 0 <= lease < len(self.issued):
            return self.assigned(unit)
        row = self.rows.get(number_of(self.issued[lease], position))
        return self.assigned(row.number) if row is not None and row.unit == unit else None


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
