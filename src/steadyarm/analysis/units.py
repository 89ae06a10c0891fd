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

from steadyarm.analysis.query import UNITS, Floats, Plan
from steadyarm.analysis.source import CLUSTER, COVARIATE, Source
from steadyarm.arms import ArmSet
from steadyarm.covariates import Moments, Slopes
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence, Tails
from steadyarm.inference.srm import LoggedSegment
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.wording import counted

Row = dict[str, Any]
Rows = list[Row]

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


# Covariates: rewards less what slopes, fitted on the other half of the units, explain of them.
# What a unit was drawn does not matter to the slope that it is adjusted with.


def adjust_rewards(
    log: Source, table: Any, names: Sequence[str], single: bool
) -> tuple[Any, float]:
    """The table with adjusted rewards, and the variance of what all arms share of it.

    Units are numbered in their order; those with even numbers are one half, the others the other.

    Parameters
    ----------
    table : as `query.readable` makes it, with a unit in every row unless each is one (`single`)
    names : the names of the arms
    """
    import ibis

    used = table.filter(table.r.notnull())
    c = sum(name.startswith(COVARIATE) for name in table.columns) + 1
    if single:
        names_of_rows = ("time", "arm", "r", *(f"z{a}" for a in range(c)))
        order = [used[name] for name in names_of_rows]
        used = used.mutate(half=ibis.row_number().over(ibis.window(order_by=order)) % 2)
        terms = {f"x{a + 2}": used[f"z{a}"] for a in range(c)}
        each = used.select("half", "arm", x0=ibis.literal(1), x1=used.r, **terms)
    else:
        units = used.select("unit").distinct()
        place = ibis.row_number().over(ibis.window(order_by=units.unit))
        used = used.join(log.keep("halves of units", units.mutate(half=place % 2)), "unit")
        each = used.group_by("half", "unit", "arm").aggregate(
            x0=used.count().cast("float64"),
            x1=used.r.sum(),
            **{f"x{a + 2}": used[f"z{a}"].sum() for a in range(c)},
        )
    products = {
        f"x{a}_{b}": (each[f"x{a}"] * each[f"x{b}"]).sum().cast("float64")
        for a in range(c + 2)
        for b in range(a + 1)
    }
    rows = log.fetch(
        each.group_by("half", "arm").aggregate(
            units=each.count(),
            **{f"x{a}": each[f"x{a}"].sum().cast("float64") for a in range(c + 2)},
            **products,
        )
    )
    fitted, level = fit_halves(rows, names, c)
    change = ibis.literal(0.0)
    for h, (beta, mean) in enumerate(fitted):
        off = ibis.literal(0.0)
        for a in range(c):
            off = off + float(beta[a]) * (used[f"z{a}"] - float(mean[a]))
        change = ibis.ifelse(used.half == h, off, change)
    return used.mutate(r=used.r - change).drop("half"), level


def fit_halves(
    rows: Rows, names: Sequence[str], c: int
) -> tuple[list[tuple[Floats, Floats]], float]:
    """For each half the slopes (c,) of the other one, and the mean of its covariates.

    Also returns the variance of what all arms share of the adjustment.

    rows : by half and arm, sums over units of x0 (rows), x1 (rewards), x2, … (covariates) and of
        their products
    """
    parts = [_around_means([row for row in rows if row["half"] == h], names, c) for h in (0, 1)]
    fitted, level = [], 0.0
    for h, (_, moments, mean) in enumerate(parts):
        stats, others, _ = parts[1 - h]
        beta = Slopes.none(1, c).after(stats, others).fit(moments)[0]
        fitted.append((beta, mean))
        level += float(beta @ moments.squares[0].sum(axis=0) @ beta)
    return fitted, level


def _around_means(rows: Rows, names: Sequence[str], c: int) -> tuple[SegmentStats, Moments, Floats]:
    """Sums over units of how far their rewards and covariates are from a row's mean, by arm.

    The mean of rewards is that of the arm, that of covariates is of all rows, and returned.
    """
    X = np.zeros((len(names), c + 2))  # rows, rewards, covariates
    XX, units = np.zeros((len(names), c + 2, c + 2)), np.zeros(len(names), dtype=np.int64)
    for row in rows:
        k = names.index(row["arm"])
        units[k] += int(row["units"])
        for a in range(c + 2):
            X[k, a] += row[f"x{a}"]
            for b in range(a + 1):
                XX[k, a, b] += row[f"x{a}_{b}"]
                XX[k, b, a] = XX[k, a, b]
    if not np.isfinite(XX).all():
        raise InvalidInputError(
            "a covariate has values that are infinite or too large; correct them, or leave the "
            "covariate out.",
            field="covariates",
        )
    mean = X[:, 2:].sum(axis=0) / max(X[:, 0].sum(), 1.0)
    found = Moments.empty(1, len(names), c)
    sums, squares = np.zeros((1, len(names))), np.zeros((1, len(names)))
    for k in range(len(names)):
        off = np.zeros((c + 1, c + 2))  # takes sums of a unit to distances from the means
        off[:, 1:] = np.eye(c + 1)
        off[0, 0] = -X[k, 1] / max(X[k, 0], 1.0)
        off[1:, 0] = -mean
        whole = off @ XX[k] @ off.T
        sums[0, k], squares[0, k] = off[0] @ X[k], whole[0, 0]
        found.assigned[0, k] = units[k]
        found.seen[0, k], found.squares[0, k] = off[1:] @ X[k], whole[1:, 1:]
        found.products[0, k] = whole[0, 1:]
    moments = replace(found, totals=found.seen, total_squares=found.squares)
    return SegmentStats(units[None], sums, squares), moments, np.asarray(mean)
