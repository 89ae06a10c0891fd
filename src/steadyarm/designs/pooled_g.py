"""G-optimal designs of large arm sets, solved on a pool of arms and proven by passes over all.

Coordinate ascent with Newton steps moves the weights of a few thousand arms, the pool; a pass over
all arms then gives the value and names the arms that should join the pool. Nothing of size K by r
is stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.arms.generated import walsh_of
from steadyarm.arms.rows import Rows, row_blocks
from steadyarm.designs.design import Design, Status
from steadyarm.errors import InvalidInputError
from steadyarm.kernels import gram, inverse_root, row_dots

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Answer = TypeVar("Answer")

FIRST = 8  # times the number of columns: random arms from which a G-optimal design begins
FIRST_AIM = 1e-2  # gap on the first pool; a smaller one would not pay before the next pass
PATIENCE = 4  # passes without a better value after which rounding has stopped the solver
FLAT = 1e-3  # pivots below this do not span well: along every direction some arm reaches 1
MOST_ARMS = 5_000  # in a pool, or 40 times the rank if that is more


class Pool(NamedTuple):
    """Sorted arms by index (m,), their coordinates X (m, r) in the span, and weights lam (m,)."""

    indices: Indices
    X: Floats
    lam: Floats


def pooled_g(rows: Rows, tol: float = 1e-4, most_rounds: int = 60) -> Design:
    """G-optimal design of all rows, in their span.

    The value is the largest variance x'A⁻¹x over all arms, from a pass over every one of them.

    Parameters
    ----------
    rows : the arms; their columns may be dependent
    tol : relative gap between the value and the rank to reach
    most_rounds : passes after which to stop with the best design so far

    Examples
    --------
    >>> from steadyarm.arms.rows import DenseRows
    >>> arms = np.random.default_rng(0).normal(size=(10_000, 5))
    >>> design = pooled_g(DenseRows(arms))
    >>> design.gap <= 1e-4, design.support.size < 30
    (True, True)
    """
    K, columns = rows.shape
    to = span_of(rows)
    r = to.shape[1]
    first = np.random.default_rng(0).choice(K, min(FIRST * columns, K), replace=False)
    pool = _first_pool(rows, to, np.sort(first))
    best = Design(K, pool.indices, pool.lam / r, np.inf, float(r), Status.STALLED, 0)
    aim, sweeps, stuck, status = FIRST_AIM, 0, 0, Status.STEP_LIMIT
    for _ in range(most_rounds):
        ascent = ascend(pool.X, pool.lam, max(aim, 0.4 * tol))
        sweeps += ascent.sweeps
        pool = pool._replace(lam=ascent.lam)
        lam = ascent.lam / ascent.lam.sum()
        root = _inverse_root_of(pool.X, lam)
        if root is None:
            status = Status.STALLED
            break
        scores = leverages(rows, to @ root)
        value = float(scores.max())
        gap = value / r - 1
        stuck = 0 if value < best.value else stuck + 1
        if value < best.value:
            used = np.flatnonzero(lam)
            best = Design(K, pool.indices[used], lam[used], value, float(r), status, sweeps)
        if best.gap <= tol or stuck == PATIENCE:
            status = Status.OPTIMAL if best.gap <= tol else Status.STALLED
            break
        pool = _next_pool(rows, to, pool, scores, gap)
        aim = 0.1 * min(gap, aim)
    return Design(K, best.support, best.shares, best.value, float(r), status, sweeps)


def _first_pool(rows: Rows, to: Floats, start: Indices) -> Pool:
    """Equal weights on some arms, completed if they do not span."""
    r, arms = to.shape[1], start
    while True:
        Q, R, order = scipy.linalg.qr((rows.take(arms) @ to).T, pivoting=True)
        rank = int((np.abs(np.diagonal(R)) > FLAT).sum())
        if rank == r:
            break
        arms = np.union1d(arms, farthest_along(rows, to @ Q[:, rank:]))
    pool = _pool(rows, to, arms)
    equal = np.full(start.size, 1 / start.size)
    pool.lam[np.searchsorted(arms, start)] = equal * (r / equal.sum())
    if np.linalg.eigh(gram(pool.X, pool.lam))[0][0] < FLAT**2:
        pool.lam[np.sort(order[:r])] += 0.05
    return pool


def _next_pool(rows: Rows, to: Floats, pool: Pool, scores: Floats, gap: float) -> Pool:
    """The support of the pool, and the arms whose scores are near the bound or above it."""
    r = to.shape[1]
    near = np.flatnonzero(scores > r * (1.0 - 10.0 * gap))
    near = near[top(scores[near], max(MOST_ARMS, 40 * r))]
    used = np.flatnonzero(pool.lam)
    support = pool.indices[used]
    fresh = _pool(rows, to, np.union1d(support, near))
    fresh.lam[np.searchsorted(fresh.indices, support)] = pool.lam[used]
    return fresh


def _pool(rows: Rows, to: Floats, indices: Indices) -> Pool:
    return Pool(indices, rows.take(indices) @ to, np.zeros(indices.size))


# Coordinate ascent with Newton steps: G-optimal weights on the arms of a pool


NEAR = 0.05  # gap below which Newton steps begin to pay
MOST_PRODUCTS = 60  # of conjugate gradients in a Newton step
SWEEPS_WITHOUT_GAIN = 25  # after which rounding has stopped the ascent


class Ascent(NamedTuple):
    """Weights lam (m,), their relative gap on the arms given, and the sweeps made."""

    lam: Floats
    gap: float
    sweeps: int


def ascend(X: Floats, lam: Floats, aim: float, most: int = 500) -> Ascent:
    """G-optimal weights on arms X (m, r), from weights lam (m,) that span, to a gap of `aim`.

    Maximises log det A(lam) - sum lam over lam >= 0, whose optimum has sum r and x'A⁻¹x <= 1. One
    weight at a time has a closed form, 1 - 1/g up with g = x'A⁻¹x (or down to zero), and costs r²:
    this finds the support. Newton steps on the support, by conjugate gradients with products that
    never form the m by m matrix, then finish. Unlike an interior point it gains from a good start.
    """
    r = X.shape[1]
    best, since, lam = Ascent(lam, np.inf, 0), 0, lam.copy()
    for sweep in range(most + 1):
        inverse = _inverse_root_of(X, lam)
        if inverse is None:
            break
        g = _lengths(X, inverse)
        gap = float(g.max() * lam.sum() / r - 1)
        if gap < best.gap:
            since = sweep
            best = Ascent(lam.copy(), gap, sweep)
        if gap <= aim or sweep - since > SWEEPS_WITHOUT_GAIN:
            break
        if gap < NEAR:
            moved = _newton(X, lam, inverse, g)
            moved_inverse = _inverse_root_of(X, moved)
            if moved_inverse is not None:
                lam, inverse, g = moved, moved_inverse, _lengths(X, moved_inverse)
        entering = np.flatnonzero((g > 1.0) & (lam == 0.0))
        entering = entering[np.argsort(-g[entering], kind="stable")[: 4 * r]]
        order = np.concatenate([entering, np.flatnonzero(lam)])
        _sweep(X, order, lam, gram(inverse.T))
    return best._replace(sweeps=sweep)


def _inverse_root_of(X: Floats, lam: Floats) -> Floats | None:
    """R (r, r) with RR' the inverse of A(lam), or None where A(lam) is singular."""
    support = np.flatnonzero(lam)
    try:
        return inverse_root(gram(X[support], lam[support]))
    except np.linalg.LinAlgError:
        return None


def _lengths(X: Floats, M: Floats) -> Floats:
    """Squared lengths of the rows of X @ M."""
    image = X @ M
    return np.asarray(row_dots(image, image))


def _sweep(X: Floats, order: Indices, lam: Floats, P: Floats) -> None:
    """Set each weight of lam (m,) named by order to its best value while the others are fixed.

    X (m, r) are the arms and P (r, r) is the inverse of A(lam), kept up to date.
    """
    for i in order.tolist():
        y = P @ X[i]
        g = float(y @ X[i])
        step = max(1.0 - 1.0 / g, -lam[i]) if g > 0.0 else -lam[i]
        if step != 0.0:
            lam[i] += step
            P -= np.outer(step / (1.0 + step * g) * y, y)


def _newton(X: Floats, lam: Floats, R: Floats, g: Floats) -> Floats:
    """Weights after a Newton step on the support, shortened until the objective grows."""
    support = np.flatnonzero(lam)
    V = X[support] @ R
    # where many designs are optimal the system is singular: small weights move little
    damping = max(float(g.max()) - 1.0, 0.0) / lam[support]
    direction = _newton_direction(V, g[support], damping)
    step = 1.0
    while step > 0.05:
        moved = np.maximum(lam[support] + step * direction, 0.0)
        change = moved - lam[support]
        sign, volume = np.linalg.slogdet(np.eye(V.shape[1]) + gram(V, change))
        if sign > 0 and volume > change.sum():
            answer = np.zeros_like(lam)
            answer[support] = moved
            return answer
        step *= 0.5
    return lam


def _newton_direction(V: Floats, g: Floats, damping: Floats) -> Floats:
    """Conjugate gradients for (N + damping) d = g - 1, where N = (VV')∘(VV') has diagonal g²."""
    direction, residual = np.zeros_like(g), g - 1.0
    diagonal = np.square(g) + damping
    scaled = residual / diagonal
    along = scaled.copy()
    size = first = residual @ scaled
    for _ in range(MOST_PRODUCTS):
        if size <= 1e-2 * first:
            break
        image = row_dots(V @ gram(V, along), V) + damping * along
        curvature = along @ image
        if not curvature > 0.0:
            break
        direction += size / curvature * along
        residual -= size / curvature * image
        scaled = residual / diagonal
        size, previous = residual @ scaled, size
        along = scaled + size / previous * along
    return direction


# Passes over the rows of a large set, in blocks that stay in the cache, in a few threads


LANES = 4  # threads at most in a pass
CLEAR = 1e-9  # a Gram matrix whose eigenvalues spread less than this needs no second pass
SHIFT = 1e-15  # eigenvalues below this share of the largest are rounding in a Gram matrix
DEPENDENT = 1e-13  # what remains of a dependent direction in a second pass


def leverages(rows: Rows, to: Floats) -> Floats:
    """(K,) squared lengths of x @ to for all rows x: one pass."""
    walsh = walsh_of(rows)
    if walsh is not None:
        return np.maximum(walsh.forms(to @ to.T), 0.0)
    answer = np.empty(rows.shape[0])

    def score(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            image = rows.block(start, stop) @ to
            answer[start:stop] = row_dots(image, image)

    _in_lanes(score, *rows.shape)
    return answer


def radii(rows: Rows, to: Floats, middle: Floats) -> Floats:
    """Distances of the points x @ to from the middle: one pass."""
    answer = np.empty(rows.shape[0])

    def measure(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            Y = rows.block(start, stop) @ to
            Y -= middle
            answer[start:stop] = np.sqrt(row_dots(Y, Y))

    _in_lanes(measure, *rows.shape)
    return answer


def span_of(rows: Rows) -> Floats:
    """(columns, r) map to coordinates x @ map of the span, where equal weights have A = I.

    The eigenvectors of the Gram matrix show directions down to about 1e-7 of the largest. Where
    some are small, a second pass in coordinates that enlarge them tells small from dependent.
    """
    K, columns = rows.shape
    if walsh_of(rows) is not None:
        return np.eye(columns)
    table = _gram(rows, None)
    size = np.sqrt(np.diag(table))
    if not np.isfinite(size).all():
        raise InvalidInputError(
            f"column {int(np.flatnonzero(~np.isfinite(size))[0])} of the rows holds a number that "
            "is not finite, or too large to be squared."
        )
    if not size.any():
        raise InvalidInputError("all rows are zero; nothing tells the arms apart.")
    size[size == 0] = 1.0
    values, vectors = np.linalg.eigh(table / size / size[:, None])
    to = vectors / np.sqrt(np.maximum(values, SHIFT * values[-1])) / size[:, None]
    if values[0] > CLEAR * values[-1]:
        return np.asarray(np.ascontiguousarray(to) * np.sqrt(K))
    values, vectors = np.linalg.eigh(_gram(rows, to))
    kept = values > DEPENDENT * values[-1]
    to = to @ (vectors[:, kept] / np.sqrt(values[kept]))
    return np.asarray(np.ascontiguousarray(to) * np.sqrt(K))


def farthest_along(rows: Rows, to: Floats) -> Indices:
    """For each column of `to`, the row with the largest product with it: one pass."""
    best = np.full(to.shape[1], -1.0)
    where = np.zeros(to.shape[1], dtype=np.int64)
    columns = np.arange(to.shape[1])
    for start, stop in row_blocks(*rows.shape):
        size = np.abs(rows.block(start, stop) @ to)
        first = size.argmax(axis=0)
        found = size[first, columns]
        better = found > best
        best[better], where[better] = found[better], start + first[better]
    return np.unique(where)


def top(scores: Floats, count: int) -> Indices:
    """Indices of the largest scores, largest first and equal ones in their order."""
    chosen = np.arange(scores.size)
    if scores.size > count:
        least = np.partition(scores, scores.size - count)[scores.size - count]
        chosen = np.flatnonzero(scores >= least)
    return chosen[np.argsort(-scores[chosen], kind="stable")[:count]].astype(np.int64)


def _gram(rows: Rows, to: Floats | None) -> Floats:
    """Sum of x x' over all rows, mapped by `to` if given."""
    columns = rows.shape[1] if to is None else to.shape[1]

    def add(lane: list[tuple[int, int]]) -> Floats:
        total = np.zeros((columns, columns))
        for start, stop in lane:
            X = rows.block(start, stop)
            total += gram(X if to is None else X @ to)
        return total

    return sum(_in_lanes(add, *rows.shape), np.zeros((columns, columns)))


def _in_lanes(
    work: Callable[[list[tuple[int, int]]], Answer], count: int, columns: int
) -> list[Answer]:
    """Work on blocks of rows in threads; always as many lanes, so that sums come out the same."""
    every = row_blocks(count, columns)
    lanes = [every[lane::LANES] for lane in range(LANES)]
    workers = min(LANES, os.cpu_count() or 1)
    if workers == 1 or len(every) < 2 * LANES:
        return [work(lane) for lane in lanes]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, lanes))


def mean_row(rows: Rows) -> Floats:
    """Mean of the rows: one reading."""
    total = np.zeros(rows.shape[1])
    for start, stop in row_blocks(*rows.shape):
        total += rows.block(start, stop).sum(axis=0)
    return total / rows.shape[0]
