"""Charts: valid specifications with the numbers of their sources, drawn without an error."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import altair
import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.scorecard import Course, Scorecard, Shares, Waiting, compute_scorecard
from steadyarm.plot import live, save, standings, sweeps
from steadyarm.plot.sources import CHARTS, chart_for, pick_variants
from steadyarm.plot.spec import Measure, Spec, csv_of, cut, for_page, svg
from steadyarm.simulation import clopper_pearson
from tests.reports.worlds import visited
from tools.vendor_vega import FILE, head

EVIL = ['<script>alert("x")</script>', "=1+1", "datum.x", "a" * 300]
FACTORS = {"headline": ["short", "long"], "image": ["cat", "dog"], "price": ["low", "high"]}
TIMES = tuple(datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=j) for j in range(40))


def rows_of(spec: Spec) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = spec["data"]["values"]
    return values


def check(spec: Spec) -> str:
    """It fits the schema of Vega-Lite, says what it shows, and is drawn."""
    altair.Chart.from_dict(for_page(spec, dark=True) if "width" in spec else spec)
    assert spec["description"].endswith(".")
    assert spec["title"]["text"]
    return svg(json.loads(json.dumps(spec, allow_nan=False)))


@pytest.fixture(scope="module")
def card() -> Scorecard:
    return compute_scorecard(
        visited(1200, arms=["now", "B", "C", "D", "E", "F", "G"], control="now")
    )


@pytest.mark.parametrize("name", [n for n in CHARTS if n not in ("effects", "interactions")])
def test_every_chart_of_a_live_test(card: Scorecard, name: str) -> None:
    spec = chart_for(name, card)
    assert spec["name"] == name
    check(spec)


def test_charts_without_intervals_say_why() -> None:
    early = visited(100, arms=["now", "B"], control="now", stop="recommend", looks=2)
    for name in ("leaderboard", "lifts"):
        spec = json.dumps(chart_for(name, compute_scorecard(early)))
        assert "No intervals: before the first interim analysis." in spec
        assert "Lines:" not in spec


def test_charts_of_factors() -> None:
    card = compute_scorecard(visited(800, arms=sa.ArmSet.factorial(FACTORS)))
    main = rows_of(chart_for("effects", card))
    assert [(row["factor"], row["level"]) for row in main] == [
        (factor, level) for factor in FACTORS for level in FACTORS[factor]
    ]
    pairs = chart_for("interactions", card)
    assert len({row["pair"] for row in rows_of(pairs)}) == 3
    for spec in (pairs, chart_for("effects", card)):
        check(spec)
    assert "short + cat + low" in json.dumps(chart_for("leaderboard", card))


def test_items_of_bundles_are_those_of_the_verdict() -> None:
    card = compute_scorecard(visited(800, arms=sa.ArmSet.bundles(["a", "b", "c", "d"], size=2)))
    spec = chart_for("effects", card)
    assert spec["name"] == "effects"
    assert card.effects is not None
    inside = {row["level"] for row in rows_of(spec) if row["kind"] == "in the recommended bundle"}
    assert inside == set(card.effects.chosen)


def test_names_are_text_everywhere() -> None:
    test = visited(400, arms=EVIL, control=EVIL[0])
    for name in ("estimates", "allocation", "leaderboard", "lifts", "drift"):
        assert "<script" not in check(chart_for(name, test))
    board = csv_of(chart_for("leaderboard", test))
    names = {row["variant"] for row in csv.DictReader(io.StringIO(board))}
    assert "'=1+1" in names
    assert len(names) == 4
    assert cut("a" * 300) == "a" * 21 + "…" + "a" * 14


def course() -> Course:
    rounds = np.arange(1, 41) * 100
    estimates = np.linspace([0.5] * 7, np.linspace(0.1, 0.7, 7), 40)
    reach = (20 / np.sqrt(rounds))[:, None]
    return Course(
        names=tuple("ABCDEFG"),
        times=TIMES,
        rounds=rounds,
        estimates=estimates,
        low=estimates - reach,
        high=np.where(rounds[:, None] < 300, np.inf, estimates + reach),
        leaders=np.full(40, 6),
        plausible=estimates + 2 * reach >= estimates.max(axis=1)[:, None],
        level=0.95,
    )


def test_estimates_draw_five_variants_and_two_bands() -> None:
    given = course()
    spec = live.estimates(given, ["C", "D", "E", "F", "G"], Measure("purchase", rates=True))
    check(spec)
    assert {row["variant"] for row in rows_of(spec)} == set("CDEFG")
    last = [row for row in rows_of(spec) if row["visits"] == 4000]
    assert [row["estimate"] for row in last] == pytest.approx(given.estimates[-1, 2:])
    assert [row["low"] for row in last] == pytest.approx(given.low[-1, 2:])
    assert last[0]["time"] == "2026-04-09T00:00:00Z"
    assert rows_of(spec)[0]["high"] is None  # infinite
    (band,) = spec["layer"][0]["transform"]
    assert sorted(band["filter"]["oneOf"]) == ["F", "G"]
    low, high = spec["layer"][1]["encoding"]["y"]["scale"]["domain"]
    assert low < given.low[10:, 2:].min()
    assert given.high[10:, 2:].max() < high < given.high[3, 6]  # early bands do not set the scale
    assert "G leads with an estimate of 70.00 %" in spec["description"]
    assert "2 other variants not drawn." in " ".join(spec["title"]["subtitle"])


def test_shares_are_stacked_to_one() -> None:
    given = np.array([[10, 10, 10, 10], [20, 5, 10, 5], [0, 0, 0, 0]])
    planned = np.array([[0.25] * 4, [0.5, 0.125, 0.25, 0.125], [0.7, 0.1, 0.1, 0.1]])
    turns = np.array([True, True, False])
    shares = Shares(tuple("ABCD"), TIMES[:3], TIMES[1:4], given.sum(axis=1), planned, given, turns)
    spec = live.allocation(shares, ["A", "C"])
    check(spec)
    rows = rows_of(spec)
    assert [row["variant"] for row in rows[:3]] == ["A", "C", "2 other variants"]
    assert [row["share"] for row in rows[3:6]] == pytest.approx([0.5, 0.25, 0.25])
    assert [row["share"] for row in rows[6:9]] == pytest.approx([0.7, 0.1, 0.2])  # as planned
    assert rows[3]["to"] == pytest.approx(1.0)
    assert [row["from"] for row in rows[3:6]] == pytest.approx([0.5, 0.25, 0.0])
    assert rows[-1]["time"] == "2026-03-04T00:00:00Z"  # where the data ends
    ruler = spec["layer"][1]
    assert [mark["visits"] for mark in ruler["data"]["values"]] == [40]
    assert spec["description"].endswith("The allocation was updated 1 time.")
    assert "A now has the largest share, 70 %." in spec["description"]


def test_the_lead_has_the_intervals_of_the_drift_report(card: Scorecard) -> None:
    report = card.drift
    assert report is not None
    spec = chart_for("drift", card)
    names = [name for name in pick_variants(card) or () if name != report.best]
    assert [row["ahead of"] for row in rows_of(spec)[: len(names)]] == names
    for row in rows_of(spec):
        j, k = report.periods.index(row["period"]), report.names.index(row["ahead of"])
        assert row["lead"] == pytest.approx(report.gaps[j, k])
        assert (row["low"] + row["high"]) / 2 == pytest.approx(row["lead"])


def test_variants_have_one_colour_in_all_charts(card: Scorecard) -> None:
    colors: dict[str, set[str]] = {}
    for name in ("estimates", "allocation", "drift"):
        text = json.dumps(chart_for(name, card))
        for scale in map(json.loads, re.findall(r'"scale": (\{"domain": \["[^}]*\})', text)):
            if "range" in scale:
                for variant, color in zip(scale["domain"], scale["range"], strict=True):
                    colors.setdefault(variant, set()).add(color)
    assert len(pick_variants(card) or ()) == live.MOST
    assert all(len(colors[name]) == 1 for name in pick_variants(card) or ())


def test_the_leaderboard_is_the_verdict(card: Scorecard) -> None:
    verdict = card.verdict
    assert verdict is not None
    rows = rows_of(chart_for("leaderboard", card))
    assert (rows[0]["variant"], rows[0]["kind"]) == (verdict.name, "leads")
    for row in rows:
        k = verdict.names.index(row["variant"])
        assert row["estimate"] == verdict.estimates[k]
        assert [row["low"], row["high"]] == pytest.approx(verdict.intervals[k].tolist())
        assert (row["kind"] == "ruled out") == (row["variant"] not in verdict.plausible)
    lifts = {row["variant"]: row for row in rows_of(chart_for("lifts", card))}
    assert set(lifts) == set(card.names) - {"now"}
    for name, row in lifts.items():
        assert (row["kind"] == "better than now") == (row["lift, low"] > 0)
        assert row["lift"] == verdict.of(name).lift


def test_rewards_that_came() -> None:
    counts = np.array([10, 20]), np.array([10, 5]), np.array([0, 1])
    days = (date(2026, 3, 1), date(2026, 3, 2))
    spec = live.waiting(Waiting(days, *counts, hours=np.array([1.0, np.nan])))
    check(spec)
    assert [row["visits"] for row in rows_of(spec)] == [10, 10, 0, 20, 5, 1]
    assert "Rewards have come for 15 of 30 visits (50 %)." in spec["description"]
    assert "1 reward came too late" in spec["description"]


# Simulations, comparisons, plans, designs


def test_comparisons() -> None:
    arms = sa.ArmSet.one_hot(["A", "B"])

    def world(gap: float) -> Callable[[int], sa.Environment]:
        return lambda T: sa.Environment.from_means(arms, [gap, 0.0], budget=T)

    policies: list[sa.Policy[Any] | str] = [sa.GBAI(), sa.Uniform(), sa.Steady()]
    worlds = {"near": world(0.2), "far": world(5.0)}
    comparison = sa.compare(policies, worlds, budgets=[50, 100], trials=40)
    spec = sweeps.error_against_budget(comparison, "Three policies")
    drawn = check(spec)
    assert "Three policies" in drawn
    assert "near (T = 50 to 100, K = 2, d = 2" in drawn
    for row in rows_of(spec):
        cell = comparison.cell(row["policy"], row["world"], row["budget"])
        assert row["rate"] == cell.error_rate
        assert (row["low"], row["high"]) == clopper_pearson(cell.errors, cell.trials)
    assert any(row["rate"] == 0 for row in rows_of(spec))
    assert sweeps.NONE.strip() in " ".join(spec["title"]["subtitle"])


def test_policies_have_styles_of_their_own() -> None:
    found = sweeps.tint([*sweeps.PAPER, "Mine"])
    assert found["color"]["scale"]["domain"][-1] == "Mine"
    styles = zip(found["color"]["scale"]["range"], found["shape"]["scale"]["range"], strict=True)
    assert len(set(styles)) == 8


def test_results_and_designs() -> None:
    world = sa.Environment.from_means(sa.ArmSet.one_hot(["A", "B"]), [0.5, 0.3], budget=60)
    found = [sa.simulate(policy, world, trials=50) for policy in (sa.GBAI(), sa.Uniform())]
    spec = standings.results(found, "Two policies")
    check(spec)
    wrong = [(row["policy"], row["wrong"]) for row in rows_of(spec)]
    assert wrong == [(one.policy, one.errors) for one in found]
    arms = sa.ArmSet.from_features(np.random.default_rng(1).normal(size=(60, 4)))
    spec = standings.design(sa.g_optimal(arms), arms.names)
    check(spec)
    weights = [row["weight"] for row in rows_of(spec)]
    assert sum(weights) == pytest.approx(1)
    assert weights == sorted(weights, reverse=True)


def test_plans() -> None:
    question = {
        "traffic_per_day": 200,
        "arms": {"one_hot": ["A", "B"]},
        "effects": {"smallest_gap": 0.5},
        "rewards": {"sd": 1.0},
        "policies": ["steady", "a/b-test"],
        "clear": 0.8,
    }
    found = sa.plan(question, trials=200)
    wrong, clear = sweeps.plan(found), sweeps.plan(found, clear=True)
    assert f"{found.budget:,} visits" in check(wrong)
    assert f"{found.clear_budget:,} visits" in check(clear)
    drawn = {(row["visits"], row["rate"]) for row in rows_of(wrong)}
    points = {(point.budget, point.wrong.rate) for line in found.lines for point in line.points}
    assert len(points - drawn) <= len(found.lines)  # where a check had more tests


# What people call, and what pages load


def test_functions_return_charts_of_altair(tmp_path: Path) -> None:
    session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), 60, seed=3)
    for _ in range(60):
        asked = session.ask()
        session.tell(asked, float(asked.name == "B"))
    chart: Any = sa.plot.estimates(session)
    assert isinstance(chart & sa.plot.drift(session), altair.VConcatChart)
    spec = chart_for("estimates", session)
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<svg")):
        assert save(spec, tmp_path / "new" / f"a.{kind}").read_bytes().startswith(start)
    with pytest.raises(sa.InvalidInputError, match=r"a\.gif; use a file name that ends in \.png"):
        save(spec, tmp_path / "a.gif")
    with pytest.raises(sa.InvalidInputError, match="has no times of rewards"):
        sa.plot.waiting(session)
    with pytest.raises(sa.InvalidInputError, match="test is int"):
        sa.plot.waiting(3)  # type: ignore[arg-type]


def test_pages_draw_with_the_same_version_of_vega_lite() -> None:
    assert FILE.read_text().startswith(head()), "run python -m tools.vendor_vega"
