"""Simulated tests decide what the verdicts of live tests decide, and learn as late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.inference import Looks, fixed_budget, lifts
from steadyarm.inference.stopping import UNDECIDED
from steadyarm.live.lifecycle import settings_from_description
from steadyarm.live.verdict import _by_policy
from steadyarm.planning.candidates import EqualSplit
from steadyarm.planning.runs import Run, _by_own_errors, decided, evidence_of, run
from steadyarm.planning.search import measure, measure_answers
from steadyarm.planning.worlds import CALM, BatchWorld
from steadyarm.simulation.simulate import run_chunk

BUDGET, TESTS = 2400, 120
QUESTION: dict[str, Any] = {
    "traffic_per_day": 400,
    "arms": {"one_hot": ["A", "B", "C"]},
    "effects": {"smallest_gap": 0.2},
    "rewards": {"sd": 1.0},
    "policies": ["steady", "p1-rage", "a/b-test", "top-two-thompson", "sequential-halving"],
}


def asked(**more: Any) -> sa.Question:
    return sa.Question.from_settings(QUESTION | more)


def played(
    policy: sa.Policy[Any], question: sa.Question, lag: int = 0, seed: int = 1
) -> tuple[BatchWorld, Run]:
    rng = np.random.default_rng(seed)
    world = question.world(BUDGET, CALM, rng, TESTS)
    return world, run(policy, world, TESTS, rng, lag, squares=True)


@pytest.mark.parametrize("label", ["Steady", "P1-RAGE", "A/B-test", "Sequential-Halving"])
def test_without_intervals_it_is_the_simulator(label: str) -> None:
    question = asked()
    policy = next(c.policy for c in question.candidates if c.label == label)
    world = question.world(500, CALM, np.random.default_rng(3), 50)
    rng = np.random.default_rng(np.random.SeedSequence(7, spawn_key=(0,)))
    mine = run(policy, world, 50, rng).found.arm
    np.testing.assert_array_equal(mine, run_chunk(policy, world, 7, 0, 50).recommended)


@pytest.mark.parametrize("control", [None, 0])
@pytest.mark.parametrize("rewards", [{"sd": 1.0}, {"rate": 0.2}], ids=["numbers", "clicks"])
@pytest.mark.parametrize("policy", [sa.Steady(), sa.P1RAGE(), EqualSplit()], ids=lambda p: p.name)
def test_a_batch_decides_as_intervals_and_lifts_say(
    policy: sa.Policy[Any], rewards: dict[str, float], control: int | None
) -> None:
    gap = 0.06 if "rate" in rewards else 0.15
    question = asked(rewards=rewards, effects={"smallest_gap": gap})
    _, done = played(policy, question)
    picked, level = done.found.arm, 0.96 if policy.unbiased else 0.95
    found = decided(policy, question.arms, BUDGET, done, control)
    assert (found.rounds == BUDGET).all()
    ((_, evidence),) = evidence_of(question.arms, done.played)
    intervals = fixed_budget(evidence, level, picked)
    expected = np.where(intervals.winner, picked, UNDECIDED)
    if control is not None:
        compared = lifts(evidence, control, level, intervals=intervals)
        rows = np.arange(TESTS)
        ship = (picked != control) & (compared.low[rows, picked] > 0)
        ship |= (picked != control) & intervals.winner
        keep = (compared.high <= 0).all(axis=1)
        expected = np.where(ship, picked, np.where(keep, control, UNDECIDED))
    np.testing.assert_array_equal(found.decided, expected)
    assert 0.2 < (found.decided >= 0).mean() < 1  # both kinds occur


@pytest.mark.parametrize("control", [None, "A"])
@pytest.mark.parametrize("name", ["top-two-thompson", "sequential-halving"])
def test_policies_with_errors_of_their_own_decide_as_live_tests_do(
    name: str, control: str | None
) -> None:
    question = asked(policies=[name])
    policy = question.candidates[0].policy
    settings = settings_from_description(
        {"arms": ["A", "B", "C"], "budget": BUDGET, "policy": name, "missing": "drop"}
        | ({} if control is None else {"control": control})
    )
    world = question.world(BUDGET, CALM, np.random.default_rng(5), TESTS)
    rng = np.random.default_rng(6)
    done = run(policy, world, TESTS, rng, squares=True)
    found = _by_own_errors(done.found, None if control is None else 0)
    for i in range(0, TESTS, 7):
        one = type(done.found)(
            done.found.arm[i : i + 1],
            done.found.estimates[i : i + 1],
            None if done.found.standard_errors is None else done.found.standard_errors[i : i + 1],
        )
        state = policy.start(question.arms, BUDGET)
        verdict = _by_policy(settings, state, one, 0.95)
        if control is None:
            assert (found[i] != UNDECIDED) == verdict.sure
        elif verdict.sure or (verdict.lift_intervals is not None and verdict.arm != 0):
            assert verdict.lift_intervals is not None
            better = verdict.sure or verdict.lift_intervals[verdict.arm, 0] > 0
            assert (found[i] == verdict.arm) == better


def test_late_rewards_are_learned_late() -> None:
    """A lag as long as the test leaves the first allocation; none lets Steady change it often."""
    allocations = []
    for lag in (0, BUDGET // 4, BUDGET):
        _, done = played(sa.Steady(), asked(), lag)
        assert sum(int(segment.rounds[0]) for segment, _ in done.played) == BUDGET
        weights = [segment.weights for segment, _ in done.played]
        first = next((i for i, w in enumerate(weights) if (w != weights[0]).any()), len(weights))
        until = sum(int(segment.rounds[0]) for segment, _ in done.played[:first])
        allocations.append((len({w.tobytes() for w in weights}), until))
        assert (done.found.arm == done.found.estimates.argmax(axis=1)).mean() > 0.95
    (often, early), (less, later), (once, never) = allocations
    assert often > less > once == 1
    assert later >= BUDGET // 4
    assert early < later < never == BUDGET


def test_a_policy_that_waits_takes_days_and_no_visits() -> None:
    delayed = asked(rewards={"sd": 1.0, "delay": 4}, policies=["sequential-halving"])
    candidate = delayed.candidates[0]
    slow = measure(delayed, candidate, CALM, 600, 400, seed=1)
    quick = measure(asked(policies=["sequential-halving"]), candidate, CALM, 600, 400, seed=1)
    assert slow == quick
    plan = sa.plan(delayed, trials=200)
    need = plan.lines[0].calm.need
    assert need.budget is not None
    visits = -(-need.budget // 400)
    assert need.days == visits + 2 * 4  # two rounds of halving three arms


def test_tests_stop_when_they_are_sure() -> None:
    """A huge lead shows at the first look; visits on their way then are counted, too."""
    many = {"traffic_per_day": 1000, "stop": "when sure", "looks": 4}
    for delay, least in ((0.0, 0.25), (1.0, 0.5)):
        rewards = {"sd": 0.2, "delay": delay}
        question = asked(**many, effects={"smallest_gap": 0.6}, rewards=rewards)
        answers = measure_answers(question, question.candidates[0], CALM, 4000, 100, seed=2)
        assert answers.visits is not None
        assert answers.clear == answers.trials
        assert least * 4000 <= answers.visits <= least * 4000 + 150  # looks are at ends of parts
    fixed = measure_answers(asked(), question.candidates[0], CALM, 4000, 100, seed=2)
    assert fixed.visits is None


def test_futile_tests_end_before_the_budget() -> None:
    """A lead of a hundredth is hopeless where a tenth would hardly show."""
    many = {"stop": "when sure", "looks": 4, "effects": {"smallest_gap": 0.01}}
    visits = []
    for futility in (None, 0.1):
        question = asked(**many, rewards={"sd": 3.0}, futility=futility)
        answers = measure_answers(question, question.candidates[0], CALM, 2000, 100, seed=2)
        assert answers.visits is not None
        visits.append(answers.visits)
    assert visits[1] < 0.7 * visits[0]


def test_looks_follow_the_days() -> None:
    question = asked(stop="when sure", looks="weekly", spending="pocock")
    assert question.planned_looks(400 * 28, CALM) == Looks((0.25, 0.5, 0.75, 1.0), "pocock")
    assert question.planned_looks(400 * 3, CALM).shares == (1.0,)
    assert len(asked(stop="when sure", looks="daily").planned_looks(400 * 90, CALM).shares) == 45
    usual = asked(stop="recommend", rhythm={"kind": "weekend"})
    assert (usual.how_often(), usual.how_often(CALM)) == ("weekly", 8)
    assert usual.planned_looks(400 * 14, usual.rhythm).shares == (0.5, 1.0)
    assert asked(stop="recommend").planned_looks(400 * 14, CALM) == Looks.equally(8)
