"""What a solver for the XY designs of many arms hands back: few arms, their weights, the proof.

Made by `large_xy`, `factorial_xy` and `pool_xy`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import DenseRows, Rows, Walsh
from steadyarm.arms.span import MappedRows
from steadyarm.designs.design import Design, Status, on_all_arms, relative_gap
from steadyarm.designs.farthest import FarthestPair, farthest_pair, mean_row
from steadyarm.designs.fractions import fraction
from steadyarm.designs.passes import HELD, SubsetRows, leverages, radii, span_of, subset_of, top
from steadyarm.designs.pooled_g import solve_g
from steadyarm.linalg import eigh, factor, gram, inverse_root, matmul, row_dots, solve_lower

__all__ = [
    "Field",
    "LargeXYDesign",
    "PairGame",
    "PoolField",
    "WalshField",
    "full_factorial",
    "nothing_to_compare",
    "some_of_factorial",
    "some_of_rows",
    "trimmed",
]

# What a solver for the XY designs of many arms hands back: few arms, their weights, the proof.


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
    value : no pair of the arms compared has a larger variance ‖x - x'‖² in the inverse of A
    exact : whether that is the variance of the worst pair, not only a bound above it
    pair : the worst pair found
    pair_value : its variance
    lower_bound : no design on any of the arms has a value below this one
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
        return relative_gap(self.value, self.lower_bound)

    @property
    def pair_gap(self) -> float:
        """The gap if the worst pair found is the worst there is; not proven unless exact."""
        return relative_gap(self.pair_value, self.lower_bound)

    def design(self) -> Design:
        """The same as a `Design`, with a weight for every arm."""
        weights = on_all_arms(self.size, self.indices, self.weights)
        return Design(weights, self.value, self.lower_bound, self.status, self.rounds)


def nothing_to_compare(K: int, arm: int, work: float) -> LargeXYDesign:
    """The design for a single arm, or arms that are all the same."""
    only = np.array([arm], dtype=np.int64)
    pair = (arm, arm)
    return LargeXYDesign(K, only, np.ones(1), 0.0, True, pair, 0.0, 0.0, Status.OPTIMAL, work, 0)


# What the steps of `pair_game` ask of the arms, and how two-level factorial sets answer.


UNIT = 2.0**-52


class Field(Protocol):
    """The arms in play and the arms compared, in coordinates where the base design is I."""

    @property
    def total(self) -> int:
        """Number of all arms, K."""

    @property
    def cost(self) -> float:
        """Of the forms of the arms in play, in plain passes over all arms."""

    @property
    def compared(self) -> Rows:
        """The m arms to compare."""

    def forms(self, M: Floats) -> Floats:
        """X'Mx of the arms in play, which may be rough."""
        ...

    def moment(self, lam: Floats, exact: bool = True) -> Floats:
        """Sum of lam_x x x' over the arms in play: (r, r); rough unless it has to be exact."""
        ...

    def squares(self, M: Floats, chosen: Indices) -> Floats:
        """X'Mx of the compared arms at the positions chosen."""
        ...

    def radii(self, root: Floats, inverse: Floats, centre: Floats) -> Floats:
        """At least the lengths of (x - centre) @ root of arms compared; inverse = root root'."""
        ...

    def largest(self, M: Floats) -> float:
        """At least the largest x'Mx over all arms, also those not in play; M is nonnegative."""
        ...


class WalshField:
    """All arms are in play; equal weights are the base design."""

    def __init__(self, walsh: Walsh, among: Indices) -> None:
        """To compare the arms `among`."""
        self.total, self.cost = walsh.size, walsh.cost
        self.compared = subset_of(walsh.rows, among)
        self._walsh, self._among = walsh, among

    def forms(self, M: Floats) -> Floats:
        """X'Mx of all arms: one transform."""
        return self._walsh.forms(M)

    def moment(self, lam: Floats, exact: bool = True) -> Floats:
        """Sum of lam_x x x' over all arms: one transform."""
        return self._walsh.moment(lam)

    def squares(self, M: Floats, chosen: Indices) -> Floats:
        """X'Mx of the compared arms at the positions chosen."""
        return self._walsh.forms(M)[self._among[chosen]]

    def radii(self, root: Floats, inverse: Floats, centre: Floats) -> Floats:
        """At least the distances of the compared arms from the centre."""
        middle = matmul(inverse, centre)
        square = self._walsh.forms(inverse, -2 * middle)[self._among]
        square += matmul(centre, middle)
        return np.asarray(np.sqrt(np.maximum(square, 0.0) + self._rounding(inverse)))

    def largest(self, M: Floats) -> float:
        """The largest form, and what rounding may hide."""
        return float(self._walsh.forms(M).max()) + self._rounding(M)

    def _rounding(self, M: Floats) -> float:
        """How far rounding can move the quadratic forms of M."""
        return float(np.abs(M).sum() * UNIT * (2 + self.total.bit_length()))


# Weights on arms against multipliers on pairs: multiplicative steps to an XY design.


ALL_PAIRS = 1500  # up to so many pairs all are listed
TRIES = 8  # partners drawn at random for a first pair, of which the farthest counts
STARTS = 100  # arms from which to look for neglected pairs
SEEN = 2**15  # arms to compare that one look sees, drawn afresh
IDLE = 0.2  # a pair with less than this share of the mean multiplier leaves the list
BLOCK = 8192  # arms looked at together
PASSES = 3.0  # over all arms that a proof may take, unless it is told
LEAST_WORK = 2e9  # multiplications that it may take in any case
NEW = 4.0  # weight of an arm that comes in, times the mean weight
MOST_NEW = 0.5  # weight of all that come in together, at most

Singles = NDArray[np.float32]


class _Proof(NamedTuple):
    rough: float
    inverse: Floats
    Z: Singles
    mu: Floats


class PairGame:
    """The state of the steps.

    Attributes
    ----------
    lam : weights on the arms in play; the design puts `share` on `base` and the rest on these
    lower : proven lower bound of the value of any design
    worst : variance of the worst pair seen under the present weights
    pair : that pair, as positions among the arms compared
    pairs : (J, 2) pairs listed, as positions among the arms compared
    passes : multiplications made, in plain passes over all arms
    """

    def __init__(self, field: Field, lam: Floats, base: Floats, share: float) -> None:
        """Nothing is listed yet; `base` are weights for which A is the identity."""
        self.lam, self.base, self.share = lam, base, share
        self.lower, self.worst, self.passes = 0.0, np.inf, 0.0
        self._field, self._compared = field, field.compared
        self._rng = np.random.default_rng(0)
        self._centre = mean_row(self._compared)
        self._best = _Proof(0.0, np.eye(0), np.empty((0, 0), dtype=np.float32), np.empty(0))
        self.pair = (0, 0)
        self.pairs = self._first_pairs()
        self._Z = self._differences(self.pairs)
        self._mu = np.full(len(self.pairs), 1 / len(self.pairs))

    @property
    def hoped(self) -> float:
        """The lower bound if no arm helps more than those in play."""
        return max(self.lower, self._best.rough)

    def weights(self) -> Floats:
        """The design, on the arms in play."""
        answer: Floats = (1 - self.share) * self.lam + self.share * self.base
        answer /= answer.sum()
        return answer

    def steps(self, count: int, bold: bool = False) -> None:
        """Multiply weights by how much arms help, and multipliers by how badly pairs are known.

        Bold steps go half as far again, which needs many pairs and many arms to be stable.
        """
        for _ in range(count):
            inverse = self._inverse()
            q, W = _forms(self._Z, inverse), gram(self._Z, self._mu)
            g = self._field.forms(matmul(matmul(inverse, W), inverse))
            mean = matmul(self._mu, q)
            rough = mean * mean / float(g.max())
            if rough > self._best.rough:
                self._best = _Proof(rough, inverse, self._Z, self._mu)
            help_ = np.maximum(g / mean, 1e-9)
            self.lam = self.lam * (help_ * np.sqrt(help_) if bold else help_)
            self.lam /= self.lam.sum()
            self._mu = self._mu * q
            self._mu /= self._mu.sum()
            self.passes += 2.0 * len(self._Z) / self._field.total + 2 * self._field.cost

    def look(self) -> None:
        """Bring in pairs that are far apart under the present weights."""
        inverse = self._inverse()
        self._keep(self._mu > IDLE * self._mu.mean())
        m = self._compared.shape[0]
        seen = np.arange(m) if m <= SEEN else np.sort(self._rng.choice(m, SEEN, replace=False))
        square = self._field.squares(inverse, seen)
        starts = self._rng.choice(seen.size, min(m, STARTS), replace=False)
        found, self.worst = [], 0.0
        for _ in range(2):
            where, apart = self._partners(inverse, seen, square, starts)
            found.append(seen[np.column_stack([starts, where])])
            if apart.max() > self.worst:
                top = int(apart.argmax())
                self.worst, self.pair = float(apart[top]), _two(found[-1][top])
            starts = np.unique(where)
        self.bring_in(np.vstack(found))
        q = _forms(self._Z, inverse)
        if q.max() > self.worst:
            self.worst, self.pair = float(q.max()), _two(self.pairs[int(q.argmax())])

    def certify(self) -> None:
        """Prove the lower bound of the best multipliers met, over all arms."""
        best = self._best
        if not best.mu.size:
            return
        Z = best.Z.astype(np.float64)
        W = gram(Z, best.mu)
        trace = float((W * best.inverse).sum())
        largest = self._field.largest(matmul(matmul(best.inverse, W), best.inverse))
        self.lower = max(self.lower, float(trace * trace / (best.mu.sum() * largest)))

    def arms_came_in(self, kept: NDArray[np.bool_], count: int) -> None:
        """Go on with the arms kept and so many new ones in play."""
        lam = self.lam[kept]
        new = min(NEW * count, MOST_NEW * lam.size)
        self.lam = np.append(lam / lam.sum(), np.full(count, new / lam.size / max(count, 1)))
        self.lam /= self.lam.sum()
        self.base = np.append(self.base[kept], np.zeros(count))
        self._best = self._best._replace(rough=0.0, mu=np.empty(0))

    def bring_in(self, found: Indices) -> None:
        """List those of the pairs (n, 2) that are not yet listed."""
        m = self._compared.shape[0]
        low, high = found.min(axis=1), found.max(axis=1)
        keys = np.setdiff1d((low * m + high)[low < high], self.pairs @ np.array([m, 1]))
        if keys.size:
            new = np.column_stack([keys // m, keys % m])
            self.pairs = np.vstack([self.pairs, new])
            self._Z = np.vstack([self._Z, self._differences(new)])
            self._mu = np.append(self._mu, np.full(keys.size, self._mu.mean()))
            self._mu /= self._mu.sum()

    def prove(self, goal: float, effort: float | None, enough: int) -> FarthestPair:
        """The farthest pair under the present weights, as positions among the arms compared.

        The search leaves pairs alone that are proven not to be above the goal, and ends when it
        has found enough that are; these are listed.
        """
        root, inverse = _inverse_of(self._moment(exact=True))
        one = float(self._field.total) * root.size
        allowed = max(PASSES * one, LEAST_WORK) if effort is None else effort * one
        share = self._compared.shape[0] / self._field.total
        far = farthest_pair(
            self._compared,
            root,
            centre=self._centre,
            radius=self._field.radii(root, inverse, self._centre),
            known=self.pair,
            effort=allowed / (one * share),
            above=goal,
            enough=enough,
            goal=goal,
        )
        self.passes += far.passes * share
        self.worst, self.pair = far.value, (far.first, far.second)
        if len(far.others):
            self.bring_in(far.others)
        return far

    def _moment(self, exact: bool = False) -> Floats:
        moment = (1 - self.share) * self._field.moment(self.lam, exact)
        moment[np.diag_indices(len(moment))] += self.share
        return moment

    def _inverse(self) -> Floats:
        return _inverse_of(self._moment())[1]

    def _partners(
        self, inverse: Floats, seen: Indices, square: Floats, starts: Indices
    ) -> tuple[Indices, Floats]:
        """For each start the arm farthest from it, and about their squared distance.

        Starts and answers are positions in `seen`.
        """
        S = matmul(self._compared.take(seen[starts]), -2 * inverse).T.astype(np.float32)
        best, where = np.full(starts.size, -np.inf), np.zeros(starts.size, dtype=np.int64)
        columns = np.arange(starts.size)
        for start in range(0, square.size, BLOCK):
            chosen = seen[start : start + BLOCK]
            part = matmul(self._compared.take(chosen).astype(np.float32), S)
            part += square[start : start + BLOCK, None].astype(np.float32)
            row = part.argmax(axis=0)
            apart = part[row, columns]
            better = apart > best
            best[better], where[better] = apart[better], start + row[better]
        self.passes += square.size * starts.size / (self._field.total * inverse.shape[0])
        return where, best + square[starts]

    def _first_pairs(self) -> Indices:
        """All pairs if they are few, else random arms with far partners; the farther the better."""
        m = self._compared.shape[0]
        if m * (m - 1) // 2 <= ALL_PAIRS:
            return np.column_stack(np.triu_indices(m, 1)).astype(np.int64)
        first = self._rng.integers(m, size=ALL_PAIRS)
        tries = self._rng.integers(m, size=(TRIES, ALL_PAIRS))
        X, inverse = self._compared.take(first), self._inverse()
        apart = [self._apart(X - self._compared.take(second), inverse) for second in tries]
        second = tries[np.argmax(apart, axis=0), np.arange(ALL_PAIRS)]
        found = np.sort(np.column_stack([first, second]), axis=1)
        answer: Indices = np.unique(found[found[:, 0] < found[:, 1]], axis=0)
        return answer

    @staticmethod
    def _apart(D: Floats, inverse: Floats) -> Floats:
        return _forms(D.astype(np.float32), inverse)

    def _differences(self, pairs: Indices) -> Singles:
        D = self._compared.take(pairs[:, 0]) - self._compared.take(pairs[:, 1])
        return D.astype(np.float32)

    def _keep(self, live: NDArray[np.bool_]) -> None:
        self.pairs, self._Z, self._mu = self.pairs[live], self._Z[live], self._mu[live]
        self._mu = self._mu / self._mu.sum()


def trimmed(lam: Floats, most: float) -> Floats:
    """The weights without the least ones, up to so much in all."""
    order = np.argsort(lam, kind="stable")
    answer = lam.copy()
    answer[order[np.cumsum(lam[order]) < most]] = 0.0
    answer /= answer.sum()
    return answer


def _two(pair: Indices) -> tuple[int, int]:
    first, second = pair.tolist()
    return first, second


def _inverse_of(A: Floats) -> tuple[Floats, Floats]:
    """The map L^-T into coordinates where A = LL' is the identity, and the inverse of A."""
    root = solve_lower(factor(A), np.eye(len(A)))
    return root, gram(root.T)


def _forms(X: Singles, M: Floats) -> Floats:
    """X'Mx for the rows x of X, in single precision but for the last sum."""
    return np.asarray(row_dots(matmul(X, M.astype(np.float32)), X))


# A pool of arms in play out of many of any kind, and passes over all for arms that are missed.


ROUNDING = 1e-9  # of a form: more than rounding in a pass
NEAR = 0.9  # of the most that an arm in play helps: from there on others are worth it
MOST_MISSED = 2**14  # noted
FEW_BEST = 4  # of the arms that come in, one in so many is from the top
NEXT_BEST = 3  # times as many arms are those of which the others are drawn


class PoolField:
    """The arms in a pool are in play.

    Attributes
    ----------
    arms : (n,) indices of the arms in play
    missed : arms that the last pass found to help about as much as those in play or more,
        the best first
    """

    def __init__(self, rows: Rows, to: Floats, among: Indices, arms: Indices) -> None:
        """Rows x are seen as x @ to; the arms `among` are compared."""
        self.total, self.arms = rows.shape[0], arms
        some: Rows = MappedRows(SubsetRows(rows, among), to)
        held = among.size * max(to.shape) <= HELD
        self.compared: Rows = DenseRows(some.block(0, among.size)) if held else some
        self.missed = np.empty(0, dtype=np.int64)
        self._all, self._to = rows, to
        self._X = matmul(rows.take(arms), to)
        self._singles = self._X.astype(np.float32)

    @property
    def cost(self) -> float:
        """Of the forms of the arms in play, in passes over all."""
        return self.arms.size / self.total

    def forms(self, M: Floats) -> Floats:
        """X'Mx of the arms in play, in single precision."""
        return np.asarray(row_dots(matmul(self._singles, M.astype(np.float32)), self._singles))

    def moment(self, lam: Floats, exact: bool = True) -> Floats:
        """Sum of lam_x x x' over the arms in play."""
        return gram(self._X if exact else self._singles, lam)

    def squares(self, M: Floats, chosen: Indices) -> Floats:
        """X'Mx of the compared arms at the positions chosen."""
        X = self.compared.take(chosen)
        return np.asarray(row_dots(matmul(X, M), X))

    def radii(self, root: Floats, inverse: Floats, centre: Floats) -> Floats:
        """Distances of the compared arms from the centre."""
        return radii(self.compared, root, matmul(centre, root))

    def largest(self, M: Floats) -> float:
        """The largest x'Mx over all arms: one pass, which notes `missed`."""
        values, vectors = eigh(M)
        half = vectors * np.sqrt(np.maximum(values, 0.0))
        scores = leverages(self._all, matmul(self._to, half))
        over = scores > NEAR * scores[self.arms].max()
        over[self.arms] = False
        above = np.flatnonzero(over)
        self.missed = above[top(scores[above], MOST_MISSED)]
        return float(scores.max()) * (1 + ROUNDING)

    def come_in(self, most: int, kept: NDArray[np.bool_], seed: int) -> int:
        """Play on with the arms kept and at most so many of those missed; how many came in.

        Some are the best and the others random ones of them, since the best are often alike.
        """
        best, rest = np.split(self.missed[: NEXT_BEST * most], [most // FEW_BEST])
        count = min(most - best.size, rest.size)
        spread = np.random.default_rng(seed).choice(rest, count, replace=False)
        new = np.concatenate([best, spread])
        self.arms = np.concatenate([self.arms[kept], new])
        self._X = np.vstack([self._X[kept], matmul(self._all.take(new), self._to)])
        self._singles = self._X.astype(np.float32)
        self.missed = self.missed[:0]
        return int(new.size)


# XY designs of two-level factorial sets to compare some of the arms, to a coarse proven gap.


STEPS = 10  # between two looks for neglected pairs
FEW_ARMS = 4096  # that a design is drawn on, if the tolerance allows
BASE = 0.1  # weight on the fraction, as a share of the tolerance: keeps A regular
LEAST_BASE = 1e-4
CLOSE = 0.6  # share of the tolerance at which arms are drawn or the value is proven
POLISH = 3  # rounds for the drawn arms to come within the tolerance
BOLD = 300  # arms to compare from which bold steps are stable
WARM = 0.3  # share of a start in the first weights
MORE_PAIRS = 400  # that a failed proof may bring in


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


# XY designs of many arms of any kind to compare some of them, to a coarse proven gap.


MOST_ARMS = 4096  # in the pool
FIRST = 4  # times the rank: arms drawn from all and from those compared for the first pool
LEAST_FIRST = 250
MORE = 6  # times the rank: arms that a pass may bring in
LEAST_MORE = 400
BASE_ARMS = 4  # times the rank, at most: the heaviest arms of the start
EARLY = 2  # round after which a pass brings in arms, however far the steps are
POOL_XY_WARM = 0.5  # share of the start in the first weights
ROUGH_G = 0.3  # gap of the base design, where none is given
REGULAR = 1e-10  # spread of eigenvalues from which a start spans well enough
SAME = 1e-12


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
    lam = np.full(arms.size, (1 - POOL_XY_WARM) / arms.size)
    lam[position] += POOL_XY_WARM * shares
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
