"""Environments from functions agree with tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.environments import CallableEnvironment

ARMS = sa.ArmSet.one_hot(["A", "B", "C"])
TABLE = np.array([[0.1, 0.5, 0.2]] * 30 + [[0.6, 0.2, 0.3]] * 70)


def exact(arms: Any, rounds: Any, rng: Any) -> Any:
    """No noise, so that sums are known exactly."""
    return TABLE[rounds, arms]


def noisy(arms: Any, rounds: Any, rng: Any) -> Any:
    return TABLE[rounds, arms] + 0.5 * rng.standard_normal(len(arms))


WORLD = sa.Environment.from_callable(ARMS, exact, 100, TABLE.mean(axis=0))
ORDERS = [
    sa.Segment(np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]]), np.array([40, 25])),
    sa.Segment(np.array([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]), np.array([40, 26]), "blocks", 4),
    sa.Segment.shuffled(np.array([[20, 12, 8], [5, 10, 10]])),
]


@pytest.mark.parametrize("segment", ORDERS, ids=lambda segment: segment.order)
def test_sums_are_those_of_a_table_without_noise(segment: sa.Segment) -> None:
    table = sa.Environment.from_means(ARMS, TABLE, sa.BoundedNoise(0.0))
    start = np.array([20, 70])
    ours = WORLD.play(segment, start, np.random.default_rng(3), squares=True)
    assert (ours.counts.sum(axis=1) == segment.rounds).all()
    if segment.order == "shuffled":
        assert (ours.counts == segment.counts).all()
    # The second trial lies in the second part, where the means of arms do not move.
    np.testing.assert_allclose(ours.sums[1], ours.counts[1] * TABLE[-1])
    assert ours.squares is not None
    np.testing.assert_allclose(ours.squares[1], ours.counts[1] * TABLE[-1] ** 2)
    theirs = table.play(segment, start, np.random.default_rng(4), squares=True)
    assert theirs.counts.sum() == ours.counts.sum()


def test_every_round_is_played_once_in_its_own_round() -> None:
    seen: list[Any] = []

    def note(arms: Any, rounds: Any, rng: Any) -> Any:
        seen.append(rounds.copy())
        return np.zeros(len(arms))

    world = sa.Environment.from_callable(ARMS, note, 100, [1.0, 0.0, 0.0])
    segment = sa.Segment(np.full((2, 3), 1 / 3), np.array([4, 3]))
    world.play(segment, np.array([10, 50]), np.random.default_rng(0))
    assert np.concatenate(seen).tolist() == [10, 11, 12, 13, 50, 51, 52]


def test_long_batches_are_played_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from steadyarm.environments import sources

    segment = sa.Segment(np.full((5, 3), 1 / 3), np.array([40, 30, 0, 20, 10]))
    start = np.zeros(5, dtype=np.int64)
    whole = WORLD.play(segment, start, np.random.default_rng(8))
    monkeypatch.setattr(sources, "ROUNDS", 35)
    parts = WORLD.play(segment, start, np.random.default_rng(8))
    assert (whole.counts.sum(axis=1) == segment.rounds).all()
    assert (parts.counts.sum(axis=1) == segment.rounds).all()
    np.testing.assert_array_equal(whole.counts, parts.counts)  # no noise: the same draws


def test_error_rates_agree_with_those_of_a_table() -> None:
    table = sa.Environment.from_means(ARMS, TABLE, sa.GaussianNoise(0.5))
    ours = sa.Environment.from_callable(ARMS, noisy, 100, TABLE.mean(axis=0))
    a = sa.simulate(sa.Steady(), table, trials=2000, seed=1)
    b = sa.simulate(sa.Steady(), ours, trials=2000, seed=2)
    pooled = (a.error_rate + b.error_rate) / 2
    assert pooled > 0.02
    assert abs(a.error_rate - b.error_rate) < 4 * np.sqrt(2 * pooled * (1 - pooled) / 2000)
    expected = sum(n * ours.regret(np.array([arm]))[0] for arm, n in b.recommended.items())
    assert b.regret == pytest.approx(expected / 2000)


def test_the_best_arm_is_found_by_draws() -> None:
    world = sa.Environment.from_callable(ARMS, noisy, 100)
    assert world.best_arm == TABLE.mean(axis=0).argmax()
    np.testing.assert_allclose(world.average, TABLE.mean(axis=0), atol=0.05)
    assert isinstance(world, CallableEnvironment)


def test_equal_arms_have_no_best_one() -> None:
    with pytest.raises(sa.InvalidInputError, match="Give the means over all rounds with average="):
        sa.Environment.from_callable(ARMS, lambda a, t, rng: rng.normal(size=len(a)), 50)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (3, "a function of"),
        (lambda a, t, rng: 1.0, "returned an array of shape"),
        (lambda a, t, rng: np.full(len(a), np.nan), "not finite"),
    ],
)
def test_bad_functions_are_named(reward: Any, message: str) -> None:
    def tried() -> None:
        world = sa.Environment.from_callable(ARMS, reward, 10, [1.0, 0.0, 0.0])
        sa.simulate(sa.GBAI(), world, trials=2)

    with pytest.raises(sa.InvalidInputError, match=message):
        tried()


def test_bad_averages_are_named() -> None:
    with pytest.raises(sa.InvalidInputError, match="3 finite numbers, one for each arm"):
        sa.Environment.from_callable(ARMS, exact, 100, [1.0, 2.0])
