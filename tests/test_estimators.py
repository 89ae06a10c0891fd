from __future__ import annotations

import numpy as np
import pytest

from steadyarm.estimators import arm_values, ips, ips_scatter, least_squares, standard_errors
from steadyarm.segments import Segment, SegmentStats


@pytest.fixture
def log() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Arms, weights, and the arms and rewards of 400 rounds of one trial."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(6, 3))
    weights = rng.dirichlet(np.ones(6))
    played = rng.choice(6, size=400, p=weights)
    return X, weights, played, X[played] @ [0.5, -1.0, 0.2] + rng.normal(size=400)


def _stats(played: np.ndarray, rewards: np.ndarray, K: int) -> SegmentStats:
    return SegmentStats(
        np.bincount(played, minlength=K)[None],
        np.bincount(played, rewards, minlength=K)[None].astype(np.float64),
        np.bincount(played, rewards**2, minlength=K)[None].astype(np.float64),
    )


def test_ips_equals_the_sum_over_rounds(
    log: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    X, weights, played, rewards = log
    A = (X * weights[:, None]).T @ X
    scores = np.linalg.solve(A, X[played].T).T * rewards[:, None]
    segment = Segment(weights[None], np.array([400]))
    stats = _stats(played, rewards, 6)
    total = ips(X, segment, stats)
    assert np.allclose(total, scores.sum(axis=0))
    assert stats.squares is not None
    scatter = ips_scatter(X, segment, stats.squares, total, segment.rounds)
    assert np.allclose(scatter[0], np.cov(scores.T, bias=True) * 400)
    assert np.allclose(standard_errors(X, scatter)[0], np.sqrt(np.diag(X @ scatter[0] @ X.T)))


def test_least_squares_equals_numpys(
    log: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    X, _, played, rewards = log
    theta, covariance = least_squares(X, _stats(played, rewards, 6))
    expected, residual, _, _ = np.linalg.lstsq(X[played], rewards)
    assert np.allclose(theta[0], expected)
    assert np.allclose(arm_values(X, theta)[0], X @ expected)
    gram = X[played].T @ X[played]
    assert covariance is not None
    assert np.allclose(covariance[0], np.linalg.inv(gram) * residual / (400 - 3))


def test_least_squares_takes_the_shortest_solution_when_arms_do_not_span() -> None:
    X = np.array([[1.0, 1.0], [1.0, -1.0], [2.0, 0.0]])
    stats = SegmentStats(np.array([[4, 0, 0]]), np.array([[8.0, 0.0, 0.0]]), np.zeros((1, 3)))
    theta, _ = least_squares(X, stats)
    assert np.allclose(theta, [[1.0, 1.0]])


def test_the_error_of_least_squares_is_unknown_without_spare_rounds() -> None:
    stats = SegmentStats(np.array([[1, 1]]), np.array([[1.0, 2.0]]), np.array([[1.0, 4.0]]))
    _, covariance = least_squares(np.eye(2), stats)
    assert covariance is not None
    assert np.isnan(covariance).all()
