"""Efficient rounding of a design to whole numbers of rounds (Pukelsheim 2006, chapter 12).

For policies that play fixed numbers of rounds: Peace, OD-LinBAI, Adjacent-BAI.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.compiled import kernel
from steadyarm.designs.checks import check_weights
from steadyarm.errors import InvalidInputError

__all__ = ["round_design", "round_designs"]


def round_design(weights: ArrayLike, rounds: int) -> NDArray[np.int64]:
    """Counts (K,) that sum to `rounds` and follow the weights as closely as whole numbers can.

    Weights need not sum to one. Arms of weight zero get no round. With fewer rounds than arms in
    the support the light ones get none. Ties go to the heavier arm, then to the lower index.

    Examples
    --------
    >>> round_design([0.5, 0.3, 0.2], 7).tolist()
    [3, 2, 2]
    """
    counts = round_designs(check_weights(weights, axes=1)[None], rounds)
    return counts.reshape(-1)


def round_designs(
    weights: ArrayLike, rounds: ArrayLike, ties: Literal["heavier", "first"] = "heavier"
) -> NDArray[np.int64]:
    """`round_design` for a batch: weights (n, K) and rounds (n,), or one number, give (n, K).

    Ties matter where there are fewer rounds than arms. With "first" the lower index wins, as in
    the published runs of Peace.

    Examples
    --------
    >>> round_designs([[0.5, 0.5], [0.9, 0.1]], 10).tolist()
    [[5, 5], [9, 1]]
    """
    given = check_weights(weights, axes=2)
    totals = np.asarray(rounds)
    if not np.issubdtype(totals.dtype, np.integer) or (totals < 0).any():
        raise InvalidInputError(f"rounds is {rounds!r}; expected whole numbers, 0 or more.")
    if totals.ndim > 1 or (totals.ndim == 1 and totals.size != len(given)):
        raise InvalidInputError(
            f"rounds has shape {totals.shape} for {len(given)} designs; "
            f"expected one number or one for each design, shape ({len(given)},)."
        )
    shares = np.ascontiguousarray(given / given.sum(axis=1, keepdims=True))
    counts = np.zeros(shares.shape, dtype=np.int64)
    repeated = np.ascontiguousarray(np.broadcast_to(totals, len(given)), dtype=np.int64)
    efficient_rounding(shares, repeated, ties == "heavier", counts)
    return counts


@kernel
def efficient_rounding(
    weights: NDArray[np.float64],
    rounds: NDArray[np.int64],
    heavier: bool,
    counts: NDArray[np.int64],
) -> None:
    """Weights (n, K) that sum to one and rounds (n,) into counts (n, K).

    heavier : whether of equally placed arms the heavier gets the round, or the first
    """
    n, K = weights.shape
    for row in range(n):
        lam, count = weights[row], counts[row]
        support = 0
        for i in range(K):
            support += lam[i] > 0.0
        total = 0
        for i in range(K):
            count[i] = 0
            if lam[i] > 0.0:
                count[i] = max(int(np.ceil((rounds[row] - 0.5 * support) * lam[i])), 0)
                total += count[i]
        mine = theirs = 0.0
        while total < rounds[row]:
            best = -1
            for i in range(K):
                if lam[i] > 0.0:
                    if best >= 0:
                        mine, theirs = count[i] * lam[best], count[best] * lam[i]
                    tied = heavier and mine == theirs and lam[i] > lam[best]
                    if best < 0 or mine < theirs or tied:
                        best = i
            count[best] += 1
            total += 1
        while total > rounds[row]:
            best = -1
            for i in range(K):
                if count[i] > 0:
                    if best >= 0:
                        mine, theirs = (count[i] - 1) * lam[best], (count[best] - 1) * lam[i]
                    tied = heavier and mine == theirs and lam[i] < lam[best]
                    if best < 0 or mine > theirs or tied:
                        best = i
            count[best] -= 1
            total -= 1
