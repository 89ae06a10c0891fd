"""XY-optimal designs of large arm sets by multiplicative weights, proven over all arms and pairs.

The arms' weights grow with how much each arm helps, the multipliers of pairs with how badly each
pair is known. These steps are quick down to a gap of some percent and slow below it. They work on
a pool of some thousand arms; passes over all arms prove the lower bound and name the arms that
should join the pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import HELD, DenseRows, MappedRows, Rows, SubsetRows, row_blocks
from steadyarm.designs.design import Design, Status
from steadyarm.designs.pooled_g import leverages, mean_row, radii, top
from steadyarm.kernels import gram, inverse_root, row_dots

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

STEPS = 10  # between two searches for neglected pairs
BASE = 0.1  # share of the start in every design, relative to the tolerance: keeps A regular
LEAST_BASE = 1e-4
WARM = 0.5  # share of the start in the first weights
CLOSE = 0.6  # share of the tolerance at which the value is proven
BOLD = 100  # arms to compare from which the first steps are bold
WORSE = 1.05  # how much worse a round must make the worst pair for steps to be damped
MOST_DAMPING = 4
MORE_PAIRS = 400  # that a failed proof may add
FIRST_DRAWN = 4  # times the rank: arms drawn from all and from those compared for the first pool
LEAST_FIRST = 250
MORE = 6  # times the rank: arms that a pass may add
LEAST_MORE = 400
MOST_IN_POOL = 4096


def pooled_xy(
    rows: Rows,
    among: Indices,
    tol: float,
    start: Design,
    bound: float = np.inf,
    effort: float = 3.0,
    most_rounds: int = 60,
) -> Design:
    """XY-optimal design to compare the arms `among`, with weights on any of the rows.

    The lower bound holds over all arms. The value is the variance of the worst pair of all that
    are compared, or a bound above it where the search for that pair would take too long: with
    tens of thousands of arms to compare in many dimensions it can lie well above the worst pair.

    Parameters
    ----------
    rows : the arms, with independent columns
    among : sorted indices of the arms to compare, two at least, which differ
    tol : relative gap between value and lower bound to reach; a few percent at least
    start : a design whose arms span the space, from which to begin
    bound : no pair among these arms has a larger variance under `start`. Once that is within the
        tolerance of the lower bound, `start` is the answer
    effort : passes that the search for the worst pair may take; more where they are cheap
    most_rounds : of steps, after which to stop with the design so far

    Examples
    --------
    >>> from steadyarm.designs.pooled_g import pooled_g
    >>> rows = DenseRows(np.random.default_rng(0).normal(size=(10_000, 5)))
    >>> design = pooled_xy(rows, np.arange(1000), 0.1, pooled_g(rows, 0.01))
    >>> design.gap <= 0.1, design.support.size < 500
    (True, True)
    """
    K = rows.shape[0]
    base, shares = start.support, start.shares
    field = _field(rows, gram(rows.take(base), shares), among, base)
    on_base = np.zeros(field.arms.size)
    on_base[np.searchsorted(field.arms, base)] = shares
    lam = (1 - WARM) / field.arms.size + WARM * on_base
    game = MultiplicativeWeights(field, lam, on_base, max(BASE * min(tol, 1.0), LEAST_BASE))
    damping, before = -1 if among.size >= BOLD else 0, np.inf
    for round_ in range(most_rounds + 1):
        last = round_ == most_rounds
        if round_ > 0:
            game.steps(STEPS, damping)
            game.find_pairs()
            damping = min(damping + (game.worst > WORSE * before), MOST_DAMPING)
            before = game.worst
            due = last or round_ % field.rounds_per_pass == 0
            if not due and game.worst > game.hoped * (1 + CLOSE * tol):
                continue
        game.certify()
        goal = game.lower * (1 + tol)
        if bound <= goal:
            return Design(K, base, shares, bound, game.lower, Status.OPTIMAL, round_)
        if last or game.worst <= goal:
            every, game.lam = game.lam, _trim(game.lam, game.share)
            far = game.prove(goal, effort, 0 if last else MORE_PAIRS)
            if last or far.value <= goal:
                break
            game.lam = every
        game.exchange_arms(round_)
    weights = game.weights()
    used = np.flatnonzero(weights)
    used = used[np.argsort(field.arms[used], kind="stable")]
    status = Status.OPTIMAL if far.upper_bound <= goal else Status.STEP_LIMIT
    return Design(K, field.arms[used], weights[used], far.upper_bound, game.lower, status, round_)


def _field(rows: Rows, A: Floats, among: Indices, base: Indices) -> PoolField:
    """The arms in play at first, for a start with the information A (r, r) on the arms `base`."""
    K, r = rows.shape
    rng, count = np.random.default_rng(0), max(FIRST_DRAWN * r, LEAST_FIRST)
    drawn = rng.choice(K, min(count, K), replace=False)
    compared = among[rng.choice(among.size, min(count, among.size), replace=False)]
    arms = np.unique(np.concatenate([base, drawn, compared]))
    return PoolField(rows, inverse_root(A), among, arms)


# Multiplicative weights: arms against pairs


ALL_PAIRS = 1500  # up to this many pairs, all are listed
TRIES = 8  # partners drawn at random for a first pair, of which the farthest is taken
STARTS = 100  # arms from which a search for neglected pairs begins
SEEN = 2**15  # arms that one such search considers, drawn anew each time
IDLE = 0.2  # a pair with less than this share of the mean multiplier leaves the list
NEW = 4.0  # weight of an arm that joins the pool, times the mean weight
MOST_NEW = 0.5  # weight of all arms that join together, at most


class _Proof(NamedTuple):
    hoped: float  # lower bound if no arm helps more than those in play
    inverse: Floats
    Z: Floats
    mu: Floats


class MultiplicativeWeights:
    """The state of the game between weights on arms and multipliers on pairs.

    Attributes
    ----------
    lam : (n,) weights on the arms in play; the design has `share` on `base` and the rest on these
    lower : proven lower bound of the value of any design
    worst : variance of the worst pair found under the present weights
    pair : that pair, as positions among the arms compared
    pairs : (J, 2) pairs listed, as positions among the arms compared
    """

    def __init__(self, field: PoolField, lam: Floats, base: Floats, share: float) -> None:
        """`base` (n,) are the weights whose A is the identity."""
        self.lam, self.base, self.share = lam, base, share
        self.lower, self.worst, self.pair = 0.0, np.inf, (0, 0)
        self._field, self._compared = field, field.compared
        self._rng = np.random.default_rng(0)
        self._centre = mean_row(self._compared)
        self._longest = field.largest(np.eye(len(self._centre)))
        self._best = _Proof(0.0, np.eye(0), np.empty((0, 0)), np.empty(0))
        self.pairs = self._first_pairs()
        self._Z = self._differences(self.pairs)
        self._mu = np.full(len(self.pairs), 1 / len(self.pairs))

    @property
    def hoped(self) -> float:
        """The lower bound if no arm helps more than those in play."""
        return max(self.lower, self._best.hoped)

    def weights(self) -> Floats:
        """The design, on the arms in play."""
        answer: Floats = (1 - self.share) * self.lam + self.share * self.base
        answer /= answer.sum()
        return answer

    def steps(self, count: int, damping: int) -> None:
        """Multiply weights by how much arms help, and multipliers by how badly pairs are known.

        damping : how many times the root of these factors is taken; with -1 weights go half as
            far again, which needs many pairs and many arms to be stable
        """
        lam, mu = np.zeros_like(self.lam), np.zeros_like(self._mu)
        for _ in range(count):
            gain, q = self._gains()
            self.lam = self.lam * _damp(np.maximum(gain, 1e-9), damping)
            self.lam /= self.lam.sum()
            self._mu = self._mu * _damp(q, max(damping, 0))
            self._mu /= self._mu.sum()
            lam += self.lam
            mu += self._mu
        if damping >= 0:  # the average is better than the last, once the first distance is covered
            self.lam, self._mu = lam / count, mu / count
            self._gains()

    def _gains(self) -> tuple[Floats, Floats]:
        """The gain of each arm in play relative to the mean, and the variance of each pair.

        Keeps what gives the best lower bound so far.
        """
        inverse = self._inverse()
        V = self._Z @ inverse
        q, g = row_dots(V, self._Z), self._field.forms(gram(V, self._mu))
        mean = float(self._mu @ q)
        hoped = mean * mean / float(g.max())
        if hoped > self._best.hoped:
            self._best = _Proof(hoped, inverse, self._Z, self._mu)
        return g / mean, q

    def find_pairs(self) -> None:
        """Drop idle pairs and list pairs that are far apart under the present weights."""
        root = inverse_root(self._moment())
        live = self._mu > IDLE * self._mu.mean()
        self.pairs, self._Z = self.pairs[live], self._Z[live]
        self._mu = self._mu[live] / self._mu[live].sum()
        m = self._compared.shape[0]
        seen = np.arange(m) if m <= SEEN else np.sort(self._rng.choice(m, SEEN, replace=False))
        among = SubsetRows(self._compared, seen)
        starts = self._rng.choice(seen.size, min(m, STARTS), replace=False)
        found, self.worst = [], 0.0
        for _ in range(2):
            where, apart = partners(among, root, starts)
            found.append(seen[np.column_stack([starts, where])])
            self._note(apart, found[-1])
            starts = np.unique(where)
        self._add_pairs(np.vstack(found))
        self._note(_forms(self._Z, gram(root.T)), self.pairs)

    def certify(self) -> None:
        """Prove lower bounds over all arms: of the present multipliers, and of the best ones met.

        With W the sum of mu_y y y' and any nonnegative M, no design has a value below
        (tr √(√M W √M))² / (sum mu · max x'Mx), by Cauchy and Schwarz. M = I needs no weights, and
        is nearly optimal where most arms are compared; M = A⁻¹WA⁻¹ is so under good weights.
        """
        roots = np.sqrt(np.maximum(np.linalg.eigh(gram(self._Z, self._mu))[0], 0.0))
        self.lower = max(self.lower, float(roots.sum()) ** 2 / (self._mu.sum() * self._longest))
        best = self._best
        if not best.mu.size:
            return
        W = gram(best.Z, best.mu)
        trace = float((W * best.inverse).sum())
        largest = self._field.largest(best.inverse @ W @ best.inverse)
        self.lower = max(self.lower, float(trace * trace / (best.mu.sum() * largest)))

    def exchange_arms(self, seed: int) -> None:
        """Drop arms of small weight from the pool and add those that the last pass noted."""
        if not self._field.noted.size:
            return
        kept = self.base > 0
        most = max(MOST_IN_POOL - _more(len(self._centre)), 0)
        kept[np.argsort(-self.lam, kind="stable")[:most]] = True
        count = self._field.exchange(kept, seed)
        lam = self.lam[kept]
        new = min(NEW * count, MOST_NEW * lam.size)
        self.lam = np.append(lam / lam.sum(), np.full(count, new / lam.size / max(count, 1)))
        self.lam /= self.lam.sum()
        self.base = np.append(self.base[kept], np.zeros(count))
        self._best = self._best._replace(hoped=0.0, mu=np.empty(0))

    def prove(self, goal: float, effort: float, enough: int) -> FarthestPair:
        """The farthest pair under the present weights, as positions among the arms compared.

        The search skips pairs that are proven not to be above the goal, and ends when it has
        found enough that are; these are listed.
        """
        root = inverse_root(self._moment())
        far = farthest_pair(
            self._compared,
            root,
            centre=self._centre,
            radius=self._field.radii(root, self._centre),
            known=self.pair,
            effort=effort * self._field.total / self._compared.shape[0],
            goal=goal,
            enough=enough,
        )
        self.worst, self.pair = far.value, (far.first, far.second)
        if len(far.others):
            self._add_pairs(far.others)
        return far

    def _moment(self) -> Floats:
        moment = (1 - self.share) * self._field.moment(self.lam)
        moment[np.diag_indices(len(moment))] += self.share
        return moment

    def _inverse(self) -> Floats:
        return gram(inverse_root(self._moment()).T)

    def _note(self, apart: Floats, pairs: Indices) -> None:
        """Keep the farthest of the pairs if it is farther apart than the worst one so far."""
        farthest = int(apart.argmax())
        if apart[farthest] > self.worst:
            first, second = pairs[farthest].tolist()
            self.worst, self.pair = float(apart[farthest]), (first, second)

    def _add_pairs(self, found: Indices) -> None:
        """List those of the pairs (n, 2) that are not listed yet."""
        m = self._compared.shape[0]
        low, high = found.min(axis=1), found.max(axis=1)
        keys = np.setdiff1d((low * m + high)[low < high], self.pairs @ np.array([m, 1]))
        if keys.size:
            new = np.column_stack([keys // m, keys % m])
            self.pairs = np.vstack([self.pairs, new])
            self._Z = np.vstack([self._Z, self._differences(new)])
            self._mu = np.append(self._mu, np.full(keys.size, self._mu.mean()))
            self._mu /= self._mu.sum()

    def _first_pairs(self) -> Indices:
        """All pairs if they are few, else random arms, each with the farthest of some partners."""
        m = self._compared.shape[0]
        if m * (m - 1) // 2 <= ALL_PAIRS:
            return np.column_stack(np.triu_indices(m, 1)).astype(np.int64)
        first = self._rng.integers(m, size=ALL_PAIRS)
        tries = self._rng.integers(m, size=(TRIES, ALL_PAIRS))
        differences = [self._differences(np.column_stack([first, second])) for second in tries]
        apart = [row_dots(D, D) for D in differences]
        second = tries[np.argmax(apart, axis=0), np.arange(ALL_PAIRS)]
        found = np.sort(np.column_stack([first, second]), axis=1)
        answer: Indices = np.unique(found[found[:, 0] < found[:, 1]], axis=0)
        return answer

    def _differences(self, pairs: Indices) -> Floats:
        return self._compared.take(pairs[:, 0]) - self._compared.take(pairs[:, 1])


def _damp(factors: Floats, damping: int) -> Floats:
    """The factors to the power 1.5, 1, 1/2, 1/4, … for a damping of -1, 0, 1, 2, …"""
    if damping < 0:
        return np.asarray(factors * np.sqrt(factors))
    for _ in range(damping):
        factors = np.sqrt(factors)
    return factors


def _forms(X: Floats, M: Floats) -> Floats:
    """Values x'Mx for the rows x of X."""
    return row_dots(X @ M, X)


def _more(r: int) -> int:
    """How many arms a pass may add to a pool."""
    return max(MORE * r, LEAST_MORE)


# The arms in play


ROUNDING = 1e-9  # relative: more than rounding in a pass
NEAR_BEST = 0.9  # of the most that an arm in play helps: from there on other arms are noted
MOST_NOTED = 2**14
FEW_BEST = 4  # one in this many of the arms added is from the top
NEXT_BEST = 3  # the others are drawn from the best, this many times as many as are added


class PoolField:
    """A pool of arms is in play, and passes over all arms note which others should join it.

    Everything is in coordinates where the design that the solver starts from has A = I.

    Attributes
    ----------
    total : number of all arms, K
    rounds_per_pass : after which a pass adds arms, whatever the steps have reached
    arms : (n,) indices of the arms in play
    compared : the m arms to compare
    noted : arms that the last call of `largest` found worth adding, the best first
    """

    rounds_per_pass = 2

    def __init__(self, rows: Rows, to: Floats, among: Indices, arms: Indices) -> None:
        """Rows x are seen as x @ to; the arms `among` are compared."""
        self.total, self.arms = rows.shape[0], arms
        some: Rows = MappedRows(SubsetRows(rows, among), to)
        held = among.size * max(to.shape) <= HELD
        self.compared: Rows = DenseRows(some.block(0, among.size)) if held else some
        self.noted = np.empty(0, dtype=np.int64)
        self._all, self._to = rows, to
        self._X = rows.take(arms) @ to

    def forms(self, M: Floats) -> Floats:
        """(n,) values x'Mx of the arms in play."""
        return _forms(self._X, M)

    def moment(self, lam: Floats) -> Floats:
        """(r, r) sum of lam_x x x' over the arms in play."""
        return gram(self._X, lam)

    def radii(self, root: Floats, centre: Floats) -> Floats:
        """(m,) lengths of (x - centre) @ root for the arms compared: one pass over them."""
        return radii(self.compared, root, centre @ root)

    def largest(self, M: Floats) -> float:
        """At least the largest x'Mx over all arms, M nonnegative: one pass; notes arms to add."""
        values, vectors = np.linalg.eigh(M)
        half = vectors * np.sqrt(np.maximum(values, 0.0))
        scores = leverages(self._all, self._to @ half)
        over = scores > NEAR_BEST * scores[self.arms].max()
        over[self.arms] = False
        above = np.flatnonzero(over)
        self.noted = above[top(scores[above], MOST_NOTED)]
        return float(scores.max()) * (1 + ROUNDING)

    def exchange(self, kept: NDArray[np.bool_], seed: int) -> int:
        """Continue with the arms kept, and add some of those noted; returns how many were added.

        Some of the new arms are the best noted, the others random ones of these: the best are
        often alike.
        """
        most = _more(self._to.shape[1])
        best, rest = np.split(self.noted[: NEXT_BEST * most], [most // FEW_BEST])
        count = min(most - best.size, rest.size)
        spread = np.random.default_rng(seed).choice(rest, count, replace=False)
        new = np.concatenate([best, spread])
        self.arms = np.concatenate([self.arms[kept], new])
        self._X = np.vstack([self._X[kept], self._all.take(new) @ self._to])
        self.noted = self.noted[:0]
        return int(new.size)


def _trim(lam: Floats, spare: float) -> Floats:
    """The weights without those far below the mean, the smallest first, up to `spare` in all."""
    order = np.argsort(lam, kind="stable")
    light = (np.cumsum(lam[order]) < spare) & (lam[order] < 0.5 * lam.mean())
    answer = lam.copy()
    answer[order[light]] = 0.0
    answer /= answer.sum()
    return answer


# The farthest pair
#
# With a centre and the distances of all points from it, a pair can only be farther apart than the
# best one known if its two distances add up to more. Points are put in blocks by that distance,
# pairs of blocks are taken in the order of their bounds, and the search ends when the next bound is
# below the best pair. Where all points are about equally far from every centre, as on a sphere,
# nothing can be left out: the search then ends with its allowance of work, and the bound of the
# next pair of blocks is what is proven.
#
# Factorial sets have no shortcut here: for a general A their farthest pair is a quadratic problem
# in binary unknowns, also with main effects only.


BLOCK = 1024  # points in a block
MOST_BLOCKS = 2048  # bounds between all blocks are kept
EFFORT = 1100.0  # passes: enough for every pair of 10^5 points in 50 dimensions
LEAST_WORK = 4e9  # multiplications, half a second or less: in few dimensions passes are cheap
FEW_POINTS = 2048  # up to which the exact pair is as quick as a proof that none is above a goal
FIRST_STARTS = 16  # points from which to alternate
TIE = 1e-12  # relative: bounds this close to the best pair are not searched


@dataclass(frozen=True, eq=False)
class Blocks:
    """Points that may be in a farther pair, in blocks.

    Attributes
    ----------
    members : indices of the points of each block
    radius : largest distance from the middle in each block
    """

    rows: Rows
    to: Floats
    middle: Floats
    members: list[Indices]
    radius: Floats

    @property
    def size(self) -> int:
        """Number of points in all blocks."""
        return sum(block.size for block in self.members)

    def points(self, block: int) -> Floats:
        """The points of a block, seen from the middle: (m, r)."""
        return np.asarray(self.rows.take(self.members[block]) @ self.to - self.middle)

    def work(self, i: int, j: int) -> float:
        """Multiplications to compare two blocks."""
        return float(self.members[i].size * self.members[j].size * self.to.shape[1])


def _in_blocks(rows: Rows, to: Floats, middle: Floats, radius: Floats, value: float) -> Blocks:
    """The points that can be in a pair of squared distance above `value`, in blocks."""
    order = np.argsort(-radius, kind="stable")
    descending = radius[order]
    count = int(np.searchsorted(-descending, descending[0] - np.sqrt(value), side="left"))
    candidates = order[: max(count, 1)].astype(np.int64)
    size = max(BLOCK, -(-candidates.size // MOST_BLOCKS))
    members = [candidates[k : k + size] for k in range(0, candidates.size, size)]
    return Blocks(rows, to, middle, members, np.array([radius[block].max() for block in members]))


def _upper_bounds(rest: Blocks, value: float) -> tuple[Indices, Indices, Floats]:
    """Pairs of blocks that can hold a pair above `value`, and their bounds, the largest first."""
    count = len(rest.members)
    firsts, seconds, bounds = [], [], []
    for i in range(count):
        bound = np.square(rest.radius[i] + rest.radius[i:])
        near = np.flatnonzero(bound > value)
        firsts.append(np.full(near.size, i))
        seconds.append(near + i)
        bounds.append(bound[near])
    first, second, bound = map(np.concatenate, (firsts, seconds, bounds))
    order = np.argsort(-bound, kind="stable")
    return first[order], second[order], bound[order]


def _best_of_rows(rest: Blocks, i: int, j: int, bar: float) -> list[tuple[float, int, int]]:
    """For each point of block i that has one, its farthest partner in block j above the bar."""
    Y, Z = rest.points(i), rest.points(j)
    D = Y @ (-2.0 * Z.T)
    D += row_dots(Z, Z)
    D += row_dots(Y, Y)[:, None]
    near = np.flatnonzero(D.max(axis=1) > bar * (1 - TIE))
    where = D[near].argmax(axis=1)
    gaps = Y[near] - Z[where]
    first, second = rest.members[i][near], rest.members[j][where]
    pairs = zip(row_dots(gaps, gaps).tolist(), first.tolist(), second.tolist(), strict=True)
    return [(value, min(a, b), max(a, b)) for value, a, b in pairs if value > bar]


class FarthestPair(NamedTuple):
    """Two points far apart, and a proof of how much farther apart two others can be.

    Attributes
    ----------
    first, second : indices of the pair
    value : its squared distance
    upper_bound : no pair has a larger squared distance; the value itself if exact, to rounding
    exact : whether no pair is farther apart
    others : (m, 2) pairs found above the goal, if some were to be collected, the farthest first
    """

    first: int
    second: int
    value: float
    upper_bound: float
    exact: bool
    others: Indices


def farthest_pair(
    rows: Rows,
    to: Floats,
    *,
    centre: Floats | None = None,
    radius: Floats | None = None,
    known: tuple[int, int] | None = None,
    effort: float = EFFORT,
    goal: float = 0.0,
    enough: int = 0,
) -> FarthestPair:
    """Farthest pair of the points x @ to for the rows x.

    Parameters
    ----------
    rows : the points, before the map
    to : (columns, r) the map; L^-T for distances in the norm of the inverse of LL'
    centre : (columns,) a row to measure distances from; the mean by default
    radius : (K,) distances of the points from the centre, if known
    known : a pair known to be far apart; by default alternating steps look for one
    effort : passes after which to stop with an upper bound; a pass is as many multiplications as
        it takes to map all rows once. More are made where they take less than half a second
    goal : skip pairs that are proven not to be above this level. If no pair is, the upper bound
        is at most the goal, and `exact` may be False
    enough : collect pairs above the goal, at least the farthest of each point, and stop without a
        proof when there are so many; 0 for none

    Examples
    --------
    >>> from steadyarm.arms.rows import DenseRows
    >>> points = DenseRows(np.array([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [1.0, 1.0]]))
    >>> farthest_pair(points, np.eye(2))[:5]
    (0, 2, 25.0, 25.0, True)
    """
    K = rows.shape[0]
    one = float(K) * to.size  # multiplications of one pass
    allowed = max(effort * one, LEAST_WORK)
    centre = mean_row(rows) if centre is None else centre
    middle = centre @ to
    work = 0.0
    if radius is None:
        radius, work = radii(rows, to, middle), one
    if known is None:
        known, extra = _alternate(rows, to, radius)
        work += extra
    first, second = sorted(known)
    value = _apart(rows, to, first, second)
    above = goal if enough else np.inf
    goal = goal if K > FEW_POINTS else 0.0
    floor = max(value, goal)
    rest, bound = _in_blocks(rows, to, middle, radius, floor), 0.0
    best = (value, first, second)
    collected: dict[tuple[int, int], float] = {}
    a, b, bounds = _upper_bounds(rest, floor)
    for i, j, limit in zip(a.tolist(), b.tolist(), bounds.tolist(), strict=True):
        if limit <= max(best[0] * (1 + TIE), goal):
            bound = min(limit, goal)
            break
        if work > allowed or (enough and len(collected) >= enough):
            bound = limit
            break
        work += rest.work(i, j)
        for pair in _best_of_rows(rest, i, j, min(best[0], above)):
            best = max(best, pair)
            if pair[0] > above:
                collected[pair[1:]] = pair[0]
    value, first, second = best
    if a.size < len(rest.members) * (len(rest.members) + 1) // 2 or rest.size < K or bound:
        bound = max(bound, goal)  # some pairs were skipped
    exact = bound <= value * (1 + TIE)
    others = np.array(sorted(collected, key=lambda pair: -collected[pair]), dtype=np.int64)
    upper = value if exact else bound
    return FarthestPair(first, second, value, upper, exact, others.reshape(-1, 2))


def partners(rows: Rows, to: Floats, starts: Indices) -> tuple[Indices, Floats]:
    """For each start the point farthest from it, and their squared distance: a pass and more."""
    S = rows.take(starts) @ to
    best, where = np.full(starts.size, -1.0), np.zeros(starts.size, dtype=np.int64)
    columns = np.arange(starts.size)
    for start, stop in row_blocks(*rows.shape):
        Y = rows.block(start, stop) @ to
        part = Y @ (-2.0 * S.T)
        part += row_dots(Y, Y)[:, None]
        row = part.argmax(axis=0)
        found = part[row, columns]
        better = found > best
        best[better], where[better] = found[better], start + row[better]
    D = rows.take(where) @ to - S
    return where, row_dots(D, D)


def _alternate(rows: Rows, to: Floats, radius: Floats) -> tuple[tuple[int, int], float]:
    """A pair by steps to the farthest point, from the outermost points; and the work."""
    K, r = radius.size, to.shape[1]
    starts = np.argsort(-radius, kind="stable")[: min(FIRST_STARTS, K)].astype(np.int64)
    pair, value, work = (int(starts[0]), int(starts[0])), 0.0, 0.0
    for _ in range(4):
        where, apart = partners(rows, to, starts)
        work += float(K) * to.size * (1 + starts.size / r)
        top = int(apart.argmax())
        if apart[top] <= value:
            break
        value, pair = float(apart[top]), (int(starts[top]), int(where[top]))
        starts = np.unique(where)
    return pair, work


def _apart(rows: Rows, to: Floats, first: int, second: int) -> float:
    ends = rows.take(np.array([first, second], dtype=np.int64)) @ to
    return float(np.square(ends[0] - ends[1]).sum())
