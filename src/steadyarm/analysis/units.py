"""From rows to evidence: each unit is one term, with the sum of the scores of its rows.

Rows of one unit are alike: five rows of one customer say less than one row of each of five. The
estimate is the average over rows; its variance is that of sums over units, in whichever periods
and variants their rows are (proof: docs/research/technical_note.md). A unit with one row is the
plain case, and a cluster, such as a shop with its customers, is a coarser unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

from steadyarm.analysis.query import UNITS, Floats, Plan, Rows
from steadyarm.analysis.source import CLUSTER, Source
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence, Tails
from steadyarm.inference.health import (
    NOTICE,
    Finding,
    LoggedSegment,
    assignment_finding,
    attrition_test,
    missing_finding,
    outlier_finding,
    rows_of,
    srm_from_sums,
    status_of,
)
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.wording import counted

FEW_CLUSTERS = 20  # below which there is a warning
CONTAMINATED = 0.005  # share of units with several variants above which they need attention
LEAST_UNITS = 25.0  # of a piece, as many of equal size as say as much
MANY = 1_000  # units of which one is a negligible part of the mean of all
LEAST_REWARDS = 200  # of every variant in a stretch of time: few enough would cost precision
SUMS = ("n", "m", "s", "ss", "sss")  # of a stretch of time, by arm
CUBES = ("ii", "iii", "wii", "wwi", "www")  # products of weights i and weighed rewards w


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
        """The noun for units."""
        return "cluster" if self.cluster else "unit"

    @property
    def size(self) -> str:
        """The numbers of units and rows."""
        return f"{counted(self.units, self.noun)}, {self.rows:,} rows"

    @property
    def note(self) -> str:
        """Describe the analysis by unit in one sentence."""
        lone = f" {self.nameless:,} rows without a unit count as one each." if self.nameless else ""
        return (
            f"Variance by {self.noun} ({self.size}): estimates are averages over rows, and all "
            f"rows of a {self.noun} count in the period of its first one.{lone}"
        )

    @property
    def assumption(self) -> str:
        """State the assumption in one line."""
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
            "cluster is given, but columns declare that there are no units; give one of them.",
            field="cluster",
        )
    return {f"{CLUSTER}{i}": name for i, name in enumerate(dict.fromkeys(names), 1)}


def with_clusters(log: Source, table: Any, names: Mapping[str, str]) -> Any:
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
        elif log.has("timestamp"):
            part = Plan(theirs, UNITS[theirs]).bucket(table.time).cast("string")
        else:
            raise InvalidInputError(
                f"{log.name} has no column {theirs!r} and no times to compute it from; add "
                "the column.",
                field="cluster",
            )
        parts.append(part)
    unit = parts[0]
    if len(parts) > 1:  # a stroke within a name is doubled, so that it separates nothing
        unit, *rest = (part.replace("|", "||") for part in parts)
        for part in rest:
            unit = unit.concat(ibis.literal(" | "), part)
    return table.mutate(unit=unit)


def count_units(log: Source, table: Any, rows: int, cluster: str = "") -> Units | None:
    """How often units are in the log; None if each has one row and they are no clusters.

    Drawn anew for every row, a unit with several rows has several variants with probability
    1 - p at least. Where less than half as many have, units are taken to keep their variant.

    cluster : what units are if they are clusters
    """
    known = table.filter(table.unit.notnull())
    each = known.group_by("unit").aggregate(
        n=known.count(),
        low=known.arm.min(),
        high=known.arm.max(),
        p=known.p.mean(),
        least=known.p.min(),
        largest=known.p.max(),
    )
    again = each.n > 1
    changes = each.largest - each.least > 1e-9
    [found] = log.fetch(
        each.aggregate(
            units=each.count(),
            rows=each.n.sum(),
            repeated=again.sum(),
            several=(each.low != each.high).sum(),
            expected=(1 - each.p).sum(where=again),
            changed=(again & (each.low == each.high) & changes).sum(),
        )
    )
    if not found["repeated"] and not cluster:
        return None
    expected = float(found["expected"] or 0.0)
    nameless = rows - int(found["rows"] or 0)
    few = int(found["several"] or 0) < expected / 2 or not found["repeated"]
    return Units(
        int(found["units"]) + nameless,
        rows,
        int(found["repeated"] or 0),
        int(found["several"] or 0),
        few,
        int(found["changed"] or 0),
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
    done = ibis.ifelse(whole, 1.0, ibis.null("float64"))
    return each.mutate(r=done, given=done)


@dataclass(frozen=True, eq=False)
class Stretch:
    """Rows of one period of time that had one allocation.

    Attributes
    ----------
    weights : (K,) the allocation
    n, m, s, ss, sss : (K,) rows, rows with reward, sums of rewards, their squares and cubes
    """

    weights: Floats
    n: NDArray[np.int64]
    m: NDArray[np.int64]
    s: Floats
    ss: Floats
    sss: Floats

    @property
    def thirds(self) -> Floats:
        """(K,) sum of the cubes of the distances of rewards from the mean of their arm."""
        mean = self.s / np.maximum(self.m, 1)
        return np.asarray(self.sss - 3 * mean * self.ss + 2 * self.m * mean**3)

    @property
    def stats(self) -> SegmentStats:
        """The sums of the rows with a reward."""
        return SegmentStats(self.m[None], self.s[None], self.ss[None])

    @property
    def logged(self) -> LoggedSegment:
        """The sums that health checks need."""
        segment = Segment(self.weights[None], np.array([self.n.sum()]))
        return LoggedSegment(segment, self.n[None], self.m[None])

    def __add__(self, other: Stretch) -> Stretch:
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMS}
        return replace(self, **sums)


def stretches(rows: Rows, arms: ArmSet, allocations: Sequence[Floats]) -> list[Stretch]:
    """Stretches in order of time and split; without allocations the shares of the rows are used."""
    place = {name: k for k, name in enumerate(arms.names)}
    groups: dict[Any, Rows] = {}
    for row in sorted(rows, key=lambda row: (row["bucket"], row.get("split", 0))):
        groups.setdefault((row["bucket"], row.get("split", 0)), []).append(row)
    found = []
    for (_, split), group in groups.items():
        sums = {name: np.zeros(arms.size) for name in SUMS}
        for row in group:
            for name, values in sums.items():
                values[place[row["arm"]]] += float(row[name] or 0.0)
        n, m = sums["n"].astype(np.int64), sums["m"].astype(np.int64)
        weights = allocations[split] if allocations else n / max(n.sum(), 1)
        found.append(Stretch(weights, n, m, sums["s"], sums["ss"], sums["sss"]))
    return found


# Evidence.


def randomised_evidence(
    arms: ArmSet, parts: Sequence[Stretch], direction: Direction, level: float | None = None
) -> Evidence | None:
    """The evidence of single rows that were drawn with fixed shares, as complete randomisation.

    Given how many rows each arm got, every choice of these rows was equally likely, whatever
    happens over time: the mean of an arm's rewards in a stretch is unbiased for all its rows.
    Neighbours of one split are joined until each arm has 200 rewards, which costs less than a
    hundredth of the precision that plain means of everything would have if nothing drifts.

    level : if rewards are adjusted for covariates, the variance of what all arms share of it

    Returns
    -------
    None if an arm has fewer than two rewards in a stretch
    """
    used = [part for part in parts if part.m.sum()]
    joined: list[Stretch] = []
    for _, run in groupby(used, key=lambda part: tuple(part.weights)):
        groups: list[Stretch] = []
        for part in run:
            if groups and groups[-1].m.min() < LEAST_REWARDS:
                groups[-1] += part
            else:
                groups.append(part)
        if len(groups) > 1 and groups[-1].m.min() < LEAST_REWARDS:
            last = groups.pop()
            groups[-1] += last
        joined += groups
    if any(part.m.min() < 2 for part in joined):
        return None
    rewards = np.array([part.m.sum() for part in joined])
    segments = [
        Segment((part.m / total)[None], np.array([total]), "shuffled")
        for part, total in zip(joined, rewards, strict=True)
    ]
    seen, sums = np.zeros(arms.size), np.zeros(arms.size)
    played = []
    for part, segment in zip(joined, segments, strict=True):
        reference = _reference(seen, sums, part.s.sum() / part.m.sum())
        played.append((replace(segment, reference=reference[None]), part.stats))
        seen, sums = seen + part.m, sums + part.s
    levels = None if level is None else [np.array([level * m]) for m in rewards / rewards.sum()]
    found = Evidence.from_segments(
        arms, played, direction, None if level is None else False, levels
    )
    m, thirds = (np.array([getattr(part, name) for part in joined]) for name in ("m", "thirds"))
    inverse = m.sum(axis=1, keepdims=True) / m
    return replace(found, tails=Tails(inverse**3 * thirds, inverse**2 * m, inverse**3 * m))


def _reference(counts: Floats, sums: Floats, default: float) -> Floats:
    """(K,) means of earlier rewards, where there are any; `default` if there are none at all."""
    seen = counts.sum()
    common = sums.sum() / seen if seen else default
    return np.where(counts > 0, sums / np.maximum(counts, 1), common)


def single_sums(rows: Rows) -> tuple[Rows, Rows, Rows]:
    """What `unit_sums` finds if every row is a unit of its own, from the sums of rows."""
    cells, pairs, sizes = [], [], []
    for row in rows:
        if not row["m"]:
            continue
        m, i, w, ii, iw, ww = (float(row[name]) for name in ("m", "i1", "w", "i2", "w2", "ww"))
        key = {"bucket": row["bucket"], "arm": row["arm"]}
        cubes = ("i2", "i3", "w3", "ww3", "www")
        thirds = {name: row[sums] for name, sums in zip(CUBES, cubes, strict=True)}
        cells.append(key | {"m": m, "s": row["s"], "i": i, "w": w} | thirds)
        products = {"mi": i, "mw": w, "ii": ii, "iw": iw, "wi": iw, "ww": ww}
        pairs.append(key | {"arm_2": row["arm"]} | products)
        sizes.append({"bucket": row["bucket"], "units": m, "mm": m, "cubes": m})
    return cells, pairs, sizes


def unit_sums(log: Source, table: Any, plan: Plan, alone: bool) -> tuple[Rows, Rows, Rows]:
    """Sums over units of what the rows of each add up to, each row standing for 1/p.

    Parameters
    ----------
    table : with a unit in every row
    alone : for few units that keep their variant. The reference of the first period is the mean of
        that period, of which such a unit is a part that pulls its score towards zero. Weights of
        these units are raised by M/(M - m_u), which is the same as to compare each of them
        with the mean of all others

    Returns
    -------
    cells : by period of the unit's first row and by arm, rows m, sums s of rewards, i and w of the
        weights and of weighed rewards, and of the products of these in CUBES
    pairs : by period and two arms (the second with _2), sums of the products of a unit's m, i and w
    sizes : by period, units and the sums of the squares and cubes of their m
    """
    import ibis

    table = table.filter(table.r.notnull())
    rows = table.count().cast("float64")
    each = table.group_by("unit", "arm").aggregate(
        m=rows,
        s=table.r.sum(),
        i=(1 / table.p).sum(),
        w=(table.r / table.p).sum(),
        began=table.time.min(),
    )
    start = each.began.min().over(ibis.window(group_by="unit"))
    each = each.mutate(bucket=plan.bucket(start)).drop("began")
    if alone:
        size = each.m.sum().over(ibis.window(group_by="unit"))
        others = each.m.sum().over(ibis.window(group_by="bucket")) - size
        first = (each.bucket == each.bucket.min().over(ibis.window())) & (others > 0)
        raised = ibis.ifelse(first, 1 + size / others.nullif(0), 1.0)
        each = each.mutate(i=each.i * raised, w=each.w * raised)
    each = log.keep("rows by unit", each)  # computed once for the three
    i, w = each.i, each.w
    thirds = (i * i, i * i * i, w * i * i, w * w * i, w * w * w)
    cells = each.group_by("bucket", "arm").aggregate(
        **{n: each[n].sum() for n in "msiw"},
        **{name: product.sum() for name, product in zip(CUBES, thirds, strict=True)},
    )
    other = each.select("unit", *(each[n].name(f"{n}_2") for n in ("arm", "m", "i", "w")))
    both = each.join(other, "unit")
    products = {a + b: (both[a] * both[f"{b}_2"]).sum() for a in "miw" for b in "iw"}
    pairs = both.group_by("bucket", "arm", "arm_2").aggregate(**products)
    whole = each.group_by("bucket", "unit").aggregate(m=each.m.sum())
    sizes = whole.group_by("bucket").aggregate(
        units=whole.count(),
        mm=(whole.m * whole.m).sum(),
        cubes=(whole.m * whole.m * whole.m).sum(),
    )
    sums = [log.fetch(part) for part in (cells, pairs, sizes)]
    return sums[0], sums[1], sums[2]


@dataclass(frozen=True, eq=False)
class _Cohort:
    """Units whose first row is in one bucket: sums over them, with u's score m_u v + c_u.

    v : (K,) the reference
    rows, units : how many
    scores : (K,) sum of the scores
    mm, mmm : sums of the squares and cubes of m_u
    mc, cc : (K,) and (K, K) sums of m_u c_u and c_u c_u'
    cubes : (5, K) sums of the products in CUBES
    """

    v: Floats
    rows: float
    units: int
    scores: Floats
    mm: float
    mmm: float
    mc: Floats
    cc: Floats
    cubes: Floats

    def around(self, theta: Floats) -> Floats:
        """(K, K) sum over units of (S_u - m_u θ)(S_u - m_u θ)'."""
        off = self.v - theta
        mixed = off[:, None] * self.mc
        return np.asarray(self.mm * off[:, None] * off + mixed + mixed.T + self.cc)


def unit_evidence(
    arms: ArmSet,
    found: Sequence[Rows],
    plan: Plan,
    direction: Direction,
    level: float = 0.0,
) -> tuple[Evidence, Evidence, list[str]]:
    """The evidence of units, in pieces by the period of their first row.

    Also the evidence that drift is told from, with the labels of its pieces: where large units
    leave one piece alone, this leaves out the periods that such units dominate.

    A unit's score is the sum of those of its rows, m_u v + Σ e_k (w - i v_k) over its arms k. The
    squares are such that scores of single rows with them would have the variance of the units.

    Parameters
    ----------
    found : what `unit_sums` or `single_sums` returned
    level : if rewards are adjusted for covariates, the variance of what all arms share of it
    """
    place = {name: k for k, name in enumerate(arms.names)}
    sums, pairs, sizes = (_by_bucket(rows, place) for rows in found)
    buckets = sorted(sums)
    counts, totals, cohorts = np.zeros(arms.size), np.zeros(arms.size), []
    for bucket in buckets:
        m, s = (_by_arm(arms, sums[bucket], name) for name in "ms")
        v = _reference(counts, totals, s.sum() / m.sum())
        cohorts.append(_cohort(arms, sums[bucket], pairs[bucket], sizes[bucket], v))
        counts, totals = counts + m, totals + s
    rows = np.array([cohort.rows for cohort in cohorts])
    period, labels = plan.periods(buckets, rows.astype(np.int64))
    groups = _join(cohorts, period, labels, LEAST_UNITS)
    calm = groups
    if len(groups) == 1:
        calm = [group for group in _join(cohorts, period, labels, 0.0) if group.units > LEAST_UNITS]
    evidence = timeline = _pieces(arms, groups, direction, level)
    if len(calm) > 1:
        groups, timeline = calm, _pieces(arms, calm, direction, level)
    return evidence, timeline, [group.label for group in groups]


def _by_bucket(rows: Rows, place: Mapping[str, int]) -> dict[Any, Rows]:
    """Rows of each bucket, with the numbers of arms for their names."""
    out: dict[Any, Rows] = {}
    for row in rows:
        arms = {name: place[row[name]] for name in ("arm", "arm_2") if name in row}
        out.setdefault(row["bucket"], []).append(row | arms)
    return out


def _by_arm(arms: ArmSet, rows: Rows, name: str) -> Floats:
    """(K,) a sum by arm."""
    found = np.zeros(arms.size)
    for row in rows:
        found[row["arm"]] += float(row[name])
    return found


def _cohort(arms: ArmSet, own: Rows, pairs: Rows, sizes: Rows, v: Floats) -> _Cohort:
    sums = {name: _by_arm(arms, own, name) for name in ("m", "i", "w", *CUBES)}
    of = {name: np.zeros((arms.size, arms.size)) for name in ("mi", "mw", "ii", "iw", "wi", "ww")}
    for row in pairs:
        for name, values in of.items():
            values[row["arm"], row["arm_2"]] += float(row[name])
    rows = float(sums["m"].sum())
    return _Cohort(
        v,
        rows,
        int(sum(row["units"] for row in sizes)),
        rows * v + sums["w"] - v * sums["i"],
        float(sum(row["mm"] for row in sizes)),
        float(sum(row["cubes"] for row in sizes)),
        (of["mw"] - v * of["mi"]).sum(axis=0),
        of["ww"] - v * of["wi"] - v[:, None] * of["iw"] + v[:, None] * v * of["ii"],
        np.stack([sums[name] for name in CUBES]),
    )


@dataclass(frozen=True, eq=False)
class _Group:
    """Neighbouring periods that make one piece."""

    cohorts: list[_Cohort]
    labels: list[str]

    @property
    def rows(self) -> float:
        return sum(cohort.rows for cohort in self.cohorts)

    @property
    def units(self) -> float:
        """As many units of equal size as have the same sum of squared sizes."""
        return self.rows**2 / max(sum(cohort.mm for cohort in self.cohorts), 1.0)

    @property
    def label(self) -> str:
        return self.labels[0] if len(self.labels) == 1 else f"{self.labels[0]} to {self.labels[-1]}"


def _join(
    cohorts: list[_Cohort], period: NDArray[np.int64], labels: list[str], least: float
) -> list[_Group]:
    """The periods; neighbours with fewer than `least` units are joined."""
    groups: list[_Group] = []
    for j, label in enumerate(labels):
        own = [cohort for cohort, place in zip(cohorts, period, strict=True) if place == j]
        new = _Group(own, [label])
        if groups and min(groups[-1].units, new.units) < least:
            last = groups.pop()
            new = _Group(last.cohorts + new.cohorts, [*last.labels, label])
        groups.append(new)
    return groups


def _pieces(arms: ArmSet, groups: Sequence[_Group], direction: Direction, level: float) -> Evidence:
    """Evidence of groups of periods; level : as in `unit_evidence`."""
    freedom = np.cumsum([max(group.units - 1, 0.0) for group in groups])
    every = sum(group.rows for group in groups)
    rounds, scores, squares = [], [], []
    for group in groups:
        rows = group.rows
        total = np.sum([cohort.scores for cohort in group.cohorts], axis=0)
        spread = np.sum([cohort.around(total / rows) for cohort in group.cohorts], axis=0)
        rounds.append(round(rows))
        scores.append(total)
        more = total[:, None] * total / rows + rows / every * level
        squares.append(_correction(group.cohorts) * spread + more)
    theta = np.sum(scores, axis=0) / sum(rounds)
    cubes = np.array([np.sum([c.cubes for c in group.cohorts], axis=0) for group in groups])
    once, twice, wii, wwi, www = cubes.swapaxes(0, 1)
    thirds = www - 3 * theta * wwi + 3 * theta**2 * wii - theta**3 * twice
    tails = Tails(thirds, once, twice) if once.any(axis=0).all() else None
    return Evidence(
        arms,
        np.array([rounds], dtype=np.int64),
        np.array([scores]),
        np.array([squares]),
        direction=direction,
        freedom=freedom[None],
        tails=tails,
    )


def _correction(group: list[_Cohort]) -> float:
    """What squares around the mean are too small by, since every unit pulls the mean to itself.

    N/(N - 1) for N units of equal size. In general the expectation of Σ (S_u - m_u θ̂)² if the
    variance of S_u is proportional to m_u², over its value with θ instead of θ̂.
    """
    rows, mm, mmm = (sum(getattr(c, name) for c in group) for name in ("rows", "mm", "mmm"))
    return float(1 / max(1 - 2 * mmm / (rows * mm) + mm / rows**2, 0.05))


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
            "(unit=COLUMN), or none (Columns(unit=None), --column unit=) if rows were drawn "
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
