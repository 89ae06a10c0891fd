"""Planned worlds draw sums with the law of an environment that is played round by round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import ks_2samp

import steadyarm as sa
from steadyarm.planning.question import PlannedWorld, Rhythm
from steadyarm.segments import Segment

ARMS = sa.ArmSet.one_hot(["A", "B", "C"])
EFFECTS, LEVEL, TRIALS = np.array([0.1, 0.0, -0.05]), 0.3, 3000
WEEK = Rhythm("weekend", strength=2.0)


def pair(noise: Any, budget: int) -> tuple[Any, Any]:
    pieces = WEEK.pieces(budget, 7)
    world = PlannedWorld(ARMS, budget, EFFECTS, LEVEL, pieces, noise)
    rows = LEVEL + np.outer(pieces.swing, EFFECTS)
    table = np.repeat(rows, np.diff(pieces.ends, prepend=0), axis=0)
    return world, sa.Environment.from_means(ARMS, table, noise)


@pytest.mark.parametrize("order", ["iid", "blocks", "shuffled"])
@pytest.mark.parametrize("noise", [sa.GaussianNoise(0.5), sa.BernoulliReward()], ids=str)
def test_sums_have_the_law_of_rounds(order: Any, noise: Any) -> None:
    worlds = pair(noise, 140)
    weights = np.tile([0.5, 0.3, 0.2], (TRIALS, 1))
    segment = Segment(weights, np.full(TRIALS, 100), order, block=10)
    start = np.full(TRIALS, 20)
    stats = [w.play(segment, start, np.random.default_rng(i), True) for i, w in enumerate(worlds)]
    for k in range(3):
        for name in ("counts", "sums", "squares"):
            one, other = (getattr(found, name)[:, k] for found in stats)
            assert ks_2samp(one, other).pvalue > 1e-4, (name, k)
    assert (stats[0].counts.sum(axis=1) == 100).all()


def test_blocks_are_balanced_and_unbiased() -> None:
    world, _ = pair(sa.GaussianNoise(0.5), 700)
    weights = np.tile([0.55, 0.25, 0.2], (TRIALS, 1))
    segment = Segment(weights, np.full(TRIALS, 700), "blocks", block=10)
    counts = world.play(segment, np.zeros(TRIALS, dtype=int), np.random.default_rng(1)).counts
    np.testing.assert_allclose(counts.mean(axis=0), 700 * weights[0], atol=0.5)
    assert counts.std(axis=0).max() < 0.4 * np.sqrt(700 * 0.25)


def test_a_covariate_takes_its_share_of_the_noise() -> None:
    pieces = Rhythm().pieces(100, 1)
    for noise, sd in ((sa.GaussianNoise(0.5), 0.5), (sa.BernoulliReward(), np.sqrt(0.21))):
        world = PlannedWorld(ARMS, 100, np.zeros(3), LEVEL, pieces, noise, correlation=0.6)
        segment = Segment(np.tile([1.0, 0.0, 0.0], (TRIALS, 1)), np.full(TRIALS, 100))
        found = world.play(segment, np.zeros(TRIALS, dtype=int), np.random.default_rng(2), True)
        assert found.squares is not None
        assert found.sums[:, 0].std() == pytest.approx(0.8 * sd * 10, rel=0.06)
        spread = (found.squares[:, 0] - found.sums[:, 0] ** 2 / 100) / 99
        assert spread.mean() == pytest.approx((0.8 * sd) ** 2, rel=0.03)


def test_rhythms_average_to_what_the_question_says() -> None:
    for kind in ("weekend", "trend"):
        rhythm = Rhythm(kind, strength=2.5)
        days = rhythm.days(5000, 400)
        pieces = rhythm.pieces(5000, days)
        lengths = np.diff(pieces.ends, prepend=0)
        assert lengths.sum() == 5000
        assert lengths @ pieces.swing / 5000 == pytest.approx(1.0)
        assert np.ptp(pieces.swing) == pytest.approx(2.5, rel=0.03)
    assert [Rhythm("weekend").days(n, 100) for n in (1, 700, 701)] == [7, 7, 14]
    with pytest.raises(sa.InvalidInputError, match=r"rhythm\.kind is 'tides'"):
        Rhythm("tides")
