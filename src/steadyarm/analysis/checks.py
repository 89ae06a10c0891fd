"""Checks of a log: faults that stop an analysis, with the rows that have them, and findings.

Nothing is repaired or guessed; all faults are named at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtr

from steadyarm.analysis.query import readable, usable
from steadyarm.analysis.source import Source
from steadyarm.analysis.units import Rows, Stretch, Units
from steadyarm.errors import InvalidInputError
from steadyarm.inference.health import (
    Finding,
    assignment_finding,
    missing_finding,
    outlier_finding,
    rows_of,
    status_of,
)
from steadyarm.inference.srm import NOTICE, attrition_test, srm_from_sums
from steadyarm.segments import Direction
from steadyarm.wording import counted

SHOWN = 5  # rows that a message names
FEW_CLUSTERS = 20  # below which there is a warning
CONTAMINATED = 0.005  # share of units with several variants above which they need attention


# Faults.


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
    "expected a number above 0 and at most 1: the probability of the row's arm",
    "probability",
    lambda t: usable(t).isnull(),
)
NO_NUMBER = Fault(
    "the reward is {value}",
    "expected a number, or nothing if it is missing",
    "reward",
    lambda t: t.given.notnull() & t.r.isnull(),
)
INFINITE = Fault(  # nan counts as larger than any number
    "the reward is {value}",
    "expected a finite number below 1e150 in size",
    "reward",
    lambda t: t.r.abs() > 1e150,
)
MISSING = Fault(
    "the reward is missing",
    'use missing="drop" to leave these rows out, or missing="zero" to count them as 0',
    "reward",
    lambda t: t.given.isnull(),
)


NO_UNIT = Fault(
    "the unit is {value}",
    "every exposure needs one",
    "unit",
    lambda t: t.unit.isnull() | (t.unit.cast("string") == ""),
)


def no_time(log: Source) -> Fault:
    """The fault of a row without a time stamp."""
    expected = "a time such as 2026-03-01T12:30:00Z, or seconds since 1970, in every row"
    if log.time_format:
        expected = f"a time like {log.time_format!r} in every row"
    return Fault(
        "the time stamp is {value}",
        f"expected {expected}; give the format, such as --time-format '%d/%m/%Y %H:%M', or leave "
        "the column out: --column timestamp=",
        "timestamp",
        lambda t: t.time.isnull(),
    )


def without_cluster(log: Source, table: Any, names: Mapping[str, str]) -> Faults:
    """Rows that say of no cluster which they are of."""
    faults: Faults = []
    for ours, theirs in names.items():
        if ours not in table.columns:
            continue
        where = partial(_is_empty, ours)
        [found] = log.fetch(table.aggregate(n=where(table).sum()))
        if found["n"]:
            advice = "every row needs a cluster; give rows without one a name of their own"
            fault = Fault(f"the cluster {theirs!r} is {{value}}", advice, ours, where)
            faults.append((fault, int(found["n"])))
    return faults


def _is_empty(name: str, table: Any) -> Any:
    column = table[name]
    return column.isnull() | (column == "") if column.type().is_string() else column.isnull()


def faults_in(rows: Rows, missing: str) -> Faults:
    """Find faults in the sums of a log."""

    def count(name: str, among: Rows = rows) -> int:
        return sum(int(row.get(name) or 0) for row in among)

    faults: Faults = []
    if nameless := count("n", [row for row in rows if not row["arm"]]):
        faults.append((NO_ARM, nameless))
    if unusable := count("unusable"):
        faults.append((NO_PROBABILITY, unusable))
    n, m, given = count("n"), count("m"), count("given")
    if broken := n - m if missing == "zero" else given - m:
        faults.append((NO_NUMBER, broken))
    if any(not np.isfinite([row["s"] or 0.0, row["ss"] or 0.0]).all() for row in rows):
        faults.append((INFINITE, 1))
    if missing == "fail" and n > given:
        faults.append((MISSING, n - given))
    return faults


def refuse(log: Source, faults: Faults, table: Any = None) -> None:
    """Raise one error that names all faults, each with its number of rows and the first of them.

    table : with the columns that faults are about; by default the readable log
    """
    lines = []
    for fault, count in faults:
        rows = _rows_with(log, fault, table)
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
        order = "counted from 1" if log.ordered else "in order of time and unit"
        raise InvalidInputError(
            f"{log.name} cannot be analysed (rows are {order}).\n  " + "\n  ".join(lines)
        )


def _rows_with(log: Source, fault: Fault, table: Any) -> list[tuple[str, Any]]:
    """Find the first rows with a fault, and their values."""
    table = number_rows(log, readable(log, log.table) if table is None else table)
    shown: dict[str, Any] = {"row": table.row}
    if fault.column in table.columns:
        shown["value"] = table[fault.column]
    if "unit" in table.columns and not log.ordered:
        shown["unit"] = table.unit.cast("string")
    rows = table.filter(fault.where(table)).select(**shown)
    found = []
    for row in log.fetch(rows.order_by("row").limit(SHOWN)):
        unit = "" if row.get("unit") is None else f" (unit {row['unit']})"
        found.append((f"row {row['row']}{unit}", row.get("value")))
    return found


def number_rows(log: Source, table: Any) -> Any:
    """The table with numbers of rows from 1: in their own order, or by time and unit."""
    import ibis

    if log.ordered:
        return table.mutate(row=ibis.row_number() + 1)
    order = [table[key] for key in ("timestamp", "unit") if key in table.columns]
    return table.mutate(row=ibis.row_number().over(order_by=order) + 1)


# Findings on rows.


def largest_unit(log: Source, table: Any, metric: str, direction: Direction) -> Finding:
    """Whether one unit, or row if units are not known, carries a large part of the variance.

    metric : as people write it, without a cap; empty for a ratio, which has none
    """
    import ibis

    there = table.filter(table.r.notnull())
    if "unit" in there.columns:
        name = there.unit.cast("string").fill_null("")
        each = there.group_by(name=name, arm=there.arm).aggregate(s=there.r.sum(), m=there.count())
    else:
        each = there.select("arm", name=there.time.cast("string"), s=there.r, m=ibis.literal(1))
    by = ibis.window(group_by="arm")
    off = each.s - each.m * each.s.sum().over(by) / each.m.sum().over(by)
    each = each.mutate(square=off * off)
    [found] = log.fetch(
        each.aggregate(
            largest=each.square.max(),
            name=each.name.argmax(each.square),
            total=each.square.sum(),
            units=each.count(),
            sum=each.s.sum(),
            squares=(each.s * each.s).sum(),
            reward=each.s.argmax(each.square),
        )
    )
    share = float(found["largest"] or 0) / float(found["total"] or 1)
    total, squares, reward = (float(found[key] or 0) for key in ("sum", "squares", "reward"))
    unit, units, what = found["name"], found["units"], log.their("reward")
    finding = outlier_finding(unit, share, units, total, squares, reward, what)
    if finding.status == "ok" or reward < 0 or not metric:  # a cap is an upper end of a value
        return finding
    values = there.filter(there.r != 0)
    [most] = log.fetch(values.aggregate(cap=values.r.quantile(0.99)))
    cap = f"{float(most['cap']):.4g}"
    declared = f"{metric} capped at {cap}{', minimize' if direction == 'minimize' else ''}"
    advice = (
        f"99 % of the values other than 0 are at most {cap}. Declare a cap (--metric "
        f"'{declared}', in Python the same text among the metrics) or exclude the unit: it widens "
        "intervals and can decide the test."
    )
    return replace(finding, advice=advice)


NO_DUPLICATES = Finding("duplicate rows", "ok", None, "No unit has two rows of the same time.")


def duplicate_finding(log: Source, table: Any) -> Finding:
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
        text = f"{found['other']:,} times rows of the same unit and time differ in arm or reward"
        advice = "Find out which row is true and leave the others out."
        units = _units_in(log, again.filter(differ))
        return Finding(name, "fail", None, f"{text}: {units}.", advice)
    if found["more"]:
        text = f"{found['more']:,} rows repeat another of the same unit, time, arm and reward"
        advice = "Each copy was counted. Remove copies."
        return Finding(name, "warn", None, f"{text}: {_units_in(log, again)}.", advice)
    return NO_DUPLICATES


def _units_in(log: Source, again: Any) -> str:
    rows = log.fetch(again.order_by(["timestamp", "unit"]).limit(3).select("unit", "timestamp"))
    return ", ".join(f"unit {row['unit']} at {row['timestamp']}" for row in rows)


# Findings on units and assignments.


def unit_finding(units: Units) -> Finding:
    """Whether units that should keep their variant were seen with several, and suffice."""
    if units.too_few:
        return Finding(
            "units",
            "warn",
            None,
            f"The log has only {counted(units.units, 'unit')}. That is too few to estimate "
            "variances.",
            "Check that the column names the units that were assigned. Map another one "
            '(unit=COLUMN), or none (columns={"unit": None}, --column unit=) if rows were drawn '
            "independently.",
        )
    name = f"{units.noun}s"
    whole = f" ({units.cluster})" if units.cluster else ""
    total = f"{counted(units.units, units.noun)}{whole}"
    several = f"{units.several:,} of {total} have rows of several variants"
    if not units.several:
        text = f"Each of {total} keeps its variant."
    elif not units.kept:
        drawn = "within clusters, as in a switchback" if units.cluster else "anew for every row"
        text = f"{several}: variants are drawn {drawn}."
    else:
        text = (
            f"{several}, although the others keep theirs. Every row was counted for its own "
            "variant."
        )
    if units.changed and units.kept and not units.cluster:
        changed = counted(units.changed, "unit keeps its variant", "units keep their variant")
        text += (
            f" {changed} while the logged probability changes; the one of the first row was used, "
            "with which the unit was drawn."
        )
    if units.cluster and units.units < FEW_CLUSTERS:
        text += f" Variances of fewer than {FEW_CLUSTERS} clusters are rough."
        advice = (
            "Intervals account for this (Student's t). Draw variants for more clusters, or draw "
            "them again for each cluster and day (a switchback) and name both: cluster=['store', "
            "'day'], --cluster store --cluster day."
        )
        return Finding(name, "warn", None, text, advice)
    if not units.kept or units.several <= (0 if units.cluster else CONTAMINATED * units.units):
        return Finding(name, "ok", None, text)
    if units.cluster:
        advice = (
            "Find out why. If variants are drawn again for each cluster and day, name both "
            "(cluster=['store', 'day'])."
        )
    else:
        advice = (
            "Find out why (lost cookies, several devices, a changed split). These units dilute "
            "the differences. Check that the result holds without them."
        )
    return Finding(name, "warn", None, text, advice)


def assignments_of(names: Sequence[str], rows: Rows, of: str = "visits") -> Finding:
    """Whether the rows of each arm, each standing for 1/p, stand for all rows.

    rows : sums as `query.row_sums` makes them; of : what rows are, for people
    """
    found = {name: np.zeros(len(names)) for name in ("n", "i0", "i02")}
    least = np.ones(len(names))
    for row in rows:
        k = names.index(row["arm"])
        for name, values in found.items():
            values[k] += float(row[name] or 0.0)
        least[k] = min(least[k], float(row["least"]))
    counts, sums = found["n"].astype(np.int64), found["i0"]
    total = int(counts.sum())
    test = srm_from_sums(names, total, sums, found["i02"] - sums, 1 / least, counts, of)
    used = ", and check the logged probabilities."
    finding = assignment_finding(test, used)
    unseen = not (sums > 0).all()
    return replace(finding, status="warn") if unseen and finding.status == "ok" else finding


def cluster_assignments(log: Source, table: Any, names: Sequence[str]) -> Finding:
    """Whether rows of each arm stand for all rows, where draws are within clusters, somehow.

    The rows of arm k in a cluster, each standing for 1/p, less all of its rows have the expectation
    zero, whichever rows were drawn together. Their sum over clusters is compared with its scatter.

    table : with a cluster in every row, and a column p
    """
    import ibis

    each = table.group_by("unit", "arm").aggregate(n=table.count(), i=(1 / table.p).sum())
    each = each.mutate(size=each.n.sum().over(ibis.window(group_by="unit")))
    of_arm = each.group_by("arm").aggregate(
        n=each.n.sum(), i=each.i.sum(), part=(each.i * (each.i - 2 * each.size)).sum()
    )
    whole = table.group_by("unit").aggregate(m=table.count())
    [total] = log.fetch(
        whole.aggregate(
            units=whole.count(), rows=whole.m.sum(), mm=(whole.m * whole.m).sum().cast("float64")
        )
    )
    found = {row["arm"]: row for row in log.fetch(of_arm)}
    rows, mm = float(total["rows"]), float(total["mm"])
    freedom = max(rows**2 / mm - 1, 1.0)
    seen = [name for name in names if name in found]
    off = np.array([float(found[name]["i"]) - rows for name in seen])
    scatter = np.sqrt(np.array([float(found[name]["part"]) + mm for name in seen]).clip(1e-300))
    t = np.where(np.abs(off) > 1e-9 * rows, off / scatter, 0.0)
    tails = 2 * stdtr(freedom, -np.abs(t))
    p_value, worst = float(min(1.0, tails.min() * len(seen))), int(tails.argmin())
    if p_value >= NOTICE:
        text = f"The rows per variant fit the logged probabilities, by cluster (p = {p_value:.2g})."
        return Finding("assignments", "ok", p_value, text)
    got = int(found[seen[worst]]["n"])
    should = got * rows / float(found[seen[worst]]["i"])
    return Finding(
        "assignments",
        status_of(p_value),
        p_value,
        f"{seen[worst]} got {got:,} of {int(rows):,} rows, by cluster; about {should:,.0f} were "
        f"expected (p = {p_value:.2g}).",
        f"Compare serving and logging of {seen[worst]} with the others (redirects, bots, crashes, "
        "filters), and check the logged probabilities.",
    )


def missing_rewards(
    names: Sequence[str], parts: Sequence[Stretch], missing: int, rows: int
) -> Finding:
    """Whether units of some variants miss rewards more often than those of others.

    Parameters
    ----------
    parts : with units for rows, those that miss no reward as rewarded
    missing, rows : rewards that are missing, and all rows
    """
    if not missing:
        return Finding("missing rewards", "ok", None, "No reward is missing.")
    pieces = [part.logged for part in parts]
    found = attrition_test(names, pieces)
    units, p = f"{int(found.observed.sum()):,} of {rows_of(pieces):,} units", found.p_value
    text = f"{missing:,} of {rows:,} rewards are missing, in {units}"
    alike = f"{text}, in all variants alike (p = {p:.2g})."
    unlike = f"{text}, more often in those of {found.culprit} (p = {p:.2g})."
    return missing_finding(found, alike, unlike, missing, rows)


def visits_finding(log: Source, first: Any, units: Units) -> Finding:
    """Whether units of some variants have more rows than those of others.

    first : as `first_rows` makes it, with a column p. The sum over the units of a variant of their
    rows above the average, each standing for 1/p, is zero on average if the variant does not
    matter to how often units come.
    """
    p, off = first.p, first.visits.cast("float64") - units.rows / units.units
    each = first.group_by("arm").aggregate(
        units=first.count(),
        rows=first.visits.sum(),
        off=(off / p).sum(),
        spread=(off * off * (1 / p - 1) / p).sum(),
    )
    rows = sorted(log.fetch(each), key=lambda row: str(row["arm"]))
    sizes = np.sqrt(np.maximum(_values(rows, "spread"), 1e-300))
    z = np.where(_values(rows, "spread") > 1e-9, _values(rows, "off") / sizes, 0.0)
    tails = 2 * ndtr(-np.abs(z))
    p_value = float(min(1.0, tails.min() * len(rows)))
    worst = rows[int(tails.argmin())]
    name = "visits per unit"
    if p_value >= NOTICE:
        text = f"Units of all variants have similar numbers of rows (p = {p_value:.2g})."
        return Finding(name, "ok", p_value, text)
    mean = float(worst["rows"]) / float(worst["units"])
    text = (
        f"Units of {worst['arm']} have {mean:.3g} rows on average, of all variants "
        f"{units.rows / units.units:.3g} (p = {p_value:.2g})."
    )
    return Finding(
        name,
        "warn",
        p_value,
        text,
        "A variant whose units return more often changes the average over rows. To compare "
        "units, add up the rewards of each unit and analyze one row per unit.",
    )


def _values(rows: Rows, name: str) -> Any:
    return np.array([float(row[name]) for row in rows])
