"""FewArms: a design on few of many arms, as policies on large sets use and mix them.

Made by `nested`, thinned out by `lists_of_many`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FewArms", "mixed"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class FewArms(NamedTuple):
    """Arms and how often to play each of them.

    Attributes
    ----------
    arms : (m,) rising indices
    weights : (m,) positive, sum to one
    value : the worst variance of what the design is for, at most
    """

    arms: Indices
    weights: Floats
    value: float = np.nan


def mixed(parts: Sequence[tuple[float, FewArms]]) -> FewArms:
    """The mixture of designs with the given shares.

    Examples
    --------
    >>> one = FewArms(np.array([0, 7]), np.array([0.5, 0.5]))
    >>> other = FewArms(np.array([3, 7]), np.array([0.2, 0.8]))
    >>> both = mixed([(0.5, one), (0.5, other)])
    >>> both.arms.tolist(), both.weights.round(2).tolist()
    ([0, 3, 7], [0.25, 0.1, 0.65])
    """
    arms = np.unique(np.concatenate([part.arms for _, part in parts]))
    weights = np.zeros(arms.size)
    for share, part in parts:
        weights[np.searchsorted(arms, part.arms)] += share * part.weights
    total = weights.sum()
    return FewArms(arms, weights / total)
