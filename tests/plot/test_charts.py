"""The data step: numbers and tables of charts against their sources."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.inference import drift_report
from steadyarm.plot import charts
from steadyarm.plot.chart import Chart, Series
from tests.plot import samples

SIZES = (2, 16, 200)


def test_estimates_are_those_of_the_course() -> None:
    course = samples.course(16)
    panel = charts.estimates(course).panels[0]
    coloured = [series for series in panel.series if series.color is not None]
    assert len(coloured) == 8
    leader = coloured[0]
    k = int(course.leaders[-1])
    assert leader.name == course.names[k]
    assert leader.x == course.times
    np.testing.assert_array_equal(leader.y, course.estimates[:, k])
    assert leader.low is not None
    np.testing.assert_array_equal(leader.low, course.low[:, k])
    assert sum(series.low is not None for series in panel.series) == 2
    distance = np.abs(course.estimates[-1] - course.estimates[-1, k])
    alive = set(np.flatnonzero(course.plausible[-1]))
    nearest = sorted(range(16), key=lambda i: (i not in alive, distance[i]))[:8]
    assert {series.name for series in coloured} == {course.names[i] for i in nearest}


def test_the_rest_is_one_quiet_series_with_gaps() -> None:
    course = samples.course(200, J=20)
    quiet = charts.estimates(course).panels[0].series[0]
    assert quiet.name == "192 others"
    assert quiet.color is None
    assert np.count_nonzero(np.isnan(quiet.y)) == 192
    drawn = {series.name for series in charts.estimates(course).panels[0].series}
    first = next(k for k in range(200) if course.names[k] not in drawn)
    np.testing.assert_array_equal(quiet.y[:20], course.estimates[:, first])


def test_marks_stand_where_the_leader_changed_and_are_few() -> None:
    course = samples.course(3, J=40)
    leaders = np.zeros(40, np.int64)
    leaders[10:] = 1
    leaders[30:] = 2
    marks = charts.estimates(replace(course, leaders=leaders)).panels[0].marks
    assert course.times is not None
    assert [mark.x for mark in marks] == [course.times[10], course.times[30]]
    assert [mark.text for mark in marks] == ["variant 2 leads", "variant 3 leads"]
    often = charts.estimates(replace(course, leaders=np.arange(40) % 2)).panels[0].marks
    assert [mark.x for mark in often] == [course.times[j] for j in (31, 35, 39)]
    early = leaders.copy()
    early[:8], early[8:] = 1, 0  # a quarter of the visits, in which leads change by chance
    assert charts.estimates(replace(course, leaders=early)).panels[0].marks == ()


def test_without_a_clock_rounds_are_the_axis() -> None:
    course = samples.course(3, clock=False)
    panel = charts.estimates(course).panels[0]
    assert panel.x.kind == "number"
    assert panel.series[0].x == tuple(course.rounds)


def test_colours_are_the_same_in_all_charts() -> None:
    found = samples.charts_of(5)
    seen: dict[str, set[int | None]] = {}
    for name in ("estimates", "daily", "allocation"):
        for series in found[name].panels[0].series:
            seen.setdefault(series.name, set()).add(series.color)
    assert {name: len(colors) for name, colors in seen.items()} == dict.fromkeys(seen, 1)
    assert len(seen) == 5


@pytest.mark.parametrize("K", SIZES)
def test_shares_are_those_handed_out_and_add_up_to_one(K: int) -> None:
    shares = samples.shares(K)
    panel = charts.allocation(shares).panels[0]
    assert shares.starts is not None
    assert shares.ends is not None
    assert panel.series[0].x == (*shares.starts, shares.ends[-1])
    total = sum(series.y for series in panel.series)
    np.testing.assert_allclose(total, 1.0)
    own = {name: shares.given[:, k] / shares.rounds for k, name in enumerate(shares.names)}
    for series in panel.series[:2]:
        np.testing.assert_allclose(series.y[:-1], own[series.name])
    assert len(panel.series) == min(K, 8)
    if K > 8:
        assert panel.series[-1].name == f"{K - 7} others"


def test_turns_are_marked_once_where_they_are_close_together() -> None:
    shares = samples.shares(4, J=60)
    turns = np.zeros(60, bool)
    turns[[0, 20, 21, 50]] = True
    marks = charts.allocation(replace(shares, turns=turns)).panels[0].marks
    assert shares.starts is not None
    assert [mark.x for mark in marks] == [shares.starts[21], shares.starts[50]]
    always = replace(shares, turns=np.ones(60, bool))
    assert len(charts.allocation(always).panels[0].marks) == 8


def test_many_short_pieces_are_drawn_together_but_told_one_by_one() -> None:
    shares = samples.shares(3, J=900, clock=False)
    chart = charts.allocation(shares)
    series = chart.panels[0].series[0]
    assert len(series.x) <= 121
    assert series.x[-1] == shares.rounds.sum()
    drawn = np.diff(series.x) @ series.y[:-1]
    k = shares.names.index(series.name)
    assert drawn == pytest.approx(shares.given[:, k].sum())
    assert len(chart.table.rows) == 2700


def test_plausible_counts_and_when_each_was_ruled_out() -> None:
    course = samples.course(4, J=6)
    alive = np.ones((6, 4), bool)
    alive[2:, 3] = False
    alive[[3, 5], 2] = False  # came back in between
    alive[1:, 1] = False
    leaders = np.zeros(6, np.int64)
    chart = charts.plausible(replace(course, plausible=alive, leaders=leaders))
    count, race = chart.panels
    assert count.series[0].kind == "steps"
    assert count.series[0].y.tolist() == [4, 3, 2, 1, 2, 1]
    assert race.series[0].x == tuple(course.names[k] for k in (0, 2, 3, 1))
    still, out = race.series
    assert still.y.tolist()[0] == course.rounds[-1]
    assert out.y.tolist()[1:] == [course.rounds[5], course.rounds[2], course.rounds[1]]
    assert course.times is not None
    assert chart.table.rows[1][1:4] == (False, course.times[1], course.rounds[1])
    assert chart.table.rows[0][1:] == (True, None, None, None)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_leaderboard_is_in_order(direction: sa.segments.Direction) -> None:
    verdict = samples.verdict(40)
    estimates = verdict.estimates.copy()
    estimates[7] = np.nan
    best = int(np.nanargmax(estimates) if direction == "maximize" else np.nanargmin(estimates))
    names = samples.names(40)
    found = replace(verdict, estimates=estimates, arm=best, name=names[best])
    chart = charts.leaderboard(found, names, direction)
    values = [row[2] for row in chart.table.rows]
    assert values[-1] is None
    assert values[:-1] == sorted(values[:-1], reverse=direction == "maximize")
    panel = chart.panels[0]
    assert panel.sideways
    assert panel.series[0].name == "leads"
    assert panel.series[0].x == tuple(row[1] for row in chart.table.rows[:30])
    assert panel.series[0].y[0] == estimates[best]
    assert "10 more variants" in chart.note
    shown = np.sum([np.isfinite(series.y) for series in panel.series], axis=0)
    assert shown.tolist() == [1] * 30


def test_daily_and_drift_are_those_of_the_report() -> None:
    report = samples.drift(5)
    daily = charts.daily(report).panels[0]
    assert daily.x.kind == "time"
    assert daily.series[0].x[0] == datetime(2026, 11, 2)
    for series in daily.series:
        np.testing.assert_array_equal(
            series.y, report.estimates[:, report.names.index(series.name)]
        )
    lead, level = charts.drift(report).panels
    assert lead.level == 0
    assert len(lead.series) == 4
    first = lead.series[0]
    k = report.names.index(first.name.removeprefix("ahead of "))
    np.testing.assert_array_equal(first.y, report.gaps[:, k])
    assert first.high is not None
    np.testing.assert_allclose(first.high - first.y, 1.959964 * report.gap_errors[:, k], rtol=1e-6)
    np.testing.assert_allclose(level.series[0].y, report.estimates.mean(axis=1))


def test_periods_that_are_no_days_are_labels() -> None:
    arms = sa.ArmSet.one_hot(["A", "B"])
    report = drift_report(samples.evidence(arms, np.full((8, 2), 0.3)), 4)
    panel = charts.daily(report).panels[0]
    assert panel.x.kind == "label"
    assert panel.series[0].x == report.periods


def test_effects_and_interactions_are_those_measured() -> None:
    effects = samples.effects()
    panels = charts.effects(effects).panels
    assert [panel.title for panel in panels] == ["headline", "image", "button"]
    image = [effect for effect in effects.main if effect.factor == "image"]
    assert panels[1].series[0].x == ("cat", "dog", "none")
    assert panels[1].series[0].y.tolist() == [effect.difference for effect in image]
    chart = charts.interactions(effects)
    pair = effects.pairs[0]
    assert len(chart.panels) == 3
    assert [series.y.tolist() for series in chart.panels[0].series] == pair.means.tolist()
    assert len(chart.table.rows) == 6 + 4 + 6
    with pytest.raises(sa.InvalidInputError, match="at least two factors"):
        charts.interactions(replace(effects, pairs=()))


def test_items_go_from_the_best_to_the_worst() -> None:
    effects = samples.items()
    chart = charts.effects(effects)
    (panel,) = chart.panels
    assert (chart.title, panel.sideways, panel.level) == (
        "What each item brings, on average over all bundles", True, 0.0,
    )  # fmt: skip  # a table reads better so
    chosen, others = panel.series
    assert chosen.x == others.x == tuple(effect.level for effect in effects.main)
    assert chosen.x[:2] == ("item 1", "item 2")
    assert (chosen.color, others.color) == (0, None)
    values = [effect.difference for effect in effects.main]
    assert chosen.y[:2].tolist() == values[:2]
    assert np.isnan(chosen.y[2:]).all()
    assert others.y[2:].tolist() == values[2:]
    assert "best item is item 1: it changes the reward of a bundle by 0.1" in chart.summary
    assert [row[5] for row in chart.table.rows] == [True] * 2 + [False] * 5
    unknown = charts.effects(replace(effects, chosen=()))
    assert [series.name for series in unknown.panels[0].series] == ["item"]
    assert [row[5] for row in unknown.table.rows] == [None] * 7
    with pytest.raises(sa.InvalidInputError, match="is of bundles; interactions are of the fact"):
        charts.interactions(effects)


def test_of_many_items_the_farthest_are_drawn() -> None:
    effects = samples.items(45)
    chart = charts.effects(effects)
    order = [effect.level for effect in effects.main]
    drawn = chart.panels[0].series[0].x
    assert len(drawn) == 40
    assert list(drawn) == [name for name in order if name in drawn]
    far = {effect.level: abs(effect.difference) for effect in effects.main}
    assert min(far[name] for name in drawn) >= max(far[name] for name in order if name not in drawn)
    assert len(chart.table.rows) == 45
    assert chart.note.startswith("Drawn are the 40 of 45 items farthest from zero. ")


def test_nothing_is_known_of_items_before_the_first_reward() -> None:
    effects = samples.items()
    blank = tuple(
        replace(e, mean=np.nan, difference=np.nan, low=-np.inf, high=np.inf) for e in effects.main
    )
    chart = charts.effects(replace(effects, main=blank))
    assert chart.summary == "Nothing is known of the items yet."
    check_table(chart)


def test_waiting_counts() -> None:
    waiting = samples.waiting()
    counts, hours = charts.waiting(waiting).panels
    assert counts.series[0].y.tolist() == waiting.assigned.tolist()
    assert counts.series[1].y.tolist() == waiting.rewarded.tolist()
    np.testing.assert_array_equal(hours.series[0].y, waiting.hours)
    on_time = replace(waiting, late=np.zeros_like(waiting.late))
    assert len(charts.waiting(on_time).panels[0].series) == 2


def test_a_plan_is_drawn_on_logarithmic_axes() -> None:
    plan = samples.plan()
    calm, moving, clear, lead = charts.plan(plan).panels
    assert (clear.x.kind, clear.level, clear.y_range) == ("log", 0.8, (0.0, 1.0))
    for line, series in zip(plan.lines, clear.series, strict=True):
        assert line.clear is not None
        shares = {one.budget: one.rate for one in (*line.clear.points, line.clear.check)}
        assert shares.items() <= dict(zip(series.x, series.y.tolist(), strict=True)).items()
    without = charts.plan(replace(plan, clear=None)).panels
    assert [panel.title for panel in without] == [calm.title, moving.title, lead.title]
    assert (calm.x.kind, calm.y.kind, calm.level) == ("log", "log", plan.error)
    for line, series in zip(plan.lines, moving.series, strict=True):
        rates = {float(point.budget): point.rate for point in line.asked.points}
        check = line.asked.need.check
        rates[float(check.budget)] = check.rate
        assert set(series.x) == set(rates)
        assert list(series.y) == [rates[x] for x in series.x]
        assert list(series.x) == sorted(series.x)
    assert calm.series[-1].x == plan.budgets  # the oracle's floor
    assert (lead.series[0].x[0], lead.series[0].x[-1]) == (0, plan.days)
    assert lead.series[0].y.min() < 0 < lead.series[0].y.max()
    assert plan.budget is not None
    assert [mark.x for mark in moving.marks] == [plan.budget]
    with_rates = [row for row in charts.plan(plan).table.rows if row[6] == 0]
    assert all(row[7] == 0 < row[8] for row in with_rates)


@pytest.mark.parametrize("K", SIZES)
def test_tables_hold_all_variants_and_only_plain_values(K: int) -> None:
    J, P = 12, 3
    rows = {
        "estimates": J * K,
        "daily": P * K,
        "allocation": J * K,
        "plausible": K,
        "leaderboard": K,
        "drift": P * (K - 1),
        "waiting": P,
    }
    for name, chart in samples.charts_of(K, J, P).items():
        assert len(chart.table.rows) == rows[name], name
        check_table(chart)


@pytest.mark.parametrize("kind", ["effects", "interactions", "items", "plan"])
def test_other_tables_hold_only_plain_values(kind: str) -> None:
    check_table(samples.other_chart(kind))


def check_table(chart: Chart) -> None:
    assert chart.title
    assert chart.summary.endswith(".")
    for row in chart.table.rows:
        assert len(row) == len(chart.table.header)
        for value in row:
            assert value is None or type(value) in (str, bool, int, float, datetime), value
            assert not isinstance(value, float) or math.isfinite(value)
    assert chart.table.csv().count("\n") == len(chart.table.rows) + 1


def test_unknown_intervals_are_nothing_in_tables() -> None:
    course = samples.course(2, J=5)
    first = charts.estimates(course).table.rows[0]
    assert first[4:6] == (None, None)


def test_series_are_as_long_as_their_axis() -> None:
    for K in SIZES:
        for chart in samples.charts_of(K, 12, 3).values():
            for panel in chart.panels:
                for series in panel.series:
                    check_lengths(series)


def check_lengths(series: Series) -> None:
    assert len(series.x) == len(series.y)
    for end in (series.low, series.high):
        assert end is None or len(end) == len(series.x)
