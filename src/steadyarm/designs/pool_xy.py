"""XY designs of many arms of any kind to compare some of them, to a coarse proven gap.

Called by `large_xy` where the set has no Walsh transform and a coarse gap is enough.

The steps of `pair_game` are played on a pool of arms. When they are close to the best design on
the pool, a pass over all arms proves the lower bound; if arms outside help more than those in
play, some of them come in and the steps go on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.designs.design import Status
from steadyarm.designs.large_g import solve_g
from steadyarm.designs.pair_game import PairGame, trimmed
from steadyarm.designs.passes import span_of
from steadyarm.designs.pool_field import PoolField
from steadyarm.designs.xy_answer import LargeXYDesign, nothing_to_compare
from steadyarm.linalg import eigh, gram, inverse_root, matmul

__all__ = ["some_of_rows"]

STEPS = 10  # between two looks for neglected pairs
MOST_ARMS = 4096  # in the pool
FIRST = 4  # times the rank: arms drawn from all and from those compared for the first pool
LEAST_FIRST = 250
MORE = 6  # times the rank: arms that a pass may bring in
LEAST_MORE = 400
BASE_ARMS = 4  # times the rank, at most: the heaviest arms of the start
BASE = 0.1  # weight on the base design, as a share of the tolerance: keeps A regular
LEAST_BASE = 1e-4
EARLY = 2  # round after which a pass brings in arms, however far the steps are
CLOSE = 0.6  # share of the tolerance at which a pass over all arms pays
BOLD = 300  # arms to compare from which bold steps are stable
WARM = 0.5  # share of the start in the first weights
MORE_PAIRS = 400  # that a failed proof may bring in
ROUGH_G = 0.3  # gap of the base design, where none is given
REGULAR = 1e-10  # spread of eigenvalues from which a start spans well enough
SAME = 1e-12

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def some_of_rows(
    rows: Rows,
    among: Indices,
    tol: float,
    start: tuple[Indices, Floats] | None,
    effort: float | None,
    most_rounds: int,
) -> LargeXYDesign:
    """The design to compare the arms `among`, from the weights at `start` if given."""
    K = rows.shape[0]
    few, weights, to, work = _base(rows, start)
    r = to.shape[1]
    rng, count = np.random.default_rng(0), max(FIRST * r, LEAST_FIRST)
    more = max(MORE * r, LEAST_MORE)
    warm, shares = start or (few, weights)
    drawn = [
        warm,
        rng.choice(K, min(count, K), replace=False),
        among[rng.choice(among.size, min(count, among.size), replace=False)],
    ]
    arms = np.concatenate([few, np.setdiff1d(np.concatenate(drawn), few)])
    field = PoolField(rows, to, among, arms)
    if _all_same(field.compared):
        return nothing_to_compare(K, int(among[0]), work)
    order = np.argsort(arms, kind="stable")
    position = order[np.searchsorted(arms, warm, sorter=order)]
    base = np.append(weights, np.zeros(arms.size - few.size))
    lam = np.full(arms.size, (1 - WARM) / arms.size)
    lam[position] += WARM * shares
    game = PairGame(field, lam, base, max(BASE * min(tol, 1.0), LEAST_BASE))
    for round_ in range(1, most_rounds + 1):
        last = round_ == most_rounds
        game.steps(STEPS, bold=among.size >= BOLD)
        game.look()
        if not last and round_ != EARLY and game.worst > game.hoped * (1 + CLOSE * tol):
            continue
        game.certify()
        work += 1
        goal = game.lower * (1 + tol)
        if last or game.worst <= goal:
            every, game.lam = game.lam, trimmed(game.lam, game.share)
            far = game.prove(goal, effort, 0 if last else MORE_PAIRS)
            if last or far.value <= goal:
                break
            game.lam = every
        kept = _kept(game, MOST_ARMS - min(field.missed.size, more))
        game.arms_came_in(kept, field.come_in(more, kept, round_))
    weights = game.weights()
    order = np.argsort(field.arms, kind="stable")
    order = order[weights[order] > 0]
    return LargeXYDesign(
        size=K,
        indices=field.arms[order],
        weights=weights[order],
        value=far.upper_bound,
        exact=far.exact,
        pair=(int(among[far.first]), int(among[far.second])),
        pair_value=far.value,
        lower_bound=game.lower,
        status=Status.OPTIMAL if far.upper_bound <= goal else Status.STEP_LIMIT,
        passes=work + game.passes,
        rounds=round_,
    )


def _base(
    rows: Rows, start: tuple[Indices, Floats] | None
) -> tuple[Indices, Floats, Floats, float]:
    """Arms and weights that span, the map to where their information is I, and the passes made."""
    K, columns = rows.shape
    if start is not None:
        most = max(BASE_ARMS * columns, LEAST_FIRST)
        heavy = np.sort(np.argsort(-start[1], kind="stable")[:most])
        arms, weights = start[0][heavy], start[1][heavy] / start[1][heavy].sum()
        A = gram(rows.take(arms), weights)
        size = np.sqrt(np.diag(A))
        if size.all() and _regular(A / size / size[:, None]):
            return arms, weights, inverse_root(A), 0.0
    count = min(FIRST * columns, K)
    first = np.sort(np.random.default_rng(0).choice(K, count, replace=False))
    design = solve_g(rows, ROUGH_G, start=(first, np.full(count, 1 / count)))
    arms, weights = design.indices, design.weights
    to, passes = span_of(rows)
    root = inverse_root(gram(matmul(rows.take(arms), to), weights))
    return arms, weights, matmul(to, root), design.passes + passes


def _regular(A: Floats) -> bool:
    values, _ = eigh(A)
    return bool(values[0] > REGULAR * values[-1])


def _all_same(compared: Rows) -> bool:
    first = compared.take(np.zeros(1, dtype=np.int64))
    m, step = compared.shape[0], 8192
    return all(
        np.abs(compared.block(at, min(at + step, m)) - first).max() <= SAME
        for at in range(0, m, step)
    )


def _kept(game: PairGame, most: int) -> NDArray[np.bool_]:
    """The arms in play with the largest weights, and those of the base."""
    kept = game.base > 0
    kept[np.argsort(-game.lam, kind="stable")[:most]] = True
    return kept
