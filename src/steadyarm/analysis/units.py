"""From rows to evidence: each unit is one term, with the sum of the scores of its rows.

Rows of one unit are alike: five rows of one customer say less than one row of each of five. The
estimate is the average over rows; its variance is that of sums over units, in whichever periods
and variants their rows are (proof: docs/research/technical_note.md). A unit with one row is the
plain case, and a cluster, such as a shop with its customers, is a coarser unit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.query import UNITS, Plan
from steadyarm.analysis.source import CLUSTER, COVARIATE, Source
from steadyarm.analysis.splits import SUM_TO_ONE
from steadyarm.arms import ArmSet
from steadyarm.covariates import Moments, Slopes
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import arm_values, ips, is_one_hot
from steadyarm.inference.evidence import Evidence, Tails
from steadyarm.inference.srm import LoggedSegment
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.wording import counted

Floats = NDArray[np.float64]
Row = dict[str, Any]
Rows = list[Row]
Vectors = dict[Any, tuple[int, Floats]]  # the arm and the (r,) vector b of each key

LEAST_UNITS = 25.0  # of a piece, as many of equal size as say as much
MANY = 1_000  # units of which one is a negligible part of the mean of all
LEAST_REWARDS = 200  # of every variant in a stretch of time: few enough would cost precision
MOST_GROUPS = 1_000_000
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
            "cluster is given, and columns say that there are no units; give one of them.",
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


def count_units(log: Source, table: Any, rows: int, cluster: str = "") -> Units | None:
    """How often units are in the log; None if each has one row and they are no clusters.

    Drawn anew for every row, a unit with several rows has several variants with probability
    1 - p at least. Where less than half as many have, units are taken to keep their variant.

    cluster : what units are if they are clusters
    """
    known = table.filter(table.unit.notnull())
    sums = {"n": known.count(), "low": known.arm.min(), "high": known.arm.max()}
    with_p = "p" in known.columns
    if with_p:
        sums |= {"p": known.p.mean(), "least": known.p.min(), "largest": known.p.max()}
    each = known.group_by("unit").aggregate(**sums)
    again = each.n > 1
    totals = {
        "units": each.count(),
        "rows": each.n.sum(),
        "repeated": again.sum(),
        "several": (each.low != each.high).sum(),
    }
    if with_p:
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
    nameless = rows - int(found["rows"] or 0)
    few = int(found["several"] or 0) < expected / 2 or not found["repeated"]
    return Units(
        int(found["units"]) + nameless,
        rows,
        int(found["repeated"] or 0),
        int(found["several"] or 0),
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
    done = ibis.ifelse(whole, 1.0, ibis.null("float64"))
    return each.mutate(r=done, given=done)


# Allocations: what is known of the probabilities of all arms in a row.


def allocation_vector(
    row: Row, arms: ArmSet, shares: Mapping[str, Floats]
) -> tuple[Floats | None, str]:
    """The allocation that a row of sums has in its keys, or what is wrong with it.

    shares : allocations that are known from elsewhere, by what stands in their place
    """
    names, value = arms.names, row["probabilities"]
    if isinstance(value, str) and value in shares:
        return shares[value], ""
    try:
        value = json.loads(value) if isinstance(value, str) else value
        if isinstance(value, dict):
            if unknown := set(value) - set(names):
                return None, f"has the arm {sorted(unknown)[0]!r}, which is not one of the test"
            value = [value.get(name, 0.0) for name in names]
        weights = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None, "is not a list of numbers"
    if weights.shape != (len(names),):
        return None, f"has {weights.size} entries for {len(names)} arms"
    if not ((weights >= 0) & (weights <= 1)).all():
        return None, "has an entry that is not between 0 and 1"
    if abs(weights.sum() - 1) > SUM_TO_ONE:
        return None, f"sums to {weights.sum():.6g}, not to 1"
    own = weights[names.index(row["arm"])]
    if own <= 0:
        return None, f"gives the row's own arm {row['arm']!r} probability 0: it was never possible"
    logged = [row[name] for name in ("least", "largest") if row.get(name) is not None]
    if other := [p for p in logged if abs(own - p) > SUM_TO_ONE]:
        return None, f"gives the row's arm {own:g}, but its probability is {other[0]:g}"
    return weights / weights.sum(), ""


def segment_allocations(rows: Rows, arms: ArmSet, known: Mapping[str, Floats]) -> dict[str, Floats]:
    """(K,) the allocation of each segment, from the probabilities of its rows or known ones."""
    least: dict[str, Floats] = {}
    largest: dict[str, Floats] = {}
    for row in rows:
        segment, k = str(row["segment"]), arms.names.index(row["arm"])
        low = least.setdefault(segment, np.full(arms.size, np.inf))
        high = largest.setdefault(segment, np.zeros(arms.size))
        low[k], high[k] = min(low[k], row["least"]), max(high[k], row["largest"])
    found = {}
    for segment, weights in largest.items():
        for k in np.flatnonzero(weights - least[segment] > SUM_TO_ONE).tolist():
            raise InvalidInputError(
                f"segment {segment}: the probability of {arms.names[k]!r} goes from "
                f"{least[segment][k]:g} to {weights[k]:g}; within a segment it must be one."
            )
        if segment in known:
            off = (weights > 0) & (np.abs(weights - known[segment]) > SUM_TO_ONE)
            for k in np.flatnonzero(off).tolist():
                raise InvalidInputError(
                    f"segment {segment}: the probability of {arms.names[k]!r} is {weights[k]:g} in "
                    f"the log, but {known[segment][k]:g} in the description beside it; export the "
                    "test again, or give the variants (arms, --arms FILE)."
                )
            found[segment] = known[segment]
            continue
        if abs(weights.sum() - 1) > SUM_TO_ONE:
            raise InvalidInputError(
                f"segment {segment}: the probabilities of the arms seen in it sum to "
                f"{weights.sum():.6g}, not to 1; give the whole vector in a column probabilities, "
                "or the description (LOG.experiment.json) of an exported log."
            )
        found[segment] = weights / weights.sum()
    return found


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
    def played(self) -> tuple[Segment, SegmentStats]:
        """The allocation of the rows with a reward, and their sums."""
        return Segment(self.weights[None], np.array([self.m.sum()])), self.stats

    @property
    def logged(self) -> LoggedSegment:
        """What health checks need."""
        segment = Segment(self.weights[None], np.array([self.n.sum()]))
        return LoggedSegment(segment, self.n[None], self.m[None])

    def __add__(self, other: Stretch) -> Stretch:
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMS}
        return replace(self, **sums)


def stretches(
    rows: Rows, arms: ArmSet, weights_of: Callable[[Row], Floats | None]
) -> list[Stretch]:
    """Stretches in order of time; without weights the shares of the rows stand for them."""
    place = {name: k for k, name in enumerate(arms.names)}
    groups: dict[Any, list[tuple[Row, Floats | None]]] = {}
    for row in sorted(rows, key=lambda row: (row["bucket"], row["first"])):
        weights = weights_of(row)
        key = row["bucket"], None if weights is None else tuple(weights)
        groups.setdefault(key, []).append((row, weights))
    found = []
    for group in groups.values():
        sums = {name: np.zeros(arms.size) for name in SUMS}
        for row, _ in group:
            for name, values in sums.items():
                values[place[row["arm"]]] += float(row[name] or 0.0)
        n, m = sums["n"].astype(np.int64), sums["m"].astype(np.int64)
        weights = group[0][1]
        weights = n / max(n.sum(), 1) if weights is None else weights
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
    None for arms with features in common, or if an arm has fewer than two rewards in a stretch
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
    if not is_one_hot(arms.coordinates) or any(part.m.min() < 2 for part in joined):
        return None
    rewards = np.array([part.m.sum() for part in joined])
    segments = [
        Segment((part.m / total)[None], np.array([total]), "shuffled")
        for part, total in zip(joined, rewards, strict=True)
    ]
    seen, sums, fit = np.zeros(arms.size), np.zeros(arms.size), ReferenceFit(arms)
    played = []
    for part, segment in zip(joined, segments, strict=True):
        reference = fit.to(seen, sums, part.s.sum() / part.m.sum())
        played.append((replace(segment, reference=reference[None]), part.stats))
        seen, sums = seen + part.m, sums + part.s
    levels = None if level is None else [np.array([level * m]) for m in rewards / rewards.sum()]
    found = Evidence.from_segments(
        arms, played, direction, None if level is None else False, levels
    )
    m, thirds = (np.array([getattr(part, name) for part in joined]) for name in ("m", "thirds"))
    inverse = m.sum(axis=1, keepdims=True) / m
    return replace(found, tails=Tails(inverse**3 * thirds, inverse**2 * m, inverse**3 * m))


class ReferenceFit:
    """The least-squares fit to earlier rewards where they determine it; else their mean."""

    def __init__(self, arms: ArmSet) -> None:
        self._X = arms.coordinates
        self._separate = is_one_hot(self._X)
        self.flat: Floats = np.ones(arms.size)  # that gives every arm the value one
        if not self._separate:
            flat, *_ = np.linalg.lstsq(self._X, np.ones(arms.size), rcond=None)
            self.flat = np.asarray(flat, dtype=np.float64)

    def to(self, counts: Floats, sums: Floats, default: float) -> Floats:
        """(r,) from the number and sum (K,) of earlier rewards; `default` if there is none."""
        X, seen = self._X, counts.sum()
        common = sums.sum() / seen if seen else default
        if self._separate:
            return np.where(counts > 0, sums / np.maximum(counts, 1), common)
        m = common * self.flat
        gram = (X * counts[:, None]).T @ X
        inverse = np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
        return np.asarray(m + inverse @ (X.T @ sums - gram @ m))


def single_sums(rows: Rows, keys: Sequence[str], weigh: bool) -> tuple[Rows, Rows, Rows]:
    """What `unit_sums` finds if every row is a unit of its own, from the sums of rows."""
    of = ("m", "i1", "w", "i2", "w2", "ww") if weigh else ("m", "m", "s", "m", "s", "ss")
    cubes = ("i2", "i3", "w3", "ww3", "www") if weigh else ("m", "m", "s", "ss", "sss")
    cells, pairs, sizes = [], [], []
    for row in rows:
        if not row["m"]:
            continue
        m, i, w, ii, iw, ww = (float(row[name]) for name in of)
        key = {"bucket": row["bucket"]} | {name: row[name] for name in keys}
        again = {f"{name}_2": row[name] for name in keys}
        thirds = {name: row[sums] for name, sums in zip(CUBES, cubes, strict=True)}
        cells.append(key | {"m": m, "s": row["s"], "i": i, "w": w} | thirds)
        products = {"mm": m, "mi": i, "mw": w, "ii": ii, "iw": iw, "wi": iw, "ww": ww}
        pairs.append(key | again | products)
        sizes.append({"bucket": row["bucket"], "units": m, "cubes": m})
    return cells, pairs, sizes


def unit_sums(
    log: Source, table: Any, keys: Sequence[str], plan: Plan, weigh: bool, alone: bool = False
) -> tuple[Rows, Rows, Rows]:
    """Sums over units of what the rows of each add up to.

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
        weights and of weighed rewards, and of the products of these in CUBES
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
    each = log.keep("rows by unit", each)  # computed once for the three
    i, w = each.i, each.w
    thirds = (i * i, i * i * i, w * i * i, w * w * i, w * w * w)
    cells = each.group_by("bucket", *keys).aggregate(
        **{n: each[n].sum() for n in "msiw"},
        **{name: product.sum() for name, product in zip(CUBES, thirds, strict=True)},
    )
    other = each.select("unit", *(each[n].name(f"{n}_2") for n in (*keys, "m", "i", "w")))
    both = each.join(other, "unit")
    products = {a + b: (both[a] * both[f"{b}_2"]).sum() for a in "miw" for b in "miw"}
    pairs = both.group_by("bucket", *keys, *(f"{n}_2" for n in keys)).aggregate(**products)
    whole = each.group_by("bucket", "unit").aggregate(m=each.m.sum())
    sizes = whole.group_by("bucket").aggregate(
        units=whole.count(), cubes=(whole.m * whole.m * whole.m).sum()
    )
    sums = [fetch_limited(log, part) for part in (cells, pairs, sizes)]
    return sums[0], sums[1], sums[2]


def fetch_limited(log: Source, expression: Any) -> Rows:
    """The rows of sums by arm and allocation, if there are not too many."""
    rows = log.fetch(expression.limit(MOST_GROUPS + 1))
    if len(rows) > MOST_GROUPS:
        raise InvalidInputError(
            f"{log.name} has more than {MOST_GROUPS:,} combinations of allocation and arm; "
            "analyse the arms each by itself, which needs only their own probability."
        )
    return rows


@dataclass(frozen=True, eq=False)
class _Cohort:
    """Units whose first row is in one bucket: sums over them, with u's score m_u v + c_u.

    v : (r,) the reference
    rows, units : how many
    scores : (r,) sum of the scores
    mm, mmm : sums of the squares and cubes of m_u
    mc, cc : (r,) and (r, r) sums of m_u c_u and c_u c_u'
    cubes : (5, r) sums of the products in CUBES, with the same powers of b
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
        """(r, r) sum over units of (S_u - m_u θ)(S_u - m_u θ)'."""
        off = self.v - theta
        mixed = off[:, None] * self.mc
        return np.asarray(self.mm * off[:, None] * off + mixed + mixed.T + self.cc)


def unit_evidence(
    arms: ArmSet,
    found: Sequence[Rows],
    keys: Sequence[str],
    vectors: Vectors,
    plan: Plan,
    direction: Direction,
    level: float = 0.0,
) -> tuple[Evidence, Evidence, list[str]]:
    """The evidence of units, in pieces by the period of their first row.

    Also the evidence that drift is told from, with the labels of its pieces: where large units
    leave one piece alone, this leaves out the periods that such units dominate.

    A unit's score is the sum of those of its rows, m_u v + Σ b (w - i x'v) over its cells. The
    squares are such that scores of single rows with them would have the variance of the units.

    Parameters
    ----------
    found : what `unit_sums` or `single_sums` returned
    keys : the columns that make rows of a unit differ
    vectors : the arm and b of each key
    level : if rewards are adjusted for covariates, the variance of what all arms share of it
    """
    sums, pairs, sizes = (_by_bucket(rows) for rows in found)
    buckets = sorted(sums)
    counts, totals = np.zeros(arms.size), np.zeros(arms.size)
    cohorts, fit = [], ReferenceFit(arms)
    for bucket in buckets:
        own, now = sums[bucket], sizes[bucket]
        m, s = _column(own, "m"), _column(own, "s")
        v = fit.to(counts, totals, s.sum() / m.sum())
        cohorts.append(_cohort(arms, own, pairs[bucket], now, keys, vectors, v))
        index = np.array([vectors[key_of(row, keys)][0] for row in own])
        np.add.at(counts, index, m)
        np.add.at(totals, index, s)
    rows = np.array([cohort.rows for cohort in cohorts])
    period, labels = plan.periods(buckets, rows.astype(np.int64))
    groups = _joined(cohorts, period, labels, LEAST_UNITS)
    calm = groups
    if len(groups) == 1:
        calm = [
            group for group in _joined(cohorts, period, labels, 0.0) if group.units > LEAST_UNITS
        ]
    common = level * np.outer(fit.flat, fit.flat)
    evidence = timeline = _pieces(arms, groups, direction, common)
    if len(calm) > 1:
        groups, timeline = calm, _pieces(arms, calm, direction, common)
    return evidence, timeline, [group.label for group in groups]


def key_of(row: Row, keys: Sequence[str], end: str = "") -> Any:
    """What identifies a row of sums; of its second half, given "_2"."""
    values = [row[name + end] for name in keys]
    values = [tuple(value) if isinstance(value, list) else value for value in values]
    return values[0] if len(values) == 1 else tuple(values)


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
    sizes: Rows,
    keys: Sequence[str],
    vectors: Vectors,
    v: Floats,
) -> _Cohort:
    values = arm_values(arms.coordinates, v[None])[0]

    def both(rows: Rows, end: str = "") -> tuple[Floats, Floats]:
        """The b of each row's key, and x'v of its arm."""
        found = [vectors[key_of(row, keys, end)] for row in rows]
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
        int(_column(sizes, "units").sum()),
        np.asarray(m.sum() * v + (b * c[:, None]).sum(axis=0)),
        float(of["mm"].sum()),
        float(_column(sizes, "cubes").sum()),
        (right * (of["mw"] - g * of["mi"])[:, None]).sum(axis=0),
        np.asarray((left * products[:, None]).T @ right),
        np.stack([(_column(own, n)[:, None] * b ** len(n)).sum(axis=0) for n in CUBES]),
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


def _joined(
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


def _pieces(
    arms: ArmSet, groups: Sequence[_Group], direction: Direction, common: Floats
) -> Evidence:
    """Evidence of groups of periods.

    common : (r, r) variance of what all arms share of rewards that are adjusted for covariates
    """
    freedom = np.cumsum([max(group.units - 1, 0.0) for group in groups])
    every = sum(group.rows for group in groups)
    rounds, scores, squares = [], [], []
    for group in groups:
        rows = group.rows
        total = np.sum([cohort.scores for cohort in group.cohorts], axis=0)
        spread = np.sum([cohort.around(total / rows) for cohort in group.cohorts], axis=0)
        rounds.append(round(rows))
        scores.append(total)
        more = total[:, None] * total / rows + rows / every * common
        squares.append(_correction(group.cohorts) * spread + more)
    tails = None
    if not arms.large and is_one_hot(arms.coordinates):
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
    names : of the arms
    """
    import ibis

    used = table.filter(table.r.notnull())
    c = sum(name.startswith(COVARIATE) for name in table.columns) + 1
    if single:
        order = [used[name] for name in ("time", "arm", "r") if name in used.columns]
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
        beta = Slopes.none(1, c).after(stats, others).fitted(moments)[0]
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
            "a covariate has values that are infinite or too large to be squared; mend them, or "
            "leave the covariate out.",
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


def vectors_of(
    arms: ArmSet, rows: Rows, keys: Sequence[str], weights_of: Callable[[Row], Floats]
) -> Vectors:
    """A(λ)⁻¹x of every arm and allocation."""
    distinct = {key_of(row, keys): row for row in rows}
    index = np.array([arms.names.index(row["arm"]) for row in distinct.values()])
    weights = np.array([weights_of(row) for row in distinct.values()])
    one = np.zeros(weights.shape, dtype=np.int64)
    one[np.arange(len(index)), index] = 1
    segment = Segment(weights, np.ones(len(index), dtype=np.int64))
    b = ips(arms.coordinates, segment, SegmentStats(one, one.astype(np.float64)))
    return {key: (int(k), row) for key, k, row in zip(distinct, index, b, strict=True)}
