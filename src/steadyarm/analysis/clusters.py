"""Units with several rows, and clusters of them: variances are by unit, or cluster, not by row.

Rows of one unit are alike: five rows of one customer say less than one row of each of five. The
estimate stays the average over rows. What changes is its variance: the sum of a unit's scores is
one term, in whichever periods and variants its rows are (docs/analyze.md has the proof). A cluster
is a coarser unit, such as a shop with its customers: what is done for units is done for clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

from steadyarm.analysis.allocations import ReferenceFit
from steadyarm.analysis.faults import Fault, Faults
from steadyarm.analysis.log import CLUSTER, Log
from steadyarm.analysis.row_groups import HASHES, no_unit_repeats
from steadyarm.analysis.sums import UNITS, Plan
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import arm_values
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.health import Finding, missing_finding, rows_of, status_of
from steadyarm.inference.sampling_variance import LoggedSegment
from steadyarm.inference.srm import NOTICE, attrition_test
from steadyarm.segments import Direction
from steadyarm.wording import counted

Floats = NDArray[np.float64]
Row = dict[str, Any]
Rows = list[Row]
Vectors = dict[Any, tuple[int, Floats]]  # the arm and the (r,) vector b of each key
Cells = Callable[[dict[Any, Row]], Vectors]  # makes them from a row of sums of each key

SHARE = 64  # one of so many units is read first where the log is too large to group
LEAST_UNITS = 25.0  # of a piece, as many of equal size as say as much
FEW_CLUSTERS = 20  # below which there is a warning
MANY = 1_000  # units of which one is a negligible part of the mean of all
MOST_OF_ALL = 500  # units with more than this part of all rows dominate 20 periods of 25 units
CONTAMINATED = 0.005  # share of units with several variants above which they need attention


@dataclass(frozen=True)
class Units:
    """How often units are in a log.

    Attributes
    ----------
    units, rows : in the log; a row without a unit is one of its own
    repeated : units with several rows
    several : units with rows of several variants
    kept : whether units keep their variant, but for few; else it is drawn anew for every row
    changed : units that keep their variant while the logged probability changes
    nameless : rows without a unit
    cluster : what clusters are, such as "store and day", if units are clusters; else empty
    """

    units: int
    rows: int
    repeated: int
    several: int
    kept: bool
    changed: int
    nameless: int
    cluster: str = ""

    @property
    def too_few(self) -> bool:
        """Whether nothing can be said of variances; of few clusters their freedom says it."""
        return self.units < LEAST_UNITS and not self.cluster

    @property
    def noun(self) -> str:
        """What units are."""
        return "cluster" if self.cluster else "unit"

    @property
    def size(self) -> str:
        """How many units and rows there are."""
        return f"{counted(self.units, self.noun)}, {self.rows:,} rows"

    @property
    def note(self) -> str:
        """What was done, in one sentence."""
        lone = f" {self.nameless:,} rows without a unit count as one each." if self.nameless else ""
        return (
            f"Variance by {self.noun} ({self.size}): estimates are averages over rows, and all "
            f"rows of a {self.noun} count in the period of its first one.{lone}"
        )

    @property
    def assumption(self) -> str:
        """What must be true, in one line."""
        drawn = self.noun if self.kept else "row or several" if self.cluster else "row"
        many = "" if self.cluster else "many units, "
        return (
            f"Variance by {self.noun} ({self.size}): {many}none dominating the sum; variants drawn "
            f"for each {drawn} as recorded; {self.noun}s do not react to each other."
        )


def cluster_columns(given: Any, units: bool) -> dict[str, str]:
    """Our names to theirs of the columns that clusters are made of; the order is that given."""
    if given is None:
        return {}
    names = [given] if isinstance(given, str) else list(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidInputError(
            f"cluster is {given!r}; expected the name of a column, such as 'store', or several, "
            "such as ['store', 'day'].",
            field="cluster",
        )
    if not units:
        raise InvalidInputError(
            "cluster says that rows are not independent, units=False (--no-units) that they are; "
            "give one of them.",
            field="cluster",
        )
    return {f"{CLUSTER}{i}": name for i, name in enumerate(dict.fromkeys(names), 1)}


def with_clusters(log: Log, table: Any, names: Mapping[str, str]) -> Any:
    """The table with clusters for units: texts that tell them apart.

    names : as `cluster_columns` makes them; a period that is no column of the log is that of the
        row's time
    """
    import ibis

    parts = []
    for ours, theirs in names.items():
        if log.has(ours):
            part = table[ours]
            part = part.nullif("") if part.type().is_string() else part.cast("string")
        elif table.time.type().is_timestamp():
            part = Plan(theirs, UNITS[theirs]).bucket(table.time, log.backend).cast("string")
        else:
            raise InvalidInputError(
                f"{log.name} has no column {theirs}, and its time stamps are plain numbers, of "
                f"which a {theirs} is not known; add the column.",
                field="cluster",
            )
        parts.append(part)
    unit = parts[0]
    if len(parts) > 1:  # a stroke within a name is doubled, so that it separates nothing
        unit, *rest = (part.replace("|", "||") for part in parts)
        for part in rest:
            unit = unit.concat(ibis.literal(" | "), part)
    return table.mutate(unit=unit)


def without_cluster(log: Log, table: Any, names: Mapping[str, str]) -> Faults:
    """Rows that say of no cluster which they are of, as a fault."""
    said = {ours: theirs for ours, theirs in names.items() if log.has(ours)}
    faults: Faults = []
    for ours, theirs in said.items():
        [found] = log.fetch(table.aggregate(n=_no_name(ours, table).sum()))
        if found["n"]:
            fault = Fault(
                f"the cluster {theirs} is {{value}}",
                "every row needs one; name rows that are in no cluster by something of their own",
                ours,
                partial(_no_name, ours),
            )
            faults.append((fault, int(found["n"])))
    return faults


def _no_name(ours: str, table: Any) -> Any:
    """Rows whose cell is empty."""
    column = table[ours]
    return column.isnull() | (column == "") if column.type().is_string() else column.isnull()


def count_units(log: Log, table: Any, rows: int, sample: bool, cluster: str = "") -> Units | None:
    """How often units are in the log; None if each has one row and they are no clusters.

    Drawn anew for every row, a unit with several rows has several variants with probability
    1 - p at least. Where less than half as many have, units are taken to keep their variant.

    Parameters
    ----------
    sample : read one of 64 units first, and all only if one of them has several rows
    cluster : what units are if they are clusters
    """
    sample = sample and not cluster
    unique = no_unit_repeats(log, table) if sample else None
    if unique:
        return None
    if sample and unique is None and log.ours and log.backend == "duckdb":
        unit = log.table.get_backend().compile(table.select("unit"))
        # plain SQL: Ibis turns a hash into a signed number by way of text
        query = (
            f"SELECT count(unit) AS seen, count(DISTINCT unit) AS units FROM ({unit}) "
            f"WHERE hash(unit) < {HASHES // SHARE}"
        )
        [found] = log.fetch(lambda: log.table.get_backend().sql(query))
        if found["seen"] == found["units"]:
            return None
    known = table.filter(table.unit.notnull())
    sums = {"n": known.count(), "low": known.arm.min(), "high": known.arm.max()}
    if "p" in known.columns:
        sums |= {"p": known.p.mean(), "least": known.p.min(), "largest": known.p.max()}
    each = known.group_by("unit").aggregate(**sums)
    again = each.n > 1
    totals = {
        "units": each.count(),
        "rows": each.n.sum(),
        "repeated": again.sum(),
        "several": (each.low != each.high).sum(),
    }
    if "p" in known.columns:
        totals["expected"] = (1 - each.p).sum(where=again)
        changes = each.largest - each.least > 1e-9
        totals["changed"] = (again & (each.low == each.high) & changes).sum()
    [found] = log.fetch(each.aggregate(**totals))
    if not found["repeated"] and not cluster:
        return None
    expected = found.get("expected")
    if expected is None:  # shares of the rows stand for probabilities
        arms = log.fetch(table.group_by("arm").aggregate(n=table.count()))
        expected = found["repeated"] * (1 - sum((row["n"] / rows) ** 2 for row in arms))
    nameless = rows - int(found["rows"])
    few = int(found["several"]) < expected / 2 or not found["repeated"]
    return Units(
        int(found["units"]) + nameless,
        rows,
        int(found["repeated"]),
        int(found["several"]),
        few,
        int(found.get("changed") or 0),
        nameless,
        cluster,
    )


def each_with_unit(table: Any) -> Any:
    """The table with a unit in every row: rows without one get one of their own.

    Rows are numbered in an order that only equal rows share, so every query numbers them alike.
    """
    import ibis

    order = [table[name] for name in ("time", "arm", "r", "p") if name in table.columns]
    lone = "row " + ibis.row_number().over(ibis.window(order_by=order)).cast("string")
    unit = "unit " + table.unit.cast("string")
    return table.mutate(unit=ibis.ifelse(table.unit.isnull(), lone, unit))


def with_first_probabilities(table: Any, columns: Sequence[str]) -> Any:
    """The table with the probabilities of each unit's first row, while it keeps its variant.

    A unit that keeps its variant was drawn once. What an adaptive system would have drawn at its
    later visits is not the probability that it is there with.
    """
    import ibis

    window = ibis.window(group_by="unit", order_by=[table.time, table.arm])
    same = table.arm == table.arm.first().over(window)
    first = {name: table[name].first().over(window) for name in columns}
    return table.mutate(**{n: ibis.ifelse(same, first[n], table[n]) for n in columns})


def first_rows(table: Any, columns: Sequence[str]) -> Any:
    """One row for each unit: the columns of its first one, and how many it has, `visits`.

    Its reward r is 1 if all rows have one, else null.
    """
    import ibis

    first = {name: table[name].argmin(table.time) for name in columns}
    each = table.group_by("unit").aggregate(
        **first, time=table.time.min(), visits=table.count(), complete=table.r.count()
    )
    whole = each.complete == each.visits
    return each.mutate(r=ibis.ifelse(whole, 1.0, ibis.null("float64")))


def light_units(table: Any, rows: int) -> Any:
    """The rows of units that dominate no period of the log."""
    import ibis

    size = table.count().over(ibis.window(group_by="unit"))
    return table.mutate(size=size).filter(lambda t: t["size"] <= rows // MOST_OF_ALL).drop("size")


def unit_sums(
    log: Log, table: Any, keys: Sequence[str], plan: Plan, weigh: bool, alone: bool = False
) -> tuple[Any, Any, Any]:
    """Sums over units of what the rows of each add up to, as three Ibis expressions.

    Parameters
    ----------
    table : with a unit in every row
    keys : columns that make rows of a unit differ in their scores: the arm, the allocation
    weigh : whether a row stands for 1/p
    alone : for few units that keep their variant. The reference of the first period is the mean of
        that period, of which such a unit is a part that pulls its score towards zero. Weights of
        these units are raised by M/(M - m_u), which is the same as to compare each of them
        with the mean of all others

    Returns
    -------
    cells : by period of the unit's first row and by keys, rows m, sums s of rewards, i and w of the
        weights and of weighed rewards
    pairs : by period and two sets of keys (the second with _2), sums of the products of a unit's
        m, i and w
    sizes : by period, units and the sum of the cubes of their m
    """
    import ibis

    table = table.filter(table.r.notnull())
    rows = table.count().cast("float64")
    each = table.group_by("unit", *keys).aggregate(
        m=rows,
        s=table.r.sum(),
        i=(1 / table.p).sum() if weigh else rows,
        w=(table.r / table.p).sum() if weigh else table.r.sum(),
        began=table.time.min(),
    )
    start = each.began.min().over(ibis.window(group_by="unit"))
    each = each.mutate(bucket=plan.bucket(start, log.backend)).drop("began")
    if alone:
        size = each.m.sum().over(ibis.window(group_by="unit"))
        others = each.m.sum().over(ibis.window(group_by="bucket")) - size
        first = (each.bucket == each.bucket.min().over(ibis.window())) & (others > 0)
        raised = ibis.ifelse(first, 1 + size / others.nullif(0), 1.0)
        each = each.mutate(i=each.i * raised, w=each.w * raised)
    if log.ours and log.backend == "duckdb":  # computed once for the three
        each = log.kept("rows by unit", each)
    cells = each.group_by("bucket", *keys).aggregate(**{n: each[n].sum() for n in "msiw"})
    other = each.select("unit", *(each[n].name(f"{n}_2") for n in (*keys, "m", "i", "w")))
    both = each.join(other, "unit")
    products = {a + b: (both[a] * both[f"{b}_2"]).sum() for a in "miw" for b in "miw"}
    pairs = both.group_by("bucket", *keys, *(f"{n}_2" for n in keys)).aggregate(**products)
    whole = each.group_by("bucket", "unit").aggregate(m=each.m.sum())
    sizes = whole.group_by("bucket").aggregate(
        units=whole.count(), cubes=(whole.m * whole.m * whole.m).sum()
    )
    return cells, pairs, sizes


@dataclass(frozen=True, eq=False)
class _Cohort:
    """Units whose first row is in one bucket: sums over them, with u's score m_u v + c_u.

    v : (r,) the reference
    rows, units : how many
    scores : (r,) sum of the scores
    mm, mmm : sums of the squares and cubes of m_u
    mc, cc : (r,) and (r, r) sums of m_u c_u and c_u c_u'
    """

    v: Floats
    rows: float
    units: int
    scores: Floats
    mm: float
    mmm: float
    mc: Floats
    cc: Floats

    def around(self, theta: Floats) -> Floats:
        """(r, r) sum over units of (S_u - m_u θ)(S_u - m_u θ)'."""
        off = self.v - theta
        mixed = off[:, None] * self.mc
        return np.asarray(self.mm * off[:, None] * off + mixed + mixed.T + self.cc)


def unit_evidence(
    arms: ArmSet,
    found: Sequence[Rows],
    keys: Sequence[str],
    cells: Cells,
    plan: Plan,
    direction: Direction,
    reference: bool,
    level: float = 0.0,
) -> tuple[Evidence, list[str]]:
    """The evidence of units, in pieces by the period of their first row, and the pieces' labels.

    A unit's score is the sum of those of its rows, m_u v + Σ b (w - i x'v) over its cells. The
    squares are such that scores of single rows with them would have the variance of the units.

    Parameters
    ----------
    found : rows of the three expressions of `unit_sums`
    keys : the columns that make rows of a unit differ
    cells : makes the vectors b
    level : if rewards are adjusted for covariates, the variance of what all arms share of it
    """
    vectors = cells({_key(row, keys): row for row in found[0]})
    sums, pairs, sizes = (_by_bucket(rows) for rows in found)
    buckets = sorted(sums)
    counts, totals = np.zeros(arms.size), np.zeros(arms.size)
    cohorts, fit = [], ReferenceFit(arms)
    for bucket in buckets:
        own, now = sums[bucket], sizes[bucket][0]
        m, s = _column(own, "m"), _column(own, "s")
        v = np.zeros(arms.rank)
        if reference:
            v = fit.to(counts, totals, s.sum() / m.sum())
        cohorts.append(_cohort(arms, own, pairs[bucket], now, keys, vectors, v))
        index = np.array([vectors[_key(row, keys)][0] for row in own])
        np.add.at(counts, index, m)
        np.add.at(totals, index, s)
    rows = np.array([cohort.rows for cohort in cohorts])
    period, labels = plan.periods(buckets, rows.astype(np.int64))
    evidence, named = _pieces(arms, cohorts, period, labels, direction)
    if level:
        shares = evidence.rounds / evidence.played[:, None]
        common = level * np.outer(fit.flat, fit.flat)
        more = shares[:, :, None, None] * common
        evidence = replace(evidence, squares=evidence.squares + more)
    return evidence, named


def _key(row: Row, keys: Sequence[str], end: str = "") -> Any:
    """What identifies a row of sums; of its second half, given "_2"."""
    values = [row[name + end] for name in keys]
    if len(values) == 1:
        return values[0]
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def _by_bucket(rows: Rows) -> dict[Any, Rows]:
    out: dict[Any, Rows] = {}
    for row in rows:
        out.setdefault(row["bucket"], []).append(row)
    return out


def _column(rows: Rows, name: str) -> Floats:
    return np.array([float(row[name]) for row in rows])


def _cohort(
    arms: ArmSet,
    own: Rows,
    pairs: Rows,
    size: dict[str, Any],
    keys: Sequence[str],
    vectors: Vectors,
    v: Floats,
) -> _Cohort:
    values = arm_values(arms.coordinates, v[None])[0]

    def both(rows: Rows, end: str = "") -> tuple[Floats, Floats]:
        """The b of each row's key, and x'v of its arm."""
        found = [vectors[_key(row, keys, end)] for row in rows]
        return np.array([b for _, b in found]), values[[k for k, _ in found]]

    b, g = both(own)
    m = _column(own, "m")
    c = _column(own, "w") - g * _column(own, "i")
    (left, h), (right, g) = both(pairs), both(pairs, "_2")
    of = {name: _column(pairs, name) for name in ("mm", "mi", "mw", "ii", "iw", "wi", "ww")}
    products = of["ww"] - g * of["wi"] - h * of["iw"] + g * h * of["ii"]
    return _Cohort(
        v,
        float(m.sum()),
        int(size["units"]),
        np.asarray(m.sum() * v + (b * c[:, None]).sum(axis=0)),
        float(of["mm"].sum()),
        float(size["cubes"]),
        (right * (of["mw"] - g * of["mi"])[:, None]).sum(axis=0),
        np.asarray((left * products[:, None]).T @ right),
    )


def _pieces(
    arms: ArmSet,
    cohorts: list[_Cohort],
    period: NDArray[np.int64],
    labels: list[str],
    direction: Direction,
) -> tuple[Evidence, list[str]]:
    """Evidence of periods; neighbours with few units are joined."""
    groups: list[tuple[list[_Cohort], list[str]]] = []
    for j, label in enumerate(labels):
        new = [cohort for cohort, place in zip(cohorts, period, strict=True) if place == j]
        if groups and min(_effective(groups[-1][0]), _effective(new)) < LEAST_UNITS:
            groups[-1] = groups[-1][0] + new, [*groups[-1][1], label]
        else:
            groups.append((new, [label]))
    freedom = np.cumsum([max(_effective(group) - 1, 0.0) for group, _ in groups])
    rounds, scores, squares = [], [], []
    for group, _ in groups:
        rows = sum(cohort.rows for cohort in group)
        total = np.sum([cohort.scores for cohort in group], axis=0)
        spread = np.sum([cohort.around(total / rows) for cohort in group], axis=0)
        rounds.append(round(rows))
        scores.append(total)
        squares.append(_correction(group) * spread + total[:, None] * total / rows)
    named = [names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" for _, names in groups]
    evidence = Evidence(
        arms,
        np.array([rounds], dtype=np.int64),
        np.array([scores]),
        np.array([squares]),
        direction=direction,
        freedom=freedom[None],
    )
    return evidence, named


def _effective(group: list[_Cohort]) -> float:
    """As many units of equal size as have the same sum of squared sizes."""
    return sum(c.rows for c in group) ** 2 / max(sum(c.mm for c in group), 1.0)


def _correction(group: list[_Cohort]) -> float:
    """What squares around the mean are too small by, since every unit pulls the mean to itself.

    N/(N - 1) for N units of equal size. In general the expectation of Σ (S_u - m_u θ̂)² if the
    variance of S_u is proportional to m_u², over its value with θ instead of θ̂.
    """
    rows, mm, mmm = (sum(getattr(c, name) for c in group) for name in ("rows", "mm", "mmm"))
    return float(1 / max(1 - 2 * mmm / (rows * mm) + mm / rows**2, 0.05))


def unit_finding(units: Units) -> Finding:
    """Whether units that should keep their variant were seen with several."""
    name, total = "units", f"{units.units:,} units"
    if units.cluster:
        return _cluster_finding(units)
    if units.too_few:
        return Finding(
            name,
            "warn",
            None,
            f"The log has only {counted(units.units, 'unit')}, too few to estimate variances.",
            "See whether the column is who was assigned; map another one (unit=COLUMN), or take "
            "rows as independent (units=False, --no-units) if they were drawn independently.",
        )
    if not units.kept:
        text = (
            f"Variants were drawn anew for every row: {units.several:,} of {total} have rows of "
            "several."
        )
        return Finding(name, "ok", None, text)
    if units.changed:
        changed = counted(units.changed, "unit keeps its variant", "units keep their variant")
        more = (
            f" {changed} while the logged probability changes; the one of the first row was used, "
            "with which the unit was drawn."
        )
    else:
        more = ""
    if not units.several:
        return Finding(name, "ok", None, f"Each of {total} keeps its variant.{more}")
    text = (
        f"{units.several:,} of {total} have rows of several variants, although the others keep "
        f"theirs; every row was counted for the variant that it shows.{more}"
    )
    if units.several <= CONTAMINATED * units.units:
        return Finding(name, "ok", None, text)
    return Finding(
        name,
        "warn",
        None,
        text,
        "Find out why (lost cookies, several devices, a changed split). Such units blur the "
        "differences; see whether the result holds without them.",
    )


def _cluster_finding(units: Units) -> Finding:
    """Whether there are enough clusters, and what was drawn for them."""
    name, total = "clusters", f"{counted(units.units, 'cluster')} ({units.cluster})"
    if not units.kept:
        drawn = (
            f"{units.several:,} of {total} have rows of several variants: variants are drawn "
            "within clusters, as in a switchback"
        )
    elif units.several:
        drawn = (
            f"{units.several:,} of {total} have rows of several variants, although the others keep "
            "theirs"
        )
    else:
        drawn = f"Each of {total} keeps its variant"
    drawn += "."
    if units.units >= FEW_CLUSTERS and (not units.kept or not units.several):
        return Finding(name, "ok", None, drawn)
    if units.units >= FEW_CLUSTERS:
        advice = (
            "Find out why: if variants are drawn anew for every day of a cluster, or so, name both "
            "(cluster=['store', 'day'], --cluster store --cluster day)."
        )
        return Finding(name, "warn", None, drawn, advice)
    return Finding(
        name,
        "warn",
        None,
        f"{drawn} With fewer than {FEW_CLUSTERS} clusters, variances are rough, whatever the "
        "number of rows, and one unusual cluster can decide.",
        "Intervals allow for it (Student's t). Draw variants for more clusters, or anew for every "
        "day of each (a switchback), and name both: cluster=['store', 'day'], --cluster store "
        "--cluster day.",
    )


UNKNOWN_DRAWS = Finding(
    "assignments",
    "warn",
    None,
    "Variants are drawn within clusters, and the log does not say for which rows together; rows "
    "per variant were not compared with the probabilities.",
    "Name what a variant is drawn for, such as cluster=['store', 'day'], --cluster store --cluster "
    "day.",
)


def cluster_assignments(log: Log, table: Any, names: Sequence[str]) -> Finding:
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
        f"{seen[worst]} got {got:,} of {int(rows):,} rows and should have about {should:,.0f}, by "
        f"cluster (p = {p_value:.2g}).",
        f"Compare serving and logging of {seen[worst]} with the others (redirects, bots, crashes, "
        "filters), and see whether the logged probabilities are those that were used.",
    )


def missing_rewards(
    names: Sequence[str], pieces: Sequence[LoggedSegment], missing: int, rows: int
) -> Finding:
    """Whether units of some variants miss rewards more often than those of others.

    Parameters
    ----------
    pieces : with units for rows, those that miss no reward as rewarded
    missing, rows : rewards that are missing, and all rows
    """
    if not missing:
        return Finding("missing rewards", "ok", None, "No reward is missing.")
    found = attrition_test(names, pieces)
    units, p = f"{int(found.observed.sum()):,} of {rows_of(pieces):,} units", found.p_value
    text = f"{missing:,} of {rows:,} rewards are missing, in {units}"
    alike = f"{text}, in all variants alike (p = {p:.2g})."
    unlike = f"{text}, more often in those of {found.culprit} (p = {p:.2g})."
    return missing_finding(found, alike, unlike, missing, rows)


def visits_finding(log: Log, first: Any, units: Units) -> Finding:
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
    sizes = np.sqrt(np.maximum(_column(rows, "spread"), 1e-300))
    z = np.where(_column(rows, "spread") > 1e-9, _column(rows, "off") / sizes, 0.0)
    tails = 2 * ndtr(-np.abs(z))
    p_value = float(min(1.0, tails.min() * len(rows)))
    worst = rows[int(tails.argmin())]
    name = "visits per unit"
    if p_value >= NOTICE:
        text = f"Units of all variants have about as many rows (p = {p_value:.2g})."
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
        "A variant that brings units back changes what an average over rows is about. Add up the "
        "rewards of each unit and analyse one row for each.",
    )
