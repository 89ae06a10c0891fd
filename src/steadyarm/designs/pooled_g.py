"""G-optimal weights on some arms from any start: coordinate ascent with Newton steps.

Called by `large_g` on its pool.

Maximises log det A(lam) - sum lam over lam >= 0, whose optimum has sum r and x'A^-1 x <= 1. One
weight at a time has a closed form, 1 - 1/g up with g = x'A^-1 x (or down to zero), and costs r^2:
this finds the support. Newton steps on the support, by conjugate gradients with products that
never form the m by m matrix, then finish. Unlike an interior point it gains from a good start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms.rows import Rows
from steadyarm.compiled import kernel, log
from steadyarm.designs.design import (
    Design,
    Status,
    check_tolerance,
    checked_start,
    on_all_arms,
    relative_gap,
)
from steadyarm.designs.passes import first_pool, leverages, next_pool, span_of, started_pool
from steadyarm.linalg import cholesky, gram, matmul, row_dots, solve_lower
from steadyarm.validation import whole_number

__all__ = ["Ascent", "LargeDesign", "ascend", "inverse_root", "solve_g"]

# G-optimal weights on some arms from any start: coordinate ascent with Newton steps.


NEAR = 0.05  # gap below which Newton steps begin to pay
MOST_PRODUCTS = 60  # of conjugate gradients in a Newton step
PATIENCE = 25  # sweeps without a better gap after which rounding has won

Floats = NDArray[np.float64]


class Ascent(NamedTuple):
    """Weights lam (m,), their relative gap on the arms given, and sweeps made."""

    lam: Floats
    gap: float
    sweeps: int


def ascend(X: Floats, lam: Floats, aim: float, most: int = 500) -> Ascent:
    """G-optimal weights on arms X (m, r), from weights lam (m,) that span, to a gap of `aim`."""
    r = X.shape[1]
    best, since, lam = Ascent(lam, np.inf, 0), 0, lam.copy()
    for sweep in range(most + 1):
        inverse = inverse_root(X, lam)
        if inverse is None:
            break
        g = _lengths(X, inverse)
        gap = float(g.max() * lam.sum() / r - 1)
        if gap < best.gap:
            since = sweep
            best = Ascent(lam.copy(), gap, sweep)
        if gap <= aim or sweep - since > PATIENCE:
            break
        if gap < NEAR:
            moved = _newton(X, lam, inverse, g)
            moved_inverse = inverse_root(X, moved)
            if moved_inverse is not None:
                lam, inverse, g = moved, moved_inverse, _lengths(X, moved_inverse)
        entering = np.flatnonzero((g > 1.0) & (lam == 0.0))
        entering = entering[np.argsort(-g[entering], kind="stable")[: 4 * r]]
        order = np.concatenate([entering, np.flatnonzero(lam)])
        sweep_weights(X, order, lam, gram(inverse.T))
    return best._replace(sweeps=sweep)


def inverse_root(X: Floats, lam: Floats) -> Floats | None:
    """R (r, r) with RR' the inverse of A(lam), or None where A(lam) is singular."""
    support = np.flatnonzero(lam)
    L = gram(X[support], lam[support])
    if not cholesky(L, 0.0):
        return None
    return solve_lower(L, np.eye(len(L)))


def _lengths(X: Floats, M: Floats) -> Floats:
    """Squared lengths of the rows of X @ M."""
    image = matmul(X, M)
    return np.asarray(row_dots(image, image))


@kernel
def sweep_weights(
    X: NDArray[np.float64],
    order: NDArray[np.int64],
    lam: NDArray[np.float64],
    P: NDArray[np.float64],
) -> None:
    """Set each weight of lam (m,) named by order to its best, the others fixed.

    X (m, r) are the arms and P (r, r) the inverse of A(lam), kept up to date.
    """
    r = X.shape[1]
    y = np.empty(r)
    for i in order:
        g = 0.0
        for k in range(r):
            t = 0.0
            for n in range(r):
                t += P[k, n] * X[i, n]
            y[k] = t
            g += t * X[i, k]
        step = max(1.0 - 1.0 / g, -lam[i]) if g > 0.0 else -lam[i]
        if step == 0.0:
            continue
        lam[i] += step
        share = step / (1.0 + step * g)
        for k in range(r):
            t = share * y[k]
            for n in range(r):
                P[k, n] -= t * y[n]


def _newton(X: Floats, lam: Floats, R: Floats, g: Floats) -> Floats:
    """Weights after a Newton step on the support, shortened until the objective grows."""
    support = np.flatnonzero(lam)
    V = matmul(X[support], R)
    slope = g[support] - 1.0
    # where many designs are optimal the system is singular: small weights move little
    damping = max(float(g.max()) - 1.0, 0.0) / lam[support]
    direction = _solve(V, slope, damping, np.square(g[support]))
    step = 1.0
    while step > 0.05:
        moved = np.maximum(lam[support] + step * direction, 0.0)
        change = moved - lam[support]
        L = np.eye(V.shape[1]) + gram(V, change)
        if cholesky(L, 0.0) and 2 * sum(map(log, np.diag(L).tolist())) > change.sum():
            answer = np.zeros_like(lam)
            answer[support] = moved
            return answer
        step *= 0.5
    return lam


def _solve(V: Floats, slope: Floats, damping: Floats, diagonal: Floats) -> Floats:
    """Conjugate gradients for (N + damping) x = slope, N = (VV')∘(VV') with this diagonal."""
    x, residual = np.zeros_like(slope), slope.copy()
    diagonal = diagonal + damping
    scaled = residual / diagonal
    along = scaled.copy()
    size = first = matmul(residual, scaled)
    for _ in range(MOST_PRODUCTS):
        if size <= 1e-2 * first:
            break
        image = row_dots(matmul(V, gram(V, along)), V) + damping * along
        curvature = matmul(along, image)
        if not curvature > 0.0:
            break
        x += size / curvature * along
        residual -= size / curvature * image
        scaled = residual / diagonal
        size, previous = matmul(residual, scaled), size
        along = scaled + size / previous * along
    return x


# G-optimal designs of up to millions of arms, proven by a pass over all of them.


FIRST_AIM = 1e-2  # gap on the first pool; closer would not be worth it before the next pass
LARGE_G_PATIENCE = 4  # passes over all arms without a better value after which rounding has won
ROUNDING = 1e-9  # of a score; an arm is only left out if it is below its bound by more

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LargeDesign:
    """A design on few of many arms, with its proof.

    Attributes
    ----------
    size : number of arms, K
    indices : (s,) sorted indices of the arms with positive weight
    weights : (s,) their weights, which sum to one
    value : the largest variance x'A^-1 x over all arms, from a pass over every one of them
    lower_bound : the rank of the arms, below which no design comes
    status : why the solver stopped
    passes : work on the arms, in passes over all of them; a pass over a part counts in part
    sweeps : sweeps over the pool
    candidates : number of arms not proven to carry nothing in every optimal design
    """

    size: int
    indices: Indices
    weights: Floats
    value: float
    lower_bound: float
    status: Status
    passes: float
    sweeps: int
    candidates: int

    @property
    def gap(self) -> float:
        """Relative gap ``value / lower_bound - 1``."""
        return relative_gap(self.value, self.lower_bound)

    def design(self) -> Design:
        """The same as a `Design`, with a weight for every arm."""
        weights = on_all_arms(self.size, self.indices, self.weights)
        return Design(weights, self.value, self.lower_bound, self.status, self.sweeps)


def solve_g(
    rows: Rows,
    tol: float = 1e-4,
    *,
    start: tuple[ArrayLike, ArrayLike] | None = None,
    most_passes: int = 60,
) -> LargeDesign:
    """G-optimal design of the rows, in their span.

    Where equal weights on all arms are optimal, as for full factorial and bundle sets, they are
    the answer.

    Parameters
    ----------
    rows : the arms
    tol : relative gap between value and rank to reach
    start : indices of arms and their weights, from which to begin: the design of a similar problem
    most_passes : work after which to stop with the best design so far; some three passes are
        always made

    Examples
    --------
    >>> from steadyarm.arms.rows import DenseRows
    >>> arms = np.random.default_rng(0).normal(size=(10_000, 5))
    >>> answer = solve_g(DenseRows(arms))
    >>> answer.gap <= 1e-4, answer.indices.size < 30
    (True, True)
    """
    check_tolerance(tol)
    whole_number(most_passes, "most_passes", least=1)
    K = rows.shape[0]
    given = None if start is None else checked_start(start, K)
    to, passes = span_of(rows)
    r, work, sweeps, stuck = to.shape[1], float(passes), 0, 0
    alive = np.arange(K)
    best = LargeDesign(K, alive, np.full(K, 1 / K), np.inf, float(r), Status.STALLED, work, 0, K)
    if given is None:
        scores = leverages(rows, to)
        best = replace(best, value=float(scores.max()))
        alive = alive[may_carry(scores, r)]
        work += 1
        if best.gap <= tol:
            return replace(best, status=Status.OPTIMAL, passes=work, candidates=alive.size)
        pool, passes = first_pool(rows, to, scores)
    else:
        pool, passes = started_pool(rows, to, *given)
    work, aim, lowest = work + passes, FIRST_AIM, np.inf
    while True:
        ascent = ascend(pool.X, pool.lam, max(aim, 0.4 * tol))
        sweeps += ascent.sweeps
        lam = ascent.lam / ascent.lam.sum()
        root = inverse_root(pool.X, lam)
        if root is None:
            break
        last = work + 2 > most_passes or stuck == LARGE_G_PATIENCE - 1
        scored = alive if alive.size < K // 2 and not last else None
        scores = leverages(rows, matmul(to, root), scored)
        work += scores.size / K
        if scored is not None and scores.max() <= r * (1 + tol):
            alive, scored = alive[may_carry(scores, r)], None
            scores = leverages(rows, matmul(to, root))
            work += 1
        value = float(scores.max())
        gap = value / r - 1
        kept = may_carry(scores, r)
        alive = alive[kept if scored is not None else kept[alive]]
        stuck, lowest = (0, value) if value < lowest else (stuck + 1, lowest)
        if scored is None and value < best.value:
            carrying = np.flatnonzero(lam)
            best = replace(best, indices=pool.indices[carrying], weights=lam[carrying], value=value)
        if best.gap <= tol or work + 1 > most_passes or stuck == LARGE_G_PATIENCE:
            break
        pool = pool._replace(lam=ascent.lam)
        pool = next_pool(rows, to, pool, np.arange(K) if scored is None else scored, scores, gap)
        aim = 0.1 * min(gap, aim)
    status = Status.STEP_LIMIT if work + 1 > most_passes else Status.STALLED
    status = Status.OPTIMAL if best.gap <= tol else status
    return replace(best, status=status, passes=work, sweeps=sweeps, candidates=alive.size)


def may_carry(scores: Floats, r: int) -> NDArray[np.bool_]:
    """Arms that an optimal design may use, by their scores x'A^-1 x under any design.

    Theorem of Harman and Pronzato (2007), with the excess of the largest score over r. The scores
    may leave out arms that carry nothing.
    """
    excess = max(float(scores.max()) - r, 0.0)
    bound = r * (1 + excess / 2 - np.sqrt(excess * (4 + excess - 4 / r)) / 2)
    return np.asarray(scores >= bound * (1 - ROUNDING) - ROUNDING)
