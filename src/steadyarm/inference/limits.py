"""Limits of arms' values and gaps from sums of scores; in large sets in passes over all arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv, ndtr

from steadyarm.arms import ArmSet
from steadyarm.arms.generated import forms, values_of
from steadyarm.arms.rows import Rows
from steadyarm.designs.pooled_g import top
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.variance import LEAST_FREEDOM, LEAST_ROUNDS, Scatter, third_moments

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

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


def quadratic(D: Floats, M: Floats) -> Floats:
    """(n, ..., K) d'Md for directions D (n, K, r) and M (n, ..., r, r), at least 0."""
    D = D.reshape(len(D), *[1] * (M.ndim - 3), *D.shape[1:]) if D.ndim == 3 else D
    return np.asarray(np.maximum(((D @ M) * D).sum(axis=-1), 0.0))


def error_and_skew(D: Floats, evidence: Evidence, scatter: Scatter) -> tuple[Floats, Floats]:
    """(n, K) standard errors of sums d'Σs, infinite if unknown; third moment over variance."""
    variance = quadratic(D, scatter.total)
    seen = quadratic(D, evidence.squares.sum(axis=1))
    enough = (evidence.played >= LEAST_ROUNDS) & (scatter.freedom >= LEAST_FREEDOM)
    known = (variance > ROUNDING * seen) & enough[:, None]
    sums, parts = scatter.sums @ D.swapaxes(1, 2), quadratic(D, scatter.variances)
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


# The short list of a large set: the arms that people see, chosen in passes over all arms.


Indices = NDArray[np.int64]

EQUAL = 2.0**-40  # share by which estimates may differ through rounding
SHORT = 100  # arms with the best estimates that are shown
LEADERS = 16  # times during the test whose leaders are shown, too


def evenly_spaced(pieces: int, most: int = LEADERS) -> Indices:
    """Pieces whose ends are shown, from the last one backwards.

    Examples
    --------
    >>> evenly_spaced(7, most=3).tolist()
    [0, 3, 6]
    """
    at = np.linspace(pieces - 1, 0, min(pieces, most)).round().astype(np.int64)
    return np.unique(at)


def shortlist(
    evidence: Evidence,
    recommended: Indices | None = None,
    most: int = SHORT,
    also: Sequence[int] = (),
) -> tuple[Evidence, Indices]:
    """A view of the evidence on few arms, and which of them the recommended one is, (1,).

    These are the recommended arm, by default the one with the best estimate, those with the best
    estimates, those that led at 16 times during the test, and those in `also`, such as a control.
    """
    if len(evidence.rounds) != 1:
        raise InvalidInputError(
            f"the evidence is a batch of {len(evidence.rounds)} tests of {evidence.family:,} arms; "
            "of so many arms give one test at a time."
        )
    at = evenly_spaced(evidence.rounds.shape[1])
    rounds = np.maximum(np.cumsum(evidence.rounds[0])[at], 1)
    paths = np.cumsum(evidence.scores[0], axis=0)[at] / rounds[:, None]
    leaders, top = best_of_all(evidence, paths, most)
    best = leaders[-1:] if recommended is None else recommended
    others = np.asarray(also, dtype=np.int64)
    view = evidence.view(np.unique(np.concatenate([best, leaders, top, others])))
    assert view.shown is not None
    return view, np.searchsorted(view.shown, best)


def best_of_all(evidence: Evidence, thetas: Floats, most: int = SHORT) -> tuple[Indices, Indices]:
    """(L,) the best arm by each parameter (L, r), and those that are best by the last of them."""
    arms = evidence.arms if evidence.whole is None else evidence.whole
    sign = evidence.sign
    turned = sign * np.ascontiguousarray(thetas.T)
    leaders, highest = np.zeros(len(thetas), dtype=np.int64), np.full(len(thetas), -np.inf)
    last = np.empty(arms.size)
    for start, stop in arms.blocks():
        values = arms.rows.block(start, stop) @ turned
        last[start:stop] = values[:, -1]
        found = values.max(axis=0)
        place = (values >= found - EQUAL * np.abs(found)).argmax(axis=0)  # the first of equal ones
        better = found > highest + np.where(np.isfinite(highest), EQUAL * np.abs(found), 0.0)
        leaders[better], highest[better] = start + place[better], found[better]
    few = min(most, arms.size)
    return leaders, top(last, few)


@lru_cache(maxsize=4)
def spread_of(arms: ArmSet) -> tuple[Floats, Floats]:
    """(r,) the average of all arms, and (q, r) an orthonormal basis of their differences."""
    total, gram = np.zeros(arms.rank), np.zeros((arms.rank, arms.rank))
    for start, stop in arms.blocks():
        rows = arms.rows.block(start, stop)
        total += rows.sum(axis=0)
        gram += rows.T @ rows
    mean = total / arms.size
    sizes, axes = np.linalg.eigh(gram / arms.size - np.outer(mean, mean))
    basis = axes[:, sizes > 1e-12 * sizes[-1]].T
    return mean, np.ascontiguousarray(basis)
