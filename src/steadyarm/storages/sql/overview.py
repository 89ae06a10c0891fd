"""Sums by day of one experiment, and all experiments in short; only read, for pages and lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select

from steadyarm.storages.counting import Columns, columns_of
from steadyarm.storages.records import DaySums, Summary
from steadyarm.storages.sql.lookups import portions
from steadyarm.storages.sql.schema import (
    AnyRow,
    corrections,
    experiments,
    segment_of,
    segments,
    tallies,
    tally_of,
)

__all__ = ["days", "summaries"]

DAYS = (
    select(tallies)
    .where(tallies.c.key == bindparam("key"))
    .order_by(tallies.c.segment, tallies.c.day)
)
SEGMENTS = select(segments).where(segments.c.key == bindparam("key"))

_first = (segments.c.key == experiments.c.key) & (segments.c.index == 0)


def _summaries(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Experiments with their sums; conditions are on keys of tallies."""
    counts = (
        select(
            tallies.c.key,
            func.sum(tallies.c.assigned).label("assigned"),
            func.sum(tallies.c.rewarded).label("rewarded"),
            func.sum(tallies.c.late).label("late"),
            func.max(tallies.c.last).label("last"),
        )
        .where(*conditions)
        .group_by(tallies.c.key)
        .subquery("counts")
    )
    return (
        select(
            experiments.c.key,
            experiments.c.name,
            experiments.c.tag,
            experiments.c.state,
            experiments.c.created,
            experiments.c.version,
            experiments.c.observed,
            counts.c.assigned,
            counts.c.rewarded,
            counts.c.late,
            segments.c.opened,
            counts.c.last,
            select(func.max(corrections.c.entry))
            .where(corrections.c.key == experiments.c.key)
            .scalar_subquery()
            .label("corrected"),
        )
        .select_from(
            experiments.outerjoin(segments, _first).outerjoin(
                counts, counts.c.key == experiments.c.key
            )
        )
        .order_by(experiments.c.key)
    )


SUMMARIES = _summaries()
SUMMARY = _summaries(tallies.c.key == bindparam("only")).where(
    experiments.c.key == bindparam("only")
)
CONFIGS = select(experiments.c.key, experiments.c.config).where(
    experiments.c.key.in_(bindparam("keys", expanding=True))
)


def days(connection: Connection, key: int) -> tuple[DaySums, ...]:
    """See `Storage.days`."""
    records = map(segment_of, connection.execute(SEGMENTS, {"key": key}))
    columns = {record.index: columns_of(record.segment) for record in records}
    rows = connection.execute(DAYS, {"key": key})
    grouped = groupby(rows, lambda row: (row.segment, row.day))
    return tuple(_day(*place, [*group], columns[place[0]]) for place, group in grouped)


def _day(segment: int, day: int, rows: list[AnyRow], columns: Columns) -> DaySums:
    waited, late = [0] * len(columns), [0] * len(columns)
    for row in rows:
        waited[columns[row.arm]] += row.waited
        late[columns[row.arm]] += row.late
    return DaySums(segment, day, tally_of(rows, columns), tuple(waited), tuple(late))


def summaries(
    connection: Connection, configs: dict[int, Mapping[str, Any]], only: int | None = None
) -> list[Summary]:
    """See `Storage.summaries`; configs, which never change, are read into `configs` once."""
    found = connection.execute(SUMMARIES if only is None else SUMMARY, {"only": only})
    rows = found.all()
    for portion in portions([row.key for row in rows if row.key not in configs]):
        for key, config in connection.execute(CONFIGS, {"keys": portion}):
            configs[key] = json.loads(config)
    return [
        Summary(
            key=row.key,
            name=row.name,
            tag=row.tag,
            state=row.state,
            config=configs[row.key],
            created=row.created,
            version=row.version,
            observed=row.observed,
            assigned=int(row.assigned or 0),
            rewarded=int(row.rewarded or 0),
            late=int(row.late or 0),
            started=row.opened,
            last=row.last,
            corrected=row.corrected or 0,
        )
        for row in rows
    ]
