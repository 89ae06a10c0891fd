"""Rewards, and the exact sums of each segment, arm and day.

Every process adds to the rows of its own shard. The sums also say how far segments have come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from sqlalchemy import Connection, bindparam, func, select
from sqlalchemy.dialects.postgresql import Insert

from steadyarm.storages.records import (
    ArmDay,
    Event,
    LogRow,
    Outcome,
    Progress,
    check_not_archived,
    day_of,
    place_of,
    rewarded,
    waited_between,
)
from steadyarm.storages.sql.base import (
    COUNT,
    COUNT_EXACTLY,
    STATE,
    Call,
    Place,
    SQLBase,
    counts_at,
    finding,
    found_in,
    state_in,
    writes,
)
from steadyarm.storages.sql.engine import CollisionError, Rows, Statement, at_the_end, together
from steadyarm.storages.sql.schema import Among, inserting, rewards, segments, tallies

SUMS = Statement(
    select(tallies.c.segment, tallies.c.arm, tallies.c.day, tallies.c.sums, tallies.c.squares)
    .where(
        tallies.c.key == bindparam("key"),
        Among(tallies.c.segment, "segments"),
        Among(tallies.c.arm, "arms"),
        tallies.c.shard == bindparam("shard"),
        Among(tallies.c.day, "days"),
    )
    .order_by(tallies.c.segment, tallies.c.arm, tallies.c.day)
    .with_for_update()
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


def reading_sums(key: int, shard: int, places: Iterable[Place]) -> Call:
    """The statement that reads and locks the sums of our shard."""
    indices, arms, days = (sorted(set(values)) for values in zip(*places, strict=True))
    return SUMS, {"key": key, "shard": shard, "segments": indices, "arms": arms, "days": days}


def add(
    connection: Connection,
    key: int,
    shard: int,
    counts: Mapping[Place, ArmDay],
    found: Rows | None = None,
) -> None:
    """Add rewards, waiting times, late rewards and exclusions to the sums of our shard.

    found : by `reading_sums`, if that was executed already
    """
    if not counts:
        return
    reading = reading_sums(key, shard, counts)
    there = _exact(together(connection, reading)[0] if found is None else found)
    missing = [(place, ArmDay(0)) for place in counts if place not in there]
    if missing:  # then there was nothing to lock
        _, found = together(connection, (COUNT, counts_at(key, shard, missing)), reading)
        there = _exact(found)
    for place, count in counts.items():
        count.sums += there[place][0]
        count.squares += there[place][1]
    at_the_end(connection, (COUNT_EXACTLY, counts_at(key, shard, counts.items())))


def _exact(found: Rows) -> dict[Place, tuple[Fraction, Fraction]]:
    return {
        (segment, arm, day): (_fraction(sums), _fraction(squares))
        for segment, arm, day, sums, squares in found
    }


def _fraction(text: str) -> Fraction:
    """What `str` has made of a fraction; faster than its constructor."""
    return Fraction(*map(int, text.split("/")))


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
        sticky = self._facts(connection, key).sticky
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
        rows = [
            {
                "key": key,
                "number": row.number,
                "reward": row.reward,
                "created": now,
                "at": None if row.received is None else row.rewarded,
            }
            for _, row in sorted(new.items())
        ]
        shard = self._database.shard
        calls: list[Call] = [(INSERT, rows)] if rows else []
        if counts:
            calls.append(reading_sums(key, shard, counts))
        results = together(connection, *calls)
        if rows and results[0].written < len(rows):
            raise CollisionError  # by now they are found
        add(connection, key, shard, counts, results[-1] if counts else None)
        return tuple(outcomes)
