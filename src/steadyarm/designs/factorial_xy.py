"""XY designs of two-level factorial sets to compare some of the arms, to a coarse proven gap.

Called by `large_xy` where the set has a Walsh transform.

Weights lie on all arms and multipliers on a list of pairs. A step multiplies each weight by how
much its arm would help and each multiplier by how badly its pair is known; with the transforms of
`walsh` that takes milliseconds, and some fifty steps come within a tenth of the optimum. Then few
arms are drawn in proportion to the weights, the steps go on with these, and the farthest pair
proves the value. The multipliers prove a lower bound over all arms, as in `saddle_kernel`.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.walsh import Walsh
from steadyarm.designs.design import Status
from steadyarm.designs.farthest import FarthestPair
from steadyarm.designs.fields import WalshField
from steadyarm.designs.fractions import fraction
from steadyarm.designs.pair_game import PairGame, trimmed
from steadyarm.designs.xy_answer import LargeXYDesign, nothing_to_compare

__all__ = ["full_factorial", "some_of_factorial"]

STEPS = 10  # between two looks for neglected pairs
FEW_ARMS = 4096  # that a design is drawn on, if the tolerance allows
BASE = 0.1  # weight on the fraction, as a share of the tolerance: keeps A regular
LEAST_BASE = 1e-4
CLOSE = 0.6  # share of the tolerance at which arms are drawn or the value is proven
POLISH = 3  # rounds for the drawn arms to come within the tolerance
BOLD = 300  # arms to compare from which bold steps are stable
WARM = 0.3  # share of a start in the first weights
MORE_PAIRS = 400  # that a failed proof may bring in

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def full_factorial(walsh: Walsh) -> LargeXYDesign:
    """The design to compare all arms: equal weights on a fraction, by symmetry."""
    arms = fraction(walsh.rows)
    first = walsh.rows.take(np.zeros(1, dtype=np.int64))[0]
    apart = 2.0 * walsh.masks.size - 2.0 * walsh.products(first)
    value, pair = float(apart.max()), (0, int(apart.argmax()))
    equal = np.full(arms.size, 1 / arms.size)
    return LargeXYDesign(
        walsh.size, arms, equal, value, True, pair, value, value, Status.OPTIMAL, walsh.cost, 0
    )


def some_of_factorial(
    walsh: Walsh,
    among: Indices,
    tol: float,
    start: tuple[Indices, Floats] | None,
    effort: float | None,
    most_rounds: int,
) -> LargeXYDesign:
    """The design to compare the arms `among`, from the weights at `start` if given."""
    K, everywhere = walsh.size, full_factorial(walsh)
    if among.size < 2:
        return nothing_to_compare(K, int(among[0]), 0.0)
    base, lam = np.zeros(K), np.full(K, 0.5 / K)
    base[everywhere.indices] = everywhere.weights
    lam[among] += 0.5 / among.size
    if start is not None:
        lam *= 1 - WARM
        lam[start[0]] += WARM * start[1]
    share = max(BASE * min(tol, 1.0), LEAST_BASE)
    game = PairGame(WalshField(walsh, among), lam, base, share)
    rounds, level = 0, everywhere.value
    while rounds < most_rounds:
        game.steps(STEPS, bold=among.size >= BOLD)
        game.look()
        game.certify()
        rounds += 1
        if level <= game.lower * (1 + tol):
            return _of_fraction(everywhere, game, among, rounds)
        if game.worst <= game.lower * (1 + CLOSE * tol):
            break
    dense = game.lam
    game.lam = _drawn(trimmed(dense, share), FEW_ARMS)
    far, made = _proven(game, tol, effort, POLISH)
    if far is None:
        game.lam = dense
        far, more = _proven(game, tol, effort, max(most_rounds - rounds, 1), last=True)
        made += more
    assert far is not None, "the last attempt has a farthest pair"
    weights = game.weights()
    return LargeXYDesign(
        size=K,
        indices=np.flatnonzero(weights),
        weights=weights[weights > 0],
        value=far.upper_bound,
        exact=far.exact,
        pair=(int(among[far.first]), int(among[far.second])),
        pair_value=far.value,
        lower_bound=game.lower,
        status=Status.OPTIMAL if far.upper_bound <= game.lower * (1 + tol) else Status.STEP_LIMIT,
        passes=game.passes,
        rounds=rounds + made,
    )


def _proven(
    game: PairGame, tol: float, effort: float | None, rounds: int, last: bool = False
) -> tuple[FarthestPair | None, int]:
    """Rounds until the value is proven to be within the tolerance; None if it is not.

    In the last attempt, what there is at the end.
    """
    for made in range(1, rounds + 1):
        game.look()
        game.certify()
        goal = game.lower * (1 + tol)
        at_end = last and made == rounds
        if game.worst <= goal or at_end:
            far = game.prove(goal, effort, 0 if at_end else MORE_PAIRS)
            if far.value <= goal or at_end:
                return far, made
        game.steps(STEPS)
    return None, rounds


def _drawn(lam: Floats, count: int) -> Floats:
    """About `count` arms: those above 1 / count stay, others are drawn evenly by their weight."""
    if np.count_nonzero(lam) <= count:
        return lam
    heavy = lam >= 1 / count
    light = np.where(heavy, 0.0, lam)
    total = float(light.sum())
    draws = ceil(total * count)
    at = np.searchsorted(np.cumsum(light) * (draws / total), np.arange(draws) + 0.5)
    at = np.minimum(at, lam.size - 1)
    answer: Floats = np.where(heavy, lam, 0.0)
    answer += np.bincount(at, minlength=lam.size) * (total / draws)
    return answer


def _of_fraction(
    everywhere: LargeXYDesign, game: PairGame, among: Indices, rounds: int
) -> LargeXYDesign:
    """The design to compare all arms, which is good enough; its worst pair may not be compared."""
    game.lam = game.base
    game.look()
    pair = game.pair
    return replace(
        everywhere,
        exact=bool(game.worst >= everywhere.value * (1 - 1e-6)),
        pair=(int(among[pair[0]]), int(among[pair[1]])),
        pair_value=min(game.worst, everywhere.value),
        lower_bound=game.lower,
        passes=game.passes,
        rounds=rounds,
    )
