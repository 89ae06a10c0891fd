"""Allocations: what policies make of designs, as mixtures and in whole numbers of rounds.

`exact_allocation` finds the counts of a short block by their information, for the blocks of Steady
and to play few arms of a large set. `round_designs` is efficient rounding (Pukelsheim 2006, chapter
12), for policies that play fixed numbers of rounds: Peace, OD-LinBAI, Adjacent-BAI.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.compiled import kernel
from steadyarm.decompositions import eigh
from steadyarm.designs.design import check_weights
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import (
    cholesky,
    cholesky_solve,
    gram,
    information,
    inverse_root,
    matmul,
    row_dots,
    solve_lower,
    whiten_rows,
)

LEAST_SHARE = 0.25  # of the design's information, that an exact design keeps in every direction
GOOD_ENOUGH = 0.9  # mean efficiency at which no exchange is tried
RIDGE = 1e-3  # share of the design added to every exact one, so that missing directions can mend
CANDIDATES = 4  # times the length: how many of many arms, those of the largest weights, may be used
AFRESH = 64  # exchanges after which sums are computed anew

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Allocation(NamedTuple):
    """Probabilities of arms for a batch of trials.

    Attributes
    ----------
    weights : (n, m) each row sums to one
    arms : (m,) rising indices of the arms that the columns are; None if they are all arms
    """

    weights: Floats
    arms: Integers | None = None

    def everywhere(self, size: int) -> Floats:
        """(n, K) the weights of all arms."""
        if self.arms is None:
            return self.weights
        weights = np.zeros((len(self.weights), size))
        weights[:, self.arms] = self.weights
        return weights


def mixed(parts: Sequence[tuple[float | Floats, Allocation]]) -> Allocation:
    """The mixture of allocations in the given proportions: numbers, or arrays (n, 1).

    Allocations have a row for each trial, or one row for all of them.

    Examples
    --------
    >>> one = Allocation(np.array([[0.5, 0.5]]), np.array([0, 7]))
    >>> other = Allocation(np.array([[0.2, 0.8]]), np.array([3, 7]))
    >>> both = mixed([(1.0, one), (1.0, other)])
    >>> both.arms.tolist(), both.weights.round(2).tolist()
    ([0, 3, 7], [[0.25, 0.1, 0.65]])
    """
    few = [part.arms for _, part in parts if part.arms is not None]
    arms = np.unique(np.concatenate(few)) if few else np.arange(parts[0][1].weights.shape[1])
    weights = np.zeros((max(len(part.weights) for _, part in parts), arms.size))
    for share, part in parts:
        columns = slice(None) if part.arms is None else np.searchsorted(arms, part.arms)
        weights[:, columns] += share * part.weights
    return Allocation(weights / sum(share for share, _ in parts), arms if few else None)


# Exact designs: short blocks of whole numbers


def exact_allocation(X: Floats, allocation: Allocation, length: int) -> Allocation:
    """An allocation that plays arms X (m, r) whole numbers of times in `length` rounds.

    It keeps at least a quarter of the allocation's information in every direction. Where there are
    no such counts, because `length` is too small, a trial keeps the allocation itself.

    Examples
    --------
    >>> X, weights = np.eye(3), np.array([[0.57, 0.33, 0.1]])
    >>> exact_allocation(X, Allocation(weights), 10).weights.tolist()
    [[0.6, 0.3, 0.1]]
    """
    if allocation.arms is not None:
        return _few_of_many(X, allocation, length)
    counts, good = exact_counts(X, allocation.weights, length)
    return Allocation(np.where(good[:, None], counts / length, allocation.weights))


def exact_counts(X: Floats, weights: Floats, length: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Counts (n, K) of `length` rounds for designs `weights` (n, K) on arms X (K, r).

    Counts start from the largest remainders. While their mean efficiency, r over the trace of
    A(weights) A(counts / length)⁻¹, is below 0.9 and an exchange of one round raises it, the one
    that helps most is made.

    Returns
    -------
    counts, and whether they are good: A(counts / length) has at least a quarter of A(weights)
    in every direction, so that the worst variance grows fourfold at most. Fewer than r
    rounds are never good.

    Examples
    --------
    >>> counts, good = exact_counts(np.eye(3), np.array([[0.57, 0.33, 0.1]]), 10)
    >>> counts.tolist(), good.tolist()
    ([[6, 3, 1]], [True])
    """
    seen: dict[bytes, int] = {}  # many simulated trials have the same few designs
    which = [seen.setdefault(design.tobytes(), len(seen)) for design in weights]
    distinct = np.frombuffer(b"".join(seen)).reshape(len(seen), weights.shape[1])
    counts, good = np.empty(distinct.shape), np.zeros(len(distinct), dtype=bool)
    _exact_kernel(X, distinct, float(length), counts, good)
    return counts.astype(np.int64)[which], good[which]


@kernel
def _largest_remainders(weight: Floats, length: float, count: Floats) -> None:
    """Whole numbers (K,) that sum to `length`, each within one of weight * length."""
    K = weight.shape[0]
    total = 0.0
    for k in range(K):
        total += weight[k]
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
def _exact_kernel(
    X: Floats, weights: Floats, length: float, counts: Floats, good: NDArray[np.bool_]
) -> None:
    """Fill counts (n, K); say in good (n,), False on entry, which of them are good."""
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
            if r / _trace(P) >= GOOD_ENOUGH or not _exchange(U, weights[i], counts[i], length, P):
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
    before = _trace(P)
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
def _trace(P: Floats) -> float:
    total = 0.0
    for a in range(P.shape[0]):
        total += P[a, a]
    return total


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


# Few of many arms: the same for one trial, with exchanges found arm by arm instead of by pairs


def _few_of_many(X: Floats, allocation: Allocation, length: int) -> Allocation:
    """The allocation of one trial on the arms that its counts play; see `exact_allocation`."""
    r, (weights,) = X.shape[1], allocation.weights
    if length < r:
        return allocation
    A = gram(X, weights)
    if not cholesky(A, 0.0):
        return allocation
    U = solve_lower(A, X)  # the design's information becomes the identity
    order = np.random.default_rng(0).permutation(len(X))  # of equal weights, any as well as others
    most = np.sort(order[np.argsort(-weights[order], kind="stable")][: CANDIDATES * length])
    first = np.empty(most.size)
    _largest_remainders(weights[most], float(length), first)
    counts = np.zeros(len(X))
    counts[most] = _exchanged(U[most], first, length)
    played = counts > 0
    if eigh(gram(U[played], counts[played] / length))[0][0] < LEAST_SHARE:
        return allocation
    assert allocation.arms is not None
    return Allocation(counts[None, played] / length, allocation.arms[played])


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


# Efficient rounding


def round_design(weights: ArrayLike, rounds: int) -> NDArray[np.int64]:
    """Counts (K,) that sum to `rounds` and follow the weights as closely as whole numbers can.

    Weights need not sum to one. Arms of weight zero get no round. With fewer rounds than arms in
    the support the light ones get none. Ties go to the heavier arm, then to the lower index.

    Parameters
    ----------
    weights : (K,) weights of a design
    rounds : how many rounds to distribute

    Returns
    -------
    (K,) whole numbers: rounds of each arm

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

    Parameters
    ----------
    weights : (n, K) weights, one design a row
    rounds : (n,) rounds to distribute, or one number for all designs
    ties : which of equally deserving arms gets a round first

    Returns
    -------
    (n, K) whole numbers: rounds of each arm

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
