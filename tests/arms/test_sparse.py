"""Sparse arms are the dense ones, and what is refused."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import steadyarm as sa
from steadyarm.arms import arm_set
from steadyarm.arms.rows import DenseRows, SparseRows, packed
from steadyarm.arms.span import span_of_rows
from steadyarm.designs import g_optimal

K, D = 6000, 60


def coded(groups: int = 5, seed: int = 0) -> sparse.csr_array[np.float64]:
    """Distinct arms with one level of each of five groups: rank 60 - 4."""
    rng = np.random.default_rng(seed)
    levels = D // groups
    codes = rng.choice(levels**groups, size=K, replace=False)
    columns = np.stack([codes // levels**g % levels + levels * g for g in range(groups)], axis=1)
    ends = np.arange(0, groups * K + 1, groups)
    return sparse.csr_array((np.ones(groups * K), columns.ravel(), ends), shape=(K, D))


@pytest.fixture(scope="module")
def both() -> tuple[sa.ArmSet, sa.ArmSet]:
    X = coded()
    return sa.ArmSet.from_features(X), sa.ArmSet.from_features(X.toarray())


def test_a_sparse_set_is_the_dense_set(both: tuple[sa.ArmSet, sa.ArmSet]) -> None:
    thin, thick = both
    assert isinstance(thin.given, SparseRows)
    assert isinstance(thin.rows, SparseRows)
    assert isinstance(thick.given, DenseRows)
    assert thin == thick
    assert thin.rank == thick.rank == D - 4
    assert thin.large
    assert np.array_equal(thin.features, thick.features)
    assert np.array_equal(thin.features_of(np.array([7, 3])), thick.features[[7, 3]])


def test_values_and_parameters_agree_whatever_the_basis(
    both: tuple[sa.ArmSet, sa.ArmSet],
) -> None:
    _, thick = both
    theta = np.random.default_rng(1).normal(size=D)
    for arms in both:
        inside = arms.basis.T @ theta
        assert np.allclose(arms.values(inside), thick.features @ theta)
        assert np.allclose(arms.rows.block(5, 9) @ inside, thick.features[5:9] @ theta)
        assert np.allclose(thick.features @ arms.parameters(inside), thick.features @ theta)
        few = arms.subset([4, 17, 5999])
        assert few.names == ("arm 4", "arm 17", "arm 5999")
        assert np.allclose(few.coordinates @ inside, thick.features[[4, 17, 5999]] @ theta)


def test_a_sparse_set_survives_json(both: tuple[sa.ArmSet, sa.ArmSet]) -> None:
    thin, _ = both
    text = json.dumps(thin.to_dict())
    again = sa.ArmSet.from_dict(json.loads(text))
    assert again == thin
    assert isinstance(again.given, SparseRows)
    # 12 characters a number, and the small matrices that coordinates are made with
    assert len(text) < 16 * thin.given.matrix.nnz  # type: ignore[union-attr]  # sparse, as above
    named = sa.ArmSet.from_features(coded(), names=[f"n{k}" for k in range(K)])
    assert sa.ArmSet.from_dict(named.to_dict()) == named != thin


def test_a_small_sparse_table_is_kept_dense() -> None:
    X = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    arms = sa.ArmSet.from_features(sparse.csc_matrix(X))
    assert arms.to_dict() == sa.ArmSet.from_features(X).to_dict()
    assert arms.to_dict()["features"] == X.tolist()


@settings(max_examples=30)
@given(
    st.integers(0, 10**6),
    st.sampled_from([sparse.csr_array, sparse.csc_matrix, sparse.coo_array, sparse.lil_matrix]),
)
def test_every_form_of_a_sparse_table_gives_the_same_arms(seed: int, form: Any) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, size=(30, 6)).astype(float) * (rng.random((30, 6)) < 0.5)
    X = np.unique(X + 0.0, axis=0)
    X = np.vstack([X, np.full(6, 5.0)])
    assert sa.ArmSet.from_features(form(X)) == sa.ArmSet.from_features(X)


def test_entries_given_twice_add_up_and_stored_zeros_are_none() -> None:
    X = coded().tocoo()
    rows, columns = X.coords
    twice = sparse.coo_array(
        (
            np.concatenate([X.data * 0.5, X.data * 0.5, np.zeros(K)]),
            (
                np.concatenate([rows, rows, np.arange(K)]),
                np.concatenate([columns, columns, np.zeros(K, dtype=columns.dtype)]),
            ),
        ),
        shape=X.shape,
    )
    assert sa.ArmSet.from_features(twice) == sa.ArmSet.from_features(coded())


def test_a_sparse_set_copies_what_it_is_given() -> None:
    X = coded()
    arms = sa.ArmSet.from_features(X)
    before = arms.features_of(np.array([0]))
    X.data[:] = 9.0
    assert np.array_equal(arms.features_of(np.array([0])), before)
    assert isinstance(arms.given, SparseRows)
    with pytest.raises(ValueError, match="read-only"):
        arms.given.matrix.data[0] = 2.0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_designs_of_sparse_arms_have_the_value_of_dense_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = np.vstack([np.eye(5), rng.integers(0, 2, size=(8, 5))]).astype(float)
    X = np.unique(np.hstack([X, X[:, :1] + X[:, 1:2]]), axis=0)  # a column too many
    rows = SparseRows(sparse.csr_array(X))
    dense = sa.ArmSet.from_features(X)
    thin = sa.ArmSet(dense.names, dense.feature_names, span_of_rows(rows), rows)
    assert thin == dense
    ours, theirs = g_optimal(thin, tol=1e-6), g_optimal(dense, tol=1e-6)
    assert ours.value == pytest.approx(theirs.value, rel=2e-6)


def test_designs_pass_over_sparse_arms_as_over_dense_ones(
    both: tuple[sa.ArmSet, sa.ArmSet],
) -> None:
    ours, theirs = (g_optimal(arms.rows, tol=1e-2) for arms in both)
    assert ours.value == pytest.approx(theirs.value, rel=2e-2)
    assert ours.lower_bound <= theirs.value
    assert theirs.lower_bound <= ours.value


def bad(row: int, column: int, value: float) -> sparse.csr_array[np.float64]:
    X = coded().tolil()
    X[row, column] = value
    return X.tocsr()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (bad(17, 3, np.nan), "row 17, column 3 is nan"),
        (bad(5999, 59, -np.inf), "row 5999, column 59 is -inf"),
        (sparse.csr_array((K, D)), "all features are zero"),
        (sparse.csr_array((1, D)), "there is 1 arm"),
        (sparse.csr_array((K, 0)), "no features"),
        (sparse.coo_array(np.ones(3)), r"1 axes \(shape \(3,\)\)"),
        (coded().astype(np.complex128), "table of complex128"),
        (sparse.vstack([coded(), coded()[[42]]]), r"arms 42 \('arm 42'\) and 6000 \('arm 6000'\)"),
    ],
)
def test_bad_sparse_arms_are_refused_with_a_reason(X: object, message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.ArmSet.from_features(X)  # type: ignore[arg-type]  # whatever there is


def test_broken_rows_are_refused_when_they_are_read() -> None:
    data = sa.ArmSet.from_features(coded()).to_dict()
    data["sparse"]["columns"][0] = D
    with pytest.raises(sa.InvalidInputError, match="no rows of arms"):
        sa.ArmSet.from_dict(data)


def test_one_zero_arm_is_fine() -> None:
    X = sparse.vstack([coded(), sparse.csr_array((1, D))])
    arms = sa.ArmSet.from_features(X)
    assert not arms.features_of(np.array([K])).any()


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


def test_policies_say_that_there_are_too_many_parameters() -> None:
    arms = sa.ArmSet.one_hot([f"variant {k}" for k in range(20_000)])
    for policy in (sa.GBAI(), sa.P1RAGE(), sa.Steady(), sa.SequentialHalving()):
        with pytest.raises(sa.InvalidInputError, match="20,000"):
            policy.start(arms, 100_000, trials=1, seed=0)


def test_one_hot_is_the_same_set_sparse_and_dense() -> None:
    names = [f"n{k}" for k in range(600)]
    arms = sa.ArmSet.one_hot(names)
    assert isinstance(arms.given, SparseRows)
    assert arms == sa.ArmSet.from_features(sparse.eye_array(600), names, names)
    assert np.array_equal(arms.features, np.eye(600))
    assert np.array_equal(arms.coordinates, arms.features)
    assert np.array_equal(arms.basis, np.eye(600))


def test_sets_too_large_for_their_table_have_one_fingerprint_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arm_set, "MOST_IN_TABLE", K * D - 1)
    X = coded()
    thin, thick = sa.ArmSet.from_features(X), sa.ArmSet.from_features(X.toarray())
    assert thin == thick
    assert sa.ArmSet.from_features(X[::-1]) != thin
    assert sa.ArmSet.from_features(2 * X) != thin
    assert b"".join(packed(DenseRows(X.toarray()))) == b"".join(packed(SparseRows(X)))
