"""Adjacent pairs where they are known, against the linear program, and their design."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from scipy.spatial import ConvexHull

import steadyarm as sa
from steadyarm.designs import adjacency, solve_directions
from steadyarm.designs.adjacency import adjacent_optimal, adjacent_pairs
from steadyarm.environments import layouts, soare_arms
from tests.designs.armsets import random_arm_set


def polygon(K: int) -> NDArray[np.float64]:
    angles = 2 * np.pi * np.arange(K) / K
    return np.column_stack([np.cos(angles), np.sin(angles)])


def found(X: ArrayLike) -> list[list[int]]:
    pairs: list[list[int]] = adjacent_pairs(sa.ArmSet.from_features(X)).tolist()
    return pairs


def all_pairs(K: int) -> list[list[int]]:
    return [list(pair) for pair in combinations(range(K), 2)]


@pytest.mark.parametrize("K", [3, 4, 5, 12, 60])
def test_polygons_join_neighbours_only(K: int) -> None:
    ring = sorted(sorted([k, (k + 1) % K]) for k in range(K))
    assert found(polygon(K)) == ring
    assert found(polygon(K) * [1e-3, 50.0] + [7.0, -2.0]) == ring  # an affine map changes nothing


@pytest.mark.parametrize("D", [2, 3, 5])
def test_hypercube_with_main_effects_joins_distance_one(D: int) -> None:
    arms = sa.ArmSet.factorial({f"f{i}": ["-", "+"] for i in range(D)}, interactions=1)
    expected = [[i, j] for i, j in all_pairs(2**D) if (i ^ j).bit_count() == 1]
    assert adjacent_pairs(arms).tolist() == expected


@pytest.mark.parametrize(
    "arms",
    [
        layouts(),
        layouts(3),
        soare_arms(10, 0.1),
        soare_arms(4, 0.5),
        sa.ArmSet.one_hot(list("ABCDE")),
    ],
)
def test_on_the_papers_sets_all_pairs_are_adjacent(arms: sa.ArmSet) -> None:
    assert adjacent_pairs(arms).tolist() == all_pairs(arms.size)
    assert np.allclose(adjacent_optimal(arms).weights, sa.xy_optimal(arms).weights, atol=1e-5)


def test_arms_inside_the_hull_are_in_no_pair() -> None:
    corners = polygon(5)
    rng = np.random.default_rng(0)
    inside = rng.dirichlet(np.ones(5), size=6) @ corners
    on_an_edge = (corners[0] + corners[1]) / 2
    assert found(np.vstack([corners, inside, on_an_edge])) == found(corners)


def test_two_arms_and_arms_on_a_line() -> None:
    assert found([[1.0, 2.0], [3.0, 1.0]]) == [[0, 1]]
    assert found([[1.0], [1.1], [0.5]]) == [[1, 2]]
    line = np.outer([0.3, 2.0, -1.0, 0.5], [1.0, 2.0, 3.0])
    assert found(line + np.array([1.0, 1.0, 0.0])) == [[1, 2]]


@pytest.mark.parametrize(("K", "d"), [(8, 2), (12, 3), (14, 4), (30, 3)])
def test_random_sets_against_their_facets(K: int, d: int) -> None:
    """In general position every facet is a simplex, and its sides are the edges."""
    X = np.random.default_rng(K).normal(size=(K, d))
    sides = {
        tuple(sorted(pair)) for facet in ConvexHull(X).simplices for pair in combinations(facet, 2)
    }
    assert {tuple(pair) for pair in found(X)} == sides


@pytest.mark.parametrize("seed", [2, 3, 5, 6, 7, 8])
def test_pairs_are_those_of_the_linear_program(seed: int) -> None:
    """The definition, one linear program a pair, on sets of every kind."""
    _, arms = random_arm_set(seed)
    few = sa.ArmSet.from_features(arms.features[:14])
    points = adjacency._affine_coordinates(few.coordinates)
    K = few.size
    lone = [k for k in range(K) if _margin(points, [k]) > adjacency.MARGIN]
    points = points[lone]
    expected = [
        [lone[i], lone[j]]
        for i, j in combinations(range(len(lone)), 2)
        if len(lone) == 2 or _margin(points, [i, j]) > adjacency.MARGIN
    ]
    assert adjacent_pairs(few).tolist() == expected


def _margin(points: NDArray[np.float64], chosen: list[int]) -> float:
    """By how much a functional, |c| ≤ 1 in every entry, can lift these points above the others."""
    level, below = points[chosen], np.delete(points, chosen, axis=0)
    q, equal = points.shape[1], np.column_stack([level[1:] - level[0], np.zeros(len(level) - 1)])
    answer = linprog(
        np.append(np.zeros(q), -1.0),
        A_ub=np.column_stack([below - level[0], np.ones(len(below))]),
        b_ub=np.zeros(len(below)),
        A_eq=equal,
        b_eq=np.zeros(len(equal)),
        bounds=[(-1.0, 1.0)] * q + [(0.0, None)],
        method="highs-ds",
    )
    return 0.0 if answer.x is None else float(answer.x[-1])


def test_the_hypercube_needs_the_same_rounds_in_any_dimension() -> None:
    """‖x - x'‖² = 4 for neighbours at the uniform design, but 4D for opposite corners."""
    for D in (2, 3, 4):
        arms = sa.ArmSet.factorial({f"f{i}": ["-", "+"] for i in range(D)}, interactions=1)
        assert adjacent_optimal(arms).value == pytest.approx(4.0, rel=1e-5)
        assert sa.xy_optimal(arms).value == pytest.approx(4.0 * D, rel=1e-5)


def test_the_design_is_that_of_the_differences() -> None:
    arms = sa.ArmSet.from_features(np.random.default_rng(3).normal(size=(20, 4)))
    pairs = adjacent_pairs(arms)
    X = arms.coordinates
    same = solve_directions(arms, X[pairs[:, 0]] - X[pairs[:, 1]], 1e-6)
    design = adjacent_optimal(arms)
    assert design.value == pytest.approx(same.value, rel=3e-6)
    assert design.value <= sa.xy_optimal(arms).value * (1 + 1e-6)
