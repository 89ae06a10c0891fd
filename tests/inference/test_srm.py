"""Sample-ratio mismatch: nulls worked out by hand, alarms at their rate."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chi2, ncx2, norm

import steadyarm as sa
from benchmarks.coverage_srm import srm_p_values
from steadyarm.inference.sampling_variance import (
    LoggedSegment,
    assignment_balance,
    each_by_itself,
)
from steadyarm.inference.srm import (
    srm_from_propensities,
    srm_test,
)
from steadyarm.segments import Segment, arms_between
from tests.inference.logs import ABC, logged, most_alarms

Log = list[tuple[Segment, NDArray[np.int64]]]


def covariance(piece: LoggedSegment) -> NDArray[np.float64]:
    return np.asarray(
        assignment_balance(piece, [each_by_itself(piece.segment.columns)]).covariances[0][0]
    )


def spread(samples: list[list[int]]) -> NDArray[np.float64]:
    return np.cov(np.array(samples, dtype=float), rowvar=False, bias=True)


def test_independent_draws_are_multinomial() -> None:
    w = np.array([0.5, 0.3, 0.2])
    expected = 10 * (np.diag(w) - np.outer(w, w))
    np.testing.assert_allclose(covariance(logged(w.tolist(), [5, 3, 2])), expected)


def test_chi_squared_is_pearsons() -> None:
    found = srm_test(ABC, [logged([0.5, 0.3, 0.2], [540, 280, 180])])
    pearson = 40**2 / 500 + 20**2 / 300 + 20**2 / 200
    assert found.statistic == pytest.approx(pearson)
    assert found.p_value == pytest.approx(chi2.sf(pearson, 2))


def test_random_starts_have_the_covariance_of_all_starts() -> None:
    weights, block = np.array([0.15, 0.35, 0.5]), 5  # ends at 0.75, 2.5 and 5
    ends = np.cumsum(weights) * block
    starts = (np.arange(4) + 0.5) / 4  # one from each interval between the ends' fractions
    blocks = [
        np.bincount(np.searchsorted(ends, np.arange(block) + u, side="right"), minlength=3)
        for u in starts
    ]
    piece = logged(weights.tolist(), [2, 3, 5], "blocks", block)  # two whole blocks
    np.testing.assert_allclose(covariance(piece), 2 * spread([b.tolist() for b in blocks]))


def test_a_cut_block_is_a_draw_without_replacement() -> None:
    population = [0, 0, 1, 2]
    parts = [np.bincount(part, minlength=3).tolist() for part in combinations(population, 3)]
    piece = logged([0.5, 0.25, 0.25], [3, 2, 2], "blocks", 4, rounds=100, positions=7)
    np.testing.assert_allclose(covariance(piece), spread(parts), atol=1e-12)


def test_rows_lost_alike_are_a_draw_without_replacement() -> None:
    population = [0, 0, 0, 0, 1, 1, 2, 2]
    parts = [np.bincount(part, minlength=3).tolist() for part in combinations(population, 6)]
    for order in ("blocks", "shuffled"):
        piece = logged([0.5, 0.25, 0.25], [3, 2, 1], order, 4, rounds=8)
        np.testing.assert_allclose(covariance(piece), spread(parts), atol=1e-12)
        assert piece.lost.tolist() == [2]


def test_cut_blocks_with_random_starts_match_all_draws() -> None:
    weights, block = np.array([0.375, 0.625]), 4  # 1.5 and 2.5 of 4
    draws = [
        np.bincount(order[:3], minlength=2).tolist()
        for list_ in ([0, 1, 1, 1], [0, 0, 1, 1])
        for order in permutations(list_)
    ]
    piece = logged(weights.tolist(), [1, 2], "blocks", block, rounds=50, positions=3)
    np.testing.assert_allclose(covariance(piece), spread(draws), atol=1e-12)


def test_whole_blocks_leave_nothing_to_luck() -> None:
    fine = logged([0.5, 0.25, 0.25], [50, 25, 25], "blocks", 4)
    assert not covariance(fine).any()
    assert srm_test(ABC, [fine]).p_value == 1
    swapped = logged([0.5, 0.25, 0.25], [51, 24, 25], "blocks", 4)
    found = srm_test(ABC, [fine, fine, swapped])
    assert found.p_value == 0
    assert found.verdict == "Segment 2 should have 50 of A and has 51: chance cannot do that."


def test_swaps_that_cancel_between_segments_are_seen() -> None:
    more = logged([0.5, 0.25, 0.25], [51, 24, 25], "blocks", 4)
    less = logged([0.5, 0.25, 0.25], [49, 26, 25], "blocks", 4)
    assert srm_test(ABC, [more, less]).p_value == 0


def test_one_lost_row_is_stated_but_no_mismatch() -> None:
    found = srm_test(ABC, [logged([0.5, 0.25, 0.25], [50, 24, 25], "blocks", 4, rounds=100)])
    assert found.lost == 1
    assert found.p_value > 0.05


def test_rows_lost_in_one_arm_of_whole_blocks_are_exact_evidence() -> None:
    found = srm_test(ABC, [logged([0.5, 0.25, 0.25], [500, 242, 250], "blocks", 4, rounds=1000)])
    assert found.culprit == "B"
    assert found.p_value == pytest.approx(3 * 0.25**8, rel=1e-9)  # all eight by chance, three arms


@pytest.mark.parametrize("handed", range(1, 41))
@pytest.mark.parametrize("weights", [[0.5, 0.25, 0.25], [0.61, 0.27, 0.12]])
def test_open_blocks_of_a_live_test_are_no_alarm(handed: int, weights: list[float]) -> None:
    segment = Segment(np.array([weights]), np.array([400]), "blocks", 8)
    arms = arms_between(segment, seed=3, index=0, start=0, stop=handed)
    piece = LoggedSegment(segment, np.bincount(arms, minlength=3)[None], np.array([handed]))
    assert srm_test(ABC, [piece]).p_value > 0.001


def test_an_open_shuffled_segment_is_no_alarm_and_too_many_of_an_arm_is() -> None:
    assert srm_test(ABC, [logged([0.5, 0.3, 0.2], [5, 0, 0], "shuffled", rounds=10)]).p_value > 0.01
    assert srm_test(ABC, [logged([0.5, 0.3, 0.2], [6, 0, 0], "shuffled", rounds=10)]).p_value == 0


def test_an_arm_that_got_nobody_counts() -> None:
    found = srm_test(ABC, [logged([0.495, 0.495, 0.01], [1000, 1000, 0])])
    assert found.culprit == "C"
    assert found.p_value < 1e-4


def test_an_arm_without_a_chance_must_have_no_rows() -> None:
    found = srm_test(ABC, [logged([0.5, 0.5, 0.0], [50, 49, 1])])
    assert (found.p_value, found.culprit) == (0.0, "C")
    assert found.verdict == "Segment 0 never plays C, yet has 1 rows of it."
    assert srm_test(ABC, [logged([0.5, 0.5, 0.0], [50, 50, 0])]).p_value == 1


def test_more_rows_than_positions_are_doubles() -> None:
    found = srm_test(ABC, [logged([0.5, 0.3, 0.2], [500, 300, 205], rounds=1000)])
    assert found.p_value == 0
    assert "1000 positions but has 1005 rows: some are duplicates" in found.verdict


def test_rare_arms_are_bounded_by_exact_tails() -> None:
    found = srm_test(ABC, [logged([0.5, 0.4995, 0.0005], [500, 495, 5])])
    exact = binom.sf(4, 1000, 0.0005)
    assert found.p_value == pytest.approx(10 * exact)
    assert found.culprit == "C"


def test_rare_arms_do_not_cry_wolf() -> None:
    tests = 20_000
    weights = np.tile([0.6, 0.37, 0.02, 0.008, 0.002], (tests, 1))
    counts = np.random.default_rng(1).multinomial(150, weights)
    p = srm_p_values([LoggedSegment(Segment(weights, np.full(tests, 150)), counts)])
    for level in (0.05, 0.01, 0.001):
        assert (p < level).sum() <= most_alarms(level, tests)


def play(policy: sa.Policy[Any], world: sa.Environment, tests: int, seed: int) -> Log:
    rng, log = np.random.default_rng(seed), []
    state = policy.start(world.arms, world.budget, tests, seed=seed)
    while (segment := policy.next_segment(state)) is not None:
        stats = world.play(segment, state.played, rng)
        state = policy.observe(state, segment, stats)
        log.append((segment, stats.counts))
    return log


def turning(budget: int) -> sa.Environment:
    arms = sa.ArmSet.one_hot(list("ABCD"))
    half = budget // 2
    means = np.repeat([[0.6, 0.4, 0.2, 0.0], [0.0, 0.2, 0.7, 0.6]], [half, budget - half], axis=0)
    return sa.Environment.from_means(arms, means, sa.GaussianNoise(0.5))


@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.parametrize(
    "policy",
    [
        sa.P1RAGE(),
        sa.Steady(),
        sa.Steady(order="iid"),
        sa.GBAI(order="blocks", block=9),
        sa.Peace(),
    ],
    ids=["P1-RAGE", "Steady", "independent Steady", "uneven blocks", "Peace"],
)
def test_alarms_come_at_their_rate_if_arms_lose_alike(policy: sa.Policy[Any], loss: float) -> None:
    tests, rng = 3000, np.random.default_rng(2)
    log = play(policy, turning(1501), tests, seed=4)
    p = srm_p_values(LoggedSegment(s, rng.binomial(c, 1 - loss)) for s, c in log)
    for level in (0.05, 0.01, 0.001):
        assert (p < level).sum() <= most_alarms(level, tests)
    if loss:
        assert (p < 0.1).mean() > 0.05  # and they do come


def test_a_loss_in_one_arm_is_found_and_named() -> None:
    tests, rng = 200, np.random.default_rng(3)
    log = play(sa.Steady(), turning(4000), tests, seed=5)
    kept = []
    for segment, counts in log:
        counts = counts.copy()
        counts[:, 2] = rng.binomial(counts[:, 2], 0.98)
        kept.append((segment, counts))
    p = srm_p_values(LoggedSegment(s, c) for s, c in kept)
    assert (p < 0.001).mean() > 0.95
    first = [
        LoggedSegment(Segment(s.weights[:1], s.rounds[:1], s.order, s.block, s.reference), c[:1])
        for s, c in kept
    ]
    found = srm_test("ABCD", first)
    assert found.p_value == p[0]  # a batch equals its members
    assert found.culprit == "C"
    assert found.residuals[2] < -3


def test_power_under_independent_draws_is_that_of_the_noncentral_chi_squared() -> None:
    tests, rows = 4000, 60_000
    weights = np.full((tests, 3), 1 / 3)
    counts = np.random.default_rng(4).multinomial(rows, weights)
    counts[:, 1] = np.random.default_rng(5).binomial(counts[:, 1], 0.98)
    p = srm_p_values([LoggedSegment(Segment(weights, counts.sum(axis=1)), counts)])
    shares = np.array([1, 0.98, 1]) / 2.98
    shift = rows * 2.98 / 3 * ((shares - 1 / 3) ** 2 * 3).sum()
    power = ncx2.sf(chi2.isf(0.01, 2), 2, shift)
    assert abs((p < 0.01).mean() - power) < norm.isf(5e-5) * np.sqrt(power * (1 - power) / tests)


def test_own_probabilities_suffice_if_they_are_constant() -> None:
    arms = np.repeat([0, 1], [2600, 7400])
    p = np.where(arms == 0, 0.25, 0.75)
    found = srm_from_propensities(["A", "B"], arms, p)
    z = 100 / np.sqrt(10_000 * 0.25 * 0.75)
    np.testing.assert_allclose(np.abs(found.residuals), z, rtol=0.05)
    np.testing.assert_allclose(found.residuals, [z, -z])
    assert found.p_value == pytest.approx(2 * 2 * norm.sf(z))


def test_own_probabilities_do_not_cry_wolf_when_they_adapt() -> None:
    rng, alarms, tests, T = np.random.default_rng(6), np.zeros(2), 2000, 1000
    for _ in range(tests):
        first = rng.integers(3, size=T // 2)
        lead = np.bincount(first, minlength=3).argmax()  # the second half follows the first
        w = np.full(3, 0.1)
        w[lead] = 0.8
        second = rng.choice(3, p=w, size=T // 2)
        p = np.concatenate([np.full(T // 2, 1 / 3), w[second]])
        found = srm_from_propensities(ABC, np.concatenate([first, second]), p)
        alarms += [found.p_value < 0.05, found.p_value < 0.01]
    assert alarms[0] <= most_alarms(0.05, tests)
    assert alarms[1] <= most_alarms(0.01, tests)


def test_own_probabilities_find_a_loss_and_say_what_they_cannot() -> None:
    rng = np.random.default_rng(7)
    arms = rng.choice(2, p=[0.3, 0.7], size=40_000)
    arms = arms[(arms == 1) | (rng.random(len(arms)) < 0.9)]
    found = srm_from_propensities(ABC, arms, np.where(arms == 0, 0.3, 0.7))
    assert found.culprit in ("A", "B")
    assert found.p_value < 1e-6
    assert found.verdict.endswith("nothing can be said of: C.")


def test_what_is_lacking_is_said_in_visits() -> None:
    """Also under changing probabilities: a tenth of B's rows lost, of each kind."""
    p = np.repeat([0.5, 0.8, 0.5, 0.2], [5000, 8000, 4500, 1800])
    arms = np.repeat([0, 0, 1, 1], [5000, 8000, 4500, 1800])
    verdict = srm_from_propensities(["A", "B"], arms, p).verdict
    # A's 13,000 rows stand for 20,000 of 19,300 rows: 13,000 * 19,300 / 20,000 would be right
    assert verdict.startswith("A got 13,000 of 19,300 visits, about 455 more than it should (")
    few = srm_test(["A", "B"], [logged([0.5, 0.5], [30, 8])]).verdict
    assert few.startswith("B got 8 of 38 visits, about 11 fewer than it should (")
