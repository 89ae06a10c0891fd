"""Rhythm: how the effects move during a test, and how many days a test takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
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


@dataclass(frozen=True, eq=False)
class Pieces:
    """The test cut where its means change: round after each piece, swing and level of it.

    The swing multiplies the effects, the level is added to all arms. Weighted with the pieces'
    lengths the swing averages one and the level zero.
    """

    ends: NDArray[np.int64]
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

    def days(self, budget: int, traffic: int) -> int:
        """How many days a test takes: as few as the traffic allows, in whole cycles."""
        cycle = {"weekend": 7, "promotion": 7, "curve": len(self.curve)}.get(self.kind, 1)
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
