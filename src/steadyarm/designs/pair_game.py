"""Weights on arms against multipliers on pairs: multiplicative steps to an XY design.

Played by `factorial_xy` and `pool_xy`, each with its own field of arms (see `fields`).

Products with the listed pairs are in single precision, where they only steer. The lower bound is
computed in double from the best multipliers met; the value is proven by `farthest_pair`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.farthest import FarthestPair, farthest_pair, mean_row
from steadyarm.designs.fields import Field
from steadyarm.linalg import factor, gram, matmul, row_dots, solve_lower

__all__ = ["PairGame", "trimmed"]

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

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Indices = NDArray[np.int64]


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
