"""Who comes first, and estimates and shares day by day, against what the log says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.dashboard.views import describe_variants, leaderboard
from steadyarm.live.decisions import SegmentLedger
from steadyarm.live.scorecard import (
    Scorecard,
    compute_course,
    compute_scorecard,
    compute_shares,
    date_of,
    order_of,
    standing_of,
)
from steadyarm.reports.experiment import experiment_report
from steadyarm.segments import Segment, SegmentStats
from tests.live.scorecards import BEGIN, DAY, NAMES, played
from tests.live.test_large import LARGE
from tests.live.worlds import Clock, create


@pytest.mark.parametrize(
    ("plausible", "while_it_runs", "at_the_end"),
    [
        ("B", "out leads out out", "out best out out"),
        ("AB", "open leads out out", "maybe ahead out out"),
        ("ABCD", "open leads open open", "maybe ahead maybe maybe"),
    ],
)
def test_standings(plausible: str, while_it_runs: str, at_the_end: str) -> None:
    arms = sa.ArmSet.one_hot(list("ABCD"))
    card = compute_scorecard(played(arms=arms, budget=1200, visits=600))
    assert card.verdict is not None
    estimates = np.array([0.2, 0.3, 0.1, 0.05])
    leader: dict[str, Any] = {"arm": 1, "name": "B", "estimates": estimates}
    card = replace(card, verdict=replace(card.verdict, plausible=tuple(plausible), **leader))
    ended = replace(card, status=replace(card.status, state="stopped"), rewards_until=None)
    awaited = replace(ended, rewards_until=datetime(2030, 1, 1, tzinfo=UTC))  # not all rewards

    def standings(card: Scorecard) -> list[str]:
        return [standing_of(card, k) for k in range(4)]

    assert standings(card) == while_it_runs.split()
    assert standings(ended) == at_the_end.split()
    assert standings(awaited) == while_it_runs.replace("open", "maybe").split()


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
    rules: dict[str, Any] = {"reward_window": "1h", "missing": "zero", "seed": 1}
    test = create(arms=["A", "B"], policy=sa.Uniform(), budget=2000, clock=clock, **rules)
    answers = [test.ask(f"{i}") for i in range(1000)]
    for name in "AB":
        test.tell_many((one, 1.0) for one in answers if one.name == name)
        clock.pass_(2 * 3600)
    card = compute_scorecard(test)
    assert card.light == "fail"
    assert card.health is not None
    (late,) = (one for one in card.health.findings if one.name == "late rewards")
    count = sum(one.name == "B" for one in answers)
    assert f"{count} of 1,000 rewards arrived too late" in late.explanation
    assert "more of B than of others" in late.explanation
    assert f"do not decide yet. {count} of 1,000 rewards" in card.headline
    assert late in test.health().findings


def test_a_visit_between_two_reads_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    test = played(budget=1000, visits=400, days=3, missing="fail")
    days = test.storage.days

    def later(key: int) -> Any:
        test.ask("one more")
        return days(key)

    monkeypatch.setattr(test.storage, "days", later)
    assert compute_scorecard(test).verdict is not None


# Very many variants: few of them are shown, all of them are spoken of


def test_pages_and_reports_of_large_sets_are_short() -> None:
    """The first slot matters most."""
    test = create(arms=LARGE, budget=1200, seed=4)
    rng = np.random.default_rng(1)
    for first in range(0, 1200, 400):
        answers: Any = test.ask_many([f"unit {first + i}" for i in range(400)])
        chances = [0.3 + 0.4 * one.name.startswith("s0=on") for one in answers]
        rewards = (rng.random(400) < chances).astype(float).tolist()
        test.tell_many(zip(answers, rewards, strict=True))
    card = compute_scorecard(test)
    rows = leaderboard(card)
    assert len(rows) == 30
    assert rows[0].name == card.names[order_of(card)[0]]
    assert len(leaderboard(card, None)) == len(card.names)
    assert describe_variants(card).startswith("8,192 combinations")
    page = experiment_report(test, card, replay=False, fingerprint=False)
    assert card.headline in page
    assert "8,192" in page
    assert len(page) < 1_000_000  # with pictures


def test_shares_sum_up_what_is_handed_out_less() -> None:
    rng, pieces = np.random.default_rng(0), []
    for j in range(3):
        arms = np.sort(rng.choice(LARGE.size, 60, replace=False))
        segment = Segment(np.full((1, 60), 1 / 60), np.array([600]), arms=arms)
        given = rng.multinomial(600, segment.weights[0])
        zero = np.zeros((1, 60))
        stats = SegmentStats(given[None], zero, zero)
        pieces.append(SegmentLedger(j, segment, stats, used=600, assigned=given))
    shares = compute_shares(LARGE.names, pieces)
    played = np.unique([piece.segment.arms for piece in pieces])
    assert shares.variants == len(played)
    assert shares.names[-1] == f"{shares.rest} other variants"
    assert shares.turns.tolist() == [False, True, True]
    for k, name in enumerate(shares.names[:-1]):
        arm = LARGE.index(name)
        for j, piece in enumerate(pieces):
            here = piece.segment.arms == arm
            assert shares.given[j, k] == piece.assigned[here].sum()
    assert (shares.given.sum(axis=1) == 600).all()
