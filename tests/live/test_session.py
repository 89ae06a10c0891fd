"""Asking and telling: segments, late rewards, budgets, threads, refusals; and sessions as JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.segments import SegmentStats
from tests.live.worlds import ARMS, reward
from tests.storages.bench import together


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
        state = policy.observe(state, segment, SegmentStats(counts, sums, squares))
    assert np.array_equal(session.recommend().estimates, policy.recommend(state).estimates[0])


def test_a_late_reward_is_counted_where_its_assignment_was_drawn() -> None:
    """The estimate is the mean of scores, each with its own segment's allocation."""
    session = sa.Session(sa.P1RAGE(), ARMS, budget=500, seed=4)
    late: list[sa.Assignment] = []
    scores = []
    for i in range(500):
        a = session.ask()
        opened = session._current
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
    while not (opened := session._current) or not opened.exhausted:
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


def test_what_cannot_be_told_is_refused_and_the_budget_is_an_end() -> None:
    session = sa.Session(sa.GBAI(), ARMS, budget=3)
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
    with pytest.raises(sa.InvalidInputError, match="give an assignment"):
        session.tell("0", 0.3)  # type: ignore[arg-type]  # the point of the test
    b = session.ask()
    for bad in (math.nan, math.inf, "x", None):
        with pytest.raises(sa.InvalidInputError, match="expected a finite number"):
            session.tell(b, bad)  # type: ignore[arg-type]  # the point of the test
    assert session.pending == (1,)
    session.tell(b, 0.1)
    assert before != session.to_json()
    session.tell(session.ask(), 0.0)
    with pytest.raises(sa.BudgetSpentError, match="all 3 assignments"):
        session.ask()


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

    together(visit, 8)
    assert session.recommend().rewards == 4000


# Sessions as JSON


PLAIN = (sa.P1RAGE(), sa.MixedPeace(), sa.Peace(), sa.ODLinBAI(), sa.P1())
ADJUSTED = (sa.Steady(), sa.GBAI(), sa.Peace(), sa.TopTwoThompson())


@pytest.mark.parametrize(
    ("policy", "covariates"),
    [*((policy, ()) for policy in PLAIN), *((policy, ("spend", "age")) for policy in ADJUSTED)],
)
def test_going_on_from_json_gives_the_same_run(
    policy: sa.Policy[Any], covariates: tuple[str, ...]
) -> None:
    budget = 300 if covariates else 90  # slopes need some rewards
    straight, broken = (
        sa.Session(policy, ARMS, budget, seed=2, covariates=covariates) for _ in range(2)
    )
    rng = np.random.default_rng(3)
    for i in range(budget):
        known = {name: float(rng.normal()) for name in covariates}
        try:
            a = straight.ask(known or None)
        except sa.BudgetSpentError:
            break
        assert broken.ask(known or None) == a
        gain = reward(a) + known.get("spend", 0.0)
        straight.tell(a, gain)
        if i % 7 == 3:
            broken = sa.Session.from_json(broken.to_json())
        broken.tell(a.number, gain)
    assert straight.to_json() == broken.to_json()
    np.testing.assert_array_equal(straight.recommend().intervals, broken.recommend().intervals)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not the JSON of a session"),
        ("[]", "but 'list'"),
        (None, "not the JSON of a session"),
        ('{"format": 99}', "but 99"),
        ('{"format": 4}', "incomplete or was changed"),
        (("0.25", "0.5"), "incomplete or was changed"),
        (('"asked": 1', '"asked": 2'), "incomplete or was changed"),
    ],
)
def test_bad_json_is_refused(text: Any, message: str) -> None:
    if isinstance(text, tuple):
        session = sa.Session(sa.MixedPeace(), ARMS, budget=40, seed=1)
        session.tell(session.ask(), 0.25)
        text = session.to_json().replace(*text)
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.Session.from_json(text)


def test_a_session_goes_on_with_the_policy_it_was_run_with() -> None:
    text = sa.Session(sa.P1RAGE(max_phases=3), ARMS, budget=9).to_json()
    assert sa.Session.from_json(text, sa.P1RAGE(max_phases=3)).policy == sa.P1RAGE(max_phases=3)
    with pytest.raises(sa.InvalidInputError, match="give the policy of the test"):
        sa.Session.from_json(text, sa.P1RAGE(max_phases=9))
