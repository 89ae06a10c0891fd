"""Sample-ratio mismatch: nulls worked out by hand, alarms at their rate."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chi2, ncx2, norm

import steadyarm as sa
from benchmarks.coverage_srm import srm_p_values
from steadyarm.inference.health import (
    CountTest,
    LoggedSegment,
    assignment_balance,
    srm_from_sums,
    srm_test,
)
from steadyarm.segments import Segment
from tests.inference.logs import ABC, logged, most_alarms
from tests.inference.worlds import played

Floats = NDArray[np.float64]
Log = list[tuple[Segment, NDArray[np.int64]]]


def covariance(piece: LoggedSegment) -> NDArray[np.float64]:
    return np.asarray(assignment_balance(piece).covariance[0])


def from_propensities(names: Any, arms: Any, p: Floats) -> CountTest:
    K, largest = len(names), np.ones(len(names))
    sums: Floats = np.bincount(arms, 1 / p, K).astype(float)
    spread: Floats = np.bincount(arms, (1 / p - 1) / p, K).astype(float)
    np.maximum.at(largest, arms, 1 / p)
    return srm_from_sums(names, len(arms), sums, spread, largest, np.bincount(arms, minlength=K))


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


def test_rows_lost_alike_are_a_draw_without_replacement() -> None:
    population = [0, 0, 0, 0, 1, 1, 2, 2]
    parts = [np.bincount(part, minlength=3).tolist() for part in combinations(population, 6)]
    piece = logged([0.5, 0.25, 0.25], [3, 2, 1], drawn=[4, 2, 2])
    np.testing.assert_allclose(covariance(piece), spread(parts), atol=1e-12)
    assert piece.lost.tolist() == [2]


def test_one_lost_row_is_stated_but_no_mismatch() -> None:
    found = srm_test(ABC, [logged([0.5, 0.25, 0.25], [50, 24, 25], drawn=[50, 25, 25])])
    assert found.lost == 1
    assert found.p_value > 0.05


def test_rows_lost_in_one_arm_are_exact_evidence() -> None:
    """Whatever was drawn: the shares of the probabilities do not matter any more."""
    found = srm_test(ABC, [logged([0.4, 0.4, 0.2], [500, 242, 250], drawn=[500, 250, 250])])
    assert found.culprit == "B"
    assert found.p_value == pytest.approx(3 * 0.25**8, rel=1e-9)  # all eight by chance, three arms


def test_what_was_drawn_and_is_there_is_no_alarm() -> None:
    assert srm_test(ABC, [logged([0.5, 0.25, 0.25], [30, 60, 10], drawn=[30, 60, 10])]).p_value == 1


def test_an_arm_that_got_nobody_counts() -> None:
    found = srm_test(ABC, [logged([0.495, 0.495, 0.01], [1000, 1000, 0])])
    assert found.culprit == "C"
    assert found.p_value < 1e-4


def test_an_arm_without_a_chance_must_have_no_rows() -> None:
    found = srm_test(ABC, [logged([0.5, 0.5, 0.0], [50, 49, 1])])
    assert (found.p_value, found.culprit) == (0.0, "C")
    assert found.verdict == "Segment 0 never plays C, yet has 1 rows of it."
    assert srm_test(ABC, [logged([0.5, 0.5, 0.0], [50, 50, 0])]).p_value == 1


def test_more_rows_than_were_drawn_are_doubles() -> None:
    double = srm_test(ABC, [logged([0.5, 0.3, 0.2], [500, 300, 205], drawn=[500, 300, 200])])
    assert double.p_value == 0
    assert "1000 positions but has 1005 rows: some are duplicates" in double.verdict
    moved = srm_test(ABC, [logged([0.5, 0.3, 0.2], [500, 295, 205], drawn=[500, 300, 200])])
    assert moved.p_value == 0
    assert moved.verdict == "Segment 0 drew C 200 times, yet has 205 rows of it."


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
    log = played(policy, world, tests, seed, pieces=None)
    return [(segment, stats.counts) for segment, stats in log]


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
    tests, rng = 1500, np.random.default_rng(2)
    log = play(policy, turning(1501), tests, seed=4)
    p = srm_p_values(LoggedSegment(s, rng.binomial(c, 1 - loss), drawn=c) for s, c in log)
    for level in (0.05, 0.01, 0.001):
        assert (p < level).sum() <= most_alarms(level, tests)
    if loss:
        assert (p < 0.1).mean() > 0.05  # and they do come


def test_a_loss_in_one_arm_is_found_and_named() -> None:
    tests, rng = 200, np.random.default_rng(3)
    log = play(sa.Steady(), turning(4000), tests, seed=5)
    kept = []
    for segment, counts in log:
        left = counts.copy()
        left[:, 2] = rng.binomial(counts[:, 2], 0.98)
        kept.append(LoggedSegment(segment, left, drawn=counts))
    p = srm_p_values(kept)
    assert (p < 0.001).mean() > 0.95
    first = [
        LoggedSegment(piece.segment.trial(0), piece.assigned[:1], drawn=piece.drawn[:1])
        for piece in kept
        if piece.drawn is not None
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
    found = from_propensities(["A", "B"], arms, p)
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
        found = from_propensities(ABC, np.concatenate([first, second]), p)
        alarms += [found.p_value < 0.05, found.p_value < 0.01]
    assert alarms[0] <= most_alarms(0.05, tests)
    assert alarms[1] <= most_alarms(0.01, tests)


def test_own_probabilities_find_a_loss_and_say_what_they_cannot() -> None:
    rng = np.random.default_rng(7)
    arms = rng.choice(2, p=[0.3, 0.7], size=40_000)
    arms = arms[(arms == 1) | (rng.random(len(arms)) < 0.9)]
    found = from_propensities(ABC, arms, np.where(arms == 0, 0.3, 0.7))
    assert found.culprit in ("A", "B")
    assert found.p_value < 1e-6
    assert found.verdict.endswith(" Not tested, because the log has no rows of: C.")


def test_what_is_lacking_is_said_in_visits() -> None:
    """Also under changing probabilities: a tenth of B's rows lost, of each kind."""
    p = np.repeat([0.5, 0.8, 0.5, 0.2], [5000, 8000, 4500, 1800])
    arms = np.repeat([0, 0, 1, 1], [5000, 8000, 4500, 1800])
    verdict = from_propensities(["A", "B"], arms, p).verdict
    # A's 13,000 rows stand for 20,000 of 19,300 rows: 13,000 * 19,300 / 20,000 would be right
    assert verdict.startswith("A got 13,000 of 19,300 visits, about 455 more than it should (")
    few = srm_test(["A", "B"], [logged([0.5, 0.5], [30, 8])]).verdict
    assert few.startswith("B got 8 of 38 visits, about 11 fewer than it should (")
