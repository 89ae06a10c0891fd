"""Columns as numbers, names and times, the same on every database; what cannot be read is null.

A null that stands for something broken is told from one that was null before: nothing is guessed.
"""

from __future__ import annotations

from typing import Any

from steadyarm.analysis.source import Log
from steadyarm.errors import InvalidInputError

__all__ = ["as_number", "as_time", "is_excluded", "readable"]

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
