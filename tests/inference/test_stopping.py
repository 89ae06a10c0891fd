"""Stopping a batch of tests: how often wrongly, when, and that winners may be declared at looks."""

from __future__ import annotations

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.errors import InvalidInputError
from steadyarm.inference import Evidence, Looks, boundaries, confidence_sequence, stopping_of
from steadyarm.inference.lift import lift_path
from steadyarm.inference.sequences import confidence_path
from tests.inference.worlds import played

T = 2400


def evidence_of(means: list[float], trials: int, seed: int, clicks: bool = False) -> Evidence:
    """Tests with Steady, in pieces as live tests have them."""
    arms = sa.ArmSet.one_hot([str(k) for k in range(len(means))])
    noise = sa.BernoulliReward() if clicks else sa.GaussianNoise(1.0)
    world = sa.Environment.from_means(arms, np.array(means), noise, T)
    return Evidence.from_segments(arms, played(sa.Steady(), world, trials, seed, pieces=60))


@pytest.mark.parametrize(("variants", "control"), [(2, None), (3, 0)])
@pytest.mark.parametrize("clicks", [False, True])
def test_equal_variants_are_seldom_told_apart(
    variants: int, control: int | None, clicks: bool
) -> None:
    evidence = evidence_of([0.3] * variants, 1000, 7, clicks)
    found = stopping_of(evidence, T, Looks.equally(6), control=control)
    assert (found.variant >= 0).sum() <= 50 + 3 * 7  # 5 % and three standard deviations
    assert (found.variant >= 0).sum() >= 5
    assert ((found.look >= 0) == (found.variant >= 0)).all()


def test_the_better_a_variant_is_the_sooner_a_test_stops() -> None:
    used = []
    for gap in (0.12, 0.2, 0.35):
        found = stopping_of(evidence_of([0.0, gap], 300, 3), T, Looks.equally(8))
        used.append(found.rounds.mean() / T)
        assert (found.variant[found.variant >= 0] == 1).mean() > 0.98
    assert 0.95 > used[0] > used[1] > used[2]
    assert used[2] < 0.5


def test_what_stops_a_test_is_what_intervals_say() -> None:
    evidence = evidence_of([0.0, 0.15, 0.05], 60, 5)
    looks = Looks.equally(5, over=True)
    found = stopping_of(evidence, T, Looks.equally(5), control=0)
    path = confidence_path(evidence, T, looks=looks)
    lifts = lift_path(evidence, T, 0, looks=looks)
    rounds = np.cumsum(evidence.rounds, axis=1)
    for i in range(60):
        decided = [
            j
            for j, (one, lift) in enumerate(zip(path, lifts, strict=True))
            if one.winner[i] or lift.low[i, one.recommended[i]] > 0 or (lift.high[i] <= 0).all()
        ]
        expected = rounds[i, decided[0]] if decided else rounds[i, -1]
        assert found.rounds[i] == expected
        assert (found.variant[i] >= 0) == bool(decided)


def test_tests_that_cannot_find_what_matters_any_more_stop() -> None:
    still = evidence_of([0.3, 0.3], 200, 11)
    found = stopping_of(still, T, Looks.equally(8), control=0, futility=0.2)
    assert found.futile.mean() > 0.8
    assert found.rounds.mean() < 0.75 * T
    assert (found.variant[found.futile] == -1).all()
    better = evidence_of([0.3, 0.5], 200, 12)
    plain, asked = (
        stopping_of(better, T, Looks.equally(8), control=0, futility=f) for f in (None, 0.2)
    )
    lost = (plain.variant == 1).mean() - (asked.variant == 1).mean()
    assert 0 <= lost < 0.05  # what non-binding futility costs in power
    among = stopping_of(evidence_of([0.3, 0.3, -0.5], 100, 13), T, Looks.equally(8), futility=0.2)
    assert among.futile.mean() > 0.8


def test_a_winner_of_many_equal_arms_is_declared_no_more_often_than_of_two() -> None:
    """One pair's boundary holds for all arms (proof in docs/research/technical_note.md)."""
    alpha, paths, shares = 0.1, 40_000, (0.25, 0.5, 0.75, 1.0)
    bounds = np.array(boundaries(shares, alpha / 2))
    rng = np.random.default_rng(2)
    for K, spread in ((2, 1.0), (3, 1.0), (3, 20.0), (4, 3.0)):
        scale = np.geomspace(1, spread, K)
        steps = rng.normal(size=(paths, len(shares), K)) * scale / np.sqrt(len(shares))
        motion = np.cumsum(steps, axis=1)
        # infinitesimally worse than the first arm: whoever else is declared is wrong, too
        wrong = np.zeros(paths, dtype=bool)
        for i in range(K):
            lead = np.full((paths, len(shares)), np.inf)
            for k in set(range(K)) - {i}:
                error = np.sqrt((scale[i] ** 2 + scale[k] ** 2) * np.array(shares))
                lead = np.minimum(lead, (motion[:, :, i] - motion[:, :, k]) / error)
            wrong |= (lead > bounds).any(axis=1)
        assert wrong.mean() <= alpha + 3.5 * np.sqrt(alpha / paths)


def test_nothing_is_known_between_two_looks() -> None:
    path = confidence_path(evidence_of([0.0, 0.2], 5, 4), T, looks=Looks.equally(3))
    known = [bool(np.isfinite(one.low).any()) for one in path]
    assert sum(known) == 3
    assert known[-1]


def test_a_range_of_rewards_and_looks_exclude_each_other() -> None:
    evidence = evidence_of([0.2, 0.3], 2, 4, clicks=True)
    with pytest.raises(InvalidInputError, match="reward_range") as error:
        confidence_sequence(evidence, T, reward_range=(0, 1), looks=Looks.equally(3))
    assert error.value.field == "looks"
