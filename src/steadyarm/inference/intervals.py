"""Intervals for time-averaged rewards and gaps, valid after adaptive tests that drifted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtr, chdtri, fdtr, fdtri, ndtri

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.limits import (
    RareEvents,
    error_and_skew,
    gap_limits,
    in_passes,
    others_than,
    quadratic,
    rare_events,
    shortlist,
    skewed_limits,
    value_limits,
)
from steadyarm.inference.variance import (
    Scatter,
    inverse_weights,
    plain_thirds,
    score_scatter,
    student_factor,
)
from steadyarm.validation import check_fraction

Floats = NDArray[np.float64]

Booleans = NDArray[np.bool_]

DIRECTIONS = 512  # quasi-random directions that critical values are averaged over
POINTS = 4097  # of a table of lengths; its rounding is below that of the directions
HALVINGS = 20  # of the interval in which a critical value is searched: a millionth remains
RIDGE = 1e-12  # share of all variances, added to each so that there is a Cholesky factor
MOST_PAIRED = 128  # arms up to which all pairs are compared in every direction


def critical_values(
    X: Floats,
    covariance: Floats,
    freedom: Floats,
    alpha: float,
    family: int | None = None,
    paired: bool = True,
) -> tuple[Floats, Floats, Floats]:
    """The number of standard errors that make all comparisons hold simultaneously.

    Parameters
    ----------
    X : (K, r) arms, or other directions; (n, K, r) if they differ from test to test
    covariance : (n, r, r) of the parameter, up to a factor
    freedom : (n,) degrees of freedom it was estimated with
    alpha : chance that any of the comparisons fails
    family : number of arms that the comparisons are about, if X holds but some of them
    paired : whether arms are compared with each other; if not, only `values` are computed in full

    Returns
    -------
    values : (n,) for all arms, two-sided
    pairs : (n,) for all differences of two arms, two-sided
    best : (n, K) for the differences of every other arm to this one, one-sided

    With more than 128 arms the latter two are the smaller of Bonferroni's and Scheffé's bound; so
    are all three where X holds but some of the arms.
    """
    n, K, r = len(covariance), *X.shape[-2:]
    among = K if family is None else family
    tails = alpha / np.array([2 * among, max(among * (among - 1), 2), max(among - 1, 1)])
    bounds = np.minimum(  # of Bonferroni and Scheffé
        student_factor(-ndtri(tails), freedom[:, None]), length_quantile(r, freedom, alpha)[:, None]
    )
    values, pairs = bounds[:, 0].copy(), bounds[:, 1].copy()
    best = np.repeat(bounds[:, 2:], K, axis=1)
    if among != K:
        return values, pairs, best
    scale = np.maximum(np.einsum("nrr->n", covariance), np.finfo(np.float64).tiny)
    W = X @ _roots(covariance + RIDGE * scale[:, None, None] * np.eye(r))
    for i in range(n):
        table = _length_table(r, float(freedom[i]), alpha)
        at = W[i] @ _directions(r).T
        sizes = np.square(W[i]).sum(axis=1)
        largest = sizes.max()
        one = np.abs(at) * _inverse_root(sizes, largest)[:, None]
        values[i] = _solve(one.max(axis=0)[None], table, 1 - alpha, values[i : i + 1])[0]
        if not paired or K > MOST_PAIRED:
            continue
        apart = _inverse_root(np.square(W[i][:, None] - W[i]).sum(axis=2), largest)
        lead = (at - at[:, None]) * apart[:, :, None]  # of arm j over arm k, in each direction
        ahead, behind = lead.max(axis=1), -lead.min(axis=1)  # the latter for the direction -U
        pairs[i] = _solve(ahead.max(axis=0)[None], table, 1 - alpha, pairs[i : i + 1])[0]
        both = np.concatenate([ahead, behind], axis=1)
        best[i] = _solve(both, table, 1 - alpha, best[i])
    return values, pairs, best


def _roots(covariance: Floats) -> Floats:
    """Cholesky's factors, which are unique: other roots would meet other directions."""
    try:
        return np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:  # rewards that are all equal leave rounding errors
        sizes, axes = np.linalg.eigh(covariance)
        return np.asarray(axes * np.sqrt(np.maximum(sizes, 0.0))[:, None, :])


def _inverse_root(sizes: Floats, largest: float) -> Floats:
    """1/√size; 0 for directions that do not vary."""
    varies = sizes > 1e-10 * largest
    return np.where(varies, 1 / np.sqrt(np.where(varies, sizes, 1.0)), 0.0)


def pairwise_value(freedom: Floats, alpha: float) -> Floats:
    """(n,) standard errors by which a winner must lead every other arm, each arm by itself.

    The two-sided value of a single pair, however many arms there are: the winner has to pass all
    comparisons, not one of them (docs/research/technical_note.md proves it).

    Examples
    --------
    >>> pairwise_value(np.array([10.0, np.inf]), 0.05).round(3).tolist()
    [2.228, 1.96]
    """
    return student_factor(-ndtri(alpha / 2), freedom)


@lru_cache(maxsize=64)
def _directions(r: int) -> Floats:
    """(D, r) unit vectors, evenly spread and always the same."""
    from scipy.stats.qmc import Sobol  # slow to import, and not always needed

    Z = ndtri(Sobol(r, rng=20).random(DIRECTIONS).clip(1e-9, 1 - 1e-9))
    return np.asarray(Z / np.linalg.norm(Z, axis=1, keepdims=True))


def length_quantile(r: int, freedom: Floats, alpha: float) -> Floats:
    """(n,) what the length of r Student variables with a common error is above with chance alpha.

    The square of the length, divided by r, has the F distribution; with infinite freedom the length
    has the chi distribution.
    """
    chi = np.sqrt(chdtri(r, alpha))
    length = np.sqrt(r * fdtri(r, np.minimum(freedom, 1e9), 1 - alpha))
    return np.asarray(np.where(np.isinf(freedom), chi, length))


@lru_cache(maxsize=256)
def _length_table(r: int, freedom: float, alpha: float) -> tuple[Floats, Floats]:
    """Lengths, and the probabilities of not exceeding them; hardly anything is beyond the last."""
    lengths = np.linspace(0, float(length_quantile(r, np.array(freedom), 1e-4 * alpha)), POINTS)
    if np.isinf(freedom):
        return lengths, np.asarray(chdtr(r, lengths**2))
    return lengths, fdtr(r, freedom, lengths**2 / r)


def _solve(reach: Floats, table: tuple[Floats, Floats], level: float, most: Floats) -> Floats:
    """(M,) the c at which P(length reach_d <= c), averaged over directions d, is `level`.

    reach : (M, D); most : (M,) values that are too large, or right
    """
    low, high = np.zeros(len(reach)), most.copy()
    with np.errstate(divide="ignore"):
        inverse = 1 / np.maximum(reach, 0.0)
    for _ in range(HALVINGS):
        c = (low + high) / 2
        with np.errstate(invalid="ignore"):  # no length is too long where reach is 0
            right = np.interp(c[:, None] * inverse, *table, right=1.0).mean(axis=1) >= level
        low, high = np.where(right, low, c), np.where(right, c, high)
    return high


ASSUMPTIONS = {
    "rounds": "Many rounds, none dominating the sum; variants drawn independently as recorded.",
    "lists": "Many rounds, none dominating the sum; the world does not react to assignments.",
    "differences": "Many blocks, none dominating the sum; the world does not react to assignments.",
}


@dataclass(frozen=True, eq=False)
class Intervals:
    """Estimates and intervals of n tests; unknown limits are infinite, never nan.

    Each of the four statements, on all values, on all gaps, on the plausible set and on the
    winner, holds with probability `level`, each over all arms at once and whichever arm is
    recommended. They never contradict each other (docs/research/technical_note.md). For a large
    set they give the numbers of a short list; the statements still hold over the whole set.

    Attributes
    ----------
    arms : the variants, or those on the short list
    recommended : (n,) the arm that gaps are measured from, one of `arms`
    estimates, low, high : (n, K) time-averaged reward of every arm over the rounds played
    gaps, gap_low, gap_high : (n, K) by how much the recommended arm is better; 0 for itself
    plausible : (n, K) arms that cannot be ruled out as the best
    winner : (n,) whether the recommended arm is declared the winner; an arm that is not better than
        every other is declared with probability 1 - level at most, ties included
    too_few : (n, K) arms whose limit on the long side of the rewards is infinite because hardly
        any rewards carry the estimate: a few large purchases, say
    standard_errors : (n, K) of the estimates
    rounds : (n,) rounds played
    level : probability of each statement
    method : how the variance was found, or which confidence sequence
    assumption : the assumption, in one line
    shown : (K,) which arms of a large set `arms` are; None for all
    others : further arms that cannot be ruled out as the best

    Examples
    --------
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([2000]))
    >>> clicks = np.array([[300.0, 400.0]])
    >>> stats = SegmentStats(np.array([[1000, 1000]]), clicks, clicks)
    >>> evidence = Evidence.from_segments(ArmSet.one_hot(["A", "B"]), [(half, stats)])
    >>> found = fixed_budget(evidence)
    >>> found.estimates.round(2).tolist(), found.plausible_names()
    ([[0.3, 0.4]], ('B',))
    """

    arms: ArmSet
    recommended: NDArray[np.int64]
    estimates: Floats
    low: Floats
    high: Floats
    gaps: Floats
    gap_low: Floats
    gap_high: Floats
    plausible: Booleans
    winner: Booleans
    too_few: Booleans
    standard_errors: Floats
    rounds: NDArray[np.int64]
    level: float
    method: str
    assumption: str
    shown: NDArray[np.int64] | None = None
    others: int = 0

    def plausible_names(self, test: int = 0) -> tuple[str, ...]:
        """Names of the arms that may be the best of one test."""
        return tuple(self.arms.names[k] for k in np.flatnonzero(self.plausible[test]).tolist())


def fixed_budget(
    evidence: Evidence, level: float = 0.95, recommended: ArrayLike | None = None
) -> Intervals:
    """Intervals for a test that is analysed once, when its budget is spent.

    The error of an estimate is a martingale divided by the rounds, so it is about normal; its
    variance is estimated from the scores (`variance.py`), and what all arms share enters the
    critical values (in large sets only their number does). Where scores are skewed the
    limit on the long side is moved out, as far as Hall's second-order expansion asks.

    Parameters
    ----------
    evidence : scores of the pieces of a test, or of a batch of tests
    level : probability of each of the four statements
    recommended : (n,) arm of each test that gaps are measured from; by default the best estimate

    Returns
    -------
    Intervals : of estimates and of gaps

    Examples
    --------
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> arms = ArmSet.one_hot(["A", "B"])
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([200]))
    >>> clicks = np.array([[60.0, 30.0]])
    >>> stats = SegmentStats(np.array([[100, 100]]), clicks, clicks)
    >>> found = fixed_budget(Evidence.from_segments(arms, [(half, stats)]))
    >>> found.low.round(2).tolist(), found.high.round(2).tolist()
    ([[0.45, 0.18]], [[0.75, 0.42]])
    >>> found.plausible_names(), found.winner.tolist()
    (('A',), [True])
    """
    alpha = 1 - check_fraction(level, "level")
    best = recommended_arms(evidence, recommended)
    if evidence.arms.large:
        evidence, best = shortlist(evidence, best)
    analysis = SingleAnalysis(evidence)
    scatter, freedom, X = analysis.scatter, analysis.freedom, evidence.arms.coordinates
    z, z_pair, z_best = critical_values(X, analysis.covariance, freedom, alpha, evidence.family)
    z_win = pairwise_value(freedom, alpha)[:, None]
    z_best = np.maximum(z_best, z_win)  # ruling out an arm and declaring a winner agree
    z_pair = np.maximum(z_pair, z_best.max(axis=1))
    low, high = analysis.value_limits(z[:, None])
    gaps, rows = analysis.gaps_from(best), np.arange(len(best))
    gap_low, gap_high = gaps.limits(z_pair[:, None])
    lead, _ = gaps.limits(z_best)
    ahead, _ = gaps.limits(z_win)
    gap_low[rows, best] = gap_high[rows, best] = lead[rows, best] = 0.0
    ahead[rows, best] = np.inf
    winner, others = np.asarray((ahead > 0).all(axis=1)), 0
    if evidence.whole is not None:
        if winner[0]:
            winner[0] = in_passes(evidence, scatter, X[best[0]], z_win[0, 0]).sum() == 1
        others = others_than(evidence, in_passes(evidence, scatter, X[best[0]], z_best[0, 0]))
    found = Intervals(
        arms=evidence.arms,
        recommended=best,
        estimates=evidence.estimates,
        low=low,
        high=high,
        gaps=gaps.centre,
        gap_low=gap_low,
        gap_high=gap_high,
        plausible=lead <= 0,
        winner=winner,
        too_few=refused(analysis.events, low, high),
        standard_errors=analysis.errors,
        rounds=evidence.played,
        level=float(level),
        method=scatter.method,
        assumption=ASSUMPTIONS[scatter.method],
        shown=evidence.shown,
        others=others,
    )
    return settle(found, ahead)


def variance_kept(adjusted: Evidence, raw: Evidence) -> float | None:
    """Share of the variance of comparisons that is left after adjusting for covariates.

    Each arm is compared with the mean of all; the median over the arms. None where variances are
    not known.
    """
    X = adjusted.arms.coordinates
    D = X - X.mean(axis=0)
    with np.errstate(all="ignore"):
        ours, theirs = (
            quadratic(D, SingleAnalysis(each).covariance)[0] for each in (adjusted, raw)
        )
        ratio = ours / theirs
    known = ratio[np.isfinite(ratio)]
    return float(np.median(known)) if known.size else None


class SingleAnalysis:
    """Limits of values and gaps after a test that is analysed once, from all of its scores.

    Attributes
    ----------
    evidence : on all arms, or on the short list of a large set
    scatter : the variance of the score sum
    covariance : (n, r, r) of the score sum, as critical values use it
    freedom : (n,) its degrees of freedom
    events : how few rewards carry the estimates; None where arms share features
    errors : (n, K) standard errors of the estimates, infinite if unknown
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.scatter = evidence, score_scatter(evidence)
        self.events = _events(evidence, self.scatter)
        self.freedom, self.covariance = self.scatter.freedom, self.scatter.total
        self._T = T = np.maximum(evidence.played, 1)[:, None]
        X = evidence.arms.coordinates
        everywhere = np.broadcast_to(X, (len(T), *X.shape))
        error, skew = error_and_skew(everywhere, evidence, self.scatter)
        self._known_errors, self._skew = error / T, skew / T
        self.errors = self._known_errors
        if (events := self.events) is not None:  # the variance of clicks follows from their rate
            self.freedom = np.where(events.clicks[:, 0], np.inf, self.freedom)
            self.covariance = self.covariance.copy()
            diagonal = np.einsum("nkk->nk", self.covariance)
            silent = events.clicks & (diagonal <= 0)  # every reward of the arm was the same
            diagonal[silent] = ((T * events.silent_error) ** 2)[silent]
            unknown = events.clicks & np.isinf(self.errors)
            self.errors = np.where(unknown, events.silent_error, self.errors)

    def value_limits(self, z: Floats) -> tuple[Floats, Floats]:
        """(n, K) limits of all values at z standard errors."""
        estimates, error = self.evidence.estimates, self._known_errors
        limits = skewed_limits(estimates, error, self._skew, z)
        if self.events is None:
            return limits
        return value_limits(self.events, error, z, *limits)

    def gaps_from(self, arm: NDArray[np.int64], ratio: Floats | float = 1.0) -> Gaps:
        """The gaps measured from one arm of each test, (n,), or from `ratio` times its value."""
        D, gaps = gap_directions(self.evidence, arm, ratio)
        error, skew = error_and_skew(D, self.evidence, self.scatter)
        return Gaps(self, arm, ratio, gaps, error / self._T, skew / self._T)


@dataclass(frozen=True, eq=False)
class Gaps:
    """By how much one arm, or a multiple of its value, is better than each arm.

    Attributes
    ----------
    arm : (n,) that arm; ratio : the multiple
    centre, error, skew : (n, K) estimates, standard errors, third moments over variances
    """

    analysis: SingleAnalysis
    arm: NDArray[np.int64]
    ratio: Floats | float
    centre: Floats
    error: Floats
    skew: Floats

    def limits(self, z: Floats) -> tuple[Floats, Floats]:
        """(n, K) limits at z standard errors."""
        limits = skewed_limits(self.centre, self.error, self.skew, z)
        events, evidence = self.analysis.events, self.analysis.evidence
        if events is None:
            return limits
        return gap_limits(events, evidence.sign, self.arm, self.error, z, limits, self.ratio)


def _events(evidence: Evidence, scatter: Scatter) -> RareEvents | None:
    """The number of rewards that carry the estimates; None where arms share features."""
    inverse = inverse_weights(evidence)
    if inverse is None:
        return None
    variance = np.maximum(np.diagonal(scatter.total, axis1=1, axis2=2), 0.0)
    third, parts = plain_thirds(evidence)
    return rare_events(
        evidence,
        evidence.played,
        evidence.estimates,
        variance,
        third[:, -1],
        parts[:, -1],
        inverse[:, :, -1],
    )


def refused(events: RareEvents | None, low: Floats, high: Floats) -> Booleans:
    """(n, K) where one limit is known and the other is infinite for want of events."""
    if events is None:
        return np.zeros(low.shape, dtype=bool)
    return np.asarray(events.too_few & (np.isfinite(low) | np.isfinite(high)))


def settle(found: Intervals, lead: Floats) -> Intervals:
    """Apply a declared winner: no other arm is plausible, and all gaps are above 0.

    The lowest of the limits that declare the winner holds for all of its gaps at once: it is too
    high only if the limit of its strongest rival is.

    lead : (n, K) lower limits of the gaps of the recommended arm that declare a winner
    """
    alone = np.arange(found.arms.size) == found.recommended[:, None]
    winner = found.winner[:, None]
    least = np.where(alone, np.inf, lead).min(axis=1, keepdims=True)
    return replace(
        found,
        plausible=np.where(winner, alone, found.plausible),
        gap_low=np.where(winner & ~alone, np.maximum(found.gap_low, least), found.gap_low),
        others=0 if found.winner.all() else found.others,
    )


def recommended_arms(evidence: Evidence, recommended: ArrayLike | None) -> NDArray[np.int64]:
    """(n,) checked arms, or the best estimates."""
    if recommended is None:
        return evidence.best
    arms = np.atleast_1d(np.asarray(recommended))
    n, K = len(evidence.rounds), evidence.arms.size
    if (
        arms.shape != (n,)
        or not np.issubdtype(arms.dtype, np.integer)
        or not ((arms >= 0) & (arms < K)).all()
    ):
        raise InvalidInputError.of(
            "recommended",
            recommended,
            f"the index of an arm, 0 to {K - 1}, for each of the {n} tests",
        )
    return arms.astype(np.int64)


def gap_directions(
    evidence: Evidence, best: NDArray[np.int64], ratio: Floats | float = 1.0
) -> tuple[Floats, Floats]:
    """(n, K, r) what to multiply parameters with to get gaps, and (n, K) the estimated gaps.

    ratio : (n, K) multiple of the value of `best` that gaps are measured from
    """
    X = evidence.arms.coordinates
    sign = evidence.sign
    estimates = evidence.estimates
    gaps = sign * (ratio * estimates[np.arange(len(best)), best][:, None] - estimates)
    multiple = np.broadcast_to(ratio, gaps.shape)[:, :, None]
    return sign * (multiple * X[best][:, None, :] - X), gaps
