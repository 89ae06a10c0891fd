"""Large arm sets are the explicit ones, survive JSON, and take little room."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

import steadyarm as sa
from steadyarm.arms.rows import DenseRows

SLOTS = {f"s{i}": ["off", "on"] for i in range(13)}
MIXED = {f"s{i}": ["a", "b", "c"] for i in range(5)} | {f"t{i}": ["x", "y"] for i in range(5)}
ITEMS = [f"item {j}" for j in range(20)]

MAKERS: dict[str, Callable[[], sa.ArmSet]] = {
    "slots": lambda: sa.ArmSet.factorial(SLOTS),
    "mixed levels": lambda: sa.ArmSet.factorial(MIXED, constant=False),
    "bundles": lambda: sa.ArmSet.bundles(ITEMS, size=4),
}


@pytest.fixture(scope="module", params=list(MAKERS))
def arms(request: pytest.FixtureRequest) -> sa.ArmSet:
    return MAKERS[request.param]()


def truth_of(arms: sa.ArmSet) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Features written from the names alone."""
    X = np.empty((arms.size, arms.dimension))
    parts = [set(name.split(", " if "=" in name else " + ")) for name in arms.names[:]]
    single = {}
    for j, feature in enumerate(arms.feature_names):
        terms = [] if feature == "(constant)" else feature.split(":")
        for term in terms:
            if term not in single:
                first = f"{term.partition('=')[0]}={'a' if term[0] == 's' else 'x'}"
                if arms.names[0].startswith("s0=off"):
                    first = f"{term.partition('=')[0]}=off"
                code = [1.0 if term in has else -1.0 if first in has else 0.0 for has in parts]
                single[term] = np.array(code)
        X[:, j] = np.prod([np.ones(arms.size)] + [single[term] for term in terms], axis=0)
    return X


def test_a_large_set_is_the_explicit_one(arms: sa.ArmSet) -> None:
    assert arms.large
    assert arms.recipe is not None
    X = truth_of(arms)
    assert np.allclose(arms.features, X, atol=1e-12)
    explicit = sa.ArmSet.from_features(X, arms.names[:], arms.feature_names)
    assert explicit.large
    assert explicit.rank == arms.rank
    theta = np.random.default_rng(0).normal(size=arms.dimension)
    for one in (arms, explicit):
        assert np.allclose(one.values(one.basis.T @ theta), X @ theta)
    some = np.array([arms.size - 1, 0, 4321])
    assert np.allclose(arms.features_of(some), X[some], atol=1e-12)
    assert np.array_equal(arms.coordinates_of(some), arms.rows.block(0, arms.size)[some])


def test_basis_and_dual_are_inverse(arms: sa.ArmSet) -> None:
    coordinates = arms.coordinates
    assert np.allclose(coordinates @ arms.basis.T, arms.features, atol=1e-12)
    assert np.allclose(arms.features @ arms.dual, coordinates, atol=1e-12)
    assert np.linalg.matrix_rank(coordinates.T @ coordinates) == arms.rank


def test_a_large_set_survives_json_and_keeps_its_fingerprint(arms: sa.ArmSet) -> None:
    text = json.dumps(arms.to_dict())
    assert len(text) < 500
    again = sa.ArmSet.from_dict(json.loads(text))
    assert again == arms
    assert hash(again) == hash(arms)
    assert again.names == arms.names
    assert again.feature_names == arms.feature_names


def test_a_subset_keeps_names_features_and_coordinates(arms: sa.ArmSet) -> None:
    some = np.array([5, 77, 4000])
    few = arms.subset(some)
    assert few.names == tuple(arms.names[k] for k in some)
    assert few.rank == arms.rank
    assert not few.large
    assert np.allclose(few.features, arms.features_of(some))
    assert np.allclose(few.coordinates, arms.rows.take(some))
    assert np.array_equal(few.basis, arms.basis)
    assert np.array_equal(few.dual, arms.dual)
    theta = np.random.default_rng(2).normal(size=arms.rank)
    assert np.allclose(few.values(theta), arms.values(theta)[some])
    assert np.allclose(few.features @ few.parameters(theta), few.coordinates @ theta)


def test_a_million_arms_take_little_room() -> None:
    tracemalloc.start()
    slots = sa.ArmSet.factorial({f"slot {i}": ["off", "on"] for i in range(20)})
    bundles = sa.ArmSet.bundles([f"item {j}" for j in range(30)], size=6)
    for arms in (slots, bundles):
        assert arms.index(arms.names[arms.size - 1]) == arms.size - 1
        assert arms.features_of(np.array([arms.size // 2])).shape == (1, arms.dimension)
        assert len(json.dumps(arms.to_dict())) < 1000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (slots.size, bundles.size) == (2**20, 593_775)
    assert peak < 6e6
    with pytest.raises(sa.InvalidInputError, match="1,048,576 arms and 211 features does not fit"):
        _ = slots.features


def test_a_memory_map_is_not_copied(tmp_path: object) -> None:
    X = np.random.default_rng(4).normal(size=(5000, 60))
    path = f"{tmp_path}/arms"
    X.tofile(path)
    mapped = np.memmap(path, dtype=np.float64, mode="r", shape=X.shape)
    arms = sa.ArmSet.from_features(mapped)
    assert isinstance(arms.given, DenseRows)
    assert np.shares_memory(arms.given.array, mapped)
    assert arms == sa.ArmSet.from_features(X)


def test_twenty_thousand_arms_that_share_nothing_take_little_room() -> None:
    names = [f"variant {k}" for k in range(20_000)]
    tracemalloc.start()
    arms = sa.ArmSet.one_hot(names)
    again = sa.ArmSet.from_dict(arms.to_dict())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6  # the table of features has 3.2 GB
    assert again == arms
    assert arms.size == arms.rank == 20_000
    assert arms.index("variant 777") == 777
    row = arms.features_of(np.array([777]))
    assert row[0, 777] == row.sum() == 1.0
    theta = np.arange(20_000.0)
    assert np.array_equal(arms.values(theta), theta)
    assert np.array_equal(arms.parameters(theta), theta)
    assert arms.subset([3, 5]).names == ("variant 3", "variant 5")
    for table in ("features", "coordinates", "basis", "dual"):
        with pytest.raises(sa.InvalidInputError, match=r"20,000 .* does not fit in memory"):
            getattr(arms, table)


def test_a_large_one_hot_set_is_that_of_its_table() -> None:
    names = [f"n{k}" for k in range(600)]
    arms = sa.ArmSet.one_hot(names)
    assert arms.to_dict() == {"one_hot": names}
    for table in (arms.features, arms.coordinates, arms.basis):
        assert np.array_equal(table, np.eye(600))
    assert np.array_equal(arms.rows.block(3, 5), np.eye(600)[3:5])
    assert np.array_equal(arms.features_of(np.array([7, 3])), np.eye(600)[[7, 3]])


def test_a_sparse_table_gives_the_arms_of_the_dense_one() -> None:
    X = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    assert sa.ArmSet.from_features(sparse.csc_matrix(X)) == sa.ArmSet.from_features(X)
