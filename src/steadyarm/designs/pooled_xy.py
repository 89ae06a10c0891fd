"""The Newton steps of `saddle_kernel` for hundreds of arms and pairs, from a warm start.

Called by `large_xy` on its lists; `pair_lists` makes the points to go on from.

The same primal-dual method on the same scaled problem, with every pair given as a direction. It
can go on from an earlier point after arms and pairs came in: weights and multipliers are scaled
until all constraints hold with a margin, and newcomers start as if on the path to the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms.rows import BundleRows, DenseRows, FactorialRows, Rows, walsh_of
from steadyarm.designs.design import (
    Status,
    check_tolerance,
    checked_among,
    checked_start,
    relative_gap,
)
from steadyarm.designs.farthest import (
    FarthestPair,
    Remembered,
    farthest_pair,
    mean_row,
    partners,
    remember,
)
from steadyarm.designs.fractions import fraction
from steadyarm.designs.multiplicative_weights import (
    LargeXYDesign,
    full_factorial,
    nothing_to_compare,
    some_of_factorial,
    some_of_rows,
)
from steadyarm.designs.passes import farthest_along, in_lanes, leverages, radii, span_of, subset_of
from steadyarm.linalg import (
    cholesky,
    cholesky_solve,
    eigh,
    factor,
    gram,
    inverse_root,
    matmul,
    matrix_rank,
    row_dots,
    solve_lower,
)
from steadyarm.validation import whole_number

__all__ = [
    "NEW_PAIRS",
    "Improved",
    "LargeXYDesign",
    "Lists",
    "Point",
    "first_lists",
    "grown",
    "improve",
    "light",
    "solve_xy",
    "sweep_all",
    "warm_point",
]

# The Newton steps of `saddle_kernel` for hundreds of arms and pairs, from a warm start.


REACH = 0.95  # share of the way to the boundary that a step may go
RIDGES = (0.0, 1e-12, 1e-9, 1e-6)  # tried in turn if rounding makes the Newton matrix indefinite

Floats = NDArray[np.float64]


class Point(NamedTuple):
    """Weights `lam` and slacks `z` of the arms, multipliers `nu` and slacks `s` of the pairs."""

    lam: Floats
    z: Floats
    nu: Floats
    s: Floats

    @property
    def centre(self) -> float:
        """The mean product of a weight or multiplier with its slack."""
        return float(matmul(self.lam, self.z) + matmul(self.nu, self.s)) / (
            self.lam.size + self.nu.size
        )


class Improved(NamedTuple):
    """Where the steps led.

    Attributes
    ----------
    point : from which to go on
    weights : (n,) the best weights met, which sum to one
    value : the largest variance of the directions with them
    lower_bound : no design on these arms does better on these directions
    proof, strength : over any arms x no design has a value below ``strength / max |x @ proof|²``
    steps : Newton steps made
    stuck : whether rounding stopped the steps
    """

    point: Point
    weights: Floats
    value: float
    lower_bound: float
    proof: Floats
    strength: float
    steps: int
    stuck: bool


class _Look(NamedTuple):
    L: Floats  # factor of A
    V: Floats  # arms where A is the identity
    U: Floats  # directions there
    q: Floats  # variances of the directions
    C: Floats  # squared products of directions and arms


def warm_point(
    X: Floats, Z: Floats, lam: Floats, nu: Floats, centre: float, margin: float
) -> Point:
    """Weights and multipliers scaled until every constraint holds with a margin.

    A multiplier that is NaN is that of a new direction.
    """
    look = _look(X, Z, lam)
    scale = float(look.q.max()) * (1 + margin)
    q = look.q / scale
    s = 1 / q - 1
    nu = np.where(np.isnan(nu), centre / s, nu)
    g = matmul(nu / q**2, look.C) / scale**2
    shrink = 1 / (float(g.max()) * (1 + margin))
    return Point(lam * scale, 1 - g * shrink, nu * shrink, s)


def improve(X: Floats, Z: Floats, point: Point, tol: float, steps: int) -> Improved:
    """Steps until the gap on arms X (n, r) and directions Z (J, r) is within tol, or all made."""
    r = X.shape[1]
    value, lower, made, stuck = np.inf, 0.0, 0, False
    weights, proof, strength = point.lam / point.lam.sum(), np.zeros((r, r)), 0.0
    lam, z, nu, s = point
    while True:
        try:
            look = _look(X, Z, lam)
        except np.linalg.LinAlgError:  # the steps left no weight on some direction
            lam, stuck = point.lam, True
            break
        mu = nu / look.q**2
        g = matmul(mu, look.C)
        W = gram(look.U, mu)
        total, mass, trace = float(lam.sum()), float(mu.sum()), matmul(mu, look.q)
        if trace * trace > lower * mass * g.max():
            strength = trace * trace / mass
            lower = strength / float(g.max())
            proof = _proof(look.L, W)
        if total * look.q.max() < value:
            value, weights = total * float(look.q.max()), lam / total
        if value <= lower * (1 + tol) or made == steps:
            break
        newton = _factor(_newton_matrix(look, W, mu, Point(lam, z, nu, s)))
        if newton is None:
            stuck = True
            break
        moved = _step(look, g, Point(lam, z, nu, s), newton)
        if not all(np.isfinite(part).all() for part in moved):
            stuck = True
            break
        lam, z, nu, s = moved
        made += 1
    return Improved(Point(lam, z, nu, s), weights, value, lower, proof, strength, made, stuck)


def _look(X: Floats, Z: Floats, lam: Floats) -> _Look:
    L = factor(gram(X, lam))
    V, U = solve_lower(L, X), solve_lower(L, Z)
    return _Look(L, V, U, row_dots(U, U), np.square(matmul(U, V.T)))


def _proof(L: Floats, W: Floats) -> Floats:
    values, vectors = eigh(W)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(matmul(solve_lower(L, np.eye(len(L))), root))


def _newton_matrix(look: _Look, W: Floats, mu: Floats, at: Point) -> Floats:
    """Lower triangle of curvature of h, barrier of lam and barrier of the constraints."""
    curve = at.nu / (at.s * np.square(np.square(look.q))) - 2 * mu / look.q
    N = gram(look.C, curve)
    bend = gram(look.V.T)
    bend *= matmul(matmul(look.V, 2 * W), look.V.T)
    N += bend
    N[np.diag_indices(len(N))] += at.z / at.lam
    return N


def _factor(N: Floats) -> Floats | None:
    diagonal = N.diagonal().copy()
    for ridge in RIDGES:
        N[np.diag_indices(len(N))] = diagonal * (1 + ridge)
        L = N.copy()
        if cholesky(L, 0.0):
            return L
    return None


def _step(look: _Look, g: Floats, at: Point, newton: Floats) -> Point:
    """Mehrotra: a step to the boundary tells how far to go, the second step goes there."""
    lam, z, nu, s = at
    q, centre = look.q, at.centre
    product = matmul(lam, z) + matmul(nu, s)
    lagging = np.abs(1 - g - z).max() * lam.sum() > 3 * product
    aim, second, alpha = 0.0, 0.0, 0.0
    dlam, dz, dnu, ds = (np.zeros_like(part) for part in at)
    for corrector in (False, True):
        if corrector:
            after = matmul(lam + alpha * dlam, z + alpha * dz)
            after += matmul(nu + alpha * dnu, s + alpha * ds)
            ratio = max(after / product, 0.0)
            share = min(max(ratio * ratio * ratio, 0.005), 1.0)
            aim, second = (centre, 0.0) if lagging else (centre * share, 1.0)
        left_lam = aim - lam * z - second * dlam * dz
        left_nu = aim - nu * s - second * dnu * ds
        pull = (left_nu - nu * (1 / q - 1 - s)) / (s * q * q)
        dlam = g + z - 1 + left_lam / lam + matmul(pull, look.C)
        cholesky_solve(newton, dlam)
        dz = (left_lam - z * dlam) / lam
        ds = matmul(look.C, dlam) / (q * q) + (1 / q - 1 - s)
        dnu = (left_nu - nu * ds) / s
        longest = min(map(_room, at, (dlam, dz, dnu, ds)))
        alpha = min(1.0, REACH * longest if corrector else longest)
    return Point(lam + alpha * dlam, z + alpha * dz, nu + alpha * dnu, s + alpha * ds)


def _room(part: Floats, change: Floats) -> float:
    falls = change < 0
    return float((-part[falls] / change[falls]).min(initial=np.inf))


# The short lists of arms and pairs on which a large XY design is solved, and how they change.


FIRST_ARMS = 10  # arms to begin with, times the rank
FIRST_PAIRS = 4
NEW_ARMS = 6  # arms that may come in after a sweep, times the rank
NEW_PAIRS = 4
DROP = 4.0  # slack above which a member of a list leaves it, as a multiple of the gap
CARRIES = 0.1  # an arm with this share of the mean weight stays whatever its slack
COLD = 0.3  # share of equal weights beside those of a start
REGULAR = 1e-9  # least eigenvalue of the arms listed, as a share of the largest

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lists:
    """Arms and pairs in hand, in coordinates where equal weights on all arms are the identity.

    Attributes
    ----------
    arms : (n,) indices
    pairs : (J, 2) positions among the arms compared, the smaller first
    X : (n, r) the arms
    Z : (J, r) the differences
    point : from which the steps go on
    level : slack above which arms and pairs were last left out
    gone_arms, gone_pairs : what was ever left out; if it comes back it stays, so that nothing
        goes round in circles
    """

    arms: Indices
    pairs: Indices
    X: Floats
    Z: Floats
    point: Point
    level: float
    gone_arms: Indices = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    gone_pairs: Indices = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))


def first_lists(
    rows: Rows,
    compared: Rows,
    to: Floats,
    centre: Floats,
    start: tuple[Indices, Floats] | None = None,
) -> tuple[Lists | None, float]:
    """Outermost arms that span the space, with those of the start, and far pairs of those compared.

    None if all arms compared are one. Also the passes made.
    """
    r = to.shape[1]
    share = compared.shape[0] / rows.shape[0]
    radius = radii(compared, to, matmul(centre, to))
    outer = np.argsort(-radius, kind="stable")[: FIRST_ARMS * r].astype(np.int64)
    scores = radius if compared is rows else leverages(rows, to)
    arms = np.argsort(-scores, kind="stable")[: FIRST_ARMS * r].astype(np.int64)
    passes = share + (compared is not rows)
    if start is not None:
        heaviest = np.argsort(-start[1], kind="stable")[: FIRST_ARMS * r]
        arms = np.union1d(arms[: FIRST_ARMS * r // 2], start[0][heaviest])
    arms, more = _spanning(rows, to, arms)
    X = matmul(rows.take(arms), to)
    outer = outer[: FIRST_PAIRS * r]
    where, apart = partners(compared, to, outer)
    passes += more + share * (1 + outer.size / r)
    if not apart.max() > 0:
        return None, passes
    far = apart > 0
    pairs = np.unique(np.sort(np.column_stack([outer[far], where[far]]), axis=1), axis=0)
    Z = _differences(compared, to, pairs)
    lam = np.full(arms.size, 1 / arms.size)
    if start is not None:
        held, at, of = np.intersect1d(arms, start[0], return_indices=True)
        lam *= COLD
        lam[at] += (1 - COLD) * start[1][of] / start[1][of].sum() if held.size else 0.0
    point = warm_point(X, Z, lam, np.full(len(Z), np.nan), 1.0, 1.0)
    return Lists(arms, pairs, X, Z, point, 1.0), passes


def _spanning(rows: Rows, to: Floats, arms: Indices) -> tuple[Indices, float]:
    """The arms, with further ones if they do not span the space; and the passes made."""
    passes = 0.0
    while True:
        values, vectors = eigh(gram(matmul(rows.take(arms), to)))
        missing = vectors[:, values <= REGULAR * values[-1]]
        if not missing.shape[1]:
            return arms, passes
        more = np.union1d(arms, farthest_along(rows, matmul(to, missing)))
        passes += missing.shape[1] / to.shape[1]
        if more.size == arms.size:
            return arms, passes
        arms = more


def light(lists: Lists, weights: Floats, value: float, tol: float) -> Floats:
    """The weights without the least ones, if that costs less than a part of the tolerance."""
    order = np.argsort(weights, kind="stable")
    dropped = order[np.cumsum(weights[order]) < 0.05 * tol]
    trial = weights.copy()
    trial[dropped] = 0.0
    trial /= trial.sum()
    A = gram(lists.X, trial)
    if eigh(A)[0][0] <= 1e-10 * np.trace(A):
        return weights
    U = solve_lower(factor(A), lists.Z)
    return trial if np.square(U).sum(axis=1).max() <= value * (1 + 0.2 * tol) else weights


def grown(
    rows: Rows,
    compared: Rows,
    to: Floats,
    lists: Lists,
    solved: Improved,
    g: Floats,
    far: Indices,
    gap: float,
) -> tuple[Lists, int]:
    """The lists without what has become idle, with arms and pairs that came up; how many came.

    `g` (K,) says how much each arm would help; `far` (m, 2) are pairs, the farthest first.
    """
    r, point = to.shape[1], solved.point
    reached = float(g[lists.arms].max())
    arms = np.setdiff1d(np.flatnonzero(g > reached * (1 + 0.05 * gap)), lists.arms)
    arms = arms[np.argsort(-g[arms], kind="stable")[: NEW_ARMS * r]]
    pairs = far[~_known(far, lists.pairs)][: NEW_PAIRS * r]
    level = max(DROP * gap, 0.3 * lists.level)
    stays = (point.z < level) | (point.lam > CARRIES * point.lam.mean())
    stays |= np.isin(lists.arms, lists.gone_arms)
    if matrix_rank(lists.X[stays]) < r:
        stays[:] = True
    active = (point.s < level) | (point.nu > CARRIES * point.nu.mean())
    active |= _known(lists.pairs, lists.gone_pairs)
    slack = np.maximum(1 - g[arms] / reached, 0.05)
    lam = np.concatenate([point.lam[stays], point.centre / slack])
    nu = np.concatenate([point.nu[active], np.full(len(pairs), np.nan)])
    X = np.vstack([lists.X[stays], matmul(rows.take(arms), to)])
    Z = np.vstack([lists.Z[active], _differences(compared, to, pairs)])
    margin = max(0.3 * gap, 1e-9)
    changed = Lists(
        np.concatenate([lists.arms[stays], arms]),
        np.vstack([lists.pairs[active], pairs]),
        X,
        Z,
        warm_point(X, Z, lam, nu, point.centre, margin),
        level,
        np.union1d(lists.gone_arms, lists.arms[~stays]),
        np.vstack([lists.gone_pairs, lists.pairs[~active]]),
    )
    return changed, arms.size + len(pairs)


def _known(pairs: Indices, known: Indices) -> NDArray[np.bool_]:
    """Which of the pairs (n, 2) are in the list (m, 2)."""
    seen = set(map(tuple, known.tolist()))
    return np.array([tuple(pair) in seen for pair in pairs.tolist()], dtype=np.bool_)


def _differences(rows: Rows, to: Floats, pairs: Indices) -> Floats:
    return np.asarray(matmul(rows.take(pairs[:, 0]) - rows.take(pairs[:, 1]), to))


# One sweep over all arms of a large XY problem: which would help, and how far out they are.


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep found.

    Attributes
    ----------
    g : (K,) |x @ proof|², how much each arm would help
    radius : (m,) distance of x @ norm from the centre, for the arms compared
    """

    g: Floats
    radius: Floats


def sweep_all(rows: Rows, compared: Rows, norm: Floats, proof: Floats, centre: Floats) -> Sweep:
    """Look at the arms compared as points x @ norm, and at the lengths of x @ proof: two passes.

    Where all rows are compared they are read once.
    """
    middle = matmul(centre, norm)
    if compared is not rows:
        return Sweep(leverages(rows, proof), radii(compared, norm, middle))
    g, square = np.empty(rows.shape[0]), np.empty(rows.shape[0])

    def look(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            X = rows.block(start, stop)
            image = matmul(X, proof)
            g[start:stop] = row_dots(image, image)
            image = matmul(X, norm)
            image -= middle
            square[start:stop] = row_dots(image, image)

    in_lanes(look, *rows.shape)
    return Sweep(g, np.sqrt(square))


# XY-optimal designs of up to millions of arms, proven over all arms and all pairs compared.


STEPS = 4  # Newton steps between two sweeps
FIRST_STEPS = 6
MOST_ARMS = 3000  # on the list; with more, a Newton step takes longer than many passes
AIM = 0.1  # gap on the lists at which to sweep again, as a share of the gap over all
ROUND_EFFORT = 3.0  # passes that a round may spend on pairs before there is reason for a proof
LEVEL = 0.985  # of the goal, down to which a search for the proof lists pairs
MOST_REMEMBERED = 200_000  # pairs after which such a search gives up
COARSE = 0.03  # gap down to which the steps of `pair_game` go


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
