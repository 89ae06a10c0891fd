"""Looks at tests of very many variants: few of them are shown, all of them are spoken of."""

from __future__ import annotations

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.dashboard.views import describe_variants, leaderboard
from steadyarm.inference import Evidence
from steadyarm.live.assigner import LiveAssignment
from steadyarm.live.decisions import SegmentLedger
from steadyarm.live.effects import effects_of
from steadyarm.live.scorecard import Scorecard, order_of, scorecard_of, shares_of
from steadyarm.reports.experiment import experiment_report
from steadyarm.segments import Segment, SegmentStats
from steadyarm.wording import factors_in

FACTORS = {f"s{i}": ["off", "on"] for i in range(13)}
LARGE = sa.ArmSet.factorial(FACTORS)
VISITS = 2400


@pytest.fixture(scope="module")
def test() -> sa.Experiment:
    """A test that has ended; the first slot matters most."""
    experiment = sa.create_experiment(
        "big", LARGE, sa.Steady(), VISITS, "memory", seed=4, missing="drop"
    )
    rng, done = np.random.default_rng(1), 0
    while done < VISITS:
        asked = experiment.ask_many([f"unit {done + i}" for i in range(400)])
        got = [one for one in asked if isinstance(one, LiveAssignment)]
        chance = [0.3 + 0.4 * one.name.startswith("s0=on") for one in got]
        rewards = (rng.random(len(got)) < chance).astype(float).tolist()
        experiment.tell_many([(one.id, reward) for one, reward in zip(got, rewards, strict=True)])
        done += len(got)
    return experiment


@pytest.fixture(scope="module")
def card(test: sa.Experiment) -> Scorecard:
    return scorecard_of(test)


def test_a_verdict_tells_of_those_on_its_short_list(test: sa.Experiment) -> None:
    verdict = test.recommend()
    assert verdict.shown is not None
    shown = verdict.shown.tolist()
    assert list(verdict.names) == [LARGE.names[k] for k in shown]
    best = verdict.of(verdict.arm)
    assert best == verdict.of(verdict.name)
    assert (best.arm, best.name, best.gap, best.plausible) == (verdict.arm, verdict.name, 0.0, True)
    assert (best.low, best.high) == tuple(verdict.intervals[verdict.row])
    out = next(k for k in range(LARGE.size) if k not in shown)
    for wrong in (out, LARGE.names[out], "cat"):
        with pytest.raises(sa.InvalidInputError, match="on the short list of 8,192 variants"):
            verdict.of(wrong)


def test_the_course_ends_with_the_verdict(card: Scorecard) -> None:
    course, verdict = card.course, card.verdict
    assert course is not None
    assert verdict is not None
    assert course.variants == LARGE.size
    assert course.names[int(course.leaders[-1])] == verdict.name
    k = list(course.names).index(verdict.name)
    np.testing.assert_allclose(
        [course.low[-1, k], course.high[-1, k]], verdict.intervals[verdict.row]
    )
    assert course.possible[-1] == verdict.possible
    assert (course.possible[:-1] >= 1).all()


def test_effects_of_a_large_set_are_those_of_its_table() -> None:
    """Against averages over all arms, which the small way takes."""
    factors = {"a": ["x", "y", "z"], **{f"s{i}": ["off", "on"] for i in range(11)}}
    arms = sa.ArmSet.factorial(factors)
    assert arms.large
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(1, 4, arms.rank)) * 100
    root = rng.normal(size=(arms.rank, arms.rank))
    squares = np.tile(root @ root.T * 1000, (1, 4, 1, 1))
    evidence = Evidence(arms, np.full((1, 4), 1000), scores, squares)
    levels = factors_in(arms)
    assert levels is not None
    assert list(levels) == list(factors)
    assert levels["a"] == ("x", "y", "z")
    found = effects_of(evidence)
    X = arms.coordinates.reshape(3, *[2] * 11, -1)
    theta = evidence.theta[0]
    for effect in found.main:
        f, i = list(levels).index(effect.factor), levels[effect.factor].index(effect.level)
        truth = np.moveaxis(X, f, 0)[i].reshape(-1, arms.rank).mean(axis=0) @ theta
        assert effect.mean == pytest.approx(truth)
        assert effect.low < effect.difference < effect.high
    assert len(found.pairs) == 12 * 11 / 2
    pair = next(p for p in found.pairs if {p.first, p.second} == {"a", "s3"})
    cells = np.moveaxis(X, 4, 1).reshape(3, 2, -1, arms.rank).mean(axis=2) @ theta
    np.testing.assert_allclose(pair.means, cells)


def test_pages_and_reports_of_large_sets_are_short(test: sa.Experiment, card: Scorecard) -> None:
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
    shares = shares_of(LARGE.names, pieces)
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
