"""What factors, their interactions and the items of bundles bring, against closed forms."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy

import steadyarm as sa
from steadyarm.inference import Evidence
from steadyarm.live.effects import Effects, compute_effects
from steadyarm.segments import Segment, SegmentStats
from steadyarm.wording import factors_of
from tests.live.scorecards import RATES
from tests.live.worlds import ARMS

FACTORS = {"headline": ("short", "long"), "image": ("cat", "dog", "none")}
ITEMS = ("news", "sport", "salt + pepper", "games", "food")
SPREAD = 0.25


def evidence_of(arms: sa.ArmSet, means: np.ndarray, each: int = 400) -> Evidence:
    """Every variant as often, with these mean rewards and the variance `SPREAD` of rewards."""
    K = arms.size
    segment = Segment(np.full((1, K), 1 / K), np.array([K * each]))
    counts = np.full((1, K), each)
    stats = SegmentStats(counts, each * means[None], each * (SPREAD + means[None] ** 2))
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
    found = compute_effects(evidence_of(ARMS, RATES))
    table = RATES.reshape(2, 3)
    means = {(e.factor, e.level): e.mean for e in found.main}
    for axis, (factor, levels) in enumerate(FACTORS.items()):
        expected = table.mean(axis=1 - axis)
        assert [means[factor, level] for level in levels] == pytest.approx(expected)
    for effect in found.main:
        assert effect.difference == pytest.approx(effect.mean - table.mean())
    (pair,) = found.pairs
    np.testing.assert_allclose(pair.means, table, rtol=1e-9)
    apart = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    assert pair.strength == pytest.approx(np.abs(apart).max())


def test_intervals_are_those_of_a_mean_of_independent_rounds() -> None:
    """One factor of two levels in a 2 by 3 test: the difference is half of that of two means."""
    found = compute_effects(evidence_of(ARMS, np.zeros(6)))
    long = next(e for e in found.main if e.level == "long")
    n = 6 * 400
    error = np.sqrt(SPREAD / (n - 1))  # a round's score for this effect is ±reward
    z = scipy.stats.t.isf(0.05 / 2 / 5, n - 1)  # five levels in all
    assert long.high - long.difference == pytest.approx(z * error, rel=1e-6)


def test_p_values_of_interactions_are_uniform_if_there_are_none() -> None:
    """400 tests of rewards that only add up; the share below 0.2 lies within 4 standard errors."""
    rng, each = np.random.default_rng(7), 200
    rates = np.add.outer([0.3, 0.4], [0.0, 0.1, 0.2]).ravel()
    segment = Segment(np.full((1, 6), 1 / 6), np.array([6 * each]), order="shuffled")
    found: list[Any] = []
    for _ in range(400):
        hits = rng.binomial(each, rates)[None].astype(float)
        stats = SegmentStats(np.full((1, 6), each), hits, hits)
        evidence = Evidence.from_segments(ARMS, [(segment, stats)])
        found.append(compute_effects(evidence).pairs[0].p_value)
    below = np.mean(np.array(found) < 0.2)
    assert abs(below - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 400)


# Items of bundles


def check_company(found: Effects, items: tuple[str, ...], size: int, values: np.ndarray) -> None:
    """An item is worth the mean of the bundles with it, against those without it."""
    inside = np.array([[item in b for item in items] for b in combinations(items, size)])
    for effect in found.main:
        here = inside[:, items.index(effect.level)]
        assert effect.mean == pytest.approx(values[here].mean())
        assert effect.difference == pytest.approx(values[here].mean() - values[~here].mean())
        assert effect.low < effect.difference < effect.high
    assert sum(effect.difference for effect in found.main) == pytest.approx(0)


def test_without_pairs_an_item_is_compared_with_the_mean_of_the_others() -> None:
    worth = np.array([0.1, 0.3, -0.2, 0.0, 0.05])
    arms = sa.ArmSet.bundles(ITEMS, size=2, interactions=1)
    means = 1 + np.array([worth[list(pair)].sum() for pair in combinations(range(5), 2)])
    found = compute_effects(evidence_of(arms, means), arm=arms.size - 1)
    differences = {effect.level: effect.difference for effect in found.main}
    for i, item in enumerate(ITEMS):
        assert differences[item] == pytest.approx(worth[i] - np.delete(worth, i).mean())
    assert [effect.level for effect in found.main] == [ITEMS[i] for i in np.argsort(-worth)]
    assert (found.kind, found.pairs, found.factors) == ("items", (), {"item": ITEMS})
    assert found.chosen == ("games", "food")
    assert {effect.factor for effect in found.main} == {"item"}


@pytest.mark.parametrize("size", [2, 3, 4])
def test_with_pairs_company_is_averaged_over(size: int) -> None:
    arms = sa.ArmSet.bundles(ITEMS, size)
    means = np.random.default_rng(1).random(arms.size)
    values = arms.coordinates @ np.linalg.lstsq(arms.coordinates, means, rcond=None)[0]
    found = compute_effects(evidence_of(arms, values))
    check_company(found, ITEMS, size, values)
    assert found.chosen == ()


def test_effects_of_a_large_set_are_those_of_its_table() -> None:
    items = tuple(f"i{k}" for k in range(16))
    arms = sa.ArmSet.bundles(items, size=6)
    assert arms.large
    rng = np.random.default_rng(0)
    root = rng.normal(size=(arms.rank, arms.rank))
    squares = np.tile(root @ root.T * 1000, (1, 4, 1, 1))
    scores = rng.normal(size=(1, 4, arms.rank)) * 100
    evidence = Evidence(arms, np.full((1, 4), 1000), scores, squares)
    found = compute_effects(evidence, arm=17)
    check_company(found, items, 6, arms.values(evidence.theta[0]))
    assert " + ".join(found.chosen) == arms.names[17]
