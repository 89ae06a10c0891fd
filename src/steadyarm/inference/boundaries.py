"""Group-sequential boundaries: how far an estimate may lie off at each of a few planned looks.

A test that is looked at a few times and may stop at each look spends its error probability look by
look, as a function of the share of the budget that was played (Lan and DeMets 1983). How strongly
two looks are correlated follows from the information collected at each, which is the estimated
variance of the score sum (Lan and DeMets 1989). The looks need be neither equally spaced nor known
beforehand, but their times must not depend on rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil, e, inf, log, log1p, log2, pi, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from steadyarm.errors import InvalidInputError
from steadyarm.validation import check_choice, finite_number

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Spending = Literal["obrien-fleming", "pocock"]

SPENDING: tuple[Spending, ...] = ("obrien-fleming", "pocock")
FIRST_LOOK = 0.05  # share of the budget before which no look is taken: normal limits need as much
LEAST_SPENT = 1e-300  # error probability below which nothing is spent
LOWEST = -7.0  # standard errors from which on densities are integrated
STEP, FINEST = 0.1, 0.25  # of the integration: standard errors, and of what the next look adds
POINTS = 2001  # of the integration at most; looks nearer to each other spend by Bonferroni
SLACK = 0.5  # standard errors around the exact limits of a boundary in which it is searched


def spent(share: float, alpha: float, kind: Spending = "obrien-fleming") -> float:
    """The error probability that may be spent until a share of the budget has been played.

    Parameters
    ----------
    share : the share of the budget, 0 to 1
    alpha : one-sided, of the whole test
    kind : "obrien-fleming", 2 - 2Φ(z/√share) with Φ(z) = 1 - alpha/2, which spends hardly anything
        early; or "pocock", alpha log(1 + (e - 1) share), which spends nearly evenly

    Returns
    -------
    float : between 0 and `alpha`

    Examples
    --------
    >>> round(spent(0.5, 0.025), 5), round(spent(0.5, 0.025, "pocock"), 5), spent(1.0, 0.025)
    (0.00153, 0.0155, 0.025)
    """
    check_choice(kind, "spending", SPENDING)
    if share <= 0:
        return 0.0
    if share >= 1:
        return alpha
    if kind == "pocock":
        return float(alpha * log1p((e - 1) * share))
    return float(min(2 * ndtr(ndtri(alpha / 2) / sqrt(share)), alpha))


def boundaries(
    shares: Sequence[float],
    alpha: float,
    kind: Spending = "obrien-fleming",
    information: Sequence[float] | None = None,
) -> tuple[float, ...]:
    """Standard errors that an estimate exceeds at any of the looks with probability alpha.

    More exactly with probability `spent(shares[-1], alpha, kind)`, which is alpha when the budget
    is spent. The sum of the scores is a Brownian motion in the information collected, and the
    probability of crossing is integrated look by look (Armitage, McPherson and Rowe 1969).

    Parameters
    ----------
    shares : the shares of the budget at each look, in their order; none may fall
    alpha : one-sided
    kind : as for `spent`
    information : collected up to each look, in any unit; none may fall. By default the shares

    Returns
    -------
    One boundary for each look; infinite where nothing can be spent, because the look is very early
    or adds nothing to the one before.

    Examples
    --------
    >>> [round(bound, 3) for bound in boundaries((0.2, 0.4, 0.6, 0.8, 1.0), 0.025)]
    [4.877, 3.357, 2.68, 2.29, 2.031]
    """
    given = tuple(finite_number(share, "a share") for share in shares)
    ordered = all(a <= b for a, b in pairwise(given))
    if not ordered or not all(0 < share <= 1 for share in given):
        raise InvalidInputError.of(
            "shares", list(shares), "shares of the budget above 0 and up to 1, in rising order"
        )
    if not 0 < finite_number(alpha, "alpha") <= 0.5:
        raise InvalidInputError.of("alpha", alpha, "a one-sided probability above 0 and up to 0.5")
    check_choice(kind, "spending", SPENDING)
    collected = given if information is None else tuple(map(float, information))
    if len(collected) != len(given) or not all(0 <= a <= b for a, b in pairwise(collected)):
        raise InvalidInputError.of("information", information, "one number per look, none falling")
    return _boundaries(given, collected, float(alpha), kind)


@lru_cache(maxsize=65536)
def _boundaries(
    shares: tuple[float, ...], information: tuple[float, ...], alpha: float, kind: Spending
) -> tuple[float, ...]:
    """Boundaries of all looks; infinite where nothing is spent."""
    bounds = [inf] * len(shares)
    reached: _Reached | None = None
    before = used = 0.0
    for look, (share, collected) in enumerate(zip(shares, information, strict=True)):
        total = spent(share, alpha, kind)
        fresh = total - used
        if not fresh > LEAST_SPENT or not collected > 0:
            continue
        used = total
        bounds[look] = float(-ndtri(fresh))
        if reached is None:
            reached, before = _Reached(bounds[look], _normal_density), collected
            continue
        width = sqrt((collected - before) / collected)  # of what is new, in standard errors
        kept = sqrt(before / collected)
        step = min(STEP, FINEST * width / kept)
        if (POINTS - 1) * step < reached.bound - LOWEST:  # too near: it spends its share by itself
            continue
        convolved = reached.convolve(kept, width, step)
        bounds[look] = brentq(
            lambda x, convolved=convolved, fresh=fresh: convolved.beyond(x) - fresh,
            float(-ndtri(total)) - SLACK,
            bounds[look] + SLACK,
            xtol=1e-12,
        )
        reached, before = _Reached(bounds[look], convolved.density), collected
    return tuple(bounds)


def _normal_density(x: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * np.square(x)) / sqrt(2 * pi))


@dataclass(frozen=True)
class _Reached:
    """The estimates, in standard errors of a look, that crossed no boundary up to that look.

    bound : the boundary of that look; density : of the estimates below it
    """

    bound: float
    density: Callable[[Floats], Floats]

    def convolve(self, kept: float, width: float, step: float) -> _Convolved:
        """The estimates at a later look, by Simpson's rule with that step."""
        half = max(ceil((self.bound - LOWEST) / (2 * step)), 1)
        points = np.linspace(LOWEST, self.bound, 2 * half + 1)
        simpson = np.full(2 * half + 1, 2.0)
        simpson[1::2], simpson[[0, -1]] = 4.0, 1.0
        masses = (points[1] - points[0]) / 3 * simpson * self.density(points)
        return _Convolved(kept * points, masses, width)


@dataclass(frozen=True)
class _Convolved:
    """A mixture of normal densities of one width, around `points` with `masses`."""

    points: Floats
    masses: Floats
    width: float

    def beyond(self, x: float) -> float:
        """The mass above x."""
        return float(self.masses @ ndtr((self.points - x) / self.width))

    def density(self, x: Floats) -> Floats:
        """The density at each of x."""
        return _normal_density((x[:, None] - self.points) / self.width) @ self.masses / self.width


@dataclass(frozen=True)
class Looks:
    """At which shares of the budget a test is looked at.

    Attributes
    ----------
    shares : a look is taken at the end of the first piece that reaches each of these shares; none
        before a twentieth of the budget
    kind : how the error probability is spent
    over : whether the test has ended as planned, so that its end is a look that spends the rest

    Examples
    --------
    >>> Looks.equally(2, "pocock")
    Looks(shares=(0.5, 1.0), kind='pocock', over=False)
    """

    shares: tuple[float, ...]
    kind: Spending = "obrien-fleming"
    over: bool = False

    @classmethod
    def equally(cls, count: int, kind: Spending = "obrien-fleming", over: bool = False) -> Looks:
        """Equally spaced looks, the last at the end.

        Parameters
        ----------
        count : how many looks
        kind : how the error probability is spent
        over : whether the test is over

        Returns
        -------
        Looks

        Examples
        --------
        >>> Looks.equally(4).shares
        (0.25, 0.5, 0.75, 1.0)
        """
        return cls(tuple((i + 1) / count for i in range(count)), kind, over)

    def taken(self, rounds: Indices, budget: int) -> tuple[Indices, list[tuple[float, ...]]]:
        """Which look each piece ends with, (n, J), -1 for none; the shares of each test's looks.

        Parameters
        ----------
        rounds : (n, J) up to the end of each piece; a piece that adds none stands where the one
            before it stood
        budget : planned rounds of the whole test
        """
        n, pieces = rounds.shape
        played = rounds / budget
        planned = np.array(sorted(share for share in self.shares if share <= 1))
        reached = np.searchsorted(planned, played, side="right")
        reached = np.where(played < FIRST_LOOK, 0, reached)
        look = np.diff(reached, axis=1, prepend=0) > 0
        ends = (rounds < rounds[:, -1:]).sum(axis=1)  # the piece after which nothing came
        if self.over:
            look[np.arange(n), np.minimum(ends, pieces - 1)] = True
        which = np.where(look, np.cumsum(look, axis=1) - 1, -1)
        shares = []
        for i in range(n):
            mine = played[i, look[i]].tolist()
            if self.over and mine:
                mine[-1] = 1.0
            shares.append(tuple(mine))
            which[i, ends[i] :] = which[i, min(ends[i], pieces - 1)]
        return which, shares

    def factors(
        self,
        which: Indices,
        shares: list[tuple[float, ...]],
        information: list[tuple[float, ...]],
        alpha: float,
    ) -> Floats:
        """(n,) boundaries of one piece, infinite where it ends with no look.

        Parameters
        ----------
        which : (n,) look of each test
        shares : as `taken` gives them
        information : collected up to each of these looks
        alpha : one-sided error probability of the whole test
        """
        looks = zip(which.tolist(), shares, information, strict=True)
        return np.array(
            [
                boundaries(mine, alpha, self.kind, collected)[look] if look >= 0 else inf
                for look, mine, collected in looks
            ]
        )


# How far a martingale may ever stray: boundaries that hold at all times.

NEWTON_STEPS = 4  # every iterate is a valid boundary


def bernstein_reach(
    variance: Floats, scale: Floats, first: Floats, budget: int, alpha: float
) -> Floats:
    """What the sum of X - E[X | past] never exceeds, but with probability alpha.

    Parameters
    ----------
    variance : sum of (X - p)², p predictable
    scale : largest bound on |X - p| so far, predictable
    first : its first value
    budget : planned number of terms; the boundary is tight up to about there
    alpha : one-sided

    Notes
    -----
    For every λ < 1/c, c the scale, exp(λ Σ(X - E X) - ψ(λ) Σ(X - p)²) is a supermartingale, with
    ψ(λ) = (-log(1 - cλ) - cλ)/c² (Howard, Ramdas, McAuliffe and Sekhon 2021, Theorem 4). One whose
    λ a larger scale forbids may be set to zero and is one still. They are mixed over
    λ = 2⁻ⁱ/first, i = 1, 2, …, with equal weights.

    Examples
    --------
    >>> one = np.ones(1)
    >>> bernstein_reach(1000 * one, one, one, 1000, 0.025).round(1).tolist()
    [110.6]
    """
    count = ceil(log2(budget) / 2) + 4  # so that the least λ suits the smallest variance too
    bar = log(count / alpha)
    variance, scale, first = (x[..., None] for x in np.broadcast_arrays(variance, scale, first))
    known = (scale > 0) & (variance < np.inf) & (scale < 2.0**count * first)
    variance, scale, first = (np.where(known, x, 1.0) for x in (variance, scale, first))
    rate = 0.5 ** np.arange(1, count + 1) / first
    share = rate * scale
    allowed = share < 1
    share = np.where(allowed, share, 0.0)
    costs = np.where(allowed, (-np.log1p(-share) - share) * (variance / scale**2), np.inf)
    reach = ((costs + bar) / rate).min(axis=-1, keepdims=True)
    for _ in range(NEWTON_STEPS):  # Newton's method for log Σ exp(rate reach - cost) = bar
        exponents = rate * reach - costs
        top = exponents.max(axis=-1, keepdims=True)
        parts = np.exp(exponents - top)
        total = parts.sum(axis=-1, keepdims=True)
        slope = (rate * parts).sum(axis=-1, keepdims=True)
        reach = np.minimum(reach, reach - (top + np.log(total) - bar) * total / slope)
    return np.asarray(np.where(known, reach, np.inf)[..., 0])


def normal_factor(share: Floats, alpha: float) -> Floats:
    """How many standard errors a normal martingale may stray, but with probability alpha.

    One-sided, for all times at once, tightest when the whole budget is spent; share of the budget
    spent so far. Normal mixture (Robbins 1970) as Waudby-Smith and others (2021) use it.

    Examples
    --------
    >>> normal_factor(np.array([0.1, 0.5, 1.0]), 0.025).round(2).tolist()
    [3.88, 3.09, 3.04]
    """
    double = -2 * log(min(2 * alpha, 0.9))
    q = np.maximum(share, 1e-300) * (double + log(double + 1))
    return np.asarray(np.sqrt(2 * (1 + 1 / q) * np.log(1 + np.sqrt(1 + q) / (2 * alpha))))
