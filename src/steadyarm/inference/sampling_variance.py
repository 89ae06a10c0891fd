"""How far the counts of a log may be from their expectations by chance, for every order of draws.

Counts minus expectations are sums of martingale differences whatever the policy did, so their
squared length, measured by the summed covariances, is chi-squared in large samples. Covariances
are those of groups of arms: each arm by itself where there are few, else arms with something in
common, such as a level of a factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, chdtrc

from steadyarm.arms.recipes import BETWEEN, BundleNames, FactorialNames
from steadyarm.errors import InvalidInputError
from steadyarm.segments import Segment

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

NORMAL = 10.0  # variance from which on a count is taken as normal
RARE = 0.1  # share of the error probability spent on arms with less
NEGLIGIBLE = 1e-9  # variance of a count that cannot vary
WHOLE = 1e-6  # block * weight this near to a whole number is one
STRATUM = 30  # rows in which missing rewards are compared
RANGES = 50  # groups of neighbouring arms
MOST_ITEMS = 200  # items of bundles up to which each makes a grouping


@dataclass(frozen=True, eq=False)
class LoggedSegment:
    """What a log says of one segment of n tests; n = 1 for a single test.

    Attributes
    ----------
    segment : its allocation, and how its rounds were drawn
    assigned : (n, K) rows in the log, per arm
    positions : (n,) positions assigned so far; None for all of the segment's rounds
    rewarded : (n, K) rows that have a reward; None if this is not known

    Examples
    --------
    >>> segment = Segment(np.array([[0.5, 0.5]]), np.array([100]))
    >>> LoggedSegment(segment, np.array([[48, 51]])).lost
    array([1])
    """

    segment: Segment
    assigned: Integers
    positions: Integers | None = None
    rewarded: Integers | None = None

    def __post_init__(self) -> None:
        shape = self.segment.weights.shape
        for what, counts, expected in (
            ("assigned", self.assigned, shape),
            ("positions", self.positions, shape[:1]),
            ("rewarded", self.rewarded, shape),
        ):
            if counts is None:
                continue
            if not isinstance(counts, np.ndarray) or not np.issubdtype(counts.dtype, np.integer):
                raise InvalidInputError.of(what, counts, "an array of whole numbers")
            if counts.shape != expected or (counts < 0).any():
                raise InvalidInputError(
                    f"{what} has shape {counts.shape} and least value "
                    f"{counts.min(initial=0)}; expected shape {expected} and no negative counts."
                )
        if self.rewarded is not None and (self.rewarded > self.assigned).any():
            raise InvalidInputError(
                "rewarded exceeds assigned for some arm; count each assignment once, with or "
                "without its reward."
            )
        if (self.opened > self.segment.rounds).any():
            raise InvalidInputError(
                f"positions is {self.opened.tolist()}, more than the segment's rounds "
                f"{self.segment.rounds.tolist()}; a segment has one position a round."
            )

    @property
    def rows(self) -> Integers:
        """(n,) rows in the log."""
        return np.asarray(self.assigned.sum(axis=1))

    @property
    def opened(self) -> Integers:
        """(n,) positions that were assigned."""
        return self.segment.rounds if self.positions is None else self.positions

    @property
    def lost(self) -> Integers:
        """(n,) assigned positions without a row."""
        return np.asarray(np.maximum(self.opened - self.rows, 0))


@dataclass(frozen=True, eq=False)
class Grouping:
    """Groups that arms fall into.

    Attributes
    ----------
    groups : what the arms of each group have in common, such as "variants with hat=yes"
    labels : (U,) the group of each arm
    """

    groups: tuple[str, ...]
    labels: Integers

    def sums(self, values: Floats) -> Floats:
        """(n, G) sums over the arms of each group, of values (n, U)."""
        out = np.zeros((len(values), len(self.groups)))
        np.add.at(out.T, self.labels, values.T)
        return out


def each_by_itself(arms: int) -> Grouping:
    """Every arm is a group."""
    return Grouping(("",) * arms, np.arange(arms))


def common_features(names: Sequence[str], arms: Integers) -> list[Grouping]:
    """Many arms grouped by the levels of each factor or by each item, and by neighbours.

    Examples
    --------
    >>> names = FactorialNames({"size": ("S", "L"), "hat": ("no", "yes")})
    >>> size, hat, near = common_features(names, np.arange(4))
    >>> hat.groups, hat.labels.tolist()
    (('variants with hat=no', 'variants with hat=yes'), [0, 1, 0, 1])
    """
    found: list[Grouping] = []
    if isinstance(names, FactorialNames):
        rest = arms
        for factor, levels in reversed(list(names.levels.items())):
            rest, labels = np.divmod(rest, len(levels))
            groups = tuple(f"variants with {factor}={level}" for level in levels)
            found.insert(0, Grouping(groups, labels))
    elif isinstance(names, BundleNames) and len(names.items) <= MOST_ITEMS:
        bundles = [set(names[k].split(BETWEEN)) for k in arms.tolist()]
        for item in names.items:
            groups = (f"variants without {item}", f"variants with {item}")
            holds = np.array([item in bundle for bundle in bundles], dtype=np.int64)
            found.append(Grouping(groups, holds))
    labels = np.arange(len(arms)) * min(RANGES, len(arms)) // len(arms)
    firsts = np.flatnonzero(np.diff(labels, prepend=-1))
    lasts = np.append(firsts[1:], len(arms)) - 1
    groups = tuple(
        f"the {last - first + 1:,} variants from {names[int(arms[first])]} to "
        f"{names[int(arms[last])]}"
        for first, last in zip(firsts, lasts, strict=True)
    )
    return [*found, Grouping(groups, labels.astype(np.int64))]


@dataclass(frozen=True, eq=False)
class Balance:
    """Counts of n tests, and how far they may be from what they should be.

    Attributes
    ----------
    observed, expected, variance : (n, U) of each arm
    hits, draws : (n, U) and (n,): each arm's difference is that of so many independent yes-or-no
        draws, with so many expected to be yes, or varies less
    covariances : (n, G, G) of the counts of the groups of each grouping
    """

    observed: Floats
    expected: Floats
    variance: Floats
    hits: Floats
    draws: Floats
    covariances: tuple[Floats, ...]

    @property
    def _parts(self) -> tuple[Floats, ...]:
        arms = self.observed, self.expected, self.variance, self.hits
        return *arms, self.draws, *self.covariances

    def __add__(self, other: Balance) -> Balance:
        return _balance(a + b for a, b in zip(self._parts, other._parts, strict=True))

    @property
    def total(self) -> Balance:
        """The n tests as one."""
        return _balance(part.sum(axis=0, keepdims=True) for part in self._parts)


def _balance(parts: Iterable[Floats]) -> Balance:
    observed, expected, variance, hits, draws, *covariances = parts
    return Balance(observed, expected, variance, hits, draws, tuple(covariances))


def total_of(balances: Iterable[Balance]) -> Balance:
    """The sum over the segments of a log."""
    found = iter(balances)
    total = next(found, None)
    if total is None:
        raise InvalidInputError("there is no segment in the log; give at least one.")
    return sum(found, start=total)


def surprise(balance: Balance) -> tuple[Floats, Floats, Integers]:
    """(n,) probability of counts at least as far off, the chi-squared statistic, its freedom.

    For arms each by itself. Directions with a variance of at least 10 counts make the statistic.
    Arms whose count has less are judged one by one by binomial tails, and share a tenth of the
    error probability (all of it if there is nothing else). A count that cannot vary and is off has
    probability 0.
    """
    off, variance = balance.observed - balance.expected, balance.variance
    p_common, statistic, freedom = chi_squared(off, balance.covariances[0])
    rare = (variance < NORMAL) & (variance > NEGLIGIBLE)
    p_rare = _least_tail(balance, rare)
    any_rare = rare.any(axis=1)
    p_value = np.where(any_rare, p_rare, p_common)
    both = np.minimum(p_common / (1 - RARE), p_rare / RARE)
    p_value = np.where(any_rare & (freedom > 0), both, p_value)
    stuck = ((variance <= NEGLIGIBLE) & (np.abs(off) > WHOLE)).any(axis=1)
    return np.where(stuck, 0.0, np.minimum(p_value, 1.0)), statistic, freedom


def surprise_by_arm(balance: Balance) -> Floats:
    """(n,) probability of any single count being so far off, by Bonferroni."""
    off, varies = balance.observed - balance.expected, balance.variance > NEGLIGIBLE
    stuck = (~varies & (np.abs(off) > WHOLE)).any(axis=1)
    return np.where(stuck, 0.0, np.minimum(_least_tail(balance, varies), 1.0))


def _least_tail(balance: Balance, among: Booleans) -> Floats:
    """(n,) the least tail probability of these arms times their number.

    No sum of independent yes-or-no draws, such as draws without replacement are too, has heavier
    tails than the binomial distribution (Hoeffding 1956).
    """
    off, hits, draws = balance.observed - balance.expected, balance.hits, balance.draws[:, None]
    p, x = np.clip(hits / np.maximum(draws, 1.0), 0.0, 1.0), np.abs(off)
    above = _binomial(betainc, np.ceil(hits + x - WHOLE) - 1, draws, p, beyond=(1.0, 0.0))
    below = _binomial(betaincc, np.floor(hits - x + WHOLE), draws, p, beyond=(0.0, 1.0))
    tails = np.where(x < 1 - WHOLE, 1.0, np.minimum(above + below, 1.0))
    return np.asarray(np.where(among, tails, 1.0).min(axis=1) * np.maximum(among.sum(axis=1), 1))


def _binomial(
    tail: np.ufunc, k: Floats, draws: Floats, p: Floats, beyond: tuple[float, float]
) -> Floats:
    """Probability of more than k hits (`betainc`), or of at most k (`betaincc`).

    `draws` need not be whole; `beyond` holds the values for k < 0 and k >= draws.
    """
    inside = (k >= 0) & (k < draws)
    found = tail(np.where(inside, k + 1, 1.0), np.where(inside, draws - k, 1.0), p)
    return np.where(inside, found, np.where(k < 0, *beyond))


def chi_squared(off: Floats, covariance: Floats) -> tuple[Floats, Floats, Integers]:
    """(n,) p-value, statistic and freedom of the directions that vary by at least ten counts.

    off : (n, G) differences; covariance : (n, G, G)
    """
    values, vectors = np.linalg.eigh(covariance)
    lengths = np.einsum("nkd,nk->nd", vectors, off)
    usable = values >= NORMAL
    statistic = np.where(usable, lengths**2 / np.where(usable, values, 1.0), 0.0).sum(axis=1)
    freedom = usable.sum(axis=1)
    p_value = np.where(freedom > 0, chdtrc(np.maximum(freedom, 1), statistic), 1.0)
    return p_value, statistic, freedom


def standardised(difference: Floats, variance: Floats, slack: float = WHOLE) -> Floats:
    """Differences in standard deviations; infinite where there is none but they exceed `slack`."""
    known = variance > NEGLIGIBLE
    off = np.abs(difference) > slack
    fixed = np.select([off & (difference > 0), off], [np.inf, -np.inf], 0.0)
    return np.where(known, difference / np.sqrt(np.where(known, variance, 1.0)), fixed)


def assignment_balance(piece: LoggedSegment, groupings: Sequence[Grouping]) -> Balance:
    """Rows per arm against the logged allocation, given the number of rows.

    Rows may have been lost. If arms lose alike, the rows of a segment are a random part of it, and
    the covariance is that of drawing without replacement.
    """
    weights, rows = normalised(piece.segment), piece.rows.astype(np.float64)
    blocks = piece.segment.order == "blocks"
    ends = _block_ends(weights, piece.segment.block) if blocks else np.zeros_like(weights)
    before = np.concatenate([np.zeros((len(ends), 1)), ends[:, :-1]], axis=1)
    both = np.minimum(ends, before) - ends * before
    start = np.maximum(ends * (1 - ends) + before * (1 - before) - 2 * both, 0.0)

    def covariance(grouping: Grouping) -> Floats:
        one = _one_draw(grouping.sums(weights))
        block = _one_block(weights, ends, grouping) if blocks else np.zeros_like(one)
        return _row_covariance(piece, rows, one, block)

    draws, hits = _row_draws(piece, weights, rows, start)
    return Balance(
        piece.assigned.astype(np.float64),
        rows[:, None] * weights,
        _row_covariance(piece, rows, weights * (1 - weights), start),
        hits,
        draws,
        tuple(covariance(grouping) for grouping in groupings),
    )


def attrition_balance(
    pieces: Iterable[LoggedSegment], groupings: Sequence[Grouping]
) -> Iterator[Balance]:
    """Rows without reward per arm, given how many each segment has and which arms it assigned.

    Within a segment every row is as likely to miss its reward if arms do not matter (the
    generalised test of Cochran, Mantel and Haenszel), so rates may move with the allocation.
    Segments of fewer than 30 rows, which alone say little or nothing, are joined with the next.
    """
    for assigned, missing in _strata(pieces):
        rows, gone = assigned.sum(axis=1), missing.sum(axis=1)
        share = assigned / np.maximum(rows, 1)[:, None]
        draws, hits = _part_draws(share, rows, gone)
        yield Balance(
            missing,
            gone[:, None] * share,
            _part(share * (1 - share), rows, gone),
            hits,
            draws,
            tuple(_part(_one_draw(grouping.sums(share)), rows, gone) for grouping in groupings),
        )


def _strata(pieces: Iterable[LoggedSegment]) -> Iterator[Floats]:
    """(2, n, K) rows, and rows without reward, of consecutive segments with enough rows."""
    joined: Floats | None = None
    for piece in pieces:
        if piece.rewarded is None:
            raise InvalidInputError(
                "a segment has no rewarded counts, which attrition needs; make its LoggedSegment "
                "with rewarded."
            )
        counts = np.array([piece.assigned, piece.assigned - piece.rewarded], dtype=np.float64)
        joined = counts if joined is None else joined + counts
        if (joined[0].sum(axis=1) >= STRATUM).all():
            yield joined
            joined = None
    if joined is not None:
        yield joined


def normalised(segment: Segment) -> Floats:
    """Weights that sum to one; zero where nothing was played."""
    total = segment.weights.sum(axis=1)
    proper = (segment.weights >= 0).all(axis=1) & (np.abs(total - 1) < 1e-3)  # False for nan
    if not (proper | (segment.rounds == 0)).all():
        raise InvalidInputError(
            f"a segment's weights are negative, nan or do not sum to one (sums from "
            f"{total.min():g} to {total.max():g}); expected the probabilities of all arms."
        )
    weights = np.where(proper[:, None], segment.weights, 0.0)
    return np.asarray(weights / np.where(proper, total, 1.0)[:, None])


def impossible_counts(piece: LoggedSegment) -> Booleans:
    """(n, K) counts that cannot be, whatever the draws."""
    segment, counts, weights = piece.segment, piece.assigned, normalised(piece.segment)
    opened, lost = piece.opened[:, None], piece.lost[:, None]
    too_many = (piece.rows > piece.opened)[:, None] & (counts > 0)
    if segment.order == "iid":
        return np.asarray(too_many | ((counts > 0) & (weights <= 0)))
    if segment.order == "shuffled":
        return np.asarray(too_many | (counts > segment.counts))
    b = segment.block
    least, most = np.floor(weights * b + WHOLE), np.ceil(weights * b - WHOLE)
    cut = opened % b
    low = opened // b * least + np.maximum(0, cut - (b - least)) - lost
    high = opened // b * most + np.minimum(cut, most)
    return np.asarray(too_many | (counts < low) | (counts > high))


def _row_covariance(piece: LoggedSegment, rows: Floats, one: Floats, start: Floats) -> Floats:
    """(n, ...) covariance of rows, given their number, from that of one draw and of one block."""
    segment = piece.segment
    if segment.order == "iid":
        return _along(rows, one) * one
    if segment.order == "shuffled":
        return _part(one, segment.rounds.astype(np.float64), rows)
    b, opened = float(segment.block), piece.opened.astype(np.float64)
    whole, cut = opened // b, opened % b
    full = _along(whole, start) * start + _part(one, np.full_like(cut, b), cut, start)
    return _part(one, opened, rows, full)


def _part(one: Floats, size: Floats, rows: Floats, full: Floats | float = 0.0) -> Floats:
    """(n, ...) covariance of counts in a random part of `rows` out of `size` positions.

    one : covariance of a single draw; full : of the counts in all positions
    """
    size = np.maximum(size, 1.0)
    rows = np.minimum(rows, size)
    drawn = _along(rows * (size - rows) / np.maximum(size - 1, 1), one)
    share, size = _along(rows / size, one), _along(size, one)
    return np.asarray(share**2 * full + drawn * (one - full / size**2))


def _along(values: Floats, like: Floats) -> Floats:
    """(n,) values with further axes of length 1, to multiply (n, ...) with."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def _row_draws(
    piece: LoggedSegment, weights: Floats, rows: Floats, start: Floats
) -> tuple[Floats, Floats]:
    """Draws (n,) and hits (n, K) of the rows per arm, given their number."""
    segment, opened = piece.segment, piece.opened.astype(np.float64)
    if segment.order == "iid":
        return rows, rows[:, None] * weights
    if segment.order == "shuffled":
        return _part_draws(weights, segment.rounds.astype(np.float64), rows)
    b = float(segment.block)
    cut_draws, cut_hits = _part_draws(weights, np.full_like(opened, b), opened % b)
    draws, hits = _part_draws(weights, opened, rows)
    # Rounding up or down is one more draw a block, unless there is nothing to round.
    uneven = np.where((start > NEGLIGIBLE).any(axis=1), np.ceil(opened / b), 0.0)
    exact = weights * b
    fraction = np.where(np.abs(exact - np.rint(exact)) < WHOLE, 0.0, exact % 1.0)
    return draws + cut_draws + uneven, hits + cut_hits + uneven[:, None] * fraction


def _part_draws(weights: Floats, size: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Draws and hits of a random part: of those left out, if they are fewer."""
    size = np.maximum(size, 1.0)
    rows = np.minimum(rows, size)
    few = rows <= size / 2
    draws = np.where(few, rows, size - rows)
    return draws, draws[:, None] * np.where(few[:, None], weights, 1 - weights)


def _one_draw(shares: Floats) -> Floats:
    """(n, G, G) covariance of a single draw."""
    out: Floats = -shares[:, :, None] * shares[:, None, :]
    k = np.arange(shares.shape[1])
    out[:, k, k] += shares
    return out


def _block_ends(weights: Floats, block: int) -> Floats:
    """(n, U) fractional parts of where the arms end in a block, by systematic sampling.

    With a uniform start u the first k arms get ⌊e⌋ + 1{u < e - ⌊e⌋} positions, e = block * their
    weight.
    """
    ends = np.cumsum(weights, axis=1) * block
    return np.where(np.abs(ends - np.rint(ends)) < WHOLE, 0.0, ends - np.floor(ends))


def _one_block(weights: Floats, ends: Floats, grouping: Grouping) -> Floats:
    """(n, G, G) covariance of the counts of a block, from its random start u alone.

    A group's count is a sum of ± 1{u < end} over the places where it begins and ends. Between two
    neighbouring values of the ends it is constant in u, so its second moment is a sum over these.
    """
    played = np.flatnonzero((weights > 0).any(axis=0))  # others begin where they end
    f, labels = ends[:, played], grouping.labels[played]
    places = np.arange(len(played))
    signs = np.zeros((len(grouping.groups), len(played)))
    signs[labels, places] += 1.0
    signs[labels[1:], places[:-1]] -= 1.0
    order = np.argsort(-f, axis=1, kind="stable")
    steps = np.cumsum(signs[:, order].swapaxes(0, 1), axis=2)
    widths = -np.diff(np.take_along_axis(f, order, axis=1), axis=1, append=0.0)
    mean = f @ signs.T
    second = (steps * widths[:, None, :]) @ steps.swapaxes(1, 2)
    return np.asarray(second - mean[:, :, None] * mean[:, None, :])
