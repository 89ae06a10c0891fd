"""Cached designs equal direct ones, whatever was asked before, from any thread."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs import (
    Design,
    designs_for,
    forget_designs,
    frank_wolfe_g,
    frank_wolfe_xy,
    g_optimal,
    optimal,
    xy_optimal,
)
from steadyarm.designs.optimal import Kind, Solver, solve_subsets

COMBINATIONS: list[tuple[Kind, Solver]] = [
    ("xy", "exact"),
    ("xy", "frank-wolfe"),
    ("g", "exact"),
    ("g", "frank-wolfe"),
]


def problem(K: int, n: int, seed: int = 0) -> tuple[ArmSet, NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    masks = rng.random((n, K)) < 0.4
    masks[np.arange(n), rng.integers(0, K, size=n)] = True
    return ArmSet.from_features(rng.normal(size=(K, 4))), masks


@pytest.mark.parametrize(("kind", "solver"), COMBINATIONS)
@pytest.mark.parametrize("K", [8, 12, 20, 70])
def test_equals_direct_solves(K: int, kind: Kind, solver: Solver) -> None:
    forget_designs()
    arms, masks = problem(K, 12)
    masks = masks[[*range(12), 3, 3, 0]]
    found = designs_for(arms, masks, kind, solver)
    assert found.index.shape == (15,)
    assert found.index[3] == found.index[12] == found.index[13]
    assert len(found.values) == len(found.weights) == len(np.unique(masks, axis=0))
    solvers: dict[tuple[str, str], Callable[..., Design]] = {
        ("xy", "exact"): xy_optimal,
        ("g", "exact"): g_optimal,
        ("xy", "frank-wolfe"): frank_wolfe_xy,
        ("g", "frank-wolfe"): frank_wolfe_g,
    }
    direct = solvers[kind, solver]
    for row, mask in enumerate(masks):
        design = direct(arms, among=np.flatnonzero(mask))
        value = design.value if design.previous_value is None else design.previous_value
        np.testing.assert_allclose(found.weights[found.index[row]], design.weights, atol=1e-9)
        assert found.values[found.index[row]] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(("kind", "solver"), COMBINATIONS)
def test_does_not_depend_on_what_came_before(kind: Kind, solver: Solver) -> None:
    arms, masks = problem(11, 40)
    forget_designs()
    together = designs_for(arms, masks, kind, solver)
    remembered = designs_for(arms, masks[::-1].copy(), kind, solver)
    forget_designs()
    for row in np.random.default_rng(1).permutation(40):
        alone = designs_for(arms, masks[row : row + 1], kind, solver)
        np.testing.assert_array_equal(alone.weights[0], together.weights[together.index[row]])
        assert alone.values[0] == together.values[together.index[row]]
        again = remembered.weights[remembered.index[39 - row]]
        np.testing.assert_array_equal(alone.weights[0], again)


def test_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_designs()
    monkeypatch.setattr(optimal, "MOST_FLOATS", 400)
    for seed in range(6):
        arms, masks = problem(9, 25, seed)
        forget = designs_for(arms, masks)
        again = designs_for(arms, masks)
        np.testing.assert_array_equal(forget.weights, again.weights)
        assert optimal._cache.floats <= 400
    arms, masks = problem(9, 200)  # too many for the memory: solved and not kept
    assert len(designs_for(arms, masks).values) * 9 > 400
    assert optimal._cache.floats <= 400
    forget_designs()


def test_designs_of_large_sets_are_cached_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = ArmSet.factorial({f"slot {i}": ["off", "on"] for i in range(13)})
    everything = np.ones((1, arms.size), dtype=bool)
    solved: list[str] = []

    def solve(arms: ArmSet, kind: Kind, *given: Any) -> Iterator[Design]:
        solved.append(kind)
        return solve_subsets(arms, kind, *given)

    monkeypatch.setattr(optimal, "solve_subsets", solve)
    forget_designs()
    first, again = (designs_for(arms, everything, "g") for _ in range(2))
    assert len(solved) == 1
    assert first.arms is not None
    np.testing.assert_array_equal(first.arms, again.arms)
    forget_designs()
    designs_for(arms, everything, "g")
    assert len(solved) == 2


def test_threads_agree() -> None:
    arms, masks = problem(12, 300)
    forget_designs()
    expected = designs_for(arms, masks)
    forget_designs()

    def ask(seed: int) -> bool:
        rows = np.random.default_rng(seed).permutation(300)[:100]
        found = designs_for(arms, masks[rows])
        truth = expected.weights[expected.index[rows]]
        return bool((found.weights[found.index] == truth).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(40)))


@pytest.mark.parametrize("kind", ["xy", "g"])
def test_many_arms_that_share_nothing_are_not_solved(kind: Kind) -> None:
    arms = ArmSet.one_hot([f"{k}" for k in range(600)])
    masks = np.ones((3, 600), dtype=bool)
    masks[1, 7:] = False
    masks[2, 1:] = False
    found = designs_for(arms, masks, kind)
    order = found.index
    assert np.array_equal(found.weights[order[0]], np.full(600, 1 / 600))
    assert np.array_equal(found.weights[order[1], :7], np.full(7, 1 / 7))
    times = {"xy": 2.0, "g": 1.0}[kind]
    last = {"xy": 0.0, "g": 1.0}[kind]
    assert found.values[order].tolist() == [600 * times, 7 * times, last]
