"""What is wrong with a log, with the numbers of the rows: searched only if the sums show a fault.

Nothing is repaired or guessed; all that is found is said at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyarm.analysis.log import Log
from steadyarm.analysis.sums import readable
from steadyarm.errors import InvalidInputError
from steadyarm.inference.health import Finding
from steadyarm.wording import strung

SHOWN = 5  # rows that a message names
REPEATED, MOST_ROWS = 3, 12  # units with duplicate rows that a message names, and rows of them


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


Faults = list[tuple[Fault, int]]  # with the number of rows

NO_TIME = Fault(
    "the time stamp is {value}",
    "expected ISO 8601 such as 2026-03-01T12:30:00Z in every row; turn seconds since 1970 in a CSV "
    'file into times by the query "select * replace (to_timestamp(timestamp::double) as timestamp) '
    'from log"',
    "timestamp",
    lambda t: t.time.isnull(),
)
NO_ARM = Fault("the arm is {value}", "every row needs one", "arm", lambda t: t.arm.isnull())
NO_PROBABILITY = Fault(
    "the probability is {value}",
    "expected a number above 0 and at most 1: the one with which the row's arm was drawn",
    "probability",
    lambda t: t.p.isnull() | (t.p <= 0) | (t.p > 1),
)
NO_NUMBER = Fault(
    "the reward is {value}",
    "expected a number, or nothing if it is missing",
    "reward",
    lambda t: t.reward.notnull() & t.r.isnull(),
)
INFINITE = Fault(  # nan counts as larger than any number
    "the reward is {value}",
    "expected a finite number below 1e150 in size",
    "reward",
    lambda t: t.r.abs() > 1e150,
)
MISSING = Fault(
    "the reward is missing",
    'say missing="drop" to leave such rows out, or missing="zero" to count them as 0',
    "reward",
    lambda t: t.reward.isnull(),
)


def _unknown_arm(names: Sequence[str]) -> Fault:
    return Fault(
        "the arm {value} was never possible",
        f"the arms are {strung(names, 8)}",
        "arm",
        lambda t: t.arm.notnull() & t.arm.notin(names),
    )


def _out_of_range(low: float, high: float) -> Fault:
    return Fault(
        "the reward is {value}",
        f"expected {low:g} to {high:g}; correct it or widen the range",
        "reward",
        lambda t: (t.r < low) | (t.r > high),
    )


def faults_in(
    rows: list[dict[str, Any]],
    names: Sequence[str] | None,
    reward_range: tuple[float, float] | None,
    missing: str,
) -> Faults:
    """What the sums say is wrong; names are those of the arms, if they are given."""

    def count(name: str, among: list[dict[str, Any]] = rows) -> int:
        return sum(int(row.get(name) or 0) for row in among)

    faults: Faults = []
    if nameless := count("n", [row for row in rows if row["arm"] is None]):
        faults.append((NO_ARM, nameless))
    if names is not None:
        known = {None, *names}
        if strange := count("n", [row for row in rows if row["arm"] not in known]):
            faults.append((_unknown_arm(names), strange))
    if unusable := count("unusable"):
        faults.append((NO_PROBABILITY, unusable))
    n, m, given = count("n"), count("m"), rewards_given(rows)
    if broken := n - m if missing == "zero" else given - m:
        faults.append((NO_NUMBER, broken))
    if any(not np.isfinite([row["s"] or 0.0, row["ss"] or 0.0]).all() for row in rows):
        faults.append((INFINITE, 1))
    elif reward_range is not None and (outside := count("beyond")):
        faults.append((_out_of_range(*reward_range), outside))
    if missing == "fail" and n > given:
        faults.append((MISSING, n - given))
    return faults


def rewards_given(rows: list[dict[str, Any]]) -> int:
    """Rows in which any reward stands, whether it is a number or not."""
    return sum(int(row["given"] if "given" in row else row["m"]) for row in rows)


def _find(log: Log, fault: Fault) -> list[tuple[str, Any]]:
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


def refuse(log: Log, faults: Faults) -> None:
    """Raise one error that names all faults, each with its number of rows and the first of them."""
    lines = []
    for fault, count in faults:
        rows = _find(log, fault)
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


def order_finding(log: Log) -> Finding:
    """Whether the rows of files are in order of time."""
    found = []
    for part in log.parts:
        table = readable(log, part.table.mutate(row=part.number(part.table)))
        back = table.select(table.row, back=table.time < table.time.lag())
        rows = log.fetch(back.filter(back.back).select("row").order_by("row").limit(SHOWN))
        found += [f"{part.name} row {row['row']}".strip() for row in rows]
    return _order(found, "Rows are in order of time.")


def group_order_finding(log: Log) -> Finding | None:
    """Whether row groups of Parquet files begin before an earlier one ends.

    Read from the files' statistics, at no cost whatever their size; None if there are none.
    """
    if not all(part.path for part in log.parts):
        return None
    time = log.table["timestamp"].type()
    kind = "DOUBLE" if time.is_numeric() else "VARCHAR" if time.is_string() else "TIMESTAMP"
    found: list[str] = []
    for part in log.parts:
        groups = log.sql(_GROUPS.format(kind=kind), [str(part.path), log.their("timestamp")])
        latest, first = None, 1
        for low, high, rows in groups:
            if low is None or high is None:
                return None
            if latest is not None and low < latest:
                found.append(f"{part.name} rows {first} to {first + rows - 1}".strip())
            latest = high if latest is None else max(latest, high)
            first += rows
    fine = "Row groups are in order of time; rows within them were not compared."
    return _order(found, fine)


_GROUPS = """
    SELECT TRY_CAST(stats_min_value AS {kind}), TRY_CAST(stats_max_value AS {kind}),
      row_group_num_rows
    FROM parquet_metadata(?) WHERE path_in_schema = ? ORDER BY row_group_id"""


def _order(places: list[str], fine: str) -> Finding:
    if not places:
        return Finding("order of rows", "ok", None, fine)
    more = " and maybe more" if len(places) >= SHOWN else ""
    return Finding(
        "order of rows",
        "warn",
        None,
        f"Time goes back in {', '.join(places[:SHOWN])}{more}.",
        "Results do not depend on the order of rows; make sure that the time stamps are right.",
    )


def duplicate_finding(log: Log, table: Any) -> Finding:
    """Whether a unit has several rows at one time, and whether these differ."""
    alike = table.group_by("unit", "timestamp").aggregate(
        rows=table.count(), arms=table.arm.nunique(), rewards=table.r.nunique()
    )
    again = alike.filter((alike.rows > 1) & alike.unit.notnull())
    differ = (again.arms > 1) | (again.rewards > 1)
    [found] = log.fetch(
        again.aggregate(
            more=(again.rows - 1).sum(where=~differ).fill_null(0),
            other=again.count(where=differ),
        )
    )
    name = "duplicate rows"
    if found["other"]:
        return Finding(
            name,
            "fail",
            None,
            f"{found['other']:,} times rows of the same unit and time differ in arm or reward: "
            f"{_places(log, again.filter(differ))}.",
            "Find out which of them is true and leave the others out.",
        )
    if found["more"]:
        return Finding(
            name,
            "warn",
            None,
            f"{found['more']:,} rows repeat another of the same unit, time, arm and reward: "
            f"{_places(log, again)}.",
            "They were counted as often as they stand there; remove them if they are copies.",
        )
    return Finding(name, "ok", None, "No unit has two rows of the same time.")


def _places(log: Log, again: Any) -> str:
    """The rows of the first few of these units and times."""
    keys = ["unit", "timestamp"]
    first = again.order_by(["timestamp", "unit"]).limit(REPEATED).select(*keys)
    places: dict[tuple[Any, Any], list[str]] = {}
    for part in log.parts:
        table = part.table.mutate(row=part.number(part.table))
        rows = table.semi_join(first, keys).select(*keys, "row").order_by(["timestamp", "row"])
        for row in log.fetch(rows.limit(MOST_ROWS)):
            place = f"{part.name} row {row['row']}".strip()
            places.setdefault((row["unit"], row["timestamp"]), []).append(place)
    shown = [f"{' and '.join(rows)} (unit {unit})" for (unit, _), rows in places.items()]
    return ", ".join(shown)
