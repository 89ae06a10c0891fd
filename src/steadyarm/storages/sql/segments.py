"""What several jobs read: an experiment's facts, segments, assignments by number or unit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    TextualSelect,
    bindparam,
    case,
    func,
    select,
    text,
)

from steadyarm.errors import UnknownExperimentError
from steadyarm.storages.records import (
    ExperimentState,
    LogRow,
    SegmentRecord,
    Target,
    is_of,
)
from steadyarm.storages.sql.schema import (
    AnyRow,
    assignments,
    experiments,
    lookup,
    rewards,
    segment_of,
    segments,
)

__all__ = [
    "PAGE",
    "Facts",
    "by_numbers",
    "by_targets",
    "by_units",
    "facts_of",
    "log_row",
    "one_or_many",
    "portions",
    "reader",
    "segments_of",
    "state_of",
]

# What several jobs read: an experiment's facts, segments, assignments by number or unit.


T = TypeVar("T")

CHUNK = 5000  # parameters in one statement
NUMBERS = 2**63  # no assignment has a number beyond what a database can hold
LOGGED = (  # what `log_row` reads, in the order of the text below
    assignments.c.number,
    assignments.c.unit,
    assignments.c.arm,
    assignments.c.probability,
    assignments.c.created,
    rewards.c.reward,
    func.coalesce(rewards.c.at, rewards.c.created).label("rewarded"),
    case((rewards.c.at.is_not(None), rewards.c.created)).label("received"),
    assignments.c.excluded,
)


def _one_by_one(by: str, more: str = "") -> TextualSelect:
    """For SQLite: the assignments of a JSON list of values, each looked up in its index.

    A cross join keeps its order; a list of values would have SQLite read the whole experiment.
    """
    return text(
        f"""SELECT a.number, a.unit, a.arm, a.probability, a.created, r.reward,
                   coalesce(r.at, r.created) AS rewarded,
                   CASE WHEN r.at IS NOT NULL THEN r.created END AS received, a.excluded
            FROM json_each(:values) AS wanted
            CROSS JOIN {assignments.name} AS a
            LEFT JOIN {rewards.name} AS r ON r.key = a.key AND r.number = a.number
            WHERE a.key = :key AND a.{by} = wanted.value {more}"""
    ).columns(*LOGGED)


# Held to the end of the transaction, so that `move` waits for traffic that is under way.
STATE = (
    select(experiments.c.state)
    .where(experiments.c.key == bindparam("key"))
    .with_for_update(read=True, key_share=True)
)
CONFIG = select(experiments.c.config, experiments.c.tag).where(
    experiments.c.key == bindparam("key")
)
SEGMENTS = select(segments).where(
    segments.c.key == bindparam("key"), segments.c.index.in_(bindparam("indices", expanding=True))
)

_rewarded = (assignments.c.key == rewards.c.key) & (assignments.c.number == rewards.c.number)
ROWS = (
    select(*LOGGED)
    .select_from(assignments.outerjoin(rewards, _rewarded))
    .where(assignments.c.key == bindparam("key"))
)
_sticky = assignments.c.repeat == 0
BY_NUMBER = {"sqlite": _one_by_one("number"), "postgresql": lookup(assignments.c.number)}
BY_UNIT = {
    "sqlite": _one_by_one("unit", "AND a.repeat = 0"),
    "postgresql": lookup(assignments.c.unit, _sticky),
}
PAGE = (
    ROWS.where(assignments.c.number > bindparam("after"))
    .order_by(assignments.c.number)
    .limit(bindparam("most"))
)


@dataclass(frozen=True)
class Facts:
    """What never changes of an experiment, and storages need."""

    seed: int
    sticky: bool
    tag: str


def facts_of(connection: Connection, key: int) -> Facts:
    """From the experiment's config."""
    row = _known(key, connection.execute(CONFIG, {"key": key}).one_or_none())
    config = json.loads(row.config)
    return Facts(config["seed"], config.get("sticky") == "unit", row.tag)


def state_of(connection: Connection, key: int) -> ExperimentState:
    """Running, paused, ..."""
    state: ExperimentState = _known(key, connection.execute(STATE, {"key": key}).scalar())
    return state


def _known(key: int, value: T | None) -> T:
    if value is None:
        raise UnknownExperimentError(f"there is no experiment with key {key}.")
    return value


def segments_of(
    connection: Connection, key: int, indices: Iterable[int]
) -> dict[int, SegmentRecord]:
    """Segments by their index."""
    found = (
        segment_of(row)
        for portion in portions(sorted(set(indices)))
        for row in connection.execute(SEGMENTS, {"key": key, "indices": portion})
    )
    return {record.index: record for record in found}


def reader(connection: Connection, key: int) -> Callable[[int], SegmentRecord]:
    """How `Draws` reads a segment it does not know."""
    return lambda index: segments_of(connection, key, [index])[index]


def by_numbers(connection: Connection, key: int, numbers: Iterable[int]) -> dict[int, AnyRow]:
    """Assignments with their rewards."""
    possible = sorted({number for number in numbers if 0 <= number < NUMBERS})
    return {int(row.number): row for row in _looked_up(connection, BY_NUMBER, key, possible)}


def by_units(connection: Connection, key: int, units: Iterable[str]) -> dict[str, AnyRow]:
    """Assignments of sticky units, with their rewards."""
    wanted = sorted(set(units))
    return {row.unit: row for row in _looked_up(connection, BY_UNIT, key, wanted)}


def _looked_up(
    connection: Connection, statements: dict[str, Any], key: int, wanted: list[Any]
) -> Iterator[AnyRow]:
    statement = statements[connection.dialect.name]
    for portion in portions(wanted):
        values = json.dumps(portion, ensure_ascii=False)
        yield from connection.execute(statement, {"key": key, "values": values})


def by_targets(
    connection: Connection, key: int, sticky: bool, targets: Sequence[Target]
) -> list[AnyRow | None]:
    """Assignments by number, or by unit where units are sticky."""
    numbers = [_number(target) for target in targets if not isinstance(target, str)]
    units = [target for target in targets if isinstance(target, str)] if sticky else []
    numbered = by_numbers(connection, key, numbers)
    named = by_units(connection, key, units)
    return [
        named.get(target)
        if isinstance(target, str)
        else _checked(numbered.get(_number(target)), target)
        for target in targets
    ]


def _number(target: int | tuple[int, str]) -> int:
    return target[0] if isinstance(target, tuple) else target


def _checked(row: AnyRow | None, target: int | tuple[int, str]) -> AnyRow | None:
    """The row, unless it is of another unit than was meant."""
    if row is None or not isinstance(target, tuple) or is_of(row.unit, target[1]):
        return row
    return None


def log_row(row: AnyRow) -> LogRow:
    """One of `ROWS`."""
    return LogRow(*row)


def one_or_many(rows: list[dict[str, Any]]) -> Any:
    """Parameters of a statement; drivers are faster with one row that is in no list."""
    return rows if len(rows) > 1 else rows[0]


def portions(values: list[T]) -> list[list[T]]:
    """Lists that are short enough for one statement."""
    return [values[i : i + CHUNK] for i in range(0, len(values), CHUNK)]
