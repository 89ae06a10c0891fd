"""Tails of the usual distributions, from `scipy.special`.

They are what `scipy.stats` computes, to the last digit or nearly so. That package takes ten times
as long to import as all else that a small log needs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

Numbers = NDArray[np.float64] | NDArray[np.int64] | float

__all__ = ["above_binomial", "above_chi2", "above_f", "above_normal", "above_t"]
__all__ += ["normal_reach", "t_reach", "up_to_binomial"]


def above_normal(x: Numbers) -> Any:
    """Probability that a standard normal variable exceeds x.

    Examples
    --------
    >>> round(float(above_normal(1.96)), 4)
    0.025
    """
    return special.ndtr(-np.asarray(x, dtype=np.float64))


def normal_reach(tail: Numbers) -> Any:
    """What a standard normal variable exceeds with probability `tail`.

    Examples
    --------
    >>> round(float(normal_reach(0.025)), 4)
    1.96
    """
    return -special.ndtri(tail)


def above_t(x: Numbers, freedom: Numbers) -> Any:
    """Probability that Student's t exceeds x.

    Examples
    --------
    >>> round(float(above_t(2.228, 10)), 4)
    0.025
    """
    return special.stdtr(freedom, -np.asarray(x, dtype=np.float64))


def t_reach(tail: Numbers, freedom: Numbers) -> Any:
    """What Student's t exceeds with probability `tail`.

    Examples
    --------
    >>> round(float(t_reach(0.025, 10)), 3)
    2.228
    """
    return -special.stdtrit(freedom, tail)


def above_chi2(x: Numbers, freedom: Numbers) -> Any:
    """Probability that a chi-squared variable exceeds x.

    Examples
    --------
    >>> round(float(above_chi2(5.991, 2)), 3)
    0.05
    """
    freedom = np.asarray(freedom, dtype=np.float64)
    return special.chdtrc(np.where(freedom > 0, freedom, np.nan), np.maximum(x, 0.0))


def above_f(x: Numbers, first: Numbers, second: Numbers) -> Any:
    """Probability that an F variable exceeds x.

    Examples
    --------
    >>> round(float(above_f(4.103, 2, 10)), 3)
    0.05
    """
    return special.fdtrc(first, second, np.maximum(x, 0.0))


def up_to_binomial(k: Numbers, draws: Numbers, p: Numbers) -> Any:
    """Probability that at most k of the draws are hits.

    Examples
    --------
    >>> float(up_to_binomial(0, 2, 0.5)), float(up_to_binomial(-1, 2, 0.5))
    (0.25, 0.0)
    """
    k, draws = np.floor(k), np.asarray(draws, dtype=np.float64)
    inside = (k >= 0) & (k < draws)
    found = special.betaincc(np.where(inside, k + 1, 1.0), np.where(inside, draws - k, 1.0), p)
    return np.where(inside, found, np.where(k < 0, 0.0, 1.0))


def above_binomial(k: Numbers, draws: Numbers, p: Numbers) -> Any:
    """Probability that more than k of the draws are hits.

    Examples
    --------
    >>> float(above_binomial(1, 2, 0.5)), float(above_binomial(2, 2, 0.5))
    (0.25, 0.0)
    """
    k, draws = np.floor(k), np.asarray(draws, dtype=np.float64)
    inside = (k >= 0) & (k < draws)
    found = special.betainc(np.where(inside, k + 1, 1.0), np.where(inside, draws - k, 1.0), p)
    return np.where(inside, found, np.where(k < 0, 1.0, 0.0))
