"""The drift report: estimates by period, tests that hold their level."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.stats import binom, f_oneway

import steadyarm as sa
from steadyarm.errors import InvalidInputError
from steadyarm.inference import drift as drift_module
from steadyarm.inference.drift import (
    MILESTONES,
    Allocations,
    Periods,
    drift_p_values,
    drift_report,
    group_pieces,
    variation,
)
from steadyarm.inference.evidence import Evidence
from steadyarm.segments import Segment, SegmentStats
from tests.inference.worlds import first_pieces, members, played

Log = list[tuple[Segment, SegmentStats]]
FIVE = sa.ArmSet.one_hot(list("ABCDE"))


def evidence_of(
    policy: sa.Policy[Any], world: sa.Environment, tests: int = 1, seed: int = 1
) -> Evidence:
    log = played(policy, world, tests, seed, pieces=None)
    return Evidence.from_segments(world.arms, log, world.direction)


def moving(
    shift: NDArray[np.float64] | list[float], budget: int = 3000, sd: float = 0.5
) -> sa.Environment:
    """Five arms whose means change by `shift` in the second half."""
    base = np.array([0.5, 0.4, 0.3, 0.2, 0.1])
    rows = np.stack([base, base + np.asarray(shift)])
    means = np.repeat(rows, [budget // 2, budget - budget // 2], axis=0)
    return sa.Environment.from_means(FIVE, means, sa.GaussianNoise(sd))


def by_hand(direction: str = "maximize") -> Evidence:
    """Two arms, four pieces of 100 rounds."""
    scores = np.array([[[10.0, 30.0], [20.0, 30.0], [60.0, 10.0], [80.0, 20.0]]])
    squares = np.tile(400 * np.eye(2), (1, 4, 1, 1))
    arms = sa.ArmSet.one_hot(["A", "B"])
    return Evidence(arms, np.full((1, 4), 100), scores, squares, direction=direction)  # type: ignore[arg-type]  # a plain str


def test_estimates_of_periods_are_mean_scores() -> None:
    report = drift_report(by_hand(), periods=2)
    np.testing.assert_allclose(report.estimates, [[0.15, 0.3], [0.7, 0.15]])
    np.testing.assert_allclose(report.errors[0, 0] ** 2, (800 / 200 - 0.15**2) / 199)
    assert report.periods == ("0% to 50%", "50% to 100%")
    assert report.best == "A"
    assert report.leaders == ("B", "A")
    np.testing.assert_allclose(report.gaps, [[0, -0.15], [0, 0.55]])
    weighted = report.rounds @ report.estimates / report.rounds.sum()
    np.testing.assert_allclose(weighted, by_hand().estimates[0])


def test_the_verdict_says_who_was_ahead_and_when() -> None:
    report = replace(drift_report(by_hand(), periods=2), gap_p_value=0.001)
    assert " A is best on average, but B was ahead in 0% to 50%. " in report.verdict
    days = replace(report, periods=("2026-01-03", "2026-01-04"))
    assert "but B was ahead on 2026-01-03. " in days.verdict
    more = replace(days, names=("A", "B", "C"), leaders=("B", "C"))
    assert "but B was ahead on 2026-01-03, C on 2026-01-04. " in more.verdict


def test_small_rewards_may_be_the_good_ones() -> None:
    report = drift_report(by_hand("minimize"), periods=2)
    assert report.best == "B"
    assert report.leaders == ("A", "B")
    np.testing.assert_allclose(report.gaps, [[-0.15, 0], [0.55, 0]])


def test_with_equal_variances_it_is_the_analysis_of_variance() -> None:
    base = np.array([0.3, -1.1, 0.8, 0.0, 0.5, -0.5])
    samples = [base + shift for shift in (1.0, 1.6, 0.9)]
    grouped = Periods(
        ("a", "b", "c"),
        np.full((1, 3), 6),
        np.array([[[x.mean()] for x in samples]]),
        np.array([[[[x.var(ddof=1) / 6]] for x in samples]]),
        np.full((1, 3), 6),
        "rounds",
        np.arange(3)[None],
    )
    found, known = variation(grouped, np.ones((1, 1, 1))), f_oneway(*samples)
    assert found.statistic[0, 0] == pytest.approx(known.statistic)
    assert found.freedom[0, 0].tolist() == pytest.approx([2, 15])
    assert found.p_value[0, 0] == pytest.approx(known.pvalue)


def test_the_traces_are_those_of_the_whole_matrix() -> None:
    """Expectation and variance of the statistic, from the stacked means and one large matrix."""
    rng = np.random.default_rng(4)
    P, r, N = 3, 4, np.array([[30, 50, 20]])
    roots = rng.normal(size=(1, P, r, r))
    covariance = roots @ roots.swapaxes(2, 3) / N[..., None, None]
    roots = rng.normal(size=(1, P, r, r))
    inverse = roots @ roots.swapaxes(2, 3) + np.eye(r)
    theta, many = rng.normal(size=(1, P, r)), np.full((1, P), 10**9)
    grouped = Periods(("a", "b", "c"), N, theta, covariance, many, "pieces", np.arange(3)[None])
    plays = np.ones((1, P, r))
    design = Allocations(inverse, inverse, plays, plays)
    D = rng.normal(size=(2, r))
    found = variation(grouped, D[None], design)
    W = [np.linalg.inv(D @ inverse[0, p] @ D.T / N[0, p]) for p in range(P)]
    total, stacked = np.linalg.inv(sum(W)), np.vstack(W)
    M = block_diag(*W) - stacked @ total @ stacked.T
    z = np.concatenate([D @ theta[0, p] for p in range(P)])
    MS = M @ block_diag(*(D @ covariance[0, p] @ D.T for p in range(P)))
    assert found.statistic[0, 0] == pytest.approx(z @ M @ z / np.trace(MS))
    assert found.freedom[0, 0, 0] == pytest.approx(np.trace(MS) ** 2 / np.trace(MS @ MS))


class CentredGBAI(sa.GBAI):
    """G-BAI in many pieces whose rewards are compared with the estimate so far."""

    centred: ClassVar[bool] = True
    pieces: ClassVar[int] = 48


LAYOUTS = sa.ArmSet.factorial({name: ["off", "on"] for name in "abc"})
STILL = {
    "Gaussian": moving(np.zeros(5), 1200),
    "clicks": sa.Environment.from_means(
        FIVE, [0.1, 0.08, 0.05, 0.05, 0.02], sa.BernoulliReward(), budget=2000
    ),
    "layouts": sa.Environment.from_parameters(
        LAYOUTS, np.linspace(-0.2, 0.3, LAYOUTS.dimension), sa.GaussianNoise(0.5), budget=1500
    ),
}


@pytest.mark.parametrize("world", STILL)
@pytest.mark.parametrize(
    "policy",
    [
        sa.P1RAGE(),
        sa.Steady(),
        CentredGBAI(),
        CentredGBAI(order="blocks", block=11),
    ],
    ids=["P1-RAGE", "Steady", "references", "uneven blocks"],
)
def test_nothing_moves_and_alarms_are_rare(policy: sa.Policy[Any], world: str) -> None:
    tests = 1000
    evidence = evidence_of(policy, STILL[world], tests, seed=7)
    for p in drift_p_values(evidence, 4):
        for level in (0.05, 0.01):
            assert (p < level).sum() <= binom.isf(1e-4, tests, level)
        assert (p < 0.2).mean() > 0.03  # and they do come


@pytest.mark.parametrize("policy", [sa.P1RAGE(), sa.Steady()], ids=["P1-RAGE", "Steady"])
def test_a_common_shift_is_told_from_moving_gaps(policy: sa.Policy[Any]) -> None:
    tests = 400
    gap, level = drift_p_values(evidence_of(policy, moving(np.full(5, 0.5)), tests), 3)
    assert (level < 0.05).mean() > 0.95
    assert (gap < 0.05).sum() <= binom.isf(1e-4, tests, 0.05)
    turn = [-0.4, 0.4, 0.4, -0.2, -0.2]  # the average over arms stays
    gap, level = drift_p_values(evidence_of(policy, moving(turn), tests), 3)
    assert (gap < 0.05).mean() > 0.95


def test_the_verdict_says_harmless_or_not() -> None:
    calm = drift_report(evidence_of(sa.Steady(), moving(np.zeros(5)), seed=2))
    assert not calm.gaps_move
    assert "does not prove that there is none" in calm.verdict
    shifted = drift_report(evidence_of(sa.Steady(), moving(np.full(5, 1.0))))
    assert shifted.level_moves
    assert "This alone does not affect the comparison" in shifted.verdict
    turned = drift_report(evidence_of(sa.Steady(), moving([-0.8, 0.3, 0.3, 0.1, 0.1])))
    assert turned.gaps_move
    assert "most clearly for A" in turned.verdict
    assert "A was ahead in 0% to 25%" in turned.verdict  # where it was ahead


def test_intervals_of_all_periods_and_arms_hold_at_once() -> None:
    world, covered, tests = moving([-0.4, 0.4, 0.0, 0.2, -0.2], 1500), 0, 300
    batch = evidence_of(sa.Steady(), world, tests, seed=3)
    assert batch.within is not None
    for i in range(tests):
        one = replace(members(batch, slice(i, i + 1)), weights=None)
        report = drift_report(one, periods=2)
        ends = np.concatenate([[0], np.cumsum(report.rounds)])
        truth = np.stack([world.means[a:b].mean(axis=0) for a, b in pairwise(ends)])
        low, high = report.intervals[..., 0], report.intervals[..., 1]
        covered += bool(((low <= truth) & (truth <= high)).all())
    assert covered >= binom.ppf(1e-4, tests, 0.95)


def test_one_period_says_nothing() -> None:
    report = drift_report(by_hand(), periods=1)
    assert report.gap_p_value == report.level_p_value == 1
    assert report.verdict == "There is only one period, so drift cannot be tested."


def test_rewards_that_never_vary_are_no_drift() -> None:
    arms = sa.ArmSet.one_hot(["A", "B"])
    half = Segment(np.array([[0.5, 0.5]]), np.array([10]), "blocks", 10)
    stats = SegmentStats(np.array([[5, 5]]), np.array([[5.0, 0.0]]), np.array([[5.0, 0.0]]))
    report = drift_report(Evidence.from_segments(arms, [(half, stats)] * 6), periods=3)
    assert report.gap_p_value == 1


def test_a_period_of_one_round_is_shown_but_not_tested() -> None:
    evidence = evidence_of(sa.P1RAGE(), moving(np.zeros(5)))
    report = drift_report(evidence, periods=list(range(evidence.rounds.shape[1])))
    assert report.rounds[0] == 1
    assert np.isnan(report.errors[0]).all()
    assert np.isinf(report.intervals[0]).all()
    wild = replace(evidence, scores=evidence.scores + 1e3 * (evidence.rounds == 1)[:, :, None])
    again = drift_report(wild, periods=list(range(evidence.rounds.shape[1])))
    np.testing.assert_array_equal(again.arm_p_values, report.arm_p_values)
    assert 0 < report.arm_p_values.min() < report.arm_p_values.max() < 1
    assert json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: drift_report(by_hand(), periods=["a"]), "1 labels, but the evidence has 4"),
        (lambda: drift_report(by_hand(), periods=0), "at least 1"),
        (lambda: drift_report(by_hand(), periods=2.5), "whole number"),  # type: ignore[arg-type]  # the point of the test
        (lambda: drift_report(by_hand(), level=95), "between 0 and 1"),
        (lambda: drift_report(by_hand(), budget=0), "budget is 0"),
        (lambda: drift_report(evidence_of(sa.GBAI(), STILL["clicks"], 2)), "batch of 2"),
        (lambda: group_pieces(by_hand(), True), "periods is True"),
    ],
)
def test_errors_say_what_is_wrong(call: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        call()


@pytest.mark.parametrize("policy", [sa.Steady(), sa.P1RAGE()], ids=["Steady", "P1-RAGE"])
@pytest.mark.parametrize("world", STILL)
def test_a_world_that_stands_still_is_rarely_called_moving_at_any_look(
    policy: sa.Policy[Any], world: str
) -> None:
    """The last look has the alarms of all looks, so that one p-value is that of all of them."""
    tests, where = 400, STILL[world]
    evidence = evidence_of(policy, where, tests, seed=11)
    gap, level = drift_p_values(evidence, 4, budget=where.budget)
    assert (np.minimum(gap, level) < 0.05).sum() <= binom.isf(1e-4, tests, 0.05)
    cried = np.zeros(tests, dtype=bool)
    J = evidence.rounds.shape[1]
    for pieces in range(J, 0, -max(J // 6, 1))[::-1]:
        now = drift_p_values(first_pieces(evidence, pieces), 4, budget=where.budget)
        alarm = np.minimum(*now) < 0.05
        assert (alarm | ~cried).all()  # an alarm once raised stays
        cried = alarm
    np.testing.assert_array_equal(cried, np.minimum(gap, level) < 0.05)


def test_two_clicks_in_two_plays_are_no_proof_of_drift() -> None:
    """As rewards of one arm in one piece they do not differ, so that piece shows no noise."""
    arms, tests = sa.ArmSet.one_hot([f"arm {k}" for k in range(20)]), 600
    rates = np.linspace(0.02, 0.06, 20)
    world = sa.Environment.from_means(arms, rates, sa.BernoulliReward(), budget=600)
    evidence = evidence_of(sa.Steady(), world, tests)
    for budget in (None, 600):
        gap, level = drift_p_values(evidence, budget=budget)
        for alpha in (0.05, 0.01):
            assert (np.minimum(gap, level) < alpha).sum() <= binom.isf(1e-4, tests, alpha)


def test_milestones_and_tests_share_the_error_probability() -> None:
    assert sum(weight for _, weight in MILESTONES) == pytest.approx(1)
    evidence = evidence_of(sa.Steady(), moving([-0.3, 0.1, 0.1, 0.0, 0.1], 3000), tests=20)
    found = []
    for share, weight in MILESTONES:
        pieces = int(np.argmax(np.cumsum(evidence.rounds[0]) >= share * 3000)) + 1
        prefix = first_pieces(evidence, pieces)
        gap, level, _ = drift_module._variations(prefix, group_pieces(prefix, 4))
        found.append((gap / weight, level / weight))
    gap, level = np.minimum(np.min(found, axis=0), 1.0)
    either = np.minimum(1, np.minimum(gap / 0.8, level / 0.2))
    got = drift_p_values(evidence, 4, budget=3000)
    np.testing.assert_allclose(got[0], np.maximum(gap, either), rtol=1e-12)
    np.testing.assert_allclose(got[1], np.maximum(level, either), rtol=1e-12)
    assert (got[0] < 0.05).any()


def test_the_verdict_says_when_drift_was_tested() -> None:
    evidence = evidence_of(sa.Steady(), moving(np.zeros(5), 3000))
    ends = np.cumsum(evidence.rounds[0])
    early = drift_report(first_pieces(evidence, 5), budget=3000)
    assert early.looks == ()
    assert early.verdict.startswith("Drift has not been tested yet")
    half = drift_report(first_pieces(evidence, int((ends < 1700).sum())), budget=3000)
    assert half.looks == (0.25, 0.5)
    assert (
        "Drift was tested at 25% and 50% of the planned visits, with 5% error over all of these "
        "tests; the next test is at 75%." in half.verdict
    )
    whole = drift_report(evidence, budget=3000)
    assert whole.looks == (0.25, 0.5, 0.75, 1.0)
    assert whole.verdict.endswith("of the planned visits, with 5% error over all of these tests.")
    short = drift_report(first_pieces(evidence, int((ends < 2800).sum())), budget=3000, ended=True)
    assert short.looks == (0.25, 0.5, 0.75, 1.0)
    assert drift_report(evidence).looks is None
    assert "planned" not in drift_report(evidence).verdict
