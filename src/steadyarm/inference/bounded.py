"""What bounded rewards say of the scores: their squares around the reference, and their bounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.dense_kernels import cholesky, cholesky_solve, information, kernel
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence
from steadyarm.validation import finite_number

__all__ = ["bounded_terms"]

Floats = NDArray[np.float64]


def bounded_terms(
    evidence: Evidence, reward_range: tuple[float, float]
) -> tuple[Floats, Floats, str]:
    """Squared terms (n, J, r, r) up to each piece, bounds (2, n, J, K) of a term, what a term is.

    Terms are compared with the reference. Independent rounds are terms; so are, with twice the
    squares and bounds, those of blocks of whole numbers (docs/inference.md); for arms that share
    nothing not even that is needed. Otherwise whole pieces are the terms.
    """
    bounds = _checked_range(reward_range)
    if evidence.weights is None:
        raise InvalidInputError(
            "this evidence does not hold the allocations, which bound the scores; make it with "
            "Evidence.from_segments, or leave reward_range out."
        )
    n, J, r = evidence.scores.shape
    m = evidence.references
    m = np.zeros((n, J, r)) if m is None else m
    scale = np.zeros((2, n, J, evidence.arms.size))
    _scale_kernel(evidence.arms.coordinates, evidence.weights, m, evidence.rounds, *bounds, scale)
    N = evidence.rounds[:, :, None]
    if evidence.block > 1 and evidence.within is None:
        off = evidence.scores - N * m
        squared = off[..., :, None] * off[..., None, :]
        return np.cumsum(squared, axis=1), scale * N, "pieces"
    mixed = m[..., :, None] * (evidence.scores - N * m / 2)[..., None, :]
    squared = np.cumsum(evidence.squares - mixed - mixed.swapaxes(2, 3), axis=1)
    return squared, scale, "rounds" if evidence.within is None else "lists"


def _checked_range(reward_range: tuple[float, float]) -> tuple[float, float]:
    try:
        least, most = reward_range
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"reward_range is {reward_range!r}; expected a pair (least, largest)."
        ) from None
    least, most = finite_number(least, "least reward"), finite_number(most, "largest reward")
    if not least < most:
        raise InvalidInputError(
            f"reward_range is ({least:g}, {most:g}); the first must be smaller than the second."
        )
    return least, most


@kernel
def _scale_kernel(
    X: Floats,
    weights: Floats,
    reference: Floats,
    rounds: NDArray[np.int64],
    least: float,
    most: float,
    out: Floats,
) -> None:
    """How far x_i'A⁻¹x_k (reward - x_k'm) lies below and above 0, at most, into out (2, n, J, K).

    Over rewards from `least` to `most` and arms k that may be played.
    """
    K, r = X.shape
    A, v = np.empty((r, r)), np.empty(r)
    slope, value = np.zeros((K, K)), np.empty(K)
    for i in range(weights.shape[0]):
        last = -1
        for j in range(weights.shape[1]):
            if rounds[i, j] == 0:
                continue
            same = last >= 0
            if same:
                for k in range(K):
                    same = same and weights[i, j, k] == weights[i, last, k]
            if not same:
                information(X, weights[i, j], A)
                cholesky(A, 0.0)
                for k in range(K):
                    v[:] = X[k]
                    cholesky_solve(A, v)
                    for h in range(K):
                        t = 0.0
                        for a in range(r):
                            t += X[h, a] * v[a]
                        slope[h, k] = t if weights[i, j, k] > 0.0 else 0.0
            last = j
            for k in range(K):
                value[k] = 0.0
                for a in range(r):
                    value[k] += X[k, a] * reference[i, j, a]
            for h in range(K):
                for k in range(K):
                    one = slope[h, k] * (least - value[k])
                    two = slope[h, k] * (most - value[k])
                    out[0, i, j, h] = max(out[0, i, j, h], -min(one, two))
                    out[1, i, j, h] = max(out[1, i, j, h], max(one, two))
