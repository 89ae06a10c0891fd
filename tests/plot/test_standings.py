"""The chart of differences from the control."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.verdict import Verdict
from steadyarm.plot import charts
from steadyarm.plot.chart import Chart
from tests.plot import samples

NAMES = ("today", "better", "worse", "alike")
RATES = {"today": 0.3, "better": 0.5, "worse": 0.1, "alike": 0.31}


def session(
    control: str | None = "today", direction: sa.segments.Direction = "maximize"
) -> sa.Session:
    arms = sa.ArmSet.one_hot(NAMES)
    test = sa.Session(sa.Uniform(), arms, 2000, seed=4, direction=direction, control=control)
    clicks = np.random.default_rng(7)
    for _ in range(2000):
        shown = test.ask()
        test.tell(shown, float(clicks.random() < RATES[shown.name]))
    return test


def drawn(chart: Chart) -> dict[str, list[str]]:
    """The variants of each series that have a value."""
    return {
        series.name: [x for x, y in zip(series.x, series.y, strict=True) if np.isfinite(y)]
        for series in chart.panels[0].series
    }


def verdict() -> Verdict:
    return session().recommend()


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_variants_are_better_worse_or_not_clearly_different(
    direction: sa.segments.Direction,
) -> None:
    chart = charts.lifts(session(direction=direction).recommend(), NAMES, direction)
    better, worse = ["better"], ["worse"]
    if direction == "minimize":
        better, worse = worse, better
    assert drawn(chart) == {
        "better than today": better,
        "no clear difference": ["alike"],
        "worse than today": worse,
    }
    rows = chart.panels[0].series[0].x
    assert (rows[0], rows[-1]) == (better[0], worse[0])
    assert ("Small values are good." in chart.note) == (direction == "minimize")


def test_relative_differences_are_drawn_and_both_are_in_the_table() -> None:
    found = verdict()
    chart = charts.lifts(found, NAMES, "maximize")
    (panel,) = chart.panels
    assert panel.level == 0.0
    assert panel.y.percent
    assert found.relative is not None
    assert found.lifts is not None
    assert found.relative_intervals is not None
    first = panel.series[0]
    assert first.y[0] == found.relative[1]
    assert first.low is not None
    assert first.low[0] == found.relative_intervals[1, 0] > 0
    table = {row[0]: dict(zip(chart.table.header, row, strict=True)) for row in chart.table.rows}
    assert table["today"]["control"] is True
    assert table["today"]["lift"] == 0
    assert table["better"]["lift"] == found.lifts[1]
    assert table["better"]["relative lift"] == found.relative[1]
    assert chart.summary.startswith("better against today, the control: +")
    assert (
        "Of 3 variants 1 is clearly better than the control, 1 is clearly worse." in chart.summary
    )


def test_absolute_differences_are_drawn_where_relative_ones_are_not_defined() -> None:
    found = verdict()
    nothing = np.full(4, np.nan)
    undefined = replace(
        found, relative=nothing, relative_intervals=np.column_stack([nothing, nothing])
    )
    for rates in (False, True):
        (panel,) = charts.lifts(undefined, NAMES, "maximize", rates).panels
        assert found.lifts is not None
        assert panel.series[0].y[0] == found.lifts[1]
        assert panel.y.percent == rates
        assert ("percentage points" in panel.y.title) == rates


def test_the_leaderboard_of_a_test_with_a_control_has_lifts_in_its_table() -> None:
    assert "relative lift" in charts.leaderboard(verdict(), NAMES, "maximize").table.header
    assert "lift" not in charts.leaderboard(samples.verdict(4), NAMES, "maximize").table.header


def test_both_libraries_draw_lifts_and_without_a_control_there_are_none() -> None:
    test = session()
    assert sa.plot.lifts(test).layout.title.text == "Difference of each variant from today"
    assert len(sa.plot.matplotlib.lifts(test).axes) == 1
    with pytest.raises(sa.InvalidInputError, match="no control") as error:
        sa.plot.lifts(session(control=None))
    assert error.value.field == "control"


def test_of_a_large_set_the_short_list_is_compared() -> None:
    found = replace(verdict(), shown=np.array([0, 2, 5, 6]), size=7, arm=2)
    names = ("today", "", "better", "", "", "worse", "alike")
    chart = charts.lifts(found, names, "maximize")
    assert drawn(chart)["better than today"] == ["better"]
    assert [row[0] for row in chart.table.rows] == ["today", "better", "alike", "worse"]
