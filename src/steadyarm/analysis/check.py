"""What is wrong with a log, with the numbers of the rows: looked for only if sums say that it is.

Nothing is repaired or guessed; all that is found is said at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from steadyarm.analysis.source import Log
from steadyarm.errors import InvalidInputError
from steadyarm.inference.health import Finding
from steadyarm.wording import strung

# Columns as numbers, names and times, the same on every database; what cannot be read is null.


NUMBER = r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"
LEAP = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
DATE = (  # only days there are: SQLite and PostgreSQL move others into the next month, or stop
    r"[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    r"|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
)
TIME = (
    rf"^\s*({DATE}|{LEAP}-02-29)"
    r"([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?"
    r"(Z|[-+](0[0-9]|1[0-4])(:?[0-5][0-9])?)?)?\s*$"
)


def readable(log: Log, table: Any, zero: bool = False) -> Any:
    """The table with the columns time, arm, r and, where there is one, p; the rest as it was.

    The column given is the reward as it stands, where r may be null for other reasons than a
    missing reward, or 0 for a missing one (`zero`).
    """
    import ibis

    backend, reward = log.backend, table["reward"]
    new = {
        "time": as_time(log, table["timestamp"], backend),
        "arm": table["arm"].cast("string"),
        "r": as_number(log, reward, backend),
    }
    if zero:
        new["r"] = ibis.ifelse(reward.isnull(), 0.0, new["r"])
    if zero or reward.type().is_string() or backend == "sqlite":
        new["given"] = reward
    if "probability" in table.columns:
        new["p"] = as_number(log, table["probability"], backend)
    return table.mutate(**new)


def is_excluded(column: Any) -> Any:
    """Whether rows were excluded: something stands there that says neither 0 nor no."""
    said = column.cast("string").strip().lower()
    return column.notnull() & said.notin(["", "0", "0.0", "false", "no"])


def as_number(log: Log, column: Any, backend: str) -> Any:
    """A column of float64; null where there is no number."""
    import ibis

    kind = column.type()
    if kind.is_string():
        if backend == "duckdb":
            return column.try_cast("float64")
        number = column.re_search(NUMBER)
        return ibis.ifelse(number, column.cast("float64"), ibis.null("float64"))
    if kind.is_boolean():
        return column.cast("int64").cast("float64")
    if not (kind.is_numeric() or kind.is_null()):
        raise InvalidInputError(
            f"the column {log.theirs.get(column.get_name(), column.get_name())} of {log.name} has "
            f"type {kind}; expected numbers."
        )
    if backend == "sqlite":  # a column of any type may hold anything
        number = column.typeof().isin(["integer", "real"])
        return ibis.ifelse(number, column.cast("float64"), ibis.null("float64"))
    return column if kind.is_float64() else column.cast("float64")


def as_time(log: Log, column: Any, backend: str) -> Any:
    """A column of times in UTC, or of numbers; null where there is no time."""
    import ibis

    kind = column.type()
    if kind.is_numeric():
        return as_number(log, column, backend)
    if backend == "sqlite":
        text = column.cast("string")
        good = (column.typeof() == "text") & text.re_search(TIME)
        return ibis.ifelse(good, text.cast("timestamp"), ibis.null("timestamp"))
    if kind.is_string():
        if backend == "duckdb":
            return column.try_cast("timestamp('UTC')").cast("timestamp")
        time = column.cast("timestamp('UTC')").cast("timestamp")
        return ibis.ifelse(column.re_search(TIME), time, ibis.null("timestamp"))
    if kind.is_date() or (kind.is_timestamp() and kind.timezone is not None):
        return column.cast("timestamp")
    if not kind.is_timestamp():
        raise InvalidInputError(
            f"the column {log.theirs['timestamp']} of {log.name} has type {kind}; expected time "
            "stamps, ISO 8601 text such as 2026-03-01T12:30:00Z, or numbers that only tell the "
            "order."
        )
    return column


SHOWN = 5  # rows that a message names
LARGEST = 1.7976931348623157e308


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes
    ----------
    says : what is wrong, with {value} for what stands there
    advice : what to do
    column : whose value is shown
    where : the rows that have it, as a function of the table
    """

    says: str
    advice: str
    column: str
    where: Callable[[Any], Any]


def no_time() -> Fault:
    """Time stamps that are null or no times."""
    return Fault(
        "the time stamp is {value}",
        "expected ISO 8601 such as 2026-03-01T12:30:00Z in every row; turn seconds since 1970 in "
        'a CSV file into times by the query "select * replace (to_timestamp(timestamp::double) '
        'as timestamp) from log"',
        "timestamp",
        lambda t: t.time.isnull(),
    )


def no_arm() -> Fault:
    """Rows without an arm."""
    return Fault("the arm is {value}", "every row needs one", "arm", lambda t: t.arm.isnull())


def unknown_arm(names: Sequence[str]) -> Fault:
    """Arms that are not among those given."""
    return Fault(
        "the arm {value} was never possible",
        f"the arms are {strung(names, 8)}",
        "arm",
        lambda t: t.arm.notnull() & t.arm.notin(names),
    )


def no_probability() -> Fault:
    """Probabilities that are none."""
    return Fault(
        "the probability is {value}",
        "expected a number above 0 and at most 1: the one with which the row's arm was drawn",
        "probability",
        lambda t: t.p.isnull() | (t.p <= 0) | (t.p > 1),
    )


def no_number() -> Fault:
    """Rewards that are something, but no number."""
    return Fault(
        "the reward is {value}",
        "expected a number, or nothing if it is missing",
        "reward",
        lambda t: t.reward.notnull() & t.r.isnull(),
    )


def infinite() -> Fault:
    """Rewards that are nan or infinite; nan counts as larger than any number."""
    return Fault(
        "the reward is {value}",
        "expected a finite number below 1e150 in size",
        "reward",
        lambda t: t.r.abs() > 1e150,
    )


def missing() -> Fault:
    """Rows without reward."""
    return Fault(
        "the reward is missing",
        'say missing="drop" to leave such rows out, or missing="zero" to count them as 0',
        "reward",
        lambda t: t.reward.isnull(),
    )


def beyond(low: float, high: float) -> Fault:
    """Rewards outside of their range."""
    return Fault(
        "the reward is {value}",
        f"expected {low:g} to {high:g}; correct it or widen the range",
        "reward",
        lambda t: (t.r < low) | (t.r > high),
    )


def find(log: Log, fault: Fault) -> list[tuple[str, Any]]:
    """Where the first rows with a fault are, and what stands there."""
    found: list[tuple[str, Any]] = []
    for part in log.parts:
        table = readable(log, part.table.mutate(row=part.number(part.table)))
        shown: dict[str, Any] = {"row": table.row}
        if fault.column in table.columns:
            value = table[fault.column]  # SQLite may hold text in a column of numbers
            shown["value"] = value.cast("string") if log.backend == "sqlite" else value
        if "unit" in table.columns and not log.ordered:
            shown["unit"] = table.unit.cast("string")
        rows = table.filter(fault.where(table)).select(**shown)
        for row in log.fetch(rows.order_by("row").limit(SHOWN - len(found))):
            place = f"row {row['row']}"
            if row.get("unit") is not None:
                place += f" (unit {row['unit']})"
            found.append((f"{part.name} {place}".strip(), row.get("value")))
        if len(found) >= SHOWN:
            break
    return found


def refuse(log: Log, faults: list[tuple[Fault, int]]) -> None:
    """Raise one error that names all faults, each with its number of rows and the first of them."""
    lines = []
    for fault, count in faults:
        rows = find(log, fault)
        groups: dict[str, list[str]] = {}
        for place, value in rows:
            groups.setdefault("missing" if value is None else repr(value), []).append(place)
        for value, places in groups.items():
            lines.append(f"{', '.join(places)}: {fault.says.format(value=value)}")
        if not rows:
            lines.append(f"{fault.says.format(value='not usable')} somewhere")
        rest = f" {count:,} rows in all." if count > len(rows) else ""
        lines[-1] += f"; {fault.advice}.{rest}"
    if lines:
        raise InvalidInputError(
            f"{log.name} cannot be analysed (rows are {log.counted}).\n  " + "\n  ".join(lines)
        )


def unordered(log: Log) -> list[str]:
    """The first rows whose time stamp is earlier than that of the row before, in files."""
    found = []
    for part in log.parts:
        table = readable(log, part.table.mutate(row=part.number(part.table)))
        back = table.select(table.row, back=table.time < table.time.lag())
        rows = log.fetch(back.filter(back.back).select("row").order_by("row").limit(SHOWN))
        found += [f"{part.name} row {row['row']}".strip() for row in rows]
    return found[:SHOWN]


def unordered_groups(log: Log) -> list[str] | None:
    """The first row groups of Parquet files that begin before an earlier one ends.

    Read from the files' statistics, at no cost whatever their size; None if there are none.
    """
    if not all(part.path for part in log.parts):
        return None
    time = log.table["timestamp"].type()
    kind = "DOUBLE" if time.is_numeric() else "VARCHAR" if time.is_string() else "TIMESTAMP"
    found: list[str] = []
    for part in log.parts:
        groups = log.sql(_GROUPS.format(kind=kind), [str(part.path), log.theirs["timestamp"]])
        latest, first = None, 1
        for low, high, rows in groups:
            if low is None or high is None:
                return None
            if latest is not None and low < latest:
                found.append(f"{part.name} rows {first} to {first + rows - 1}".strip())
            latest = high if latest is None else max(latest, high)
            first += rows
    return found[:SHOWN]


_GROUPS = """
    SELECT TRY_CAST(stats_min_value AS {kind}), TRY_CAST(stats_max_value AS {kind}),
      row_group_num_rows
    FROM parquet_metadata(?) WHERE path_in_schema = ? ORDER BY row_group_id"""


def order_finding(places: list[str], groups: bool = False) -> Finding:
    """What it means that rows, or groups of rows, are not in order of time."""
    if not places:
        fine = (
            "Row groups are in order of time; rows within them were not compared."
            if groups
            else "Rows are in order of time."
        )
        return Finding("order of rows", "ok", None, fine)
    return Finding(
        "order of rows",
        "warn",
        None,
        f"Time goes back in {', '.join(places)}{' and maybe more' if len(places) >= 5 else ''}.",
        "Results do not depend on the order of rows; make sure that the time stamps are right.",
    )
