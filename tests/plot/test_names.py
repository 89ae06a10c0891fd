"""Names of variants in charts: short, and still different."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.plot import charts
from steadyarm.plot.chart import Axis, Chart, Mark, Panel, Series, Table
from steadyarm.plot.charts.common import apart, listed
from steadyarm.plot.layout import NARROW, PAPER, WIDE, Room, prepared
from steadyarm.plot.matplotlib import draw
from steadyarm.plot.plotly import spec_of
from steadyarm.wording import labels_of
from tests.plot import samples

FACTORIAL = tuple(
    sa.ArmSet.factorial(
        {
            "headline": ["short", "long"],
            "picture": ["dog", "cat"],
            "button": ["buy now", "add to cart"],
            "columns": ["one", "two"],
        }
    ).names
)
LABELS = labels_of(FACTORIAL)


@pytest.mark.parametrize("most", [12, 16, 22, 28, 44])
@pytest.mark.parametrize(
    "names",
    [
        FACTORIAL,
        LABELS,
        tuple(f"{'same ' * 20}{k}{' end' * 20}" for k in range(30)),
        tuple(f"{'same ' * 20}{k:05b}{' end' * 20}" for k in range(32)),
        tuple("x" * k for k in range(1, 60)),
        tuple(f"{a * 30} and {b * 30}" for a in "abc" for b in "abc"),
        ("A", "A ", " A", "A\n", "A\u202e", "A (1)"),
    ],
)
def test_different_names_stay_different(names: tuple[str, ...], most: int) -> None:
    cut = apart(names, most)
    assert len(set(cut)) == len(set(names))
    assert apart(names[::-1], most)[::-1] == cut or any(" (" in text for text in cut)


def test_short_names_are_left_alone_and_long_ones_are_cut() -> None:
    assert apart(["A", "B", "A"]) == ("A", "B", "A")
    assert apart([]) == ()
    one, other = apart(["x" * 99, "y" * 99], 20)
    assert len(one) == len(other) == 20
    alike = apart([f"{'same ' * 20}{k}{' end' * 20}" for k in range(3)], 20)
    assert max(map(len, alike)) <= 20
    assert [str(k) in text for k, text in enumerate(alike)] == [True] * 3


def test_names_in_sentences_stay_different() -> None:
    names = [f"{'same ' * 20}{k}{'end ' * 20}" for k in range(3)]
    text = listed(names)
    assert len(text) < 140
    assert len(set(text.replace(" and ", ", ").split(", "))) == 3
    assert listed(names, 1).endswith(" and 2 more")


def factorial_charts() -> Iterator[Chart]:
    yield from samples.charts_of(16, 20, 4, FACTORIAL).values()


def test_people_see_levels_and_tables_have_full_names() -> None:
    found = {chart.name: chart for chart in factorial_charts()}
    column = {"estimates": 2, "daily": 2, "allocation": 3, "plausible": 0, "leaderboard": 1}
    for name, at in column.items():
        assert {row[at] for row in found[name].table.rows} == set(FACTORIAL)
    assert {row[3] for row in found["drift"].table.rows} < set(FACTORIAL)
    for chart in found.values():
        people = [chart.title, chart.summary, chart.note]
        for panel in chart.panels:
            people += [panel.title, *(mark.text for mark in panel.marks)]
            people += [series.name for series in panel.series]
            people += [str(x) for s in panel.series for x in s.x if panel.x.kind == "label"]
        assert not any("=" in text.replace("p = ", "") for text in people), chart.name
    drawn = {s.name for s in found["estimates"].panels[0].series if s.color is not None}
    assert drawn < set(LABELS)
    assert found["leaderboard"].panels[0].series[0].x[0] in LABELS


def test_people_read_of_visits() -> None:
    for chart in (*factorial_charts(), *samples.charts_of(3, 1, 1).values()):
        axes = [axis.title for panel in chart.panels for axis in (panel.x, panel.y)]
        titles = [panel.title for panel in chart.panels]
        for text in (chart.title, chart.summary, chart.note, *axes, *titles, *chart.table.header):
            assert "assignment" not in text, (chart.name, text)


@pytest.mark.parametrize("room", [NARROW, WIDE, PAPER])
def test_legends_and_marks_stay_different_in_every_room(room: Room) -> None:
    for chart in factorial_charts():
        cut = prepared(chart, room)
        for before, after in zip(chart.panels, cut.panels, strict=True):
            assert len({s.name for s in before.series}) == len({s.name for s in after.series})
            assert len({m.text for m in before.marks}) == len({m.text for m in after.marks})


def test_both_drawers_show_different_names_differently() -> None:
    names = tuple(f"{'same ' * 20}{k}{' end' * 20}" for k in range(3))
    lines = tuple(Series(name, (0.0, 1.0), np.ones(2), color=k) for k, name in enumerate(names))
    marks = tuple(Mark(0.5, f"{name} leads") for name in names)
    over_time = Panel(Axis("x"), Axis("y"), lines, marks=marks)
    values = Series("values", names, np.arange(3.0), kind="points")
    down = Panel(Axis("", "label"), Axis("y"), (values,), sideways=True)
    chart = Chart("c", "c", "c.", (over_time, down), Table((), ()))
    for columns in (1, 2):
        spec = spec_of(chart, columns=columns)
        assert len({trace["name"] for trace in spec["data"]}) == 4
        assert len(set(spec["layout"]["yaxis2"]["ticktext"])) == 3
        assert len({note["text"] for note in spec["layout"]["annotations"]}) == 4
    figure = draw(chart)
    assert len({text.get_text() for text in figure.legends[0].get_texts()}) == 3
    assert len({label.get_text() for label in figure.axes[1].get_yticklabels()}) == 3
    assert len({text.get_text() for text in figure.axes[0].texts}) == 3


def test_wide_pages_show_more_of_a_name() -> None:
    name = "a headline of forty letters, and no more"
    series = tuple(Series(text, (0.0, 1.0), np.ones(2)) for text in (name, "B"))
    panel = Panel(Axis("x"), Axis("y"), series)
    chart = Chart("c", "c", "c.", (panel,), Table((), ()))
    assert spec_of(chart, columns=2)["data"][0]["name"] == name
    assert spec_of(chart)["data"][0]["name"] == "a headline of forty…, and no more"


def test_texts_of_marks_do_not_stretch_the_axis() -> None:
    course = samples.course(16, 20, named=FACTORIAL)
    leaders = np.repeat([0, 15], 10)
    chart = charts.estimates(replace(course, leaders=leaders))
    assert [mark.text for mark in chart.panels[0].marks] == [f"{LABELS[15]} leads"]
    layout = spec_of(chart)["layout"]
    assert course.times is not None
    ends = [time.replace(tzinfo=None).isoformat() for time in (course.times[0], course.times[-1])]
    assert layout["xaxis"]["range"] == ends
    anchors = {}
    for j in (6, 10, 18):
        moved = charts.estimates(replace(course, leaders=np.repeat([0, 15], [j, 20 - j])))
        note = spec_of(moved)["layout"]["annotations"][-1]
        anchors[j] = note["xanchor"]
        assert draw(moved).axes[0].texts[0].get_horizontalalignment() == note["xanchor"]
    assert anchors == {6: "left", 10: "center", 18: "right"}
