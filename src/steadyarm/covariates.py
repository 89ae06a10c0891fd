"""Covariates: what is known of a unit before it is assigned, as numbers, takes noise away.

With z the covariates of a unit and r its reward, r - β'(z - z̄) is judged in place of r; z̄ is the
mean of z over all units assigned in the same segment. All rounds of a segment have the same
probabilities, and z is known before any is drawn. For every β that does not depend on the draws
of the segment the correction therefore has mean zero, and the estimate stays unbiased whatever
drifts (docs/inference.md has the proof). β is fitted on earlier segments; it may use the
covariates of its own segment, never that segment's arms or rewards.

Everything is a function of sums per arm and segment, over a batch of trials (leading axis n), row
by row in compiled loops. The first covariate is always "known": 1 for units that gave any, else 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.compiled import kernel
from steadyarm.errors import InvalidInputError
from steadyarm.segments import SegmentStats
from steadyarm.validation import finite_number

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

EXPECTED = "expected"  # the covariate that ask(unit, expected=…) gives
MOST = 5  # covariates of a test
LARGEST = 1e60  # size of a covariate, so that no sum of products overflows

KEPT = 32  # segments that are remembered one by one; older ones are merged in pairs
NEEDED = 10  # rewards for every covariate, before slopes are used
WILD = 6.0  # times the usual variance of a covariate, from which on a segment is not trusted
FLAT = 1e-10  # share of a sum of squares below which a spread may be rounding
COLLINEAR = 1e-6  # share of a covariate's variance that the ones before it must leave


def checked_covariates(given: Any) -> tuple[str, ...]:
    """Names of declared covariates, if they can be kept.

    Examples
    --------
    >>> checked_covariates(["visits_last_month", "spend"])
    ('visits_last_month', 'spend')
    """
    names = tuple(given) if isinstance(given, (list, tuple)) else None
    if names is None or not all(isinstance(name, str) for name in names):
        expected = 'a list of names, such as ["visits_last_month", "spend"]'
        raise InvalidInputError.of("covariates", given, expected)
    if len(names) > MOST:
        raise InvalidInputError(
            f"there are {len(names)} covariates; expected at most {MOST}. Let a model of your own "
            'predict the reward from all of them, and declare its prediction: ["expected"].',
            field="covariates",
        )
    for name in names:
        if names.count(name) > 1:
            raise InvalidInputError(
                f"the covariate {name!r} is declared twice; declare each once.", field="covariates"
            )
    return names


def with_expected(covariates: Any, expected: Any) -> Any:
    """Covariates of a unit with the one that is called "expected", if it is given by itself."""
    if expected is None or not isinstance(covariates, Mapping | None):
        return covariates  # what is no mapping is refused by `covariate_row`
    if covariates and EXPECTED in covariates:
        raise InvalidInputError(
            "the covariate 'expected' is given twice, among covariates and as expected; give it "
            "once.",
            field=EXPECTED,
        )
    return {**(covariates or {}), EXPECTED: expected}


def each_with_expected(
    covariates: Sequence[Any] | None, expected: Sequence[Any] | None
) -> Sequence[Any] | None:
    """Covariates of many units, each with its own "expected", if these are given by themselves."""
    if expected is None:
        return covariates
    known = [None] * len(expected) if covariates is None else covariates
    return [with_expected(each, one) for each, one in zip(known, expected, strict=True)]


def covariate_row(names: tuple[str, ...], given: Any = None, expected: Any = None) -> Floats:
    """(c,) the covariates of one unit, "known" first; those that are not given are zero.

    names : declared; given : numbers by name; expected : the covariate of that name

    Examples
    --------
    >>> covariate_row(("visits", "spend"), {"spend": 41}).tolist()
    [1.0, 0.0, 41.0]
    >>> covariate_row(("visits", "spend")).tolist()
    [0.0, 0.0, 0.0]
    """
    if given is not None and not isinstance(given, Mapping):
        wanted = 'the numbers of a unit by covariate, such as {"spend": 41.0}'
        raise InvalidInputError.of("covariates", given, wanted)
    row = np.zeros(1 + len(names))
    for name, value in (with_expected(given, expected) or {}).items():
        if name not in names:
            declared = f"declared are {', '.join(names)}" if names else "none were declared"
            raise InvalidInputError(
                f"{name!r} is no covariate of this test; {declared}. Covariates are declared when "
                'a test is created: covariates=["spend"].',
                field=EXPECTED if name == EXPECTED and expected is not None else "covariates",
            )
        if value is None:
            continue
        number = finite_number(value, f"the covariate {name!r}")
        if abs(number) > LARGEST:
            limit = f"a number from {-LARGEST:g} to {LARGEST:g}"
            raise InvalidInputError.of(f"the covariate {name!r}", value, limit)
        row[0], row[1 + names.index(name)] = 1.0, number
    return row


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums of the covariates of a segment, by arm; they can be added and come in any order.

    There are n trials, m arms (the columns of the segment) and c covariates. Assignments *count*
    where `SegmentStats` counts them: those with a reward, or all where a missing one is a zero.

    Attributes
    ----------
    assigned : (n, m) assignments
    totals : (n, m, c) sum of z over all assignments
    seen : (n, m, c) sum of z over those that count
    squares : (n, m, c, c) sum of z z' over those that count
    products : (n, m, c) sum of z times the reward
    total_squares : (n, m, c, c) sum of z z' over all assignments
    """

    assigned: Integers
    totals: Floats
    seen: Floats
    squares: Floats
    products: Floats
    total_squares: Floats

    @classmethod
    def empty(cls, trials: int, arms: int, covariates: int) -> Self:
        """Nothing assigned yet; `covariates` counts "known", too."""
        shape = (trials, arms, covariates)
        pairs = (*shape, covariates)
        return cls(
            np.zeros(shape[:2], dtype=np.int64),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(pairs),
            np.zeros(shape),
            np.zeros(pairs),
        )

    @classmethod
    def of_rows(cls, columns: ArrayLike, z: ArrayLike, rewards: ArrayLike, arms: int) -> Self:
        """The sums of N assignments of one trial.

        columns : (N,) the column of each; z : (N, c) with "known" first; rewards : (N,), nan for
        assignments that do not count
        """
        table = np.asarray(z, dtype=np.float64)
        found = cls.empty(1, arms, table.shape[1])
        for column, row, reward in zip(
            np.asarray(columns).tolist(), table, np.asarray(rewards).tolist(), strict=True
        ):
            found.assign(column, row)
            if reward == reward:
                found.record(column, row, reward)
        return found

    def assign(self, column: int, z: Floats) -> None:
        """Count an assignment of a batch of one, in place."""
        self.assigned[0, column] += 1
        self.totals[0, column] += z
        self.total_squares[0, column] += z[:, None] * z

    def record(self, column: int, z: Floats, reward: float) -> None:
        """Count its reward, in place."""
        self.seen[0, column] += z
        self.squares[0, column] += z[:, None] * z
        self.products[0, column] += z * reward

    def __add__(self, other: Moments) -> Moments:
        return Moments(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def trial(self, i: int) -> Moments:
        """Trial i alone, as a batch of one."""
        return Moments(*(getattr(self, f.name)[i : i + 1] for f in fields(self)))

    def negated(self) -> Moments:
        """The same with every reward's sign turned."""
        return replace(self, products=-self.products)

    @property
    def covariates(self) -> int:
        """How many covariates c there are, "known" included."""
        return int(self.totals.shape[2])

    def to_dict(self) -> dict[str, Any]:
        """A batch of one as lists; floats keep their bits in JSON."""
        return {f.name: getattr(self, f.name)[0].tolist() for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], arms: int, covariates: int) -> Self:
        """The sums that `to_dict` wrote; ValueError if they have another shape or are not finite.

        arms : columns of the segment; covariates : "known" included
        """
        expected = cls.empty(1, arms, covariates)
        found = {}
        for f in fields(cls):
            empty = getattr(expected, f.name)
            found[f.name] = array = np.array(data[f.name], dtype=empty.dtype)[None]
            if array.shape != empty.shape or not np.isfinite(array).all():
                raise ValueError(f"the {f.name} of covariates do not fit the segment")
        return cls(**found)


def adjusted(stats: SegmentStats, moments: Moments, slopes: Floats) -> SegmentStats:
    """The statistics of the rewards r - β'(z - z̄), z̄ the mean over all units of the segment.

    stats : with squares, in the columns of the moments
    slopes : (n, c) β; where it is zero, statistics keep their bits

    Examples
    --------
    >>> z = np.array([[1.0, 0.0], [1.0, 2.0]])
    >>> moments = Moments.of_rows([0, 1], z, [5.0, 7.0], arms=2)
    >>> stats = SegmentStats(np.array([[1, 1]]), np.array([[5.0, 7.0]]), np.array([[25.0, 49.0]]))
    >>> adjusted(stats, moments, np.array([[0.0, 0.5]])).sums
    array([[5.5, 6.5]])
    """
    if stats.squares is None:
        raise InvalidInputError(
            "the statistics hold no sums of squared rewards, which covariates need; play the "
            "segment with squares=True."
        )
    sums, squares = stats.sums.copy(), stats.squares.copy()
    _adjust_kernel(
        stats.counts,
        moments.assigned,
        moments.totals,
        moments.seen,
        moments.squares,
        moments.products,
        slopes,
        sums,
        squares,
    )
    return SegmentStats(stats.counts, sums, squares)


def level_variance(moments: Moments, slopes: Floats) -> Floats:
    """(n,) variance of the sum of β'z over all units of a segment, estimated from their spread.

    Adjusted rewards keep the mean β'z̄ of the segment. All arms share it, so that no comparison of
    arms depends on it, but the values of the arms do: units with other covariates might have come.
    """
    out = np.zeros(len(slopes))
    _level_kernel(moments.assigned, moments.totals, moments.total_squares, slopes, out)
    return out


@dataclass(frozen=True, eq=False)
class Slopes:
    """What slopes are fitted from: how covariates and rewards scatter together inside segments.

    Scatter is the sum of products of deviations from the mean of the same segment and arm, or,
    where that would use up most of the segment's rewards, of the same segment. Of the last
    segments, at most `KEPT`, it is kept one by one, so that a wild one can be told from the others.

    Attributes
    ----------
    freedom : (n, G) rewards less the means that were subtracted
    spread : (n, G, c, c) scatter of the covariates
    joint : (n, G, c) scatter of the covariates with the reward
    noise : (n, G) scatter of the reward
    """

    freedom: Floats
    spread: Floats
    joint: Floats
    noise: Floats

    @classmethod
    def none(cls, trials: int, covariates: int) -> Self:
        """Nothing seen yet; `covariates` counts "known", too."""
        c = covariates
        return cls(
            np.zeros((trials, 0)),
            np.zeros((trials, 0, c, c)),
            np.zeros((trials, 0, c)),
            np.zeros((trials, 0)),
        )

    def after(self, stats: SegmentStats, moments: Moments) -> Slopes:
        """With one more segment: its statistics as they were recorded, not adjusted."""
        if stats.squares is None:
            raise InvalidInputError(
                "the statistics hold no sums of squared rewards, which covariates need; play the "
                "segment with squares=True."
            )
        n, c = len(stats.counts), moments.covariates
        more = Slopes(
            np.zeros((n, 1)), np.zeros((n, 1, c, c)), np.zeros((n, 1, c)), np.zeros((n, 1))
        )
        _scatter_kernel(
            stats.counts,
            stats.sums,
            stats.squares,
            moments.seen,
            moments.squares,
            moments.products,
            more.freedom,
            more.spread,
            more.joint,
            more.noise,
        )
        return self + more

    def __add__(self, other: Slopes) -> Slopes:
        """With the segments of another memory, which came later."""
        found = {
            f.name: np.concatenate([getattr(self, f.name), getattr(other, f.name)], axis=1)
            for f in fields(self)
        }
        while found["freedom"].shape[1] > KEPT:
            found = {name: _merged(array) for name, array in found.items()}
        return Slopes(**found)

    def fitted(self, moments: Moments | None = None) -> Floats:
        """(n, c) slopes β; zero until enough is known, and where covariates explain nothing.

        Covariates that did not vary, or that follow from others, get slope zero. All slopes are
        shrunk by what they would explain by chance. Segments in which a covariate scatters far
        more than in the median segment do not count.

        moments : of the segment that is to be adjusted; where its covariates scatter far more
            than before, slopes shrink, which depends on the covariates alone
        """
        n, G, c = self.joint.shape
        out = np.zeros((n, c))
        if not G:
            return out
        now = Moments.empty(n, 1, c) if moments is None else moments
        _fit_kernel(
            self.freedom,
            self.spread,
            self.joint,
            self.noise,
            now.assigned,
            now.totals,
            now.total_squares,
            out,
        )
        return out

    def to_dict(self) -> dict[str, Any]:
        """A batch of one as lists; floats keep their bits in JSON."""
        return {f.name: getattr(self, f.name)[0].tolist() for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], covariates: int) -> Self:
        """What `to_dict` wrote; ValueError if it has another shape or is not finite."""
        c = covariates
        length = len(data["freedom"])
        shapes = {
            "freedom": (1, length),
            "spread": (1, length, c, c),
            "joint": (1, length, c),
            "noise": (1, length),
        }
        found = {}
        for name, shape in shapes.items():
            # Without a segment the inner lists are lost.
            array = np.array(data[name], dtype=np.float64)
            array = array.reshape(shape) if not length else array[None]
            if array.shape != shape or not np.isfinite(array).all() or length > KEPT:
                raise ValueError(f"the {name} of slopes does not fit the covariates")
            found[name] = array
        return cls(**found)


def _merged(array: Floats) -> Floats:
    """Pairs of neighbouring segments added; the last stays alone if their number is odd."""
    even = array[:, 0::2].copy()
    odd = array[:, 1::2]
    even[:, : odd.shape[1]] += odd
    return even


@kernel
def _adjust_kernel(
    counts: Integers,
    assigned: Integers,
    totals: Floats,
    seen: Floats,
    products2: Floats,
    products: Floats,
    slopes: Floats,
    sums: Floats,
    squares: Floats,
) -> None:
    """Turn sums and squares (n, m) into those of adjusted rewards; products2 is (n, m, c, c)."""
    n, m, c = totals.shape
    mean = np.empty(c)
    for i in range(n):
        some = False
        for a in range(c):
            some = some or slopes[i, a] != 0.0
        units = 0
        for k in range(m):
            units += assigned[i, k]
        if not some or units == 0:
            continue
        for a in range(c):
            t = 0.0
            for k in range(m):
                t += totals[i, k, a]
            mean[a] = t / units
        for k in range(m):
            N = counts[i, k]
            if N == 0:
                continue
            shift, cross, form = 0.0, 0.0, 0.0
            for a in range(c):
                beta = slopes[i, a]
                if beta == 0.0:
                    continue
                shift += beta * (seen[i, k, a] - N * mean[a])
                cross += beta * (products[i, k, a] - mean[a] * sums[i, k])
                for b in range(c):
                    if slopes[i, b] != 0.0:
                        around = products2[i, k, a, b] - seen[i, k, a] * mean[b]
                        around += mean[a] * (N * mean[b] - seen[i, k, b])
                        form += beta * slopes[i, b] * around
            total = sums[i, k] - shift
            sums[i, k] = total
            # No numbers with this sum have a smaller sum of squares; rounding might.
            squares[i, k] = max((squares[i, k] - 2.0 * cross) + form, total * total / N)


@kernel
def _scatter_kernel(
    counts: Integers,
    sums: Floats,
    squares: Floats,
    seen: Floats,
    products2: Floats,
    products: Floats,
    freedom: Floats,
    spread: Floats,
    joint: Floats,
    noise: Floats,
) -> None:
    """Scatter of one segment into (n, 1, …) arrays that are zero on entry."""
    n, m, c = seen.shape
    middle = np.empty(c)
    for i in range(n):
        units, inside = 0, 0
        for k in range(m):
            units += counts[i, k]
            inside += max(counts[i, k] - 1, 0)
        if units < 2:
            continue
        by_arm = 2 * inside >= units - 1
        freedom[i, 0] = inside if by_arm else units - 1
        level = 0.0
        for a in range(c):
            middle[a] = 0.0
        for k in range(m):
            N = counts[i, k]
            if N < 2 and by_arm:
                continue
            noise[i, 0] += squares[i, k]
            level += sums[i, k]
            if by_arm:
                noise[i, 0] -= sums[i, k] * sums[i, k] / N
            for a in range(c):
                middle[a] += seen[i, k, a]
                joint[i, 0, a] += products[i, k, a]
                if by_arm:
                    joint[i, 0, a] -= seen[i, k, a] * sums[i, k] / N
                for b in range(c):
                    spread[i, 0, a, b] += products2[i, k, a, b]
                    if by_arm:
                        spread[i, 0, a, b] -= seen[i, k, a] * seen[i, k, b] / N
        if not by_arm:
            noise[i, 0] -= level * level / units
            for a in range(c):
                joint[i, 0, a] -= middle[a] * level / units
                for b in range(c):
                    spread[i, 0, a, b] -= middle[a] * middle[b] / units
        noise[i, 0] = max(noise[i, 0], 0.0)
        for a in range(c):
            size = 0.0
            for k in range(m):
                size += products2[i, k, a, a]
            if not spread[i, 0, a, a] > FLAT * size:
                joint[i, 0, a] = 0.0
                for b in range(c):
                    spread[i, 0, a, b] = 0.0
                    spread[i, 0, b, a] = 0.0


@kernel
def _usual(spread: Floats, freedom: Floats, a: int, values: Floats, weights: Floats) -> float:
    """The lower median over segments of the variance of covariate a, where it varied.

    Segments weigh by their rewards; values and weights are scratch.
    """
    size, total = 0, 0.0
    for g in range(freedom.shape[0]):
        if freedom[g] > 0.0 and spread[g, a, a] > 0.0:
            value = spread[g, a, a] / freedom[g]
            at = size
            while at > 0 and values[at - 1] > value:
                values[at] = values[at - 1]
                weights[at] = weights[at - 1]
                at -= 1
            values[at] = value
            weights[at] = freedom[g]
            total += freedom[g]
            size += 1
    below = 0.0
    for at in range(size):
        below += weights[at]
        if 2.0 * below >= total:
            return float(values[at])
    return 0.0


@kernel
def _fit_kernel(
    freedom: Floats,
    spread: Floats,
    joint: Floats,
    noise: Floats,
    assigned: Integers,
    totals: Floats,
    total_squares: Floats,
    out: Floats,
) -> None:
    """Slopes into out (n, c), zero on entry.

    freedom, spread, joint, noise : the memory; assigned, totals, total_squares : of the segment
    that is to be adjusted, with no assignment if there is none
    """
    n, G, c = joint.shape
    usual, values, weights = np.empty(c), np.empty(G), np.empty(G)
    S, L = np.empty((c, c)), np.empty((c, c))
    b, root = np.empty(c), np.empty(c)
    for i in range(n):
        for a in range(c):
            usual[a] = _usual(spread[i], freedom[i], a, values, weights)
            b[a] = 0.0
            for d in range(c):
                S[a, d] = 0.0
        free, rest = 0.0, 0.0
        for g in range(G):
            tame = True
            for a in range(c):
                tame = tame and spread[i, g, a, a] <= WILD * usual[a] * freedom[i, g]
            if tame:
                free += freedom[i, g]
                rest += noise[i, g]
                for a in range(c):
                    b[a] += joint[i, g, a]
                    for d in range(c):
                        S[a, d] += spread[i, g, a, d]
        # Cholesky factor of the correlations of those that vary and do not follow from others
        used = 0
        explained = 0.0
        for a in range(c):
            root[a] = np.sqrt(max(S[a, a], 0.0))
            for d in range(c):
                L[a, d] = 0.0
        for a in range(c):
            if root[a] == 0.0:
                continue
            pivot = 1.0
            for d in range(a):
                if L[d, d] > 0.0:
                    t = S[a, d] / root[a] / root[d]
                    for e in range(d):
                        t -= L[a, e] * L[d, e]
                    L[a, d] = t / L[d, d]
                    pivot -= L[a, d] * L[a, d]
            if not pivot > COLLINEAR:
                for d in range(a):
                    L[a, d] = 0.0
                continue
            L[a, a] = np.sqrt(pivot)
            used += 1
            t = b[a] / root[a]
            for d in range(a):
                t -= L[a, d] * out[i, d]
            out[i, a] = t / L[a, a]
            explained += out[i, a] * out[i, a]
        enough = used > 0 and free >= NEEDED * used and 0.0 < explained < np.inf
        chance = used * max(rest - explained, 0.0) / max(free - used, 1.0) if enough else 0.0
        if not enough or not chance < explained:
            for a in range(c):
                out[i, a] = 0.0
            continue
        factor = 1.0 - chance / explained
        for a in range(c - 1, -1, -1):
            if L[a, a] == 0.0:
                out[i, a] = 0.0
                continue
            t = out[i, a]
            for d in range(a + 1, c):
                t -= L[d, a] * out[i, d]
            out[i, a] = t / L[a, a]
        usually = factor * factor * explained / free
        for a in range(c):
            out[i, a] = factor * out[i, a] / root[a] if root[a] > 0.0 else 0.0
        now = _variance(assigned[i], totals[i], total_squares[i], out[i])
        if now > WILD * usually:
            for a in range(c):
                out[i, a] *= WILD * usually / now


@kernel
def _variance(assigned: Integers, totals: Floats, total_squares: Floats, beta: Floats) -> float:
    """Of β'z over all assignments of a segment; zero without two."""
    units = 0
    for k in range(assigned.shape[0]):
        units += assigned[k]
    if units < 2:
        return 0.0
    mean, form = 0.0, 0.0
    for a in range(beta.shape[0]):
        for k in range(assigned.shape[0]):
            mean += beta[a] * totals[k, a]
            for d in range(beta.shape[0]):
                form += beta[a] * beta[d] * total_squares[k, a, d]
    return (form - mean * mean / units) / (units - 1)


@kernel
def _level_kernel(
    assigned: Integers, totals: Floats, total_squares: Floats, slopes: Floats, out: Floats
) -> None:
    for i in range(out.shape[0]):
        units = 0
        for k in range(assigned.shape[1]):
            units += assigned[i, k]
        variance = _variance(assigned[i], totals[i], total_squares[i], slopes[i])
        out[i] = units * max(variance, 0.0)
