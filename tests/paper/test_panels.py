"""Panels: from results to what is to be drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steadyarm.errors import InvalidInputError
from steadyarm.paper.panels import panel_of
from steadyarm.paper.published import published_counts
from steadyarm.paper.run import CellResult
from steadyarm.paper.specification import figure_named
from steadyarm.simulation import clopper_pearson

SCALE, MALICIOUS = figure_named("soare_scale"), figure_named("malicious")


def cell(value: float | None, policy: str, errors: int, figure: str = "soare_scale") -> CellResult:
    return CellResult(figure, "scale", value, policy, 1000, errors, 0.2, 1.0)


def test_points_carry_rates_intervals_and_published_values() -> None:
    panel = panel_of(SCALE, [cell(5, "Peace", 130), cell(4, "Peace", 60), cell(5, "Steady", 9)])
    peace, steady = panel.series
    assert [point.value for point in peace.points] == [4, 5]
    assert [point.rate for point in peace.points] == [0.06, 0.13]
    assert (peace.points[1].low, peace.points[1].high) == clopper_pearson(130, 1000)
    theirs = published_counts()["soare_scale", 5, "Peace"]
    assert peace.points[1].published == theirs.error_rate
    assert steady.points[0].published is None
    assert panel.has_published
    assert panel.values == (4, 5)
    assert panel.gaps == ((4, 0.2), (5, 0.2))


def test_policies_stand_in_one_order_and_apart() -> None:
    names = ["Zeta", "OD-LinBAI", "Alpha", "G-BAI"]
    panel = panel_of(SCALE, [cell(s, name, 50) for s in (0, 1, 2) for name in names])
    assert [line.policy for line in panel.series] == ["G-BAI", "OD-LinBAI", "Alpha", "Zeta"]
    places = [line.points[1].x for line in panel.series]
    assert places == sorted(set(places))
    assert sum(places) / 4 == pytest.approx(1)
    assert max(places) - min(places) < 0.5


def test_without_errors_a_point_is_below_the_axis_in_its_own_lane() -> None:
    names = ["G-BAI", "P1-RAGE", "Peace"]
    panel = panel_of(SCALE, [cell(0, name, 0) for name in names] + [cell(9, "Peace", 350)])
    assert panel.strip is not None
    lanes = [panel.place(line, 0.0) for line in panel.series]
    assert len(set(lanes)) == 3
    assert all(panel.strip < lane < panel.bottom for lane in lanes)
    assert panel.place(panel.series[0], 1e-9) == panel.bottom
    assert panel.place(panel.series[0], 0.02) == 0.02
    zero = panel.series[0].points[0]
    assert zero.low == 0
    assert panel.bottom < zero.high < panel.top


def test_with_errors_everywhere_there_is_no_strip() -> None:
    panel = panel_of(SCALE, [cell(s, "Mine", 100 + s) for s in range(5)])
    assert panel.strip is None
    assert panel.series[0].zero is None
    assert panel.bottom <= min(point.low for point in panel.series[0].points)
    assert panel.top >= max(point.high for point in panel.series[0].points)


def test_a_published_zero_makes_a_strip_too() -> None:
    assert published_counts()["soare_scale", 0, "G-BAI"].errors == 0
    assert panel_of(SCALE, [cell(0, "G-BAI", 5)]).strip is not None


def test_a_single_setting_has_one_place_for_zero_and_no_gaps() -> None:
    cells = [cell(None, name, i, "malicious") for i, name in enumerate(["A", "B"])]
    panel = panel_of(MALICIOUS, cells)
    assert panel.single
    assert panel.gaps == ()
    assert panel.series[0].zero == panel.series[1].zero


def test_trials_and_other_figures() -> None:
    cells = [
        cell(1, "A", 5),
        replace(cell(2, "A", 5), trials=4000),
        cell(1, "B", 5, "soare_period"),
    ]
    panel = panel_of(SCALE, cells)
    assert panel.trials == (1000, 4000)
    assert [line.policy for line in panel.series] == ["A"]
    with pytest.raises(InvalidInputError, match="no results of malicious"):
        panel_of(MALICIOUS, cells)
