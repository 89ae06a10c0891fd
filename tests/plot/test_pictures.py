"""The matplotlib drawer: every chart, the same bytes every time."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from datetime import timedelta
from typing import Literal

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.image import imread

from steadyarm.plot import charts
from steadyarm.plot.chart import Axis, Chart, Kind, Panel, Series, Table
from steadyarm.plot.matplotlib import draw, png, svg
from steadyarm.plot.plotly import spec_of
from tests.plot import samples

OTHERS = ("effects", "interactions", "hostile effects", "items", "many items", "plan")


@pytest.mark.parametrize(("K", "J", "P"), [(2, 60, 10), (16, 60, 10), (200, 16, 3), (3, 1, 1)])
def test_every_chart_is_drawn(K: int, J: int, P: int) -> None:
    for chart in samples.charts_of(K, J, P).values():
        check_drawn(chart)


@pytest.mark.parametrize("kind", OTHERS)
def test_other_charts_are_drawn(kind: str) -> None:
    check_drawn(samples.other_chart(kind))


def check_drawn(chart: Chart) -> None:
    pixels = imread(io.BytesIO(png(chart, dpi=40)))
    assert pixels.shape[1] == 280
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20


def test_files_are_the_same_at_every_call_and_settings_stay() -> None:
    before = dict(rcParams)
    for chart in samples.charts_of(5, 20, 4).values():
        assert png(chart, dpi=40) == png(chart, dpi=40)
        first = svg(chart)
        assert first == svg(chart)
        assert b"<dc:date>" not in first
        assert ET.fromstring(first).tag.endswith("svg")
    assert dict(rcParams) == before


def test_names_are_texts_whatever_is_in_them() -> None:
    named = (samples.HOSTILE, r"\$x^$ \frac", "_hidden", "日本語 🎉", "100 %")
    for chart in samples.charts_of(5, 20, 4, named).values():
        check_drawn(chart)  # a warning is an error
    figure = draw(samples.charts_of(5, 20, 4, named)["estimates"])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(labels) == 5
    assert " _hidden" in labels
    assert r"\\$x^\$ \frac" in labels  # as matplotlib wants its dollars


def test_the_numbers_drawn_are_those_of_the_chart() -> None:
    series = Series("A", (1.0, 2.0, 3.0), np.array([0.5, np.nan, 0.7]))
    panel = Panel(Axis("x"), Axis("y"), (series,), level=0.6)
    axes = draw(Chart("c", "c", "c.", (panel,), Table((), ()))).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), series.y)
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), series.x)
    assert axes.lines[1].get_ydata() == [0.6, 0.6]


@pytest.mark.parametrize(
    ("kind", "scale"),
    [
        ("line", "number"),
        ("points", "number"),
        ("bars", "number"),
        ("steps", "number"),
        ("area", "number"),
        ("line", "log"),
        ("points", "log"),
    ],
)
def test_where_nothing_is_known_nothing_is_drawn(
    kind: Kind, scale: Literal["number", "log"]
) -> None:
    unknown, ends = np.full(2, np.nan), np.full(2, np.inf)
    series = Series("A", (1.0, 2.0), unknown, -ends, ends, kind)
    panel = Panel(Axis("x"), Axis("y", scale), (series,))
    chart = Chart("c", "c", "c.", (panel,), Table((), ()))
    assert png(chart, dpi=40)
    for trace in spec_of(chart)["data"]:
        assert trace["y"] == [None, None]


def test_clocks_of_any_length_have_few_ticks() -> None:
    for hours in (0.0, 0.01, 0.7, 2.9, 5, 23, 49, 71, 90, 200, 700, 2000, 9000, 26000, 90000):
        x = tuple(samples.START + timedelta(hours=hours * part) for part in (0, 0.4, 1))
        panel = Panel(Axis("t", "time"), Axis("y"), (Series("A", x, np.arange(3.0)),))
        figure = draw(Chart("c", "c", "c.", (panel,), Table((), ())))
        figure.draw_without_rendering()  # a warning is an error
        ticks = figure.axes[0].get_xticklabels()
        assert 1 <= len(ticks) <= 9, hours


def test_labels_down_the_side_begin_on_top() -> None:
    chart = charts.leaderboard(samples.verdict(4), samples.names(4), "maximize")
    axes = draw(chart).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [row[1] for row in chart.table.rows]
    low, high = axes.get_ylim()
    assert low > high
