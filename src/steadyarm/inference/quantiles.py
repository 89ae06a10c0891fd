"""Critical values for many comparisons at once, from the covariance they share.

A normal vector is a direction times an independent length. For a fixed set of directions the
chance that no comparison exceeds c is computed exactly over the length and averaged over the
directions, so that few directions are enough and the same covariance always gives the same c.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm import linalg
from steadyarm.compiled import kernel

__all__ = ["MOST_PAIRED", "critical_values", "pairwise_value"]

Floats = NDArray[np.float64]

DIRECTIONS = 512
MOST_PAIRED = 128  # arms up to which all pairs are looked at in every direction
GRID = 4096


def critical_values(
    X: Floats, covariance: Floats, freedom: Floats, alpha: float, family: int | None = None
) -> tuple[Floats, Floats, Floats]:
    """How many standard errors must be allowed for, so that all comparisons hold at once.

    Parameters
    ----------
    X : (K, r) arms; covariance : (n, r, r) of the parameter, up to a factor
    freedom : (n,) degrees of freedom it was estimated with
    alpha : chance that any of the comparisons fails
    family : number of arms that the comparisons are about, if X holds but some of them

    Returns
    -------
    values : (n,) for all arms, two-sided
    pairs : (n,) for all differences of two arms, two-sided
    best : (n, K) for the differences of every other arm to this one, one-sided

    With more than 128 arms the latter two are the smaller of Bonferroni's and Scheffé's bound; so
    are all three where X holds but some of the arms.
    """
    n, K, r = len(covariance), *X.shape
    if family is not None and family > K:
        return _bounds(n, K, r, freedom, alpha, family)
    # Other roots of the same covariance would meet other directions: these have one set of bits.
    W = linalg.times_each(X, linalg.square_roots(covariance))
    values, pairs, best = np.empty(n), np.empty(n), np.empty((n, K))
    paired = K <= MOST_PAIRED
    for free in np.unique(freedom):
        rows = np.flatnonzero(freedom == free)
        grid, step = _length_cdf(r, float(free), alpha)
        v, p, b = np.empty(len(rows)), np.empty(len(rows)), np.empty((len(rows), K))
        _critical_kernel(W[rows], _directions(r), grid, step, 1 - alpha, paired, v, p, b)
        tail = scipy.stats.norm if np.isinf(free) else scipy.stats.t(free)
        sure = _scheffe(r, float(free), alpha)
        values[rows] = np.minimum(v, tail.isf(alpha / (2 * K)))
        pairs[rows] = np.minimum(p, min(sure, tail.isf(alpha / max(K * (K - 1), 2))))
        best[rows] = np.minimum(b, min(sure, tail.isf(alpha / max(K - 1, 1))))
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
    return np.asarray(scipy.stats.t.isf(alpha / 2, freedom))


def _bounds(
    n: int, K: int, r: int, freedom: Floats, alpha: float, family: int
) -> tuple[Floats, Floats, Floats]:
    """The three for comparisons of all arms of a family, of which K are looked at."""
    values, pairs, best = np.empty(n), np.empty(n), np.empty((n, K))
    for free in np.unique(freedom):
        rows = np.flatnonzero(freedom == free)
        tail = scipy.stats.norm if np.isinf(free) else scipy.stats.t(free)
        sure = _scheffe(r, float(free), alpha)
        values[rows] = min(sure, tail.isf(alpha / (2 * family)))
        pairs[rows] = min(sure, tail.isf(alpha / (family * (family - 1))))
        best[rows] = min(sure, tail.isf(alpha / (family - 1)))
    return values, pairs, best


def _scheffe(r: int, freedom: float, alpha: float) -> float:
    """Standard errors that no combination of r parameters exceeds."""
    if np.isinf(freedom):
        return float(np.sqrt(scipy.stats.chi2.isf(alpha, r)))
    return float(np.sqrt(r * scipy.stats.f.isf(alpha, r, freedom)))


@lru_cache(maxsize=64)
def _directions(r: int) -> Floats:
    """(D, r) unit vectors, evenly spread and always the same."""
    Z = scipy.stats.norm.ppf(
        scipy.stats.qmc.Sobol(r, rng=20).random(DIRECTIONS).clip(1e-9, 1 - 1e-9)
    )
    U: Floats = Z / np.sqrt((Z**2).sum(axis=1, keepdims=True))
    return U


@lru_cache(maxsize=256)
def _length_cdf(r: int, freedom: float, alpha: float) -> tuple[Floats, float]:
    """P(length <= i step) on a grid that ends where hardly anything is left."""
    if np.isinf(freedom):
        end = float(np.sqrt(scipy.stats.chi2.isf(alpha * 1e-4, r)))
        lengths = np.linspace(0.0, end, GRID)
        return scipy.stats.chi2.cdf(lengths**2, r), lengths[1]
    end = float(np.sqrt(r * scipy.stats.f.isf(alpha * 1e-4, r, freedom)))
    lengths = np.linspace(0.0, end, GRID)
    return scipy.stats.f.cdf(lengths**2 / r, r, freedom), lengths[1]


@kernel
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
                size += W[i, k, a] ** 2
            inverse[k] = size
            largest = max(largest, size)
        for k in range(K):
            for j in range(k if paired else 0):
                size = 0.0
                for a in range(r):
                    size += (W[i, k, a] - W[i, j, a]) ** 2
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
