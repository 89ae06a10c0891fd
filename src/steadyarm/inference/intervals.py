"""Intervals for time-averaged rewards and gaps after a test, although it adapted and drifted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from steadyarm import decompositions, linalg
from steadyarm.arms import ArmSet
from steadyarm.compiled import kernel
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
    shortlisted,
    skewed_limits,
    value_limits,
)
from steadyarm.inference.quantiles import (
    length_quantile,
    length_table,
    normal_quantile,
    normal_quantiles,
    student_reaches,
)
from steadyarm.inference.variance import Scatter, inverse_weights, plain_thirds, score_scatter
from steadyarm.validation import check_fraction

# Critical values for many comparisons at once, from the covariance they share.


Floats = NDArray[np.float64]

DIRECTIONS = 512
STORED = 6  # dimensions of which `sobol.npy` has the directions
MOST_PAIRED = 128  # arms up to which all pairs are compared in every direction


def critical_values(
    X: Floats,
    covariance: Floats,
    freedom: Floats,
    alpha: float,
    family: int | None = None,
    paired: bool = True,
) -> tuple[Floats, Floats, Floats]:
    """How many standard errors must be allowed for, so that all comparisons hold at once.

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
    whole, paired = among == K, paired and among <= MOST_PAIRED
    values, pairs, best = np.empty(n), np.empty(n), np.empty((n, K))
    if whole:
        # other roots of the same covariance would meet other directions and give other bits
        roots = decompositions.square_roots(covariance)
        W = linalg.times_each(X, roots)
    for free in np.unique(freedom):
        rows = np.flatnonzero(freedom == free)
        sure = length_quantile(r, float(free), alpha)  # Scheffé's
        tails = 2 * among, max(among * (among - 1), 2), max(among - 1, 1)
        one, two, other = student_reaches(normal_quantiles(alpha / np.array(tails)), free).tolist()
        values[rows] = one if whole else min(sure, one)
        pairs[rows], best[rows] = min(sure, two), min(sure, other)
        if whole:
            grid, step = length_table(r, float(free), alpha)
            v, p, b = np.empty(len(rows)), np.empty(len(rows)), np.empty((len(rows), K))
            _critical_kernel(W[rows], _directions(r), grid, step, 1 - alpha, paired, v, p, b)
            values[rows] = np.minimum(v, values[rows])
            pairs[rows], best[rows] = np.minimum(p, pairs[rows]), np.minimum(b, best[rows])
    return values, pairs, best


def pairwise_value(freedom: Floats, alpha: float) -> Floats:
    """(n,) standard errors by which a winner must lead every other arm, each arm by itself.

    The two-sided value of a single pair, however many arms there are: the winner has to pass all
    comparisons, not one of them (docs/inference.md proves it).

    Examples
    --------
    >>> pairwise_value(np.array([10.0, np.inf]), 0.05).round(3).tolist()
    [2.228, 1.96]
    """
    return student_reaches(normal_quantile(alpha / 2), freedom)


@lru_cache(maxsize=64)
def _directions(r: int) -> Floats:
    """(D, r) unit vectors, evenly spread and always the same."""
    Z = -normal_quantiles(sobol_points(r).clip(1e-9, 1 - 1e-9))
    return np.asarray(Z / np.sqrt(np.square(Z).sum(axis=1, keepdims=True)))


def sobol_points(r: int) -> Floats:
    """(D, r) the first points of a scrambled Sobol sequence: whole numbers over 2^30.

    `sobol.npy` has those of up to six dimensions side by side, as `scipy.stats.qmc` makes them,
    because importing that takes longer than the whole analysis of a small log.
    """
    if r > STORED:
        return np.asarray(scipy.stats.qmc.Sobol(r, rng=20).random(DIRECTIONS))
    points = np.load(Path(__file__).with_name("sobol.npy"))
    first = r * (r - 1) // 2
    return np.asarray(points[:, first : first + r] / 2.0**30)


@kernel(small=2**14)
def _critical_kernel(
    W: Floats,
    U: Floats,
    grid: Floats,
    step: float,
    level: float,
    paired: bool,
    values: Floats,
    pairs: Floats,
    best: Floats,
) -> None:
    """Fill values (n,), pairs (n,), best (n, K) for whitened arms W (n, K, r), directions U.

    Without pairs the latter two are left infinite.
    """
    n, K, r = W.shape
    D = U.shape[0]
    at = np.empty(K)
    one, two, other = np.empty(D), np.empty(D), np.empty((K, 2 * D))
    inverse, apart = np.empty(K), np.zeros((K, K))
    for i in range(n):
        largest = 0.0
        for k in range(K):
            size = 0.0
            for a in range(r):
                size += W[i, k, a] * W[i, k, a]
            inverse[k] = size
            largest = max(largest, size)
        for k in range(K):
            for j in range(k if paired else 0):
                size = 0.0
                for a in range(r):
                    gap = W[i, k, a] - W[i, j, a]
                    size += gap * gap
                apart[k, j] = 1.0 / np.sqrt(size) if size > 1e-14 * largest else 0.0
                apart[j, k] = apart[k, j]
            inverse[k] = 1.0 / np.sqrt(inverse[k]) if inverse[k] > 1e-14 * largest else 0.0
        for d in range(D):
            one[d], two[d] = 0.0, 0.0
            for k in range(K):
                total = 0.0
                for a in range(r):
                    total += W[i, k, a] * U[d, a]
                at[k] = total
                one[d] = max(one[d], abs(total) * inverse[k])
            if paired:
                for k in range(K):
                    ahead, behind = 0.0, 0.0
                    for j in range(K):
                        lead = (at[j] - at[k]) * apart[k, j]
                        ahead = lead if lead > ahead else ahead
                        behind = -lead if -lead > behind else behind
                    other[k, d], other[k, D + d] = ahead, behind  # the latter for direction -U
                    two[d] = max(two[d], ahead)
        values[i] = _solve(one, grid, step, level)
        if paired:
            pairs[i] = _solve(two, grid, step, level)
            for k in range(K):
                best[i, k] = _solve(other[k], grid, step, level)
        else:
            pairs[i] = np.inf
            best[i] = np.inf


@kernel
def _solve(reach: Floats, grid: Floats, step: float, level: float) -> float:
    """The c at which the mean over directions of P(length <= c / reach) is `level`.

    Rounded up to a hundredth of a percent; overwrites `reach`.
    """
    low, high, last = 0.5 * step, step * (grid.size - 1), grid.size - 1.0
    for d in range(reach.size):
        reach[d] = 1.0 / (reach[d] * step) if reach[d] > 0.0 else np.inf
    while high - low > 1e-4 * high:
        c = 0.5 * (low + high)
        total = 0.0
        for d in range(reach.size):
            x = c * reach[d]
            if x >= last:
                total += 1.0
            else:
                i = int(x)
                total += grid[i] + (x - i) * (grid[i + 1] - grid[i])
        if total < level * reach.size:
            low = c
        else:
            high = c
    return high


Booleans = NDArray[np.bool_]

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
    recommended. They never contradict each other (docs/inference.md). For a large set they give
    the numbers of a short list, and the statements still hold over the whole set.

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
    assumption : what must be true, in one line
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
    ([[0.46, 0.19]], [[0.74, 0.41]])
    >>> found.plausible_names(), found.winner.tolist()
    (('A',), [True])
    """
    alpha = 1 - check_fraction(level, "level")
    best = recommended_arms(evidence, recommended)
    if evidence.arms.large:
        evidence, best = shortlisted(evidence, best)
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
    return settled(found, ahead)


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
    """How few rewards carry the estimates; None where arms share features."""
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


def settled(found: Intervals, lead: Floats) -> Intervals:
    """What follows where a winner is declared: no other arm is plausible, all gaps are above 0.

    lead : (n, K) lower limits of the gaps of the recommended arm that declare a winner
    """
    alone = np.arange(found.arms.size) == found.recommended[:, None]
    winner = found.winner[:, None]
    return replace(
        found,
        plausible=np.where(winner, alone, found.plausible),
        gap_low=np.where(winner & ~alone, np.maximum(found.gap_low, lead), found.gap_low),
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
