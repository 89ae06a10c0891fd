"""The data step: from results to what is to be drawn, as plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from steadyarm.errors import InvalidInputError
from steadyarm.paper.published import NOT_COMPARABLE, published_counts
from steadyarm.paper.run import CellResult
from steadyarm.paper.specification import PAPER_POLICIES, Figure, Value

__all__ = ["Panel", "Point", "Series", "panel_of"]

_SPREAD = 0.36  # how far the policies' points stand apart, as a share of the grid's spacing


@dataclass(frozen=True)
class Point:
    """One cell: the error rate, its exact 95 % interval and the published rate, if there is one."""

    value: Value
    x: float
    rate: float
    low: float
    high: float
    published: float | None


@dataclass(frozen=True)
class Series:
    """One policy's points, by rising value, and where its points without errors are drawn."""

    policy: str
    points: tuple[Point, ...]
    zero: float | None = None


@dataclass(frozen=True)
class Panel:
    """All that a picture shows.

    Attributes
    ----------
    label : of the parameter's axis; "" if there is a single setting
    series : one per policy
    gaps : (value, smallest gap) for the panel below; empty if there is none
    trials : fewest and most trials of a cell
    bottom, top : where the logarithmic error axis ends
    log_values : whether the parameter's axis is logarithmic
    strip : lower end of a strip below `bottom` for points without errors, in which each policy
        has its own lane; None if every cell has errors
    """

    name: str
    title: str
    label: str
    series: tuple[Series, ...]
    gaps: tuple[tuple[float, float], ...]
    trials: tuple[int, int]
    bottom: float
    top: float
    strip: float | None
    log_values: bool = False

    @property
    def single(self) -> bool:
        """Whether there is one setting, and policies are the only thing to compare."""
        return not self.values

    @property
    def has_published(self) -> bool:
        """Whether any point has a published rate beside it."""
        return any(p.published is not None for line in self.series for p in line.points)

    @property
    def values(self) -> tuple[float, ...]:
        """The parameter's values."""
        return tuple(
            sorted({p.value for s in self.series for p in s.points if p.value is not None})
        )

    def place(self, line: Series, rate: float) -> float:
        """Where a rate is drawn: nothing falls off the axis, and zero is in the policy's lane."""
        return line.zero if rate == 0 and line.zero is not None else max(rate, self.bottom)


def panel_of(figure: Figure, results: Iterable[CellResult]) -> Panel:
    """What to draw for a figure; results of other figures are left out.

    Examples
    --------
    >>> from steadyarm.paper.specification import figure_named
    >>> cells = [CellResult("soare_scale", "scale", s, "Peace", 1000, s, 0.2, 1.0) for s in (0, 5)]
    >>> panel = panel_of(figure_named("soare_scale"), cells)
    >>> [point.rate for point in panel.series[0].points], panel.gaps
    ([0.0, 0.005], ((0, 0.2), (5, 0.2)))
    """
    cells = [result for result in results if result.figure == figure.name]
    if not cells:
        raise InvalidInputError(f"there are no results of {figure.name} to draw.")
    policies = _in_order({cell.policy for cell in cells})
    values = sorted({cell.value for cell in cells if cell.value is not None})
    scale = np.log if figure.log_values else np.asarray
    spacing = min((float(scale(b) - scale(a)) for a, b in pairwise(values)), default=1.0)
    lines = []
    for i, policy in enumerate(policies):
        shift = spacing * _SPREAD * ((i + 0.5) / len(policies) - 0.5)
        mine = [cell for cell in cells if cell.policy == policy]
        points = [_point(cell, shift, figure.log_values) for cell in mine]
        lines.append(Series(policy, tuple(sorted(points, key=lambda point: point.x))))
    gaps = {c.value: c.min_gap for c in cells if c.value is not None} if figure.gap_panel else {}
    bottom, top, strip = _limits([point for line in lines for point in line.points], len(lines))
    if strip is not None:
        shares = [(i + 1) / (len(lines) + 1) if values else 0.5 for i in range(len(lines))]
        lines = [
            replace(line, zero=bottom * (strip / bottom) ** share)
            for line, share in zip(lines, shares, strict=True)
        ]
    return Panel(
        figure.name,
        figure.title,
        figure.label,
        tuple(lines),
        tuple(sorted(gaps.items())),
        (min(cell.trials for cell in cells), max(cell.trials for cell in cells)),
        bottom,
        top,
        strip,
        figure.log_values,
    )


def _point(cell: CellResult, shift: float, log_values: bool) -> Point:
    value = cell.value or 0.0
    x = float(value * np.exp(shift) if log_values else value + shift)
    theirs = published_counts().get((cell.figure, cell.value, cell.policy))
    published = None if theirs is None or cell.figure in NOT_COMPARABLE else theirs.error_rate
    low, high = cell.interval(0.95)
    return Point(cell.value, x, cell.error_rate, low, high, published)


def _limits(points: Sequence[Point], lanes: int) -> tuple[float, float, float | None]:
    """Ends of the axis, and of the strip for zeros.

    From the lowest interval, or a little below the smallest positive rate, to above everything.
    """
    rates = [point.rate for point in points]
    rates += [point.published for point in points if point.published is not None]
    smallest = min((rate for rate in rates if rate > 0), default=max(p.high for p in points))
    lowest = min((point.low for point in points if point.low > 0), default=smallest)
    bottom = max(min(lowest, smallest) / 1.15, smallest / 3)
    top = 1.2 * max(*rates, *(point.high for point in points))
    bottom = min(bottom, top / 4, *(point.high / 3 for point in points if point.rate == 0))
    share = 0.03 + 0.025 * lanes  # of the axis, for the strip
    strip = bottom * (bottom / top) ** (share / (1 - share)) if min(rates) == 0 else None
    return bottom, top, strip


def _in_order(policies: set[str]) -> list[str]:
    """The paper's order first, then the others by name."""
    known = [policy for policy in PAPER_POLICIES if policy in policies]
    return known + sorted(policies.difference(known))
