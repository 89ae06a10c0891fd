"""What sessions conclude: intervals under drift, missing rewards, health."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import steadyarm as sa
from steadyarm.planning.question import EqualSplit
from steadyarm.segments import Direction
from tests.live.rewards import ARMS, reward


def test_nothing_is_recommended_from_nothing() -> None:
    session = sa.Session(sa.GBAI(), ARMS, budget=3)
    session.ask()
    with pytest.raises(sa.RewardsPendingError, match="no reward has been reported"):
        session.recommend()


@pytest.mark.parametrize("delay", [0, 25])
@pytest.mark.parametrize(
    "policy",
    [
        sa.GBAI(),
        sa.P1RAGE(),
        sa.Uniform(),
        sa.P1(),
        sa.P1RAGE(updates="rounds"),
        sa.Steady(),
    ],
    ids=[
        "G-BAI",
        "P1-RAGE",
        "Uniform",
        "P1",
        "P1-RAGE by rounds",
        "Steady",
    ],
)
def test_intervals_cover_all_arms_at_once_under_drift(policy: sa.Policy[Any], delay: int) -> None:
    """Many tests in a drifting, noisy world, with rewards that come `delay` assignments late."""
    every_round = isinstance(policy, sa.P1) or policy.to_dict().get("updates") == "rounds"
    T, runs, level = 200, 12 if every_round else 30, 0.9
    arms = sa.ArmSet.one_hot(["A", "B", "C"])
    t = np.arange(T)[:, None]
    means = np.array([0.3, 0.2, 0.1]) + 0.5 * np.sin(2 * np.pi * t / 75 + np.array([0, 1, 2]))
    truth = means.mean(axis=0)
    covered = 0
    for run in range(runs):
        rng = np.random.default_rng(run)
        session = sa.Session(policy, arms, budget=T, seed=run)
        late: list[tuple[sa.Assignment, float]] = []
        for i in range(T):
            a = session.ask()
            late.append((a, means[i, a.arm] + 0.5 * rng.standard_normal()))
            if len(late) > delay:
                session.tell(*late.pop(0))
        for pair in late:
            session.tell(*pair)
        low, high = session.recommend(level).intervals.T
        covered += bool(((low <= truth) & (truth <= high)).all())
    assert binom.cdf(covered, runs, level) > 1e-3, f"covered {covered} of {runs}"


@pytest.mark.parametrize("policy", [sa.Steady(), sa.P1RAGE(), sa.P1(), sa.Uniform()])
def test_minimizing_is_maximizing_the_negative(policy: sa.Policy[Any]) -> None:
    """All that a session says of costs is what it says of their negative, turned."""
    high = sa.Session(policy, ARMS, budget=500, seed=8)
    low = sa.Session(policy, ARMS, budget=500, seed=8, direction="minimize")
    for _ in range(500):
        a, b = high.ask(), low.ask()
        assert a == b
        high.tell(a, reward(a))
        low.tell(b, -reward(b))
    up, down = high.recommend(), low.recommend()
    assert up.arm == down.arm
    assert up.plausible == down.plausible
    np.testing.assert_allclose(down.estimates, -up.estimates)
    np.testing.assert_allclose(down.intervals, -up.intervals[:, ::-1])
    np.testing.assert_allclose(down.gap_intervals, up.gap_intervals, atol=1e-12)
    np.testing.assert_allclose(low.drift().estimates, -high.drift().estimates)
    assert low.drift().gap_p_value == pytest.approx(high.drift().gap_p_value)


def test_policies_that_leave_variants_out_promise_less() -> None:
    session = sa.Session(sa.Peace(), ARMS, budget=300, seed=1)
    with contextlib.suppress(sa.BudgetSpentError):
        while True:
            a = session.ask()
            session.tell(a, reward(a))
    verdict = session.recommend()
    assert "No drift" in verdict.assumption
    assert verdict.name in verdict.plausible
    for refused in (session.evidence, session.drift):
        with pytest.raises(sa.InvalidInputError, match="leaves variants out"):
            refused()
    with pytest.raises(sa.InvalidInputError, match="leaves variants out"):
        session.recommend(anytime=True)


@pytest.mark.parametrize("policy", [sa.Steady(), sa.GBAI(), sa.P1RAGE()])
@pytest.mark.parametrize("forgotten", [True, False])
def test_a_variant_that_loses_rewards_by_chance_is_not_taken_for_worse(
    policy: sa.Policy[Any], forgotten: bool
) -> None:
    """Two fifths of B's rewards never come; B is best by 0.3 of noise 0.3 and stays it."""
    arms, T = sa.ArmSet.one_hot(["A", "B", "C"]), 1500
    session, rng = sa.Session(policy, arms, budget=T, seed=2), np.random.default_rng(2)
    told = 0
    for _ in range(T):
        a = session.ask()
        if a.name == "B" and rng.random() < 0.4:
            if forgotten:
                session.forget(a)
        else:
            told += 1
            session.tell(a, 1.0 + (0.3 if a.name == "B" else 0.0) + 0.3 * rng.standard_normal())
    if not forgotten:
        assert len(session.pending) == T - told
        session.finish()
    verdict = session.recommend()
    assert verdict.name == "B"
    assert not verdict.sure  # it may be true, but one variant loses its rewards
    assert verdict.unhealthy.startswith("Not healthy: do not decide yet. B misses")
    assert (verdict.intervals[:, 0] < [1.0, 1.3, 1.0]).all()
    assert (verdict.intervals[:, 1] > [1.0, 1.3, 1.0]).all()
    assert (verdict.rewards, verdict.missing) == (told, T - told)
    assert f"{T - told} missing" in str(verdict)
    report = session.health()
    assert report.status == "fail"
    assert "B misses" in str(report)
    assert session.pending == ()


def test_rewards_that_are_late_because_they_are_low_do_not_raise_estimates() -> None:
    """Clicks are told at once, their absence 300 rounds later; the look comes midway."""
    arms, T = sa.ArmSet.one_hot(["A", "B"]), 3000
    missed = 0
    for seed in range(20):
        session, rng = (
            sa.Session(sa.Steady(), arms, budget=T, seed=seed),
            np.random.default_rng(seed),
        )
        late: list[tuple[int, sa.Assignment]] = []
        for i in range(1500):
            a = session.ask()
            if rng.random() < 0.1:
                session.tell(a, 1.0)
            else:
                late.append((i + 300, a))
            while late and late[0][0] <= i:
                session.tell(late.pop(0)[1], 0.0)
        low, high = session.recommend().intervals.T
        missed += bool(((low > 0.1) | (high < 0.1)).any())
    assert missed <= 4  # binom.ppf(0.999, 20, 0.05)


def test_the_range_of_rewards_is_checked() -> None:
    session = sa.Session(sa.Steady(), ARMS, budget=300, seed=1, direction="minimize")
    for _ in range(300):
        a = session.ask()
        session.tell(a, reward(a))
    with pytest.raises(sa.InvalidInputError, match="for intervals that hold at all times"):
        session.recommend(anytime=False, reward_range=(0, 1))
    with pytest.raises(sa.InvalidInputError, match=r"but rewards from .* were recorded"):
        session.recommend(anytime=True, reward_range=(0.4, 0.5))
    assert session.recommend(anytime=True, reward_range=(-2, 3)).anytime
    again = sa.Session.from_json(session.to_json())
    with pytest.raises(sa.InvalidInputError, match=r"but rewards from .* were recorded"):
        again.recommend(anytime=True, reward_range=(0.4, 0.5))


def test_a_policy_without_standard_errors_gets_estimates_and_no_intervals() -> None:
    directions: tuple[tuple[Direction, str], ...] = (("maximize", "B"), ("minimize", "A"))
    for direction, best in directions:
        arms = sa.ArmSet.one_hot(["A", "B"])
        session = sa.Session(EqualSplit(), arms, budget=40, seed=1, direction=direction)
        for _ in range(40):
            a = session.ask()
            session.tell(a, 0.25 + 0.5 * a.arm)
        verdict = session.recommend()
        assert verdict.name == best
        assert verdict.estimates.tolist() == [0.25, 0.75]
        assert np.isnan(verdict.standard_errors).all()
        assert verdict.intervals.tolist() == [[-math.inf, math.inf]] * 2
        assert verdict.plausible == ("A", "B")
        assert not verdict.sure
        assert verdict.of("A").gap == (0.0 if best == "A" else 0.5)
        assert "no standard errors" in verdict.method
        assert verdict.assumption.startswith("A/B-test gives no standard errors")
        assert "(no interval: the policy gives no standard errors)" in str(verdict)
        with pytest.raises(sa.InvalidInputError, match=r"'A/B-test', a policy of your own; give"):
            sa.Session.from_json(session.to_json())
        again = sa.Session.from_json(session.to_json(), policy=EqualSplit())
        assert again.recommend().name == best
