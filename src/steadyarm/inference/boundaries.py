"""How far a martingale may ever stray: time-uniform boundaries.

Each is a mixture of exponential supermartingales, which exceeds 1/α at any time with probability
at most α (Ville); solved for the martingale it is a boundary.
"""

from __future__ import annotations

from math import ceil, log, log2

import numpy as np
from numpy.typing import NDArray

__all__ = ["bernstein_reach", "normal_factor"]

Floats = NDArray[np.float64]

STEPS = 4  # of Newton's method; every iterate is a valid boundary


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
    usable = scale * (variance < np.inf)
    with np.errstate(all="ignore"):  # impossible λ, and scales of 0, become infinite costs
        rates = [2.0**-i / first for i in range(1, count + 1)]
        costs = [_cost(rate * usable, variance / usable**2) for rate in rates]
        reach = np.min([(cost + bar) / rate for rate, cost in zip(rates, costs, strict=True)], 0)
        for _ in range(STEPS):
            powers = [rate * reach - cost for rate, cost in zip(rates, costs, strict=True)]
            top = np.max(powers, axis=0)
            parts = [np.exp(power - top) for power in powers]
            total = np.sum(parts, axis=0)
            slope = np.sum([rate * part for rate, part in zip(rates, parts, strict=True)], axis=0)
            better = reach - (top + np.log(total) - bar) * total / slope
            reach = np.where(np.isfinite(better), np.minimum(reach, better), reach)
    return np.where((scale > 0) & np.isfinite(reach), reach, np.inf)


def _cost(share: Floats, variance: Floats) -> Floats:
    """ψ(λ) times the variance, in units of the scale; infinite where λ is too large."""
    psi = np.where(share < 1, -np.log1p(-np.minimum(share, 1)) - share, np.inf)
    return np.asarray(psi * variance + np.where(share < 1, 0.0, np.inf))


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
    return np.asarray(np.sqrt(2 * (1 + 1 / q) * np.log1p(np.sqrt(1 + q) / (2 * alpha))))
