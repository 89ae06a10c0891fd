"""Evidence: scores of a test in consecutive pieces, from which all intervals are computed.

A piece is a segment or part of one. Its size does not grow with its rounds: it has their number,
the sum of the scores and the sum of their outer products. A batch of n tests has a leading axis,
as everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import arm_values, ips, ips_squares
from steadyarm.segments import Direction, Segment, SegmentStats


def json_ready(value: Any) -> Any:
    """The value as JSON can hold it: None where a number is infinite or unknown.

    Examples
    --------
    >>> json_ready({"p": np.float64(0.5), "residuals": np.array([1.0, np.inf]), "of": ("A", "B")})
    {'p': 0.5, 'residuals': [1.0, None], 'of': ['A', 'B']}
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return json_ready(value.tolist())
    if is_dataclass(value):
        return {f.name: json_ready(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {key: json_ready(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


Floats = NDArray[np.float64]


TINY = np.finfo(np.float64).tiny

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tails:
    """Bounds of the tails of arms that share nothing, from cubes of the rewards of one log.

    Attributes
    ----------
    thirds : (J, K) third central moments of the score sums of each piece
    once, twice : (J, K) rounds divided by an arm's probability, and by its square
    """

    thirds: Floats
    once: Floats
    twice: Floats


@dataclass(frozen=True, eq=False)
class Evidence:
    """Scores of J consecutive pieces of n tests.

    A round's score m + A(λ)⁻¹ x_t (r_t - x_t'm) has expectation θ_t, whatever came before. Nothing
    of it grows with the number of arms; statements on a large set are about a `view` of few.

    Attributes
    ----------
    arms : the variants, with r = arms.rank coordinates
    rounds : (n, J) rounds of each piece; a test that has ended has 0
    scores : (n, J, r) sum of the scores over the piece
    squares : (n, J, r, r) sum of each score times itself
    block : 1 if rounds were drawn independently given earlier pieces; else pieces are made of
        permuted blocks of this length (the last may be cut short), and only whole blocks are
        independent of earlier ones
    direction : whether large or small rewards are good
    within : (n, J, r, r) if in all tests every block holds each arm a whole number of times: the
        variance of the piece's score sum, from how much rewards of the same arm differ; else None
    weights : (n, J, K) allocation of each piece; None if not kept
    references : (n, J, r) the m of each piece; None for zero
    columns : (U,) the arms that the K = U columns of `weights` are; None for all
    whole : the set that `arms` were chosen from, over which statements still hold; None if all
    shown : (m,) which arms of the whole `arms` are, in rising order
    binary : (n,) whether every reward was 0 or 1, and not all were 0; None if not known
    freedom : (n, J) degrees of freedom of the variance up to the end of each piece, where scores
        are sums over few units or clusters; None if there are as good as infinitely many
    bounds : (least, largest) reward that can occur, which may be infinite; None if not declared
    tails : the tails of logs; None where differences between pieces show how skewed rewards are

    Examples
    --------
    >>> from steadyarm.arms import ArmSet
    >>> from steadyarm.segments import Segment, SegmentStats
    >>> half = Segment(np.array([[0.5, 0.5]]), np.array([2000]))
    >>> clicks = np.array([[300.0, 400.0]])
    >>> stats = SegmentStats(np.array([[1000, 1000]]), clicks, clicks)
    >>> evidence = Evidence.from_segments(ArmSet.one_hot(["A", "B"]), [(half, stats)])
    >>> evidence.rounds.tolist(), evidence.scores.tolist()
    ([[2000]], [[[600.0, 800.0]]])
    """

    arms: ArmSet
    rounds: NDArray[np.int64]
    scores: Floats
    squares: Floats
    block: int = 1
    direction: Direction = "maximize"
    within: Floats | None = None
    weights: Floats | None = None
    references: Floats | None = None
    columns: Indices | None = None
    whole: ArmSet | None = None
    shown: Indices | None = None
    binary: NDArray[np.bool_] | None = None
    freedom: Floats | None = None
    bounds: tuple[float, float] | None = None
    tails: Tails | None = None

    @classmethod
    def from_segments(
        cls,
        arms: ArmSet,
        segments: Iterable[tuple[Segment, SegmentStats]],
        direction: Direction = "maximize",
        binary: bool | None = None,
        levels: Iterable[Floats] | None = None,
        bounds: tuple[float, float] | None = None,
    ) -> Evidence:
        """The evidence of segments in the order they were played; sums in units of the rewards.

        Parameters
        ----------
        binary : whether all rewards are 0 or 1; by default the sums show it, because then and
            only then the sum of the rewards is the sum of their squares. Where missing rewards
            were filled in, which changes the squares, the caller has to say so.
        levels : (n,) for each segment, if rewards are adjusted for covariates: the variance of the
            sum of what the covariates say of all arms alike, see `covariates.level_variance`
        bounds : (least, largest) reward that can occur; None if not declared

        Examples
        --------
        >>> arms = ArmSet.one_hot(["A", "B"])
        >>> segment = Segment(np.array([[0.25, 0.75]]), np.array([4]))
        >>> stats = SegmentStats(np.array([[1, 3]]), np.array([[2.0, 3.0]]), np.array([[4.0, 3.0]]))
        >>> Evidence.from_segments(arms, [(segment, stats)]).estimates
        array([[2., 1.]])
        """
        rounds, scores, squares, blocks = [], [], [], set()
        withins, allocations, references = [], [], []
        zero_or_one, some = np.ones(1, dtype=bool), np.zeros(1, dtype=bool)
        shared = repeat(None) if levels is None else levels
        for (segment, stats), level in zip(segments, shared, strict=levels is not None):
            if stats.squares is None:
                raise InvalidInputError(
                    "a segment's statistics have no sums of squared rewards, which intervals "
                    "need; play it with squares=True."
                )
            X = arms.coordinates_of(segment.arms)
            zero_or_one = zero_or_one & (stats.sums == stats.squares).all(axis=1)
            some = some | (stats.sums > 0).any(axis=1)
            rounds.append(segment.rounds)
            scores.append(ips(X, segment, stats))
            common = 0.0 if level is None else _common_variance(X, segment, stats, level)
            squares.append(ips_squares(X, segment, stats, stats.squares) + common)
            blocks.add(1 if segment.order == "iid" else segment.block)
            within = _within(X, segment, stats, stats.squares)
            withins.append(None if within is None else within + common)
            allocations.append((segment.arms, segment.weights))
            references.append(segment.reference)
        if not rounds:
            raise InvalidInputError("no segment was given; give at least one that was played.")
        weights, columns = _together(allocations, arms.size)
        known = [within for within in withins if within is not None]
        return cls(
            arms,
            np.stack(rounds, axis=1),
            np.stack(scores, axis=1),
            np.stack(squares, axis=1),
            max(blocks),
            direction,
            np.stack(known, axis=1) if len(known) == len(withins) else None,
            weights,
            _stack(references, scores[0].shape),
            columns,
            binary=some & (zero_or_one if binary is None else binary),
            bounds=bounds,
        )

    def view(self, shown: Indices) -> Evidence:
        """The same on few of the arms; statements still hold over all of them.

        shown : (m,) indices in rising order
        """
        whole = self.arms if self.whole is None else self.whole
        return replace(self, arms=whole.subset(shown), whole=whole, shown=shown)

    @property
    def family(self) -> int:
        """The number of arms for which statements hold simultaneously."""
        return self.arms.size if self.whole is None else self.whole.size

    @property
    def sign(self) -> float:
        """1 if large rewards are good, else -1."""
        return 1.0 if self.direction == "maximize" else -1.0

    @property
    def played(self) -> NDArray[np.int64]:
        """(n,) rounds in all."""
        return np.asarray(self.rounds.sum(axis=1))

    @property
    def theta(self) -> Floats:
        """(n, r) estimated time-averaged parameter, in coordinates; zero before the first round."""
        return np.asarray(self.scores.sum(axis=1) / np.maximum(self.played, 1)[:, None])

    @property
    def estimates(self) -> Floats:
        """(n, K) estimated time-averaged reward of every arm."""
        if self.arms.large:
            return np.stack([self.arms.values(theta) for theta in self.theta])
        return arm_values(self.arms.coordinates, self.theta)

    @property
    def best(self) -> NDArray[np.int64]:
        """(n,) the arm with the best estimate."""
        estimates = self.sign * self.estimates
        if self.whole is not None or self.arms.large:  # ties, which few features make, to the first
            scale = np.maximum(np.abs(estimates).max(axis=1, keepdims=True), TINY)
            estimates = np.rint(estimates / scale * 2.0**40)
        return np.asarray(estimates.argmax(axis=1))


def _common_variance(X: Floats, segment: Segment, stats: SegmentStats, level: Floats) -> Floats:
    """(n, r, r) what a variance that all arms share, (n,), adds to that of the score sum."""
    shares = SegmentStats(stats.counts, segment.weights)
    g = ips(X, replace(segment, reference=None), shares)  # A(λ)⁻¹ Σ λ_k x_k
    return np.asarray(level[:, None, None] * g[:, :, None] * g[:, None, :])


def _within(X: Floats, segment: Segment, stats: SegmentStats, squares: Floats) -> Floats | None:
    """(n, r, r) variance of the score sum given the lists; None if the lists are random.

    Neyman's estimate: an arm played N times adds N times the sample variance of its rewards. An
    arm played once, or a piece whose last block is cut short, adds squared distances from the
    reference instead. On average both are too large, never too small
    (docs/research/technical_note.md).
    """
    if segment.order == "iid":
        return None
    rounds = segment.rounds[:, None]
    block = rounds if segment.order == "shuffled" else np.full_like(rounds, segment.block)
    exact = block * segment.weights
    if np.abs(exact - np.rint(exact))[segment.rounds > 0].max(initial=0.0) > 1e-6:
        return None
    N = stats.counts
    whole = (np.rint(rounds * segment.weights) == N).all(axis=1, keepdims=True) & (
        rounds % np.maximum(block, 1) == 0
    )
    swaps = block / np.maximum(block - 1, 1)  # Hoeffding's B/(B-1)
    v = 0.0 if segment.reference is None else arm_values(X, segment.reference)
    around_reference = swaps * (squares - 2 * v * stats.sums + N * v**2)
    around_mean = (squares - stats.sums**2 / np.maximum(N, 1)) * N / np.maximum(N - 1, 1)
    around_mean = np.where(rounds > block, swaps, 1.0) * np.maximum(around_mean, 0.0)
    terms = np.where(whole & (N > 1), around_mean, around_reference)
    return ips_squares(X, replace(segment, reference=None), stats, terms)


def _stack(references: list[Floats | None], shape: tuple[int, ...]) -> Floats | None:
    """(n, J, r) references, zero where there is none; None if there is none at all."""
    if all(m is None for m in references):
        return None
    return np.stack([np.zeros(shape) if m is None else m for m in references], axis=1)


def _together(
    allocations: list[tuple[Indices | None, Floats]], arms: int
) -> tuple[Floats, Indices | None]:
    """(n, J, U) weights of all pieces in the same columns, and which arms these are."""
    if all(played is None for played, _ in allocations):
        return np.stack([weights for _, weights in allocations], axis=1), None
    everything = np.arange(arms, dtype=np.int64)
    lists = [everything if played is None else played for played, _ in allocations]
    columns = np.unique(np.concatenate(lists))
    out = np.zeros((len(allocations[0][1]), len(lists), columns.size))
    for j, (played, (_, weights)) in enumerate(zip(lists, allocations, strict=True)):
        out[:, j, np.searchsorted(columns, played)] = weights
    return out, columns
