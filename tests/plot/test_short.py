"""Tests that are over in minutes, and what is said of marks, bands and waiting."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.inference import drift_report
from steadyarm.live.scorecard import Waiting
from steadyarm.plot import charts
from steadyarm.plot.chart import Chart
from steadyarm.plot.matplotlib import draw
from steadyarm.plot.plotly import spec_of
from tests.plot import samples


def test_the_quiet_rest_stands_at_the_labels_of_its_periods() -> None:
    arms = sa.ArmSet.one_hot(samples.names(12))
    report = drift_report(samples.evidence(arms, np.full((8, 12), 0.3)), 4)
    chart = charts.daily(report)
    assert chart.panels[0].series[0].name == "4 others"
    spec = spec_of(chart)
    places = [0.0, 1.0, 2.0, 3.0, 3.0] * 4
    assert spec["data"][0]["x"] == places
    axis = spec["layout"]["xaxis"]
    assert axis["tickvals"] == [0.0, 1.0, 2.0, 3.0]
    assert axis["ticktext"] == list(report.periods)
    assert axis["range"] == [-0.5, 3.5]
    axes = draw(chart).axes[0]
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == places
    assert axes.get_xlim() == (-0.5, 3.5)
    assert [text.get_text() for text in axes.get_xticklabels()] == list(report.periods)


def test_labels_are_in_order_if_no_variant_is_picked_out() -> None:
    arms = sa.ArmSet.one_hot(samples.names(12))
    report = drift_report(samples.evidence(arms, np.full((8, 12), 0.3)), 4)
    spec = spec_of(charts.daily(report, picked=[]))
    assert spec["layout"]["xaxis"]["ticktext"] == list(report.periods)


def clock_of(chart: Chart) -> tuple[float, float]:
    """Ends of the first panel's clock in seconds, which both drawers must have alike."""
    ends = spec_of(chart)["layout"]["xaxis"]["range"]
    found = [datetime.fromisoformat(end).replace(tzinfo=UTC).timestamp() for end in ends]
    np.testing.assert_allclose(np.array(draw(chart).axes[0].get_xlim()) * 86400, found, atol=1e-3)
    return found[0], found[1]


@pytest.mark.parametrize("seconds", [0.2, 8.0, 90.0, 3000.0])
def test_short_tests_fill_their_clock(seconds: float) -> None:
    course = samples.course(12, J=20)
    times = tuple(samples.START + timedelta(seconds=seconds * j / 19) for j in range(20))
    short = replace(course, times=times)
    for chart in (charts.estimates(short), charts.plausible(short)):
        first, last = clock_of(chart)
        assert first < times[0].timestamp() < times[-1].timestamp() < last
        assert last - first == pytest.approx(max(1.08 * seconds, 1.0), abs=1e-3)
        assert spec_of(chart)["layout"]["xaxis"]["hoverformat"].endswith("%H:%M:%S")
        figure = draw(chart)
        figure.draw_without_rendering()
        ticks = [text.get_text() for text in figure.axes[0].get_xticklabels()]
        assert len(set(ticks)) == len(ticks) >= 3
        assert all(":" in tick for tick in ticks)


def test_a_single_moment_has_a_minute() -> None:
    first, last = clock_of(charts.estimates(samples.course(3, J=1)))
    assert last - first == pytest.approx(60.0)


def test_the_last_share_ends_with_the_data() -> None:
    shares = samples.shares(3, J=2)
    seconds = [timedelta(seconds=s) for s in (0, 10, 20)]
    starts = (samples.START, samples.START + seconds[1])
    ends = (samples.START + seconds[1], samples.START + seconds[2])
    chart = charts.allocation(replace(shares, starts=starts, ends=ends))
    assert chart.panels[0].series[0].x[-1] == ends[-1]
    at_once = replace(shares, starts=starts, ends=(starts[1], starts[1]))
    beyond = charts.allocation(at_once).panels[0].series[0].x[-1] - starts[1]
    assert beyond == timedelta(seconds=0.1)  # a sliver, so that it is seen


def test_the_words_agree_with_the_marks() -> None:
    course = samples.course(3, J=40)
    often = charts.estimates(replace(course, leaders=np.arange(40) % 2))
    assert often.summary.endswith(
        "changed 39 times; only the latest are marked, and changes close together share a mark."
    )
    assert len(often.panels[0].marks) == 3
    once = charts.estimates(replace(course, leaders=np.arange(40) // 20))
    assert once.summary.endswith("The leader changed once.")


@pytest.mark.parametrize(
    ("at", "marks", "words"),
    [
        ([20, 40], 2, "2 times."),
        (range(5, 60, 5), 8, "11 times; the last 8 are marked."),
        ([20, 21, 50], 2, "3 times; the last 2 are marked."),
        ([20, 49, 50], 2, "3 times; changes close together share a mark."),
        (
            range(60),
            8,
            "59 times; only the latest are marked, and changes close together share a mark.",
        ),
    ],
)
@pytest.mark.parametrize("clock", [True, False])
def test_the_words_agree_with_the_turns(at: list[int], marks: int, words: str, clock: bool) -> None:
    turns = np.zeros(60, bool)
    turns[list(at)] = True
    chart = charts.allocation(replace(samples.shares(4, clock=clock), turns=turns))
    assert len(chart.panels[0].marks) == marks
    assert chart.summary.endswith(f"The policy changed its mind {words}")


def test_equal_shares_have_no_winner() -> None:
    shares = samples.shares(4, J=6)
    even = np.full((6, 4), 0.25)
    said = charts.allocation(replace(shares, planned=even)).summary
    assert "All variants have the same share all the time, 25 % each." in said
    even[0] = [0.4, 0.3, 0.2, 0.1]
    said = charts.allocation(replace(shares, planned=even)).summary
    assert "All variants now have the same share, 25 % each." in said
    even[-1] = [0.4, 0.4, 0.1, 0.1]
    said = charts.allocation(replace(shares, planned=even)).summary
    assert "2 variants now have the largest share, 40 % each." in said


def waiting(told: list[int], hours: float) -> Waiting:
    D = len(told)
    days = tuple(date(2026, 11, 2) + timedelta(days=d) for d in range(D))
    late = np.zeros(D, np.int64)
    return Waiting(days, np.full(D, 100), np.array(told), late, np.full(D, hours))


@pytest.mark.parametrize(
    ("told", "noted"),
    [([100] * 4, False), ([90, 95, 100, 100], False), ([100, 100, 99, 100], True), ([7], True)],
)
def test_rewards_still_to_come_are_noted_only_if_there_are_any(
    told: list[int], noted: bool
) -> None:
    assert charts.waiting(waiting(told, 1.0)).note.startswith("The newest days") == noted


def test_rewards_that_came_too_late_are_not_waited_for() -> None:
    refused = replace(waiting([100, 90], 1.0), late=np.array([0, 10]))
    assert charts.waiting(refused).note == ""


@pytest.mark.parametrize(
    ("hours", "words", "unit"),
    [
        (2.439e-06, "less than 0.1 seconds", "seconds"),
        (1 / 3600, "1 second", "seconds"),
        (0.01, "36 seconds", "seconds"),
        (0.5, "30 minutes", "minutes"),
        (4.225, "4.225 hours", "hours"),
        (72.0, "3 days", "days"),
    ],
)
def test_times_of_waiting_have_a_fitting_unit(hours: float, words: str, unit: str) -> None:
    chart = charts.waiting(waiting([50, 50], hours))
    assert chart.summary.endswith(f"A reward took {words} on average.")
    panel = chart.panels[1]
    size = {"seconds": 1 / 3600, "minutes": 1 / 60, "hours": 1.0, "days": 24.0}[unit]
    assert panel.y.title == unit
    np.testing.assert_allclose(panel.series[0].y, hours / size)
    assert chart.table.rows[0][-1] == hours


def test_the_note_says_whose_the_bands_are() -> None:
    course = samples.course(12)
    chart = charts.estimates(course)
    banded = {series.name for series in chart.panels[0].series if series.low is not None}
    assert len(banded) == 2
    leader = course.names[int(course.leaders[-1])]
    (second,) = banded - {leader}
    assert chart.note.startswith(
        f"Bands: where the true values of {leader} and {second} may lie (95 %)."
    )
    assert chart.meaning.startswith("A band shows the 95 % interval of a variant.")
    other = next(k for k, name in enumerate(course.names) if name != leader)
    assert charts.estimates(course, picked=[other]).note == ""
