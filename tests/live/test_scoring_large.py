"""Looks at tests of very many variants: few of them are shown, all of them are spoken of."""

from __future__ import annotations

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.dashboard.views import describe_variants, leaderboard
from steadyarm.live.assigner import LiveAssignment
from steadyarm.live.decisions import SegmentLedger
from steadyarm.live.scorecard import Scorecard, compute_scorecard, compute_shares, order_of
from steadyarm.reports.experiment import experiment_report
from steadyarm.segments import Segment, SegmentStats

FACTORS = {f"s{i}": ["off", "on"] for i in range(13)}
LARGE = sa.ArmSet.factorial(FACTORS)
VISITS = 1200


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
    return compute_scorecard(test)


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
