"""What bounded rewards say of the scores: their squares around the reference, and their bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.compiled import kernel
from steadyarm.designs.dense_kernels import cholesky, cholesky_solve, information
from steadyarm.designs.forms import forms
from steadyarm.errors import InvalidInputError
from steadyarm.inference.evidence import Evidence
from steadyarm.validation import checked_range

__all__ = ["FarScales", "bounded_terms", "far_scales"]

Floats = NDArray[np.float64]


def bounded_terms(
    evidence: Evidence, reward_range: tuple[float, float]
) -> tuple[Floats, Floats, str]:
    """Squared terms (n, J, r, r) up to each piece, bounds (2, n, J, K) of a term, what a term is.

    Terms are compared with the reference. Independent rounds are terms; so are, with twice the
    squares and bounds, those of blocks of whole numbers (docs/inference.md); for arms that share
    nothing not even that is needed. Otherwise whole pieces are the terms.
    """
    bounds = checked_range(reward_range)
    if evidence.weights is None:
        raise InvalidInputError(
            "this evidence does not hold the allocations, which bound the scores; make it with "
            "Evidence.from_segments, or leave reward_range out."
        )
    n, J, r = evidence.scores.shape
    m = evidence.references
    m = np.zeros((n, J, r)) if m is None else m
    N = evidence.rounds[:, :, None]
    if evidence.whole is None:
        X, scale = evidence.arms.coordinates, np.zeros((2, n, J, evidence.arms.size))
        _scale_kernel(X, _all_weights(evidence), m, evidence.rounds, *bounds, scale)
    else:
        scale = _far_scales(evidence, *bounds).of_pieces(evidence.arms.coordinates)
    if evidence.block > 1 and evidence.within is None:
        off = evidence.scores - N * m
        squared = off[..., :, None] * off[..., None, :]
        return np.cumsum(squared, axis=1), scale * N, "pieces"
    mixed = m[..., :, None] * (evidence.scores - N * m / 2)[..., None, :]
    squared = np.cumsum(evidence.squares - mixed - mixed.swapaxes(2, 3), axis=1)
    return squared, scale, "rounds" if evidence.within is None else "lists"


def far_scales(evidence: Evidence, reward_range: tuple[float, float]) -> FarScales:
    """The same bounds for any arm of a large set, of a single test."""
    found = _far_scales(evidence, *checked_range(reward_range))
    whole_pieces = evidence.block > 1 and evidence.within is None
    return found.in_pieces(evidence.rounds[0]) if whole_pieces else found


@dataclass(frozen=True, eq=False)
class FarScales:
    """Bounds of the terms of any arm x: |x'A⁻¹x_k (reward - x_k'm)| ≤ ‖x‖ ‖x_k‖ |reward - x_k'm|.

    Norms are those of A⁻¹ (Cauchy and Schwarz), so that no table of arms by arms is needed.

    Attributes
    ----------
    roots : (r, r) matrices R with A⁻¹ = RR', one for each allocation that differs
    index : (J,) which of them a piece has
    reach : (J,) the largest ‖x_k‖ |reward - x_k'm| over the arms that the piece plays
    """

    roots: tuple[Floats, ...]
    index: NDArray[np.int64]
    reach: Floats

    def in_pieces(self, rounds: NDArray[np.int64]) -> FarScales:
        """Bounds of the sums of whole pieces."""
        return FarScales(self.roots, self.index, self.reach * rounds)

    def of_pieces(self, X: Floats) -> Floats:
        """(2, 1, J, m) below and above, for the arms (m, r)."""
        norms = np.array([_norms(X, root) for root in self.roots])
        scale = self.reach[:, None] * norms[self.index]
        return np.stack([scale, scale])[:, None]

    def gaps_until(self, rows: Rows, best: Floats, j: int) -> Floats:
        """(K,) the largest up to piece j, of the difference of each arm of a set to the best."""
        return self._largest(best[None], j) + self._largest(rows, j)

    def _largest(self, X: Rows | Floats, j: int) -> Floats:
        """(m,) the largest up to piece j, of arms."""
        largest = np.zeros(1)
        for place, root in enumerate(self.roots):
            here = self.reach[: j + 1][self.index[: j + 1] == place]
            if here.size:
                largest = np.maximum(largest, here.max() * _norms(X, root))
        return largest


def _all_weights(evidence: Evidence) -> Floats:
    """(n, J, K) weights of all arms."""
    assert evidence.weights is not None
    if evidence.columns is None:
        return evidence.weights
    out = np.zeros((*evidence.rounds.shape, evidence.arms.size))
    out[:, :, evidence.columns] = evidence.weights
    return out


def _far_scales(evidence: Evidence, least: float, most: float) -> FarScales:
    assert evidence.weights is not None
    arms = evidence.arms if evidence.whole is None else evidence.whole
    m = np.zeros_like(evidence.scores[0])
    m = m if evidence.references is None else evidence.references[0]
    weights, rounds = evidence.weights[0], evidence.rounds[0]
    roots: list[Floats] = []
    index, reach = np.zeros(len(rounds), dtype=np.int64), np.zeros(len(rounds))
    last, X, norms = -1, np.empty((0, arms.rank)), np.empty(0)
    for j in np.flatnonzero(rounds > 0).tolist():
        if last < 0 or not np.array_equal(weights[j], weights[last]):
            played = np.flatnonzero(weights[j] > 0)
            names = played if evidence.columns is None else evidence.columns[played]
            X = arms.coordinates_of(names)
            A = (X * weights[j, played][:, None]).T @ X
            roots.append(np.linalg.inv(np.linalg.cholesky(A)).T)
            norms = _norms(X, roots[-1])
        values = X @ m[j]
        index[j], last = len(roots) - 1, j
        reach[j] = (norms * np.maximum(np.abs(least - values), np.abs(most - values))).max()
    return FarScales(tuple(roots), index, reach)


def _norms(X: Rows | Floats, root: Floats) -> Floats:
    if isinstance(X, np.ndarray):
        return np.asarray(np.sqrt(((X @ root) ** 2).sum(axis=1)))
    return np.asarray(np.sqrt(np.maximum(forms(X, root @ root.T, np.zeros(len(root))), 0.0)))


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
