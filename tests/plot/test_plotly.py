"""The Plotly drawer: plain values, hostile names as text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from steadyarm.plot import charts, layout
from steadyarm.plot.chart import Axis, Chart, Mark, Panel, Series, Table
from steadyarm.plot.plotly import figure_of, spec_of
from tests.plot import samples

CASES = [(2, 60, 10), (16, 60, 10), (200, 16, 3), (3, 1, 1)]


def all_charts() -> Iterator[Chart]:
    for K, J, P in CASES:
        yield from samples.charts_of(K, J, P).values()
    for kind in ("effects", "interactions", "items", "many items", "plan"):
        yield samples.other_chart(kind)


def chart_of(*series: Series, x: str = "number", **more: Any) -> Chart:
    kind: Any = x
    panel = Panel(Axis("x", kind), Axis("y"), series, **more)
    return Chart("test", "A test", "A test.", (panel,), Table((), ()))


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, entry in value.items():
            if key != "hovertemplate":
                yield from texts_in(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from texts_in(entry)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("dark", [False, True])
def test_every_chart_is_json_and_a_valid_figure(dark: bool) -> None:
    for chart in all_charts():
        spec = spec_of(chart, dark)
        again = json.loads(json.dumps(spec, allow_nan=False))
        assert again == spec, chart.name
        assert "width" not in spec["layout"]
        assert spec["layout"]["uirevision"] == chart.name
        figure_of(chart)  # Plotly checks every name and value


def test_values_are_those_of_the_chart_and_unknown_ones_are_none() -> None:
    y = np.array([1.0, np.nan, np.inf, -np.inf, 2.0])
    trace = spec_of(chart_of(Series("A", (0, 1, 2, 3, 4), y)))["data"][0]
    assert trace["y"] == [1.0, None, None, None, 2.0]
    assert trace["x"] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_bands_are_closed_shapes_where_both_ends_are_known() -> None:
    low = np.array([-np.inf, 1.0, 2.0, np.nan, 3.0])
    high = np.array([np.inf, 3.0, 4.0, 5.0, 6.0])
    chart = chart_of(Series("A", (0, 1, 2, 3, 4), np.ones(5), low, high))
    band, edges, line = spec_of(chart)["data"]
    assert band["fill"] == "toself"
    assert band["x"] == [1, 2, 2, 1, None, 4, 4]
    assert band["y"] == [1, 2, 4, 3, None, 3, 6]
    assert edges["x"] == [1, 2, None, 1, 2, None, 4, None, 4]
    assert edges["y"] == [1, 2, None, 3, 4, None, 3, None, 6]
    assert line["customdata"][0] == "1"
    assert line["customdata"][1] == "1 (1 to 3)"


def test_error_bars_end_where_intervals_do() -> None:
    y, low, high = np.array([2.0, 3.0]), np.array([1.5, -np.inf]), np.array([4.0, np.inf])
    trace = spec_of(chart_of(Series("A", ("a", "b"), y, low, high, "points"), x="label"))["data"][0]
    assert trace["error_y"]["array"] == [2.0, None]
    assert trace["error_y"]["arrayminus"] == [0.5, None]


def test_times_are_in_utc_without_a_zone() -> None:
    when = (datetime(2026, 11, 15, 8, 30, tzinfo=UTC), datetime(2026, 11, 16, tzinfo=UTC))
    spec = spec_of(chart_of(Series("A", when, np.ones(2)), x="time", marks=(Mark(when[1], "t"),)))
    assert spec["data"][0]["x"] == ["2026-11-15T08:30:00", "2026-11-16T00:00:00"]
    assert spec["layout"]["shapes"][0]["x0"] == "2026-11-16T00:00:00"
    axis = spec["layout"]["xaxis"]
    assert axis["tickangle"] == 0
    assert [stop["value"] for stop in axis["tickformatstops"]][2:4] == [
        "%H:%M\n%-d %b",
        "%-d %b\n%Y",
    ]


def test_names_are_never_markup() -> None:
    named = (samples.HOSTILE, "<i>2</i>", "a&b $x$", "&lt;")
    for chart in samples.charts_of(4, 20, 4, named).values():
        for text in texts_in(spec_of(chart, title=True)):
            clean = text.replace("<br>", "")
            assert "<" not in clean, (chart.name, text)
            assert ">" not in clean
            assert "$" not in text
    hostile = charts.effects(samples.effects(samples.HOSTILE))
    assert not any("<" in text for text in texts_in(spec_of(hostile)))
    data = spec_of(samples.charts_of(4, 20, 4, named)["estimates"])["data"]
    assert {"&lt;i&gt;2&lt;/i&gt;", "&amp;lt;", "a&amp;b &#36;x&#36;"} <= {t["name"] for t in data}


def test_templates_hold_no_text_of_people() -> None:
    for chart in samples.charts_of(3, 20, 4, (samples.HOSTILE, "%{x}", "%{meta[0]}")).values():
        for trace in spec_of(chart)["data"]:
            assert trace.get("hovertemplate", "%{customdata}") == "%{customdata}"


def test_names_that_look_alike_when_cut_stay_apart() -> None:
    names = tuple(f"{'same ' * 20}{k}{'end ' * 20}" for k in range(3))
    series = Series("values", names, np.arange(3.0), kind="points")
    spec = spec_of(chart_of(series, x="label", sideways=True))
    assert spec["data"][0]["y"] == [0.0, 1.0, 2.0]
    assert spec["layout"]["yaxis"]["tickvals"] == [0.0, 1.0, 2.0]
    assert spec["layout"]["yaxis"]["range"] == [2.5, -0.5]  # the first on top


def test_texts_of_marks_do_not_cover_each_other() -> None:
    x = tuple(float(k) for k in range(100))
    marks = tuple(Mark(float(at), f"variant {at} leads") for at in (10, 12, 14, 80, 82))
    spec = spec_of(chart_of(Series("A", x, np.ones(100)), marks=marks))
    texts = [note for note in spec["layout"]["annotations"] if "leads" in note["text"]]
    assert len({note["yshift"] for note in texts[:3]}) == 3
    assert len(spec["layout"]["shapes"]) == 5
    same = tuple(replace(mark, text="changed") for mark in marks)
    spec = spec_of(chart_of(Series("A", x, np.ones(100)), marks=same))
    assert not [note for note in spec["layout"]["annotations"] if note["text"] == "changed"]
    assert [trace["name"] for trace in spec["data"]] == ["A", "changed"]


def test_early_noise_does_not_set_the_scale() -> None:
    y = np.ones(100)
    y[:5] = 1000.0
    low, high = spec_of(chart_of(Series("A", tuple(range(100)), y)))["layout"]["yaxis"]["range"]
    assert low < 1 < high < 2


def test_panels_do_not_overlap() -> None:
    for chart in all_charts():
        for columns in (1, 2):
            layout = spec_of(chart, columns=columns)["layout"]
            boxes = [
                (*layout[f"xaxis{n}"]["domain"], *layout[f"yaxis{n}"]["domain"])
                for n in ("", *range(2, len(chart.panels) + 1))
            ]
            for i, (a, b, c, d) in enumerate(boxes):
                assert 0 <= a < b <= 1 + 1e-9
                assert -1e-9 <= c < d <= 1 + 1e-9
                for e, f, g, h in boxes[:i]:
                    assert b <= e or f <= a or d <= g or h <= c


@pytest.mark.parametrize("ground", [layout.LIGHT, layout.DARK])
def test_lines_and_texts_stand_out_from_the_ground(ground: layout.Ground) -> None:
    for color in (*ground.lines, ground.quiet):
        assert contrast(color, ground.ground) >= 3
    for color in (ground.text, ground.faint):
        assert contrast(color, ground.ground) >= 4.5
    assert len(set(ground.lines)) == len(layout.DASHES) == 8


def contrast(one: str, other: str) -> float:
    """As in WCAG 2."""
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def luminance(color: str) -> float:
    parts = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_neither_library_is_imported_before_something_is_drawn() -> None:
    code = (
        "import sys, steadyarm as sa; from tests.plot import samples; "
        "from steadyarm.plot.plotly import spec_of; sa.plot.leaderboard; "
        "[spec_of(c) for c in samples.charts_of(3, 5, 2).values()]; "
        "print([m for m in ('plotly', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
