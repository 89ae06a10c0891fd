"""Balance: counts against what they should be, and how surprising the difference is.

Counts minus expectations are sums of martingale differences whatever the policy did, so their
squared length, measured by the summed covariances, is chi-squared in large samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

__all__ = [
    "NEGLIGIBLE",
    "NORMAL",
    "WHOLE",
    "Balance",
    "bennett",
    "binomial_tails",
    "standardised",
    "surprise",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NORMAL = 10.0  # variance of a count from which on it is taken as normal
RARE = 0.1  # share of the error probability spent on arms with less
NEGLIGIBLE = 1e-9  # variance of a count that cannot vary
WHOLE = 1e-6  # block * weight this near to a whole number is one


@dataclass(frozen=True, eq=False)
class Balance:
    """Counts summed over a test, and what they should be.

    Attributes
    ----------
    observed, expected : (n, K)
    covariance : (n, K, K) of observed minus expected
    draws, hits : (n,) and (n, K): each arm's difference is that of so many independent yes-or-no
        draws, with so many expected to be yes, or varies less
    """

    observed: Floats
    expected: Floats
    covariance: Floats
    draws: Floats
    hits: Floats

    def __add__(self, other: Balance) -> Balance:
        return Balance(*(a + b for a, b in zip(self.parts, other.parts, strict=True)))

    @property
    def parts(self) -> tuple[Floats, ...]:
        """What sums over segments add up."""
        return self.observed, self.expected, self.covariance, self.draws, self.hits

    @property
    def residuals(self) -> Floats:
        """(n, K) differences in units of their standard deviation; infinite if there is none."""
        difference = self.observed - self.expected
        variance = np.einsum("nkk->nk", self.covariance)
        return standardised(difference, variance, WHOLE)


def surprise(balance: Balance) -> tuple[Floats, Floats, Integers]:
    """(n,) probability of counts at least as far off, the chi-squared statistic, its freedom.

    Directions with a variance of at least 10 counts make the statistic. Arms whose count has less
    are judged one by one by binomial tails, and share a tenth of the error probability (all of
    it if there is nothing else): no sum of independent yes-or-no draws, such as draws without
    replacement are too, has heavier ones (Hoeffding 1956). A count that cannot vary and is off
    has probability 0.
    """
    difference = balance.observed - balance.expected
    variance = np.maximum(np.einsum("nkk->nk", balance.covariance), 0.0)
    values, vectors = np.linalg.eigh(balance.covariance)
    lengths = np.einsum("nkd,nk->nd", vectors, difference)
    usable = values >= NORMAL
    statistic = np.where(usable, lengths**2 / np.where(usable, values, 1.0), 0.0).sum(axis=1)
    freedom = usable.sum(axis=1)
    p_common = np.where(freedom > 0, scipy.stats.chi2.sf(statistic, np.maximum(freedom, 1)), 1.0)
    rare = (variance < NORMAL) & (variance > NEGLIGIBLE)
    tails = binomial_tails(np.abs(difference), balance.draws[:, None], balance.hits)
    bounds = np.where(rare, tails, 1.0)
    p_rare = bounds.min(axis=1) * rare.sum(axis=1)
    both = rare.any(axis=1) & (freedom > 0)
    p_value = np.where(rare.any(axis=1), np.minimum(p_rare, 1.0), p_common)
    p_value = np.where(both, np.minimum(p_common / (1 - RARE), p_rare / RARE), p_value)
    stuck = ((variance <= NEGLIGIBLE) & (np.abs(difference) > WHOLE)).any(axis=1)
    return np.where(stuck, 0.0, np.minimum(p_value, 1.0)), statistic, freedom


def standardised(difference: Floats, variance: Floats, slack: float) -> Floats:
    """Differences in standard deviations; infinite where there is none but they exceed `slack`."""
    known = variance > NEGLIGIBLE
    off = np.abs(difference) > slack
    fixed = np.select([off & (difference > 0), off], [np.inf, -np.inf], 0.0)
    return np.where(known, difference / np.sqrt(np.where(known, variance, 1.0)), fixed)


def bennett(x: Floats, variance: Floats) -> Floats:
    """At most P(|sum| ≥ x), for differences of at most 1 with this summed variance."""
    v = np.maximum(variance, 1e-300)
    u = x / v
    return np.asarray(np.minimum(2 * np.exp(-v * ((1 + u) * np.log1p(u) - u)), 1.0))


def binomial_tails(x: Floats, draws: Floats, hits: Floats) -> Floats:
    """P(|count - hits| ≥ x) for `draws` draws of which `hits` are expected; 1 if x < 1."""
    p = np.clip(hits / np.maximum(draws, 1.0), 0.0, 1.0)
    above = scipy.stats.binom.sf(np.ceil(hits + x - WHOLE) - 1, draws, p)
    below = scipy.stats.binom.cdf(np.floor(hits - x + WHOLE), draws, p)
    return np.where(x < 1 - WHOLE, 1.0, np.minimum(above + below, 1.0))
