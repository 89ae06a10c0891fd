"""Chart: what is to be drawn, as plain values; one drawer for Plotly and one for matplotlib."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.files import csv_cell

__all__ = ["Axis", "Chart", "Mark", "Panel", "Series", "Table"]

Floats = NDArray[np.float64]
Kind = Literal["line", "steps", "points", "area", "bars"]


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
    x : numbers, datetimes or texts, as the panel's axis says
    y : nan where there is none
    low, high : ends of intervals: a band around lines, bars at points; infinite where unknown
    kind : lines, steps, points with error bars, areas that are stacked upon each other, or bars
    color : index into the palette; None for the quiet grey of what is not picked out
    weak : which values come of little data: they do not set the scale, and points are hollow
    """

    name: str
    x: tuple[Any, ...]
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    kind: Kind = "line"
    color: int | None = 0
    weak: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Mark:
    """A vertical line where something happened."""

    x: datetime | float
    text: str


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    level : of the values, a line to compare with
    sideways : labels of x stand below each other, the first on top, and values run to the right
    y_range : both ends of the axis of values; None to let them follow from the values
    """

    x: Axis
    y: Axis
    series: tuple[Series, ...]
    title: str = ""
    marks: tuple[Mark, ...] = ()
    level: float | None = None
    sideways: bool = False
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Table:
    """The numbers behind a chart: one row for every point; None where nothing is known."""

    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

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
    title : what is to be seen
    summary : the same for those who cannot see it, in one or two sentences with the main numbers
    panels : side by side; at least one
    table : the numbers
    note : small print below, may be empty
    """

    name: str
    title: str
    summary: str
    panels: tuple[Panel, ...]
    table: Table
    note: str = field(default="")


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return csv_cell(value) if isinstance(value, str) else value
