"""Pictures of figures: true to their panels, nothing cut off, the same every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.image import imread

from steadyarm.paper.draw import draw_figure, picture_of, style_of
from steadyarm.paper.panels import Panel, panel_of
from steadyarm.paper.run import CellResult
from steadyarm.paper.specification import PAPER_POLICIES, figure_named

NAMES = [*PAPER_POLICIES, "Steady", "P1", "Uniform", "Adjacent-BAI"]


def cells(figure: str, policies: list[str], first: int = 0) -> list[CellResult]:
    spec = figure_named(figure)
    return [
        CellResult(figure, spec.parameter, value, policy, 1000, first + 6 * i * j, 0.1, 1.0)
        for i, value in enumerate(spec.values, start=spec.values == (None,))
        for j, policy in enumerate(policies)
    ]


def panel(figure: str, policies: list[str], first: int = 0) -> Panel:
    return panel_of(figure_named(figure), cells(figure, policies, first))


def labels(axes: Axes) -> list[tuple[float, str]]:
    axis = axes.xaxis if axes.get_xscale() == "log" else axes.yaxis
    texts = [text.get_text() for text in axis.get_ticklabels()]
    return list(zip(axis.get_majorticklocs(), texts, strict=True))


def test_ten_policies_differ_in_colour_marker_and_line() -> None:
    styles = [style_of(name, NAMES) for name in NAMES]
    assert len({style.colour for style in styles}) == 10
    assert len({style.marker for style in styles}) == 10
    assert len({str(style.line) for style in styles}) >= 9  # P1-RAGE and Steady are both solid
    assert style_of("Peace") == style_of("Peace", NAMES)


@pytest.mark.parametrize("count", [1, 10])
@pytest.mark.parametrize("figure", ["soare_stationary", "soare_scale", "malicious"])
@pytest.mark.parametrize("first", [0, 300])
def test_nothing_is_cut_off_and_ticks_tell_the_truth(figure: str, count: int, first: int) -> None:
    drawn = panel(figure, NAMES[:count], first)
    picture = picture_of(drawn)
    picture.draw_without_rendering()
    box = picture.get_tightbbox()
    width, height = picture.get_size_inches()
    assert box.x0 >= -0.05
    assert box.y0 >= -0.05
    assert box.x1 <= width + 0.05
    assert box.y1 <= height + 0.05
    ticks = labels(picture.axes[0])
    assert len(ticks) >= 2
    for place, text in ticks:
        if text == "0":
            assert drawn.strip is not None
            assert place < drawn.bottom
        else:
            assert float(text) == pytest.approx(place)
    assert (ticks[0][1] == "0") == (drawn.strip is not None)


def test_curves_show_the_panels_numbers() -> None:
    drawn = panel("soare_scale", ["G-BAI", "Peace"])
    axes, below = picture_of(drawn).axes
    assert axes.get_yscale() == "log"
    orange = next(line for line in axes.lines if line.get_color() == "#D55E00")
    shown = np.asarray(orange.get_ydata())
    peace = drawn.series[1]
    assert shown == pytest.approx([peace.zero, *(0.006 * i for i in range(1, 10))])
    rings = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert len(rings) == 20
    assert np.asarray(below.lines[0].get_ydata()) == pytest.approx([0.1] * 10)
    texts = [text.get_text() for text in axes.get_legend().get_texts()]  # type: ignore[union-attr]  # it has a legend
    assert texts == [
        "G-BAI",
        "Peace",
        "published (open)",
        "exact 95 % interval",
        "no errors at all",
    ]


def test_the_legend_covers_no_data() -> None:
    for figure in ("soare_scale", "soare_stationary"):
        picture = picture_of(panel(figure, NAMES))
        picture.draw_without_rendering()
        axes = picture.axes[0]
        legend = axes.get_legend()
        assert legend is not None
        assert legend.get_window_extent().x0 >= axes.get_window_extent().x1


def test_files_have_the_size_and_are_the_same_again(tmp_path: Path) -> None:
    figure = figure_named("soare_stationary")
    results = cells("soare_stationary", ["Peace", "P1"])
    paths = draw_figure(figure, results, tmp_path / "a")
    names = [path.name for path in paths]
    assert names == ["soare_stationary.png", "soare_stationary.pdf"]
    assert imread(paths[0]).shape[:2] == (1000, 1400)
    assert paths[1].read_bytes().startswith(b"%PDF")
    again = draw_figure(figure, results, tmp_path / "b")
    assert [p.read_bytes() for p in paths] == [p.read_bytes() for p in again]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(names)
