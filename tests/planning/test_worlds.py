"""The fast worlds of the planner have the law of the simulator's own, piece by piece."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import steadyarm as sa
from steadyarm.environments import BernoulliReward, GaussianNoise
from steadyarm.planning.worlds import BatchWorld, Pieces, chi_square, hypergeometric
from steadyarm.segments import Segment

N = 20_000
ARMS = sa.ArmSet.one_hot(["A", "B", "C"])
PIECES = Pieces(np.array([7, 20, 31]), np.array([-1.0, 2.0, 1.5]), np.array([0.05, 0.0, -0.02]))
EFFECTS = np.array([0.0, 0.1, 0.05])
LEVEL = 0.3


def segment(order: str) -> Segment:
    if order == "shuffled":
        return Segment.shuffled(np.tile([11, 4, 9], (N, 1)))
    weights = np.tile([0.45, 0.2, 0.35], (N, 1))
    rounds = np.full(N, 24)
    return Segment(weights, rounds, "blocks" if order == "blocks" else "iid", 10)


def played(world: sa.RewardSource, order: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    stats = world.play(segment(order), np.full(N, 3), np.random.default_rng(seed))
    return stats.counts, stats.sums


@pytest.mark.parametrize("noise", [GaussianNoise(0.4), BernoulliReward()])
@pytest.mark.parametrize("order", ["iid", "shuffled", "blocks"])
def test_counts_and_sums_have_the_simulators_moments(
    order: str, noise: GaussianNoise | BernoulliReward
) -> None:
    """Means, variances and covariances of both, within 5 standard errors of the difference."""
    fast = BatchWorld(ARMS, 31, np.tile(EFFECTS, (N, 1)), LEVEL, PIECES, noise)
    rows = PIECES.swing[:, None] * EFFECTS + (LEVEL + PIECES.level)[:, None]
    table = np.repeat(rows, np.diff(PIECES.ends, prepend=0), axis=0)
    slow = sa.Environment.from_means(ARMS, table, noise)
    samples = []
    for world, seed in ((fast, 1), (slow, 2)):
        counts, sums = played(world, order, seed)
        assert (counts.sum(axis=1) == 24).all()
        both = np.hstack([counts, sums]).astype(float)
        pairs = [both[:, i] * both[:, j] for i in range(6) for j in range(i + 1)]
        samples.append(np.column_stack([both, *pairs]))
    first, second = samples
    error = np.sqrt((first.var(axis=0) + second.var(axis=0)) / N)
    difference = np.abs(first.mean(axis=0) - second.mean(axis=0))
    assert (difference <= 5 * error + 1e-12).all()


def test_trials_may_be_at_different_rounds_and_have_different_effects() -> None:
    effects = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    world = BatchWorld(ARMS, 31, effects, 0.0, PIECES, GaussianNoise(0.0))
    plays = Segment(np.array([[1.0, 0, 0], [0, 1.0, 0]]), np.array([10, 3]))
    found = world.play(plays, np.array([0, 28]), np.random.default_rng(0))
    assert found.counts.tolist() == [[10, 0, 0], [0, 3, 0]]
    assert found.sums[0, 0] == pytest.approx(7 * (0.05 - 1.0) + 3 * 2.0)
    assert found.sums[1, 1] == pytest.approx(3 * (1.5 * 2.0 - 0.02))


@pytest.mark.parametrize("case", [(5, 7, 4), (40, 200, 90), (3, 1000, 999), (1, 1, 1), (0, 5, 2)])
def test_hypergeometric_draws(case: tuple[int, int, int]) -> None:
    good, bad, draws = case
    rng = np.random.default_rng(3)
    found = np.array([hypergeometric(good, bad, draws, rng) for _ in range(20_000)])
    law = stats.hypergeom(good + bad, good, draws)
    values = np.arange(max(0, draws - bad), min(good, draws) + 1)
    assert set(found) <= set(values.tolist())
    expected = law.pmf(values) * len(found)
    often = expected >= 5
    if often.sum() > 1:
        seen = np.array([(found == value).sum() for value in values])
        rest = np.array([seen[~often].sum()]), np.array([expected[~often].sum()])
        keep = rest[1] > 0
        chi2 = stats.chisquare(
            np.append(seen[often], rest[0][keep]),
            np.append(expected[often], rest[1][keep]) * len(found) / expected.sum(),
        )
        assert chi2.pvalue > 1e-4


@pytest.mark.parametrize("noise", [GaussianNoise(0.4), BernoulliReward()])
@pytest.mark.parametrize("order", ["iid", "shuffled", "blocks"])
def test_squares_have_the_simulators_moments(
    order: str, noise: GaussianNoise | BernoulliReward
) -> None:
    """Means, variances and covariances with the sums; six standard errors."""
    fast = BatchWorld(ARMS, 31, np.tile(EFFECTS, (N, 1)), LEVEL, PIECES, noise)
    table = np.repeat(
        PIECES.swing[:, None] * EFFECTS + (LEVEL + PIECES.level)[:, None],
        np.diff(PIECES.ends, prepend=0),
        axis=0,
    )
    slow = sa.Environment.from_means(ARMS, table, noise)
    found = []
    for world, seed in ((fast, 1), (slow, 2)):
        start = np.full(N, 3)
        stats_ = world.play(segment(order), start, np.random.default_rng(seed), squares=True)
        assert stats_.squares is not None
        found.append((stats_.sums, stats_.squares))
    for s, q in ((0, 1), (0, 2), (1, 1)):
        one, two = (sums**s * squares**q for sums, squares in found)
        error = np.hypot(one.std(axis=0), two.std(axis=0)) / np.sqrt(N)
        assert (np.abs(one.mean(axis=0) - two.mean(axis=0)) < 6 * error + 1e-12).all()
    if isinstance(noise, BernoulliReward):
        np.testing.assert_array_equal(*found[0])  # which is how clicks are told from other rewards


@pytest.mark.parametrize("freedom", [1, 2, 3, 40])
def test_chi_squared_numbers(freedom: int) -> None:
    rng = np.random.default_rng(freedom)
    drawn = [chi_square(freedom, rng) for _ in range(4000)]
    assert stats.kstest(drawn, stats.chi2(freedom).cdf).pvalue > 1e-4
    assert chi_square(0, rng) == 0.0


@pytest.mark.parametrize("noise", [GaussianNoise(0.4), BernoulliReward()])
def test_a_covariate_takes_its_share_of_the_variance(
    noise: GaussianNoise | BernoulliReward,
) -> None:
    """Shuffled, in one piece: sums vary by n v(1 - ρ²), and squares are those of such rewards."""
    pieces = Pieces(np.array([31]), np.array([1.0]), np.array([0.0]))
    world = BatchWorld(ARMS, 31, np.tile(EFFECTS, (N, 1)), LEVEL, pieces, noise, correlation=0.8)
    rng, plan = np.random.default_rng(3), segment("shuffled")
    seen = world.play(plan, np.zeros(N, dtype=np.int64), rng, squares=True)
    means = LEVEL + EFFECTS
    variance = np.full(3, 0.4**2) if isinstance(noise, GaussianNoise) else means * (1 - means)
    left, plays = 0.36 * variance, plan.counts[0]
    assert (np.abs(seen.sums.mean(axis=0) - plays * means) < 6 * np.sqrt(plays * left / N)).all()
    assert seen.sums.var(axis=0) == pytest.approx(plays * left, rel=6 * np.sqrt(2 / N))
    assert seen.squares is not None
    expected = plays * (left + means**2)
    error = seen.squares.std(axis=0) / np.sqrt(N)
    assert (np.abs(seen.squares.mean(axis=0) - expected) < 6 * error).all()
