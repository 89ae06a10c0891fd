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

from steadyarm.designs.design import check_weights
from steadyarm.errors import InvalidInputError
from steadyarm.kernels import first_largest, grams

LEAST_SHARE = 0.25  # of the design's information, that an exact design keeps in every direction
GOOD_ENOUGH = 0.9  # mean efficiency at which no exchange is tried
RIDGE = 1e-3  # share of the design added to every exact one, so that missing directions can mend
CANDIDATES = 4  # times the length: how many of many arms, those of the largest weights, may be used
AFRESH = 64  # exchanges after which sums are computed anew
ROUNDING = 1e-7  # difference up to which two numbers are a tie: designs agree to about 1e-9

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


def mix(parts: Sequence[tuple[float | Floats, Allocation]]) -> Allocation:
    """The mixture of allocations in the given proportions: numbers, or arrays (n, 1).

    Allocations have a row for each trial, or one row for all of them.

    Examples
    --------
    >>> one = Allocation(np.array([[0.5, 0.5]]), np.array([0, 7]))
    >>> other = Allocation(np.array([[0.2, 0.8]]), np.array([3, 7]))
    >>> both = mix([(1.0, one), (1.0, other)])
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
    no such counts, because `length` is too small, a trial keeps the allocation itself. On few of
    many arms, the result has the arms that its counts play.

    Examples
    --------
    >>> X, weights = np.eye(3), np.array([[0.57, 0.33, 0.1]])
    >>> exact_allocation(X, Allocation(weights), 10).weights.tolist()
    [[0.6, 0.3, 0.1]]
    """
    counts, good = exact_counts(X, allocation.weights, length)
    if allocation.arms is None:
        return Allocation(np.where(good[:, None], counts / length, allocation.weights))
    if not good.all():
        return allocation
    played = counts.any(axis=0)
    return Allocation(counts[:, played] / length, allocation.arms[played])


def exact_counts(X: Floats, weights: Floats, length: int) -> tuple[Integers, NDArray[np.bool_]]:
    """Counts (n, K) of `length` rounds for designs `weights` (n, K) on arms X (K, r).

    Counts start from the largest remainders. While their mean efficiency, r over the trace of
    A(weights) A(counts / length)⁻¹, is below 0.9, the round whose loss costs least goes to the arm
    that gains most by it.

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
    # many simulated trials have the same few designs
    distinct, which = np.unique(weights, axis=0, return_inverse=True)
    K, r = X.shape
    most = np.arange(K)
    if CANDIDATES * length < K:
        order = np.random.default_rng(0).permutation(K)  # of equal weights, any will do
        heaviest = order[np.argsort(-distinct.max(axis=0)[order], kind="stable")]
        most = np.sort(heaviest[: CANDIDATES * length])
    counts, good = np.zeros(distinct.shape), np.zeros(len(distinct), dtype=bool)
    counts[:, most] = _largest_remainders(distinct[:, most], length)
    if length >= r == K and np.count_nonzero(X) == r and (np.diag(X) == 1).all():
        regular = np.flatnonzero(distinct.min(axis=1) > 1e-15 * distinct.sum(axis=1))
        improved = _exchange_independent(distinct[regular], counts[regular])
        counts[regular] = improved
        least = (improved / (length * distinct[regular])).min(axis=1)
        good[regular] = least >= LEAST_SHARE * (1 - ROUNDING)
    elif length >= r:
        values, vectors = np.linalg.eigh(grams(X, distinct))
        regular = np.flatnonzero(values[:, 0] > 1e-15 * values.sum(axis=1))
        # the design's information becomes the identity
        U = X[most] @ (vectors / np.sqrt(np.abs(values))[:, None, :])[regular]
        improved = _exchange(U, distinct[np.ix_(regular, most)], counts[np.ix_(regular, most)])
        counts[np.ix_(regular, most)] = improved
        least = np.linalg.eigvalsh((U.swapaxes(1, 2) * (improved / length)[:, None, :]) @ U)[:, 0]
        good[regular] = least >= LEAST_SHARE * (1 - ROUNDING)
    which = which.ravel()
    return np.rint(counts).astype(np.int64)[which], good[which]


def _largest_remainders(weights: Floats, length: int) -> Floats:
    """Whole numbers (n, K) that sum to `length`, each within one of weights * length."""
    share = weights / weights.sum(axis=1, keepdims=True) * length
    counts = np.floor(share + ROUNDING)
    remainders = share - counts
    falling = np.argsort(-remainders, axis=1)
    steps = -np.diff(np.take_along_axis(remainders, falling, axis=1), axis=1, prepend=np.inf)
    group = np.empty(counts.shape, dtype=np.int64)  # remainders that are a tie
    np.put_along_axis(group, falling, np.cumsum(steps > ROUNDING, axis=1), axis=1)
    order = np.argsort(group, axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return np.asarray(counts + (rank < length - counts.sum(axis=1, keepdims=True)))


def _exchange_independent(weights: Floats, counts: Floats) -> Floats:
    """`_exchange` for arms that share no features: all matrices are diagonal."""
    counts, (n, K) = counts.copy(), weights.shape
    open_ = np.arange(n)
    length = counts[0].sum() if n else 0.0
    for _ in range(2 * int(length)):
        w, c, rows = weights[open_], counts[open_], np.arange(len(open_))
        P = 1 / (c / (length * w) + RIDGE)
        reach, size = P / w, P * P / w
        loss = np.where(c > 0, size / np.maximum(length - reach, ROUNDING), np.inf)
        leave = first_largest(-loss)
        gain = size / (length + reach)
        gain[rows, leave] = -1.0
        enter = first_largest(gain)
        better = gain[rows, enter] > loss[rows, leave] * (1 + ROUNDING)
        better &= GOOD_ENOUGH * P.sum(axis=1) > K
        if not better.any():
            break
        open_ = open_[better]
        counts[open_, leave[better]] -= 1.0
        counts[open_, enter[better]] += 1.0
    return counts


def _exchange(U: Floats, weights: Floats, counts: Floats) -> Floats:
    """Counts (n, K) after exchanges of one round, on arms U (n, K, r) of each design.

    Without a round of arm k the inverse P of the information grows by vv' / (length - u'v), v = Pu.
    """
    counts, length, r = counts.copy(), counts[:1].sum(), U.shape[2]
    open_ = np.arange(len(U))
    for step in range(2 * int(length)):
        if step % AFRESH == 0:  # updates gather rounding errors
            here = U[open_]
            A = (here.swapaxes(1, 2) * (counts[open_] / length)[:, None, :]) @ here
            P = np.linalg.inv(A + RIDGE * np.eye(r))
            V, trace = here @ P, np.trace(P, axis1=1, axis2=2)
            reach, size = np.einsum("nkr,nkr->nk", V, here), np.einsum("nkr,nkr->nk", V, V)
        kept, rows = np.maximum(length - reach, ROUNDING), np.arange(len(open_))
        loss = np.where(counts[open_] > 0, size / kept, np.inf)
        leave = first_largest(-loss)
        least = loss[rows, leave]
        without = _update(U[open_], V, reach, size, leave, kept[rows, leave])
        gain = np.where(weights[open_] > 0, without[2] / (length + without[1]), -1.0)
        gain[rows, leave] = -1.0
        enter = first_largest(gain)
        better = (r < GOOD_ENOUGH * trace) & (gain[rows, enter] > least * (1 + ROUNDING))
        if not better.any():
            break
        by = -(length + without[1][rows, enter])
        V, reach, size = _update(U[open_], *without, enter, by)
        trace = trace + least - gain[rows, enter]
        open_, leave, enter = open_[better], leave[better], enter[better]
        V, reach, size, trace = V[better], reach[better], size[better], trace[better]
        counts[open_, leave] -= 1.0
        counts[open_, enter] += 1.0
    return counts


def _update(
    U: Floats, V: Floats, reach: Floats, size: Floats, k: Integers, by: Floats
) -> tuple[Floats, Floats, Floats]:
    """V = U P, u'Pu and |Pu|² of all arms after P has become P + vv' / by, v = P u_k."""
    v = V[np.arange(len(V)), k][:, :, None]
    along, beside = (U @ v)[..., 0] / by[:, None], (V @ v)[..., 0]
    size = size + 2 * along * beside + along**2 * np.square(v).sum(axis=1)
    return V + along[..., None] * v.swapaxes(1, 2), reach + along**2 * by[:, None], size


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
    shares = given / given.sum(axis=1, keepdims=True)
    wanted = np.broadcast_to(totals, len(given))[:, None]
    played, weighted = shares > 0, np.where(shares > 0, shares, 1.0)
    start = np.ceil((wanted - 0.5 * played.sum(axis=1, keepdims=True)) * shares - ROUNDING)
    counts = np.where(played, np.maximum(start, 0.0), 0.0)
    rows, preferred = np.arange(len(given)), shares if ties == "heavier" else np.ones(shares.shape)
    while (short := counts.sum(axis=1) < wanted[:, 0]).any():
        place = np.where(played, counts / weighted, np.inf)
        first = place <= place.min(axis=1, keepdims=True) * (1 + ROUNDING)
        counts[rows, first_largest(np.where(first, preferred, -1.0))] += short
    while (over := counts.sum(axis=1) > wanted[:, 0]).any():
        place = np.where(counts > 0, (counts - 1) / weighted, -np.inf)
        last = place >= place.max(axis=1, keepdims=True) * (1 - ROUNDING)
        counts[rows, first_largest(np.where(last, -preferred, -2.0))] -= over
    return counts.astype(np.int64)
