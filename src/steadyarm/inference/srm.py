"""Sample-ratio mismatch: do the assignments in the log follow the probabilities in the log?

Counts minus expectations are sums of martingale differences whatever the policy did, so their
squared length, measured by the summed covariances, is chi-squared in large samples. Covariances
are those of groups of arms: each arm by itself where there are few, else arms with something in
common, such as a level of a factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, chdtrc, ndtr

from steadyarm.arms.recipes import BETWEEN, BundleNames, FactorialNames
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import json_ready
from steadyarm.segments import Segment
from steadyarm.wording import counted, strung

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Says = Callable[[float, float, bool], str]  # observed and expected; whether of several arms

ALARM = 0.001  # p-value below which a test has failed
NOTICE = 0.01  # p-value below which it needs attention
MENTION = 0.05  # p-value below which the verdict says what is off
JOINT, JOINT_OF_ALL = 200, 2**12  # arms judged jointly, at most: of a large set, and of others
FURTHEST = 20  # arms that are named where single arms of many are off
NORMAL = 10.0  # variance from which on a count is taken as normal
RARE = 0.1  # share of the error probability spent on arms with less
NEGLIGIBLE = 1e-9  # variance of a count that cannot vary
WHOLE = 1e-6  # difference of counts that is rounding
STRATUM = 30  # rows in which missing rewards are compared
RANGES = 50  # groups of neighbouring arms
MOST_ITEMS = 200  # items of bundles up to which each makes a grouping


@dataclass(frozen=True, eq=False)
class LoggedSegment:
    """What a log says of one segment of n tests; n = 1 for a single test.

    Attributes
    ----------
    segment : its allocation
    assigned : (n, K) rows in the log, per arm
    rewarded : (n, K) rows that have a reward; None if this is not known
    drawn : (n, K) how often each arm was drawn, with rows that are lost; None if this is not known

    Examples
    --------
    >>> segment = Segment(np.array([[0.5, 0.5]]), np.array([100]))
    >>> LoggedSegment(segment, np.array([[48, 51]]), drawn=np.array([[49, 51]])).lost
    array([1])
    """

    segment: Segment
    assigned: Integers
    rewarded: Integers | None = None
    drawn: Integers | None = None

    def __post_init__(self) -> None:
        expected = self.segment.weights.shape
        for what in ("assigned", "rewarded", "drawn"):
            counts = getattr(self, what)
            if counts is None:
                continue
            if not isinstance(counts, np.ndarray) or not np.issubdtype(counts.dtype, np.integer):
                raise InvalidInputError.of(what, counts, "an array of whole numbers")
            if counts.shape != expected or (counts < 0).any():
                raise InvalidInputError(
                    f"{what} has shape {counts.shape} and least value "
                    f"{counts.min(initial=0)}; expected shape {expected} and no negative counts."
                )
        if self.rewarded is not None and (self.rewarded > self.assigned).any():
            raise InvalidInputError(
                "rewarded exceeds assigned for some arm; count each assignment once, with or "
                "without its reward."
            )

    @property
    def rows(self) -> Integers:
        """(n,) rows in the log."""
        return np.asarray(self.assigned.sum(axis=1))

    @property
    def opened(self) -> Integers:
        """(n,) positions that were assigned."""
        return self.segment.rounds if self.drawn is None else np.asarray(self.drawn.sum(axis=1))

    @property
    def lost(self) -> Integers:
        """(n,) assigned positions without a row."""
        return np.asarray(np.maximum(self.opened - self.rows, 0))


@dataclass(frozen=True, eq=False)
class CountTest:
    """Counts per arm against their expectations.

    Attributes
    ----------
    names : of the arms; where many were played, of the groups or single arms that are most off
    p_value : probability of counts at least this far off if all is well; 0 for an impossible log
    statistic, freedom : chi-squared part of the test; freedom 0 if all counts are small
    observed, expected : (K,)
    residuals : (K,) differences in standard deviations; infinite where nothing may vary
    culprit : the arm that is furthest off, if the p-value is below 0.01
    verdict : one sentence for people
    lost : assigned positions that have no row

    Examples
    --------
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([10_000]))
    >>> found = srm_test(["A", "B"], [LoggedSegment(fair, np.array([[5000, 4800]]))])
    >>> found.p_value < 0.05
    True
    """

    names: tuple[str, ...]
    p_value: float
    statistic: float
    freedom: int
    observed: Floats
    expected: Floats
    residuals: Floats
    culprit: str | None
    verdict: str
    lost: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values; None for infinite residuals."""
        data: dict[str, Any] = json_ready(self)
        return data


def srm_test(names: Sequence[str], pieces: Iterable[LoggedSegment]) -> CountTest:
    """Whether the rows per arm fit what was drawn or, if that is not known, the probabilities.

    Right under any policy that logs its allocations, however they followed from the rewards. Rows
    that all arms lose alike raise no alarm (`lost` counts them); rows that one arm loses do. Rows
    of blocks vary less than independent draws, so that alarms are rarer. In a large set the arms
    that were played are judged; more than 200 of them one by one and in groups that have something
    in common, by Bonferroni.

    Parameters
    ----------
    names : of the arms
    pieces : segments with the rows of every arm

    Returns
    -------
    CountTest : the p-value and what it means

    Examples
    --------
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([10_000]))
    >>> found = srm_test(["A", "B"], [LoggedSegment(fair, np.array([[5010, 4990]]))])
    >>> round(found.p_value, 3)
    0.841
    >>> srm_test(["A", "B"], [LoggedSegment(fair, np.array([[5000, 4800]]))]).verdict
    'B got 4,800 of 9,800 visits, about 100 fewer than it should (-2.0 standard deviations; ...'
    """
    log = _Played.of(names, pieces)
    balance = total_of(assignment_balance(piece, log.groupings) for piece in log.pieces)
    found = log.judged(balance, _got(int(balance.observed.sum())))
    found = replace(found, lost=sum(int(piece.lost[0]) for piece in log.pieces))
    for j, piece in enumerate(log.pieces):
        for k in np.flatnonzero(impossible_counts(piece)[0])[:1].tolist():
            verdict = _impossible_verdict(log.name(k), piece, j, k)
            return replace(found, p_value=0.0, culprit=log.name(k), verdict=verdict)
    if found.p_value < MENTION:
        return found
    rows = "per variant"
    if not log.joint:
        rows = f"of {len(log.arms):,} variants, each and taken together,"
    fine = f"The rows {rows} fit the logged probabilities (p = {found.p_value:.2g})."
    return replace(found, verdict=fine)


def attrition_test(names: Sequence[str], pieces: Iterable[LoggedSegment]) -> CountTest:
    """Whether rewards go missing more often in some arms than in others.

    Compared within segments only, so the share of missing rewards may move over time together
    with the allocation. Short segments are joined with the next.

    Parameters
    ----------
    names : of the arms
    pieces : segments with the rows of every arm and how many of them have a reward

    Returns
    -------
    CountTest : the p-value and what it means

    Examples
    --------
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([1000]))
    >>> piece = LoggedSegment(fair, np.array([[500, 500]]), rewarded=np.array([[490, 430]]))
    >>> attrition_test(["A", "B"], [piece]).verdict
    'B misses 70 rewards and should miss about 40 (+7.0 standard deviations; p = 2.7e-12).'
    """
    log = _Played.of(names, pieces)
    balance = total_of(attrition_balance(log.pieces, log.groupings))
    found = log.judged(balance, _misses, too_many=True)
    if found.p_value < MENTION:
        return found
    missing = int(balance.observed.sum())
    lost = counted(missing, "reward is", "rewards are")
    fine = f"{lost} missing, in all variants alike (p = {found.p_value:.2g})."
    return replace(found, verdict=fine if missing else "No reward is missing.")


def srm_from_sums(
    names: Sequence[str],
    rows: int,
    sums: Floats,
    spread: Floats,
    largest: Floats,
    counts: NDArray[np.int64],
    of: str = "visits",
) -> CountTest:
    """The test for logs that hold only the probability of the arm that was drawn, from sums.

    The sum of 1/p over the rows of an arm should be the number T of all rows. Its variance is the
    sum over rounds of 1/p - 1, estimated by T times the mean of 1/p - 1, in which a row weighs 1/p
    (exact if p is constant). Arms are tested one by one and the p-value is Bonferroni's. An arm
    without rows cannot be judged: its probability is nowhere in the log.

    Parameters
    ----------
    rows : T, of all arms
    sums, spread : (K,) of 1/p and of (1/p - 1) / p; 0 for an arm without rows
    largest : (K,) largest 1/p
    counts : (K,) rows
    of : what rows are, for people

    Examples
    --------
    >>> sums, spread = np.array([1200.0, 2800 / 3]), np.array([3600.0, 2800 / 9])
    >>> counts = np.array([300, 700])
    >>> found = srm_from_sums(["A", "B"], 1000, sums, spread, np.array([4.0, 4 / 3]), counts)
    >>> round(found.p_value, 5), found.culprit
    (0.00052, 'B')
    >>> found.verdict
    'B got 700 of 1,000 visits, about 50 fewer than it should (-3.7 standard deviations; ...'
    """
    names, K = tuple(str(name) for name in names), len(names)
    seen = sums > 0
    variance = np.maximum(spread, 0.0) * rows / np.where(seen, sums, 1.0)
    off = np.where(seen, sums - rows, 0.0)
    residuals = standardised(off, variance, 1e-6 * rows)
    normal = variance >= NORMAL * largest**2
    each = 2 * ndtr(-np.abs(residuals))
    each = np.where(normal, each, _bennett(np.abs(off) / largest, variance / largest**2))
    each = np.where(residuals == 0, 1.0, each)
    p_value = float(min(1.0, each.min() * seen.sum()))
    worst = _furthest(residuals)
    # rows that stand for 1/p each should stand for all rows; so many would, were they like these
    should = counts[worst] * rows / sums[worst] if seen[worst] else 0.0
    said = _got(rows, of)(float(counts[worst]), should, False)
    verdict = f"The rows per variant fit the logged probabilities (p = {p_value:.2g})."
    if p_value < MENTION:
        verdict = _sentence(names[worst], said, residuals[worst], p_value)
    if not seen.all():
        unseen = [name for name, there in zip(names, seen, strict=True) if not there]
        verdict += f" Not in the log at all, so nothing can be said of: {strung(unseen)}."
    culprit = names[worst] if p_value < NOTICE else None
    expected = np.full(K, float(rows))
    return CountTest(
        names, p_value, float(residuals[worst] ** 2), 1, sums, expected, residuals, culprit, verdict
    )


def _bennett(x: Floats, variance: Floats) -> Floats:
    """At most P(|sum| ≥ x), for differences of at most 1 with this summed variance."""
    v = np.maximum(variance, 1e-300)
    u = x / v
    return np.asarray(np.minimum(2 * np.exp(-v * ((1 + u) * np.log1p(u) - u)), 1.0))


@dataclass(frozen=True, eq=False)
class _Played:
    """The log of a single test, in the columns of the arms that were played.

    Attributes
    ----------
    names : of all arms
    arms : (U,) those that were played
    pieces : with U columns each
    joint : whether the arms are few enough to be judged jointly
    groupings : each arm by itself if joint, else groups of arms
    """

    names: Sequence[str]
    arms: Integers
    pieces: list[LoggedSegment]
    joint: bool
    groupings: list[Grouping]

    @classmethod
    def of(cls, names: Sequence[str], pieces: Iterable[LoggedSegment]) -> _Played:
        log = list(pieces)
        arms, most = np.arange(len(names), dtype=np.int64), JOINT_OF_ALL
        if any(piece.segment.arms is not None for piece in log):
            lists = [arms if p.segment.arms is None else p.segment.arms for p in log]
            arms, most = np.unique(np.concatenate(lists)), JOINT
            log = [_in_columns(piece, arms) for piece in log]
        for piece in log:
            if piece.assigned.shape != (1, len(arms)):
                raise InvalidInputError(
                    f"a segment has counts of shape {piece.assigned.shape}; expected "
                    f"(1, {len(arms)}): a single test and one column for each name."
                )
        joint = not log or len(arms) <= most
        groupings = [each_by_itself(len(arms))] if joint else common_features(names, arms)
        return cls(names, arms, log, joint, groupings)

    def name(self, k: int) -> str:
        """Of the arm in a column."""
        return str(self.names[int(self.arms[k])])

    def judged(self, balance: Balance, says: Says, too_many: bool = False) -> CountTest:
        """The result of a test; `too_many` if only too many of something is a fault."""
        observed, expected, variance = balance.observed[0], balance.expected[0], balance.variance[0]
        several, place = False, None
        if self.joint:
            p, statistic, freedom = (float(value[0]) for value in surprise(balance))
            shown = np.arange(len(self.arms))
        else:
            tests = [_group_test(balance, i, g) for i, g in enumerate(self.groupings)]
            each = [float(surprise_by_arm(balance)[0]), *(test[0] for test in tests)]
            least = int(np.argmin(each))
            p, statistic, freedom = min(1.0, len(each) * each[least]), 0.0, 0.0
            residuals = standardised(observed - expected, variance)
            size = residuals if too_many else np.abs(residuals)
            shown = np.sort(np.argsort(-size, kind="stable")[:FURTHEST])
            several = least > 0 or p >= 1
            place = max(least, 1) - 1
        if several and place is not None:
            _, statistic, freedom = tests[place]
            names = self.groupings[place].groups
            sums = self.groupings[place].sums
            observed, expected = sums(balance.observed)[0], sums(balance.expected)[0]
            variance = np.diagonal(balance.covariances[place][0])
        else:
            names = tuple(self.name(k) for k in shown.tolist())
            observed, expected, variance = observed[shown], expected[shown], variance[shown]
        residuals = standardised(observed - expected, variance)
        worst = int(residuals.argmax()) if too_many else _furthest(residuals)
        said = says(observed[worst], expected[worst], several)
        verdict = _sentence(names[worst], said, residuals[worst], p)
        return CountTest(
            names,
            p,
            statistic,
            int(freedom),
            observed,
            expected,
            residuals,
            names[worst] if p < NOTICE else None,
            verdict[:1].upper() + verdict[1:] if several else verdict,
        )


def _group_test(balance: Balance, place: int, grouping: Grouping) -> tuple[float, float, int]:
    """p-value, statistic and freedom of the counts of groups of arms, of a single test."""
    off, covariance = grouping.sums(balance.observed - balance.expected), balance.covariances[place]
    if not np.isfinite(standardised(off, np.diagonal(covariance, axis1=1, axis2=2))).all():
        return 0.0, 0.0, 0
    p_value, statistic, freedom = chi_squared(off, covariance)
    return float(p_value[0]), float(statistic[0]), int(freedom[0])


def _furthest(residuals: Floats) -> int:
    """The arm that is furthest off; of two, the one with too few, since loss is more common."""
    size = np.nan_to_num(np.abs(residuals), posinf=1e300)
    close = size >= size.max() * (1 - 1e-9)
    return int(np.where(close, residuals, np.inf).argmin())


def _in_columns(piece: LoggedSegment, arms: Integers) -> LoggedSegment:
    """The piece with a column for each of the arms."""
    segment = piece.segment
    place = np.searchsorted(arms, arms if segment.arms is None else segment.arms)

    def spread(values: NDArray[Any]) -> NDArray[Any]:
        out = np.zeros((len(values), len(arms)), dtype=values.dtype)
        out[:, place] = values
        return out

    rewarded = None if piece.rewarded is None else spread(piece.rewarded)
    dense = replace(segment, weights=spread(segment.weights), arms=None)
    drawn = None if piece.drawn is None else spread(piece.drawn)
    return LoggedSegment(dense, spread(piece.assigned), rewarded, drawn)


def _sentence(name: str, said: str, residual: float, p: float) -> str:
    return f"{name} {said} ({residual:+.1f} standard deviations; p = {p:.2g})."


def _got(total: int, of: str = "visits") -> Says:
    """How to say how many of `total` visits an arm got, and how many it should have got."""

    def says(observed: float, expected: float, several: bool) -> str:
        off = abs(observed - expected)
        size = f"{off:,.0f}" if off >= 10 else f"{off:.2g}"
        more = "more" if observed > expected else "fewer"
        who = "they" if several else "it"
        return f"got {observed:,.0f} of {total:,} {of}, about {size} {more} than {who} should"

    return says


def _misses(observed: float, expected: float, several: bool) -> str:
    miss = "miss" if several else "misses"
    return f"{miss} {observed:.0f} rewards and should miss about {expected:.0f}"


def _impossible_verdict(name: str, piece: LoggedSegment, j: int, k: int) -> str:
    count, rows, opened = int(piece.assigned[0, k]), int(piece.rows[0]), int(piece.opened[0])
    if rows > opened:
        return f"Segment {j} assigned {opened} positions but has {rows} rows: some are duplicates."
    if piece.segment.weights[0, k] <= 0:
        return f"Segment {j} never plays {name}, yet has {count} rows of it."
    assert piece.drawn is not None
    return f"Segment {j} drew {name} {piece.drawn[0, k]} times, yet has {count} rows of it."


# Balances: counts, and how far they may be from what they should be by chance.


@dataclass(frozen=True, eq=False)
class Grouping:
    """Groups that arms fall into.

    Attributes
    ----------
    groups : what the arms of each group have in common, such as "variants with hat=yes"
    labels : (U,) the group of each arm
    """

    groups: tuple[str, ...]
    labels: Integers

    def sums(self, values: Floats) -> Floats:
        """(n, G) sums over the arms of each group, of values (n, U)."""
        out = np.zeros((len(values), len(self.groups)))
        np.add.at(out.T, self.labels, values.T)
        return out


def each_by_itself(arms: int) -> Grouping:
    """Every arm is a group."""
    return Grouping(("",) * arms, np.arange(arms))


def common_features(names: Sequence[str], arms: Integers) -> list[Grouping]:
    """Many arms grouped by the levels of each factor or by each item, and by neighbours.

    Examples
    --------
    >>> names = FactorialNames({"size": ("S", "L"), "hat": ("no", "yes")})
    >>> size, hat, near = common_features(names, np.arange(4))
    >>> hat.groups, hat.labels.tolist()
    (('variants with hat=no', 'variants with hat=yes'), [0, 1, 0, 1])
    """
    found: list[Grouping] = []
    if isinstance(names, FactorialNames):
        rest = arms
        for factor, levels in reversed(list(names.levels.items())):
            rest, labels = np.divmod(rest, len(levels))
            groups = tuple(f"variants with {factor}={level}" for level in levels)
            found.insert(0, Grouping(groups, labels))
    elif isinstance(names, BundleNames) and len(names.items) <= MOST_ITEMS:
        bundles = [set(names[k].split(BETWEEN)) for k in arms.tolist()]
        for item in names.items:
            groups = (f"variants without {item}", f"variants with {item}")
            holds = np.array([item in bundle for bundle in bundles], dtype=np.int64)
            found.append(Grouping(groups, holds))
    labels = np.arange(len(arms)) * min(RANGES, len(arms)) // len(arms)
    firsts = np.flatnonzero(np.diff(labels, prepend=-1))
    lasts = np.append(firsts[1:], len(arms)) - 1
    groups = tuple(
        f"the {last - first + 1:,} variants from {names[int(arms[first])]} to "
        f"{names[int(arms[last])]}"
        for first, last in zip(firsts, lasts, strict=True)
    )
    return [*found, Grouping(groups, labels.astype(np.int64))]


@dataclass(frozen=True, eq=False)
class Balance:
    """Counts of n tests, and how far they may be from what they should be.

    Attributes
    ----------
    observed, expected, variance : (n, U) of each arm
    hits, draws : (n, U) and (n,): each arm's difference is that of so many independent yes-or-no
        draws, with so many expected to be yes, or varies less
    covariances : (n, G, G) of the counts of the groups of each grouping
    """

    observed: Floats
    expected: Floats
    variance: Floats
    hits: Floats
    draws: Floats
    covariances: tuple[Floats, ...]

    @property
    def _parts(self) -> tuple[Floats, ...]:
        arms = self.observed, self.expected, self.variance, self.hits
        return *arms, self.draws, *self.covariances

    def __add__(self, other: Balance) -> Balance:
        return _balance(a + b for a, b in zip(self._parts, other._parts, strict=True))

    @property
    def total(self) -> Balance:
        """The n tests as one."""
        return _balance(part.sum(axis=0, keepdims=True) for part in self._parts)


def _balance(parts: Iterable[Floats]) -> Balance:
    observed, expected, variance, hits, draws, *covariances = parts
    return Balance(observed, expected, variance, hits, draws, tuple(covariances))


def total_of(balances: Iterable[Balance]) -> Balance:
    """The sum over the segments of a log."""
    found = iter(balances)
    total = next(found, None)
    if total is None:
        raise InvalidInputError("there is no segment in the log; give at least one.")
    return sum(found, start=total)


def surprise(balance: Balance) -> tuple[Floats, Floats, Integers]:
    """(n,) probability of counts at least as far off, the chi-squared statistic, its freedom.

    For arms each by itself. Directions with a variance of at least 10 counts make the statistic.
    Arms whose count has less are judged one by one by binomial tails, and share a tenth of the
    error probability (all of it if there is nothing else). A count that cannot vary and is off has
    probability 0.
    """
    off, variance = balance.observed - balance.expected, balance.variance
    p_common, statistic, freedom = chi_squared(off, balance.covariances[0])
    rare = (variance < NORMAL) & (variance > NEGLIGIBLE)
    p_rare = _least_tail(balance, rare)
    any_rare = rare.any(axis=1)
    p_value = np.where(any_rare, p_rare, p_common)
    both = np.minimum(p_common / (1 - RARE), p_rare / RARE)
    p_value = np.where(any_rare & (freedom > 0), both, p_value)
    stuck = ((variance <= NEGLIGIBLE) & (np.abs(off) > WHOLE)).any(axis=1)
    return np.where(stuck, 0.0, np.minimum(p_value, 1.0)), statistic, freedom


def surprise_by_arm(balance: Balance) -> Floats:
    """(n,) probability of any single count being so far off, by Bonferroni."""
    off, varies = balance.observed - balance.expected, balance.variance > NEGLIGIBLE
    stuck = (~varies & (np.abs(off) > WHOLE)).any(axis=1)
    return np.where(stuck, 0.0, np.minimum(_least_tail(balance, varies), 1.0))


def _least_tail(balance: Balance, among: Booleans) -> Floats:
    """(n,) the least tail probability of these arms times their number.

    No sum of independent yes-or-no draws, such as draws without replacement are too, has heavier
    tails than the binomial distribution (Hoeffding 1956).
    """
    off, hits, draws = balance.observed - balance.expected, balance.hits, balance.draws[:, None]
    p, x = np.clip(hits / np.maximum(draws, 1.0), 0.0, 1.0), np.abs(off)
    above = _binomial(betainc, np.ceil(hits + x - WHOLE) - 1, draws, p, beyond=(1.0, 0.0))
    below = _binomial(betaincc, np.floor(hits - x + WHOLE), draws, p, beyond=(0.0, 1.0))
    tails = np.where(x < 1 - WHOLE, 1.0, np.minimum(above + below, 1.0))
    return np.asarray(np.where(among, tails, 1.0).min(axis=1) * np.maximum(among.sum(axis=1), 1))


def _binomial(
    tail: np.ufunc, k: Floats, draws: Floats, p: Floats, beyond: tuple[float, float]
) -> Floats:
    """Probability of more than k hits (`betainc`), or of at most k (`betaincc`).

    `draws` need not be whole; `beyond` holds the values for k < 0 and k >= draws.
    """
    inside = (k >= 0) & (k < draws)
    found = tail(np.where(inside, k + 1, 1.0), np.where(inside, draws - k, 1.0), p)
    return np.where(inside, found, np.where(k < 0, *beyond))


def chi_squared(off: Floats, covariance: Floats) -> tuple[Floats, Floats, Integers]:
    """(n,) p-value, statistic and freedom of the directions that vary by at least ten counts.

    off : (n, G) differences; covariance : (n, G, G)
    """
    values, vectors = np.linalg.eigh(covariance)
    lengths = np.einsum("nkd,nk->nd", vectors, off)
    usable = values >= NORMAL
    statistic = np.where(usable, lengths**2 / np.where(usable, values, 1.0), 0.0).sum(axis=1)
    freedom = usable.sum(axis=1)
    p_value = np.where(freedom > 0, chdtrc(np.maximum(freedom, 1), statistic), 1.0)
    return p_value, statistic, freedom


def standardised(difference: Floats, variance: Floats, slack: float = WHOLE) -> Floats:
    """Differences in standard deviations; infinite where there is none but they exceed `slack`."""
    known = variance > NEGLIGIBLE
    off = np.abs(difference) > slack
    fixed = np.select([off & (difference > 0), off], [np.inf, -np.inf], 0.0)
    return np.where(known, difference / np.sqrt(np.where(known, variance, 1.0)), fixed)


def assignment_balance(piece: LoggedSegment, groupings: Sequence[Grouping]) -> Balance:
    """Rows per arm against what was drawn, or else the logged allocation, given how many there are.

    Rows may have been lost. If arms lose alike, the rows of a segment are a random part of what was
    drawn: as many draws without replacement.
    """
    if piece.drawn is not None:
        size = piece.opened.astype(np.float64)
        shares = piece.drawn / np.maximum(size, 1.0)[:, None]
        return _part(piece.assigned.astype(np.float64), shares, size, groupings)
    size = np.full(len(piece.rows), np.inf)
    return _part(piece.assigned.astype(np.float64), normalised(piece.segment), size, groupings)


def attrition_balance(
    pieces: Iterable[LoggedSegment], groupings: Sequence[Grouping]
) -> Iterator[Balance]:
    """Rows without reward per arm, given how many each segment has and which arms it assigned.

    Within a segment every row is as likely to miss its reward if arms do not matter (the
    generalised test of Cochran, Mantel and Haenszel), so rates may move with the allocation.
    Segments of fewer than 30 rows, which alone say little or nothing, are joined with the next.
    """
    for assigned, missing in _strata(pieces):
        size = assigned.sum(axis=1)
        yield _part(missing, assigned / np.maximum(size, 1)[:, None], size, groupings)


def _part(observed: Floats, shares: Floats, size: Floats, groupings: Sequence[Grouping]) -> Balance:
    """The balance of counts that are a random part of what has these shares.

    observed, shares : (n, U) of the arms
    size : (n,) of the whole; infinite for independent draws
    """
    rows = np.minimum(observed.sum(axis=1), size)
    finite = np.where(np.isinf(size), 0.0, size)
    left = (finite - rows) / np.maximum(
        finite - 1, 1.0
    )  # variance that is left without replacement
    spread = rows * np.where(np.isinf(size), 1.0, left)
    few = rows <= size / 2  # else of those that are left out
    draws = np.where(few, rows, finite - rows)
    return Balance(
        observed,
        rows[:, None] * shares,
        spread[:, None] * shares * (1 - shares),
        draws[:, None] * np.where(few[:, None], shares, 1 - shares),
        draws,
        tuple(spread[:, None, None] * _one_draw(grouping.sums(shares)) for grouping in groupings),
    )


def _strata(pieces: Iterable[LoggedSegment]) -> Iterator[Floats]:
    """(2, n, K) rows, and rows without reward, of consecutive segments with enough rows."""
    joined: Floats | None = None
    for piece in pieces:
        if piece.rewarded is None:
            raise InvalidInputError(
                "a segment has no rewarded counts, which attrition needs; make its LoggedSegment "
                "with rewarded."
            )
        counts = np.array([piece.assigned, piece.assigned - piece.rewarded], dtype=np.float64)
        joined = counts if joined is None else joined + counts
        if (joined[0].sum(axis=1) >= STRATUM).all():
            yield joined
            joined = None
    if joined is not None:
        yield joined


def normalised(segment: Segment) -> Floats:
    """Weights that sum to one; zero where nothing was played."""
    total = segment.weights.sum(axis=1)
    proper = (segment.weights >= 0).all(axis=1) & (np.abs(total - 1) < 1e-3)  # False for nan
    if not (proper | (segment.rounds == 0)).all():
        raise InvalidInputError(
            f"a segment's weights are negative, nan or do not sum to one (sums from "
            f"{total.min():g} to {total.max():g}); expected the probabilities of all arms."
        )
    weights = np.where(proper[:, None], segment.weights, 0.0)
    return np.asarray(weights / np.where(proper, total, 1.0)[:, None])


def impossible_counts(piece: LoggedSegment) -> Booleans:
    """(n, K) counts that cannot be, whatever the draws."""
    counts, weights = piece.assigned, normalised(piece.segment)
    wrong = (piece.rows > piece.opened)[:, None] & (counts > 0) | (counts > 0) & (weights <= 0)
    return np.asarray(wrong if piece.drawn is None else wrong | (counts > piece.drawn))


def _one_draw(shares: Floats) -> Floats:
    """(n, G, G) covariance of a single draw."""
    out: Floats = -shares[:, :, None] * shares[:, None, :]
    k = np.arange(shares.shape[1])
    out[:, k, k] += shares
    return out
