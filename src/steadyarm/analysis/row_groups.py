"""What the statistics of Parquet files tell before a row is read, and sums that make use of it.

A file keeps, for each of its row groups and columns, the number of rows and nulls and the least and
the largest value. A long log is mostly in order of time, so most of its row groups lie in one
period: their times need not be read. Where an arm has one probability throughout such a piece of
the log, rows need not be grouped by it, either. Both are found out, never assumed.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np

from steadyarm.analysis import sums
from steadyarm.analysis.log import Log

WORTH = 1_000_000  # rows of a piece from which on a query of its own is worth its cost
PLACES, LEAST_GROUPS, MOST_UNITS = 8, 40, 2**18  # see `no_unit_repeats`
COUNTS = "counts by piece"
HASHES = 2**64
EXACT = ("INT32", "INT64")  # physical types whose statistics bound the values whoever wrote them


@dataclass(frozen=True)
class RowGroup:
    """Statistics of one column in a row group.

    Attributes
    ----------
    part : number of the file in the log
    first, last : numbers of its rows in the file, from 0
    low, high : the least and the largest value; None if unknown
    nulls : rows without a value; None if unknown
    """

    part: int
    first: int
    last: int
    low: Any
    high: Any
    nulls: int | None


@dataclass(frozen=True)
class RowRange:
    """Neighbouring row groups of a file, in the one period that begins `at`, or in several."""

    part: int
    first: int
    last: int
    at: datetime | None

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.last - self.first + 1


def row_groups(log: Log, column: str, kind: str, exact: bool = True) -> list[RowGroup] | None:
    """The row groups of all files with the statistics of a column, read as a type of DuckDB.

    exact : whether only types are taken whose least and largest value surely bound all others

    Returns
    -------
    None if not every part of the log is a Parquet file that has the column
    """
    if not log.parts or not all(part.path for part in log.parts):
        return None
    found = []
    for number, part in enumerate(log.parts):
        first, rows = 0, log.statistics(str(part.path), log.their(column), kind)
        if not rows:
            return None
        for low, high, count, nulls, physical in rows:
            if exact and physical not in EXACT:
                low = high = None
            found.append(RowGroup(number, first, first + count - 1, low, high, nulls))
            first += count
    return found


def totals(log: Log) -> dict[str, Any] | None:
    """Rows, rows with a time, the last time, and rows without a unit, of files as they are.

    Returns
    -------
    None if statistics do not tell: of tables that are no Parquet file or are filtered, of units
    that are no whole numbers, of times that are no plain time stamps or missing somewhere
    """
    unit, time = log.table["unit"].type(), log.table["timestamp"].type()
    plain = time.is_timestamp() and time.timezone is None and time.scale != 9
    if not (plain and unit.is_integer() and _all_rows(log)):
        return None
    times, units = row_groups(log, "timestamp", "TIMESTAMP"), row_groups(log, "unit", "HUGEINT")
    if not times or not units or not all(map(_known, times)):
        return None
    nulls = [group.nulls for group in units]
    if None in nulls:
        return None
    rows = sum(group.last - group.first + 1 for group in times)
    last = max(group.high for group in times)
    return {"rows": rows, "timed": rows, "last": last, "nobody": sum(filter(None, nulls))}


def pieces_of(groups: list[RowGroup], plan: sums.Plan) -> list[RowRange]:
    """Runs of row groups that lie in one period, and runs of those that may not."""
    found: list[RowRange] = []
    for group in groups:
        at = None
        if _known(group):
            at = plan.start_of(group.low)
            at = at if at == plan.start_of(group.high) else None
        last = found[-1] if found else None
        if last is not None and (last.part, last.at) == (group.part, at):
            found[-1] = RowRange(last.part, last.first, group.last, at)
        else:
            found.append(RowRange(group.part, group.first, group.last, at))
    return found


def _cut(log: Log, groups: list[RowGroup], plan: sums.Plan) -> list[RowGroup]:
    """The row groups, those in several periods cut where a period begins if they are in order.

    Times of these few are read, and of no others.
    """
    found = []
    for number, group in enumerate(groups):
        if not _known(group) or plan.start_of(group.low) == plan.start_of(group.high):
            found.append(group)
            continue
        place = number - next(i for i, one in enumerate(groups) if one.part == group.part)
        times = log.times_in(group.part, place)
        if (np.diff(times) < 0).any():
            found.append(group)
            continue
        first = 0
        while first < len(times):
            start = plan.start_of(_at(times[first]))
            last = bisect_right(times, start, lo=first, key=lambda t: plan.start_of(_at(t)))
            low, high = _at(times[first]), _at(times[last - 1])
            rows = group.first + first, group.first + last - 1
            found.append(RowGroup(group.part, *rows, low, high, 0))
            first = last
    return found


def _at(microseconds: Any) -> datetime:
    return datetime(1970, 1, 1) + timedelta(microseconds=int(microseconds))


def _known(group: RowGroup) -> bool:
    return group.low is not None and group.high is not None and group.nulls == 0


def sums_by_piece(
    log: Log, table: Any, plan: sums.Plan, span: tuple[float, float] | None
) -> list[dict[str, Any]] | None:
    """What `sums.propensity_sums` says, piece by piece; None where that is not worth it.

    The first piece decides: where an arm has several probabilities in it, as in a test that
    adapts all the time, all rows have to be grouped by probability anyway.
    """
    time = log.table["timestamp"].type()
    if not (plan.unit and time.is_timestamp() and time.scale != 9 and _only_chosen(log, table)):
        return None
    groups = row_groups(log, "timestamp", "TIMESTAMP")
    if groups is None or not _worth(pieces_of(groups, plan)):
        return None
    pieces = pieces_of(_cut(log, groups, plan), plan)
    alone = sorted((p for p in pieces if p.at is not None), key=lambda piece: -piece.rows)
    backend = log.table.get_backend()
    arm = {"arm": table.arm}
    bucket = {"bucket": plan.bucket(table.time, log.backend)}
    by_arm = backend.compile(sums.counts_by_arm(table, span))
    for number, piece in enumerate(alone):
        query = (
            f"SELECT {number} AS piece, {_bucket(log, plan, piece)} AS bucket, * FROM ({by_arm})"
        )
        log.run(_into(query, log, piece, new=number == 0))
        if number == 0 and _mixed(log):
            return None
    if again := _mixed(log):
        chosen = ", ".join(map(str, again))
        log.run(f'DELETE FROM "{COUNTS}" WHERE piece IN ({chosen})')
        by_both = backend.compile(sums.counts(table, arm | {"p": table.p}, span))
        for number in again:
            one = alone[number]
            query = f"SELECT {_bucket(log, plan, one)} AS bucket, * FROM ({by_both})"
            log.run(_into(query, log, one))
    rest = [piece for piece in pieces if piece.at is None]
    if rest:
        general = backend.compile(sums.counts(table, bucket | arm | {"p": table.p}, span))
        for piece in rest:
            log.run(_into(general, log, piece))
    counted = log.made(COUNTS).drop("piece", "mixed")
    decimals = [name for name, kind in counted.schema().items() if kind.is_decimal()]
    return log.fetch(sums.weighed(counted.cast(dict.fromkeys(decimals, "float64"))))


def _worth(pieces: list[RowRange]) -> bool:
    """Whether enough rows are in pieces of one period for the number of queries."""
    return sum(piece.rows for piece in pieces if piece.at is not None) >= WORTH * len(pieces)


def _all_rows(log: Log) -> bool:
    """Whether the log is all rows of our files."""
    from ibis.expr import operations as ops

    relations = log.table.op().find(ops.Relation)
    plain = (ops.Project, ops.DatabaseTable)
    return log.ours and log.backend == "duckdb" and all(isinstance(r, plain) for r in relations)


def _only_chosen(log: Log, table: Any) -> bool:
    """Whether each row of the table is made of one row of our files, so that they can be split."""
    from ibis.expr import operations as ops

    if not (log.ours and log.backend == "duckdb"):
        return False
    plain = (ops.Project, ops.Filter, ops.DatabaseTable)
    node = table.op()
    return (
        all(isinstance(one, plain) for one in node.find(ops.Relation))
        and [one.name for one in node.find(ops.DatabaseTable)] == ["log"]
        and not node.find(ops.WindowFunction)
    )


def _bucket(log: Log, plan: sums.Plan, piece: RowRange) -> str:
    """The bucket of a piece, made by the same expression as that of a row."""
    import ibis

    start = plan.bucket(ibis.literal(piece.at, "timestamp"), log.backend)
    return f"({log.table.get_backend().compile(start)})"


def _into(query: str, log: Log, piece: RowRange, new: bool = False) -> str:
    """A statement that adds what the query finds in a piece of the log to the counts."""
    into = (
        f'CREATE OR REPLACE TEMP TABLE "{COUNTS}" AS' if new else f'INSERT INTO "{COUNTS}" BY NAME'
    )
    return f'{into} WITH "log" AS ({_rows_of(log, piece)}) SELECT * FROM ({query})'


def _rows_of(log: Log, piece: RowRange) -> str:
    name = "log" if len(log.parts) == 1 else f"log {piece.part}"
    rows = f"file_row_number BETWEEN {piece.first} AND {piece.last}"
    return f'SELECT * FROM temp.main."{name}" WHERE {rows}'


def _mixed(log: Log) -> list[int]:
    """Numbers of the pieces in which an arm has several probabilities."""
    rows = log.rows(f'SELECT DISTINCT piece FROM "{COUNTS}" WHERE mixed')
    return sorted(number for (number,) in rows)


# Units that are in no two row groups.


def no_unit_repeats(log: Log, table: Any) -> bool | None:
    """Whether no unit of a sample has two rows, for units that are in no two row groups.

    Statistics prove the latter for numbers that grow with time. Then it is enough to look at one
    row group in each of eight places of the log, and at a quarter of a million of their units.

    Returns
    -------
    None if statistics say nothing of the kind, or the log is short
    """
    if not log.table["unit"].type().is_integer() or not _only_chosen(log, table):
        return None
    groups = row_groups(log, "unit", "HUGEINT")
    if groups is None or len(groups) < LEAST_GROUPS:
        return None
    if any(group.low is None or group.high is None for group in groups):
        return None
    ordered = sorted(groups, key=lambda group: group.low)
    if any(one.high >= other.low for one, other in pairwise(ordered)):
        return None
    unit = log.table.get_backend().compile(table.select("unit"))
    places = [groups[number * len(groups) // PLACES] for number in range(PLACES)]
    chosen = [RowRange(group.part, group.first, group.last, None) for group in places]
    union = " UNION ALL ".join(
        f'(WITH "log" AS ({_rows_of(log, one)}) SELECT unit FROM ({unit}))' for one in chosen
    )
    share = max(sum(one.rows for one in chosen) // MOST_UNITS, 1)
    [(seen, units)] = log.rows(
        f"SELECT count(unit), count(DISTINCT unit) FROM ({union}) "
        f"WHERE hash(unit) <= {(HASHES - 1) // share}"
    )
    return bool(seen == units)
