"""Sample-ratio mismatch: do the assignments in the log follow the probabilities in the log?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import json_ready
from steadyarm.inference.sampling_variance import (
    NORMAL,
    Balance,
    Grouping,
    LoggedSegment,
    assignment_balance,
    attrition_balance,
    chi_squared,
    common_features,
    each_by_itself,
    impossible_counts,
    standardised,
    surprise,
    surprise_by_arm,
    total_of,
)
from steadyarm.wording import counted, strung

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Says = Callable[[float, float, bool], str]  # observed and expected; whether of several arms
ALARM = 0.001  # p-value below which a test has failed
NOTICE = 0.01  # p-value below which it needs attention
MENTION = 0.05  # p-value below which the verdict says what is off
JOINT, JOINT_OF_ALL = 200, 2**12  # arms judged jointly, at most: of a large set, and of others
MOST_CELLS = 2**24  # numbers in the covariances of pieces that are computed together
FURTHEST = 20  # arms that are named where single arms of many are off


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
    >>> from steadyarm.segments import Segment
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
    """Whether the rows per arm fit the sum of the logged probabilities.

    Right under any policy that logs its allocations, however they followed from the rewards, and
    for every order of draws: independent, permuted blocks, shuffled. It conditions on the rows
    there are, so rows that all arms lose alike raise no alarm (`lost` counts them); rows that one
    arm loses do. An arm without a single row counts like any other. In a large set the arms that
    were played are judged; more than 200 of them one by one and in groups that have something in
    common, by Bonferroni.

    Parameters
    ----------
    names : of the arms
    pieces : segments with the rows of every arm

    Returns
    -------
    CountTest : the p-value and what it means

    Examples
    --------
    >>> from steadyarm.segments import Segment
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([10_000]))
    >>> found = srm_test(["A", "B"], [LoggedSegment(fair, np.array([[5010, 4990]]))])
    >>> round(found.p_value, 3)
    0.841
    >>> srm_test(["A", "B"], [LoggedSegment(fair, np.array([[5000, 4800]]))]).verdict
    'B got 4,800 of 9,800 visits, about 100 fewer than it should (-2.0 standard deviations; ...'
    """
    log = _Played.of(names, pieces)
    balances: list[Balance] = []
    impossible: list[tuple[int, int]] = []
    for places, piece in log.batches():
        balances.append(assignment_balance(piece, log.groupings).total)
        cannot = np.argwhere(impossible_counts(piece)).tolist()
        impossible += [(places[row], k) for row, k in cannot]
    balance = total_of(balances)
    found = log.judged(balance, _got(int(balance.observed.sum())))
    found = replace(found, lost=sum(int(piece.lost[0]) for piece in log.pieces))
    if impossible:
        j, k = min(impossible)
        verdict = _impossible_verdict(log.name(k), log.pieces[j], j, k)
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
    >>> from steadyarm.segments import Segment
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


def srm_from_propensities(
    names: Sequence[str], arms: NDArray[np.int64], propensities: Floats
) -> CountTest:
    """The test for logs that hold only the probability of the arm that was drawn.

    The sum of 1/p over the rows of an arm should be the number T of all rows. Its variance is the
    sum over rounds of 1/p - 1, estimated by T times the mean of 1/p - 1, in which a row weighs 1/p
    (exact if p is constant). Arms are tested one by one and the p-value is Bonferroni's. An arm
    without rows cannot be judged: its probability is nowhere in the log.

    Parameters
    ----------
    names : of the arms
    arms : (T,) the arm of each row, from 0
    propensities : (T,) the probability it was drawn with

    Returns
    -------
    CountTest : the p-value and what it means

    Examples
    --------
    >>> arms = np.repeat([0, 1], [300, 700])
    >>> found = srm_from_propensities(["A", "B"], arms, np.where(arms == 0, 0.25, 0.75))
    >>> round(found.p_value, 5), found.culprit
    (0.00052, 'B')
    """
    names = tuple(str(name) for name in names)
    arms, p = np.asarray(arms), np.asarray(propensities, dtype=np.float64)
    if arms.ndim != 1 or p.shape != arms.shape or not len(arms):
        raise InvalidInputError(
            f"arms has shape {arms.shape} and propensities {p.shape}; expected one of each a row."
        )
    if not np.issubdtype(arms.dtype, np.integer) or arms.min() < 0 or arms.max() >= len(names):
        raise InvalidInputError(
            f"arms has values of type {arms.dtype} from {arms.min()} to {arms.max()}; expected "
            f"whole numbers from 0 to {len(names) - 1}: which of the names each row's arm has."
        )
    if not ((p > 0) & (p <= 1)).all():  # True for nan
        raise InvalidInputError(
            f"propensities lie between {p.min():g} and {p.max():g}; expected above 0, at most 1."
        )
    K = len(names)
    sums: Floats = np.bincount(arms, 1 / p, K).astype(np.float64)
    spread: Floats = np.bincount(arms, (1 / p - 1) / p, K).astype(np.float64)
    largest = np.ones(K)
    np.maximum.at(largest, arms, 1 / p)
    return srm_from_sums(names, len(arms), sums, spread, largest, np.bincount(arms, minlength=K))


def srm_from_sums(
    names: Sequence[str],
    rows: int,
    sums: Floats,
    spread: Floats,
    largest: Floats,
    counts: NDArray[np.int64],
    of: str = "visits",
) -> CountTest:
    """`srm_from_propensities`, from what a database has added up over the rows of each arm.

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

    def batches(self) -> Iterator[tuple[list[int], LoggedSegment]]:
        """The pieces and their places; if joint, those drawn in the same way as trials of one."""
        alike: dict[Any, list[int]] = {}
        for j, piece in enumerate(self.pieces):
            how = (piece.segment.order, piece.segment.block) if self.joint else j
            alike.setdefault(how, []).append(j)
        most = max(MOST_CELLS // len(self.arms) ** 2, 1)
        batches = [same[i : i + most] for same in alike.values() for i in range(0, len(same), most)]
        for places in batches:
            some = [self.pieces[j] for j in places]
            segment = replace(
                some[0].segment,
                weights=np.concatenate([piece.segment.weights for piece in some]),
                rounds=np.concatenate([piece.segment.rounds for piece in some]),
                reference=None,
            )
            assigned = np.concatenate([piece.assigned for piece in some])
            opened = np.concatenate([piece.opened for piece in some])
            yield places, LoggedSegment(segment, assigned, opened)

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
    return LoggedSegment(dense, spread(piece.assigned), piece.positions, rewarded)


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
    planned = piece.segment.weights[0, k] * float(opened)
    near = f"{planned:.0f}" if abs(planned - round(planned)) < 1e-6 else f"about {planned:.1f}"
    return f"Segment {j} should have {near} of {name} and has {count}: chance cannot do that."
