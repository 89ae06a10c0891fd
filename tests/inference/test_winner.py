"""Winner, plausible set and gaps: what each promises, and that they never contradict each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom, norm

import steadyarm as sa
from steadyarm.inference.evidence import Evidence, shortlist
from steadyarm.inference.intervals import Intervals, fixed_budget, pairwise_value
from steadyarm.inference.sequences import confidence_path, confidence_sequence
from steadyarm.segments import Direction, Segment, SegmentStats
from tests.inference import large
from tests.inference.worlds import moving, played


def check_consistent(found: Intervals) -> None:
    """Nothing that is said contradicts anything else; gaps are measured from the best estimate."""
    rows = np.arange(len(found.rounds))
    other = np.arange(found.arms.size) != found.recommended[:, None]
    assert found.plausible[rows, found.recommended].all()
    rivals = (found.plausible & other).sum(axis=1) + found.others
    np.testing.assert_array_equal(found.winner, rivals == 0)
    assert (found.gap_low[found.winner] >= 0).all()
    touched = (found.gap_low <= 0) & (found.gap_high >= 0)
    assert touched[found.plausible].all()
    assert (found.gap_low <= found.gap_high).all()


def random_test(seed: int, direction: Direction) -> Evidence:
    """A few arms, a few pieces of any order, rewards from symmetric to very skewed."""
    rng = np.random.default_rng(seed)
    K, J, per = int(rng.integers(2, 6)), int(rng.integers(1, 14)), int(rng.integers(2, 30))
    means = rng.uniform(0, rng.choice([0.02, 0.3, 1.0]), size=K) + rng.choice([0.1, 2.0])
    sigma, pieces = rng.choice([0.05, 0.5, 1.5]), []
    shuffled = rng.random() < 0.5
    for _ in range(J):
        counts = np.full((1, K), per)
        if not shuffled:
            counts = rng.multinomial(K * per, np.full(K, 1 / K))[None]
        sums, squares = np.zeros((1, K)), np.zeros((1, K))
        for k in range(K):
            r = means[k] * rng.lognormal(sigma=sigma, size=counts[0, k])
            r *= rng.random(counts[0, k]) < 0.7
            sums[0, k], squares[0, k] = r.sum(), (r**2).sum()
        segment = Segment(np.full((1, K), 1 / K), np.array([K * per]))
        if shuffled:
            segment = Segment.shuffled(counts)
        pieces.append((segment, SegmentStats(counts, sums, squares)))
    arms = sa.ArmSet.one_hot([str(k) for k in range(K)])
    return Evidence.from_segments(arms, pieces, direction)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**31), st.sampled_from(["maximize", "minimize"]), st.sampled_from([0.5, 0.95])
)
def test_winner_plausible_set_and_gaps_agree(seed: int, direction: Direction, level: float) -> None:
    evidence = random_test(seed, direction)
    budget = int(evidence.played[0])
    check_consistent(fixed_budget(evidence, level))
    check_consistent(confidence_sequence(evidence, budget, level))
    for look in confidence_path(evidence, budget, level, reward_range=(0, 100)):
        check_consistent(look)


@pytest.mark.parametrize("policy", [sa.GBAI(), sa.Steady(), sa.P1RAGE(order="blocks")])
@pytest.mark.parametrize("reward_range", [None, (-3.0, 3.0)])
def test_they_agree_where_arms_share_features(
    policy: sa.Policy[Any], reward_range: tuple[float, float] | None
) -> None:
    world = moving(1500, sa.BoundedNoise(0.5))
    evidence = Evidence.from_segments(world.arms, played(policy, world, 40))
    for level in (0.5, 0.95):
        check_consistent(fixed_budget(evidence, level))
        for look in confidence_path(evidence, 1500, level, reward_range)[::10]:
            check_consistent(look)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("boost", [0.0, 0.5])
def test_they_agree_in_large_sets(direction: Direction, boost: float) -> None:
    """With a boost to the best arm's own features one variant leads all 64 by far."""
    log = []
    for segment, stats in large.played(large.SMALL, pieces=30, blocks=12, order="blocks"):
        assert segment.arms is not None
        assert stats.squares is not None
        sign = 1 if direction == "maximize" else -1
        bits = (large.SMALL.coordinates_of(segment.arms)[:, 1:7] > 0).sum(axis=1)
        more = sign * boost * bits
        sums = stats.sums + stats.counts * more
        squares = stats.squares + 2 * stats.sums * more + stats.counts * more**2
        log.append((segment, SegmentStats(stats.counts, sums, squares)))
    evidence = Evidence.from_segments(large.SMALL, log, direction)
    view, best = shortlist(evidence, most=10)
    for whole, few in (
        (fixed_budget(evidence), fixed_budget(view, recommended=best)),
        (confidence_sequence(evidence, 9000), confidence_sequence(view, 9000, recommended=best)),
    ):
        check_consistent(whole)
        check_consistent(few)
        assert few.winner[0] == whole.winner[0]  # one pair's value, however many arms are shown
        assert few.winner[0] or boost == 0
    path = confidence_path(view, 9000)  # others are not counted, but a winner beats them too
    counted = confidence_path(view, 9000, count_all=True)
    assert [look.winner[0] for look in path] == [look.winner[0] for look in counted]


@pytest.mark.parametrize("K", [2, 3, 5, 10, 30])
def test_equal_arms_have_a_winner_in_few_tests(K: int) -> None:
    """K arms with equal means and errors, exactly: the chance that one leads all by z."""
    z = float(pairwise_value(np.array([np.inf]), 0.05)[0])

    def leads(x: float) -> float:
        return float(norm.pdf(x) * norm.cdf(x - z * 2**0.5) ** (K - 1))

    chance = K * quad(leads, -9, 12, epsabs=1e-12)[0]
    assert chance <= 0.05 + 1e-9
    assert (chance > 0.0499) == (K == 2)


@pytest.mark.parametrize("seed", range(6))
def test_no_covariance_makes_wrong_winners_more_frequent(seed: int) -> None:
    """Any covariance, and any of the arms tied or behind: jointly normal estimates, drawn."""
    rng = np.random.default_rng(seed)
    K, n = int(rng.integers(2, 7)), 40_000
    root = rng.normal(size=(K, K)) * rng.uniform(0.1, 3, size=(K, 1))
    mu = np.where(rng.random(K) < 0.5, 0.0, -rng.exponential(2.0, size=K))
    mu[:2] = 0.0  # nobody is the unique best: whoever is declared is wrong
    X = rng.normal(size=(n, K)) @ root.T + mu
    top = X.argmax(axis=1)
    apart = np.sqrt(((root[:, None] - root[None]) ** 2).sum(axis=2))
    lead = X[np.arange(n), top][:, None] - X > 1.96 * apart[top]
    lead[np.arange(n), top] = True
    assert lead.all(axis=1).sum() <= binom.ppf(1 - 1e-4, n, 0.05)


@pytest.mark.parametrize("tied", [2, 4])
def test_tests_of_equal_arms_name_a_winner_in_at_most_five_percent(tied: int) -> None:
    trials, T, arms = 600, 800, sa.ArmSet.one_hot(list("ABCD"))
    means = np.where(np.arange(4) < tied, 0.5, -0.5)
    world = sa.Environment.from_means(arms, means, sa.GaussianNoise(1.0), T)
    evidence = Evidence.from_segments(arms, played(sa.GBAI(order="blocks"), world, trials))
    once = fixed_budget(evidence)
    check_consistent(once)
    assert once.winner.sum() <= binom.ppf(1 - 1e-4, trials, 0.05)
    assert once.winner.sum() >= (binom.ppf(1e-4, trials, 0.03) if tied == 2 else 0)
    ever = np.zeros(trials, dtype=bool)
    for look in confidence_path(evidence, T, at=range(1, 40, 2)):
        ever |= look.winner
    assert ever.sum() <= binom.ppf(1 - 1e-4, trials, 0.05)
