"""Ranges of axes: little data does not set the scale."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from steadyarm.inference import DriftReport
from steadyarm.plot import charts
from steadyarm.plot.chart import Axis, Chart, Kind, Panel, Series, Table
from steadyarm.plot.matplotlib import draw
from steadyarm.plot.plotly import spec_of
from tests.plot import samples


def ranges(chart: Chart) -> list[tuple[float, float]]:
    """Of the values of each panel, which both drawers must have alike."""
    layout, figure = spec_of(chart)["layout"], draw(chart)
    found = []
    for i, panel in enumerate(chart.panels):
        own = layout[f"{'x' if panel.sideways else 'y'}axis{i + 1 if i else ''}"]["range"]
        axes = figure.axes[i]
        np.testing.assert_allclose(axes.get_xlim() if panel.sideways else axes.get_ylim(), own)
        found.append((float(own[0]), float(own[1])))
    return found


def chart_of(*panels: Panel) -> Chart:
    return Chart("test", "A test", "A test.", panels, Table((), ()))


@pytest.mark.parametrize("kind", ["line", "points", "bars", "steps", "area"])
@pytest.mark.parametrize("sideways", [False, True])
def test_a_range_that_is_given_is_kept(kind: Kind, sideways: bool) -> None:
    series = Series("A", ("a", "b"), np.array([1.0, 5.0]), kind=kind)
    panel = Panel(Axis("", "label"), Axis("y"), (series,), sideways=sideways, y_range=(-2.0, 3.0))
    assert ranges(chart_of(panel)) == [(-2.0, 3.0)]


def test_a_range_that_is_given_is_that_of_its_panel_only() -> None:
    series = Series("A", (0.0, 1.0), np.array([1.0, 5.0]), kind="points")
    free = Panel(Axis("x"), Axis("y"), (series,))
    fixed = replace(free, y_range=(-90.0, 90.0))
    first, second = ranges(chart_of(free, fixed))
    assert -1 < first[0] < 1
    assert 5 < first[1] < 6
    assert second == (-90.0, 90.0)


def begun(P: int = 8) -> DriftReport:
    """The last day has a handful of visits, which say wild things."""
    report = samples.drift(12, P)
    rounds, wild = report.rounds.copy(), np.where(np.arange(12) % 2, 30.0, -30.0)
    rounds[-1] = 5
    estimates, gaps = report.estimates.copy(), report.gaps.copy()
    intervals, gap_errors = report.intervals.copy(), report.gap_errors.copy()
    estimates[-1], gaps[-1], gap_errors[-1] = wild, wild, 50.0
    intervals[-1] = np.column_stack([wild - 90, wild + 90])
    return replace(
        report,
        rounds=rounds,
        estimates=estimates,
        gaps=gaps,
        intervals=intervals,
        gap_errors=gap_errors,
    )


def test_a_day_that_has_just_begun_does_not_set_the_scale() -> None:
    report = begun()
    for chart in (charts.daily(report), charts.drift(report)):
        assert "Days with few visits are hollow, and may lie beyond the picture." in chart.note
        for low, high in ranges(chart):
            assert -2 < low < high < 2
    full = report.estimates[:-1]
    low, high = ranges(charts.daily(report))[0]
    assert low < full.min() < full.max() < high
    assert "hollow" not in charts.daily(samples.drift(12, 8)).note


def test_such_a_day_is_drawn_all_the_same_and_hollow() -> None:
    chart = charts.drift(begun())
    level = chart.panels[1].series[0]
    traces = [t for t in spec_of(chart)["data"] if t["name"] == "average of all variants"]
    firm, hollow = traces
    assert firm["y"][-1] is None
    assert firm["y"][:-1] == level.y[:-1].tolist()
    assert hollow["y"] == [None] * 7 + [level.y[-1]]
    assert hollow["marker"]["symbol"].endswith("-open")
    assert not any(trace["showlegend"] for trace in traces)  # the panel's title names it
    lines = draw(chart).axes[1].lines
    assert [line.get_markerfacecolor() for line in lines[:2]][1] == "white"
    assert np.asarray(lines[1].get_ydata())[-1] == level.y[-1]
    assert np.isnan(np.asarray(lines[0].get_ydata(), float)[-1])


def test_if_all_is_of_little_data_it_is_the_scale() -> None:
    weak = np.ones(2, bool)
    series = Series("A", (0.0, 1.0), np.array([4.0, 9.0]), kind="points", weak=weak)
    low, high = ranges(chart_of(Panel(Axis("x"), Axis("y"), (series,))))[0]
    assert 3 < low < 4 < 9 < high < 10


def test_first_looks_do_not_set_the_scale_however_long_they_took() -> None:
    course = samples.course(12, 40)
    estimates, low, high = course.estimates.copy(), course.low.copy(), course.high.copy()
    rounds = np.append(np.arange(1, 31), 3000 + 500 * np.arange(10))  # nights without visitors
    estimates[:30], low[:30], high[:30] = 40.0, -400.0, 400.0
    wild = replace(course, rounds=rounds, estimates=estimates, low=low, high=high)
    chart = charts.estimates(wild)
    bottom, top = ranges(chart)[0]
    late = estimates[rounds >= rounds[-1] / 4]
    assert bottom < late.min() < late.max() < top < 1
    k = int(course.leaders[-1])
    assert bottom < low[-1, k] < high[-1, k] < top
    assert chart.note.endswith("Early bands are wider than the picture.")


def test_bands_of_the_second_half_fit_the_axis_and_wider_ones_are_cut() -> None:
    course = samples.course(12, 60)
    chart = charts.estimates(course)
    bottom, top = ranges(chart)[0]
    banded = [series for series in chart.panels[0].series if series.low is not None]
    for series in banded:
        assert series.low is not None
        assert series.high is not None
        half = slice(len(series.x) // 2, None)
        assert bottom < series.low[half].min() < series.high[half].max() < top
        assert series.high[np.isfinite(series.high)].max() > top


@pytest.mark.parametrize("value", [0.0, 0.02, 3.0, -3.0])
@pytest.mark.parametrize("kind", ["line", "points"])
def test_one_point_is_seen_against_zero(kind: Kind, value: float) -> None:
    series = Series("A", (1.0,), np.array([value]), kind=kind)
    low, high = ranges(chart_of(Panel(Axis("x"), Axis("y"), (series,))))[0]
    assert low < min(value, 0) <= max(value, 0) < high
    reach = abs(value) or 1.0
    assert high - low == pytest.approx(1.12 * reach)
    assert low == pytest.approx(min(value, 0) - 0.06 * reach)


def test_hours_of_waiting_begin_at_zero() -> None:
    waiting = samples.waiting()
    chart = charts.waiting(waiting)
    low, high = chart.panels[1].y_range or (np.nan, np.nan)
    assert low == 0
    assert np.nanmax(waiting.hours) < high < 1.2 * np.nanmax(waiting.hours)
    assert spec_of(chart)["layout"]["yaxis2"]["range"] == [low, high]
    assert draw(chart).axes[1].get_ylim() == (low, high)
    none = replace(waiting, hours=np.full(14, np.nan))
    assert charts.waiting(none).panels[1].y_range == (0.0, 1.0)


@pytest.mark.parametrize("seconds", [0, 1, 1200, 7200])
@pytest.mark.parametrize("J", [1, 2])
def test_shares_fill_the_picture_however_short_the_test_is(J: int, seconds: float) -> None:
    starts = (samples.START, samples.START + timedelta(seconds=seconds / 2))[:J]
    ends = (*starts[1:], samples.START + timedelta(seconds=seconds))
    shares = replace(samples.shares(3, J), starts=starts, ends=ends)
    chart = charts.allocation(shares)
    x = chart.panels[0].series[0].x
    assert x[0] == samples.START
    assert x[-1] - x[0] == timedelta(seconds=seconds or 60)
    axes = draw(chart).axes[0]
    np.testing.assert_allclose(axes.get_xlim(), [at.timestamp() / 86400 for at in (x[0], x[-1])])
    spec = spec_of(chart)
    if seconds < 3600:
        ends_of = [at.replace(tzinfo=None).isoformat() for at in (x[0], x[-1])]
        assert spec["layout"]["xaxis"]["range"] == ends_of
    assert sum(trace["y"][0] for trace in spec["data"] if "stackgroup" in trace) == pytest.approx(1)


def test_a_single_visit_is_told_with_the_shares_it_was_drawn_with() -> None:
    shares = samples.shares(2, 1)
    one = replace(
        shares,
        rounds=np.array([1]),
        given=np.array([[0, 1]]),
        planned=np.array([[0.6, 0.4]]),
    )
    summary = charts.allocation(one).summary
    assert summary.startswith("1 visit so far. variant 1 now has the largest share, 60 %")


def test_those_ruled_out_are_in_the_race_and_without_any_there_is_none() -> None:
    course = samples.course(30, 6)
    alive = np.ones((6, 30), bool)
    assert len(charts.plausible(replace(course, plausible=alive)).panels) == 1
    alive[4:, 20:23] = False
    leaders = np.zeros(6, np.int64)
    race = charts.plausible(replace(course, plausible=alive, leaders=leaders)).panels[1]
    still, out = race.series
    assert race.title.endswith("(12 of 30)")
    assert np.isfinite(still.y).tolist() == [True] * 9 + [False] * 3
    assert set(out.x[9:]) == {course.names[k] for k in (20, 21, 22)}
    alive[4:, 1:] = False
    race = charts.plausible(replace(course, plausible=alive, leaders=leaders)).panels[1]
    assert np.isfinite(race.series[0].y).sum() == 1
    assert len(race.series[0].x) == 12


@pytest.mark.parametrize("sideways", [False, True])
@pytest.mark.parametrize(
    ("kind", "values", "place"),
    [
        ("number", [0.5, 0.6], 0.03),  # does not begin at zero
        ("number", [-0.5, -0.6], 0.97),
        ("number", [-0.5, 0.6], None),
        ("log", [0.5, 0.01], None),  # has no zero
        ("log", [0.5, 0.01, 0.0], "strip"),
    ],
)
def test_breaks_of_an_axis_are_marked_by_both_drawers(
    kind: Any, values: list[float], place: float | str | None, sideways: bool
) -> None:
    names = tuple("abc"[: len(values)])
    series = Series("A", names, np.array(values), kind="points")
    chart = chart_of(Panel(Axis("", "label"), Axis("y", kind), (series,), sideways=sideways))
    axes = draw(chart).axes[0]
    strokes = [line for line in axes.lines if isinstance(line.get_marker(), list)]
    shapes = [s for s in spec_of(chart)["layout"]["shapes"] if s["type"] == "line"]
    if place is None:
        assert strokes == shapes == []
        return
    if place == "strip":
        (strip,) = axes.patches
        drawn = strip.get_extents().transformed(axes.transAxes.inverted())
        place = float(drawn.x1 if sideways else drawn.y1)
    for stroke in strokes:
        assert (stroke.get_xdata() if sideways else stroke.get_ydata())[0] == pytest.approx(place)  # type: ignore[index]
    anchors = [shape["xanchor" if sideways else "yanchor"] for shape in shapes]
    assert anchors == [pytest.approx(place)] * 2
    assert len(strokes) == 2
