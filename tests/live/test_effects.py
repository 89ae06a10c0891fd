"""Main effects and interactions against closed forms."""

import numpy as np
import pytest
import scipy

import steadyarm as sa
from steadyarm.inference import Evidence
from steadyarm.live.effects import compute_effects
from steadyarm.segments import Segment, SegmentStats
from steadyarm.wording import factors_of
from tests.live.scorecards import RATES

FACTORS = {"headline": ("short", "long"), "image": ("cat", "dog", "none")}


def _evidence(arms: sa.ArmSet, means: np.ndarray, each: int, spread: float = 0.25) -> Evidence:
    """Every variant as often, with these mean rewards and a variance of rewards."""
    K = arms.size
    segment = Segment(np.full((1, K), 1 / K), np.array([K * each]))
    counts = np.full((1, K), each)
    stats = SegmentStats(counts, each * means[None], each * (spread + means[None] ** 2))
    return Evidence.from_segments(arms, [(segment, stats)])


@pytest.mark.parametrize(
    "names",
    [
        ["A", "B", "C", "D"],
        ["a=1, b=1", "a=1, b=2", "a=2, b=1", "b=2, a=2"],  # not in order
        ["a=1, b=1", "a=1, b=2", "a=2, b=1"],  # one is missing
        ["a=1", "a=2"],  # a single factor is a plain test
        ["a=1, b=1", "a=1, b=2"],  # a factor has two levels
        [],
    ],
)
def test_other_names_are_no_factors(names: list[str]) -> None:
    assert factors_of(names) is None


def test_means_are_averages_over_the_other_factors() -> None:
    arms = sa.ArmSet.factorial(FACTORS)
    found = compute_effects(_evidence(arms, RATES, each=500))
    table = RATES.reshape(2, 3)
    means = {(e.factor, e.level): e.mean for e in found.main}
    for i, level in enumerate(FACTORS["headline"]):
        assert means["headline", level] == pytest.approx(table[i].mean())
    for j, level in enumerate(FACTORS["image"]):
        assert means["image", level] == pytest.approx(table[:, j].mean())
    for effect in found.main:
        assert effect.difference == pytest.approx(effect.mean - table.mean())
    (pair,) = found.pairs
    np.testing.assert_allclose(pair.means, table, rtol=1e-9)
    apart = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    assert pair.strength == pytest.approx(np.abs(apart).max())


def test_intervals_are_those_of_a_mean_of_independent_rounds() -> None:
    """One factor of two levels in a 2 by 3 test: the difference is half of that of two means."""
    arms, each, spread = sa.ArmSet.factorial(FACTORS), 400, 0.25
    means = np.zeros(6)
    found = compute_effects(_evidence(arms, means, each, spread))
    long = next(e for e in found.main if e.level == "long")
    n = 6 * each
    # A round's score for this effect is ±reward, with variance `spread`.
    error = np.sqrt(spread / (n - 1))
    z = scipy.stats.t.isf(0.05 / 2 / 5, n - 1)  # five levels in all
    assert long.high - long.difference == pytest.approx(z * error, rel=1e-6)


def test_p_values_of_interactions_are_uniform_if_there_are_none() -> None:
    """400 tests of rewards that only add up; the share below 0.2 lies within 4 standard errors."""
    arms, rng = sa.ArmSet.factorial(FACTORS), np.random.default_rng(7)
    rates = np.add.outer([0.3, 0.4], [0.0, 0.1, 0.2]).ravel()
    each, found = 200, []
    for _ in range(400):
        hits = rng.binomial(each, rates)[None].astype(float)
        segment = Segment(np.full((1, 6), 1 / 6), np.array([6 * each]), order="shuffled")
        stats = SegmentStats(np.full((1, 6), each), hits, hits)
        evidence = Evidence.from_segments(arms, [(segment, stats)])
        found.append(compute_effects(evidence).pairs[0].p_value)
    below = np.mean(np.array(found) < 0.2)
    assert abs(below - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 400)
