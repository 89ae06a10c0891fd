"""Evidence: scores of a test in consecutive pieces, from which all intervals are computed.

A piece is a segment or part of one. Its size does not grow with its rounds: it has their number,
the sum of the scores and the sum of their outer products, from which the variance of the whole is
estimated. A batch of n tests has a leading axis, as everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, stdtrit

from steadyarm.arms import ArmSet
from steadyarm.designs.pooled_g import top
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import ips, ips_squares, is_one_hot
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.validation import validate_range


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
Indices = NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.float64)

TINY = np.finfo(np.float64).tiny
LEAST_ROUNDS = 30  # of a group, and of a test with finite intervals
LEAST_FREEDOM = 4.0  # degrees of freedom of a variance that gives finite intervals
LEAST_PIECES = 10  # to estimate a variance from their differences
GROUPS = 20  # in which scores are centred, at most: slow drift stays between them
DIFFERENCES = 60  # pieces that are compared, at most; shorter ones are joined
SHOCK = 6  # times the usual size of a step
FARTHEST = 1e50  # standard errors that stand for infinitely many
COARSE = np.cumprod([1.0] + [1.1] * 72)  # degrees of freedom, up to a thousand


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
        return np.asarray(self.theta @ self.arms.coordinates.T)

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
    v = 0.0 if segment.reference is None else segment.reference @ X.T
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


# The variance of a sum of scores, estimated from the scores. On average it is never too small.
# The sum of the scores less the sum of the true parameters is a martingale, so the variance of the
# whole is the sum of the variances of its parts. Which parts can be seen depends on how arms were
# drawn; drift can only make the estimates larger.


@dataclass(frozen=True)
class Scatter:
    """The variance of a score sum, and its parts if they can be seen one by one.

    Attributes
    ----------
    total : (n, r, r) variance of the whole sum
    freedom : (n,) degrees of freedom; infinite if there are many
    method : "rounds", "lists" or "differences"
    rounds : (n, G) of consecutive groups of pieces
    sums : (n, G, r) their score sums
    variances : (n, G, r, r) their estimated variances, zero if they cannot be seen
    """

    total: Floats
    freedom: Floats
    method: str
    rounds: NDArray[np.int64]
    sums: Floats
    variances: Floats


def score_scatter(evidence: Evidence) -> Scatter:
    """The variance of the sum of all scores.

    - "lists": blocks hold whole numbers of every arm. Neyman's variance of each piece.
    - "rounds": rounds are drawn independently. Scores around their mean, in up to 20 groups of
      consecutive pieces.
    - "differences": blocks whose lists are random. Neighbouring pieces are compared; tests of
      fewer than ten pieces are taken as independent rounds, times Hoeffding's B/(B-1).
    """
    group = _groups(evidence, GROUPS, LEAST_ROUNDS)
    rounds, sums = sum_groups(evidence.rounds, group), sum_groups(evidence.scores, group)
    if evidence.within is not None:
        method, parts = "lists", sum_groups(evidence.within, group)
    else:
        squares = sum_groups(evidence.squares, group)
        method, parts = "rounds", _around_mean(squares, sums, rounds)
    total, freedom = parts.sum(axis=1), np.full(len(rounds), np.inf)
    if method == "lists":
        freedom = _coarse(list_freedom(evidence)[:, -1])
    elif evidence.block == 1:
        freedom = _coarse(drawn_freedom(evidence)[:, -1])
    if evidence.freedom is not None:
        freedom = _coarse(evidence.freedom[:, -1])
    if method == "rounds" and evidence.block > 1:
        method, parts = "differences", np.zeros_like(parts)
        apart, pieces = _differences(evidence)
        many = pieces >= LEAST_PIECES
        total = np.where(many[:, None, None], apart, total * evidence.block / (evidence.block - 1))
        freedom = np.where(many, pieces * 2 / 3, freedom)  # von Neumann's ratio
    return Scatter(total, freedom, method, rounds, sums, parts)


def running_variance(evidence: Evidence) -> tuple[Floats, Floats, Floats, str]:
    """Variance of the sum of all scores up to the end of each piece, and of each piece.

    Both (n, J, r, r); then the degrees of freedom (n, J) of the first, and the method. As
    `score_scatter`, but of what is known at that time.
    """
    n, J = evidence.rounds.shape
    if evidence.within is not None:
        freedom = list_freedom(evidence)
        return np.cumsum(evidence.within, axis=1), evidence.within, freedom, "lists"
    if evidence.block > 1:
        steps = _steps(evidence.scores, evidence.rounds)
        none = np.zeros_like(evidence.squares[:, :1])
        upto = np.concatenate([none, np.cumsum(steps, axis=1) + steps + steps[:, :1]], axis=1) / 2
        freedom = np.tile(np.arange(J) * 2 / 3, (n, 1))
        return upto, np.zeros_like(evidence.squares), freedom, "differences"
    sums, rounds = np.cumsum(evidence.scores, axis=1), np.cumsum(evidence.rounds, axis=1)
    upto = _around_mean(np.cumsum(evidence.squares, axis=1), sums, rounds)
    parts = _around_mean(evidence.squares, evidence.scores, evidence.rounds)
    freedom = drawn_freedom(evidence) if evidence.freedom is None else evidence.freedom
    return upto, parts, freedom, "rounds"


def third_moments(
    sums: Floats, variances: Floats, rounds: NDArray[np.int64], shock: float = SHOCK
) -> Floats:
    """Third central moment of the sum up to the end of each part, (n, G, K).

    The sum of a part and its estimated variance move together just as much as its scores are
    skewed. Neighbours are compared, so that drift matters little; a step more than six times as
    large as those before on average is taken for a shock and cut down to that.

    Parameters
    ----------
    sums, variances : (n, G, K) of the parts, in K directions
    rounds : (n, G) of the parts; neighbours of very different length are not compared, others
        stand for them
    shock : how many times the usual size a step may have; infinite to take all as they are
    """
    out = np.zeros(sums.shape)
    size, running = np.zeros((2, *sums[:, 0].shape))
    pairs, covered = np.zeros((2, len(sums), 1))
    N = np.maximum(rounds, 1.0)[:, :, None]
    played = np.cumsum(rounds, axis=1)[:, :, None]
    for g in range(1, sums.shape[1]):
        before, here = N[:, g - 1], N[:, g]
        alike = 2 * np.minimum(before, here) >= np.maximum(before, here)
        alike &= rounds[:, g][:, None] > 0
        step = sums[:, g] * before - sums[:, g - 1] * here
        step = step * (variances[:, g] / here - variances[:, g - 1] / before)
        if shock < np.inf:
            most = np.where(size > 0, shock * size / np.maximum(pairs, 1), np.inf)
            step = np.clip(step, -most, most)
        step = np.where(alike, step, 0.0)
        pairs, covered = pairs + alike, covered + np.where(alike, (before + here) / 2, 0.0)
        running, size = running + step / 2, size + np.abs(step)
        out[:, g] = running * played[:, g] / np.maximum(covered, 1.0)
    return out


def plain_thirds(evidence: Evidence, upto: bool = False) -> tuple[Floats, NDArray[np.int64]]:
    """Third moments of the scores of arms that share nothing, every step counted in full.

    Returns
    -------
    (n, G, K) up to the end of each of G parts, and (n, G) how many parts that are; the pieces
    themselves with `upto`, else at most 60 groups of them
    """
    if (tails := evidence.tails) is not None:
        once, twice = (np.cumsum(sums, axis=0) for sums in (tails.once, tails.twice))
        terms = (once**3 / np.maximum(twice**2, 1e-300)).min(axis=1)  # units of equal weight
        parts = 1 + (terms / 3).astype(np.int64)  # whose differences would say as much
        return np.cumsum(tails.thirds, axis=0)[None], parts[None]
    group = np.tile(np.arange(evidence.rounds.shape[1]), (len(evidence.rounds), 1))
    if not upto:
        group = _groups(evidence, DIFFERENCES, 1)
    rounds, sums = sum_groups(evidence.rounds, group), sum_groups(evidence.scores, group)
    if evidence.within is not None:
        spreads = sum_groups(evidence.within, group)
    else:
        spreads = _around_mean(sum_groups(evidence.squares, group), sums, rounds)
    spread = np.diagonal(spreads, axis1=2, axis2=3)
    with np.errstate(over="ignore", invalid="ignore"):  # cubes that no double can hold
        return third_moments(sums, spread, rounds, np.inf), np.cumsum(rounds > 0, axis=1)


def _around_mean(squares: Floats, sums: Floats, rounds: NDArray[np.int64]) -> Floats:
    """N / (N - 1) times the sum of (s - mean)(s - mean)'; of one round, its square."""
    N = rounds[:, :, None, None]
    spread = squares - sums[..., :, None] * sums[..., None, :] / np.maximum(N, 1)
    return np.asarray(np.where(N > 1, spread * N / np.maximum(N - 1, 1), squares))


def _differences(evidence: Evidence) -> tuple[Floats, NDArray[np.int64]]:
    """Half the squared differences of neighbours, those at both ends whole; how many pieces."""
    group = _groups(evidence, DIFFERENCES, 1)
    rounds = sum_groups(evidence.rounds, group)
    pieces = (rounds > 0).sum(axis=1)
    steps = _steps(sum_groups(evidence.scores, group), rounds)
    if not steps.shape[1]:
        return np.zeros_like(evidence.squares[:, 0]), pieces
    last = np.maximum(pieces - 2, 0)
    ends = steps[:, 0] + steps[np.arange(len(steps)), last]
    return (steps.sum(axis=1) + ends) / 2, pieces


def _steps(scores: Floats, rounds: NDArray[np.int64]) -> Floats:
    """(n, J - 1, r, r) of neighbours: n n' (Y/n - Y'/n')(Y/n - Y'/n')', about v + v'."""
    mean = scores / np.maximum(rounds, 1)[:, :, None]
    step = np.diff(mean, axis=1)
    both = (rounds[:, 1:] * rounds[:, :-1])[:, :, None, None]
    return np.asarray(both * step[..., :, None] * step[..., None, :])


def _groups(evidence: Evidence, most: int, least: int) -> NDArray[np.int64]:
    """(n, J) which of at most `most` groups of about equal rounds a piece belongs to."""
    ends = np.cumsum(evidence.rounds, axis=1)
    total = np.maximum(ends[:, -1:], 1)
    count = np.minimum(most, np.maximum((evidence.rounds > 0).sum(axis=1, keepdims=True), 1))
    count = np.minimum(count, np.maximum(total // least, 1))
    middle = ends - (evidence.rounds + 1) // 2
    share = np.clip(middle * count // total, 0, count - 1)
    opened = np.diff(share, axis=1, prepend=share[:, :1]) > 0
    return np.asarray(np.cumsum(opened, axis=1))


def _coarse(freedom: Floats) -> Floats:
    """Degrees of freedom rounded down to few distinct values; a thousand are as good as many."""
    steps = COARSE[np.searchsorted(COARSE, freedom, side="right") - 1]
    coarse = np.where(freedom < 20, np.floor(freedom), steps)
    return np.where(freedom >= 1000, np.inf, np.maximum(coarse, 2.0))


def student_factor(z: ArrayLike, freedom: ArrayLike) -> Floats:
    """What Student's t exceeds as often as a standard normal number exceeds z.

    Examples
    --------
    >>> student_factor([2.0, 2.0], [np.inf, 20.0]).round(4).tolist()
    [2.0, 2.133]
    """
    size = np.abs(stdtrit(np.asarray(freedom, dtype=np.float64), ndtr(-np.abs(z))))
    return np.asarray(np.copysign(np.minimum(size, FARTHEST), z))


def list_freedom(evidence: Evidence, index: NDArray[np.int64] | None = None) -> Floats:
    """(n, P) degrees of freedom behind within-arm variances, the harmonic mean over arms.

    An arm played N times in a piece has N - 1 of them there, one if N = 1.

    Parameters
    ----------
    index : (n, J) which of P groups each piece belongs to; None for running sums over pieces
    """
    assert evidence.weights is not None
    plays = np.rint(evidence.rounds[:, :, None] * evidence.weights)
    freedom = np.where(plays > 0, np.maximum(plays - 1, 1), 0.0)
    freedom = np.cumsum(freedom, axis=1) if index is None else sum_groups(freedom, index)
    played = freedom > 0
    inverse = np.where(played, 1 / np.maximum(freedom, 1), 0.0).sum(axis=2)
    return np.asarray(played.sum(axis=2) / np.where(inverse > 0, inverse, 1.0))


def drawn_freedom(evidence: Evidence) -> Floats:
    """(n, J) degrees of freedom up to each piece where every round is drawn independently.

    The variance of few plays of unequal weights is as uncertain as that of an effective number of
    them (Kish). With normal rewards their squares have a kurtosis of 3, so that two thirds count
    (Satterthwaite). It is the least number of all arms, or of all parameters where arms share
    features; infinite if allocations are not known.
    """
    weights, rounds = evidence.weights, evidence.rounds[:, :, None]
    if weights is None:
        return np.full(evidence.rounds.shape, np.inf)
    if weights.shape[2] == evidence.arms.rank:
        shares = np.maximum(weights, 1e-9)
        once, thrice = (np.cumsum(rounds / shares**power, axis=1) for power in (1, 3))
        plays = (once**2 / np.maximum(thrice, 1e-300)).min(axis=2)
    else:
        plays = np.cumsum(evidence.rounds, axis=1) / evidence.arms.rank
    return np.asarray(np.maximum(2 / 3 * plays, 1.0))


def inverse_weights(evidence: Evidence) -> Floats | None:
    """(2, n, J, K) rounds divided by an arm's weight, and by its square, summed up to each piece.

    That is how the design enters the second and third moment of a score sum where arms share
    nothing; None where they do, or where allocations are not known.
    """
    weights = evidence.weights
    if (tails := evidence.tails) is not None and evidence.whole is None:
        return np.cumsum(np.stack([tails.once, tails.twice])[:, None], axis=2)
    if weights is None or evidence.columns is not None or evidence.whole is not None:
        return None
    if not is_one_hot(evidence.arms.coordinates):
        return None
    rounds = evidence.rounds[:, :, None]
    with np.errstate(divide="ignore"):
        once = np.where(rounds > 0, rounds / weights, 0.0)
        twice = np.where(rounds > 0, once / weights, 0.0)
    return np.cumsum(np.stack([once, twice]), axis=2)


def sum_groups(
    values: NDArray[Number], group: NDArray[np.int64], groups: int | None = None
) -> NDArray[Number]:
    """Sums of (n, J, ...) over the pieces of each group: (n, G, ...)."""
    n, J = group.shape
    G = int(group.max()) + 1 if groups is None else groups
    out = np.zeros((n, G, *values.shape[2:]), dtype=values.dtype)
    rows = np.arange(n)
    for j in range(J):
        out[rows, group[:, j]] += values[:, j]
    return out


# What bounded rewards say of the scores: their squares around the reference, and their bounds.


def bounded_terms(
    evidence: Evidence, reward_range: tuple[float, float]
) -> tuple[Floats, Floats, str]:
    """Squared terms (n, J, r, r) up to each piece, bounds (2, n, J, K) of a term, what a term is.

    Terms are compared with the reference. Independent rounds are terms; so are, with twice the
    squares and bounds, those of blocks of whole numbers (technical note); for arms that share
    nothing not even that is needed. Otherwise whole pieces are the terms. Not for views.
    """
    bounds = validate_range(reward_range)
    if evidence.weights is None:
        raise InvalidInputError(
            "this evidence has no allocations, which reward_range needs; make it with "
            "Evidence.from_segments, or leave reward_range out."
        )
    n, J, r = evidence.scores.shape
    m = evidence.references
    m = np.zeros((n, J, r)) if m is None else m
    N = evidence.rounds[:, :, None]
    X, weights = evidence.arms.coordinates, _all_weights(evidence)
    scale = _scales(X, weights, m, evidence.rounds, *bounds)
    if evidence.block > 1 and evidence.within is None:
        off = evidence.scores - N * m
        squared = off[..., :, None] * off[..., None, :]
        return np.cumsum(squared, axis=1), scale * N, "pieces"
    mixed = m[..., :, None] * (evidence.scores - N * m / 2)[..., None, :]
    squared = np.cumsum(evidence.squares - mixed - mixed.swapaxes(2, 3), axis=1)
    return squared, scale, "rounds" if evidence.within is None else "lists"


def _all_weights(evidence: Evidence) -> Floats:
    """(n, J, K) weights of all arms."""
    assert evidence.weights is not None
    if evidence.columns is None:
        return evidence.weights
    out = np.zeros((*evidence.rounds.shape, evidence.arms.size))
    out[:, :, evidence.columns] = evidence.weights
    return out


def _scales(
    X: Floats,
    weights: Floats,
    references: Floats,
    rounds: NDArray[np.int64],
    least: float,
    most: float,
) -> Floats:
    """(2, n, J, K) how far x_i'A⁻¹x_k (reward - x_k'm) lies below and above 0, at most.

    Over rewards from `least` to `most` and arms k that may be played.
    """
    n, J, K = weights.shape
    out = np.zeros((2, n, J, K))
    for j in range(J):
        rows = np.flatnonzero(rounds[:, j] > 0)
        played = weights[rows, j]
        A = np.einsum("nk,kr,ks->nrs", played, X, X)
        slopes = X @ np.linalg.solve(A, X.T) * (played > 0)[:, None, :]
        values = (references[rows, j] @ X.T)[:, None, :]
        ends = np.stack([slopes * (least - values), slopes * (most - values)])
        out[0, rows, j] = np.maximum(-ends.min(axis=(0, 3)), 0.0)
        out[1, rows, j] = np.maximum(ends.max(axis=(0, 3)), 0.0)
    return out


# The short list of a large set: the arms that people see, chosen in passes over all arms.

EQUAL = 2.0**-40  # share by which estimates may differ through rounding
SHORT = 100  # arms with the best estimates that are shown
LEADERS = 16  # times during the test whose leaders are shown, too


def space_evenly(pieces: int, most: int = LEADERS) -> Indices:
    """Pieces whose ends are shown, from the last one backwards.

    Examples
    --------
    >>> space_evenly(7, most=3).tolist()
    [0, 3, 6]
    """
    at = np.linspace(pieces - 1, 0, min(pieces, most)).round().astype(np.int64)
    return np.unique(at)


def shortlist(
    evidence: Evidence,
    recommended: Indices | None = None,
    most: int = SHORT,
    also: Sequence[int] = (),
) -> tuple[Evidence, Indices]:
    """A view of the evidence on few arms, and which of them the recommended one is, (1,).

    These are the recommended arm, by default the one with the best estimate, those with the best
    estimates, those that led at 16 times during the test, and those in `also`, such as a control.
    """
    if len(evidence.rounds) != 1:
        raise InvalidInputError(
            f"the evidence is a batch of {len(evidence.rounds)} tests of {evidence.family:,} arms; "
            "of so many arms give one test at a time."
        )
    at = space_evenly(evidence.rounds.shape[1])
    rounds = np.maximum(np.cumsum(evidence.rounds[0])[at], 1)
    paths = np.cumsum(evidence.scores[0], axis=0)[at] / rounds[:, None]
    leaders, top = best_of_all(evidence, paths, most)
    best = leaders[-1:] if recommended is None else recommended
    others = np.asarray(also, dtype=np.int64)
    view = evidence.view(np.unique(np.concatenate([best, leaders, top, others])))
    assert view.shown is not None
    return view, np.searchsorted(view.shown, best)


def best_of_all(evidence: Evidence, thetas: Floats, most: int = SHORT) -> tuple[Indices, Indices]:
    """(L,) the best arm by each parameter (L, r), and those that are best by the last of them."""
    arms = evidence.arms if evidence.whole is None else evidence.whole
    sign = evidence.sign
    turned = sign * np.ascontiguousarray(thetas.T)
    leaders, highest = np.zeros(len(thetas), dtype=np.int64), np.full(len(thetas), -np.inf)
    last = np.empty(arms.size)
    for start, stop in arms.blocks():
        values = arms.rows.block(start, stop) @ turned
        last[start:stop] = values[:, -1]
        found = values.max(axis=0)
        place = (values >= found - EQUAL * np.abs(found)).argmax(axis=0)  # the first of equal ones
        better = found > highest + np.where(np.isfinite(highest), EQUAL * np.abs(found), 0.0)
        leaders[better], highest[better] = start + place[better], found[better]
    few = min(most, arms.size)
    return leaders, top(last, few)


@lru_cache(maxsize=4)
def spread_of(arms: ArmSet) -> tuple[Floats, Floats]:
    """(r,) the average of all arms, and (q, r) an orthonormal basis of their differences."""
    total, gram = np.zeros(arms.rank), np.zeros((arms.rank, arms.rank))
    for start, stop in arms.blocks():
        rows = arms.rows.block(start, stop)
        total += rows.sum(axis=0)
        gram += rows.T @ rows
    mean = total / arms.size
    sizes, axes = np.linalg.eigh(gram / arms.size - np.outer(mean, mean))
    basis = axes[:, sizes > 1e-12 * sizes[-1]].T
    return mean, np.ascontiguousarray(basis)
