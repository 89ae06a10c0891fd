"""On 200 random arm sets the gap is met, and cvxpy finds the same values."""

import numpy as np
import pytest

from steadyarm.designs import Status, g_optimal, solve_directions, xy_optimal
from tests.designs.armsets import COUNT, random_arm_set, random_features
from tests.designs.reference import achieved_value, all_pairs, optimal_value

AGREEMENT = 1e-5
QUICK_FOR_CVXPY = [
    seed
    for seed in range(COUNT)
    if len(X := random_features(seed)[1]) <= 40 and np.linalg.matrix_rank(X) <= 7
]


@pytest.mark.parametrize("block", range(10))
def test_gap_is_met_and_value_is_true(block: int) -> None:
    for seed in range(block, COUNT, 10):
        kind, arms = random_arm_set(seed)
        X = arms.coordinates
        for design, Y in ((g_optimal(arms), X), (xy_optimal(arms), all_pairs(X))):
            where = f"arm set {seed} ({kind}, {arms.size} arms, rank {arms.rank}): {design}"
            assert design.status is Status.OPTIMAL, where
            assert -1e-9 <= design.gap <= 1e-6, where
            assert design.weights.min() >= 0.0, where
            assert design.weights.sum() == pytest.approx(1.0, abs=1e-12), where
            assert achieved_value(X, Y, design.weights) == pytest.approx(design.value, rel=1e-7)


@pytest.mark.parametrize("seed", QUICK_FOR_CVXPY)
def test_cvxpy_agrees(seed: int) -> None:
    _, arms = random_arm_set(seed)
    X = arms.coordinates
    for design, Y in ((g_optimal(arms), X), (xy_optimal(arms), all_pairs(X))):
        truth = optimal_value(X, Y)
        assert design.value == pytest.approx(truth, rel=AGREEMENT)
        assert design.lower_bound <= truth * (1 + AGREEMENT)


@pytest.mark.parametrize("seed", range(0, COUNT, 5))
def test_subsets(seed: int) -> None:
    _, arms = random_arm_set(seed)
    rng = np.random.default_rng(seed)
    for size in {2, 3, max(2, arms.size // 3)}:
        among = rng.choice(arms.size, size, replace=False)
        design = xy_optimal(arms, among=among)
        assert -1e-9 <= design.gap <= 1e-6
        X = arms.coordinates
        value = achieved_value(X, all_pairs(X[among]), design.weights)
        assert value == pytest.approx(design.value, rel=1e-7)
        of_subset = g_optimal(arms, among=among)
        assert of_subset.gap <= 1e-6
        assert of_subset.lower_bound == np.linalg.matrix_rank(arms.features[among])
        assert set(of_subset.support) <= set(among)


@pytest.mark.parametrize("seed", QUICK_FOR_CVXPY[::4])
def test_cvxpy_agrees_on_subsets_and_directions(seed: int) -> None:
    _, arms = random_arm_set(seed)
    rng = np.random.default_rng(seed)
    X = arms.coordinates
    among = rng.choice(arms.size, 3, replace=False)
    truth = optimal_value(X, all_pairs(X[among]))
    assert xy_optimal(arms, among=among).value == pytest.approx(truth, rel=AGREEMENT)
    directions = rng.normal(size=(4, arms.size)) @ X
    design = solve_directions(arms, directions, 1e-6)
    truth = optimal_value(X, directions)
    assert design.gap <= 1e-6
    assert design.value == pytest.approx(truth, rel=AGREEMENT)
    assert design.lower_bound <= truth * (1 + AGREEMENT)
