"""What each item of bundles brings, against closed forms and all bundles."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.inference import Evidence
from steadyarm.live.effects import Effects, compute_effects
from steadyarm.segments import Direction, Segment, SegmentStats

ITEMS = ("news", "sport", "salt + pepper", "games", "food")


def _evidence(
    arms: sa.ArmSet,
    means: np.ndarray,
    each: int = 400,
    spread: float = 0.25,
    direction: Direction = "maximize",
) -> Evidence:
    """Every bundle as often, with these mean rewards and a variance of rewards."""
    K = arms.size
    segment = Segment(np.full((1, K), 1 / K), np.array([K * each]))
    counts = np.full((1, K), each)
    stats = SegmentStats(counts, each * means[None], each * (spread + means[None] ** 2))
    return Evidence.from_segments(arms, [(segment, stats)], direction)


def _found(effects: Effects) -> dict[str, float]:
    return {effect.level: effect.difference for effect in effects.main}


def test_without_pairs_an_item_is_compared_with_the_mean_of_the_others() -> None:
    worth = np.array([0.1, 0.3, -0.2, 0.0, 0.05])
    arms = sa.ArmSet.bundles(ITEMS, size=2, interactions=1)
    means = 1 + np.array([worth[list(pair)].sum() for pair in combinations(range(5), 2)])
    found = compute_effects(_evidence(arms, means), arm=arms.size - 1)
    differences = _found(found)
    for i, item in enumerate(ITEMS):
        others = np.delete(worth, i)
        assert differences[item] == pytest.approx(worth[i] - others.mean())
    assert [effect.level for effect in found.main] == [ITEMS[i] for i in np.argsort(-worth)]
    assert (found.kind, found.pairs, found.factors) == ("items", (), {"item": ITEMS})
    assert found.chosen == ("games", "food")
    assert {effect.factor for effect in found.main} == {"item"}


@pytest.mark.parametrize("size", [2, 3, 4])
def test_with_pairs_company_is_averaged_over(size: int) -> None:
    arms = sa.ArmSet.bundles(ITEMS, size)
    means = np.random.default_rng(1).random(arms.size)
    values = arms.coordinates @ np.linalg.lstsq(arms.coordinates, means, rcond=None)[0]
    found = compute_effects(_evidence(arms, values))
    inside = np.array([[i in b for i in range(5)] for b in combinations(range(5), size)])
    for effect in found.main:
        here = inside[:, ITEMS.index(effect.level)]
        assert effect.mean == pytest.approx(values[here].mean())
        assert effect.difference == pytest.approx(values[here].mean() - values[~here].mean())
    assert sum(effect.difference for effect in found.main) == pytest.approx(0)
    assert found.chosen == ()


def test_effects_of_a_large_set_are_those_of_its_table() -> None:
    items = [f"i{k}" for k in range(16)]
    arms = sa.ArmSet.bundles(items, size=6)
    assert arms.large
    rng = np.random.default_rng(0)
    root = rng.normal(size=(arms.rank, arms.rank))
    squares = np.tile(root @ root.T * 1000, (1, 4, 1, 1))
    scores = rng.normal(size=(1, 4, arms.rank)) * 100
    evidence = Evidence(arms, np.full((1, 4), 1000), scores, squares)
    found = compute_effects(evidence, arm=17)
    values = arms.values(evidence.theta[0])
    for effect in found.main:
        i = items.index(effect.level)
        here = np.array([i in bundle for bundle in combinations(range(16), 6)])
        assert effect.difference == pytest.approx(values[here].mean() - values[~here].mean())
        assert effect.low < effect.difference < effect.high
    assert " + ".join(found.chosen) == arms.names[17]
