"""Estimates and shares over a test, day by day, against what is computed from the log."""

from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.scorecard import Scorecard, compute_course, compute_scorecard, date_of
from tests.live.scorecards import BEGIN, DAY, NAMES, played
from tests.live.worlds import Clock


@pytest.fixture(scope="module")
def test() -> sa.Experiment:
    return played(budget=4000, visits=2400, days=6)


@pytest.fixture(scope="module")
def card(test: sa.Experiment) -> Scorecard:
    return compute_scorecard(test)


def test_the_last_look_of_a_course_is_the_verdict(test: sa.Experiment, card: Scorecard) -> None:
    assert card.course is not None
    verdict = test.recommend()
    assert card.course.rounds[-1] == verdict.judged == verdict.rewards + verdict.missing
    np.testing.assert_allclose(card.course.estimates[-1], verdict.estimates, rtol=1e-12)
    np.testing.assert_allclose(card.course.low[-1], verdict.intervals[:, 0])
    np.testing.assert_allclose(card.course.high[-1], verdict.intervals[:, 1])
    names = [NAMES[k] for k in np.flatnonzero(card.course.plausible[-1]).tolist()]
    assert tuple(names) == verdict.plausible


def test_a_course_is_what_one_would_have_seen_at_the_time(test: sa.Experiment) -> None:
    results = test.results()
    course = compute_course(results, test.budget)
    evidence = results.evidence
    upto = np.cumsum(evidence.rounds[0]).tolist()
    assert course.rounds[-1] == upto[-1]
    for rounds, estimates in zip(course.rounds, course.estimates, strict=True):
        j = upto.index(rounds)  # at the end of a piece
        theta = evidence.scores[0, : j + 1].sum(axis=0) / rounds
        np.testing.assert_allclose(estimates, test.arms.coordinates @ theta, rtol=1e-9, atol=1e-12)
    assert course.times is None


def test_shares_are_those_that_were_handed_out(test: sa.Experiment, card: Scorecard) -> None:
    shares = card.shares
    assert shares is not None
    assert shares.given.sum(axis=0).tolist() == list(test.status().assigned)
    assert shares.rounds.sum() == sum(test.status().assigned)
    np.testing.assert_allclose(shares.planned.sum(axis=1), 1.0)
    moved = np.abs(np.diff(shares.planned, axis=0)).sum(axis=1) / 2
    assert (shares.turns[1:] == (moved > 0.02)).all()
    assert not shares.turns[0]


def test_estimates_of_a_day_are_unbiased_scores_of_its_rows() -> None:
    """One-hot variants in equal shares: the score estimate is the sum of a day over its share."""
    arms = sa.ArmSet.one_hot(["A", "B"])
    test = played(arms=arms, budget=2000, visits=2000, days=4, policy=sa.GBAI())
    card = compute_scorecard(test)
    assert card.drift is not None
    rows = test.storage.log(test.key, most=10_000)
    for p, day in enumerate(card.drift.periods):
        there = [row for row in rows if date_of(row.created // DAY).isoformat() == day]
        for k in range(2):
            told = sum(row.reward or 0.0 for row in there if row.arm == k)
            assert card.drift.estimates[p, k] == pytest.approx(told / (0.5 * len(there)))


def test_rewards_by_day_and_how_long_they_took(test: sa.Experiment, card: Scorecard) -> None:
    waiting = card.waiting
    assert waiting is not None
    rows = test.storage.log(test.key, most=10_000)
    assert waiting.assigned.sum() == len(rows)
    assert waiting.rewarded.sum() == sum(row.reward is not None for row in rows)
    first = [row for row in rows if date_of(row.created // DAY) == waiting.days[0]]
    took = [row.rewarded - row.created for row in first if row.rewarded is not None]
    assert waiting.hours[0] == pytest.approx(np.mean(took) / 3.6e9, rel=1e-6)


def test_rewards_refused_as_late_are_a_matter_of_health() -> None:
    clock = Clock(BEGIN)
    test = sa.create_experiment(
        "t",
        ["A", "B"],
        sa.Uniform(),
        2000,
        "memory",
        seed=1,
        clock=clock,
        reward_window="1h",
        missing="zero",
    )
    answers = [test.ask(f"{i}") for i in range(1000)]
    test.tell_many((one, 1.0) for one in answers if one.name == "A")
    clock.pass_(2 * 3600)
    test.tell_many((one, 1.0) for one in answers if one.name == "B")
    card = compute_scorecard(test)
    assert card.light == "fail"
    assert card.health is not None
    (late,) = (one for one in card.health.findings if one.name == "late rewards")
    count = sum(one.name == "B" for one in answers)
    assert late.explanation.startswith(f"{count:,} of 1,000 rewards arrived too late")
    assert "more of B than of others" in late.explanation
    assert "not healthy, do not decide yet. 490 of 1,000 rewards" in card.headline
    assert late in test.health().findings


def test_a_visit_between_two_reads_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    test = played(budget=1000, visits=400, days=3, missing="fail")
    days = test.storage.days

    def later(key: int) -> Any:
        test.ask("one more")
        return days(key)

    monkeypatch.setattr(test.storage, "days", later)
    assert compute_scorecard(test).verdict is not None
