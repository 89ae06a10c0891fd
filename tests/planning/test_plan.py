"""Plans are right: closed forms, independent simulation, the same seed, plain words."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import fisher_exact

import steadyarm as sa
from steadyarm.planning import Line, Need, Point, Progress, Share
from steadyarm.planning.question import EqualSplit, Question, candidates_of
from steadyarm.planning.search import SEARCHING, Search, tidy
from steadyarm.simulation import clopper_pearson
from steadyarm.testing.policies import CHECKS

TWO: dict[str, Any] = {
    "traffic_per_day": 500,
    "arms": {"one_hot": ["A", "B"]},
    "effects": {"smallest_gap": 0.2},
    "rewards": {"sd": 1.0},
    "policies": ["a/b-test"],
}
THREE: dict[str, Any] = {
    "traffic_per_day": 100,
    "arms": {"one_hot": ["A", "B", "C"]},
    "effects": {"smallest_gap": 0.3},
    "rewards": {"sd": 1.0},
    "rhythm": {"kind": "weekend"},
    "policies": ["g-bai", "sequential-halving"],
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_usual_test_keeps_the_rules_of_policies(check: Any) -> None:
    check(EqualSplit())


@pytest.mark.parametrize("policy", ["a/b-test", "g-bai", "uniform"])
@pytest.mark.parametrize("error", [0.02, 0.1])
def test_two_arms_in_closed_form(policy: str, error: float) -> None:
    """Equal shares of two Gaussian arms: error Φ(-Δ √T / 2σ), so T = (2 σ z / Δ)².

    The interval of the budget covers that 19 times of 20; here 4 instead of 1.96 standard errors.
    """
    plan = sa.plan(TWO | {"error": error, "policies": [policy]}, trials=2000, seed=1)
    exact = (2 * ndtri(error) / 0.2) ** 2
    need = plan.lines[0].calm
    assert need.low is not None
    assert need.high is not None
    assert plan.budget is not None
    scatter = (np.sqrt(need.high) - np.sqrt(need.low)) / (2 * 1.96)
    assert abs(np.sqrt(plan.budget) - np.sqrt(exact)) < 4 * scatter
    assert need.high / need.low < 1.3
    low, high = clopper_pearson(need.check.wrong.count, need.check.wrong.trials, 0.9999)
    assert low < error < high


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_clear_answers_of_two_arms_in_closed_form(correlation: float) -> None:
    """Equal shares of two Gaussian arms lead by z errors with probability Φ(Δ √T / 2σ - z)."""
    asked = TWO | {"rewards": {"sd": 1.0, "correlation": correlation}, "clear": 0.8}
    plan = sa.plan(asked, trials=1000, seed=1)
    exact = (1 - correlation**2) * (2 * (ndtri(0.975) + ndtri(0.8)) / 0.2) ** 2
    need, picked = plan.lines[0].clear, plan.lines[0].picked
    assert need is not None
    assert need.low is not None
    assert need.high is not None
    assert plan.clear_budget is not None
    scatter = (np.sqrt(need.high) - np.sqrt(need.low)) / (2 * 1.96)
    assert abs(np.sqrt(plan.clear_budget) - np.sqrt(exact)) < 4 * scatter
    assert need.high / need.low < 1.3
    assert need.check.budget == plan.clear_budget
    assert need.check.clear is not None
    low, high = clopper_pearson(need.check.clear.count, need.check.clear.trials, 0.9999)
    assert low < 0.8 < high
    assert picked is not None
    assert picked.clear is not None
    assert plan.budget is not None
    wanted = ndtri(0.95)  # what a right pick in 95 % of tests is worth
    proven = float(
        ndtr(
            wanted * np.sqrt(plan.budget / (4 * wanted**2 / 0.04) / (1 - correlation**2))
            - ndtri(0.975)
        )
    )
    assert abs(picked.clear.rate - proven) < 5 * np.sqrt(proven / 1000)
    said = f"At {plan.budget:,} visits the best is picked in "
    assert said in str(plan)
    assert "of tests you can also prove it." in str(plan)
    need_said = f"For a clear answer in 80 % of tests it needs {plan.clear_budget:,} visits in "
    assert need_said in str(plan)


def test_a_plan_with_looks_a_delay_and_a_control() -> None:
    asked = THREE | {
        "policies": ["steady", "a/b-test"],
        "control": "A",
        "stop": "when sure",
        "looks": "weekly",
        "rewards": {"sd": 1.0, "correlation": 0.5, "delay": 2},
    }
    plan = sa.plan(asked, trials=200, seed=4)
    described = plan.question.to_dict()
    assert Question.from_settings(described).to_dict() == described
    steady, usual = plan.lines
    assert steady.clear is not None
    assert usual.clear is not None
    assert plan.clear_budget is not None
    assert plan.expected_visits is not None
    assert 0.3 * plan.clear_budget < plan.expected_visits <= plan.clear_budget
    assert usual.clear.check.visits is None  # one list, which cannot end at a look
    for days in (plan.days, plan.clear_days):
        assert days is not None
        assert days % 7 == 2  # whole weeks, and the wait for the last rewards
    text = str(plan)
    for words in (
        "A is the control",
        "correlation 0.5 with rewards",
        "known after 2 days",
        "looks weekly",
        "the answer is also clear",
        "the best variant is shown to beat A, or A is kept",
        "Days include 2 for the last rewards.",
        "n/a",
    ):
        assert words in text
    for share, pays in ((0.7, True), (1.0, False)):
        check = replace(steady.clear.check, visits=share * plan.clear_budget)
        clear = replace(steady.clear, check=check)
        stopping = replace(plan, lines=(replace(steady, clear=clear), usual))
        assert clear.stopping_pays is pays
        assert ("that stops when sure ends after" in str(stopping)) is pays
        assert ("Stopping when sure hardly saves visits" in str(stopping)) is not pays


def test_too_little_traffic_for_a_clear_answer_is_said() -> None:
    plan = sa.plan(TWO | {"traffic_per_day": 50, "most_days": 10}, trials=200)
    assert plan.budget is not None
    assert plan.clear_budget is None
    assert "For a clear answer in 80 % of tests 10 days are not enough: at 500 vi" in str(plan)


def test_intervals_of_the_budget_cover() -> None:
    """Twenty plans of one question; intervals that miss seven times cover less than 90 %."""
    exact = (2 * ndtri(0.05) / 0.2) ** 2
    needs = [sa.plan(TWO | {"clear": False}, trials=500, seed=s).lines[0].calm for s in range(20)]
    missed = [need for need in needs if not (need.low or 0) <= exact <= (need.high or 0)]
    assert len(missed) <= 6  # 7 or more of 20 at 90 %: p = 0.002


def test_predicted_errors_agree_with_independent_simulation() -> None:
    """Two-sample test at another seed, round by round."""
    asked = {"traffic_per_day": 100, "most_days": 365, "policies": ["steady"]} | {
        "arms": {"one_hot": ["A", "B", "C", "D"]},
        "effects": {"smallest_gap": 0.1},
        "rewards": {"rate": 0.2},
        "rhythm": {"kind": "weekend", "strength": 2.0},
    }
    question = sa.Question.from_settings(asked)
    plan = sa.plan(question, trials=500, seed=3)
    need = plan.lines[0].asked
    assert need.budget is not None
    world = question.environment(need.budget)
    rates = world.level + np.outer(world.pieces.swing, world.effects)
    table = np.repeat(rates, np.diff(world.pieces.ends, prepend=0), axis=0)
    rounds = sa.Environment.from_means(question.arms, table, sa.BernoulliReward())
    found = sa.simulate(question.candidates[0].policy, rounds, trials=800, seed=77)
    wrong = need.check.wrong
    counts = [[found.errors, found.trials - found.errors], [wrong.count, wrong.rest.count]]
    assert fisher_exact(np.array(counts)).pvalue > 1e-3
    assert abs(wrong.rate - question.error) < 0.5 * question.error


def test_the_same_seed_gives_the_same_plan_whatever_the_jobs() -> None:
    plans = [sa.plan(THREE, trials=200, seed=5, jobs=jobs).to_dict() for jobs in (1, 3)]
    assert plans[0] == plans[1]
    assert sa.plan(THREE, trials=200, seed=6).to_dict() != plans[0]


def test_a_plan_is_json_and_says_everything() -> None:
    plan = sa.plan(THREE, trials=200)
    data = json.loads(json.dumps(plan.to_dict()))
    assert sa.plan(data["question"], trials=200).to_dict() == plan.to_dict()
    text = str(plan)
    for word in ("G-BAI", "Sequential-Halving *", "Without drift", "With this rhythm", "oracle"):
        assert word in text
    assert repr(plan).startswith("Plan(error 0.05: G-BAI, ")


def test_errors_fall_and_budgets_grow() -> None:
    easy, hard = (
        sa.plan(TWO | {"effects": {"smallest_gap": gap}, "error": e}, trials=400).budget or 0
        for gap, e in ((0.4, 0.1), (0.2, 0.02))
    )
    assert hard > 4 * easy
    rates = [point.wrong.rate for point in sa.plan(TWO, trials=1000).lines[0].points]
    assert rates[0] > 0.15
    assert rates[-1] < 0.06
    assert all(later < earlier + 0.06 for earlier, later in pairwise(rates))


def test_too_little_traffic_is_said() -> None:
    short = THREE | {"most_days": 14, "effects": {"smallest_gap": 0.1}}
    plan = sa.plan(short, trials=200)
    assert plan.choice is None
    assert (plan.budget, plan.days) == (None, None)
    need = plan.lines[0].asked
    assert need.budget is None
    assert need.check.budget == plan.question.most_rounds == 1400
    assert need.check.wrong.low > 0.05
    text = str(plan)
    assert "No robust policy gets down to" in text
    assert "> 1,400" in text


def test_the_oracle_stands_beside() -> None:
    plan = sa.plan(TWO | {"rewards": {"rate": 0.3}}, trials=200)
    exact = 4 * 0.21 * ndtri(0.05) ** 2 / 0.2**2
    assert plan.oracle == np.ceil(exact)


def test_progress_reaches_its_end() -> None:
    seen: list[Progress] = []
    sa.plan(THREE, trials=200, jobs=1, progress=seen.append)
    done = [step.done for step in seen]
    assert done == sorted(done)
    assert seen[-1].done == seen[-1].total
    assert any("G-BAI" in step.doing for step in seen)


@pytest.mark.parametrize("settings", [{"trials": 99}, {"trials": 1.5}, {"seed": -1}, {"jobs": 0}])
def test_bad_arguments_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(sa.InvalidInputError, match=next(iter(settings))):
        sa.plan(TWO, **settings)
    with pytest.raises(sa.InvalidInputError, match="expected a Question, a dictionary"):
        sa.plan(3)  # type: ignore[arg-type]  # the point of the test


def test_slow_policies_and_rare_errors_have_their_own_number_of_trials() -> None:
    few, many, most = (sa.ArmSet.one_hot([str(k) for k in range(K)]) for K in (4, 20, 200))
    names = ["steady", "a/b-test", "top-two-thompson"]
    question = sa.Question.from_settings(TWO | {"policies": names})
    trials = {
        (c.label, arms.size, error): c.trials(arms, error)
        for c in question.candidates
        for arms in (few, many, most)
        for error in (0.05, 0.005)
    }
    assert trials["Steady", 4, 0.05] == trials["A/B-test", 20, 0.05] == 2000
    assert trials["Steady", 20, 0.05] == 2000  # designs of arms on their own are closed forms
    assert trials["Steady", 200, 0.05] == 300
    assert trials["Steady", 200, 0.005] == 1000  # of which 5 go wrong
    assert trials["A/B-test", 4, 0.005] == 8000
    assert 300 < trials["Top-Two-Thompson", 20, 0.05] < 2000


def test_errors_too_small_to_measure_are_refused() -> None:
    with pytest.raises(sa.InvalidInputError, match="Use at least 50000 trials or a la"):
        sa.plan(TWO | {"error": 0.0001})
    with pytest.raises(sa.InvalidInputError, match=r"only about 2 wrong.*at least 500 trials"):
        sa.plan(TWO | {"error": 0.01}, trials=200)


def test_many_arms_are_compared_without_thompson_unless_named() -> None:
    sets = [sa.ArmSet.one_hot(list(map(str, range(K)))) for K in (50, 51)]
    labels = [[c.label for c in candidates_of(None, arms, 1.0)] for arms in sets]
    assert labels[0][:-1] == labels[1]
    assert labels[0][-1] == "Top-Two-Thompson"


def line_of(
    label: str, budget: int | None, low: int | None, high: int | None, robust: bool = True
) -> Line:
    days = None if budget is None else 7
    wrong = Share.of(100, 2000)
    need = Need(budget, low, high, days, Point(budget or 9000, wrong))
    return Line(label, robust, need, need, ())


def plan_of(*lines: Line) -> sa.Plan:
    return sa.Plan(
        question=sa.Question.from_settings(THREE | {"clear": False}),
        budgets=(),
        lines=lines,
        oracle=None,
        trials=None,
        seed=0,
    )


@pytest.mark.parametrize(
    ("other", "choice", "alike"),
    [
        ((950, 910, 990), "Steady", ["Other"]),  # within a tenth, though intervals are apart
        ((850, 780, 960), "Steady", ["Other"]),  # intervals overlap
        ((850, 780, 940), "Other", []),  # clearly fewer
        ((850, None, None), "Other", []),  # fewer, and no interval says otherwise
        ((1200, 1100, 1300), "Steady", []),  # clearly more
        ((None, None, None), "Steady", []),
    ],
)
def test_the_first_that_is_not_clearly_beaten_is_taken(
    other: tuple[Any, ...], choice: str, alike: list[str]
) -> None:
    starred = line_of("Fast", 500, 450, 550, robust=False)
    plan = plan_of(line_of("Steady", 1000, 950, 1050), line_of("Other", *other), starred)
    assert plan.choice is not None
    assert plan.choice.label == choice
    assert [line.label for line in plan.alike] == plan.to_dict()["about_the_same"] == alike
    text = str(plan)
    assert ("That is about the same as Other (" in text) == bool(alike)
    assert "Chosen: the first policy in the list that is unbiased under drift" in text
    assert "Fast * needs fewer visits here, but can pick a wrong variant if rewards drift" in text


def test_without_a_robust_policy_one_that_trusts_is_taken_and_said_to() -> None:
    plan = plan_of(line_of("Fast", 500, 450, 550, robust=False))
    assert plan.choice is not None
    assert "Every policy here assumes no drift (*)" in str(plan)


def test_the_text_says_the_same_number_in_the_same_way() -> None:
    point = Point(1000, Share.of(0, 10_000))
    line = Line("Steady", True, Need(1000, None, None, 7, point), None, (point,))
    plan = replace(plan_of(line), budgets=(1000,))
    text = str(plan)
    assert "0 % (95 % interval 0 to 0.04 %)" in text
    assert " 0 (0 to 0.04)" in text
    assert "0 (0-0.04)" in text
    assert "unclear" in text  # no interval of zero width
    assert "about 5 % wrong picks or fewer need" in text


def test_the_interval_holds_the_budget_where_errors_follow_no_curve() -> None:
    """Errors that jump where a test gets a week longer, as an elimination by weeks has them."""
    question = sa.Question.from_settings(TWO | {"traffic_per_day": 10_000})
    rng = np.random.default_rng(1)

    def count(budget: int, trials: int, stream: int) -> Point:
        rate = 0.5 if budget < 90_000 else 0.07 if budget < 128_000 else 0.03
        return Point(budget, Share.of(int(rng.binomial(trials, rate)), trials))

    missed = 0
    for _ in range(20):
        need = Search(question, 0.05, count, 2000).run(50_000)
        assert need.budget is not None
        assert need.low is not None
        assert need.high is not None
        assert need.low <= need.budget <= need.high
        missed += not need.low <= 128_000 <= need.high  # where enough begins
        assert tidy(need.high) == need.high
        assert tidy(need.low) == need.low
    assert missed <= 3  # of 20 at 95 %: p = 0.02


def test_a_budget_that_only_luck_found_enough_is_not_stated() -> None:
    question = sa.Question.from_settings(TWO | {"traffic_per_day": 10_000})

    def count(budget: int, trials: int, stream: int) -> Point:
        wrong = budget < (1000 if stream == SEARCHING else 3000)
        return Point(budget, Share.of(trials // 2 * wrong, trials))

    need = Search(question, 0.05, count, 2000).run(1500)
    assert need.budget is not None
    assert need.budget >= 3000


def test_budgets_have_intervals_and_what_is_printed_is_not_contradicted() -> None:
    plan = sa.plan(THREE, trials=200, seed=2)
    for line in plan.lines:
        for need in (line.calm, line.asked):
            assert need.low is not None
            assert need.high is not None
            assert need.budget is not None
            assert need.low <= need.budget <= need.high
            assert need.low < need.high
            assert need.check.wrong.low <= plan.question.error
