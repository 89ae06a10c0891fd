"""Rewards and events of metrics, and the exact sums of each segment, arm and day.

Every process adds to the rows of its own shard. The sums also say how far segments have come.

A reward has one row, which the first transaction inserts. Events of one assignment add up, so
whoever records one locks the assignment, and reads what others have recorded before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.dialects.postgresql import Insert

from steadyarm.storages.records import (
    ArmDay,
    Event,
    LogRow,
    Measured,
    Outcome,
    Progress,
    check_not_archived,
    day_of,
    place_of,
    rewarded,
    waited_between,
)
from steadyarm.storages.series import RunningSeries, SeriesPlace, as_measured
from steadyarm.storages.sql.base import (
    BY_NUMBER,
    EVENTS,
    SERIES,
    STATE,
    TALLIES,
    AnyPlace,
    Call,
    Place,
    SQLBase,
    Sums,
    counts_at,
    event_row,
    finding,
    found_in,
    state_in,
    with_events,
    writes,
)
from steadyarm.storages.sql.engine import CollisionError, Rows, Statement, at_the_end, together
from steadyarm.storages.sql.schema import (
    Among,
    assignments,
    events,
    inserting,
    rewards,
    segments,
    tallies,
)

# Against closing and corrections, not against each other.
OPEN = Statement(
    select(segments.c.index)
    .where(segments.c.key == bindparam("key"), segments.c.closed.is_(None))
    .order_by(segments.c.index)
    .with_for_update(read=True, key_share=True)
)
_tallied = (tallies.c.key == segments.c.key) & (tallies.c.segment == segments.c.index)
_progress = (
    select(
        segments.c.index,
        segments.c.rounds,
        func.sum(tallies.c.assigned),
        func.sum(tallies.c.rewarded + tallies.c.excluded),
        func.max(tallies.c.last),
    )
    .select_from(segments.outerjoin(tallies, _tallied))
    .where(segments.c.key == bindparam("key"), segments.c.closed.is_(None))
    .group_by(segments.c.index, segments.c.rounds)
    .order_by(segments.c.index)
)
PROGRESS = Statement(_progress)
EXHAUSTED = Statement(_progress.where(segments.c.handed >= segments.c.rounds))
INSERT = inserting(rewards, Insert.on_conflict_do_nothing)
INSERT_EVENTS = inserting(events, Insert.on_conflict_do_nothing)
# Only of rewards that are made of events: who replaces one has locked its assignment.
REPLACE = inserting(
    rewards,
    lambda insert: insert.on_conflict_do_update(
        index_elements=rewards.primary_key,
        set_={name: insert.excluded[name] for name in ("reward", "created", "at")},
    ),
)
# Against others who record events of the same assignments, and against their exclusion.
LOCK = Statement(
    select(assignments.c.number)
    .where(assignments.c.key == bindparam("key"), Among(assignments.c.number, "values"))
    .order_by(assignments.c.number)
    .with_for_update(key_share=True)
)


def reading_sums(
    key: int, shard: int, places: Iterable[Place | SeriesPlace], sums: Sums = TALLIES
) -> Call:
    """The statement that reads and locks the sums of our shard."""
    indices, arms, days, *_ = (sorted(set(values)) for values in zip(*places, strict=True))
    return sums.read, {"key": key, "shard": shard, "segments": indices, "arms": arms, "days": days}


def add(
    connection: Connection,
    key: int,
    shard: int,
    counts: Mapping[AnyPlace, ArmDay],
    found: Rows | None = None,
    sums: Sums = TALLIES,
) -> None:
    """Add rewards, waiting times, late rewards and exclusions to the sums of our shard.

    found : by `reading_sums`, if that was executed already
    sums : the table to which is added
    """
    if not counts:
        return
    reading = reading_sums(key, shard, counts, sums)
    there = _exact(together(connection, reading)[0] if found is None else found)
    missing = [(place, ArmDay(0)) for place in counts if place not in there]
    if missing:  # then there was nothing to lock
        _, found = together(connection, (sums.count, counts_at(key, shard, missing)), reading)
        there = _exact(found)
    for place, count in counts.items():
        count.sums += there[place][0]
        count.squares += there[place][1]
    at_the_end(connection, (sums.count_exactly, counts_at(key, shard, counts.items())))


def _exact(found: Rows) -> dict[tuple[Any, ...], tuple[Fraction, Fraction]]:
    return {tuple(place): (_fraction(sums), _fraction(squares)) for *place, sums, squares in found}


def _fraction(text: str) -> Fraction:
    """What `str` has made of a fraction; faster than its constructor."""
    return Fraction(*map(int, text.split("/")))


def reward_row(key: int, row: LogRow) -> dict[str, Any]:
    """A row of `rewards`."""
    on_time = row.received is None
    return {
        "key": key,
        "number": row.number,
        "reward": row.reward,
        "created": row.rewarded if on_time else row.received,
        "at": None if on_time else row.rewarded,
    }


class Rewards(SQLBase):
    """The part of the storage that takes rewards."""

    def progress(self, key: int, exhausted: bool = False) -> tuple[Progress, ...]:
        """Read with one statement, which needs no transaction."""
        self._known_facts(key)  # there is such an experiment
        statement = EXHAUSTED if exhausted else PROGRESS
        rows = self._database.read_one(lambda c: statement(c, {"key": key}))
        return tuple(
            Progress(index, rounds, int(assigned or 0), int(done or 0), last)
            for index, rounds, assigned, done, last in rows
        )

    @writes
    def reward(
        self,
        connection: Connection,
        key: int,
        rewards: Sequence[Event],
        window: int | None,
        now: int,
        grace: int = 0,
    ) -> tuple[Outcome, ...]:
        facts = self._facts(connection, key)
        sticky = facts.sticky
        if not facts.metrics.alone:
            events = [as_measured(event) for event in rewards]
            return self._measure(connection, key, events, now, (window, grace))
        targets = [event[0] for event in rewards]
        # Segments are locked first, so that what is read of their assignments stays true.
        state, opened, *found = together(
            connection,
            (STATE, {"key": key}),
            (OPEN, {"key": key}),
            *finding(key, sticky, targets),
        )
        check_not_archived(state_in(key, state))
        still_open = {index for (index,) in opened}
        outcomes: list[Outcome] = []
        new: dict[int, LogRow] = {}
        values: defaultdict[Place, list[float]] = defaultdict(list)
        counts: defaultdict[Place, ArmDay] = defaultdict(lambda: ArmDay(0))
        for row, event in zip(found_in(found, targets, sticky), rewards, strict=True):
            if row is None:
                outcomes.append(Outcome("unknown"))
                continue
            row = new.get(row.number, row)
            index = place_of(row.number)[0]
            outcome, after = rewarded(row, event, index not in still_open, window, grace, now)
            outcomes.append(outcome)
            if after is not None:
                new[row.number] = after
            if row.excluded is None and outcome.status in ("stored", "late", "closed"):
                place = index, row.arm, day_of(row.created)
                if after is None:
                    counts[place].late += 1
                else:
                    values[place].append(float(event[1]))
                    counts[place].waited += waited_between(row.created, after.rewarded or now)
        for place, given in values.items():
            counts[place].reward_all(given)
        rows = [reward_row(key, row) for _, row in sorted(new.items())]
        shard = self._database.shard
        calls: list[Call] = [(INSERT, rows)] if rows else []
        if counts:
            calls.append(reading_sums(key, shard, counts))
        results = together(connection, *calls)
        if rows and results[0].written < len(rows):
            raise CollisionError  # by now they are found
        add(connection, key, shard, counts, results[-1] if counts else None)
        return tuple(outcomes)

    @writes
    def measure(
        self, connection: Connection, key: int, events: Sequence[Measured], now: int
    ) -> tuple[Outcome, ...]:
        return self._measure(connection, key, events, now)

    def _measure(
        self,
        connection: Connection,
        key: int,
        given: Sequence[Measured],
        now: int,
        limits: tuple[int | None, int] | None = None,
    ) -> tuple[Outcome, ...]:
        """Record events; the arguments are those of `Metrics.measured`."""
        facts = self._facts(connection, key)
        sticky, metrics = facts.sticky, facts.metrics
        for event in given:
            metrics.event_of(event)  # refuses what is no event
        targets = [event.target for event in given]
        # Segments are locked first, as for rewards.
        state, opened, *found = together(
            connection, (STATE, {"key": key}), (OPEN, {"key": key}), *finding(key, sticky, targets)
        )
        check_not_archived(state_in(key, state))
        still_open = {index for (index,) in opened}
        known = found_in(found, targets, sticky)
        before = locked_rows(connection, key, {row.number for row in known if row is not None})
        after = dict(before)
        outcomes: list[Outcome] = []
        counts: defaultdict[Place, ArmDay] = defaultdict(lambda: ArmDay(0))
        series = RunningSeries(metrics)
        for there, event in zip(known, given, strict=True):
            if there is None:
                outcomes.append(Outcome("unknown"))
                continue
            row, rule = after[there.number], metrics.rule(event.metric)
            index = place_of(row.number)[0]
            outcome, new = metrics.measured(row, event, index not in still_open, now, limits)
            outcomes.append(outcome)
            if new is not None:
                after[row.number] = new
            elif outcome.status in ("late", "closed") and row.excluded is None:
                if rule is metrics.primary:
                    counts[index, row.arm, day_of(row.created)].late += 1
                else:
                    series.at(row, rule.name).late += 1
        changed = [(before[number], row) for number, row in after.items() if row != before[number]]
        new_rewards = [
            reward_row(key, row)
            for old, row in changed
            if reward_row(key, old) != reward_row(key, row)
        ]
        new_events = [
            event_row(key, row.number, event)
            for old, row in changed
            for event in row.events
            if event not in old.events
        ]
        for old, row in changed:
            count = counts[place_of(row.number)[0], row.arm, day_of(row.created)]
            count.reward_of(old, -1)
            count.reward_of(row)
            series.change(old, row)
        calls: list[Call] = [(INSERT_EVENTS, new_events)] if new_events else []
        if new_rewards:
            calls.append((REPLACE if metrics.by_event else INSERT, new_rewards))
        results = together(connection, *calls)
        for result, (_, rows) in zip(results, calls, strict=True):
            if result.written < len(rows):
                raise CollisionError  # by now they are found
        shard = self._database.shard
        add(connection, key, shard, _nonzero(counts))
        add(connection, key, shard, series.changed(), sums=SERIES)
        return tuple(outcomes)


def _nonzero(counts: Mapping[Place, ArmDay]) -> dict[Place, ArmDay]:
    return {place: count for place, count in counts.items() if count != ArmDay(0)}


def locked_rows(connection: Connection, key: int, numbers: Iterable[int]) -> dict[int, LogRow]:
    """Assignments with their events, locked, by number."""
    values = {"key": key, "values": sorted(numbers)}
    if not values["values"]:
        return {}
    _, found, events_found = together(
        connection, (LOCK, values), (BY_NUMBER, values), (EVENTS, values)
    )
    return {row.number: row for row in with_events((LogRow(*row) for row in found), events_found)}
