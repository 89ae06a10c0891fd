"""Lifts: by how much each arm differs from a control, absolute and relative, with intervals.

A lift is a gap measured from the control in place of the recommended arm, so its limits are those
of gaps (`intervals.py`, `sequences.py`). The limits of a ratio of two values are the multiples of
the control's value that the arm's value cannot be told from (Fieller 1954).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.inference.boundaries import Looks
from steadyarm.inference.evidence import Evidence, shortlist
from steadyarm.inference.intervals import (
    ASSUMPTIONS,
    Intervals,
    SingleAnalysis,
    critical_values,
    pairwise_value,
)
from steadyarm.inference.sequences import ConfidenceSequence
from steadyarm.validation import check_fraction

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Limits = Callable[[Floats], tuple[Floats, Floats]]

STEPS = 60  # of the search for the limits of a ratio; about ten are needed
PRECISION = 1e-8  # of these limits
LARGEST = 1e12  # ratios beyond which nothing is searched


@dataclass(frozen=True, eq=False)
class Lifts:
    """Differences of K arms from a control in n tests; the control's own row is 0.

    The absolute intervals hold for all arms at once with probability `level`, and so do the
    relative ones. A relative interval excludes 0 exactly if the absolute one does. Unknown
    limits are infinite.

    Attributes
    ----------
    control : row of the control
    differences, low, high : (n, K) value of the arm minus that of the control, in units of the
        reward, whether large or small rewards are good
    relative, relative_low, relative_high : (n, K) difference divided by the control's value; nan,
        not defined, where the control's value cannot be told from 0
    standard_errors : (n, K) of the differences, infinite if unknown
    level : probability of each of the two statements
    method, assumption : as in `Intervals`
    shown : (K,) which arms of a large set the rows are; None for all

    Examples
    --------
    >>> from steadyarm.arms import ArmSet
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([2000]))
    >>> clicks = np.array([[300.0, 400.0]])
    >>> stats = SegmentStats(np.array([[1000, 1000]]), clicks, clicks)
    >>> evidence = Evidence.from_segments(ArmSet.one_hot(["A", "B"]), [(half, stats)])
    >>> found = lifts(evidence, control=0)
    >>> found.differences.round(2).tolist()
    [[0.0, 0.1]]
    """

    control: int
    differences: Floats
    low: Floats
    high: Floats
    relative: Floats
    relative_low: Floats
    relative_high: Floats
    standard_errors: Floats
    level: float
    method: str
    assumption: str
    shown: NDArray[np.int64] | None = None


def lifts(
    evidence: Evidence,
    control: int,
    level: float = 0.95,
    intervals: Intervals | None = None,
) -> Lifts:
    """Differences from a control after a test that is analysed once, when its budget is spent.

    Critical values are those of Dunnett (1955) for comparisons with a control, for the covariance
    that was estimated; limits of ratios are Fieller's, with the limits of both values in place of
    their standard errors where rewards are clicks or skewed (Donner and Zou 2012).

    Parameters
    ----------
    evidence : scores of the pieces of a test, or of a batch of tests
    control : index of the arm that others are compared with
    level : probability with which absolute intervals hold for all arms, and so do relative ones
    intervals : of the same test, if it may declare a winner: no interval of the winner and the
        control contains 0 then

    Returns
    -------
    Lifts : absolute and relative differences with intervals

    Examples
    --------
    >>> from steadyarm.arms import ArmSet
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([2000]))
    >>> clicks = np.array([[300.0, 400.0]])
    >>> stats = SegmentStats(np.array([[1000, 1000]]), clicks, clicks)
    >>> evidence = Evidence.from_segments(ArmSet.one_hot(["standard", "guest"]), [(half, stats)])
    >>> found = lifts(evidence, control=0)
    >>> np.round([found.differences[0, 1], found.low[0, 1], found.high[0, 1]], 2).tolist()
    [0.1, 0.05, 0.15]
    >>> ends = found.relative_low[0, 1], found.relative_high[0, 1]
    >>> np.round([found.relative[0, 1], *ends], 2).tolist()
    [0.33, 0.15, 0.55]
    """
    alpha = 1 - check_fraction(level, "level")
    evidence, row = _compare(evidence, control)
    analysis, arm = SingleAnalysis(evidence), np.full(len(evidence.rounds), row)
    alone = pairwise_value(analysis.freedom, alpha)[:, None]
    together = simultaneous_value(analysis, row, alpha)[:, None]
    errors = analysis.gaps_from(arm).error
    if analysis.events is not None:  # of clicks it is known even if all were the same
        both = np.hypot(analysis.errors, analysis.errors[:, [row]])
        errors = np.where(analysis.events.clicks & np.isinf(errors), both, errors)

    def limits_at(z: Floats) -> Limits:
        return lambda ratio: analysis.gaps_from(arm, ratio).limits(z)

    return lifts_between(
        evidence.estimates,
        row,
        _limits_with_winner(limits_at(together), limits_at(alone), intervals, row),
        analysis.value_limits(together),
        standard_errors=errors,
        level=float(level),
        method=analysis.scatter.method,
        assumption=ASSUMPTIONS[analysis.scatter.method],
        bounds=evidence.bounds,
        shown=evidence.shown,
    )


def lift_sequence(
    evidence: Evidence,
    budget: int,
    control: int,
    level: float = 0.95,
    reward_range: tuple[float, float] | None = None,
    looks: Looks | None = None,
    intervals: Intervals | None = None,
) -> Lifts:
    """Differences from a control in a test that is watched, and may be stopped at any time.

    With probability `level` none of all interim analyses, at the end of any piece, is wrong on any
    absolute lift; and with that probability none is on any relative one, as long as the true ratio
    stays the same from one to the next.

    Parameters
    ----------
    evidence : scores of the pieces of a test, or of a batch of tests
    budget : planned rounds of the whole test, the same at every analysis
    control : index of the arm that others are compared with
    level, reward_range, looks : as for `confidence_sequence`
    intervals : the intervals of the same test, as for `lifts`

    Returns
    -------
    Lifts : as of the last piece

    Examples
    --------
    >>> from steadyarm.arms import ArmSet
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([2000]))
    >>> clicks = np.array([[300.0, 400.0]])
    >>> stats = SegmentStats(np.array([[1000, 1000]]), clicks, clicks)
    >>> evidence = Evidence.from_segments(ArmSet.one_hot(["A", "B"]), [(half, stats)])
    >>> found = lift_sequence(evidence, budget=2000, control=0)
    >>> bool(found.low[0, 1] > 0)
    True
    """
    check_fraction(level, "level")
    evidence, row = _compare(evidence, control)
    sequence = ConfidenceSequence(evidence, budget, reward_range, looks)
    return _at_piece(sequence, evidence.rounds.shape[1] - 1, row, level, intervals)


def lift_path(
    evidence: Evidence,
    budget: int,
    control: int,
    level: float = 0.95,
    reward_range: tuple[float, float] | None = None,
    at: Iterable[int] | None = None,
    looks: Looks | None = None,
) -> list[Lifts]:
    """The lifts of `lift_sequence` as they stood at the end of every piece.

    Parameters
    ----------
    evidence : scores of the pieces of a test, or of a batch of tests
    budget, control, level, reward_range, looks : as for `lift_sequence`
    at : indices of the pieces, if not all are wanted

    Returns
    -------
    Lifts, one for each piece

    Examples
    --------
    >>> from steadyarm.arms import ArmSet
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([2000]))
    >>> clicks = np.array([[300.0, 400.0]])
    >>> stats = SegmentStats(np.array([[1000, 1000]]), clicks, clicks)
    >>> evidence = Evidence.from_segments(ArmSet.one_hot(["A", "B"]), [(half, stats)])
    >>> [bool(found.low[0, 1] > 0) for found in lift_path(evidence, budget=2000, control=0)]
    [True]
    """
    check_fraction(level, "level")
    evidence, row = _compare(evidence, control)
    sequence = ConfidenceSequence(evidence, budget, reward_range, looks)
    pieces = evidence.rounds.shape[1]
    wanted = range(pieces) if at is None else at
    return [_at_piece(sequence, range(pieces)[j], row, level) for j in wanted]


def _at_piece(
    sequence: ConfidenceSequence,
    j: int,
    row: int,
    level: float,
    intervals: Intervals | None = None,
) -> Lifts:
    evidence = sequence.evidence
    X, arm = evidence.arms.coordinates, np.full(len(evidence.rounds), row)
    alpha, events = (1 - level) / (2 * max(evidence.family - 1, 1)), sequence.events(j)

    def limits_at(alpha: float) -> Limits:
        return lambda ratio: sequence.gap_limits(j, arm, alpha, events, ratio)

    single = limits_at(sequence.pair_alpha(level))
    limits = _limits_with_winner(limits_at(alpha), single, intervals, row)
    low, high = limits(np.ones((1, 1)))
    directions = np.broadcast_to(X - X[row], (len(arm), *X.shape))
    return lifts_between(
        sequence.until(j).estimates,
        row,
        limits,
        sequence.value_limits(j, alpha, events),
        standard_errors=sequence.errors(j, directions, low, high),
        level=float(level),
        method=sequence.method,
        assumption=sequence.assumption,
        bounds=evidence.bounds,
        shown=evidence.shown,
    )


def _limits_with_winner(
    together: Limits, alone: Limits, intervals: Intervals | None, row: int
) -> Limits:
    """The limits `together`, but none on the other side of 0 than a declared winner says.

    A winner has passed each comparison by itself. Where the simultaneous interval of the winner and
    the control contains 0 nevertheless, its end beside 0 is that of the comparison `alone`. All
    other ends stay, so that nearly as many tests have only right intervals.
    """
    if intervals is None or not intervals.winner.any():
        return together
    arm = intervals.recommended[:, None]
    compared = (np.arange(intervals.arms.size) == arm) | (arm == row)
    ones = np.ones(compared.shape)
    (low, high), (least, most) = together(ones), alone(ones)
    unclear = intervals.winner[:, None] & compared & (low <= 0) & (high >= 0)
    better, worse = unclear & (least > 0), unclear & (most < 0)

    def limits(ratio: Floats) -> tuple[Floats, Floats]:
        (low, high), (least, most) = together(ratio), alone(ratio)
        return np.where(better, least, low), np.where(worse, most, high)

    return limits


def _compare(evidence: Evidence, control: int) -> tuple[Evidence, int]:
    """The evidence on the arms that are compared, and the row of the control among them.

    Lifts are not turned by the direction, so gaps are taken as if small rewards were good: then
    the gap from the control is the arm's value minus the control's.
    """
    size = evidence.arms.size
    if isinstance(control, bool) or not isinstance(control, (int, np.integer)):
        raise InvalidInputError.of("control", control, f"the index of an arm, 0 to {size - 1}")
    if not 0 <= control < size:
        raise InvalidInputError.of("control", control, f"the index of an arm, 0 to {size - 1}")
    row = int(control)
    if evidence.arms.large:
        evidence, _ = shortlist(evidence, also=[row])
        assert evidence.shown is not None
        row = int(np.searchsorted(evidence.shown, row))
    return replace(evidence, direction="minimize"), row


def simultaneous_value(analysis: SingleAnalysis, row: int, alpha: float) -> Floats:
    """(n,) standard errors, so that all differences from the control hold at once.

    Also so that all ratios to it do: these are tests of x_k - ρx_c, whose correlations follow from
    the estimated ratios. The larger of both serves for both, so that they agree about 0.
    """
    evidence = analysis.evidence
    X, family = evidence.arms.coordinates, max(evidence.family - 1, 1)
    others = np.arange(len(X)) != row
    if not others.any():
        return np.zeros(len(evidence.rounds))
    covariance, freedom = analysis.covariance, analysis.freedom
    apart, _, _ = critical_values(
        X[others] - X[row], covariance, freedom, alpha, family, paired=False
    )
    apart = np.maximum(apart, pairwise_value(freedom, alpha))  # as a declared winner asks for
    if family > others.sum():  # bounds that hold whatever is correlated how
        return apart
    ratios = _ratios(evidence.estimates, row)[:, others, None]
    ratios = np.clip(np.where(np.isfinite(ratios), ratios, 1.0), -100.0, 100.0)
    plugged, _, _ = critical_values(
        X[others] - ratios * X[row], covariance, freedom, alpha, family, paired=False
    )
    return np.maximum(apart, plugged)


def _ratios(estimates: Floats, row: int) -> Floats:
    """(n, K) estimated ratios to the control's value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(estimates / estimates[:, [row]])


def lifts_between(
    estimates: Floats,
    row: int,
    limits: Limits,
    values: tuple[Floats, Floats],
    standard_errors: Floats,
    bounds: tuple[float, float] | None = None,
    **given: Any,
) -> Lifts:
    """Lifts from the limits of value_k - ratio times the control's value, for any ratio.

    estimates : (n, K); row : of the control
    limits : gives limits (n, K) for ratios (n, K)
    values : limits (n, K) of the values
    standard_errors : (n, K) of the differences
    bounds : least and largest possible reward; where none is negative, nothing falls by over 100 %
    given : what else `Lifts` have
    """
    low, high = (np.array(limit) for limit in limits(np.ones(estimates.shape)))
    at_least, at_most = values[0][:, [row]], values[1][:, [row]]
    sign = np.where(at_least > 0, 1.0, np.where(at_most < 0, -1.0, np.nan))  # of the control
    ratios = np.where(np.isnan(sign), np.nan, _ratios(estimates, row))

    def too_small(low: Floats, high: Floats) -> Floats:
        """Above 0 where limits for a ratio show that the true one is larger."""
        return np.where(sign > 0, low, -high)

    def too_large(low: Floats, high: Floats) -> Floats:
        return np.where(sign > 0, -high, low)

    reach = (high - low) / np.abs(2 * np.where(np.isnan(sign), 1.0, estimates[:, [row]]))
    least = _edge(lambda r: too_small(*limits(r)), ratios, too_small(low, high), reach, -1.0)
    most = _edge(lambda r: too_large(*limits(r)), ratios, too_large(low, high), reach, 1.0)
    if bounds is not None and bounds[0] >= 0:
        least = np.maximum(least, 0.0)
    relative, errors = np.stack([ratios, least, most]) - 1, np.array(standard_errors)
    for numbers in (low, high, errors, *relative):
        numbers[:, row] = 0.0
    return Lifts(
        control=row,
        differences=estimates - estimates[:, [row]],
        low=low,
        high=high,
        relative=relative[0],
        relative_low=relative[1],
        relative_high=relative[2],
        standard_errors=errors,
        **given,
    )


@np.errstate(all="ignore")
def _edge(
    g: Callable[[Floats], Floats], start: Floats, at_one: Floats, reach: Floats, outward: float
) -> Floats:
    """(n, K) up to where g, which is below 0 at the start, stays so in the outward direction.

    Brackets grow outward until they hold the edge, then regula falsi (Illinois) narrows them. The
    ratio 1 is an end of the first bracket wherever it lies outward, so that the edge is beyond it
    exactly if g(1) is not positive: then the relative and the absolute interval agree about 0.

    start : (n, K) nan where nothing is to be found
    at_one : (n, K) g(1)
    reach : (n, K) about how far the edge may be
    """
    there = ~np.isnan(start)
    inner, value = start, np.where(there, g(np.where(there, start, 1.0)), -np.inf)
    beyond = outward * (1.0 - start) > 0  # the ratio 1 lies outward
    found, passed = beyond & (at_one > 0), beyond & (at_one <= 0)
    inner, at_inner = np.where(passed, 1.0, inner), np.where(passed, at_one, value)
    outer, at_outer = np.where(found, 1.0, inner), np.where(found, at_one, value)
    step = np.maximum(np.where(np.isfinite(reach), reach, 1.0), 1e-6 * (1 + np.abs(inner)))
    while (going := ~found & np.isfinite(at_inner) & (np.abs(inner) < LARGEST)).any():
        tried = np.where(going, inner + outward * step, 1.0)
        value = g(tried)
        here, nearer = going & (value > 0), going & ~(value > 0)
        outer, at_outer = np.where(here, tried, outer), np.where(here, value, at_outer)
        inner, at_inner = np.where(nearer, tried, inner), np.where(nearer, value, at_inner)
        found, step = found | here, 2 * step
    kept = np.zeros(start.shape)  # 1 if the last step moved the outer end, -1 if the inner one
    for _ in range(STEPS):
        wide = found & (np.abs(outer - inner) > PRECISION * (1 + np.abs(inner)))
        if not wide.any():
            break
        share = at_inner / (at_inner - at_outer)
        share = np.where(np.isfinite(share), np.clip(share, 1e-3, 1 - 1e-3), 0.5)
        tried = np.where(wide, inner + share * (outer - inner), 1.0)
        value = g(tried)
        out, into = wide & (value > 0), wide & ~(value > 0)
        # An end that stays for a second time counts half, or regula falsi would creep.
        at_inner = np.where(out & (kept > 0), at_inner / 2, np.where(into, value, at_inner))
        at_outer = np.where(into & (kept < 0), at_outer / 2, np.where(out, value, at_outer))
        inner, outer = np.where(into, tried, inner), np.where(out, tried, outer)
        kept = np.where(out, 1.0, np.where(into, -1.0, kept))
    return np.where(there, np.where(found, inner, outward * np.inf), np.nan)
