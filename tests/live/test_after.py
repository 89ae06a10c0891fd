"""After the test: what units see that are not part of it, and that only operators change it."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import isnan
from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.live.assigner import AssignmentId
from steadyarm.live.stopping import ITSELF
from tests.live.worlds import Clock

RATES = {"A": 0.1, "B": 0.9, "C": 0.5}


def create(budget: int = 200, storage: Any = "memory", **more: Any) -> sa.Experiment:
    given: dict[str, Any] = {"seed": 1, "missing": "drop"} | more
    arms = given.pop("arms", ["A", "B", "C"])
    return sa.create_experiment("shop", arms, sa.Steady(), budget, storage, **given)


def play(
    shop: sa.Experiment, visits: int, reward: Callable[[str], float] | None = None
) -> dict[str, str]:
    """Visits with their rewards, clicks by default; what each unit saw."""
    seen, luck = {}, random.Random(1)
    reward = reward or (lambda name: float(luck.random() < RATES[name]))
    for i in range(visits):
        shown = shop.ask(f"u{i}")
        shop.tell(shown, reward(shown.name))
        seen[f"u{i}"] = shown.name
    return seen


def check_outside(shown: sa.LiveAssignment, name: str) -> None:
    assert not shown.in_test
    assert (shown.id, shown.new, shown.name) == ("", False, name)
    assert isnan(shown.probability)


def test_who_comes_after_a_spent_budget_sees_the_recommended_variant() -> None:
    shop = create(control="A")
    seen = play(shop, 200)
    assert shop.status().outside is None
    check_outside(shop.ask("late"), "B")
    assert shop.status().total_assigned == 200
    for unit in ("u0", "u77"):
        kept = shop.ask(unit)
        assert (kept.in_test, kept.name, kept.new) == (True, seen[unit], False)
    outside = shop.status().outside
    assert outside is not None
    assert outside.default == "B"
    assert outside.reason.startswith("Ship B")
    (entry,) = [each for each in shop.history() if each.action == "experiment.default"]
    assert (entry.author, entry.detail["variant"]) == (ITSELF, "B")
    assert shop.replay().agrees


def test_the_control_is_shown_where_nothing_is_clear_and_else_the_leader() -> None:
    assert create(control="C", budget=30).settings.after == "show"
    shop = create(control="C", budget=30)
    play(shop, 30, reward=lambda _: 1.0)
    check_outside(shop.ask("late"), "C")
    shop = create(budget=30)
    play(shop, 30, reward=lambda _: 1.0)
    check_outside(shop.ask("late"), shop.recommend().name)
    empty = create(budget=30)
    empty.stop()
    check_outside(empty.ask("late"), "A")
    outside = empty.status().outside
    assert outside is not None
    assert "The test had no decision" in outside.reason


def test_a_late_reward_changes_the_leader_and_not_what_is_shown() -> None:
    shop = create(budget=40, arms=["A", "B"])
    units = [shop.ask(f"u{i}") for i in range(40)]
    for shown in units[:-6]:
        shop.tell(shown, 0.5 + 0.01 * (shown.name == "A"))
    shop.stop()
    first = shop.ask("late").name
    for shown in units[-6:]:
        shop.tell(shown, 0.0 if shown.name == first else 1.0)
    other = sa.load_experiment("shop", shop.storage)
    assert other.recommend().name != first, "the leader should have changed"
    for process in (shop, other):
        check_outside(process.ask("late"), first)
        check_outside(process.ask("later"), first)


@pytest.mark.parametrize("stopped", [False, True])
def test_the_control_is_shown_until_the_last_rewards_have_come(stopped: bool) -> None:
    clock = Clock()
    shop = create(control="A", budget=400, reward_window="1d", missing="zero", clock=clock)
    units = [shop.ask(f"u{i}") for i in range(400 - 100 * stopped)]
    for shown in units[:20]:
        shop.tell(shown, 1.0)
    if stopped:
        shop.stop()
    check_outside(shop.ask("early"), "A")
    check_outside(sa.load_experiment("shop", shop.storage).ask("early"), "A")
    assert shop.status().outside is None
    for shown in units[20:]:
        shop.tell(shown, float(shown.name == "B"))
    clock.pass_(3 * 86_400)
    check_outside(shop.ask("late"), "B")
    check_outside(shop.ask("early"), "B")
    outside = shop.status().outside
    assert outside is not None
    assert outside.reason.startswith("Ship B")


def test_processes_that_decide_at_once_agree(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    shop = create(budget=60, storage=url)
    play(shop, 60, reward=lambda name: 0.5 + 0.001 * RATES[name])
    processes = [sa.load_experiment("shop", url) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        shown = list(pool.map(lambda i: processes[i].ask(f"late {i}").name, range(6)))
    assert len(set(shown)) == 1
    entries = [each for each in shop.history() if each.action == "experiment.default"]
    assert len(entries) == 1
    for process in (*processes, shop):
        process.close()


@pytest.mark.parametrize("state", ["draft", "paused"])
def test_a_paused_test_and_a_draft_show_their_control(state: str) -> None:
    shop = create(control="A", start=False)
    if state == "paused":
        shop.start()
        shop.ask("known")
        shop.pause()
        assert shop.ask("known").in_test
    check_outside(shop.ask("new"), "A")
    assert shop.tell_many([("new", 1.0), (shop.ask("new"), 1.0)]) == ["outside", "outside"]
    assert shop.status().outside is None  # nothing was decided by that
    (shop.start if state == "draft" else shop.resume)()
    assert shop.ask("new").in_test
    with pytest.raises(sa.WrongStateError, match="draft"):
        create(start=False).ask("new")


def test_rewards_outside_of_the_test_count_nowhere_and_are_no_errors() -> None:
    clock = Clock()
    shop = create(budget=20, reward_window=60, reward_grace=0, clock=clock)
    shown = [shop.ask(f"u{i}") for i in range(20)]
    late = shop.ask("late")
    before = shop.status()
    assert not late.in_test
    shop.tell(late, 1.0)
    shop.tell(late.id, 1.0)
    shop.tell("late", 1.0)
    answers = shop.tell_many([("late", {"reward": 1.0}), ("u1", 1.0), (shown[2], 0.0)])
    assert answers == ["outside", "stored", "stored"]
    assert shop.status().total_rewarded == before.total_rewarded + 2
    clock.pass_(100)
    with pytest.raises(sa.RewardTooLateError):
        shop.tell("u3", 1.0)
    with pytest.raises(sa.UnknownAssignmentError):  # an id is no unit
        shop.tell(AssignmentId(f"{shop.tag}-0-999-41242f"), 1.0)
    shop.stop()
    shop.archive()
    assert shop.tell_many([("late", 1.0), ("u4", 1.0)])[0] == "outside"
    with pytest.raises(sa.WrongStateError):
        shop.tell("u4", 1.0)
    check_outside(shop.ask("later"), late.name)


def test_refuse_keeps_errors_and_says_why() -> None:
    shop = create(budget=20, after="refuse", control="A")
    play(shop, 20)
    with pytest.raises(sa.BudgetSpentError):
        shop.ask("late")
    shop.stop(by="Ann")
    with pytest.raises(sa.WrongStateError, match="is stopped"):
        shop.ask("late")
    assert shop.status().outside is None
    itself = create(budget=2000, after="refuse", control="A", stop="when sure", looks=8)
    with pytest.raises(sa.WrongStateError, match="is stopped"):
        play(itself, 2000)
