"""Ways to take many arms together: by the levels of a factor, by an item, by their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy
from numpy.typing import NDArray

from steadyarm.arms.names import BETWEEN, BundleNames, FactorialNames
from steadyarm.inference.evidence import LoggedSegment
from steadyarm.inference.sampling_variance import (
    NEGLIGIBLE,
    NORMAL,
    STRATUM,
    WHOLE,
    binomial_tails,
    normalised,
    standardised,
)

# Ways to take many arms together: by the levels of a factor, by an item, by their place.


Indices = NDArray[np.int64]

RANGES = 50  # groups of neighbouring arms
MOST_ITEMS = 200  # of bundles that are looked at one by one


@dataclass(frozen=True, eq=False)
class Trait:
    """Groups that many arms fall into.

    Attributes
    ----------
    groups : what the arms of each group have in common, such as "variants with hat=yes"
    labels : (U,) the group of each arm
    """

    groups: tuple[str, ...]
    labels: Indices


def traits_of(names: Sequence[str], arms: Indices) -> list[Trait]:
    """By the levels of each factor or by each item, and by neighbours.

    Examples
    --------
    >>> names = FactorialNames({"size": ("S", "L"), "hat": ("no", "yes")})
    >>> size, hat, near = traits_of(names, np.arange(4))
    >>> hat.groups, hat.labels.tolist()
    (('variants with hat=no', 'variants with hat=yes'), [0, 1, 0, 1])
    """
    if isinstance(names, FactorialNames):
        return [*_by_level(names, arms), _by_place(names, arms)]
    if isinstance(names, BundleNames) and len(names.items) <= MOST_ITEMS:
        return [*_by_item(names, arms), _by_place(names, arms)]
    return [_by_place(names, arms)]


def _by_level(names: FactorialNames, arms: Indices) -> list[Trait]:
    found, rest = [], arms
    for factor, levels in reversed(list(names.levels.items())):
        rest, labels = np.divmod(rest, len(levels))
        groups = tuple(f"variants with {factor}={level}" for level in levels)
        found.append(Trait(groups, labels))
    return found[::-1]


def _by_item(names: BundleNames, arms: Indices) -> list[Trait]:
    held = [set(names[k].split(BETWEEN)) for k in arms.tolist()]
    return [
        Trait(
            (f"variants without {item}", f"variants with {item}"),
            np.array([item in one for one in held], dtype=np.int64),
        )
        for item in names.items
    ]


def _by_place(names: Sequence[str], arms: Indices) -> Trait:
    labels = np.arange(len(arms)) * min(RANGES, len(arms)) // len(arms)
    firsts = np.flatnonzero(np.diff(labels, prepend=-1))
    lasts = np.append(firsts[1:], len(arms)) - 1
    groups = tuple(
        f"the {last - first + 1:,} variants from {names[int(arms[first])]} to "
        f"{names[int(arms[last])]}"
        for first, last in zip(firsts, lasts, strict=True)
    )
    return Trait(groups, labels.astype(np.int64))


# Counts of many arms against what they should be: each arm by itself, and arms taken together.


Floats = NDArray[np.float64]

FURTHEST = 20  # arms that are told of, where it is single arms that are off


@dataclass(eq=False)
class Crowd:
    """Counts of U arms summed over a test, and what they should be.

    Attributes
    ----------
    arms : (U,) which they are
    traits : ways to take them together
    observed, expected, variance, hits : (U,) as in `Balance`, with the covariance's diagonal
    covariances : (G, G) of the groups of each trait
    draws : as in `Balance`, the same for all arms
    """

    arms: Indices
    traits: list[Trait]
    observed: Floats = field(init=False)
    expected: Floats = field(init=False)
    variance: Floats = field(init=False)
    hits: Floats = field(init=False)
    covariances: list[Floats] = field(init=False)
    draws: float = 0.0

    def __post_init__(self) -> None:
        size = len(self.arms)
        self.observed, self.expected, self.variance, self.hits = np.zeros((4, size))
        self.covariances = [np.zeros((len(t.groups), len(t.groups))) for t in self.traits]

    def surprise(self, names: Sequence[str], sign: int) -> Found:
        """The smallest p-value times how many there are, and whose it is.

        sign : 1 if only too many of something is a fault, when the culprit is looked for
        """
        tests = [self._arms(), *(self._groups(i) for i in range(len(self.traits)))]
        first = int(np.argmin([test[0] for test in tests]))
        p = min(1.0, len(tests) * tests[first][0])
        if p >= 1 or first:
            trait = self.traits[max(first, 1) - 1]
            _, statistic, freedom = tests[max(first, 1)]
            observed, expected = self._sums(max(first, 1) - 1)
            variance = np.diag(self.covariances[max(first, 1) - 1])
            groups: tuple[str, ...] = trait.groups
        else:
            residuals = standardised(self.observed - self.expected, self.variance, WHOLE)
            size = residuals if sign else np.abs(residuals)
            shown = np.sort(np.argsort(-size, kind="stable")[:FURTHEST])
            groups = tuple(names[k] for k in self.arms[shown].tolist())
            observed, expected = self.observed[shown], self.expected[shown]
            variance, statistic, freedom = self.variance[shown], 0.0, 0
        residuals = standardised(observed - expected, variance, WHOLE)
        return Found(p, statistic, freedom, groups, observed, expected, residuals, bool(first))

    def _sums(self, i: int) -> tuple[Floats, Floats]:
        labels, G = self.traits[i].labels, len(self.traits[i].groups)
        return _summed(labels, self.observed, G), _summed(labels, self.expected, G)

    def _arms(self) -> tuple[float, float, int]:
        """Tails of single arms; no count of independent draws has heavier ones (Hoeffding 1956)."""
        off = np.abs(self.observed - self.expected)
        if ((self.variance <= NEGLIGIBLE) & (off > WHOLE)).any():
            return 0.0, 0.0, 0
        tails = binomial_tails(off, np.full_like(off, self.draws), self.hits)
        varies = self.variance > NEGLIGIBLE
        least = float(tails[varies].min(initial=1.0))
        return min(1.0, least * max(int(varies.sum()), 1)), 0.0, 0

    def _groups(self, i: int) -> tuple[float, float, int]:
        """Chi-squared of the directions that vary by at least ten counts."""
        observed, expected = self._sums(i)
        off, covariance = observed - expected, self.covariances[i]
        if ((np.diag(covariance) <= NEGLIGIBLE) & (np.abs(off) > WHOLE)).any():
            return 0.0, 0.0, 0
        values, vectors = np.linalg.eigh(covariance)
        usable = values >= NORMAL
        freedom = int(usable.sum())
        if not freedom:
            return 1.0, 0.0, 0
        statistic = float(((off @ vectors[:, usable]) ** 2 / values[usable]).sum())
        return float(scipy.stats.chi2.sf(statistic, freedom)), statistic, freedom


@dataclass(frozen=True, eq=False)
class Found:
    """What was found; the groups are those of one trait, or single arms."""

    p_value: float
    statistic: float
    freedom: int
    groups: tuple[str, ...]
    observed: Floats
    expected: Floats
    residuals: Floats
    together: bool


def columns_of(log: Sequence[LoggedSegment], count: int) -> Indices:
    """The arms that any of the segments plays."""
    everything = np.arange(count, dtype=np.int64)
    lists = [everything if p.segment.arms is None else p.segment.arms for p in log]
    return np.unique(np.concatenate([everything[:0], *lists]))


def assignment_crowd(names: Sequence[str], log: Sequence[LoggedSegment]) -> Crowd:
    """`assignment_balance` for many arms, of a single test."""
    arms = columns_of(log, len(names))
    crowd = Crowd(arms, traits_of(names, arms))
    for piece in log:
        w, place = normalised(piece.segment)[0], _places(arms, piece)
        rows = float(piece.rows[0])
        crowd.observed[place] += piece.assigned[0]
        crowd.expected[place] += rows * w
        ends = _ends(w, piece.segment.block) if piece.segment.order == "blocks" else None
        start = np.zeros_like(w) if ends is None else _start_variance(ends)
        crowd.variance[place] += _row_spread(piece, w * (1 - w), start)
        draws, hits = _row_draws(piece, w, start)
        crowd.draws += draws
        crowd.hits[place] += hits
        for trait, total in zip(crowd.traits, crowd.covariances, strict=True):
            labels, G = trait.labels[place], len(trait.groups)
            shares = _summed(labels, w, G)
            one = np.diag(shares) - np.outer(shares, shares)
            full = np.zeros_like(one) if ends is None else _start_groups(ends, labels, G)
            total += _row_spread(piece, one, full)
    return crowd


def attrition_crowd(names: Sequence[str], log: Sequence[LoggedSegment]) -> Crowd:
    """`attrition_balance` for many arms, of a single test."""
    arms = columns_of(log, len(names))
    crowd = Crowd(arms, traits_of(names, arms))
    for assigned, missing in _strata(arms, log):
        rows, gone = float(assigned.sum()), float(missing.sum())
        share = assigned / max(rows, 1.0)
        crowd.observed += missing
        crowd.expected += gone * share
        crowd.variance += _part(share * (1 - share), np.zeros_like(share), rows, gone)
        draws, few = (gone, True) if gone <= rows / 2 else (rows - gone, False)
        crowd.draws += draws
        crowd.hits += draws * (share if few else 1 - share)
        for trait, total in zip(crowd.traits, crowd.covariances, strict=True):
            shares = _summed(trait.labels, share, len(trait.groups))
            one = np.diag(shares) - np.outer(shares, shares)
            total += _part(one, np.zeros_like(one), rows, gone)
    return crowd


def _summed(labels: Indices, values: Floats, groups: int) -> Floats:
    return np.bincount(labels, values, groups).astype(np.float64)


def _places(arms: Indices, piece: LoggedSegment) -> Indices:
    played = piece.segment.arms
    return np.arange(len(arms)) if played is None else np.searchsorted(arms, played)


def _strata(arms: Indices, log: Sequence[LoggedSegment]) -> Iterator[tuple[Floats, Floats]]:
    """(U,) rows, and rows without reward, of consecutive segments with enough rows together."""
    assigned, missing = np.zeros((2, len(arms)))
    for piece in log:
        place = _places(arms, piece)
        assert piece.rewarded is not None
        assigned[place] += piece.assigned[0]
        missing[place] += piece.assigned[0] - piece.rewarded[0]
        if assigned.sum() >= STRATUM:
            yield assigned, missing
            assigned, missing = np.zeros((2, len(arms)))
    if assigned.any():
        yield assigned, missing


def _part(one: Floats, full: Floats, size: float, rows: float) -> Floats:
    """Covariance of counts in a random part, as in `luck.py`; of any linear functions of them."""
    size = max(size, 1.0)
    rows = min(rows, size)
    luck = rows * (size - rows) / max(size - 1, 1.0)
    return np.asarray((rows / size) ** 2 * full + luck * (one - full / size**2))


def _row_spread(piece: LoggedSegment, one: Floats, start: Floats) -> Floats:
    """Covariance of rows, given their number, from that of one draw and of one block."""
    rows, segment = float(piece.rows[0]), piece.segment
    if segment.order == "iid":
        return rows * one
    if segment.order == "shuffled":
        return _part(one, np.zeros_like(one), float(segment.rounds[0]), rows)
    b, handed = float(segment.block), float(piece.positions[0])
    full = handed // b * start + _part(one, start, b, handed % b)
    return _part(one, full, handed, rows)


def _row_draws(piece: LoggedSegment, w: Floats, start: Floats) -> tuple[float, Floats]:
    """Draws and hits of the rows per arm, as in `luck.py`."""
    rows, segment = float(piece.rows[0]), piece.segment
    if segment.order == "iid":
        return rows, rows * w
    b, handed = float(segment.block), float(piece.positions[0])
    if segment.order == "shuffled":
        return _part_draws(w, float(segment.rounds[0]), rows)
    cut_draws, cut_hits = _part_draws(w, b, handed % b)
    draws, hits = _part_draws(w, handed, rows)
    uneven = float(np.ceil(handed / b)) if start.any() else 0.0
    exact = w * b
    fraction = np.where(np.abs(exact - np.rint(exact)) < WHOLE, 0.0, exact % 1.0)
    return draws + cut_draws + uneven, hits + cut_hits + uneven * fraction


def _part_draws(w: Floats, size: float, rows: float) -> tuple[float, Floats]:
    size = max(size, 1.0)
    rows = min(rows, size)
    if rows <= size / 2:
        return rows, rows * w
    return size - rows, (size - rows) * (1 - w)


def _ends(w: Floats, block: int) -> Floats:
    """(m,) fractional parts of where the arms end in a block, see `luck.py`."""
    ends = np.cumsum(w) * block
    return np.where(np.abs(ends - np.rint(ends)) < WHOLE, 0.0, ends - np.floor(ends))


def _start_variance(f: Floats) -> Floats:
    """(m,) variance of an arm's count in a block, from the random start alone."""
    before = np.concatenate([[0.0], f[:-1]])
    both = np.minimum(f, before) - f * before
    return np.asarray(np.maximum(f * (1 - f) + before * (1 - before) - 2 * both, 0.0))


def _start_groups(f: Floats, labels: Indices, groups: int) -> Floats:
    """(G, G) the same of groups of arms.

    A group's count is a sum of ± 1{u < f} over the places where it begins and ends. Between two
    neighbouring values of f it is constant in u, so its second moment is a sum over these.
    """
    places = np.arange(len(f))
    B = np.zeros((groups, len(f)))
    B[labels, places] += 1.0
    B[labels[1:], places[:-1]] -= 1.0
    order = np.argsort(-f, kind="stable")
    steps = np.cumsum(B[:, order], axis=1)
    widths = -np.diff(f[order], append=0.0)
    mean = B @ f
    return np.asarray((steps * widths) @ steps.T - np.outer(mean, mean))
