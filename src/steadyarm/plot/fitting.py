"""Texts of a chart cut to the room that there is, different ones staying different."""

from __future__ import annotations

from dataclasses import dataclass, replace

from steadyarm.plot.chart import Chart, Mark, Panel
from steadyarm.plot.charts.names import apart

__all__ = ["NARROW", "PAPER", "WIDE", "Room", "fitted"]


@dataclass(frozen=True)
class Room:
    """Letters for a name in the legend, a label down the side, one below and a mark.

    `width` is that of the whole picture in pixels, roughly.
    """

    legend: int
    side: int
    below: int
    mark: int
    width: float


NARROW = Room(legend=34, side=22, below=16, mark=33, width=320)
WIDE = Room(legend=44, side=36, below=20, mark=56, width=640)
PAPER = Room(legend=44, side=34, below=14, mark=56, width=460)


def fitted(chart: Chart, room: Room) -> Chart:
    """The chart with names of series and texts of marks that fit; labels are cut by their axes."""
    names = list(dict.fromkeys(s.name for panel in chart.panels for s in panel.series))
    short = dict(zip(names, apart(names, room.legend), strict=True))
    panels = tuple(
        replace(
            panel,
            series=tuple(replace(series, name=short[series.name]) for series in panel.series),
            marks=_marks(panel, room),
        )
        for panel in chart.panels
    )
    return replace(chart, panels=panels)


def _marks(panel: Panel, room: Room) -> tuple[Mark, ...]:
    texts = apart([mark.text for mark in panel.marks], room.mark)
    return tuple(replace(mark, text=text) for mark, text in zip(panel.marks, texts, strict=True))
