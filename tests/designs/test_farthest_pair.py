"""The farthest pair against brute force, and honest bounds when work runs out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from steadyarm.arms.rows import DenseRows
from steadyarm.designs import pooled_xy as module
from steadyarm.designs.pooled_xy import farthest_pair

Floats = NDArray[np.float64]
KINDS = ("gaussian", "clustered", "sphere", "grid", "line", "off-centre", "same")


@pytest.fixture(autouse=True)
def no_more_work_than_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few points are cheap, for which the search takes more effort than it is given."""
    monkeypatch.setattr(module, "LEAST_WORK", 0.0)


def points_of(kind: str, K: int, r: int, rng: np.random.Generator) -> Floats:
    X = rng.normal(size=(K, r))
    if kind == "clustered":
        X = 5 * rng.normal(size=(3, r))[rng.integers(0, 3, size=K)] + 0.01 * X
    if kind == "sphere":
        X /= np.linalg.norm(X, axis=1)[:, None]
    if kind == "grid":
        return np.sign(X)
    if kind == "line":
        return np.outer(X[:, 0], np.ones(r)) + 1e6
    if kind == "off-centre":
        X[: K // 2] *= 0.01
        X[K // 2 :] += 3
        return X
    if kind == "same":
        return np.ones((K, r))
    return X


def all_distances(Y: Floats) -> Floats:
    """Squared distances by differences, without the products the search uses."""
    D: Floats = np.square(Y[:, None, :] - Y[None, :, :]).sum(axis=2)
    return D


@pytest.mark.parametrize("block", [7, module.BLOCK])
@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.integers(1, 300),
    st.integers(1, 14),
    st.integers(0, 10_000),
)
def test_finds_the_pair_that_brute_force_finds(
    block: int, kind: str, K: int, r: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = points_of(kind, K, r, rng)
    to = rng.normal(size=(r, r)) if seed % 2 else np.eye(r)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        far = farthest_pair(DenseRows(X), to, known=(0, 1) if K > 1 and seed % 3 else None)
    D = all_distances(X @ to)
    # products of points of size m leave errors of m² units in a squared distance
    error = 1e-12 * D.max() + 1e-14 * np.square(X @ to).sum(axis=1).max()
    assert far.exact
    assert far.value == pytest.approx(D.max(), abs=error)
    assert D[far.first, far.second] == pytest.approx(far.value, abs=error)
    assert far.upper_bound == far.value


@pytest.mark.parametrize("r", [4, 30])
def test_without_effort_the_bound_is_honest(r: int) -> None:
    X = points_of("sphere", 3000, r, np.random.default_rng(r))
    truth = max(all_distances(X[k : k + 100]).max() for k in range(0, 3000, 100))
    far = farthest_pair(DenseRows(X), np.eye(r), effort=0.0, known=(0, 1))
    complete = farthest_pair(DenseRows(X), np.eye(r))
    assert not far.exact
    assert far.value <= complete.value <= far.upper_bound
    assert truth <= complete.value
    assert complete.exact


def test_pairs_above_a_level_are_collected() -> None:
    X = np.random.default_rng(3).normal(size=(500, 12))
    D = all_distances(X)
    level = float(np.sort(D[np.triu_indices(500, 1)])[-20:-18].mean())
    far = farthest_pair(DenseRows(X), np.eye(12), goal=level, enough=1000, known=(0, 1))
    values = D[far.others[:, 0], far.others[:, 1]]
    assert len(far.others) > 1
    assert (values > level).all()
    assert (np.diff(values) <= 0).all()
    assert tuple(far.others[0]) == (far.first, far.second)
    few = farthest_pair(DenseRows(X), np.eye(12), goal=1e-9, known=(0, 1), enough=1)
    assert len(few.others) >= 1
