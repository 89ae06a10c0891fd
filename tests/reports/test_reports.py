"""Reports: what they say of live tests and plans, as pages that are whole and harmless."""

from __future__ import annotations

import hashlib
import re
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.errors import InvalidInputError
from steadyarm.live.lifecycle import create_from_description
from steadyarm.live.replay import Replay
from steadyarm.live.scorecard import compute_scorecard
from steadyarm.reports import experiment_report, plan_report, write_report
from steadyarm.reports.experiment import page_of
from steadyarm.wording import percent
from tests.reports.worlds import Elements, visited

FACTORS = {"headline": ["short", "long"], "image": ["cat", "dog"], "price": ["low", "high"]}
QUESTION = {
    "traffic_per_day": 100,
    "arms": {"one_hot": ["<script>x</script>", "B"]},
    "effects": {"smallest_gap": 0.5},
    "rewards": {"sd": 1.0},
    "policies": ["g-bai", "od-linbai"],
    "error": 0.1,
}
VARIANTS = "Variants from"


def page(test: sa.Experiment, **more: Any) -> Elements:
    """A report, by default without what reads the whole log."""
    return Elements(experiment_report(test, **{"replay": False, "fingerprint": False} | more))


@pytest.fixture(scope="module")
def running() -> sa.Experiment:
    return visited(1200)


@pytest.fixture(scope="module")
def whole(running: sa.Experiment) -> Elements:
    return page(running, replay=True, fingerprint=True)


def test_everything_is_there_in_its_order(running: sa.Experiment, whole: Elements) -> None:
    card = compute_scorecard(running)
    assert whole.text.startswith(f"Test report: test Test report: test {card.decision.text}")
    assert card.headline in whole.text
    assert "Visits 1,200 of 2,400 (50 %)" in whole.text
    assert whole.headings == [
        "Leaderboard",
        "Estimates over time",
        "Who was shown how often",
        "Did the world move?",
        "Is the test healthy?",
        "Appendix: method, assumptions, checks",
    ]
    assert len(whole.pictures) == 5
    assert all(text.endswith(".") for text in whole.pictures)


def test_a_page_needs_nothing_else_and_runs_nothing(running: sa.Experiment) -> None:
    text = experiment_report(running, replay=False, fingerprint=False)
    for outside in ("http", "<script", "<link", "@import", "url("):
        assert outside not in re.sub(r'src="data:[^"]*"', "", text)
    assert "@media print" in text


def test_the_leaderboard_is_the_verdict(running: sa.Experiment, whole: Elements) -> None:
    card = compute_scorecard(running)
    verdict = card.verdict
    assert verdict is not None
    rows, assigned = whole.table(VARIANTS), running.status().assigned
    assert [row[0] for row in rows] == ["C", "B", "A"]
    for name, estimate, interval, visits, standing in rows:
        k = running.arms.index(name)
        assert float(estimate) == pytest.approx(verdict.estimates[k], rel=1e-3)
        low, high = map(float, interval.split(" to "))
        assert [low, high] == pytest.approx(verdict.intervals[k], rel=1e-3)
        assert visits == f"{assigned[k]:,} ({percent(assigned[k] / 1200)})"
        others = "can still win" if name in verdict.plausible else "ruled out"
        assert standing == ("leads" if k == verdict.arm else others)


def test_the_log_can_be_checked(running: sa.Experiment, whole: Elements, tmp_path: Path) -> None:
    path = running.export(tmp_path / "test.csv")
    assert hashlib.sha256(path.read_bytes()).hexdigest() in whole.code
    assert "steadyarm experiment export test test.csv\nsha256sum test.csv" in whole.code
    assert f"CSV file, {path.read_text().count(chr(10)) - 1:,} rows." in whole.text
    assert "1,200 assignments, 1,200 rewards and" in whole.text
    assert "read just after that" in whole.text
    wrong = Elements(
        page_of(compute_scorecard(running), None, Replay(3, 2, 1, ("the sum of <A>",)))
    )
    assert "Wrong. 3 assignments, 2 rewards and 1 segment were computed anew" in wrong.text
    assert "do not agree with what is stored: the sum of <A>" in wrong.text
    assert "computed anew" not in page(running).text


def test_the_settings_create_the_same_test() -> None:
    control: dict[str, Any] = {"control": {"A": 0.2}, "reward_window": "2d", "missing": "zero"}
    live = visited(0, direction="minimize", policy=sa.Steady(robustness=0.8), **control)
    (text,) = [code for code in page(live).code if "[" in code]
    description = tomllib.loads(text)
    again = create_from_description(description.pop("name"), description, "memory")
    assert again.settings == live.settings


def test_a_draft_without_data() -> None:
    found = page(visited(0, start=False))
    assert found.pictures == []
    assert "Not started yet" in found.text
    assert found.headings == ["Leaderboard", "Appendix: method, assumptions, checks"]
    assert found.table("The variants") == [["A", "0", "0"], ["B", "0", "0"], ["C", "0", "0"]]


def test_after_all_visits_nothing_can_still_win() -> None:
    live = visited(600, budget=600, told=0.9, missing="zero", reward_window="1h")
    found = page(live, fingerprint=True)
    assert "Visits 600 of 600 (100 %)" in found.text
    assert "Expected end" not in found.text
    assert f"Rewards have come for {sum(live.status().rewarded):,} of 600" in found.text
    assert "It stays the same as long as no further reward is recorded." in found.text
    assert "too early" not in found.text.lower()
    assert "can still win" not in found.text


@pytest.mark.parametrize(
    ("policy", "why", "rests"),
    [
        (sa.Peace(), "leaves variants out on the way", "come from the rewards of the last epoch"),
        (sa.LinearThompson(), "does not give every variant a chance", "take all rewards alike"),
        (sa.AdjacentBAI(), "does not give every variant a chance", "take all rewards alike"),
    ],
)
def test_biased_policies_have_no_course(policy: sa.Policy[Any], why: str, rests: str) -> None:
    found = page(visited(450, budget=600, policy=policy, reward_range=None))
    assert found.text.count(f"{policy.name} {why}") == 2
    assert f"Estimates {rests}" in found.text
    assert "What must be true: No drift" in found.text
    assert len(found.pictures) == 3  # leaderboard, shares of visits, rewards that came


def test_factorial_tests_have_effects() -> None:
    found = page(visited(800, arms=sa.ArmSet.factorial(FACTORS)))
    assert "Effects of the factors" in found.headings
    assert [row[:2] for row in found.table("What each level does")] == [
        [factor, level] for factor, levels in FACTORS.items() for level in levels
    ]
    assert len(found.table("How far pairs")) == 3
    assert "Variants are named by their levels of headline, image and price." in found.text
    names = {" + ".join(row) for row in product(*FACTORS.values())}
    assert {row[0] for row in found.table(VARIANTS)} == names
    assert {row[2] for row in found.table("Estimates in every")} <= names


def test_a_report_tells_what_was_corrected() -> None:
    live = visited(100)
    assert "corrected" not in page(live).text
    live.exclude(unit="visitor 7", reason="a monitor", by="ada")
    (row,) = page(live).table("What was corrected by hand")
    assert row[1:] == ["visits excluded", "1", "a monitor"]


def test_all_are_compared_with_the_control() -> None:
    arms = sa.ArmSet.factorial({"headline": ["short", "long"], "image": ["cat", "dog"]})
    live = visited(1200, budget=1200, arms=arms, control=arms.names[0], missing="drop")
    found, card = page(live), compute_scorecard(live)
    assert card.decision.text.startswith("Ship long + dog: it beats short + cat by ")
    assert card.decision.text in found.text
    assert found.tables["Variants from the best to the worst"][0][3] == "against short + cat"
    cells = {row[0]: row[3] for row in found.table(VARIANTS)}
    assert cells["short + cat"] == "control"
    assert card.decision.text.endswith(f"by {cells['long + dog'][1:]}.")
    assert "short + cat have their own" in found.text
    assert any("against short + cat, the control" in text for text in found.pictures)


def test_names_are_text() -> None:
    found = page(visited(60, arms=["<b>bold</b>", "{{ 7 * 7 }}", '"><img src=x>']))
    assert "<b>bold</b>" in found.text
    assert "{{ 7 * 7 }}" in found.text
    assert {tag for tag, _ in found.found}.isdisjoint({"script", "b"})
    assert all((given["src"] or "").startswith("data:") for t, given in found.found if t == "img")


def test_files_are_pages(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"ends in \.html"):
        write_report("", tmp_path / "a.md")
    (tmp_path / "b.html").mkdir()
    with pytest.raises(InvalidInputError, match="is a folder"):
        write_report("", tmp_path / "b.html")


# Plans


@pytest.fixture(scope="module")
def calm() -> sa.Plan:
    return sa.plan(QUESTION, trials=100, seed=3)


def test_the_answer_of_a_plan_comes_first(calm: sa.Plan) -> None:
    found = Elements(plan_report(calm, "steadyarm plan test.toml"))
    assert calm.choice is not None
    answer = f"Take {calm.choice.label}: {calm.budget:,} visits in "
    assert found.text.startswith(f"How long the test must be How long the test must be {answer}")
    needs, proofs, errors, clear = found.tables.values()
    assert [row[0] for row in needs[1:]] == [line.name for line in calm.lines]
    assert needs[1][1] == f"{calm.lines[0].calm.budget:,}"
    assert proofs[1][1] == f"{calm.clear_budget:,}"
    budgets = [f"{budget:,}" for budget in calm.budgets]
    assert [row[0] for row in errors[1:]] == [row[0] for row in clear[1:]] == budgets
    assert len(found.pictures) == 2
    assert found.code[-1] == "steadyarm plan test.toml"
    assert "<script>x</script>" in found.text
    again = sa.Question.from_settings(tomllib.loads(found.code[0]))
    assert again.to_dict() == calm.question.to_dict()


def test_plans_with_a_rhythm_or_without_an_answer() -> None:
    moving = sa.plan(QUESTION | {"rhythm": {"kind": "weekend"}}, trials=100, seed=3)
    assert list(Elements(plan_report(moving)).tables) == [
        "Without drift, about 10 % wrong picks or fewer need",
        "With this rhythm, about 10 % wrong picks or fewer need",
        "With this rhythm, 80 % clear answers need",
        "Wrong picks in % (95 % interval) by budget, with this rhythm",
        "Clear answers in % (95 % interval) by budget, with this rhythm",
    ]
    short = sa.plan(QUESTION | {"most_days": 1, "traffic_per_day": 5}, trials=100, seed=3)
    found = Elements(plan_report(short))
    assert "No robust policy gets down to " in found.text
    assert found.table("Without drift, about")[0][1:4] == ["> 5", "", "> 1"]
