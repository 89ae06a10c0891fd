"""What is wrong with a log, with the numbers of the rows: searched only if the sums show a fault.

Nothing is repaired or guessed; all that is found is said at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyarm.analysis.log import Log
from steadyarm.analysis.row_groups import row_groups
from steadyarm.analysis.sums import readable, usable
from steadyarm.errors import InvalidInputError
from steadyarm.inference.health import Finding, outlier_finding
from steadyarm.wording import span, strung

SHOWN = 5  # rows that a message names
NORMAL = 60  # seconds by which time goes back where several write to a log
LONGEST = 4 * 3600  # seconds by which a clock is set back, at most
FEW = 2  # times that this happens
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

NO_ARM = Fault(
    "the arm is {value}", "every row needs one", "arm", lambda t: t.arm.isnull() | (t.arm == "")
)
NO_PROBABILITY = Fault(
    "the probability is {value}",
    "expected a number above 0 and at most 1: the one with which the row's arm was drawn",
    "probability",
    lambda t: usable(t).isnull(),
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
    'say missing="drop" to leave such rows out, or missing="zero" to count them as 0 (--missing '
    "drop, --missing zero)",
    "reward",
    lambda t: t.reward.isnull(),
)


def _unknown_arm(names: Sequence[str]) -> Fault:
    return Fault(
        "the arm {value} was never possible",
        f"the arms are {strung(list(map(repr, names)), 8)}",
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


def no_time(log: Log, option: str = "query", source: str = "log") -> Fault:
    """The fault of a row without a time stamp; see `into_times`."""
    return Fault(
        "the time stamp is {value}",
        "expected ISO 8601 such as 2026-03-01T12:30:00Z in every row; "
        + into_times(log, option, source),
        "timestamp",
        lambda t: t.time.isnull(),
    )


def into_times(log: Log, option: str, source: str) -> str:
    """How to turn seconds since 1970 into times, by a query in an option of the command."""
    name = log.their("timestamp").replace('"', '""')
    return (
        f"turn seconds since 1970 into times by a query: --{option} 'select * replace "
        f'(to_timestamp("{name}"::double) as "{name}") from {source}\''
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
    if nameless := count("n", [row for row in rows if not row["arm"]]):
        faults.append((NO_ARM, nameless))
    if names is not None:
        known = {None, "", *names}
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
            lines.append(f"{', '.join(places)}: {fault.says.replace('{value}', value)}")
        if not rows:
            lines.append(f"{fault.says.replace('{value}', 'not usable')} somewhere")
        rest = f" {count:,} rows in all." if count > len(rows) else ""
        lines[-1] += f"; {fault.advice}.{rest}"
    if lines:
        raise InvalidInputError(
            f"{log.name} cannot be analysed (rows are {log.counted}).\n  " + "\n  ".join(lines)
        )


def order_finding(log: Log) -> Finding:
    """Whether the clock of a file was set back.

    Rows may be in any order, such as by unit or by worker. But where time runs forward all along
    and goes back a few times by some minutes or hours, a clock was changed.
    """
    places, moved = [], False
    for part in log.parts:
        table = readable(log, part.table.mutate(row=part.number(part.table)))
        clock = (
            table.time
            if table.time.type().is_numeric()
            else table.time.truncate("s").epoch_seconds()
        )
        steps = table.select("row", clock=clock)
        steps = steps.mutate(back=steps.clock.lag() - steps.clock)
        [found] = log.fetch(
            steps.aggregate(
                rows=steps.count(),
                first=steps.clock.min(),
                last=steps.clock.max(),
                back=steps.count(where=steps.back > 0),
                far=steps.count(where=steps.back > NORMAL),
                most=steps.back.max(),
            )
        )
        moved = moved or bool(found["back"])
        few = 0 < found["far"] <= max(FEW, found["rows"] // 1000)
        dated = not table.time.type().is_numeric()
        if few and dated and found["most"] <= min(LONGEST, (found["last"] - found["first"]) / 2):
            far = steps.filter(steps.back > NORMAL).order_by("row").limit(SHOWN)
            for row in log.fetch(far.select("row", "back")):
                place = f"{part.name} row {row['row']}".strip()
                places.append(f"{place} (by {span(float(row['back']))})")
    if not places:
        other = "Rows are in another order than their times, which changes nothing."
        return Finding(
            "order of rows", "ok", None, other if moved else "Rows are in order of time."
        )
    return Finding(
        "order of rows",
        "warn",
        None,
        f"Time runs forward, but goes back in {', '.join(places[:SHOWN])}.",
        "Make sure that time stamps are in UTC and no clock was changed; local times go back when "
        "summer ends. Only periods and drift depend on it.",
    )


def group_order_finding(log: Log) -> Finding | None:
    """Whether row groups of Parquet files begin before an earlier one ends.

    Read from the files' statistics, at no cost whatever their size; None if there are none.
    """
    time = log.table["timestamp"].type()
    kind = "DOUBLE" if time.is_numeric() else "VARCHAR" if time.is_string() else "TIMESTAMP"
    groups = row_groups(log, "timestamp", kind, exact=False)
    if groups is None or any(group.low is None or group.high is None for group in groups):
        return None
    found: list[str] = []
    latest: dict[int, Any] = {}  # by file
    for group in groups:
        before = latest.get(group.part, group.low)
        if group.low < before:
            name = log.parts[group.part].name
            found.append(f"{name} rows {group.first + 1} to {group.last + 1}".strip())
        latest[group.part] = max(before, group.high)
    fine = "Row groups are in order of time; rows within them were not compared."
    return _order(found, fine)


def _order(places: list[str], fine: str) -> Finding:
    if not places:
        return Finding("order of rows", "ok", None, fine)
    more = " and maybe more" if len(places) > SHOWN else ""
    other = f"Time goes back in {', '.join(places[:SHOWN])}{more}, which changes nothing."
    return Finding("order of rows", "ok", None, other)


def largest_unit(log: Log, table: Any) -> Finding:
    """Whether one unit, or row if units are not known, carries a large part of the variance."""
    import ibis

    there = table.filter(table.r.notnull())
    name = there.unit if "unit" in there.columns else there.time
    name = name.cast("string").fill_null("")
    each = there.group_by(name=name, arm=there.arm).aggregate(s=there.r.sum(), m=there.count())
    by = ibis.window(group_by="arm")
    off = each.s - each.m * each.s.sum().over(by) / each.m.sum().over(by)
    each = each.mutate(square=off * off)
    [found] = log.fetch(
        each.aggregate(
            largest=each.square.max(),
            name=each.name.argmax(each.square),
            total=each.square.sum(),
            units=each.count(),
            rewarded=(each.s != 0).sum(),
        )
    )
    share = float(found["largest"] or 0) / float(found["total"] or 1)
    rewarded = int(found["rewarded"] or 0)
    return outlier_finding(found["name"], share, found["units"], rewarded, log.their("reward"))


NO_DUPLICATES = Finding("duplicate rows", "ok", None, "No unit has two rows of the same time.")


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
    name = NO_DUPLICATES.name
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
    return NO_DUPLICATES


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
