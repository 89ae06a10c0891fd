"""Covariates: numbers that are known of a unit before it is assigned, and that reduce noise.

With z the covariates of a unit and r its reward, r - β'(z - z̄) is judged in place of r; z̄ is the
mean of z over all units assigned in the same segment. All rounds of a segment have the same
probabilities, and z is known before any is drawn. For every β that does not depend on the draws
of the segment the correction therefore has mean zero, and the estimate stays unbiased whatever
drifts (proof: docs/research/technical_note.md). β is fitted on earlier segments; it may use the
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
COLLINEAR = 1e-6  # eigenvalue of the correlations below which a direction does not vary


def validate_covariates(given: Any) -> tuple[str, ...]:
    """Names of declared covariates, if they can be kept.

    Examples
    --------
    >>> validate_covariates(["visits_last_month", "spend"])
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


def add_expected(covariates: Any, expected: Any) -> Any:
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


def add_expected_to_each(
    covariates: Sequence[Any] | None, expected: Sequence[Any] | None
) -> Sequence[Any] | None:
    """Covariates of many units, each with its own "expected", if these are given by themselves."""
    if expected is None:
        return covariates
    known = [None] * len(expected) if covariates is None else covariates
    return [add_expected(each, one) for each, one in zip(known, expected, strict=True)]


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
    for name, value in (add_expected(given, expected) or {}).items():
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

    def negate(self) -> Moments:
        """The same with every reward's sign turned."""
        return replace(self, products=-self.products)

    @property
    def covariates(self) -> int:
        """The number c of covariates, "known" included."""
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


def adjust_stats(stats: SegmentStats, moments: Moments, slopes: Floats) -> SegmentStats:
    """The statistics of the rewards r - β'(z - z̄), z̄ the mean over all units of the segment.

    stats : with squares, in the columns of the moments
    slopes : (n, c) β; where it is zero, statistics keep their bits

    Examples
    --------
    >>> z = np.array([[1.0, 0.0], [1.0, 2.0]])
    >>> moments = Moments.of_rows([0, 1], z, [5.0, 7.0], arms=2)
    >>> stats = SegmentStats(np.array([[1, 1]]), np.array([[5.0, 7.0]]), np.array([[25.0, 49.0]]))
    >>> adjust_stats(stats, moments, np.array([[0.0, 0.5]])).sums
    array([[5.5, 6.5]])
    """
    if stats.squares is None:
        raise InvalidInputError(
            "the statistics hold no sums of squared rewards, which covariates need; play the "
            "segment with squares=True."
        )
    units = moments.assigned.sum(axis=1)
    used = (units > 0) & slopes.any(axis=1)
    mean = moments.totals.sum(axis=1) / np.maximum(units, 1)[:, None]
    N, level = stats.counts, (slopes * mean).sum(axis=1)[:, None]
    seen = np.einsum("nc,nmc->nm", slopes, moments.seen)
    forms = np.einsum("nc,nmcd,nd->nm", slopes, moments.squares, slopes)
    cross = np.einsum("nc,nmc->nm", slopes, moments.products) - level * stats.sums
    sums = stats.sums - (seen - N * level)
    squares = stats.squares - 2 * cross + (forms - 2 * level * seen + N * level * level)
    # No numbers with this sum have a smaller sum of squares; rounding might.
    squares = np.maximum(squares, sums * sums / np.maximum(N, 1))
    changed = used[:, None] & (N > 0)
    return SegmentStats(
        N, np.where(changed, sums, stats.sums), np.where(changed, squares, stats.squares)
    )


def level_variance(moments: Moments, slopes: Floats) -> Floats:
    """(n,) variance of the sum of β'z over all units of a segment, estimated from their spread.

    Adjusted rewards keep the mean β'z̄ of the segment. All arms share it, so that no comparison of
    arms depends on it, but the values of the arms do: units with other covariates might have come.
    """
    return np.asarray(moments.assigned.sum(axis=1) * np.maximum(_variance(moments, slopes), 0.0))


def _variance(moments: Moments, slopes: Floats) -> Floats:
    """(n,) of β'z over all assignments of a segment; zero without two."""
    units = moments.assigned.sum(axis=1)
    total = np.einsum("nc,nmc->n", slopes, moments.totals)
    form = np.einsum("nc,nmcd,nd->n", slopes, moments.total_squares, slopes)
    variance = (form - total * total / np.maximum(units, 1)) / np.maximum(units - 1, 1)
    return np.where(units > 1, variance, 0.0)


@dataclass(frozen=True, eq=False)
class Slopes:
    """Sums from which slopes are fitted: covariances of covariates and rewards inside segments.

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
        counts, units = stats.counts, stats.counts.sum(axis=1)
        inside = np.maximum(counts - 1, 0).sum(axis=1)
        by_arm = (2 * inside >= units - 1)[:, None]
        used = (units >= 2)[:, None] & ((counts >= 2) | ~by_arm)
        N = np.where(by_arm, counts, units[:, None])
        # sums around which deviations are taken: of the arm, or a part of those of all arms
        seen, sums = np.where(used[..., None], moments.seen, 0.0), np.where(used, stats.sums, 0.0)
        whole, level = seen.sum(axis=1, keepdims=True), sums.sum(axis=1, keepdims=True)
        around = np.where(by_arm[..., None], seen, whole) / np.maximum(N, 1)[..., None]
        height = np.where(by_arm, sums, level) / np.maximum(N, 1)
        squares = np.where(used[..., None, None], moments.squares, 0.0).sum(axis=1)
        spread = squares - np.einsum("nmc,nmd->ncd", seen, around)
        joint = np.where(used[..., None], moments.products, 0.0).sum(axis=1)
        joint -= np.einsum("nmc,nm->nc", seen, height)
        noise = np.where(used, stats.squares, 0.0).sum(axis=1) - (sums * height).sum(axis=1)
        size = np.einsum("nmcc->nc", moments.squares)
        flat = ~(np.einsum("ncc->nc", spread) > FLAT * size)
        spread = np.where(flat[:, :, None] | flat[:, None, :], 0.0, spread)
        freedom = np.where(by_arm[:, 0], inside, units - 1.0)
        more = Slopes(
            np.where(units >= 2, freedom, 0.0)[:, None],
            spread[:, None],
            np.where(flat, 0.0, joint)[:, None],
            np.maximum(noise, 0.0)[:, None],
        )
        return self + more

    def __add__(self, other: Slopes) -> Slopes:
        """With the segments of another memory, which came later."""
        found = {
            f.name: np.concatenate([getattr(self, f.name), getattr(other, f.name)], axis=1)
            for f in fields(self)
        }
        while found["freedom"].shape[1] > KEPT:
            found = {name: _merge(array) for name, array in found.items()}
        return Slopes(**found)

    def fit(self, moments: Moments | None = None) -> Floats:
        """(n, c) slopes β; zero until enough is known, and where covariates explain nothing.

        Covariates that did not vary get slope zero; those that follow from each other share one.
        All slopes are shrunk by what they would explain by chance. Segments in which a covariate
        scatters far more than in the median segment do not count.

        moments : of the segment that is to be adjusted; where its covariates scatter far more
            than before, slopes shrink, which depends on the covariates alone
        """
        if not self.joint.shape[1]:
            return np.zeros((len(self.joint), self.joint.shape[2]))
        with np.errstate(over="ignore", invalid="ignore"):  # products that no double can hold
            free, rest, S, b = self._tame()
            root = np.sqrt(np.maximum(np.einsum("ncc->nc", S), 0.0))
            scale = np.where(root > 0, root, 1.0)
            sizes, axes = np.linalg.eigh(S / scale[:, :, None] / scale[:, None, :])
            inverse = np.where(sizes > COLLINEAR, 1 / np.maximum(sizes, COLLINEAR), 0.0)
            y = np.einsum("nca,nc->na", axes, b / scale)
            used, explained = (inverse > 0).sum(axis=1), (y * y * inverse).sum(axis=1)
            chance = used * np.maximum(rest - explained, 0.0) / np.maximum(free - used, 1.0)
            good = (used > 0) & (free >= NEEDED * used) & (chance < explained)
            good &= (explained > 0) & (explained < np.inf)
            factor = np.where(good, 1.0 - chance / np.where(good, explained, 1.0), 0.0)
            solved = np.einsum("nca,na->nc", axes, y * inverse)
            beta = np.where(good[:, None], factor[:, None] * solved / scale, 0.0)
            if moments is None:
                return beta
            usually = WILD * factor * factor * explained / np.maximum(free, 1.0)
            now = _variance(moments, beta)
            wild = good & (now > usually)
            return beta * np.where(wild, usually / np.where(wild, now, 1.0), 1.0)[:, None]

    def _tame(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Sums of freedom, noise, spread and joint over segments without wild covariates.

        A covariate is wild where its variance is far above the lower median over segments, which
        weigh by their rewards.
        """
        size, freedom = np.einsum("ngcc->ngc", self.spread), self.freedom[:, :, None]
        varied = (freedom > 0) & (size > 0)
        variance = np.where(varied, size / np.maximum(freedom, 1.0), np.inf)
        order = np.argsort(variance, axis=1)
        below = np.cumsum(np.take_along_axis(np.where(varied, freedom, 0.0), order, 1), axis=1)
        middle = (2 * below >= below[:, -1:]).argmax(axis=1)[:, None]
        usual = np.take_along_axis(np.take_along_axis(variance, order, 1), middle, 1)
        usual = np.where(below[:, -1:] > 0, usual, 0.0)
        tame = (size <= WILD * usual * freedom).all(axis=2)
        return (
            (self.freedom * tame).sum(axis=1),
            (self.noise * tame).sum(axis=1),
            np.where(tame[:, :, None, None], self.spread, 0.0).sum(axis=1),
            np.where(tame[:, :, None], self.joint, 0.0).sum(axis=1),
        )

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


def _merge(array: Floats) -> Floats:
    """Pairs of neighbouring segments added; the last stays alone if their number is odd."""
    even = array[:, 0::2].copy()
    odd = array[:, 1::2]
    even[:, : odd.shape[1]] += odd
    return even
