"""Specifications of charts in Vega-Lite: their parts, their data, and how they become pictures.

A specification is a plain dictionary, so that a service makes charts without importing Altair.
All numbers of a chart are in its one list of rows, from which tables and CSV files are made.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np

from steadyarm.errors import MissingExtraError
from steadyarm.wording import amount, csv_cell, p_value

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.4.1.json"
VEGA_LITE = "6.4"  # as vl-convert names it
WIDTH, HEIGHT = 640, 300  # pixels of a chart in a file or a notebook
PAGE_HEIGHT = 230  # on a page
ROW = 24  # pixels of a row of labels
LINE = 100  # letters of a line of small print

# Colours of lines by their order, and of what means the same everywhere; all have a contrast of
# at least 3.5 to a light and to a dark ground.
LINES = (
    "#1F7FC4", "#D9620A", "#0A9470", "#BD5C95", "#AD7A10", "#7A6FD0", "#6B7785", "#C94F4F",
)  # fmt: skip
ACCENT, GOOD, BAD, OPEN, QUIET = "#2277CC", "#16906A", "#D9503C", "#B57A00", "#7F8896"
DOT = {"type": "point", "filled": True, "size": 70, "opacity": 1, "clip": True}
BAR = {"type": "rule", "strokeWidth": 2, "clip": True}
RULER = {"type": "rule", "color": QUIET, "strokeDash": [4, 3]}
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-right")


def config(dark: bool = False) -> Spec:
    """The look of all charts, on a light or on a dark ground."""
    ink, faint, grid = ("#e6e9ef", "#a9b1be", "#333a46") if dark else (
        "#1f2430", "#5a6270", "#dfe2e7",
    )  # fmt: skip
    words = {"titleColor": faint, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": "#171d25" if dark else "#ffffff",
        "font": "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif",
        "view": {"stroke": None},
        "axis": {
            **words,
            "labelColor": faint,
            "gridColor": grid,
            "domainColor": faint,
            "tickColor": faint,
            "titleFontWeight": "normal",
            "labelLimit": 220,
            "labelSeparation": 6,
        },
        "axisX": {"grid": False, "labelFlush": True},
        "legend": {**words, "labelColor": ink},
        "header": {"labelColor": ink, "labelFontSize": 13, "title": None},
        "title": {
            "color": ink,
            "subtitleColor": faint,
            "fontSize": 15,
            "subtitleFontSize": 12,
            "anchor": "start",
            "frame": "group",
            "offset": 12,
        },
        "text": {"color": ink},
        "rule": {"color": faint},
    }


# A chart and its parts.


@dataclass(frozen=True)
class Measure:
    """The measure that estimates have.

    Attributes
    ----------
    name : the name of the metric
    unit : the unit of its values, such as "€"
    rates : whether its values are yes or no, so that their means are shown in per cent

    Examples
    --------
    >>> Measure("revenue", "€").text(19.347), Measure("purchase", rates=True).text(0.0534)
    ('19.35 €', '5.34 %')
    """

    name: str = "estimated reward"
    unit: str = ""
    rates: bool = False

    @property
    def title(self) -> str:
        """The title of an axis."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def text(self, value: float) -> str:
        """A mean as people read it."""
        return f"{amount(value, self.rates)} {self.unit}".rstrip()


def chart(
    name: str,
    title: str,
    rows: Rows,
    *,
    summary: str,
    note: str = "",
    height: int = HEIGHT,
    **body: Any,
) -> Spec:
    """A specification.

    Parameters
    ----------
    name : short, for addresses and file names: letters and hyphens
    title : the title of the chart
    rows : all its numbers
    summary : the same in a sentence or two, for people who cannot see it
    note : small print
    height : in pixels
    body : marks and encodings, or layers, or other views
    """
    head = {"text": textwrap.wrap(title, 76), "subtitle": textwrap.wrap(note, LINE)}
    several = "vconcat" in body or "facet" in body
    return {
        "$schema": SCHEMA,
        "name": name,
        "title": head,
        "description": summary,
        "data": {"values": [{key: plain(value) for key, value in row.items()} for row in rows]},
        **({} if several else {"width": WIDTH, "height": height}),
        **body,
    }


def field(name: str, kind: str = "quantitative", title: str | None = None, **more: Any) -> Spec:
    """A column of the rows at a channel; its title is its name unless another is given."""
    return {"field": name, "type": kind, "title": name if title is None else title, **more}


def number(name: str, title: str, percent: bool = False, **more: Any) -> Spec:
    """A column of numbers; shares are shown in per cent."""
    axis = {"format": "~%"} if percent else {}
    return field(name, title=title, axis=axis, **more)


def difference(name: str, title: str, points: bool = False, **more: Any) -> Spec:
    """A column of differences; between shares they are percentage points."""
    if not points:
        return field(name, title=title, axis={"format": "+~r"}, **more)
    label = "format(datum.value * 100, '+~r')"
    words = f"{title}, percentage points" if title else "percentage points"
    return field(name, title=words, axis={"labelExpr": label}, **more)


def labels(name: str, order: Sequence[str]) -> Spec:
    """A column of names, listed from top to bottom in their order."""
    axis = {"ticks": False, "domain": False, "grid": False}
    return field(name, "nominal", "", sort=list(order), axis=axis)


def color(name: str, domain: Sequence[str], colors: Sequence[str] = LINES) -> Spec:
    """A column that decides on colours, with its values in the order of the legend."""
    columns = {"expr": f"max(1, min({max(len(domain), 1)}, floor(width / 210)))"}
    return {
        "field": name,
        "type": "nominal",
        "scale": {"domain": list(domain), "range": [*colors][: len(domain)]},
        "legend": {
            "orient": "bottom",
            "title": None,
            "columns": columns,
            "labelLimit": {"expr": "width < 420 ? max(width - 20, 100) : 200"},
            "symbolOpacity": 1,
        },
    }


def scale_of(*columns: Any) -> Spec:
    """A scale that shows all known values of these columns with a little room."""
    values = np.concatenate([np.ravel(np.asarray(column, dtype=float)) for column in columns])
    known = values[np.isfinite(values)]
    if not known.size:
        return {"zero": False, "nice": False}
    first, last = float(known.min()), float(known.max())
    room = 0.04 * ((last - first) or abs(last) or 1.0)
    return {"zero": False, "nice": False, "domain": [first - room, last + room]}


def level(value: float, channel: str = "y") -> Spec:
    """A dashed line across the chart to compare with."""
    return {"data": {"values": [{}]}, "mark": RULER, "encoding": {channel: {"datum": value}}}


def intervals(channel: str, value: Spec, tips: list[Spec]) -> list[Spec]:
    """A point at each value, and a line between the columns low and high."""
    ends = {channel: {**value, "field": "low"}, f"{channel}2": {"field": "high"}}
    return [
        {"mark": BAR, "encoding": ends},
        {"mark": DOT, "encoding": {channel: value, "tooltip": tips}},
    ]


def layers(encoding: Spec, *marks: Spec) -> list[Spec]:
    """Marks that share an encoding, as layers."""
    return [{**mark, "encoding": encoding | mark.get("encoding", {})} for mark in marks]


def hover(*columns: Spec) -> list[Spec]:
    """The fields that are shown for a point under the pointer."""
    return [
        {key: value for key, value in column.items() if key in ("field", "type", "title")}
        | ({"format": ".4~g"} if column["type"] == "quantitative" else {})
        for column in columns
    ]


# Values and names, as specifications have them.


def plain(value: Any) -> Any:
    """A value that JSON has; None for numbers that it does not have."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value


def cut(name: str, most: int = 36) -> str:
    """A name, its middle left out if it is long.

    Examples
    --------
    >>> cut("short headline"), cut("a very long headline with a dog", most=20)
    ('short headline', 'a very long…h a dog')
    """
    if len(name) <= most:
        return name
    tail = (most - 1) * 2 // 5
    return f"{name[: most - 1 - tail].rstrip()}…{name[len(name) - tail :].lstrip()}"


def cut_apart(names: Sequence[str], most: int = 36) -> tuple[str, ...]:
    """Each name, cut if it is long; those that would look the same have numbers.

    Examples
    --------
    >>> cut_apart(["B", "a headline with a cat", "a headline with 1 cat"], most=10)
    ('B', 'a head…cat (1)', 'a head…cat (2)')
    """
    short = [cut(name, most) for name in names]
    return tuple(
        text if short.count(text) == 1 else f"{text} ({short[: i + 1].count(text)})"
        for i, text in enumerate(short)
    )


def p_text(value: float) -> str:
    """A p-value in a sentence.

    Examples
    --------
    >>> p_text(0.0312), p_text(1e-9)
    ('p = 0.031', 'p < 0.0001')
    """
    text = p_value(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def thin_out(count: int, most: int) -> list[int]:
    """At most so many of the indices, the first and the last among them."""
    return [int(j) for j in np.unique(np.linspace(0, count - 1, min(count, most)).round())]


# What a finished specification says, and what it becomes.


def note_of(spec: Spec) -> str:
    """The small print of a chart."""
    return " ".join(spec["title"]["subtitle"])


def table_of(spec: Spec) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """The numbers of a chart: the names of the columns, and the rows."""
    rows: Rows = spec["data"]["values"]
    header = tuple(rows[0]) if rows else ()
    return header, [tuple(row.get(name) for name in header) for row in rows]


def csv_of(spec: Spec) -> str:
    """The numbers as a file that spreadsheets read; texts that they would compute are guarded."""
    header, rows = table_of(spec)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([csv_cell(name) for name in header])
    writer.writerows([csv_cell(v) if isinstance(v, str) else v for v in row] for row in rows)
    return out.getvalue()


def for_page(spec: Spec, dark: bool = False) -> Spec:
    """The specification as a page embeds it: as wide as its place, with the title left to HTML."""
    parts = {key: value for key, value in spec.items() if key != "title"}
    look = {**config(dark), "background": "transparent"}
    third = "max(90, floor(containerSize()[0] * 0.33))"  # that names take on a narrow screen
    look["axis"] = {**look["axis"], "labelLimit": {"expr": third}}
    fit = {"type": "fit-x", "contains": "padding"}
    if parts.get("height") == HEIGHT:
        parts["height"] = PAGE_HEIGHT
    return {**parts, "width": "container", "autosize": fit, "config": look}


def svg(spec: Spec) -> str:
    """The chart as a picture made of lines."""
    try:
        import vl_convert
    except ImportError as error:
        raise MissingExtraError(missing(error)) from None
    drawn: str = vl_convert.vegalite_to_svg(
        json.dumps({**spec, "config": config()}), vl_version=VEGA_LITE
    )
    return drawn


def data_url(spec: Spec) -> str:
    """The picture as an address that stands in a page; the small print is left to the page."""
    drawn = svg({**spec, "title": {"text": spec["title"]["text"]}})
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"


def missing(error: ImportError) -> str:
    """The error that says what to install if a library for charts is missing."""
    return f"charts need {error.name}; install it with: pip install 'steadyarm[plots]'."
