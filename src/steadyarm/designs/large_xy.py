"""XY-optimal designs of up to millions of arms, proven over all arms and all pairs compared.

Called by `nested` for policies and by `xy_optimal` for users. It sends symmetric problems and
coarse gaps to `factorial_xy` and `pool_xy`; what follows is for all others.

A short list of arms and a short list of pairs are solved together from where they stood; a sweep
over all arms then finds arms that would improve the design and pairs that it neglects, and these
come in. The multipliers of the pairs prove a lower bound over all arms (see `saddle_kernel`), the
farthest pair in the norm of A^-1 is the value. Where finding it for certain is too dear, the value
is a proven upper bound of it and the design says so.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms.rows import BundleRows, DenseRows, FactorialRows, Rows
from steadyarm.arms.walsh import walsh_of
from steadyarm.designs.checks import check_tolerance
from steadyarm.designs.design import Status, relative_gap
from steadyarm.designs.factorial_xy import full_factorial, some_of_factorial
from steadyarm.designs.farthest import FarthestPair, farthest_pair, mean_row, partners
from steadyarm.designs.fractions import fraction
from steadyarm.designs.pair_lists import NEW_PAIRS, Lists, first_lists, grown, light
from steadyarm.designs.pair_sweep import sweep_all
from steadyarm.designs.passes import span_of
from steadyarm.designs.pool_xy import some_of_rows
from steadyarm.designs.remembered import Remembered, remember
from steadyarm.designs.row_checks import checked_among, checked_start
from steadyarm.designs.saddle_steps import improve
from steadyarm.designs.subset_rows import subset_of
from steadyarm.designs.xy_answer import LargeXYDesign, nothing_to_compare
from steadyarm.linalg import gram, inverse_root, matmul, row_dots
from steadyarm.validation import whole_number

__all__ = ["LargeXYDesign", "solve_xy"]

STEPS = 4  # Newton steps between two sweeps
FIRST_STEPS = 6
MOST_ARMS = 3000  # on the list; with more, a Newton step takes longer than many passes
AIM = 0.1  # gap on the lists at which to sweep again, as a share of the gap over all
ROUND_EFFORT = 3.0  # passes that a round may spend on pairs before there is reason for a proof
LEVEL = 0.985  # of the goal, down to which a search for the proof lists pairs
MOST_REMEMBERED = 200_000  # pairs after which such a search gives up
COARSE = 0.03  # gap down to which the steps of `pair_game` go

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def solve_xy(
    rows: Rows,
    tol: float = 1e-3,
    *,
    among: ArrayLike | None = None,
    start: tuple[ArrayLike, ArrayLike] | None = None,
    effort: float | None = None,
    most_rounds: int = 60,
) -> LargeXYDesign:
    """XY-optimal design of the rows, in their span.

    Full factorial and bundle sets look the same from each of their arms, so that equal weights
    are optimal to compare all of them (the value is convex and does not change when arms are
    relabelled) and the arm farthest from the first one gives the worst pair. For factorial sets a
    fraction of the arms does the same, see `fraction`. To compare some arms there are quick steps
    to a coarse gap, see `factorial_xy` for two-level factors and `pool_xy` for all other sets:
    ask for 0.1 or 0.2.

    Parameters
    ----------
    rows : the arms; the weights may lie on all of them
    tol : relative gap between value and lower bound to reach
    among : indices of the arms to compare, all by default
    start : indices of arms and their weights, from which to begin: the design of a similar
        problem, such as to compare more arms
    effort : passes that the search for the worst pair may take at the end, see
        `farthest_pair`; if it needs more, the value is an upper bound and `exact` is False. By
        default a few after quick steps to a coarse gap, else as many as it takes
    most_rounds : sweeps after which to stop with the design so far; the solver also stops when
        thousands of arms share the weight, as on a sphere in many dimensions

    Examples
    --------
    >>> from steadyarm.arms.rows import DenseRows, FactorialRows
    >>> arms = np.random.default_rng(0).normal(size=(10_000, 5))
    >>> answer = solve_xy(DenseRows(arms))
    >>> answer.gap <= 1e-3, answer.exact, answer.indices.size < 100
    (True, True, True)
    >>> begin = answer.indices, answer.weights
    >>> some = solve_xy(DenseRows(arms), among=np.arange(100), start=begin)
    >>> some.gap <= 1e-3, some.value < answer.value
    (True, True)
    >>> answer = solve_xy(FactorialRows([2] * 16))
    >>> answer.value, answer.indices.size
    (288.0, 256)
    """
    check_tolerance(tol)
    whole_number(most_rounds, "most_rounds", least=1)
    K = rows.shape[0]
    chosen = checked_among(among, K)
    given = None if start is None else checked_start(start, K)
    walsh = walsh_of(rows)
    if chosen is None and isinstance(rows, FactorialRows | BundleRows):
        return _by_symmetry(rows) if walsh is None else full_factorial(walsh)
    if chosen is None or (walsh is None and tol < COARSE):
        return _by_lists(rows, tol, chosen, given, effort, most_rounds)
    if walsh is None:
        coarse = some_of_rows(rows, chosen, tol, given, effort, most_rounds)
    else:
        coarse = some_of_factorial(walsh, chosen, max(tol, COARSE), given, effort, most_rounds)
    if coarse.gap <= tol or (tol >= COARSE and (walsh is not None or coarse.pair_gap <= tol)):
        return coarse
    given = coarse.indices, coarse.weights
    fine = _by_lists(rows, tol, chosen, given, effort, most_rounds)
    return fine if fine.gap < coarse.gap else replace(coarse, status=fine.status)


def _by_lists(
    rows: Rows,
    tol: float,
    among: Indices | None,
    start: tuple[Indices, Floats] | None,
    effort: float | None,
    most_rounds: int,
) -> LargeXYDesign:
    """The design of any rows."""
    K = rows.shape[0]
    to, passes = span_of(rows)
    compared = subset_of(rows, among)
    centre = mean_row(compared)
    lists, work = first_lists(rows, compared, to, centre, start)
    work += passes
    if lists is None:
        return nothing_to_compare(K, 0 if among is None else int(among[0]), work)
    share = compared.shape[0] / K
    r, lower, gap, aim = to.shape[1], 0.0, 1.0, 0.1
    memory: Remembered | None = None
    for round_ in range(1, most_rounds + 1):
        steps = FIRST_STEPS if round_ == 1 else STEPS
        solved = improve(lists.X, lists.Z, lists.point, max(aim, 0.1 * tol), steps)
        last = round_ == most_rounds or solved.stuck or lists.arms.size > MOST_ARMS
        weights = light(lists, solved.weights, solved.value, tol)
        root = inverse_root(gram(lists.X, weights))
        norm = matmul(to, root)
        sweep = sweep_all(rows, compared, norm, matmul(to, solved.proof), centre)
        lower = max(lower, solved.strength / float(sweep.g.max()))
        goal = lower * (1 + tol)
        search = partial(
            farthest_pair,
            compared,
            norm,
            centre=centre,
            radius=sweep.radius,
            known=_farthest_listed(lists, root),
        )
        above = max(goal, solved.value * (1 + 0.05 * gap))
        far = search(above=above, effort=ROUND_EFFORT / share, enough=2 * NEW_PAIRS * r)
        work += 1 + share * (1 + far.passes)
        if (far.value <= goal and not far.exact) or last:
            proven = None if memory is None else memory.carried(root, far, goal)
            if proven is None or (last and not proven.exact):
                allowed = None if effort is None else effort / share
                level = LEVEL * goal
                proven = search(above=level, effort=allowed, enough=MOST_REMEMBERED, every=True)
                work += share * proven.passes
                if len(proven.others) >= MOST_REMEMBERED and not proven.exact:
                    few = 0 if last else 2 * NEW_PAIRS * r
                    proven = search(above=above, effort=allowed, enough=few)
                    work += share * proven.passes
                else:
                    memory = remember(compared, to, root, proven, level) or memory
            far = proven
        if far.value <= goal or last:
            status = Status.STALLED if solved.stuck else Status.STEP_LIMIT
            status = Status.OPTIMAL if far.upper_bound <= goal else status
            return _design(K, among, lists.arms, weights, far, lower, status, work, round_)
        gap = max(min(gap, relative_gap(far.value, lower)), 0.0)
        lists, more = grown(rows, compared, to, lists, solved, sweep.g, far.others, gap)
        aim = AIM * gap if more else 0.3 * min(aim, gap)
    raise AssertionError("the last round returns")


def _by_symmetry(rows: FactorialRows | BundleRows) -> LargeXYDesign:
    K = rows.shape[0]
    arms = fraction(rows) if isinstance(rows, FactorialRows) else np.arange(K)
    to, passes = span_of(DenseRows(rows.take(arms)) if arms.size < K else rows)
    where, apart = partners(rows, to, np.zeros(1, dtype=np.int64))
    value, pair = float(apart[0]), (0, int(where[0]))
    work = passes * arms.size / K + 1.0
    equal = np.full(arms.size, 1 / arms.size)
    return LargeXYDesign(K, arms, equal, value, True, pair, value, value, Status.OPTIMAL, work, 0)


def _design(
    K: int,
    among: Indices | None,
    arms: Indices,
    weights: Floats,
    far: FarthestPair,
    lower: float,
    status: Status,
    work: float,
    rounds: int,
) -> LargeXYDesign:
    kept = np.flatnonzero(weights)
    kept = kept[np.argsort(arms[kept], kind="stable")]
    pair = np.array([far.first, far.second])
    first, second = (pair if among is None else among[pair]).tolist()
    return LargeXYDesign(
        size=K,
        indices=arms[kept],
        weights=weights[kept],
        value=far.upper_bound,
        exact=far.exact,
        pair=(first, second),
        pair_value=far.value,
        lower_bound=lower,
        status=status,
        passes=work,
        rounds=rounds,
    )


def _farthest_listed(lists: Lists, root: Floats) -> tuple[int, int]:
    U = matmul(lists.Z, root)
    first, second = lists.pairs[int(row_dots(U, U).argmax())].tolist()
    return first, second
