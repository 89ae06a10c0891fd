"""Designs whose answer is known on paper, and what must not change them."""

import numpy as np
import pytest

from steadyarm.arms import ArmSet
from steadyarm.designs import (
    Status,
    frank_wolfe_g,
    frank_wolfe_xy,
    g_optimal,
    solve_directions,
    xy_optimal,
)
from tests.designs.reference import achieved_value, all_pairs


def gaussian(K: int, d: int, seed: int = 0) -> ArmSet:
    return ArmSet.from_features(np.random.default_rng(seed).normal(size=(K, d)))


@pytest.mark.parametrize("K", [2, 3, 7, 30])
def test_one_hot(K: int) -> None:
    arms = ArmSet.one_hot([f"v{k}" for k in range(K)])
    g = g_optimal(arms)
    assert g.value == pytest.approx(K, rel=1e-6)
    assert not g.weights.flags.writeable
    np.testing.assert_allclose(g.weights, 1 / K, atol=1e-4)
    xy = xy_optimal(arms)
    assert xy.value == pytest.approx(2 * K, rel=1e-6)  # 1/w_a + 1/w_b at w = 1/K
    np.testing.assert_allclose(xy.weights, 1 / K, atol=1e-3)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_one_hot_subset_ignores_the_rest(size: int) -> None:
    arms = ArmSet.one_hot([f"v{k}" for k in range(8)])
    design = xy_optimal(arms, among=range(size))
    assert design.value == pytest.approx(2 * size, rel=1e-6)
    assert design.support.tolist() == list(range(size))
    alone = g_optimal(arms, among=range(size))
    assert alone.value == pytest.approx(size, rel=1e-6)
    assert alone.support.tolist() == list(range(size))


def test_factorial_is_uniform_and_orthogonal() -> None:
    arms = ArmSet.factorial({c: ["lo", "hi"] for c in "abcd"}, interactions=2)
    g = g_optimal(arms)
    assert g.value == pytest.approx(11, rel=1e-6)
    # at the uniform design A is the identity: the worst pair differs in the most columns
    differences = all_pairs(arms.features)
    uniform = np.full(16, 1 / 16)
    xy = xy_optimal(arms)
    assert xy.value <= np.square(differences).sum(axis=1).max() * (1 + 1e-6)
    assert achieved_value(arms.features, differences, uniform) >= xy.lower_bound * (1 - 1e-9)


def test_orthogonal_arms_of_different_length() -> None:
    # y = e_a: best is all weight there, value 1/length²; over several the sums of squares
    arms = ArmSet.from_features(np.diag([1.0, 2.0, 0.5]))
    design = solve_directions(arms, np.eye(3), 1e-6)
    expected = np.array([1.0, 1 / 4, 4.0])
    assert design.value == pytest.approx(expected.sum(), rel=1e-6)
    np.testing.assert_allclose(design.weights, expected / expected.sum(), atol=1e-4)


def test_one_direction_is_elfvings_norm() -> None:
    arms = ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    assert solve_directions(arms, np.array([[2.0, 0.0]]), 1e-6).value == pytest.approx(
        4.0, rel=1e-6
    )
    assert solve_directions(arms, np.ones((1, 2)), 1e-6).value == pytest.approx(
        (1.25 + 0.25) ** 2, rel=1e-6
    )


def test_two_arms() -> None:
    arms = ArmSet.from_features([[3.0, 0.0], [0.0, 1.0]])
    design = xy_optimal(arms)
    assert design.value == pytest.approx(4.0, rel=1e-6)
    np.testing.assert_allclose(design.weights, 0.5, atol=1e-3)
    on_a_line = ArmSet.from_features([[1.0], [3.0]])
    design = xy_optimal(on_a_line)
    assert design.value == pytest.approx(4 / 9, rel=1e-6)
    assert design.support.tolist() == [1]


def test_nothing_to_compare() -> None:
    arms = gaussian(5, 3)
    for design in (
        xy_optimal(arms, among=[2]),
        solve_directions(arms, np.zeros((2, 3)), 1e-6),
        frank_wolfe_xy(arms, among=[2]),
    ):
        assert design.value == design.gap == design.lower_bound == 0.0
        np.testing.assert_allclose(design.weights, 0.2)
    assert g_optimal(arms, among=[2]).value == pytest.approx(1.0)


@pytest.mark.parametrize(("K", "d"), [(12, 3), (90, 4)])
def test_linear_maps_dependent_features_and_order_change_nothing(K: int, d: int) -> None:
    rng = np.random.default_rng(3)
    X, transform, order = rng.normal(size=(K, d)), rng.normal(size=(d, d)), rng.permutation(K)
    scaled = transform * np.logspace(-3, 3, d)
    for solve in (g_optimal, xy_optimal):
        plain = solve(ArmSet.from_features(X))
        mapped = solve(ArmSet.from_features(X @ scaled))
        shuffled = solve(ArmSet.from_features(X[order]))
        dependent = solve(ArmSet.from_features(X @ rng.normal(size=(d, 2 * d))))
        assert mapped.value == pytest.approx(plain.value, rel=2e-6)
        assert dependent.value == pytest.approx(plain.value, rel=2e-6)
        assert shuffled.value == pytest.approx(plain.value, rel=2e-6)


def test_a_tighter_tolerance_is_met() -> None:
    for solve in (g_optimal, xy_optimal):
        assert solve(gaussian(30, 4), tol=1e-9).gap <= 1e-9


def textbook_frank_wolfe(X: np.ndarray, Y: np.ndarray, steps: int) -> tuple[np.ndarray, float]:
    lam, rho = np.full(len(X), 1 / len(X)), 0.0
    for i in range(1, steps + 1):
        P = np.linalg.inv((X.T * lam) @ X)
        variances = np.einsum("ij,ij->i", Y @ P, Y)
        rho = variances.max()
        arm = np.square(X @ P @ Y[variances.argmax()]).argmax()
        step = 1 / (2 * (i + 2))
        lam *= 1 - step
        lam[arm] += step
    return lam, rho


@pytest.mark.parametrize("steps", [1, 5, 999])
def test_frank_wolfe_is_the_papers(steps: int) -> None:
    arms = gaussian(20, 5)
    X = arms.features
    optimal = {"xy": xy_optimal(arms), "g": g_optimal(arms)}
    found = {
        "xy": (frank_wolfe_xy(arms, steps=steps), all_pairs(X)),
        "g": (frank_wolfe_g(arms, steps=steps), X),
    }
    for name, (design, directions) in found.items():
        weights, rho = textbook_frank_wolfe(X, directions, steps)
        np.testing.assert_allclose(design.weights, weights, atol=1e-12)
        assert design.previous_value == pytest.approx(rho, rel=1e-10)
        assert design.value == pytest.approx(achieved_value(X, directions, weights), rel=1e-10)
        assert design.status is Status.STEPS_DONE
        assert 0 < design.lower_bound <= optimal[name].value * (1 + 1e-9)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_independent_arms_are_compared_with_equal_weights(size: int) -> None:
    """1/w_i + 1/w_j averages to at least 2s over the pairs of s arms; the solver agrees."""
    features = np.random.default_rng(size).normal(size=(7, 7))
    arms = ArmSet.from_features(features)
    design = xy_optimal(arms, among=range(size))
    assert design.value == design.lower_bound == 2 * size
    np.testing.assert_allclose(design.weights[:size], 1 / size)
    # As directions in general, without the closed form.
    X = arms.coordinates
    pairs = np.array([X[i] - X[j] for i in range(size) for j in range(i)])
    solved = solve_directions(arms, pairs, 1e-6)
    assert abs(solved.value - design.value) <= 2e-6 * design.value
