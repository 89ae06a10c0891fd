"""Efficient rounding: sums, fairness and few rounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyarm.designs import round_design, round_designs

WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1.0)), min_size=1, max_size=30).filter(
    lambda weights: sum(weights) > 0
)


def as_told(weights: np.ndarray, rounds: int) -> np.ndarray:
    """The rule of reference_notes.md, word for word, for rounds >= support."""
    support = np.flatnonzero(weights)
    lam = weights[support]
    n = np.ceil((rounds - len(lam) / 2) * lam).astype(int)
    while n.sum() < rounds:
        n[(n / lam).argmin()] += 1
    while n.sum() > rounds:
        n[((n - 1) / lam).argmax()] -= 1
    counts = np.zeros(len(weights), dtype=int)
    counts[support] = n
    return counts


@given(WEIGHTS, st.integers(0, 500))
def test_sums_and_bounds(weights: list[float], rounds: int) -> None:
    lam = np.array(weights) / sum(weights)
    counts = round_design(weights, rounds)
    assert counts.sum() == rounds
    assert counts.min() >= 0
    assert (counts[lam == 0] == 0).all()
    support = lam > 0
    if rounds >= support.sum():  # Pukelsheim: every arm of the support is played
        assert (counts[support] >= 1).all()
        assert (counts[support] / lam[support]).min() >= (
            (counts - 1)[support] / lam[support]
        ).max() - 1e-6


@given(st.integers(1, 12), st.integers(0, 10**6), st.integers(0, 300))
def test_as_told(K: int, seed: int, extra: int) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.ones(K))
    np.testing.assert_array_equal(round_design(weights, K + extra), as_told(weights, K + extra))


@pytest.mark.parametrize("rounds", range(6))
def test_fewer_rounds_than_arms_go_to_the_heaviest(rounds: int) -> None:
    weights = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
    counts = round_design(weights, rounds)
    assert counts.sum() == rounds
    if rounds <= 2:
        assert set(np.flatnonzero(counts)) <= {1, 3}


def test_batch_equals_its_members() -> None:
    rng = np.random.default_rng(0)
    weights, rounds = rng.dirichlet(np.ones(9), size=50), rng.integers(0, 60, size=50)
    together = round_designs(weights, rounds)
    for row in range(50):
        np.testing.assert_array_equal(together[row], round_design(weights[row], int(rounds[row])))
