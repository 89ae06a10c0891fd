"""Scores of pieces: the estimators' own, or with matrix products where few of many arms are played.

Pieces of a large set come with columns of their own, some hundreds of them, and one test at a
time: then A(λ)⁻¹x is computed for all columns at once, and again only when the allocation changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.estimators import ips, ips_squares
from steadyarm.linalg import gram, inverse_root, matmul
from steadyarm.segments import Segment, SegmentStats

__all__ = ["Scorer"]

Floats = NDArray[np.float64]


class Scorer:
    """Scores of one piece after the other; remembers what pieces with one allocation share."""

    def __init__(self, arms: ArmSet) -> None:
        self._arms = arms
        self._last: Segment | None = None
        self._X = np.empty((0, arms.rank))
        self._solved: Floats | None = None

    def rows(self, segment: Segment) -> Floats:
        """(m, r) coordinates of the arms that the segment's columns are."""
        if segment.arms is None:
            return self._arms.coordinates
        if not self._same(segment):
            self._last, self._X = segment, self._arms.coordinates_of(segment.arms)
            self._solved = _solved(self._X, segment)
        return self._X

    def sums(self, X: Floats, segment: Segment, stats: SegmentStats) -> Floats:
        """(n, r) as `estimators.ips`."""
        V = self._known(segment)
        if V is None:
            return ips(X, segment, stats)
        if segment.reference is None:
            return np.asarray(matmul(stats.sums, V))
        m = segment.reference
        surprise = stats.sums - stats.counts * matmul(m, X.T)
        return np.asarray(matmul(surprise, V) + segment.rounds[:, None] * m)

    def squares(self, X: Floats, segment: Segment, stats: SegmentStats, squares: Floats) -> Floats:
        """(n, r, r) as `estimators.ips_squares`."""
        V = self._known(segment)
        if V is None:
            return ips_squares(X, segment, stats, squares)
        if segment.reference is None:
            return gram(V, squares[0])[None]
        m = segment.reference
        v = matmul(m, X.T)
        terms = squares - 2 * v * stats.sums + stats.counts * v**2
        mixed = m.T * matmul(stats.sums - stats.counts * v, V)
        whole = gram(V, terms[0]) + mixed + mixed.T + segment.rounds[0] * (m.T * m)
        return np.asarray(whole)[None]

    def _same(self, segment: Segment) -> bool:
        last = self._last
        if last is None or last.weights.shape != segment.weights.shape:
            return False
        assert last.arms is not None
        assert segment.arms is not None
        same = last.weights is segment.weights or np.array_equal(last.weights, segment.weights)
        return same and np.array_equal(last.arms, segment.arms)

    def _known(self, segment: Segment) -> Floats | None:
        return None if segment.arms is None else self._solved


def _solved(X: Floats, segment: Segment) -> Floats | None:
    """(m, r) A(λ)⁻¹x of every column; None where the estimators have to say what is wrong."""
    if segment.trials != 1:
        return None
    try:
        root = inverse_root(gram(X, segment.weights[0]))
    except np.linalg.LinAlgError:
        return None
    return np.asarray(matmul(matmul(X, root), root.T))
