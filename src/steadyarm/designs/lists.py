"""Short lists of arms that stand in for a design: whole numbers chosen by what they tell.

For the blocks of `Steady`; `lists_of_many` is the same for large sets.

Rounding each weight by itself may lose a direction when there are few rounds to share out. Here
rounds are exchanged between arms until the list is about as informative as the design.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel
from steadyarm.designs.dense_kernels import cholesky, cholesky_solve, information, whiten_rows

__all__ = ["GOOD_ENOUGH", "LEAST_SHARE", "RIDGE", "whole_lists"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEAST_SHARE = 0.25  # of the design's information, that a list keeps in every direction
GOOD_ENOUGH = 0.9  # mean efficiency at which no exchange is looked for
RIDGE = 1e-3  # share of the design in every list, so that one that misses a direction can mend


def whole_lists(X: Floats, weights: Floats, length: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Lists of `length` arms, as counts (n, K), for designs `weights` (n, K) on arms X (K, r).

    Counts start from the largest remainders. While their mean efficiency, r over the trace of
    A(weights) A(counts / length)⁻¹, is below 0.9 and an exchange of one round raises it, the one
    that helps most is made.

    Returns
    -------
    counts, and whether each list is good: A(counts / length) has at least a quarter of A(weights)
    in every direction, so that the worst variance grows fourfold at most. Lists shorter than r are
    never good.

    Examples
    --------
    >>> counts, good = whole_lists(np.eye(3), np.array([[0.57, 0.33, 0.1]]), 10)
    >>> counts.tolist(), good.tolist()
    ([[6, 3, 1]], [True])
    """
    counts = np.empty(weights.shape)
    good = np.zeros(len(weights), dtype=bool)
    _lists_kernel(X, np.ascontiguousarray(weights), float(length), counts, good)
    return counts.astype(np.int64), good


@kernel
def _largest_remainders(weight: Floats, length: float, count: Floats) -> None:
    """Whole numbers (K,) that sum to `length`, each within one of weight * length."""
    K = weight.shape[0]
    total = weight.sum()
    left = length
    for k in range(K):
        count[k] = np.floor(weight[k] / total * length + 1e-9)
        left -= count[k]
    for _ in range(int(np.rint(left))):
        best, most = 0, -2.0
        for k in range(K):
            remainder = weight[k] / total * length - count[k]
            if remainder > most + 1e-12:
                best, most = k, remainder
        count[best] += 1.0


@kernel
def _lists_kernel(
    X: Floats, weights: Floats, length: float, counts: Floats, good: NDArray[np.bool_]
) -> None:
    """Fill counts (n, K); say in good (n,), False on entry, which lists will do."""
    K, r = X.shape
    A, P, work = np.empty((r, r)), np.empty((r, r)), np.empty((r, r))
    U = np.empty((K, r))
    for i in range(weights.shape[0]):
        _largest_remainders(weights[i], length, counts[i])
        if length < r:
            continue
        if r == K:
            good[i] = _improve_independent(weights[i], counts[i], length)
            continue
        information(X, weights[i], A)
        if not cholesky(A, 0.0):
            continue  # the design itself misses a direction
        whiten_rows(A, X, U)  # the design's information becomes the identity
        for _ in range(2 * int(length)):
            _inverse_information(U, counts[i], length, P, work)
            if r / np.trace(P) >= GOOD_ENOUGH or not _exchange(U, weights[i], counts[i], length, P):
                break
        information(U, counts[i] / length, work)
        for a in range(r):
            work[a, a] -= LEAST_SHARE
        good[i] = cholesky(work, 0.0)


@kernel
def _improve_independent(weight: Floats, count: Floats, length: float) -> bool:
    """The same for linearly independent arms, where only each arm's own share counts."""
    K = weight.shape[0]
    for _ in range(2 * int(length)):
        trace = 0.0
        leave, enter = 0, 0
        least, most = np.inf, -1.0
        for k in range(K):
            n = count[k]
            trace += weight[k] * length / max(n, 1e-9)
            loss = weight[k] / (n * (n - 1.0)) if n > 1.5 else np.inf
            gain = weight[k] / (n * (n + 1.0)) if n > 0.5 else 1e9 * weight[k]
            if n > 0.5 and loss < least:
                least, leave = loss, k
            if gain > most:
                most, enter = gain, k
        if GOOD_ENOUGH * trace <= K or most <= least * (1.0 + 1e-9) or leave == enter:
            break
        count[leave] -= 1.0
        count[enter] += 1.0
    for k in range(K):
        if weight[k] <= 0.0 or count[k] < LEAST_SHARE * weight[k] * length:
            return False
    return True


@kernel
def _inverse_information(U: Floats, count: Floats, length: float, P: Floats, L: Floats) -> None:
    """P = (sum of count_k u_k u_k' / length + ridge)^-1, in full."""
    r = U.shape[1]
    information(U, count / length, L)
    for a in range(r):
        L[a, a] += RIDGE
    cholesky(L, 1e30)
    P[:] = 0.0
    for a in range(r):
        P[a, a] = 1.0
        cholesky_solve(L, P[a])


@kernel
def _exchange(U: Floats, weight: Floats, count: Floats, length: float, P: Floats) -> bool:
    """Make the exchange of one round that lowers the trace of P most; False if none does."""
    K, r = U.shape
    before = np.trace(P)
    least, leave, enter = before * (1.0 - 1e-9), -1, -1
    without, v, w = np.empty((r, r)), np.empty(r), np.empty(r)
    for k in range(K):
        if count[k] < 0.5:
            continue
        _times(P, U[k], v)
        kept = length - _inner(U[k], v)  # length (1 - leverage)
        if kept <= 0.0:
            continue
        for a in range(r):
            for b in range(r):
                without[a, b] = P[a, b] + v[a] * v[b] / kept
        trace = before + _inner(v, v) / kept
        for j in range(K):
            if weight[j] > 0.0 and j != k:
                _times(without, U[j], w)
                after = trace - _inner(w, w) / (length + _inner(U[j], w))
                if after < least:
                    least, leave, enter = after, k, j
    if leave < 0:
        return False
    count[leave] -= 1.0
    count[enter] += 1.0
    return True


@kernel
def _inner(u: Floats, v: Floats) -> float:
    total = 0.0
    for a in range(u.size):
        total += u[a] * v[a]
    return total


@kernel
def _times(P: Floats, u: Floats, out: Floats) -> None:
    """P u for a symmetric P (r, r); by columns, which are rows, so that sums run in parallel."""
    out[:] = 0.0
    for b in range(P.shape[0]):
        for a in range(P.shape[1]):
            out[a] += P[b, a] * u[b]
