"""Experiment: the same test as a Session's, whatever the storage; late, repeated, raced."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.policies import POLICIES
from tests.live.worlds import arms_of, create, play_both, records_of


@pytest.mark.parametrize(
    ("name", "direction", "delay"),
    [
        *((name, "maximize", 0) for name in POLICIES),
        ("Steady", "minimize", 0),
        ("Steady", "maximize", 100),
        ("P1-RAGE", "maximize", 100),
    ],
)
def test_an_experiment_is_the_same_test_as_a_session(name: str, direction: Any, delay: int) -> None:
    arms = sa.ArmSet.one_hot(list("ABCDE"))
    session, live, _, _ = play_both(
        POLICIES[name](), arms, 300, delay, mixed=True, direction=direction
    )
    assert any(record.early for record in records_of(live)) == (delay > 0)
    assert live.replay().agrees
    if not delay:  # else the session's pending rewards are no missing ones
        verdict, same = session.recommend(), live.recommend()
        assert verdict.name == same.name
        np.testing.assert_allclose(same.estimates, verdict.estimates)
        np.testing.assert_allclose(same.intervals, verdict.intervals)


def test_racing_requests_of_the_same_units_give_one_assignment_each() -> None:
    live = create(budget=200)
    units = [f"u{i % 100}" for i in range(800)]
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(live.ask, units))
    ids: dict[str, set[str]] = {}
    for unit, answer in zip(units, given, strict=True):
        ids.setdefault(unit, set()).add(answer.id)
    assert all(len(found) == 1 for found in ids.values())
    assert sum(live.status().assigned) == 100
    assert live.replay().agrees


def test_the_budget_is_kept_and_known_units_are_still_answered() -> None:
    live = create(budget=20, after="refuse")
    kinds = [type(answer) for answer in live.ask_many([f"u{i}" for i in range(25)])]
    assert kinds == [sa.LiveAssignment] * 20 + [sa.BudgetSpentError] * 5
    kinds = [type(answer) for answer in live.ask_many(["u3", "new", "u4"])]
    assert kinds == [sa.LiveAssignment, sa.BudgetSpentError, sa.LiveAssignment]


def test_policies_of_epochs_wait_for_rewards() -> None:
    live = create(policy=sa.SequentialHalving(), budget=60)
    given = live.ask_many([f"u{i}" for i in range(60)])
    waiting = [answer for answer in given if isinstance(answer, sa.RewardsPendingError)]
    assert waiting
    assert "Steady" in str(waiting[0])
    for answer in given:
        if isinstance(answer, sa.LiveAssignment):
            live.tell(answer, float(answer.arm))
    assert live.ask("next").new


def test_a_carried_on_segment_makes_way_at_the_end_of_its_block() -> None:
    live = create(budget=480, arms=arms_of(6))
    given: list[sa.LiveAssignment] = []
    while len(live.storage.snapshot(live.key).segments) < 2:
        given.append(live.ask(f"u{len(given)}"))
    for answer in given:
        live.tell(answer, float(answer.arm))
    carried = live.storage.snapshot(live.key).segments[-1][0]
    assert carried.superseded
    assert carried.rounds % carried.segment.block == 0
    for i in range(carried.rounds + 1 - len(given) % carried.segment.block):
        live.ask(f"v{i}")
    newest = records_of(live)[-1]
    assert newest.index == carried.index + 1
    assert not newest.carried_on
    assert newest.policy_version > 0


def test_outcomes_of_rewards_become_answers_and_errors() -> None:
    live = create()
    answer = live.ask("u1")
    live.tell(answer, 0.25)
    with pytest.raises(sa.RepeatedRewardError, match=r"0\.25 already, 0\.5 is another"):
        live.tell("u1", 0.5)
    told = live.tell_many([(answer.id, 0.25), ("nobody", 1.0), ("u1", 0.5), ("u1", float("nan"))])
    errors = [sa.UnknownAssignmentError, sa.RepeatedRewardError, sa.InvalidInputError]
    assert told[0] == "repeated"
    assert [type(error) for error in told[1:]] == errors


def test_rewards_that_are_no_numbers_are_refused() -> None:
    live = create()
    answer = live.ask("u1")
    bad: Any
    for bad in (float("nan"), float("inf"), "1", None, 1e101, [1.0]):
        with pytest.raises(sa.InvalidInputError, match="the reward is"):
            live.tell(answer, bad)
    assert sum(live.status().rewarded) == 0


# The storage checks all moves; `start` and `resume` differ in where they begin.
@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ([], ["pause", "resume", "stop"]),
        (["start"], ["archive"]),
        (["start", "pause"], ["start", "archive"]),
        (["start", "pause", "resume", "stop"], ["start", "pause", "resume"]),
        (["archive"], ["start", "pause", "resume", "stop"]),
    ],
)
def test_only_allowed_moves_are_made(path: list[str], refused: list[str]) -> None:
    live = create(start=False)
    for move in path:
        getattr(live, move)()
    state = live.state
    getattr(live, path[-1] if path else "refresh")()  # once more changes nothing
    for move in refused:
        with pytest.raises(sa.WrongStateError):
            getattr(live, move)()
    assert live.state == state


def test_visits_and_rewards_that_a_state_forbids_are_refused() -> None:
    live = create(sticky="none")
    answer = live.ask("u1")
    with pytest.raises(sa.UnknownAssignmentError, match="by the id"):
        live.tell("u1", 1.0)
    live.pause()
    with pytest.raises(sa.WrongStateError, match="paused"):
        live.ask("u2")
    live.stop()
    live.archive()
    with pytest.raises(sa.WrongStateError, match="archived"):
        live.tell(answer, 1.0)


def test_load_if_exists_takes_the_same_settings_only() -> None:
    live = create(name="shop", seed=None)
    again = create(name="shop", seed=None, storage=live.storage, load_if_exists=True)
    assert again.key == live.key
    with pytest.raises(sa.ExperimentExistsError, match="another budget"):
        create(name="shop", seed=None, storage=live.storage, load_if_exists=True, budget=7)
    with pytest.raises(sa.ExperimentExistsError):
        create(name="shop", storage=live.storage)
    assert sa.load_experiment("shop", live.storage).settings.seed == live.settings.seed
    with pytest.raises(sa.UnknownExperimentError, match="shop"):
        sa.load_experiment("shup", live.storage)


def test_a_reward_that_ends_a_segment_opens_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    live, called = create(budget=600), list[str]()

    def note(name: str, method: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            called.append(name)
            return method(*given, **named)

        return call

    for name in ("assign", "record", "snapshot", "decide", "progress"):
        monkeypatch.setattr(live.storage, name, note(name, getattr(live.storage, name)))
    decisions = 0
    for i in range(60):
        called.clear()
        answer = live.ask(f"u{i}")
        opens = ["assign", "snapshot", "decide", "assign"]
        assert called == (["assign"] if i else opens)  # later ones are opened by rewards
        called.clear()
        live.tell(answer, float(i % 2))
        closes = ["record", "progress", "snapshot", "decide"]
        assert called in (["record"], closes)
        decisions += called == closes
    assert decisions >= 6
    assert live.replay().agrees
