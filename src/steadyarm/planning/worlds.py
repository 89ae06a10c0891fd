"""Worlds of a question: how effects move during a test, and many simulated tests at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.compiled import kernel
from steadyarm.environments import BernoulliReward, GaussianNoise
from steadyarm.errors import InvalidInputError
from steadyarm.segments import Direction, Segment, SegmentStats
from steadyarm.validation import finite_number, whole_number
from steadyarm.wording import did_you_mean

# Words that settings are made of: a value that is none of them is refused.


def check_word(value: Any, what: str, known: Sequence[str]) -> None:
    """Refuse a value that is none of the known words, and name the nearest of them."""
    if value not in known:
        near = did_you_mean(str(value).lower(), known).removesuffix(".")
        expected = f"{', '.join(known[:-1])} or {known[-1]}{near}"
        raise InvalidInputError.of(what, value, expected)


KINDS: dict[str, tuple[str, ...]] = {  # and the settings that matter for each
    "none": (),
    "weekend": ("strength", "lift", "starts"),
    "promotion": ("strength", "lift", "week"),
    "trend": ("strength", "lift"),
    "curve": ("curve",),
}
WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
STEPS = 56  # of a trend, at least

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pieces:
    """The test cut where its means change: round after each piece, swing and level of it.

    The swing multiplies the effects, the level is added to all arms. Weighted with the pieces'
    lengths the swing averages one and the level zero.
    """

    ends: Integers
    swing: Floats
    level: Floats


@dataclass(frozen=True)
class Rhythm:
    """What happens to the effects in the course of a test.

    The effects that a question states are averages over the test. At the rhythm's high, which is
    the weekend, the promotion or the beginning of a trend, every lead is smaller, by `strength`
    times its average, than at the low; from about 2 on the order of the arms turns around.

    A test covers whole cycles: whole weeks for a weekend or a promotion, at least up to the
    promotion's end, and whole curves. A smaller budget takes a smaller share of each day's traffic.

    Parameters
    ----------
    kind : none, weekend, promotion, trend or curve
    strength : difference of the leads between low and high, as a multiple of their average
    lift : by how much the rewards of all arms alike are higher at the high than at the low
    starts : first day of the test, for weekends
    week : which week has the promotion
    curve : for kind "curve", every day's lead as a multiple; only the ratios count

    Examples
    --------
    >>> weekend = Rhythm("weekend", strength=3.5)
    >>> weekend.days(budget=9000, traffic=1000)
    14
    >>> weekend.pieces(700, days=7).swing.tolist()
    [-1.5, 2.0]
    """

    kind: str = "none"
    strength: float = 3.0
    lift: float = 0.0
    starts: str = "saturday"
    week: int = 2
    curve: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_word(self.kind, "rhythm.kind", tuple(KINDS))
        check_word(self.starts, "rhythm.starts", WEEK)
        whole_number(self.week, "rhythm.week", least=1)
        finite_number(self.lift, "rhythm.lift")
        if finite_number(self.strength, "rhythm.strength") < 0:
            raise InvalidInputError.of("rhythm.strength", self.strength, "a number of at least 0")
        if (self.kind == "curve") != bool(self.curve):
            raise InvalidInputError(
                f"rhythm.kind is {self.kind!r} and rhythm.curve has {len(self.curve)} days; "
                'expected the kind "curve" together with one number per day.'
            )
        if self.curve and not sum(self.curve) > 0:
            raise InvalidInputError(
                f"rhythm.curve averages {np.mean(self.curve):g}; expected daily leads with a "
                "positive average, or the best arm of the test would not be the best."
            )

    @property
    def moves(self) -> bool:
        """Whether anything changes during a test."""
        return self.kind != "none"

    @property
    def weekly(self) -> bool:
        """Whether it takes whole weeks."""
        return self.kind in ("weekend", "promotion")

    def days(self, budget: int, traffic: int) -> int:
        """How many days a test takes: as few as the traffic allows, in whole cycles."""
        cycle = 7 if self.weekly else max(len(self.curve), 1)
        least = 7 * self.week if self.kind == "promotion" else cycle
        return max(cycle * ceil(budget / (traffic * cycle)), least)

    def pieces(self, budget: int, days: int) -> Pieces:
        """The pieces of a test that spreads its budget evenly over the days."""
        steps = max(days, STEPS) if self.kind == "trend" else days
        every = np.rint(np.linspace(0, budget, steps + 1)).astype(np.int64)
        heights = np.array([self._height()(day, steps) for day in range(steps)])
        last = np.append(np.diff(heights) != 0.0, True) & (every[1:] > 0)
        ends, heights = every[1:][last], heights[last]
        lengths = np.diff(ends, prepend=0)
        real = lengths > 0
        ends, heights, lengths = ends[real], heights[real], lengths[real]
        average = float((heights * lengths).sum()) / budget
        if self.kind == "curve":
            return Pieces(ends, heights / average, np.zeros(len(ends)))
        high = heights - average
        return Pieces(ends, 1.0 - self.strength * high, self.lift * high)

    def _height(self) -> Callable[[int, int], float]:
        """The rhythm by day: one at its high, zero at its low."""
        first = WEEK.index(self.starts)
        shapes: dict[str, Callable[[int, int], float]] = {
            "none": lambda _day, _steps: 0.0,
            "weekend": lambda day, _: float((first + day) % 7 >= 5),
            "promotion": lambda day, _: float(day // 7 == self.week - 1),
            "trend": lambda step, steps: 1.0 - (step + 0.5) / steps,
            "curve": lambda day, _: float(self.curve[day % len(self.curve)]),
        }
        return shapes[self.kind]

    def to_dict(self) -> dict[str, Any]:
        """The settings that matter for this kind."""
        values = {key: getattr(self, key) for key in KINDS[self.kind]}
        if self.curve:
            values["curve"] = list(self.curve)
        return {"kind": self.kind} | values

    def describe(self) -> str:
        """The rhythm in a few words."""
        turn = f"leads differ by {self.strength:g} times their average"
        lift = f", all rewards by {self.lift:g}" if self.lift else ""
        return {
            "none": "nothing moves",
            "weekend": f"between weekday and weekend {turn}{lift}; starts on a "
            f"{self.starts.capitalize()}",
            "promotion": f"in the promotion of week {self.week} {turn}{lift}",
            "trend": f"from first to last round {turn}{lift}",
            "curve": f"your own curve of {len(self.curve)} days",
        }[self.kind]


CALM = Rhythm()


# Compiled draws of whole segments where means stay put for whole pieces of the test.


@kernel
def play_pieces(
    effects: Floats,
    ends: Integers,
    swing: Floats,
    level: Floats,
    weights: Floats,
    planned: Integers,
    block: int,
    start: Integers,
    sd: float,
    left: float,
    rng: np.random.Generator,
    counts: Integers,
    sums: Floats,
    squares: Floats,
) -> None:
    """Play every trial's segment; an arm's mean in piece p is level[p] + swing[p] * its effect.

    effects : (n, K), one row a trial; ends : (P,) round after the last of each piece
    swing, level : (P,)
    weights, planned, block, start : as in `environments.kernels.play_table`
    sd : of Gaussian noise; negative for Bernoulli rewards
    left : share of the standard deviation of Bernoulli rewards that a covariate leaves
    counts, sums, squares : (n, K), zero on entry; squares may be empty
    """
    K, with_squares = effects.shape[1], squares.size > 0
    here = np.zeros(K, dtype=np.int64)
    deck = np.zeros(K, dtype=np.int64)
    for i in range(effects.shape[0]):
        t, stop = start[i], start[i] + planned[i].sum()
        piece = np.searchsorted(ends, t, side="right")
        here[:] = 0
        while t < stop:
            if block == 1:
                cards = stop - t
            elif block == 0:
                for k in range(K):
                    deck[k] = planned[i, k]
                cards = stop - t
            else:
                _deal_block(weights[i], block, rng, deck)
                cards = min(block, stop - t)
            size = cards if block <= 1 else block  # of the deck; a last block may be cut off
            while cards > 0:
                length = min(cards, ends[piece] - t)
                if block == 1:
                    _add_multinomial(weights[i], length, rng, here)
                else:
                    _add_from_deck(deck, size, length, rng, here)
                t += length
                cards -= length
                size -= length
                if t == ends[piece] or t == stop:
                    for k in range(K):
                        if here[k] > 0:
                            mean = level[piece] + swing[piece] * effects[i, k]
                            total, squared = _rewards(here[k], mean, sd, left, with_squares, rng)
                            counts[i, k] += here[k]
                            sums[i, k] += total
                            if with_squares:
                                squares[i, k] += squared
                            here[k] = 0
                    piece += 1


@kernel
def _rewards(
    plays: int, mean: float, sd: float, left: float, with_squares: bool, rng: np.random.Generator
) -> tuple[float, float]:
    """The sum of `plays` rewards and, if asked for, the sum of their squares."""
    if sd >= 0.0:
        total = plays * mean + sd * math.sqrt(plays) * rng.standard_normal()
        spread = sd * sd * chi_square(plays - 1, rng) if with_squares else 0.0
        return total, total * total / plays + spread
    rate = min(max(mean, 0.0), 1.0)
    hits = float(rng.binomial(plays, rate))
    if left == 1.0:
        return hits, hits
    total = plays * rate + left * (hits - plays * rate)
    return total, total * total / plays + left * left * hits * (1.0 - hits / plays)


@kernel
def chi_square(freedom: int, rng: np.random.Generator) -> float:
    """A chi-squared number: twice a gamma number by Marsaglia and Tsang (2000)."""
    if freedom <= 0:
        return 0.0
    if freedom == 1:
        z = rng.standard_normal()
        return z * z
    d = 0.5 * freedom - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = rng.standard_normal()
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            if math.log(1.0 - rng.random()) < 0.5 * x * x + d - d * v + d * math.log(v):
                return 2.0 * d * v


@kernel
def _add_multinomial(weights: Floats, draws: int, rng: np.random.Generator, here: Integers) -> None:
    left, share = draws, weights.sum()
    last = weights.shape[0] - 1
    while weights[last] == 0.0:
        last -= 1
    for k in range(last):
        if left == 0:
            return
        if weights[k] > 0.0:
            n = rng.binomial(left, min(weights[k] / share, 1.0))
            here[k] += n
            left -= n
            share -= weights[k]
    here[last] += left


@kernel
def _deal_block(weights: Floats, block: int, rng: np.random.Generator, deck: Integers) -> None:
    """How often each arm is in one block, by systematic sampling with a random start."""
    total, tick = weights.sum(), rng.random()
    last = weights.shape[0] - 1
    while weights[last] == 0.0:
        last -= 1
    end, before = 0.0, 0
    deck[:] = 0
    for k in range(last):
        end += weights[k] * block / total
        upto = min(max(math.ceil(end - tick), before), block)
        deck[k] = upto - before
        before = upto
    deck[last] = block - before


@kernel
def _add_from_deck(
    deck: Integers, size: int, draws: int, rng: np.random.Generator, here: Integers
) -> None:
    """Draw from the deck of `size` without replacement, and take away what was drawn."""
    for k in range(deck.shape[0]):
        if draws == 0:
            return
        n = deck[k] if draws == size else hypergeometric(deck[k], size - deck[k], draws, rng)
        size -= deck[k]
        here[k] += n
        deck[k] -= n
        draws -= n


@kernel
def hypergeometric(good: int, bad: int, draws: int, rng: np.random.Generator) -> int:
    """How many of `draws` without replacement are good: inversion, outwards from the mode."""
    low, high = max(0, draws - bad), min(good, draws)
    if low == high:
        return low
    mode = (draws + 1) * (good + 1) // (good + bad + 2)
    mode = min(max(mode, low), high)
    peak = math.exp(
        _log_choose(good, mode) + _log_choose(bad, draws - mode) - _log_choose(good + bad, draws)
    )
    u = rng.random() - peak
    down, up = mode, mode
    below, above = peak, peak
    while u >= 0.0 and (down > low or up < high):
        if up < high:
            above *= (good - up) * (draws - up) / ((up + 1.0) * (bad - draws + up + 1.0))
            up += 1
            u -= above
            if u < 0.0:
                return up
        if down > low:
            below *= down * (bad - draws + down) / ((good - down + 1.0) * (draws - down + 1.0))
            down -= 1
            u -= below
            if u < 0.0:
                return down
    return mode


@kernel
def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1.0) - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0)


@dataclass(frozen=True, eq=False)
class BatchWorld:
    """A batch of worlds in which trial i has the effects of row i; a `RewardSource`.

    Attributes
    ----------
    arms, budget, direction : as for `Environment`
    effects : (n, K) value of every arm in every trial, relative to the level
    level : average reward of an arm without effect
    pieces : how effects and level move
    noise : Gaussian or Bernoulli
    correlation : of rewards with a covariate, for which they are adjusted as with its true slope:
        the part of the noise that the covariate explains is gone
    """

    arms: ArmSet
    budget: int
    effects: NDArray[np.float64] = field(repr=False)
    level: float
    pieces: Pieces = field(repr=False)
    noise: GaussianNoise | BernoulliReward
    correlation: float = 0.0
    direction: Direction = "maximize"

    @property
    def best_arm(self) -> int:
        """The best arm of the first trial; others can have another."""
        return int(self.effects[0].argmax())

    def play(
        self,
        segment: Segment,
        start: NDArray[np.int64],
        rng: np.random.Generator,
        squares: bool = False,
    ) -> SegmentStats:
        """Play each trial's segment from its round `start` (n,) on."""
        segment.check_within(start, self.budget)
        shape = segment.weights.shape
        counts, sums = np.zeros(shape, dtype=np.int64), np.zeros(shape)
        squared = np.zeros(shape if squares else (0, 0))
        left = math.sqrt(1.0 - self.correlation**2)
        play_pieces(
            self.effects,
            self.pieces.ends,
            self.pieces.swing,
            self.level + self.pieces.level,
            segment.weights,
            segment.planned,
            segment.block_code,
            start,
            left * self.noise.sd if isinstance(self.noise, GaussianNoise) else -1.0,
            left,
            rng,
            counts,
            sums,
            squared,
        )
        return SegmentStats(counts, sums, squared if squares else None)
