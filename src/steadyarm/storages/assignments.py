"""Assignments: units take positions of the segment opened last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from sqlalchemy import Connection, bindparam, exists, select, update
from sqlalchemy.dialects.postgresql import insert

from steadyarm.segments import Draws
from steadyarm.storages.records import (
    ArmDay,
    Assigned,
    AssignmentResult,
    LogRow,
    Measured,
    day_of,
    number_of,
    place_of,
)
from steadyarm.storages.rewards import record_events
from steadyarm.storages.rows import (
    Place,
    Transaction,
    add_tallies,
    batches,
    find_rows,
    hold_open_segments,
    insert_new,
    read_segments,
    read_standing,
)
from steadyarm.storages.schema import assignments, segments

_later = segments.alias("later")
LAST = (
    select(segments.c.index, segments.c.rounds, segments.c.handed)
    .where(segments.c.key == bindparam("key"))
    .order_by(segments.c.index.desc())
    .limit(1)
    .with_for_update(key_share=True)
)
# Nothing is updated if another segment was opened while we waited for the lock.
TAKE = (
    update(segments)
    .where(
        segments.c.key == bindparam("of"),
        segments.c.index == bindparam("last"),
        ~exists().where(_later.c.key == bindparam("of"), _later.c.index > bindparam("last")),
    )
    .values(handed=bindparam("counted"))
)
INSERT = insert(assignments).on_conflict_do_nothing(index_elements=["key", "unit", "repeat"])
BELONGING = select(assignments.c.unit, assignments.c.key).where(
    assignments.c.unit.in_(bindparam("units", expanding=True)),
    assignments.c.key.in_(bindparam("keys", expanding=True)),
    assignments.c.repeat == 0,
)


def look_up(
    t: Transaction,
    units: Sequence[str],
    hold: bool = False,
    rows: Sequence[LogRow | None] | None = None,
) -> AssignmentResult:
    """The assignments that units have (none if units are not sticky).

    hold : let those who change the state wait until the transaction ends
    rows : their assignments, if these were read already
    """
    standing = read_standing(t.connection, t.key, hold)
    rows = find_rows(t, units) if rows is None else rows
    return AssignmentResult(
        tuple(None if row is None else row.assigned() for row in rows), *standing
    )


def assign(
    t: Transaction,
    draws: Draws,
    units: Sequence[str],
    values: Sequence[Mapping[str, float]],
    now: int,
    rows: Sequence[LogRow | None] | None = None,
) -> AssignmentResult:
    """The assignment of each unit, an old one or a new one; see `Storage.assign`.

    rows : the assignments that units had just now, if they were read already
    """
    before = look_up(t, units, hold=True, rows=rows)
    missing = [unit for unit, old in zip(units, before.assigned, strict=True) if old is None]
    if t.sticky:
        missing = list(dict.fromkeys(missing))
    if not missing or not before.running:
        return before
    if any(values):
        hold_open_segments(t)  # first, as for rewards
    numbers = _take(t, len(missing))
    new = _draw(t, draws, list(zip(numbers, missing, strict=False)), now)
    _store(t, new)
    if t.sticky:
        by_unit = {item.unit: item for item in new}
        given = [old or by_unit.get(unit) for unit, old in zip(units, before.assigned, strict=True)]
    else:
        given = [*new, *[None] * (len(units) - len(new))]
    result = replace(before, assigned=_new_once(given))
    entries = [
        Measured(item.number, name, value)
        for item, named in zip(result.assigned, values, strict=False)
        if item is not None and item.new
        for name, value in named.items()
    ]
    if entries:
        record_events(t, entries, now)
    return result


def find_experiments(
    connection: Connection, units: Sequence[str], keys: Sequence[int]
) -> tuple[frozenset[int], ...]:
    """The keys of the experiments that each unit has an assignment in."""
    found: dict[str, set[int]] = {unit: set() for unit in units}
    for some in batches(found):
        values = {"units": some, "keys": sorted(set(keys))}
        for unit, key in connection.execute(BELONGING, values):
            found[unit].add(key)
    return tuple(frozenset(found[unit]) for unit in units)


def _take(t: Transaction, wanted: int) -> range:
    """Take up to `wanted` positions of the segment opened last; their numbers."""
    while (row := t.connection.execute(LAST, {"key": t.key}).one_or_none()) is not None:
        index, rounds, handed = row
        counted = min(rounds, handed + wanted)
        if counted == handed:
            break
        if t.connection.execute(TAKE, {"of": t.key, "last": index, "counted": counted}).rowcount:
            return range(number_of(index, handed), number_of(index, counted))
    return range(0)


def _draw(
    t: Transaction, draws: Draws, taken: Sequence[tuple[int, str]], now: int
) -> list[Assigned]:
    """New assignments with the arms of their positions."""
    drawn = draws.at(
        t.key,
        t.seed,
        (place_of(number) for number, _ in taken),
        lambda index: read_segments(t, [index])[index].segment,
    )
    return [
        Assigned(number, unit, arm, probability, now)
        for (number, unit), (arm, probability) in zip(taken, drawn, strict=True)
    ]


def _store(t: Transaction, items: Sequence[Assigned]) -> None:
    if not items:
        return
    counts: dict[Place, ArmDay] = {}
    for item in items:
        place = place_of(item.number)[0], item.arm, day_of(item.created)
        counts.setdefault(place, ArmDay(item.arm)).assign(item.created)
    rows = [
        {
            "key": t.key,
            "number": item.number,
            "unit": item.unit,
            "repeat": 0 if t.sticky else item.number + 1,
            "arm": item.arm,
            "probability": item.probability,
            "created": item.created,
            "excluded": None,
        }
        # Transactions that wait for each other do so in one order.
        for item in sorted(items, key=attrgetter("unit"))
    ]
    insert_new(t, INSERT, rows)
    add_tallies(t, counts)


def _new_once(items: Iterable[Assigned | None]) -> tuple[Assigned | None, ...]:
    """The same assignments, each of them new only where it comes first."""
    answers, seen = [], set[int]()
    for item in items:
        if item is not None and item.new:
            if item.number in seen:
                item = replace(item, new=False)
            seen.add(item.number)
        answers.append(item)
    return tuple(answers)
