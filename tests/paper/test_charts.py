"""Figures as charts: true to the results, nothing cut off, the same files every time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from steadyarm.errors import InvalidInputError
from steadyarm.paper.published import published_counts
from steadyarm.paper.report import figure_chart
from steadyarm.paper.specification import PAPER_POLICIES, figure_named
from steadyarm.plot import layout
from steadyarm.plot.chart import Chart
from steadyarm.plot.charts.sweeps import COLOURS, KNOWN, styles
from steadyarm.plot.matplotlib import draw, save
from steadyarm.plot.plotly import figure_of
from steadyarm.policies import VARIANTS
from steadyarm.simulation import Results, clopper_pearson
from tests.simulation.own import counted

NAMES = [*PAPER_POLICIES, "Steady", "P1", "Uniform", "Adjacent-BAI"]
SCALE, MALICIOUS = figure_named("soare_scale"), figure_named("malicious")


def cell(value: float | None, policy: str, errors: int, figure: str = "soare_scale") -> Results:
    return counted(figure, "scale", value, policy, 1000, errors, 0.2 - (value or 0) / 100, 1.0)


def chart(figure: str, policies: list[str], first: int = 0) -> Chart:
    spec = figure_named(figure)
    cells = [
        counted(figure, spec.parameter, value, policy, 1000, first + 6 * i * j, 0.1, 1.0)
        for i, value in enumerate(spec.values, start=spec.values == (None,))
        for j, policy in enumerate(policies)
    ]
    return figure_chart(spec, cells)


def test_points_carry_rates_intervals_and_published_values() -> None:
    cells = [cell(5, "Peace", 130), cell(4, "Peace", 60), cell(5, "Steady", 9)]
    errors, gaps = figure_chart(SCALE, cells).panels
    peace, steady, published = errors.series
    assert peace.x == (4, 5)
    assert peace.y.tolist() == [0.06, 0.13]
    assert peace.low is not None
    assert peace.high is not None
    assert (peace.low[1], peace.high[1]) == clopper_pearson(130, 1000)
    theirs = [published_counts()["soare_scale", value, "Peace"].error_rate for value in (4, 5)]
    assert (published.kind, published.color) == ("rings", peace.color)
    assert published.y.tolist() == theirs
    (cell_of_5,) = [c for c in published_counts().items() if c[0] == ("soare_scale", 5, "Peace")]
    assert published.high is not None
    counts = cell_of_5[1].errors, cell_of_5[1].trials
    assert published.high[1] == clopper_pearson(*counts)[1]
    assert steady.name == "Steady"
    assert gaps.series[0].y.tolist() == pytest.approx([0.16, 0.15])
    alike = [replace(one, gap=0.2) for one in cells]
    assert len(figure_chart(SCALE, alike).panels) == 1  # a constant gap says nothing


def test_policies_stand_in_one_order_and_apart() -> None:
    names = ["Zeta", "OD-LinBAI", "Alpha", "G-BAI"]
    found = figure_chart(SCALE, [cell(s, name, 50) for s in (0, 1, 2) for name in names])
    panel = found.panels[0]
    ours = [series for series in panel.series if series.kind == "points"]
    assert [series.name for series in ours] == ["G-BAI", "OD-LinBAI", "Alpha", "Zeta"]
    shifts = layout.shifts(panel)
    places = [1 + shifts[i] for i in range(4)]
    assert places == sorted(set(places))
    assert sum(places) / 4 == pytest.approx(1)
    assert max(places) - min(places) < 0.5
    rings = {panel.series[i].color: shift for i, shift in shifts.items() if i >= 4}
    assert rings == {ours[0].color: shifts[0], ours[1].color: shifts[1]}


def test_ten_policies_have_styles_of_their_own() -> None:
    found = styles(NAMES)
    drawn = {
        (layout.LIGHT.lines[i % len(layout.LIGHT.lines)], layout.SHAPES[i % len(layout.SHAPES)])
        for i in found.values()
    }
    assert len(drawn) == 10
    assert styles(["Peace"]) == {"Peace": found["Peace"]}


def test_new_policies_have_colours_of_their_own() -> None:
    found = styles(["Steady", "P1-RAGE", *VARIANTS, "Mine"])
    assert len(layout.LIGHT.lines) == COLOURS
    assert len({style % COLOURS for style in found.values()}) == len(found) == 7
    many = styles([*KNOWN, "A", "B"])
    assert len(set(many.values())) == len(many)


def test_without_errors_a_point_is_below_the_axis_in_its_own_lane() -> None:
    names = ["G-BAI", "P1-RAGE", "Peace"]
    cells = [cell(0, name, 0) for name in names] + [cell(9, "Peace", 350)]
    panel = layout.prepared(figure_chart(SCALE, cells), layout.PAPER).panels[0]
    assert panel.zeros is not None
    assert panel.y_range is not None
    lanes = [series.y[0] for series in panel.series if series.kind == "points"]
    assert len(set(lanes)) == 3
    assert all(panel.y_range[0] < lane < panel.zeros for lane in lanes)
    highs = [series.high[0] for series in panel.series if series.high is not None]
    assert all(panel.zeros < high < panel.y_range[1] for high in highs)
    found = figure_chart(SCALE, [cell(s, "Mine", 100 + s) for s in range(5)])
    assert layout.prepared(found, layout.PAPER).panels[0].zeros is None


@pytest.mark.parametrize("count", [1, 10])
@pytest.mark.parametrize("figure", ["soare_stationary", "soare_scale", "malicious"])
@pytest.mark.parametrize("first", [0, 300])
def test_nothing_is_cut_off_and_ticks_are_true(figure: str, count: int, first: int) -> None:
    found = chart(figure, NAMES[:count], first)
    picture = draw(found)
    picture.draw_without_rendering()
    box, (width, height) = picture.get_tightbbox(), picture.get_size_inches()
    assert min(box.x0, box.y0) >= -0.05
    assert box.x1 <= width + 0.05
    assert box.y1 <= height + 0.05
    axes, panel = picture.axes[0], layout.prepared(found, layout.PAPER).panels[0]
    axis = axes.xaxis if panel.sideways else axes.yaxis
    texts = [label.get_text() for label in axis.get_ticklabels()]
    assert len(texts) >= 2
    assert (texts[0] == "0") == (panel.zeros is not None)
    for place, text in zip(axis.get_majorticklocs(), texts, strict=True):
        if text == "0":
            assert panel.zeros is not None
            assert place < panel.zeros
        else:
            assert float(text) == pytest.approx(place)
    figure_of(found)


def test_a_single_setting_has_a_row_for_each_policy() -> None:
    cells = [cell(None, name, i, "malicious") for i, name in enumerate(["Peace", "Mine"])]
    (panel,) = figure_chart(MALICIOUS, cells).panels
    ours, published = panel.series
    assert panel.sideways
    assert ours.x == ("Peace: 0.0000 (1.0000)", "Mine: 0.0010")
    assert published.y[0] == 1.0
    assert np.isnan(published.y[1])


def test_trials_and_other_figures() -> None:
    cells = [
        cell(1, "A", 5),
        replace(cell(2, "A", 5), recommended={0: 3995, 1: 5}),
        cell(1, "B", 5, "soare_period"),
    ]
    found = figure_chart(SCALE, cells)
    assert found.note.startswith("1,000 to 4,000 trials per point.")
    assert [series.name for series in found.panels[0].series] == ["A"]
    assert found.table.rows[1][:4] == (2, "A", 5, 4000)
    with pytest.raises(InvalidInputError, match="no results of malicious"):
        figure_chart(MALICIOUS, cells)


def test_files_are_the_same_again(tmp_path: Path) -> None:
    found = chart("soare_stationary", ["Peace", "P1"])
    for kind, head in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        first, again = (save(found, tmp_path / f"{name}.{kind}").read_bytes() for name in "ab")
        assert first.startswith(head)
        assert first == again
    with pytest.raises(InvalidInputError, match=r"a\.gif; expected a name in"):
        save(found, tmp_path / "a.gif")
