"""Figures as charts: true to the results, with the published counts."""

from __future__ import annotations

from dataclasses import replace

import altair
import pytest

from steadyarm.errors import InvalidInputError
from steadyarm.paper.report import figure_chart
from steadyarm.paper.specification import figure_named, published_counts
from steadyarm.plot.spec import note_of, svg
from steadyarm.simulation import Results, clopper_pearson
from tests.simulation.own import counted

SCALE, MALICIOUS = figure_named("soare_scale"), figure_named("malicious")


def cell(value: float | None, policy: str, errors: int, figure: str = "soare_scale") -> Results:
    return counted(figure, "scale", value, policy, 1000, errors, 0.2 - (value or 0) / 100, 1.0)


def test_points_carry_rates_intervals_and_published_values() -> None:
    cells = [cell(5, "Peace", 130), cell(4, "Peace", 60), cell(5, "Steady", 0)]
    spec = figure_chart(SCALE, cells)
    first, second, third = spec["data"]["values"]
    assert (first["rate"], second["rate"], third["rate"]) == (0.13, 0.06, 0.0)
    assert (first["low"], first["high"]) == clopper_pearson(130, 1000)
    counts = published_counts()
    assert first["published"] == counts["soare_scale", 5, "Peace"].error_rate
    assert third["published"] is None
    assert len(spec["vconcat"]) == 2  # the smallest gap stands below
    altair.Chart.from_dict(spec)
    assert "smallest gap" in svg(spec)
    alike = [replace(one, gap=0.2) for one in cells]
    assert "vconcat" not in figure_chart(SCALE, alike)  # a constant gap says nothing


def test_a_single_setting_has_a_row_for_each_policy() -> None:
    cells = [cell(None, name, i, "malicious") for i, name in enumerate(["Peace", "Mine"])]
    spec = figure_chart(MALICIOUS, cells)
    altair.Chart.from_dict(spec)
    drawn = svg(spec)
    assert "Peace" in drawn
    assert "Mine" in drawn
    assert [row["published"] for row in spec["data"]["values"]] == [1.0, None]


def test_trials_and_other_figures() -> None:
    other = cell(1, "B", 5, "soare_period")
    cells = [cell(1, "A", 5), counted("soare_scale", "scale", 2, "A", 4000, 5), other]
    spec = figure_chart(SCALE, cells)
    assert note_of(spec).startswith("1,000 to 4,000 trials per point.")
    assert [(row["policy"], row["trials"]) for row in spec["data"]["values"]] == [
        ("A", 1000),
        ("A", 4000),
    ]
    with pytest.raises(InvalidInputError, match="no results of malicious"):
        figure_chart(MALICIOUS, cells)
