"""Sample-ratio mismatch: do the assignments in the log follow the probabilities in the log?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import LoggedSegment, names_of, plain
from steadyarm.inference.sampling_variance import (
    NO_REWARDS,
    NORMAL,
    Balance,
    assignment_balance,
    attrition_balance,
    bennett,
    impossible_counts,
    normalised,
    standardised,
    surprise,
)
from steadyarm.inference.srm_many_arms import Found, assignment_crowd, attrition_crowd, columns_of
from steadyarm.wording import counted, strung

Floats = NDArray[np.float64]
Says = Callable[[float, float], str]
ALARM = 0.001  # below this a test has failed
NOTICE = 0.01  # below this it is worth a look
CROWD, MANY = 200, 2**12  # arms played of a large set, and arms, that are too many to judge jointly
MENTION = 0.05  # below this the verdict says what is off


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
    lost : positions that were handed out and have no row
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
        data: dict[str, Any] = plain(self)
        return data


def srm_test(names: Sequence[str], pieces: Iterable[LoggedSegment]) -> CountTest:
    """Whether the rows per arm fit the sum of the logged probabilities.

    Right under any policy that logs its allocations, however they followed from the rewards, and
    for every order of draws: independent, permuted blocks, shuffled. It conditions on the rows
    there are, so rows that all arms lose alike raise no alarm (`lost` counts them); rows that one
    arm loses do. An arm without a single row counts like any other. Of a large set the arms that
    were played are judged; more than 200 of them as `crowds.py` says.

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
    log = list(pieces)
    if _crowded(names, log):
        return _crowd_srm(names, log)
    names, log = _few(names, log)
    balance, impossible = assignment_balance(log)
    found = _judged(names, balance, got_visits(int(balance.observed.sum())))
    found = replace(found, lost=sum(int(piece.lost[0]) for piece in log))
    if impossible.any():
        j, k = np.argwhere(impossible[0])[0].tolist()
        verdict = _impossible_verdict(names[k], log[j], j, k)
        return replace(found, p_value=0.0, culprit=names[k], verdict=verdict)
    if found.p_value >= MENTION:
        fine = f"The rows per variant fit the logged probabilities (p = {found.p_value:.2g})."
        return replace(found, verdict=fine)
    return found


def srm_p_values(pieces: Iterable[LoggedSegment]) -> Floats:
    """(n,) p-values of `srm_test` for a batch of n tests."""
    balance, impossible = assignment_balance(pieces)
    return np.where(impossible.any(axis=(1, 2)), 0.0, surprise(balance)[0])


def attrition_test(names: Sequence[str], pieces: Iterable[LoggedSegment]) -> CountTest:
    """Whether rewards go missing more often in some arms than in others.

    Compared within segments only, so the share of missing rewards may move over time together
    with the allocation. A segment of one row says nothing; merge such segments by day before.

    Examples
    --------
    >>> from steadyarm.segments import Segment
    >>> fair = Segment(np.array([[0.5, 0.5]]), np.array([1000]))
    >>> piece = LoggedSegment(fair, np.array([[500, 500]]), rewarded=np.array([[490, 430]]))
    >>> attrition_test(["A", "B"], [piece]).verdict
    'B misses 70 rewards and should miss about 40 (+7.0 standard deviations; p = 2.7e-12).'
    """
    log = list(pieces)
    if _crowded(names, log):
        return _crowd_attrition(names, log)
    names, log = _few(names, log)
    balance = attrition_balance(log)
    found = _judged(names, balance, _misses, 1)
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
    arms : (T,) the arm of each row, from 0
    propensities : (T,) the probability it was drawn with

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
    each = 2 * scipy.stats.norm.sf(np.abs(residuals))
    each = np.where(normal, each, bennett(np.abs(off) / largest, variance / largest**2))
    each = np.where(residuals == 0, 1.0, each)
    p_value = float(min(1.0, each.min() * seen.sum()))
    worst = _furthest(residuals)
    # rows that stand for 1/p each should stand for all rows; so many would, were they like these
    should = counts[worst] * rows / sums[worst] if seen[worst] else 0.0
    says = got_visits(rows, of=of)
    verdict = (
        f"{names[worst]} {says(float(counts[worst]), should)} "
        f"({residuals[worst]:+.1f} standard deviations; p = {p_value:.2g})."
        if p_value < MENTION
        else f"The rows per variant fit the logged probabilities (p = {p_value:.2g})."
    )
    if not seen.all():
        unseen = [name for name, there in zip(names, seen, strict=True) if not there]
        verdict += f" Not in the log at all, so nothing can be said of: {strung(unseen)}."
    culprit = names[worst] if p_value < NOTICE else None
    expected = np.full(K, float(rows))
    return CountTest(
        names, p_value, float(residuals[worst] ** 2), 1, sums, expected, residuals, culprit, verdict
    )


def got_visits(total: int, who: str = "it", of: str = "visits") -> Says:
    """How people are told of a count among `total`, and how far it is from what was expected.

    Examples
    --------
    >>> got_visits(7567)(3713, 3846)
    'got 3,713 of 7,567 visits, about 133 fewer than it should'
    """

    def says(observed: float, expected: float) -> str:
        off = abs(observed - expected)
        size = f"{off:,.0f}" if off >= 10 else f"{off:.2g}"
        more = "more" if observed > expected else "fewer"
        return f"got {observed:,.0f} of {total:,} {of}, about {size} {more} than {who} should"

    return says


def _misses(observed: float, expected: float) -> str:
    return f"misses {observed:.0f} rewards and should miss about {expected:.0f}"


def _miss(observed: float, expected: float) -> str:
    return f"miss {observed:.0f} rewards and should miss about {expected:.0f}"


def _judged(names: tuple[str, ...], balance: Balance, says: Says, sign: int = 0) -> CountTest:
    """The result of a test; sign 1 if only too many of something is a fault."""
    p, statistic, freedom = (float(value[0]) for value in surprise(balance))
    residuals = balance.residuals[0]
    worst = int(residuals.argmax()) if sign else _furthest(residuals)
    observed, expected = balance.observed[0], balance.expected[0]
    verdict = (
        f"{names[worst]} {says(observed[worst], expected[worst])} "
        f"({residuals[worst]:+.1f} standard deviations; p = {p:.2g})."
    )
    culprit = names[worst] if p < NOTICE else None
    return CountTest(
        names, p, statistic, int(freedom), observed, expected, residuals, culprit, verdict
    )


def _furthest(residuals: Floats) -> int:
    """The arm that is furthest off; of two, the one with too few, since loss is more common."""
    size = np.nan_to_num(np.abs(residuals), posinf=1e300)
    close = size >= size.max() * (1 - 1e-9)
    return int(np.where(close, residuals, np.inf).argmin())


def _crowded(names: Sequence[str], log: Sequence[LoggedSegment]) -> bool:
    """Whether too many arms were played to judge all of them jointly."""
    if all(piece.segment.arms is None for piece in log):
        return bool(log) and len(names) > MANY
    return len(columns_of(log, len(names))) > CROWD


def _few(
    names: Sequence[str], log: list[LoggedSegment]
) -> tuple[tuple[str, ...], list[LoggedSegment]]:
    """Names and log of the arms that were played, in the same columns throughout."""
    if all(piece.segment.arms is None for piece in log):
        return names_of(names, log), log
    arms = columns_of(log, len(names))
    together = [_in_columns(piece, arms) for piece in log]
    return names_of([names[k] for k in arms.tolist()], together), together


def _in_columns(piece: LoggedSegment, arms: NDArray[np.int64]) -> LoggedSegment:
    segment = piece.segment
    place = np.searchsorted(arms, arms if segment.arms is None else segment.arms)

    def spread(values: NDArray[Any]) -> NDArray[Any]:
        out = np.zeros((len(values), len(arms)), dtype=values.dtype)
        out[:, place] = values
        return out

    rewarded = None if piece.rewarded is None else spread(piece.rewarded)
    dense = replace(segment, weights=spread(segment.weights), arms=None)
    return LoggedSegment(dense, spread(piece.assigned), piece.handed, rewarded)


def _crowd_srm(names: Sequence[str], log: list[LoggedSegment]) -> CountTest:
    crowd = assignment_crowd(names, log)
    found = crowd.surprise(names, 0)
    says = got_visits(int(crowd.observed.sum()), "they" if found.together else "it")
    test = _of_crowd(found, says)
    test = replace(test, lost=sum(int(piece.lost[0]) for piece in log))
    for j, piece in enumerate(log):
        impossible = impossible_counts(piece, normalised(piece.segment))[0]
        if impossible.any():
            k = int(impossible.argmax())
            name = names[piece.segment.arm_at(k)]
            verdict = _impossible_verdict(name, piece, j, k)
            return replace(test, p_value=0.0, culprit=name, verdict=verdict)
    if test.p_value >= MENTION:
        fine = f"the logged probabilities (p = {test.p_value:.2g})."
        many = f"The rows of {len(crowd.arms):,} variants, each and taken together, fit {fine}"
        return replace(test, verdict=many)
    return test


def _crowd_attrition(names: Sequence[str], log: list[LoggedSegment]) -> CountTest:
    if any(piece.rewarded is None for piece in log):
        raise InvalidInputError(NO_REWARDS)
    crowd = attrition_crowd(names, log)
    found = crowd.surprise(names, 1)
    test = _of_crowd(found, _miss if found.together else _misses, 1)
    if test.p_value < MENTION:
        return test
    missing = int(crowd.observed.sum())
    lost = counted(missing, "reward is", "rewards are")
    fine = f"{lost} missing, in all variants alike (p = {test.p_value:.2g})."
    return replace(test, verdict=fine if missing else "No reward is missing.")


def _of_crowd(found: Found, says: Says, sign: int = 0) -> CountTest:
    worst = int(found.residuals.argmax()) if sign else _furthest(found.residuals)
    who, p = found.groups[worst], found.p_value
    verdict = (
        f"{who} {says(found.observed[worst], found.expected[worst])} "
        f"({found.residuals[worst]:+.1f} standard deviations; p = {p:.2g})."
    )
    return CountTest(
        found.groups,
        p,
        found.statistic,
        found.freedom,
        found.observed,
        found.expected,
        found.residuals,
        who if p < NOTICE else None,
        verdict[:1].upper() + verdict[1:] if found.together else verdict,
    )


def _impossible_verdict(name: str, piece: LoggedSegment, j: int, k: int) -> str:
    count = int(piece.assigned[0, k])
    if piece.rows[0] > piece.positions[0]:
        return (
            f"Segment {j} handed out {int(piece.positions[0])} positions but has "
            f"{int(piece.rows[0])} rows: some are double."
        )
    if piece.segment.weights[0, k] <= 0:
        return f"Segment {j} never plays {name}, yet has {count} rows of it."
    planned = piece.segment.weights[0, k] * float(piece.positions[0])
    near = f"{planned:.0f}" if abs(planned - round(planned)) < 1e-6 else f"about {planned:.1f}"
    return f"Segment {j} should have {near} of {name} and has {count}: no luck can do that."
