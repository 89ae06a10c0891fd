"""What sessions conclude: intervals under drift, lifts, missing rewards, health."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import steadyarm as sa
from steadyarm.inference.health import HealthReport
from steadyarm.live.scorecard import compute_scorecard
from steadyarm.planning.question import EqualSplit
from steadyarm.segments import Direction
from tests.live.worlds import ARMS, create, play, reward

AB = sa.ArmSet.one_hot(["A", "B"])
ABC = sa.ArmSet.one_hot(["A", "B", "C"])


def test_nothing_is_recommended_from_nothing() -> None:
    session = sa.Session(sa.GBAI(), ARMS, budget=3)
    session.ask()
    with pytest.raises(sa.RewardsPendingError, match="no reward has been reported"):
        session.recommend()


@pytest.mark.parametrize("delay", [0, 25])
@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        (sa.GBAI(), 30),
        (sa.P1RAGE(), 30),
        (sa.Uniform(), 30),
        (sa.Steady(), 30),
        (sa.P1(), 12),  # these decide in every round
        (sa.P1RAGE(updates="rounds"), 12),
    ],
    ids=["G-BAI", "P1-RAGE", "Uniform", "Steady", "P1", "P1-RAGE by rounds"],
)
def test_intervals_cover_all_arms_at_once_under_drift(
    policy: sa.Policy[Any], runs: int, delay: int
) -> None:
    """Many tests in a drifting, noisy world, with rewards that come `delay` assignments late."""
    T, level = 200, 0.9
    t = np.arange(T)[:, None]
    means = np.array([0.3, 0.2, 0.1]) + 0.5 * np.sin(2 * np.pi * t / 75 + np.array([0, 1, 2]))
    truth = means.mean(axis=0)
    covered = 0
    for run in range(runs):
        rng = np.random.default_rng(run)
        session = sa.Session(policy, ABC, budget=T, seed=run)
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
    high = play(sa.Session(policy, ARMS, budget=500, seed=8))
    low = sa.Session(policy, ARMS, budget=500, seed=8, direction="minimize")
    play(low, lambda a: -reward(a))
    up, down = high.recommend(), low.recommend()
    assert (up.arm, up.plausible) == (down.arm, down.plausible)
    np.testing.assert_allclose(down.estimates, -up.estimates)
    np.testing.assert_allclose(down.intervals, -up.intervals[:, ::-1])
    np.testing.assert_allclose(down.gap_intervals, up.gap_intervals, atol=1e-12)
    np.testing.assert_allclose(low.drift().estimates, -high.drift().estimates)
    assert low.drift().gap_p_value == pytest.approx(high.drift().gap_p_value)


def test_policies_that_leave_variants_out_promise_less() -> None:
    session = play(sa.Session(sa.Peace(), ARMS, budget=300, seed=1))
    verdict = session.recommend()
    assert "No drift" in verdict.assumption
    assert verdict.name in verdict.plausible
    for refused in (session.evidence, session.drift, lambda: session.recommend(anytime=True)):
        with pytest.raises(sa.InvalidInputError, match="leaves variants out"):
            refused()


@pytest.mark.parametrize("policy", [sa.Steady(), sa.GBAI(), sa.P1RAGE()])
@pytest.mark.parametrize("forgotten", [True, False])
def test_a_variant_that_loses_rewards_by_chance_is_not_taken_for_worse(
    policy: sa.Policy[Any], forgotten: bool
) -> None:
    """Two fifths of B's rewards never come; B is best by 0.3 of noise 0.3 and stays it."""
    T, told = 1500, 0
    session, rng = sa.Session(policy, ABC, budget=T, seed=2), np.random.default_rng(2)
    for _ in range(T):
        a = session.ask()
        if a.name == "B" and rng.random() < 0.4:
            if forgotten:
                session.forget(a)
        else:
            told += 1
            session.tell(a, 1.0 + (0.3 if a.name == "B" else 0.0) + 0.3 * rng.standard_normal())
    pending = session.pending
    assert len(pending) == (0 if forgotten else T - told)
    other = sa.Session.from_json(session.to_json())
    session.finish()
    for number in pending:
        other.forget(number)
    assert np.array_equal(other.recommend().intervals, session.recommend().intervals)
    verdict = session.recommend()
    assert (verdict.name, verdict.sure) == ("B", False)  # one variant loses its rewards
    assert verdict.unhealthy.startswith("Not healthy: do not decide yet. B misses")
    assert (verdict.intervals[:, 0] < [1.0, 1.3, 1.0]).all()
    assert (verdict.intervals[:, 1] > [1.0, 1.3, 1.0]).all()
    assert (verdict.rewards, verdict.missing) == (told, T - told)
    assert f"{T - told} missing" in str(verdict)
    report = session.health()
    assert (report.status, "B misses" in str(report)) == ("fail", True)
    assert session.pending == ()


def test_rewards_that_are_late_because_they_are_low_do_not_raise_estimates() -> None:
    """Clicks are told at once, their absence 300 rounds later; the look comes midway."""
    missed = 0
    for seed in range(20):
        session, rng = sa.Session(sa.Steady(), AB, 3000, seed=seed), np.random.default_rng(seed)
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
    session = play(sa.Session(sa.Steady(), ARMS, budget=300, seed=1, direction="minimize"))
    with pytest.raises(sa.InvalidInputError, match="for intervals that hold at all times"):
        session.recommend(anytime=False, reward_range=(0, 1))
    assert session.recommend(anytime=True, reward_range=(-2, 3)).anytime
    for each in (session, sa.Session.from_json(session.to_json())):
        with pytest.raises(sa.InvalidInputError, match=r"but rewards from .* were recorded"):
            each.recommend(anytime=True, reward_range=(0.4, 0.5))


@pytest.mark.parametrize(("direction", "best"), [("maximize", "B"), ("minimize", "A")])
def test_a_policy_without_standard_errors_gets_estimates_and_no_intervals(
    direction: Any, best: str
) -> None:
    session = sa.Session(EqualSplit(), AB, budget=40, seed=1, direction=direction)
    verdict = play(session, lambda a: 0.25 + 0.5 * a.arm).recommend()
    assert verdict.name == best
    assert verdict.estimates.tolist() == [0.25, 0.75]
    assert np.isnan(verdict.standard_errors).all()
    assert np.isinf(verdict.intervals).all()
    assert (verdict.plausible, verdict.sure) == (("A", "B"), False)
    assert verdict.of("A").gap == (0.0 if best == "A" else 0.5)
    assert verdict.assumption.startswith("A/B-test gives no standard errors")
    assert "(no interval: the policy gives no standard errors)" in str(verdict)
    with pytest.raises(sa.InvalidInputError, match="'A/B-test', a policy of your own; give"):
        sa.Session.from_json(session.to_json())
    again = sa.Session.from_json(session.to_json(), policy=EqualSplit())
    assert again.recommend().name == best


# Lifts over a control

NAMES = ("control", "guest", "video")


def compared(control: Any = "control", rounds: int = 3000, **given: Any) -> sa.Session:
    """A session that was played to its end; guest is better by a third."""
    rules: dict[str, Any] = {"policy": sa.Steady(), "seed": 1} | given
    session = sa.Session(arms=sa.ArmSet.one_hot(NAMES), budget=3000, control=control, **rules)
    rng = np.random.default_rng(1)
    return play(session, lambda a: float(rng.random() < 0.3 + 0.1 * (a.name == "guest")), rounds)


def test_a_verdict_says_how_variants_differ_from_the_control() -> None:
    found = compared().recommend()
    np.testing.assert_allclose(found.lifts, found.estimates - found.estimates[0], atol=1e-12)
    guest, control = found.of("guest"), found.of("control")
    assert guest.lift == pytest.approx(0.1, abs=0.04)
    assert guest.relative == pytest.approx(guest.lift / control.estimate)
    assert min(guest.lift_low, guest.relative_low) > 0
    assert (control.lift, control.lift_low, control.lift_high) == (0.0, 0.0, 0.0)
    assert (found.decision.word, found.decision.variant) == ("ship", "guest")
    assert f"Against control: +{guest.relative:.0%}".replace("%", " %") in str(found)


def test_interim_lifts_are_wider_and_spend_a_fifth() -> None:
    live = compared(rounds=1500)
    usual, whole = live.recommend(), live.recommend(anytime=True)
    assert usual.anytime
    width = np.ptp(usual.lift_intervals, axis=1)[1:]
    assert (width > np.ptp(whole.lift_intervals, axis=1)[1:]).all()
    level = live.recommend(0.99, anytime=True)
    np.testing.assert_allclose(usual.lift_intervals, level.lift_intervals, rtol=1e-6)


@pytest.mark.parametrize("policy", [sa.Peace(), sa.LinearThompson()])
def test_biased_policies_give_lifts_of_their_own_errors(policy: sa.Policy[Any]) -> None:
    found = compared(policy=policy).recommend()
    known = ~np.isnan(found.lifts)
    low, high = found.lift_intervals[known].T
    assert ((low <= found.lifts[known]) & (found.lifts[known] <= high)).all()
    z, errors = 2.2414, np.nan_to_num(found.standard_errors, nan=np.inf)  # two comparisons
    reach = z * (errors + errors[0])
    reach[0] = 0.0
    np.testing.assert_allclose((high - low) / 2, reach[known], rtol=1e-4)
    relative = found.relative_intervals
    apart = (found.lift_intervals[:, 0] > 0) == (relative[:, 0] > 0)
    assert apart[~np.isnan(relative[:, 0])].all()


def test_a_verdict_becomes_a_data_frame() -> None:
    pandas, polars = import_module("pandas"), import_module("polars")
    found = compared().recommend()
    frame, other = found.to_pandas(), found.to_polars()
    assert (type(frame), type(other)) == (pandas.DataFrame, polars.DataFrame)
    assert list(frame.columns) == other.columns
    assert frame["name"].tolist() == list(NAMES)
    assert frame["recommended"].tolist() == [False, True, False]
    np.testing.assert_array_equal(frame["lift"], found.lifts)
    np.testing.assert_array_equal(other["relative_high"].to_numpy()[1], frame["relative_high"][1])
    bare = compared(control=None).recommend().to_pandas()
    assert list(bare.columns) == list(frame.columns)
    assert np.isnan(bare["lift"]).all()


# One unit that carries a large part of the variance


def outliers(report: HealthReport) -> list[Any]:
    return [finding for finding in report.findings if finding.name == "outliers"]


def run(test: sa.Experiment, rewards: Sequence[float]) -> HealthReport:
    for first in range(0, len(rewards), 20):
        shown: Any = test.ask_many([f"user {k}" for k in range(first, first + 20)])
        test.tell_many(zip(shown, rewards[first:], strict=False))
    return test.health()


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_bot_is_named(direction: Direction) -> None:
    rewards = [float(r) for r in np.random.default_rng(3).poisson(1.0, 2000)]
    rewards[700] = 1000.0
    session = sa.Session(sa.Steady(), AB, budget=2000, seed=1, direction=direction)
    play(session, lambda a: rewards[a.number])
    metric = sa.Metric("orders", "primary", "count", direction=direction, missing="drop")
    live = create(arms=AB, budget=2000, seed=1, metrics=[metric], missing=None)
    run(live, rewards)
    test: sa.Session | sa.Experiment
    for test, who in ((session, "with a reward of 1000"), (live, "user 700")):
        [found] = outliers(test.health())
        assert found.status == "warn"
        assert f"One unit ({who}) accounts for 100 % of the variance of" in found.explanation
        assert "Declare a cap or exclude the unit" in found.advice
        # Limits that are refused tell nothing of the time left.
        assert test.recommend().decision.more is None
    card, verdict = compute_scorecard(live).verdict, live.recommend()
    assert card is not None
    assert (verdict.intervals >= 0).all()  # rewards are counts
    assert np.array_equal(card.intervals, verdict.intervals)
    live.exclude(unit="user 700", reason="a bot")
    [found] = outliers(live.health())
    assert found.status == "ok"


def test_few_large_orders_are_no_outliers_live_and_in_the_log(tmp_path: Path) -> None:
    test = create(arms=AB, budget=2000, seed=1)
    prices = [200.0 if k in (300, 900, 1500) else 10.0 * (k % 10 == 0) for k in range(2000)]
    for report in (run(test, prices), sa.analyze(test.export(tmp_path / "shop.csv")).health):
        [found] = outliers(report)
        assert found.status == "ok"


def test_clicks_have_no_outliers() -> None:
    session = play(sa.Session(sa.Steady(), AB, 500, seed=1), lambda a: float(a.number == 7))
    assert outliers(session.health()) == []
