"""Group-sequential boundaries: how far an estimate may lie off at each of a few planned looks.

A test that is looked at a few times and may stop at each look spends its error probability look by
look, as a function of the share of the budget that was played (Lan and DeMets 1983). How strongly
two looks are correlated follows from the information collected at each, which is the estimated
variance of the score sum (Lan and DeMets 1989). The looks need be neither equally spaced nor known
beforehand, but their times must not depend on rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import LOG_ROOT_2PI, exp, kernel, log, log1p, log_upper_tail
from steadyarm.errors import InvalidInputError
from steadyarm.inference.quantiles import normal_quantile, normal_quantiles
from steadyarm.validation import check_choice, finite_number

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Spending = Literal["obrien-fleming", "pocock"]

SPENDING: tuple[Spending, ...] = ("obrien-fleming", "pocock")
FIRST_LOOK = 0.05  # share of the budget before which no look is taken: normal limits need as much
LEAST = 1e-300  # error probability below which nothing is spent
LOWEST = -7.0  # standard errors from which on densities are integrated
STEP, FINEST = 0.1, 0.25  # of the integration: standard errors, and of what a look adds
POINTS = 2001  # of the integration at most; looks nearer to each other spend by Bonferroni
GRAIN = 2.0**30  # boundaries are rounded up to its inverse: the same bits on every processor


def spent(share: float, alpha: float, kind: Spending = "obrien-fleming") -> float:
    """The error probability that may be spent until a share of the budget has been played.

    Parameters
    ----------
    share : of the budget, 0 to 1
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
        return float(alpha * log1p(1.718281828459045 * share))
    reach = normal_quantile(alpha / 2) / sqrt(share)
    return float(min(2 * exp(log_upper_tail(reach)), alpha))


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
    shares : of the budget at each look, in their order; none may fall
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
    if not shares:
        return ()
    total = np.array([spent(share, alpha, kind) for share in shares])
    found = np.full(len(shares), inf)
    _cross(np.array(information), total, normal_quantiles(np.maximum(total, LEAST)), found)
    return tuple(found.tolist())


@kernel(small=0)
def _cross(information: Floats, total: Floats, starts: Floats, found: Floats) -> None:
    """Fill the boundaries of all looks; infinite where nothing is spent.

    information : (L,) collected up to each look
    total : (L,) probability to be spent up to each look
    starts : (L,) standard errors that a single look would need for all of it
    """
    points, masses = np.empty(POINTS), np.empty(POINTS)  # of the estimates that are left
    further, heavier = np.empty(POINTS), np.empty(POINTS)
    count, before, used = 0, 0.0, 0.0
    for look in range(information.size):
        fresh = total[look] - used
        added = information[look] - before
        if not fresh > LEAST or not information[look] > 0.0:
            continue
        width = np.sqrt(added / information[look])  # of what is new, in standard errors of the look
        kept = np.sqrt(before / information[look])
        step = min(STEP, FINEST * width)
        bound, target = starts[look], log(fresh)
        if (POINTS - 1.0) * step < 12.0 - LOWEST:  # too near: it spends its share by itself
            found[look] = np.ceil(_first(target, bound) * GRAIN) / GRAIN
            used = total[look]
            continue
        if count == 0:
            bound = _first(target, bound)
        else:
            for _ in range(100):
                tail, slope = 0.0, 0.0
                for i in range(count):
                    z = (bound - kept * points[i]) / width
                    if z < 38.0:
                        tail += masses[i] * exp(log_upper_tail(z))
                        slope += masses[i] * exp(-0.5 * z * z - LOG_ROOT_2PI) / width
                if not tail > 0.0 or not slope > 0.0:
                    bound -= 0.5  # the start was far beyond all that doubles can tell
                    continue
                moved = (log(tail) - target) * tail / slope
                bound += moved
                if abs(moved) < 1e-11:
                    break
        bound = np.ceil(bound * GRAIN) / GRAIN
        found[look] = bound
        half = max(int(np.ceil((bound - LOWEST) / (2.0 * step))), 1)
        half = min(half, (POINTS - 1) // 2)
        gap = (bound - LOWEST) / (2 * half)
        for i in range(2 * half + 1):
            x = LOWEST + i * gap
            weight = gap / 3.0 * (1.0 if i == 0 or i == 2 * half else 4.0 if i % 2 else 2.0)
            density = 0.0
            if count == 0:
                density = exp(-0.5 * x * x - LOG_ROOT_2PI)
            for k in range(count):
                z = (x - kept * points[k]) / width
                if -9.0 < z < 9.0:
                    density += masses[k] * exp(-0.5 * z * z - LOG_ROOT_2PI) / width
            further[i], heavier[i] = x, weight * density
        count, before, used = 2 * half + 1, information[look], total[look]
        for i in range(count):
            points[i], masses[i] = further[i], heavier[i]


@kernel(small=0)
def _first(target: float, start: float) -> float:
    """Where the logarithm of the upper tail of a normal number is `target`, by Newton's method."""
    bound = start
    for _ in range(100):
        found = log_upper_tail(bound)
        moved = (found - target) * exp(found + 0.5 * bound * bound + LOG_ROOT_2PI)
        bound += moved
        if abs(moved) < 1e-12:
            break
    return bound


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
        """So many looks at equal distances, the last at the end.

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
