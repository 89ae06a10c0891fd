from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import steadyarm as sa
from steadyarm.judgement import Judgement
from steadyarm.ledger import OpenSegment

ARMS = sa.ArmSet.factorial({"headline": ["short", "long"], "image": ["cat", "dog", "none"]})
VALUES = np.linspace(0.2, 0.7, ARMS.size)


def reward(a: Any) -> float:
    """A deterministic, jagged reward that depends on the assignment alone."""
    return float(VALUES[a.arm] + 0.3 * math.sin(7 * a.number))


def test_a_session_is_the_simulators_batch_of_one() -> None:
    """The same segments and sums through `Session` and through the policy by hand."""
    policy = sa.P1RAGE(ties="first")
    session = sa.Session(policy, ARMS, budget=400, seed=9)
    state = policy.start(ARMS, 400)
    while (segment := policy.next_segment(state)) is not None:
        parts = -(-segment.rounds[0] // 10)  # as a session cuts long ones
        segment = segment.lasting(-(-segment.rounds[0] // parts))
        counts = np.zeros((1, ARMS.size), dtype=np.int64)
        sums, squares = np.zeros((1, ARMS.size)), np.zeros((1, ARMS.size))
        for _ in range(segment.rounds[0]):
            a = session.ask()
            assert a.probability == segment.weights[0, a.arm]
            assert a.name == ARMS.names[a.arm]
            counts[0, a.arm] += 1
            sums[0, a.arm] += reward(a)
            squares[0, a.arm] += reward(a) ** 2
            session.tell(a, reward(a))
        from steadyarm.segments import SegmentStats

        state = policy.observe(state, segment, SegmentStats(counts, sums, squares))
    assert np.array_equal(session.recommend().estimates, policy.recommend(state).estimates[0])


@pytest.mark.parametrize(
    "policy", [sa.P1RAGE(), sa.MixedPeace(), sa.Peace(), sa.ODLinBAI(), sa.P1()]
)
def test_going_on_from_json_gives_the_same_run(policy: sa.Policy[Any]) -> None:
    straight = sa.Session(policy, ARMS, budget=90, seed=2)
    broken = sa.Session(policy, ARMS, budget=90, seed=2)
    for i in range(90):
        try:
            a = straight.ask()
        except sa.BudgetSpentError:
            break
        assert broken.ask() == a
        straight.tell(a, reward(a))
        if i % 7 == 3:
            broken = sa.Session.from_json(broken.to_json())
        broken.tell(a.number, reward(a))
    assert straight.to_json() == broken.to_json()
    assert np.array_equal(straight.recommend().intervals, broken.recommend().intervals)


def test_rewards_may_come_late_and_in_any_order() -> None:
    """All asked first, told backwards: one allocation throughout, and the estimate of G-BAI."""
    session = sa.Session(sa.P1RAGE(), ARMS, budget=300, seed=3)
    assignments = [session.ask() for _ in range(300)]
    assert len(session.pending) == 300
    for a in reversed(assignments):
        session.tell(a, reward(a))
    assert session.pending == ()
    design = sa.g_optimal(ARMS).weights
    A = (ARMS.features * design[:, None]).T @ ARMS.features
    scores = [np.linalg.solve(A, ARMS.features[a.arm]) * reward(a) for a in assignments]
    verdict = session.recommend()
    assert np.allclose(verdict.estimates, ARMS.features @ np.mean(scores, axis=0))
    assert verdict.rewards == 300


def test_a_late_reward_is_counted_where_its_assignment_was_drawn() -> None:
    """The estimate is the mean of scores, each with its own segment's allocation."""
    session = sa.Session(sa.P1RAGE(), ARMS, budget=500, seed=4)
    late: list[sa.Assignment] = []
    scores = []
    for i in range(500):
        a = session.ask()
        opened = session._books.current
        assert opened is not None
        w = opened.segment.weights[0]
        A = (ARMS.features * w[:, None]).T @ ARMS.features
        scores.append(np.linalg.solve(A, ARMS.features[a.arm]) * reward(a))
        late.append(a)
        while len(late) > 20:
            chosen = late.pop(i * 7 % len(late))
            session.tell(chosen, reward(chosen))
    for a in late:
        session.tell(a, reward(a))
    assert len({round(score[0], 9) for score in scores}) > 12  # several allocations were used
    assert np.allclose(session.recommend().estimates, ARMS.features @ np.mean(scores, axis=0))


def test_policies_that_must_wait_say_for_what() -> None:
    session = sa.Session(sa.Peace(), ARMS, budget=60, seed=1)
    first = session.ask()
    while not (opened := session._books.current) or not opened.exhausted:
        session.ask()
    with pytest.raises(sa.RewardsPendingError, match=r"Peace decides only .*assignment 0, 1"):
        session.ask()
    asked = session.asked
    session.tell(first, 1.0)
    for number in session.pending[1:]:
        session.tell(number, 0.5)
    with pytest.raises(sa.RewardsPendingError, match=r"missing: 1 \(of assignment \d+\)"):
        session.ask()
    session.forget(session.pending[0])
    assert session.ask().number == asked


def test_forgotten_assignments_are_left_out_of_the_estimate() -> None:
    whole = sa.Session(sa.GBAI(), ARMS, budget=100, seed=6)
    holed = sa.Session(sa.GBAI(), ARMS, budget=100, seed=6)
    kept = []
    for i in range(100):
        a = whole.ask()
        holed.ask()
        if i % 10 == 0:
            holed.forget(a)
        else:
            kept.append(a)
            holed.tell(a, reward(a))
    for a in kept:
        whole.tell(a, reward(a))
    assert holed.recommend().rewards == 90
    assert np.allclose(holed.recommend().estimates, whole.recommend().estimates)


def test_a_repeated_or_unknown_number_is_refused_and_nothing_changes() -> None:
    session = sa.Session(sa.GBAI(), ARMS, budget=10)
    a = session.ask()
    session.tell(a, 0.3)
    before = session.to_json()
    with pytest.raises(sa.RepeatedRewardError, match="assignment 0 has its reward already"):
        session.tell(a, 0.3)
    with pytest.raises(sa.RepeatedRewardError):
        session.forget(0)
    for number in (1, -1, 10**9):
        with pytest.raises(sa.UnknownAssignmentError, match=f"assignment {number} was never"):
            session.tell(number, 0.3)
    with pytest.raises(sa.InvalidInputError, match="give what ask"):
        session.tell("0", 0.3)  # type: ignore[arg-type]  # the point of the test
    b = session.ask()
    for bad in (math.nan, math.inf, "x", None):
        with pytest.raises(sa.InvalidInputError, match="expected a finite number"):
            session.tell(b, bad)  # type: ignore[arg-type]  # the point of the test
    assert session.pending == (1,)
    session.tell(b, 0.1)
    assert before != session.to_json()


def test_the_budget_is_an_end() -> None:
    session = sa.Session(sa.GBAI(), ARMS, budget=3)
    for _ in range(3):
        session.tell(session.ask(), 0.0)
    with pytest.raises(sa.BudgetSpentError, match="all 3 assignments"):
        session.ask()


def test_nothing_is_recommended_from_nothing() -> None:
    session = sa.Session(sa.GBAI(), ARMS, budget=3)
    session.ask()
    with pytest.raises(sa.RewardsPendingError, match="no reward has been told"):
        session.recommend()


@pytest.mark.parametrize("delay", [0, 1, 25])
@pytest.mark.parametrize(
    "policy",
    [
        sa.GBAI(),
        sa.P1RAGE(),
        sa.Uniform(),
        sa.P1(),
        sa.P1RAGE(updates="rounds"),
        sa.MixedPeace(),
        sa.Steady(order="iid"),
        sa.Steady(),
    ],
    ids=[
        "G-BAI",
        "P1-RAGE",
        "Uniform",
        "P1",
        "P1-RAGE by rounds",
        "Mixed-Peace",
        "Steady iid",
        "Steady",
    ],
)
def test_intervals_cover_all_arms_at_once_under_drift(policy: sa.Policy[Any], delay: int) -> None:
    """Many tests in a drifting, noisy world, with rewards that come `delay` assignments late."""
    every_round = isinstance(policy, sa.P1) or policy.to_dict().get("updates") == "rounds"
    T, runs, level = 200, 20 if every_round else 60, 0.9
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


@pytest.mark.parametrize("delay", [1, 2, 30])
def test_slow_rewards_do_not_cut_epochs_into_pieces(delay: int) -> None:
    arms = sa.ArmSet.one_hot(["A", "B", "C", "D"])
    session = sa.Session(sa.P1RAGE(), arms, budget=400, seed=1)
    late: list[sa.Assignment] = []
    for _ in range(400):
        late.append(session.ask())
        if len(late) > delay:
            session.tell(late.pop(0), 0.5)
    # rounds 1, 1 + R, 1 + 2R, 1 + 3R and parts of 10; each may need one to carry on with
    assert 40 <= session._books.opened <= 90


def test_a_forgotten_reward_costs_no_more_than_itself() -> None:
    X = np.vstack([np.outer([1.0, 1.1, 1.2], [1, 0, 0]), np.eye(3)[1:]])
    for forgotten in (0, 1, 7):
        session = sa.Session(sa.Peace(), sa.ArmSet.from_features(X), budget=400, seed=1)
        rng = np.random.default_rng(0)
        with contextlib.suppress(sa.BudgetSpentError):
            while True:
                a = session.ask()
                if a.number < forgotten:
                    session.forget(a)
                else:
                    session.tell(a, 0.01 * a.arm + rng.standard_normal())
        told = session.asked - forgotten
        assert session.recommend().rewards == told
        assert not session._books.open


def test_steady_runs_live_and_goes_on_from_json() -> None:
    straight = sa.Session(sa.Steady(), ARMS, budget=300, seed=2)
    broken = sa.Session(sa.Steady(), ARMS, budget=300, seed=2)
    for i in range(300):
        a = straight.ask()
        assert broken.ask() == a
        straight.tell(a, 5 + reward(a))
        if i % 37 == 5:
            broken = sa.Session.from_json(broken.to_json())
        broken.tell(a.number, 5 + reward(a))
    assert straight.to_json() == broken.to_json()
    verdict = straight.recommend()
    assert verdict.rewards == 300
    # rewards lie around 5.4; without a reference the error would be √(6 · 5.4² / 300) = 0.76
    assert verdict.standard_errors.max() < 0.3


def test_arms_that_were_dropped_are_not_said_to_be_known() -> None:
    arms = sa.ArmSet.one_hot(["A", "B", "C", "D"])
    session = sa.Session(sa.ODLinBAI(), arms, budget=200, seed=1)
    rng = np.random.default_rng(0)
    with contextlib.suppress(sa.BudgetSpentError):
        while True:
            a = session.ask()
            session.tell(a, 0.2 * a.arm + 0.1 * rng.standard_normal())
    verdict = session.recommend()
    assert verdict.name == "D"
    dropped = np.isnan(verdict.estimates)
    assert dropped.tolist() == [True, True, False, False]
    assert np.isnan(verdict.standard_errors[dropped]).all()
    assert np.isinf(verdict.intervals[dropped]).all()
    assert np.isfinite(verdict.intervals[~dropped]).all()


def test_a_policy_that_waits_recommends_from_whole_epochs() -> None:
    session = sa.Session(sa.Peace(), sa.ArmSet.one_hot(list("ABCDEFGH")), budget=400, seed=2)
    epoch = [session.ask() for _ in range(100)]
    for a in epoch:
        session.tell(a, a.arm / 10 + 0.1 * math.sin(a.number))
    before = session.recommend()
    session.tell(session.ask(), 9.0)
    after = session.recommend()
    assert np.array_equal(before.estimates, after.estimates)
    assert before.rewards == after.rewards == 100


def test_od_linbai_with_too_small_a_budget_still_recommends() -> None:
    session = sa.Session(sa.ODLinBAI(), sa.ArmSet.one_hot(list("ABCD")), budget=4)
    with pytest.raises(sa.BudgetSpentError, match="has ended after 0 of 4"):
        session.ask()
    verdict = session.recommend()
    assert verdict.name in "ABCD"
    assert np.isinf(verdict.intervals).all()


def test_nothing_is_recommended_when_everything_was_forgotten() -> None:
    session = sa.Session(sa.GBAI(), ARMS, budget=5)
    for _ in range(3):
        session.forget(session.ask())
    with pytest.raises(sa.RewardsPendingError, match="no reward has been told"):
        session.recommend()


def test_an_assignment_of_another_session_is_refused() -> None:
    one, two = (sa.Session(sa.GBAI(), ARMS, budget=50, seed=seed) for seed in (1, 2))
    pairs = [(one.ask(), two.ask()) for _ in range(50)]
    mine, foreign = next(pair for pair in pairs if pair[0].arm != pair[1].arm)
    with pytest.raises(sa.UnknownAssignmentError, match="belongs to another session"):
        one.tell(foreign, 1.0)
    one.tell(mine, 1.0)


def test_many_threads_lose_nothing() -> None:
    session = sa.Session(sa.P1RAGE(), ARMS, budget=4000, seed=1)

    def visit(_: int) -> None:
        for _ in range(500):
            a = session.ask()
            session.tell(a, reward(a))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(visit, range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert session.recommend().rewards == 4000


NONSENSE: tuple[Any, ...] = (None, "x", -7, 1e300, math.nan, [], {})


def test_damaged_json_is_refused_whatever_is_damaged() -> None:
    """Every single value of a session's JSON replaced by nonsense: refused, or harmless."""
    session = sa.Session(sa.MixedPeace(), sa.ArmSet.one_hot(["A", "B"]), budget=40, seed=1)
    for _ in range(25):
        a = session.ask()
        if a.number % 3:
            session.tell(a, reward(a))
    data = json.loads(session.to_json())
    refused = 0
    for path in _paths(data):
        for nonsense in NONSENSE:
            damaged = json.loads(json.dumps(data))
            place = damaged
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = nonsense
            try:
                again = sa.Session.from_json(json.dumps(damaged))
                while again.asked < again.budget:
                    again.tell(again.ask(), 0.5)
                again.recommend()
            except sa.SteadyArmError:
                refused += 1
    assert refused > 300


def _paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in entries:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from _paths(value, (*path, key))


def test_a_session_goes_on_with_the_policy_it_was_run_with() -> None:
    text = sa.Session(sa.P1RAGE(max_phases=3), ARMS, budget=9).to_json()
    assert sa.Session.from_json(text, sa.P1RAGE(max_phases=3)).policy == sa.P1RAGE(max_phases=3)
    with pytest.raises(sa.InvalidInputError, match="give the one it was run with"):
        sa.Session.from_json(text, sa.P1RAGE(max_phases=9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not the JSON of a session"),
        ("[]", "but 'list'"),
        (None, "not the JSON of a session"),
        ('{"format": 99}', "but 99"),
        ('{"format": 3}', "incomplete or damaged"),
        ('{"format": 2}', "but 2"),
    ],
)
def test_bad_json_is_refused(text: Any, message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.Session.from_json(text)


def test_an_unknown_policy_in_json_is_named() -> None:
    data = json.loads(sa.Session(sa.GBAI(), ARMS, budget=3).to_json())
    data["policy"]["name"] = "Oracle"
    with pytest.raises(sa.InvalidInputError, match="no policy called 'Oracle'"):
        sa.Session.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 0}, "budget is 0"),
        ({"budget": 2.5}, "budget is 2.5"),
        ({"seed": -1}, "seed is -1"),
        ({"direction": "up"}, "direction is 'up'"),
        ({"policy": sa.GBAI}, "expected an instance of a policy"),
        ({"arms": ["A", "B"]}, "expected an ArmSet"),
    ],
)
def test_bad_sessions_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.Session(**{"policy": sa.GBAI(), "arms": ARMS, "budget": 5, **settings})


@pytest.mark.parametrize("delay", [0, 5, 40, 700])
def test_slow_rewards_leave_blocks_whole(delay: int) -> None:
    """However late rewards are, every block but the last holds the whole list."""
    policy, T = sa.Steady(), 1500
    session = sa.Session(policy, ARMS, budget=T, seed=4)
    late: list[sa.Assignment] = []
    for _ in range(T):
        late.append(session.ask())
        if len(late) > delay:
            a = late.pop(0)
            session.tell(a, reward(a))
    for a in late:
        session.tell(a, reward(a))
    pieces = session._books.pieces()
    assert sum(piece.handed for piece in pieces) == T
    for piece in pieces[:-1]:
        blocks, rest = divmod(piece.handed, piece.segment.block)
        assert rest == 0
        planned = np.rint(piece.segment.weights * piece.segment.block) * blocks
        np.testing.assert_array_equal(piece.stats.counts, planned)


def test_a_verdict_says_how_sure_it_is() -> None:
    session = sa.Session(sa.Steady(), ARMS, budget=600, seed=1)
    for _ in range(600):
        a = session.ask()
        session.tell(a, reward(a))
    verdict = session.recommend()
    assert verdict.name in verdict.plausible
    assert verdict.gaps[verdict.arm] == 0
    np.testing.assert_array_equal(verdict.gap_intervals[verdict.arm], [0, 0])
    assert (verdict.intervals[:, 0] < verdict.estimates).all()
    assert (verdict.gap_intervals[:, 0] <= verdict.gaps).all()
    assert verdict.assumption.endswith("react to assignments.")
    assert verdict.name in str(verdict)
    always = session.recommend(anytime=True, reward_range=(-2.0, 3.0))
    assert always.anytime
    assert (np.diff(always.intervals) > np.diff(verdict.intervals)).all()
    assert set(verdict.plausible) <= set(always.plausible)


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
    assert low.otherwise().best == high.otherwise().best == up.name
    assert low.otherwise().early == high.otherwise().early


def test_health_names_the_variant_that_loses_its_rewards() -> None:
    session = sa.Session(sa.Steady(), ARMS, budget=1200, seed=3)
    for _ in range(1200):
        a = session.ask()
        if a.arm == 1 and a.number % 3 == 0:
            session.forget(a)
        elif a.number % 50 != 7:  # those are slow, whatever the variant
            session.tell(a, reward(a))
    report = session.health()
    assert report.status == "fail"
    (missing,) = [found for found in report.findings if found.name == "missing rewards"]
    assert ARMS.names[1] in missing.explanation
    assert [found.status for found in report.findings if found is not missing] == ["ok", "ok"]
    again = sa.Session.from_json(session.to_json())
    assert again.health() == report
    assert str(again.drift()) == str(session.drift())


def test_policies_that_leave_variants_out_promise_less() -> None:
    session = sa.Session(sa.Peace(), ARMS, budget=300, seed=1)
    with contextlib.suppress(sa.BudgetSpentError):
        while True:
            a = session.ask()
            session.tell(a, reward(a))
    verdict = session.recommend()
    assert "Nothing drifts" in verdict.assumption
    assert verdict.name in verdict.plausible
    for refused in (session.evidence, session.drift, session.otherwise):
        with pytest.raises(sa.InvalidInputError, match="leaves variants out"):
            refused()
    with pytest.raises(sa.InvalidInputError, match="leaves variants out"):
        session.recommend(anytime=True)


def test_nothing_told_nothing_reported() -> None:
    session = sa.Session(sa.Steady(), ARMS, budget=30)
    for ask in (session.health, session.evidence, session.drift, session.recommend):
        with pytest.raises(sa.RewardsPendingError):
            ask()


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
    verdict = session.recommend()
    assert verdict.name == "B"
    assert (verdict.intervals[:, 0] < [1.0, 1.3, 1.0]).all()
    assert (verdict.intervals[:, 1] > [1.0, 1.3, 1.0]).all()
    assert (verdict.rewards, verdict.missing) == (told, T - told)
    assert f"{T - told} missing" in str(verdict)
    report = session.health()
    assert report.status == "fail"
    assert "B misses" in str(report)
    assert session.pending == () if forgotten else len(session.pending) == T - told


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
    with pytest.raises(sa.InvalidInputError, match="with anytime=True only"):
        session.recommend(reward_range=(0, 1))
    with pytest.raises(sa.InvalidInputError, match=r"but rewards from .* were told"):
        session.recommend(anytime=True, reward_range=(0.4, 0.5))
    assert session.recommend(anytime=True, reward_range=(-2, 3)).anytime
    again = sa.Session.from_json(session.to_json())
    with pytest.raises(sa.InvalidInputError, match=r"but rewards from .* were told"):
        again.recommend(anytime=True, reward_range=(0.4, 0.5))


@pytest.mark.parametrize("policy", [sa.P1(), sa.P1RAGE(updates="rounds")])
def test_attrition_is_seen_in_segments_of_one_round(policy: sa.Policy[Any]) -> None:
    session = sa.Session(policy, sa.ArmSet.one_hot(["A", "B"]), budget=400, seed=1)
    for _ in range(400):
        a = session.ask()
        if a.name == "A" and a.number % 2:
            session.forget(a)
        else:
            session.tell(a, 0.5 + a.arm)
    assert session.health().status == "fail"


def test_unmeasured_variants_have_unknown_gaps() -> None:
    arms = sa.ArmSet.one_hot([str(k) for k in range(8)])
    session = sa.Session(sa.SequentialHalving(), arms, budget=400, seed=1)
    with contextlib.suppress(sa.BudgetSpentError):
        while True:
            a = session.ask()
            session.tell(a, 10 + a.arm + math.sin(a.number))
    verdict = session.recommend()
    unknown = np.isnan(verdict.estimates)
    assert unknown.any()
    assert np.isnan(verdict.gaps[unknown]).all()
    assert np.isinf(verdict.gap_intervals[unknown]).all()


def test_strings_are_no_rewards() -> None:
    session = sa.Session(sa.Steady(), ARMS, budget=30)
    a = session.ask()
    with pytest.raises(sa.InvalidInputError, match="the reward is '1'; expected a finite number"):
        session.tell(a, "1")  # type: ignore[arg-type]  # the point of the test
    assert session.pending == (a.number,)
    assert "1 of 30 handed out, 1 rewards pending" in repr(session)


def test_segments_without_any_reward_are_read_again() -> None:
    session = sa.Session(sa.Steady(), ARMS, budget=60, seed=1)
    for number in range(40):
        a = session.ask()
        if number < 25:
            session.forget(a)
        else:
            session.tell(a, reward(a))
    assert not session._books.closed[0].told
    again = sa.Session.from_json(session.to_json())
    assert again.to_json() == session.to_json()
    assert np.array_equal(again.recommend().intervals, session.recommend().intervals)


@pytest.mark.parametrize("tally", ["assigned", "forgotten", "counts"])
def test_tallies_that_do_not_fit_the_assignments_are_refused(tally: str) -> None:
    """One of an arm's tally goes to another arm, so that the sum is still right."""
    session = sa.Session(sa.Steady(), ARMS, budget=60, seed=1)
    for _ in range(60):
        a = session.ask()
        if a.number % 3 == 0:
            session.tell(a, reward(a))
        elif a.number % 3 == 1:
            session.forget(a)
    data = json.loads(session.to_json())
    piece = data["books"]["open"][0]
    giver = next(k for k in range(ARMS.size) if piece[tally][k])
    piece[tally][giver] -= 1
    piece[tally][(giver + 1) % ARMS.size] += 1
    with pytest.raises(sa.InvalidInputError, match="do not fit its assignments"):
        sa.Session.from_json(json.dumps(data))


def test_a_judgement_is_of_the_moment() -> None:
    session = sa.Session(sa.Steady(), ARMS, budget=300, seed=1)
    for _ in range(137):
        a = session.ask()
        session.tell(a, reward(a))
    judgement, before = session.judgement(), session.recommend()
    for _ in range(163):
        a = session.ask()
        session.tell(a, -reward(a))
    assert (judgement.told, judgement.handed) == (137, 137)
    assert np.array_equal(judgement.recommend().intervals, before.intervals)
    assert session.recommend().rewards == 300


@pytest.mark.parametrize("policy", [sa.Steady(), sa.P1RAGE(), sa.GBAI()])
@pytest.mark.parametrize("ended", [True, False])
def test_records_of_segments_are_judged_as_the_session_is(
    policy: sa.Policy[Any], ended: bool
) -> None:
    """What a policy has not observed yet is observed for the verdict, each piece once."""
    session = sa.Session(policy, ARMS, budget=240, seed=1, direction="minimize")
    for _ in range(240 if ended else 200):
        a = session.ask()
        if a.number % 9 == 4:
            session.forget(a)
        elif a.number < 190:  # the last ones are late
            session.tell(a, reward(a))
    pieces = [OpenSegment.from_dict(piece.to_dict()) for piece in session._books.pieces()]
    state = policy.start(ARMS, 240, seed=1)
    judged = Judgement(policy, ARMS, "minimize", state, tuple(pieces), ended)
    mine, theirs = session.recommend(), judged.recommend()
    assert (mine.rewards, mine.missing) == (theirs.rewards, theirs.missing)
    assert np.array_equal(mine.intervals, theirs.intervals)
    assert mine.arm == theirs.arm
    assert judged.health() == session.health()
    assert str(judged.drift()) == str(session.drift())
    assert str(judged.otherwise()) == str(session.otherwise())
