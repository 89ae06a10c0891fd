"""G-optimal designs of up to millions of arms, proven by a pass over all of them.

Called by `nested` for policies, by `g_optimal` for users, and by `pool_xy` for a first design.

Few arms carry an optimal design. A pool of promising arms is solved closely from where it stood;
a pass over the arms then gives the value, the next pool, and a list of arms that provably cannot
carry an optimal design (Harman and Pronzato 2007), which later passes leave out. The value given
is always of a pass over every arm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms.rows import Rows
from steadyarm.designs.checks import check_tolerance
from steadyarm.designs.design import Design, Status, on_all_arms, relative_gap
from steadyarm.designs.passes import leverages, span_of
from steadyarm.designs.pools import first_pool, next_pool, started_pool
from steadyarm.designs.row_checks import checked_start
from steadyarm.designs.volume_ascent import ascend, inverse_root
from steadyarm.linalg import matmul
from steadyarm.validation import whole_number

__all__ = ["LargeDesign", "solve_g"]

FIRST_AIM = 1e-2  # gap on the first pool; closer would not be worth it before the next pass
PATIENCE = 4  # passes over all arms without a better value after which rounding has won
ROUNDING = 1e-9  # of a score; an arm is only left out if it is below its bound by more

Floats = NDArray[np.float64]
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
        last = work + 2 > most_passes or stuck == PATIENCE - 1
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
        if best.gap <= tol or work + 1 > most_passes or stuck == PATIENCE:
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
