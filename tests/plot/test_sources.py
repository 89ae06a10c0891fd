"""What may be plotted, and what is said if it may not."""

from __future__ import annotations

import builtins
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]  # it has no types
import pytest
from matplotlib.figure import Figure

import steadyarm as sa
from steadyarm.live.scoring import scorecard_of
from steadyarm.plot.sources import CHARTS, chart_for
from tests.plot import samples

FACTORS = {"headline": ["short", "long"], "image": ["cat", "dog"]}
BUDGET, CONTROL = 1200, "headline=long, image=cat"


def reward(name: str, number: int) -> float:
    rng = np.random.default_rng([number, 5])
    return float(rng.random() < 0.3 + 0.3 * ("short" in name) + 0.1 * ("dog" in name))


@pytest.fixture(scope="module")
def session() -> sa.Session:
    test = sa.Session(sa.Steady(), sa.ArmSet.factorial(FACTORS), BUDGET, seed=2, control=CONTROL)
    for _ in range(BUDGET):
        a = test.ask()
        test.tell(a, reward(a.name, a.number))
    return test


@pytest.fixture(scope="module")
def experiment() -> sa.Experiment:
    arms = sa.ArmSet.factorial(FACTORS)
    test = sa.create_experiment(
        "headline",
        arms,
        sa.Steady(),
        BUDGET,
        "memory",
        seed=2,
        missing="drop",
        control=CONTROL,
    )
    for k in range(0, BUDGET, 100):
        asked = test.ask_many([f"u{k + i}" for i in range(100)])
        given = [a for a in asked if isinstance(a, sa.LiveAssignment)]
        test.tell_many([(a, reward(a.name, k + i)) for i, a in enumerate(given)])
    return test


@pytest.mark.parametrize("name", CHARTS)
def test_an_experiment_has_every_picture_twice(experiment: sa.Experiment, name: str) -> None:
    assert isinstance(getattr(sa.plot, name)(experiment), go.Figure)
    assert isinstance(getattr(sa.plot.matplotlib, name)(experiment), Figure)


def test_an_experiment_and_its_scorecard_are_the_same(experiment: sa.Experiment) -> None:
    card = scorecard_of(experiment)
    for name in CHARTS:
        assert chart_for(name, experiment).table == chart_for(name, card).table
    rows = chart_for("leaderboard", card).table.rows
    assert card.verdict is not None
    assert rows[0][1] == card.verdict.name


def test_a_session_has_all_but_the_clock(session: sa.Session) -> None:
    for name in set(CHARTS) - {"waiting"}:
        chart = chart_for(name, session)
        assert chart.table.rows
        assert isinstance(getattr(sa.plot, name)(session), go.Figure)
    last = chart_for("estimates", session).table.rows[-4:]
    np.testing.assert_allclose([row[3] for row in last], session.recommend().estimates)
    assert all(row[0] is None for row in last)
    given = sum(row[4] for row in chart_for("allocation", session).table.rows)
    assert given == BUDGET
    with pytest.raises(sa.InvalidInputError, match="give an Experiment"):
        sa.plot.waiting(session)


def test_an_analysis_has_what_its_log_tells(tmp_path: Any) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "log.csv"
    lines = ["timestamp,arm,reward,probability"]
    for day in range(8):
        for _ in range(60):
            k = int(rng.integers(3))
            bought = int(rng.random() < 0.2 + 0.2 * k)
            lines.append(f"2026-11-{day + 1:02} 12:00:00,{'ABC'[k]},{bought},{1 / 3}")
    path.write_text("\n".join(lines))
    found = sa.analyze(str(path))
    for name in ("estimates", "plausible", "leaderboard", "drift", "daily"):
        assert chart_for(name, found).table.rows
    rows = chart_for("leaderboard", found).table.rows
    assert [row[1] for row in rows] == ["C", "B", "A"]
    last = {row[2]: row[3] for row in chart_for("estimates", found).table.rows[-3:]}
    np.testing.assert_allclose([last[name] for name in found.arms.names], found.estimates)
    with pytest.raises(sa.InvalidInputError, match="Experiment or a Session"):
        sa.plot.allocation(found)
    with pytest.raises(sa.InvalidInputError, match="neither factorial nor of bundles"):
        sa.plot.effects(found)
    with pytest.raises(sa.InvalidInputError, match="has no control"):
        sa.plot.lifts(found)


def test_rewards_of_yes_or_no_are_drawn_in_per_cent(experiment: sa.Experiment) -> None:
    card = scorecard_of(experiment)
    rates = replace(card, settings=replace(card.settings, reward_range=(0.0, 1.0)))
    for name in ("estimates", "daily", "leaderboard", "interactions"):
        for seen, percent in ((card, False), (rates, True)):
            assert {panel.y.percent for panel in chart_for(name, seen).panels} == {percent}
    said = chart_for("leaderboard", rates).summary
    assert f"an estimate of {100 * card.verdict.estimates[card.verdict.row]:.2f} % (" in said  # type: ignore[union-attr]  # it is there


def test_items_of_bundles_are_drawn_for_all_that_has_rewards(tmp_path: Any) -> None:
    bundles = sa.ArmSet.bundles(["news", "long story", "short story"], size=2, interactions=1)
    test = sa.Session(sa.Steady(), bundles, BUDGET, seed=2)
    live = sa.create_experiment(
        "bundles", bundles, sa.Steady(), BUDGET, "memory", seed=2, missing="drop"
    )
    with pytest.raises(sa.InvalidInputError, match="test 'bundles' has no effects to draw"):
        sa.plot.effects(live)
    for i in range(BUDGET):
        a, b = test.ask(), live.ask(f"u{i}")
        test.tell(a, reward(a.name, i))
        live.tell(b, reward(b.name, i))
    found = sa.analyze(live.export(tmp_path / "log.csv"))
    for seen in (test, live, scorecard_of(live), found):
        rows = chart_for("effects", seen).table.rows
        assert rows[0][0] == "short story"
        assert {row[0] for row in rows if row[5]} >= {"short story"}
        assert isinstance(sa.plot.effects(seen), go.Figure)
        assert isinstance(sa.plot.matplotlib.effects(seen), Figure)
    assert chart_for("effects", test).table == chart_for("effects", live).table
    with pytest.raises(sa.InvalidInputError, match="is of bundles"):
        sa.plot.interactions(test)


def test_nothing_to_draw_is_said_with_the_reason() -> None:
    test = sa.create_experiment("new", ["A", "B"], sa.Steady(), 100, "memory", missing="drop")
    for name in set(CHARTS) - {"effects", "interactions"}:
        with pytest.raises(sa.InvalidInputError, match="test 'new' has no"):
            getattr(sa.plot, name)(test)
    with pytest.raises(sa.InvalidInputError, match="neither factorial nor of bundles"):
        sa.plot.effects(test)
    session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), 100)
    with pytest.raises(sa.InvalidInputError, match="nothing was assigned yet"):
        sa.plot.allocation(session)
    with pytest.raises(sa.RewardsPendingError):
        sa.plot.estimates(session)


def test_other_things_are_refused() -> None:
    wrong: Any = 3
    with pytest.raises(sa.InvalidInputError, match="test is int; give an Experiment"):
        sa.plot.estimates(wrong)
    with pytest.raises(sa.InvalidInputError, match="plan is int"):
        sa.plot.plan(wrong)


def test_a_plan_has_both_pictures() -> None:
    assert isinstance(sa.plot.plan(samples.plan()), go.Figure)
    assert isinstance(sa.plot.matplotlib.plan(samples.plan()), Figure)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] in ("plotly", "matplotlib"):
            raise ImportError(f"No module named {name!r}", name=name.partition(".")[0])
        return whole(name, *rest, **more)

    monkeypatch.delattr(sa.plot, "matplotlib")
    monkeypatch.delitem(sys.modules, "steadyarm.plot.matplotlib")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(sa.MissingExtraError, match=r"need plotly.*steadyarm\[plots\]"):
        sa.plot.plan(samples.plan())
    with pytest.raises(sa.MissingExtraError, match=r"need matplotlib.*steadyarm\[plots\]"):
        sa.plot.matplotlib.plan(samples.plan())
