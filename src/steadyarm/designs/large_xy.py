"""XY-optimal designs of up to millions of arms, proven over all arms and all pairs of them.

A short list of arms and a short list of pairs are solved together from where they stood; a sweep
over all arms then finds arms that would improve the design and pairs that it neglects, and these
come in. The multipliers of the pairs prove a lower bound over all arms (see `saddle_kernel`), the
farthest pair in the norm of A^-1 is the value. Where finding it for certain is too dear, the value
is a proven upper bound of it and the design says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.checks import check_tolerance
from steadyarm.designs.design import Design, Status
from steadyarm.designs.farthest import FarthestPair, farthest_pair, mean_row, partners
from steadyarm.designs.pair_lists import NEW_PAIRS, Lists, first_lists, grown, light
from steadyarm.designs.pair_sweep import sweep_all
from steadyarm.designs.passes import span_of
from steadyarm.designs.rows import BundleRows, FactorialRows, Rows
from steadyarm.designs.saddle_steps import improve
from steadyarm.validation import whole_number

__all__ = ["LargeXYDesign", "solve_xy"]

STEPS = 4  # Newton steps between two sweeps
FIRST_STEPS = 6
MOST_ARMS = 3000  # on the list; with more, a Newton step takes longer than many passes
AIM = 0.1  # gap on the lists at which to sweep again, as a share of the gap over all
ROUND_EFFORT = 3.0  # passes that a round may spend on pairs before there is reason for a proof

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LargeXYDesign:
    """An XY design on few of many arms, with its proof.

    Attributes
    ----------
    size : number of arms, K
    indices : (s,) sorted indices of the arms with positive weight
    weights : (s,) their weights, which sum to one
    value : no pair of arms has a larger variance ‖x - x'‖² in the inverse of A
    exact : whether that is the variance of the worst pair, not only a bound above it
    pair : the worst pair found
    pair_value : its variance
    lower_bound : no design has a value below this one
    status : why the solver stopped
    passes : work on the arms, in passes: as many multiplications as all leverages once
    rounds : sweeps over all arms
    """

    size: int
    indices: Indices
    weights: Floats
    value: float
    exact: bool
    pair: tuple[int, int]
    pair_value: float
    lower_bound: float
    status: Status
    passes: float
    rounds: int

    @property
    def gap(self) -> float:
        """Relative gap ``value / lower_bound - 1``, proven; zero when the value is zero."""
        return _gap(self.value, self.lower_bound)

    @property
    def pair_gap(self) -> float:
        """The gap if the worst pair found is the worst there is; not proven unless exact."""
        return _gap(self.pair_value, self.lower_bound)

    def design(self) -> Design:
        """The same as a `Design`, with a weight for every arm."""
        weights = np.zeros(self.size)
        weights[self.indices] = self.weights
        return Design(weights, self.value, self.lower_bound, self.status, self.rounds)


def solve_xy(
    rows: Rows, tol: float = 1e-3, *, effort: float | None = None, most_rounds: int = 60
) -> LargeXYDesign:
    """XY-optimal design of the rows, in their span, to compare all arms.

    Full factorial and bundle sets look the same from each of their arms, so that equal weights
    are optimal for them (the value is convex and does not change when arms are relabelled) and
    the arm farthest from the first one gives the worst pair: two passes.

    Parameters
    ----------
    rows : the arms
    tol : relative gap between value and lower bound to reach
    effort : passes that the search for the worst pair may take at the end, see
        `farthest_pair`; if it needs more, the value is an upper bound and `exact` is False
    most_rounds : sweeps after which to stop with the design so far; the solver also stops when
        thousands of arms share the weight, as on a sphere in many dimensions

    Examples
    --------
    >>> from steadyarm.designs.rows import DenseRows
    >>> arms = np.random.default_rng(0).normal(size=(10_000, 5))
    >>> answer = solve_xy(DenseRows(arms))
    >>> answer.gap <= 1e-3, answer.exact, answer.indices.size < 100
    (True, True, True)
    """
    check_tolerance(tol)
    whole_number(most_rounds, "most_rounds", least=1)
    to, passes = span_of(rows)
    if isinstance(rows, FactorialRows | BundleRows):
        return _by_symmetry(rows, to, passes)
    centre = mean_row(rows)
    lists, work = first_lists(rows, to, centre)
    work += passes
    if lists is None:
        return _nothing_to_compare(rows.shape[0], work)
    r, lower, gap, aim = to.shape[1], 0.0, 1.0, 0.1
    for round_ in range(1, most_rounds + 1):
        steps = FIRST_STEPS if round_ == 1 else STEPS
        solved = improve(lists.X, lists.Z, lists.point, max(aim, 0.1 * tol), steps)
        last = round_ == most_rounds or solved.stuck or lists.arms.size > MOST_ARMS
        weights = light(lists, solved.weights, solved.value, tol)
        root = _inverse_root(lists.X, weights)
        sweep = sweep_all(rows, to @ root, to @ solved.proof, centre)
        lower = max(lower, solved.strength / float(sweep.g.max()))
        goal = lower * (1 + tol)
        search = partial(
            farthest_pair,
            rows,
            to @ root,
            centre=centre,
            radius=sweep.radius,
            known=_farthest_listed(lists, root),
            above=max(goal, solved.value * (1 + 0.05 * gap)),
        )
        far = search(effort=ROUND_EFFORT, enough=2 * NEW_PAIRS * r)
        work += 2 + far.passes
        if (far.value <= goal and not far.exact) or last:
            far = search(effort=effort, enough=0 if last else 2 * NEW_PAIRS * r)
            work += far.passes
        if far.value <= goal or last:
            status = Status.STALLED if solved.stuck else Status.STEP_LIMIT
            status = Status.OPTIMAL if far.upper_bound <= goal else status
            return _design(rows.shape[0], lists.arms, weights, far, lower, status, work, round_)
        gap = max(min(gap, _gap(far.value, lower)), 0.0)
        lists, more = grown(rows, to, lists, solved, sweep.g, far.others, gap)
        aim = AIM * gap if more else 0.3 * min(aim, gap)
    raise AssertionError("the last round returns")


def _by_symmetry(rows: Rows, to: Floats, passes: float) -> LargeXYDesign:
    K = rows.shape[0]
    where, apart = partners(rows, to, np.zeros(1, dtype=np.int64))
    value, pair = float(apart[0]), (0, int(where[0]))
    everyone = np.full(K, 1 / K)
    work = passes + 1.0
    return LargeXYDesign(
        K, np.arange(K), everyone, value, True, pair, value, value, Status.OPTIMAL, work, 0
    )


def _nothing_to_compare(K: int, work: float) -> LargeXYDesign:
    only = np.zeros(1, dtype=np.int64)
    return LargeXYDesign(K, only, np.ones(1), 0.0, True, (0, 0), 0.0, 0.0, Status.OPTIMAL, work, 0)


def _design(
    K: int,
    arms: Indices,
    weights: Floats,
    far: FarthestPair,
    lower: float,
    status: Status,
    work: float,
    rounds: int,
) -> LargeXYDesign:
    kept = np.flatnonzero(weights)
    kept = kept[np.argsort(arms[kept])]
    return LargeXYDesign(
        size=K,
        indices=arms[kept],
        weights=weights[kept],
        value=far.upper_bound,
        exact=far.exact,
        pair=(far.first, far.second),
        pair_value=far.value,
        lower_bound=lower,
        status=status,
        passes=work,
        rounds=rounds,
    )


def _inverse_root(X: Floats, weights: Floats) -> Floats:
    """The map L^-T into coordinates where A = LL' of the weights is the identity."""
    L = np.linalg.cholesky((X.T * weights) @ X)
    answer: Floats = np.linalg.inv(L).T
    return answer


def _farthest_listed(lists: Lists, root: Floats) -> tuple[int, int]:
    U = lists.Z @ root
    first, second = lists.pairs[int(np.einsum("ij,ij->i", U, U).argmax())].tolist()
    return first, second


def _gap(value: float, lower: float) -> float:
    if value == 0.0:
        return 0.0
    return value / lower - 1.0 if lower > 0.0 else np.inf
