"""Estimators against plain sums over rounds and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.estimators import (
    fill_missing,
    ips,
    ips_squares,
    least_squares,
    least_squares_errors,
    rewards_so_far,
)
from steadyarm.inference import Evidence, fixed_budget
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
    squares = ips_squares(X, segment, stats, stats.squares)
    assert np.allclose(squares[0], scores.T @ scores)


def test_a_reference_shifts_every_score(
    log: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    X, weights, played, rewards = log
    m = np.array([0.3, -0.8, 0.1])
    A = (X * weights[:, None]).T @ X
    surprise = rewards - X[played] @ m
    scores = m + np.linalg.solve(A, X[played].T).T * surprise[:, None]
    segment = Segment(weights[None], np.array([400]), reference=m[None])
    stats = _stats(played, rewards, 6)
    assert stats.squares is not None
    assert np.allclose(ips(X, segment, stats), scores.sum(axis=0))
    assert np.allclose(ips_squares(X, segment, stats, stats.squares)[0], scores.T @ scores)


def test_a_policys_standard_errors_do_not_depend_on_how_rounds_are_cut_into_segments() -> None:
    """One segment of 200 rounds, or 200 of one round: the covariance of the mean score."""
    rng = np.random.default_rng(1)
    arms = sa.ArmSet.from_features(rng.normal(size=(5, 2)))
    policy, weights = sa.Uniform(), np.full(5, 0.2)
    played, rewards = rng.choice(5, size=200), rng.normal(size=200)
    A = (arms.features * weights[:, None]).T @ arms.features
    scores = np.linalg.solve(A, arms.features[played].T).T * rewards[:, None]
    expected = np.sqrt(np.diag(arms.features @ np.cov(scores.T) @ arms.features.T) / 200)
    for pieces in (1, 4, 200):
        state = policy.start(arms, 200)
        for chunk in np.split(np.arange(200), pieces):
            segment = Segment(weights[None], np.array([len(chunk)]))
            state = policy.observe(state, segment, _stats(played[chunk], rewards[chunk], 5))
        errors = policy.recommend(state).standard_errors
        assert errors is not None
        assert np.allclose(errors[0], expected)


def test_an_allocation_that_leaves_directions_out_is_refused() -> None:
    X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    stats = SegmentStats(np.array([[3, 0, 0]]), np.array([[1.0, 0.0, 0.0]]))
    with pytest.raises(sa.InvalidInputError, match="leaves directions of the arms' span unplayed"):
        ips(X, Segment(np.array([[1.0, 0.0, 0.0]]), np.array([3])), stats)


def test_least_squares_equals_numpys(
    log: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    X, _, played, rewards = log
    stats = _stats(played, rewards, 6)
    theta, variance = least_squares(X, stats)
    expected, residual, _, _ = np.linalg.lstsq(X[played], rewards)
    assert np.allclose(theta[0], expected)
    gram = X[played].T @ X[played]
    assert variance is not None
    assert np.allclose(variance, residual / (400 - 3))
    expected = np.sqrt(np.diag(X @ np.linalg.inv(gram) @ X.T) * variance)
    assert np.allclose(least_squares_errors(X, stats.counts, variance)[0], expected)


def test_least_squares_takes_the_shortest_solution_when_arms_do_not_span() -> None:
    X = np.array([[1.0, 1.0], [1.0, -1.0], [2.0, 0.0]])
    stats = SegmentStats(np.array([[4, 0, 0]]), np.array([[8.0, 0.0, 0.0]]), np.zeros((1, 3)))
    theta, _ = least_squares(X, stats)
    assert np.allclose(theta, [[1.0, 1.0]])
    errors = least_squares_errors(X, stats.counts, np.array([4.0]))
    assert np.allclose(errors, [[1.0, np.nan, np.nan]], equal_nan=True)


def test_the_error_of_least_squares_is_unknown_without_spare_rounds() -> None:
    stats = SegmentStats(np.array([[1, 1]]), np.array([[1.0, 2.0]]), np.array([[1.0, 4.0]]))
    _, variance = least_squares(np.eye(2), stats)
    assert variance is not None
    assert np.isnan(variance).all()


def _filled(
    rewards: NDArray[np.float64], seen: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], list[tuple[Segment, SegmentStats]]]:
    """Estimate and filled pieces of (J, K, N) rewards, N of each arm in each of J pieces."""
    J, K, N = rewards.shape
    pieces = []
    for j in range(J):
        segment = Segment(np.full((1, K), 1 / K), np.array([K * N]), "blocks", K * N)
        counts = seen[j].sum(axis=1)[None]
        stats = SegmentStats(
            counts,
            np.where(seen[j], rewards[j], 0.0).sum(axis=1)[None],
            np.where(seen[j], rewards[j] ** 2, 0.0).sum(axis=1)[None],
        )
        pieces.append((np.eye(K), segment, stats, N - counts))
    filled = fill_missing(pieces)
    total = sum(ips(np.eye(K), *one)[0] for one in filled)
    return np.asarray(total) / (J * K * N), filled


@pytest.mark.parametrize("keep", [0.8, 0.5])
def test_rewards_missing_by_chance_leave_no_bias_under_a_trend(keep: float) -> None:
    """All 2^(3·2·2) patterns of what is missing, where outer pieces have a reward of each arm.

    An arm's rewards fall or rise from piece to piece by a constant, so that neighbours of the
    same weight on both sides stand in for the middle piece exactly.
    """
    J, K, N = 3, 2, 2
    level, slope = np.array([1.0, 2.0]), np.array([-3.0, 0.5])
    own = np.array([-0.4, 0.4])
    rewards = (level + slope * (np.arange(J) - 1)[:, None])[:, :, None] + own
    total, expected = 0.0, np.zeros(K)
    for code in range(2 ** (J * K * N)):
        seen = (code >> np.arange(J * K * N) & 1).astype(bool).reshape(J, K, N)
        if not seen[[0, 2]].any(axis=2).all():
            continue
        chance = keep ** seen.sum() * (1 - keep) ** (~seen).sum()
        total += chance
        expected += chance * _filled(rewards, seen)[0]
    np.testing.assert_allclose(expected / total, level, atol=1e-12)


def test_what_is_complete_stays_to_the_bit() -> None:
    rng = np.random.default_rng(4)
    rewards = rng.normal(size=(4, 3, 2))
    seen = np.ones((4, 3, 2), dtype=bool)
    whole = _filled(rewards, seen)[1]
    seen[2, 1] = False  # the middle arm has no reward in the third piece
    filled = _filled(rewards, seen)[1]
    for j in range(4):
        same = [0, 2] if j == 2 else [0, 1, 2]
        for name in ("counts", "sums", "squares"):
            mine, theirs = (getattr(one[j][1], name)[0, same] for one in (filled, whole))
            np.testing.assert_array_equal(mine, theirs)
    between = (rewards[1, 1].mean() + rewards[3, 1].mean()) / 2
    assert filled[2][1].sums[0, 1] == pytest.approx(2 * between)


@pytest.mark.parametrize("keep", [0.9, 0.6])
def test_variances_grow_as_rewards_go_missing(keep: float) -> None:
    """The estimated variance, averaged over 100 tests of 12 arms, is that of their estimates."""
    rng = np.random.default_rng(8)
    found, said = [], []
    arms = sa.ArmSet.one_hot([f"arm {k}" for k in range(12)])
    for _ in range(100):
        rewards = rng.normal(size=(12, 12, 2))
        estimate, filled = _filled(rewards, rng.random((12, 12, 2)) < keep)
        evidence = Evidence.from_segments(arms, filled)
        found.append(estimate)
        said.append(fixed_budget(evidence).standard_errors ** 2)
    ratio = np.mean(said) / np.var(found)  # of 1,200 squares: standard error sqrt(2 / 1200)
    assert 1 - 4 * np.sqrt(2 / 1200) < ratio < 1.15


def test_rewards_so_far_stand_for_each_arms_share() -> None:
    """Scores are those of the arms' means; of an arm without a reward, what was known before."""
    segment = Segment(np.array([[0.5, 0.25, 0.25]]), np.array([40]), "blocks", 4, np.ones((1, 3)))
    stats = SegmentStats(
        np.array([[9, 3, 0]]), np.array([[9.0, 6.0, 0.0]]), np.array([[18.0, 12.0, 0.0]])
    )
    theta = np.array([[0.1, 0.4, 0.9]])
    known, filled = rewards_so_far(np.eye(3), segment, stats, theta)
    assert known.rounds.tolist() == [12]
    level = (0.5 * (1 - 0.1) + 0.25 * (2 - 0.4)) / 0.75
    expected = [1.0, 2.0, 0.9 + level]
    np.testing.assert_allclose(ips(np.eye(3), known, filled)[0] / 12, expected, rtol=1e-12)
    np.testing.assert_array_equal(filled.counts, [[6, 3, 3]])
    assert filled.squares is not None
    np.testing.assert_allclose(filled.squares[0, :2], [6 * 2, 3 * 4], rtol=1e-12)


def test_rewards_so_far_of_linear_arms_are_fitted_by_weighted_least_squares() -> None:
    rng = np.random.default_rng(3)
    X, weights = rng.normal(size=(6, 3)), rng.dirichlet(np.ones(6), size=4)
    counts = rng.integers(1, 9, size=(4, 6))
    sums = rng.normal(size=(4, 6)) * counts
    segment = Segment(weights, np.full(4, 90))
    whole = rewards_so_far(X, segment, SegmentStats(counts, sums, sums**2), np.zeros((4, 3)))
    for i in range(4):
        root = np.sqrt(weights[i])[:, None]
        fit = np.linalg.lstsq(root * X, root[:, 0] * sums[i] / counts[i], rcond=None)[0]
        np.testing.assert_allclose(ips(X, *whole)[i] / counts[i].sum(), fit, rtol=1e-9)
        alone = SegmentStats(counts[i : i + 1], sums[i : i + 1], sums[i : i + 1] ** 2)
        one = rewards_so_far(X, segment.trial(i), alone, np.zeros((1, 3)))
        np.testing.assert_array_equal(one[1].sums[0], whole[1].sums[i])
