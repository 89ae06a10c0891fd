"""Whole numbers of rounds that stand in for a design on hundreds of arms: `lists.py` for many.

For the blocks of `Steady`, and for any policy whose design has too many arms to play.

Where there every exchange of two arms is tried, here the arm whose round is missed least makes way
for the one that helps most, a rank-one change each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.few_arms import FewArms
from steadyarm.designs.lists import GOOD_ENOUGH, LEAST_SHARE, RIDGE
from steadyarm.linalg import cholesky, eigh, gram, inverse_root, matmul, row_dots, solve_lower

__all__ = ["whole_list_of_many"]

Floats = NDArray[np.float64]

CANDIDATES = 4  # times the length: arms with the largest weights, which may be on the list
AFRESH = 64  # exchanges after which sums are computed anew


def whole_list_of_many(X: Floats, design: FewArms, length: int) -> FewArms:
    """A design that plays arms X (m, r) whole numbers of times in `length` rounds.

    The list keeps at least a quarter of the design's information in every direction; where there
    is no such list, because it would be too short, the design itself is returned.

    Examples
    --------
    >>> X = np.vstack([np.eye(3), -np.eye(3)])
    >>> design = FewArms(np.arange(6), np.array([0.3, 0.2, 0.1, 0.1, 0.2, 0.1]))
    >>> (whole_list_of_many(X, design, 12).weights * 12).round(6).tolist()
    [4.0, 3.0, 1.0, 1.0, 2.0, 1.0]
    """
    r = X.shape[1]
    if length < r:
        return design
    A = gram(X, design.weights)
    if not cholesky(A, 0.0):
        return design
    U = solve_lower(A, X)  # the design's information becomes the identity
    order = np.random.default_rng(0).permutation(len(X))  # of equal weights, any as well as others
    most = np.sort(order[np.argsort(-design.weights[order], kind="stable")][: CANDIDATES * length])
    counts = np.zeros(len(X))
    counts[most] = _exchanged(U[most], _largest_remainders(design.weights[most], length), length)
    played = counts > 0
    share = eigh(gram(U[played], counts[played] / length))[0][0]
    if share < LEAST_SHARE:
        return design
    return FewArms(design.arms[played], counts[played] / length)


def _largest_remainders(weights: Floats, length: int) -> Floats:
    exact = weights / weights.sum() * length
    counts = np.floor(exact + 1e-9)
    short = round(length - counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1.0
    return np.asarray(counts)


def _exchanged(U: Floats, counts: Floats, length: int) -> Floats:
    """Counts after exchanges that lower the trace of the inverse information, while it pays."""
    r = U.shape[1]
    for step in range(length):
        if step % AFRESH == 0:  # updates gather rounding errors
            P = gram(inverse_root(gram(U, counts / length) + RIDGE * np.eye(r)).T)
            V = matmul(U, P)
            reach, size, trace = row_dots(V, U), row_dots(V, V), float(np.trace(P))
        if r >= GOOD_ENOUGH * trace:
            break
        # Without a round of arm k the inverse grows by vv' / (length - reach), v = P u.
        there = np.flatnonzero(counts)
        loss = size[there] / np.maximum(length - reach[there], 1e-9)
        leave = int(there[loss.argmin()])
        without = _updated(U, V, reach, size, leave, length - reach[leave])
        gain = without[2] / (length + without[1])
        gain[leave] = -1.0
        enter = int(gain.argmax())
        if gain[enter] <= loss.min() * (1 + 1e-9):
            break
        trace += float(loss.min() - gain[enter])
        V, reach, size = _updated(U, *without, enter, -(length + without[1][enter]))
        counts[leave] -= 1.0
        counts[enter] += 1.0
    return counts


def _updated(
    U: Floats, V: Floats, reach: Floats, size: Floats, k: int, by: float
) -> tuple[Floats, Floats, Floats]:
    """V = U P, u'Pu and |Pu|² of all arms after P has become P + vv' / by, v = P u_k."""
    v = V[k].copy()
    along, beside = matmul(U, v) / by, matmul(V, v)
    size = size + 2 * along * beside + along**2 * matmul(v, v)
    return V + np.outer(along, v), reach + along**2 * by, size
