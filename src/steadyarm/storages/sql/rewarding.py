"""Rewards: each stored once, and added to the exact sums of its segment and arm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql

from steadyarm.errors import WrongStateError
from steadyarm.storages.records import (
    Outcome,
    Target,
    place_of,
)
from steadyarm.storages.sql.lookups import by_targets, one_or_many, portions, state_of
from steadyarm.storages.sql.many import insert_new
from steadyarm.storages.sql.schema import AnyRow, rewards, segments, tallies

__all__ = ["reward"]

Places = dict[tuple[int, int], list[float]]  # rewards by segment and arm

OPEN = (
    select(segments.c.index)
    .where(
        segments.c.key == bindparam("key"),
        segments.c.index.in_(bindparam("indices", expanding=True)),
        segments.c.closed.is_(None),
    )
    .order_by(segments.c.index)
    .with_for_update(read=True, key_share=True)  # against closing, not against each other
)
INSERT = insert(rewards)
INSERT_NEW = insert_new(rewards, rewards.c.number)
TOLD = select(rewards.c.number, rewards.c.reward).where(
    rewards.c.key == bindparam("key"), rewards.c.number.in_(bindparam("numbers", expanding=True))
)
SUMS = (
    select(tallies.c.segment, tallies.c.arm, tallies.c.sums, tallies.c.squares)
    .where(
        tallies.c.key == bindparam("key"),
        tallies.c.segment.in_(bindparam("segments", expanding=True)),
        tallies.c.arm.in_(bindparam("arms", expanding=True)),
        tallies.c.shard == bindparam("shard"),
    )
    .order_by(tallies.c.segment, tallies.c.arm)
    .with_for_update()
)
BEGIN = insert(tallies)
BEGIN_NEW = postgresql.insert(tallies).on_conflict_do_nothing()
ADD = (
    update(tallies)
    .where(
        tallies.c.key == bindparam("of"),
        tallies.c.segment == bindparam("in_segment"),
        tallies.c.arm == bindparam("of_arm"),
        tallies.c.shard == bindparam("in_shard"),
    )
    .values(
        rewarded=tallies.c.rewarded + bindparam("more"),
        sums=bindparam("all_sums"),
        squares=bindparam("all_squares"),
    )
)


def reward(
    connection: Connection,
    key: int,
    sticky: bool,
    shard: int,
    told: Sequence[tuple[Target, float]],
    window: int | None,
    now: int,
) -> tuple[Outcome, ...]:
    """See `Storage.reward`."""
    if state_of(connection, key) == "archived":
        raise WrongStateError("the experiment is archived; it takes no rewards.")
    rows = by_targets(connection, key, sticky, [target for target, _ in told])
    counted = {row.number: row.reward for row in rows if row is not None and row.reward is not None}
    new: dict[int, tuple[AnyRow, float]] = {}
    for row, (_, value) in zip(rows, told, strict=True):
        if row is not None and row.number not in counted:
            new.setdefault(row.number, (row, value))
    indices = sorted({place_of(number)[0] for number in new})
    opened = {
        index
        for portion in portions(indices)
        for (index,) in connection.execute(OPEN, {"key": key, "indices": portion})
    }
    new = {
        number: new[number]
        for number in sorted(new)
        if place_of(number)[0] in opened and not _late(new[number][0], window, now)
    }
    counted |= _insert(connection, key, new, now)
    _add(connection, key, shard, new)
    outcomes = []
    for row, (_, value) in zip(rows, told, strict=True):
        if row is None:
            outcomes.append(Outcome("unknown"))
        elif row.number in new:
            counted[row.number] = new.pop(row.number)[1]
            outcomes.append(Outcome("stored", row.number))
        elif row.number in counted:
            there = counted[row.number]
            same = there == value
            outcomes.append(Outcome("repeated" if same else "conflict", row.number, there))
        else:
            late = place_of(row.number)[0] in opened
            outcomes.append(Outcome("late" if late else "closed", row.number))
    return tuple(outcomes)


def _late(row: AnyRow, window: int | None, now: int) -> bool:
    return window is not None and now - int(row.created) > window


def _insert(
    connection: Connection, key: int, new: dict[int, tuple[AnyRow, float]], now: int
) -> dict[int, float]:
    """Store rewards; those another process was faster with leave `new`, with its values given."""
    rows = [
        {"key": key, "number": number, "reward": value, "created": now}
        for number, (_, value) in new.items()
    ]
    if not rows:
        return {}
    if connection.dialect.name == "sqlite":  # alone, so what was missing still is
        connection.execute(INSERT, one_or_many(rows))
        return {}
    stored = set(connection.execute(INSERT_NEW, {"rows": json.dumps(rows)}).scalars())
    others = [number for number in new if number not in stored]
    for number in others:
        del new[number]
    found: dict[int, float] = {}
    for portion in portions(others):
        result = connection.execute(TOLD, {"key": key, "numbers": portion})
        found |= {row.number: row.reward for row in result}
    return found


def _add(
    connection: Connection, key: int, shard: int, new: dict[int, tuple[AnyRow, float]]
) -> None:
    if not new:
        return
    values: Places = {}
    for number, (row, value) in new.items():
        values.setdefault((place_of(number)[0], row.arm), []).append(value)
    there = _sums(connection, key, shard, values)
    rows = []
    for place in sorted(values):
        exact = [Fraction(value) for value in values[place]]
        sums, squares = there[place]
        rows.append(
            {
                "of": key,
                "in_segment": place[0],
                "of_arm": place[1],
                "in_shard": shard,
                "more": len(exact),
                "all_sums": str(sum(exact, Fraction(sums))),
                "all_squares": str(sum((value * value for value in exact), Fraction(squares))),
            }
        )
    connection.execute(ADD, one_or_many(rows))


def _sums(
    connection: Connection, key: int, shard: int, values: Places
) -> dict[tuple[int, int], tuple[str, str]]:
    """Sums and squares of our shard, locked; rows that are missing are begun."""
    wanted = {
        "key": key,
        "segments": sorted({segment for segment, _ in values}),
        "arms": sorted({arm for _, arm in values}),
        "shard": shard,
    }

    def look() -> dict[tuple[int, int], tuple[str, str]]:
        found = connection.execute(SUMS, wanted)
        return {(row.segment, row.arm): (row.sums, row.squares) for row in found}

    there = look()
    missing = sorted(values.keys() - there.keys())
    if not missing:
        return there
    none = {"assigned": 0, "rewarded": 0, "sums": "0", "squares": "0", "last": None}
    statement = BEGIN if connection.dialect.name == "sqlite" else BEGIN_NEW
    connection.execute(
        statement,
        [
            {"key": key, "segment": segment, "arm": arm, "shard": shard, **none}
            for segment, arm in missing
        ],
    )
    return look()
