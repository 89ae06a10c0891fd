"""Intervals for time-averaged rewards and gaps, valid after adaptive tests that drifted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtr, chdtri, fdtr, fdtri, gammainccinv, ndtr, ndtri

from steadyarm.arms import ArmSet
from steadyarm.arms.generated import forms, values_of
from steadyarm.arms.rows import Rows
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import (
    LEAST_FREEDOM,
    LEAST_ROUNDS,
    Evidence,
    Scatter,
    inverse_weights,
    plain_thirds,
    score_scatter,
    shortlist,
    student_factor,
    third_moments,
)
from steadyarm.kernels import quadratic_forms
from steadyarm.validation import check_fraction

Floats = NDArray[np.float64]

Booleans = NDArray[np.bool_]

DIRECTIONS = 512  # quasi-random directions that critical values are averaged over
POINTS = 4097  # of a table of lengths; its rounding is below that of the directions
HALVINGS = 20  # of the interval in which a critical value is searched: a millionth remains
RIDGE = 1e-12  # share of all variances, added to each so that there is a Cholesky factor
MOST_PAIRED = 128  # arms up to which all pairs are compared in every direction
ARMS_AT_ONCE = 2000  # arms whose limits are computed exactly at a time, to bound memory
HUGE = np.errstate(over="ignore", invalid="ignore")  # rewards whose cubes no double can hold
ROUNDING = 1e-14  # share of the squared scores below which a variance is rounding
# Third moments of long-tailed rewards, chosen by `benchmarks.coverage --what money`:
HEAVIEST_TAIL = 4.0  # at most so many times that of events of equal size
TAIL_BEYOND_SEEN = 2.0  # at most so many times the one seen, which lacks the tail not seen yet
TAIL_RULED_OUT = 3.0  # ruled out if so many times the one seen is less than the least possible
SMALLEST = 1e-300  # keeps quotients finite
SMALLEST_ROOT = 1e-150  # keeps quotients by squares finite
LEAST_TOTAL = 1e-6  # standard errors that a sum of rewards is taken to be at least
FURTHEST_RATE = 40.0  # standard errors at most, so that limits of rates are always finite


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
    variance is estimated from the scores (`evidence.py`), and what all arms share enters the
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
        too_few=find_refused(analysis.events, low, high),
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
            quadratic_forms(D, SingleAnalysis(each).covariance)[0] for each in (adjusted, raw)
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


def find_refused(events: RareEvents | None, low: Floats, high: Floats) -> Booleans:
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


# Limits of values and gaps from sums of scores, where few rewards may carry them.


def error_and_skew(D: Floats, evidence: Evidence, scatter: Scatter) -> tuple[Floats, Floats]:
    """(n, K) standard errors of sums d'Σs, infinite if unknown; third moment over variance."""
    variance = quadratic_forms(D, scatter.total)
    seen = quadratic_forms(D, evidence.squares.sum(axis=1))
    enough = (evidence.played >= LEAST_ROUNDS) & (scatter.freedom >= LEAST_FREEDOM)
    known = (variance > ROUNDING * seen) & enough[:, None]
    sums, parts = scatter.sums @ D.swapaxes(1, 2), quadratic_forms(D, scatter.variances)
    third = third_moments(sums, parts, scatter.rounds)[:, -1]
    error = np.sqrt(variance)
    skew = np.where(known, third, 0.0) / np.where(known, variance, 1.0)
    return np.where(known, error, np.inf), np.clip(skew, -error, error)


def skewed_limits(centre: Floats, error: Floats, skew: Floats, z: Floats) -> tuple[Floats, Floats]:
    """Normal limits, and those with the second-order correction for skewness if wider.

    Hall (1992): the quantile of a studentized mean moves by (2 z² + 1)/6 times the skewness.
    """
    reach, shift = z * error, (2 * z**2 + 1) / 6 * skew
    wider = np.sqrt(reach**2 + shift**2)
    low = np.minimum(centre - reach, centre + shift - wider)
    return low, np.maximum(centre + reach, centre + shift + wider)


@dataclass(frozen=True, eq=False)
class RareEvents:
    """The effective number of rewards behind the estimates of arms that share nothing.

    Attributes
    ----------
    estimates, variance : (n, K) of the arms' values
    clicks : (n, 1) tests whose rewards are 0 or 1, and of which enough rounds were played
    unit : (n, K) variance of an arm's estimate, divided by p(1 - p)
    size : (n, K) third central moment of the estimate over its variance, if rewards are 0 or 1
    tail : (n, K) the same for other rewards, as far as it may be; 0 for clicks
    too_few : (n, K) where so few rewards carry the estimate that its limit on the long side is
        refused, or follows from the declared bounds of the rewards
    silent : (n, K) where all rewards of the arm were the same, so that both limits are
    share : (n, K) share of the estimate that one more reward would have
    bounds : (least, largest) reward that can occur; None if not declared
    """

    estimates: Floats
    variance: Floats
    clicks: Booleans
    unit: Floats
    size: Floats
    tail: Floats
    too_few: Booleans
    silent: Booleans
    share: Floats
    bounds: tuple[float, float] | None

    @property
    def silent_error(self) -> Floats:
        """(n, K) the standard error of a rate that about one event could be the first of."""
        return np.sqrt(self.unit) * np.sqrt(np.minimum(self.unit, 0.25))

    def refused_reach(self, z: Floats) -> tuple[Floats, Floats]:
        """(n, K) how far below and above the estimate a limit is that hardly any reward carries.

        Infinite, unless the rewards have bounds; 0 where there are enough rewards.
        """
        sides = (self.tail < 0) & self.too_few | self.silent, (self.tail > 0) & self.too_few
        low, high = (-np.inf, np.inf) if self.bounds is None else self.bounds
        far = high - low
        down = _few_events_reach(high - self.estimates, self.variance, self.share * far, z)
        up = _few_events_reach(self.estimates - low, self.variance, self.share * far, z)
        return np.where(sides[0], down, 0.0), np.where(sides[1] | self.silent, up, 0.0)


def _few_events_reach(total: Floats, variance: Floats, largest: Floats, z: Floats) -> Floats:
    """The gamma limit: how far above a sum of few positive events its expectation may be.

    One more event of the largest possible size is added to those seen (Fay and Feuer 1997).

    total, variance : (n, K) the sum and its variance; largest : (n, K) possible event
    """
    with np.errstate(invalid="ignore"):
        spread = np.maximum(variance + largest**2, SMALLEST)
        more = np.maximum(total, 0.0) + np.maximum(largest, SMALLEST_ROOT)
        shape, scale = more**2 / spread, spread / more
        reach = scale * gammainccinv(shape, ndtr(-z)) - total
    return np.where(np.isfinite(largest), np.maximum(reach, 0.0), np.inf)


@HUGE
def rare_events(
    evidence: Evidence,
    rounds: NDArray[np.int64],
    estimates: Floats,
    variance: Floats,
    third: Floats,
    parts: NDArray[np.int64],
    inverse: Floats,
) -> RareEvents:
    """Derive rare events from estimates and variances, for arms that share nothing.

    Parameters
    ----------
    rounds : (n,) rounds played
    estimates : (n, K); variance, third : (n, K) moments of the score sums
    parts : (n,) from how many parts of the test the third moments are
    inverse : (2, n, K) rounds divided by the arm's weight, and by its square, summed over pieces
    """
    T = np.maximum(rounds, 1)[:, None]
    clicks = _are_clicks(evidence, rounds, estimates)
    design = np.maximum(inverse[0] / T**2, SMALLEST)
    share = inverse[1] / (np.maximum(inverse[0], SMALLEST) * T)
    p = np.clip(estimates, np.minimum(design, 0.5), np.maximum(1 - design, 0.5))
    unit = np.maximum(design, variance / (T**2 * p * (1 - p)))
    known = (variance > 0) & ~clicks
    error = np.where(known, np.sqrt(variance), 1.0)
    turn = np.where(estimates < 0, -1.0, 1.0)
    skewness = np.where(known, turn * third / (error * error * error), 0.0)
    total = np.maximum(np.abs(estimates) * T, LEAST_TOTAL * error)
    tail, too_few = _tails(known, skewness, parts, error, total, design)
    bounds = evidence.bounds
    if bounds is None and evidence.binary is not None and evidence.binary.all():
        bounds = 0.0, 1.0
    return RareEvents(
        estimates=estimates,
        variance=variance / T**2,
        clicks=clicks,
        unit=unit,
        size=share * unit / design * np.abs(1 - 2 * np.clip(estimates, 0.0, 1.0)),
        tail=turn * tail / T,
        too_few=too_few,
        silent=(variance <= 0) & ~clicks,
        share=share,
        bounds=bounds,
    )


def _are_clicks(evidence: Evidence, rounds: NDArray[np.int64], estimates: Floats) -> Booleans:
    """(n, 1) tests whose rewards are 0 or 1, and of which enough rounds were played."""
    if evidence.binary is None:
        return np.zeros((len(rounds), 1), dtype=bool)
    clicks = (evidence.binary & (rounds >= LEAST_ROUNDS))[:, None]
    if evidence.within is not None:
        return np.asarray(clicks)
    # counts vary, and the variance is no function of p(1 - p)
    return np.asarray(clicks & (estimates <= 0.5).all(axis=1, keepdims=True))


def _tails(
    known: Booleans,
    skewness: Floats,
    parts: NDArray[np.int64],
    error: Floats,
    total: Floats,
    design: Floats,
) -> tuple[Floats, Booleans]:
    """(n, K) third moments over variances as far as they may be, and where events are too few.

    Rewards of mean μ and variance v that are 0 but for rare events have a third central moment of
    at least v(v/μ - μ), which is that of events of one size. That of lognormal amounts of few
    buyers is some multiple of it. Whether rewards are of this kind shows in the skewness that is
    seen, of the arm itself or of all arms together: normal rewards have none.

    skewness, error, total : (n, K) of the score sums, turned so that their sums are not negative
    """
    single = np.where(known, error**2 / total, 0.0)  # of equal events
    least = np.where(known, np.maximum(single - total * design, 0.0), 0.0)
    root = np.sqrt(design)
    noise = np.sqrt(2 / np.maximum(parts - 1, 1))[:, None]
    arms = np.maximum(known.sum(axis=1, keepdims=True), 1)
    weight = np.maximum((known * root).sum(axis=1, keepdims=True), SMALLEST)
    pooled = skewness.sum(axis=1, keepdims=True) / weight + noise / np.sqrt(arms)
    own, unit = skewness / root, (parts[:, None] > 1) * root * error

    def moment(skew: Floats) -> Floats:
        return np.asarray(
            np.nan_to_num(np.maximum(np.maximum(skew, pooled), 0.0), posinf=0.0) * unit
        )

    likely, certain = moment(own + noise), moment(own - 2 * noise)
    too_few = known & (HEAVIEST_TAIL * least > error) & (TAIL_RULED_OUT * certain > least)
    return np.minimum(HEAVIEST_TAIL * single, TAIL_BEYOND_SEEN * likely), too_few


@HUGE
def value_limits(
    events: RareEvents, error: Floats, z: Floats, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    """(n, K) the limits of values, moved out where few rewards carry an estimate."""
    estimates = events.estimates
    further = skewed_limits(estimates, error, np.clip(events.tail, -error, error), z)
    low, high = np.fmin(low, further[0]), np.fmax(high, further[1])
    down, up = events.refused_reach(z)
    low = np.where(events.silent, estimates - down, np.fmin(low, estimates - down))
    high = np.where(events.silent, estimates + up, np.fmax(high, estimates + up))
    if events.bounds is not None:
        least, largest = events.bounds
        low = np.where(np.isfinite(low), np.maximum(low, np.minimum(estimates, least)), low)
        high = np.where(np.isfinite(high), np.minimum(high, np.maximum(estimates, largest)), high)
    few = click_limits(estimates, events.unit, events.size, z)
    return np.where(events.clicks, few[0], low), np.where(events.clicks, few[1], high)


def click_limits(estimates: Floats, unit: Floats, size: Floats, z: Floats) -> tuple[Floats, Floats]:
    """Limits of the rate of rewards that are 0 or 1: the score test, corrected for skewness.

    The limit is the rate p at which the estimate is z standard errors away, with the variance
    p(1 - p) times `unit` that p itself implies, the quantile corrected for skewness (Cornish and
    Fisher) and half an event for continuity. For equal weights it is near the exact limits, and it
    is finite without a single event.

    Examples
    --------
    >>> one = np.ones(1)
    >>> low, high = click_limits(5 / 1000 * one, one / 1000, 0.99 / 1000 * one, 1.96 * one)
    >>> float(low[0].round(5)), float(high[0].round(5))  # exact: 0.00163, 0.01163
    (0.00158, 0.01169)
    """
    z = np.minimum(z, FURTHEST_RATE)
    flip = estimates > 0.5
    p = np.where(flip, 1 - estimates, estimates)
    grow = z**2 * unit
    rare = np.maximum(1 - 2 * _root(p, grow, 1.0), 0.0)  # there is no skewness at one half
    high = _root(p - rare * np.minimum(size, unit) * (z**2 - 4) / 6, grow, 1.0)
    least = np.maximum(p - size * (z**2 + 2) / 6, 0.0)
    low = np.where(least > 0, _root(least, grow, -1.0), 0.0)
    low, high = np.minimum(low, p), np.maximum(np.minimum(high, 1.0), p)
    return np.where(flip, 1 - high, low), np.where(flip, 1 - low, high)


def _root(x: Floats, grow: Floats, sign: float) -> Floats:
    """The p with (p - x)² = grow p(1 - p), above or below x."""
    inside = np.sqrt(np.maximum(grow * (grow + 4 * x * (1 - x)), 0.0))
    return np.asarray((2 * x + grow + sign * inside) / (2 * (1 + grow)))


@HUGE
def gap_limits(
    events: RareEvents,
    sign: float,
    best: NDArray[np.int64],
    error: Floats,
    z: Floats,
    limits: tuple[Floats, Floats],
    ratio: Floats | float = 1.0,
) -> tuple[Floats, Floats]:
    """(n, K) the limits of gaps, moved out where few rewards carry one of the two estimates.

    Each arm has its own tail. Tails on the same side cancel as far as they are alike: an arm's tail
    balances no more of the other's than the other's rewards would with as many plays. A limit that
    is refused for the value of an arm is refused for its gaps.

    sign : 1 if large rewards are good, else -1
    error : (n, K) standard errors of the gaps, infinite if unknown
    ratio : (n, K) multiple of the value of `best` that gaps are measured from
    """
    rows = np.arange(len(best))
    z = np.broadcast_to(z, events.estimates.shape)
    ratio = np.broadcast_to(ratio, events.estimates.shape)
    multiple = sign * ratio  # gaps are this times the value of `best`, less sign times the other's
    estimates, variance = events.estimates, events.variance
    first = variance[rows, best][:, None]
    gaps = multiple * estimates[rows, best][:, None] - sign * estimates
    third = np.stack(
        [multiple**3 * first * events.tail[rows, best][:, None], -sign * variance * events.tail]
    )
    fewer = (np.abs(ratio) ** 1.5 * events.share[rows, best][:, None] / events.share) ** 2
    alike = np.minimum(np.abs(third), np.abs(third[::-1]) * np.stack([fewer, 1 / fewer]))
    above, below = np.maximum(third, 0.0).sum(axis=0), np.maximum(-third, 0.0).sum(axis=0)
    balance = np.stack([np.where(third < 0, alike, 0.0), np.where(third > 0, alike, 0.0)])
    both = np.maximum(variance + multiple**2 * first, SMALLEST)
    right, left = np.maximum(np.stack([above, below]) - balance.sum(axis=1), 0.0) / both
    right, left = np.clip(right, 0.0, error), np.clip(left, 0.0, error)
    low = np.fmin(limits[0], skewed_limits(gaps, error, -left, z)[0])
    high = np.fmax(limits[1], skewed_limits(gaps, error, right, z)[1])

    reach = np.stack(events.refused_reach(z))
    one = np.abs(ratio) * reach[:, rows, best][:, :, None]
    one, other = _turn(one, multiple < 0), _turn(reach, np.full(ratio.shape, sign > 0))
    usual = np.abs(ratio) * z * np.sqrt(first), z * np.sqrt(variance)
    down, up = np.hypot(np.maximum(one, usual[0]), np.maximum(other, usual[1]))
    low = np.where((one[0] > 0) | (other[0] > 0), np.fmin(low, gaps - down), low)
    high = np.where((one[1] > 0) | (other[1] > 0), np.fmax(high, gaps + up), high)
    few = _click_gap_limits(events, best, error, z, ratio, sign)
    return np.where(events.clicks, few[0], low), np.where(events.clicks, few[1], high)


def _turn(reach: Floats, turn: Booleans) -> Floats:
    """(2, n, K) how far down and up, the other way round where `turn` says so."""
    return np.where(turn, reach[::-1], reach)


def _click_gap_limits(
    events: RareEvents,
    best: NDArray[np.int64],
    error: Floats,
    z: Floats,
    ratio: Floats,
    sign: float,
) -> tuple[Floats, Floats]:
    """(n, K) limits of gaps between rates.

    The limits of two values give those of their difference (Zou and Donner 2008): this is how far
    the one may be less and the other more, as independent errors add.
    """
    rows = np.arange(len(best))

    def reach(p: Floats, unit: Floats, size: Floats) -> Floats:
        low, high = click_limits(p, unit, size, z)
        return np.stack([p - low, high - p])

    parts = (events.estimates, events.unit, events.size)
    other, first = reach(*parts), reach(*(part[rows, best][:, None] for part in parts))
    first = _turn(np.abs(ratio) * first, sign * ratio < 0)
    other = _turn(other, np.full(ratio.shape, sign > 0))
    alone = events.variance + np.square(ratio) * events.variance[rows, best][:, None]
    alone = np.maximum(alone, SMALLEST)
    shared = np.where(np.isfinite(error), error, 0.0) ** 2 / alone  # 1 if errors are independent
    down, up = np.sqrt(np.maximum(shared, 1.0)) * np.hypot(first, other)
    gaps = sign * (ratio * events.estimates[rows, best][:, None] - events.estimates)
    return gaps - down, gaps + up


def in_passes(evidence: Evidence, scatter: Scatter, best: Floats, z: float) -> Booleans:
    """(K,) which arms of the whole set cannot be ruled out as the best, at z standard errors.

    Where an arm is plausible without skewness, or ruled out with the most of it, the exact skewness
    is not needed.

    best : (r,) the arm that gaps are measured from
    """
    arms = evidence.arms if evidence.whole is None else evidence.whole
    sign = evidence.sign
    T, theta = max(int(evidence.played[0]), 1), evidence.theta[0]
    out = np.ones(arms.size, dtype=bool)
    if evidence.played[0] < LEAST_ROUNDS or scatter.freedom[0] < LEAST_FREEDOM:
        return out
    rows, total = arms.rows, scatter.total[0]
    gaps = T * sign * (best @ theta - values_of(rows, theta))
    variance = gap_forms(rows, total, best)
    error = np.sqrt(variance)
    largest = np.linalg.eigvalsh(evidence.squares[0].sum(axis=0))[-1]
    known = variance > ROUNDING * largest * gap_forms(rows, np.eye(len(best)), best)
    ahead = np.flatnonzero((gaps > z * error) | ~known)
    shift = (2 * z**2 + 1) / 6 * error  # with the most skewness that limits allow
    widest = (1 + 1e-9) * (shift + np.sqrt((z * error) ** 2 + shift**2))
    out[ahead] = ~(known & (gaps > widest))[ahead]
    unsure = ahead[out[ahead]]
    for start in range(0, unsure.size, ARMS_AT_ONCE):
        few = unsure[start : start + ARMS_AT_ONCE]
        D = sign * (best - rows.take(few))
        exact, skew = error_and_skew(D[None], evidence, scatter)
        low, _ = skewed_limits(gaps[None, few], exact, skew, np.full((1, 1), z))
        out[few] = (low[0] <= 0) | (gaps[few] <= 0)
    return out


def gap_forms(rows: Rows, M: Floats, best: Floats) -> Floats:
    """(K,) d'Md for the differences d of the best arm to each of a large set."""
    moved = M @ best
    return np.asarray(np.maximum(forms(rows, M, -2 * moved) + best @ moved, 0.0))


def others_than(evidence: Evidence, plausible: Booleans) -> int:
    """The number of plausible arms that are not shown."""
    shown = evidence.shown
    return int(plausible.sum()) - (0 if shown is None else int(plausible[shown].sum()))
