"""Chart: what is to be drawn, as plain values; one drawer for Plotly and one for matplotlib."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.files import csv_cell

__all__ = ["Axis", "Chart", "Mark", "Panel", "Series", "Table"]

Floats = NDArray[np.float64]
Kind = Literal["line", "steps", "points", "rings", "area", "bars"]


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes
    ----------
    kind : "time" for datetimes (UTC), "number", "log", or "label" for texts in their order
    percent : whether numbers are shares, to be shown in per cent
    """

    title: str = ""
    kind: Literal["time", "number", "log", "label"] = "number"
    percent: bool = False


@dataclass(frozen=True, eq=False)
class Series:
    """Values of one variant, level or policy.

    Attributes
    ----------
    x : numbers, datetimes or texts, according to the panel's axis
    y : values; nan where there is none
    low, high : ends of intervals: a band around lines, error bars at points; infinite if unknown
    kind : lines, steps, points with error bars, rings (open markers around the points of the
        same colour, to compare with, and thin error bars), areas that are stacked upon each other,
        or bars
    color : index of the style (colour, marker and dashes); None for the grey of the background
    weak : which values rest on little data: they do not set the scale, and points are hollow
    """

    name: str
    x: tuple[Any, ...]
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    kind: Kind = "line"
    color: int | None = 0
    weak: NDArray[np.bool_] | None = None

    def where(self, here: NDArray[np.bool_]) -> Series:
        """The same series with these points alone; others are nan."""
        y, low, high = (
            None if values is None else np.where(here, values, np.nan)
            for values in (self.y, self.low, self.high)
        )
        assert y is not None
        return replace(self, y=y, low=low, high=high)


@dataclass(frozen=True)
class Mark:
    """A vertical line where something happened, or a shaded stretch up to `until`."""

    x: datetime | float
    text: str
    until: float | None = None


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    level : a value to compare with, drawn as a line
    sideways : labels of x are listed from top to bottom, and values run to the right
    y_range : both ends of the axis of values; None to let them follow from the values
    height : relative to that of an ordinary panel
    zeros : on a logarithmic axis of values, the upper end of the strip that stands for zero; set
        by the layout where a value is zero
    """

    x: Axis
    y: Axis
    series: tuple[Series, ...]
    title: str = ""
    marks: tuple[Mark, ...] = ()
    level: float | None = None
    sideways: bool = False
    y_range: tuple[float, float] | None = None
    height: float = 1.0
    zeros: float | None = None


@dataclass(frozen=True)
class Table:
    """The numbers behind a chart: one row for every point; None where nothing is known."""

    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, columns: Mapping[str, Iterable[Any]]) -> Table:
        """The table with these columns.

        Examples
        --------
        >>> Table.of({"variant": ["A", "B"], "estimate": np.array([0.5, np.nan])}).rows
        (('A', 0.5), ('B', None))
        """
        rows = zip(*columns.values(), strict=True)
        return cls(tuple(columns), tuple(tuple(map(_plain, row)) for row in rows))

    @classmethod
    def grid(
        cls,
        outer: Mapping[str, Sequence[Any] | NDArray[Any]],
        inner: Mapping[str, Sequence[Any]],
        cells: Mapping[str, NDArray[Any]],
    ) -> Table:
        """A row for each pair of an outer and an inner entry, with their (outer, inner) cells.

        Examples
        --------
        >>> Table.grid({"day": [1, 2]}, {"arm": ["A", "B"]}, {"n": np.arange(4).reshape(2, 2)}).rows
        ((1, 'A', 0), (1, 'B', 1), (2, 'A', 2), (2, 'B', 3))
        """
        J, K = (len(next(iter(side.values()))) for side in (outer, inner))
        wide = {name: np.broadcast_to(values, (J, K)) for name, values in cells.items()}
        rows = (
            (
                *(values[j] for values in outer.values()),
                *(values[k] for values in inner.values()),
                *(values[j, k] for values in wide.values()),
            )
            for j in range(J)
            for k in range(K)
        )
        return cls((*outer, *inner, *cells), tuple(tuple(map(_plain, row)) for row in rows))

    def csv(self) -> str:
        """As a file that spreadsheets read; texts that they would compute are guarded."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([csv_cell(name) for name in self.header])
        writer.writerows([_cell(value) for value in row] for row in self.rows)
        return out.getvalue()


@dataclass(frozen=True, eq=False)
class Chart:
    """A picture before it is drawn.

    Attributes
    ----------
    name : short, for addresses and file names: letters and hyphens
    title : what the chart shows
    summary : the same for people who cannot see it, in a sentence or two with the main numbers
    panels : at least one
    table : the numbers
    note : small print below, in plain words; may be empty
    meaning : what intervals and words of the chart mean exactly, for those who ask; may be empty
    """

    name: str
    title: str
    summary: str
    panels: tuple[Panel, ...]
    table: Table
    note: str = field(default="")
    meaning: str = field(default="")


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return csv_cell(value) if isinstance(value, str) else value
