"""Who is not part of a test: after it, by a roll-out, or beside its share of the traffic.

Only operators change what they see.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import isnan
from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.live.after_test import place_of_unit
from steadyarm.live.assigner import AssignmentId
from steadyarm.live.stopping import ITSELF
from steadyarm.storages import open_storage
from tests.live import worlds
from tests.live.worlds import Clock

RATES = {"A": 0.1, "B": 0.9, "C": 0.5}


def create(budget: int = 200, **settings: Any) -> sa.Experiment:
    return worlds.create(**{"name": "shop", "budget": budget, "seed": 1} | settings)


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


def entries(shop: sa.Experiment, action: str) -> list[Any]:
    return [entry for entry in shop.history() if entry.action == f"experiment.{action}"]


def outside_of(shop: sa.Experiment) -> Any:
    """What is shown outside of the test; there must be something."""
    outside = shop.status().outside
    assert outside is not None
    return outside


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
    assert outside_of(shop).default == "B"
    assert outside_of(shop).reason.startswith("Ship B")
    (entry,) = entries(shop, "default")
    assert (entry.author, entry.detail["variant"]) == (ITSELF, "B")
    assert shop.replay().agrees


def test_the_control_is_shown_where_nothing_is_clear_and_else_the_leader() -> None:
    for control in ("C", None):
        shop = create(control=control, budget=30)
        assert shop.settings.after == "show"
        play(shop, 30, reward=lambda _: 1.0)
        check_outside(shop.ask("late"), control or shop.recommend().name)
    empty = create(budget=30)
    empty.stop()
    check_outside(empty.ask("late"), "A")
    assert "The test had no decision" in outside_of(empty).reason


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
    assert outside_of(shop).reason.startswith("Ship B")


def test_processes_that_decide_at_once_agree(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    shop = create(budget=60, storage=url)
    play(shop, 60, reward=lambda name: 0.5 + 0.001 * RATES[name])
    processes = [sa.load_experiment("shop", url) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        shown = list(pool.map(lambda i: processes[i].ask(f"late {i}").name, range(6)))
    assert len(set(shown)) == 1
    assert len(entries(shop, "default")) == 1
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


# Roll-outs: in steps that keep units, and never by accident

UNITS = [f"v{i}" for i in range(500)]


def seen_by(shop: sa.Experiment, units: list[str] = UNITS) -> dict[str, str]:
    """What units see now; none of it may be part of a test."""
    answers: Any = shop.ask_many(units)
    assert not any(shown.in_test for shown in answers)
    return {unit: shown.name for unit, shown in zip(units, answers, strict=True)}


def test_places_of_units_are_fixed_and_even() -> None:
    assert place_of_unit(7, "visitor 1") == 0.30831290596732686
    assert place_of_unit(8, "visitor 1") != place_of_unit(7, "visitor 1")
    places = [place_of_unit(7, f"u{i}") for i in range(4000)]
    assert all(0 <= place < 1 for place in places)
    for tenth in range(10):
        count = sum(int(10 * place) == tenth for place in places)
        assert abs(count - 400) < 5 * 19  # five standard errors
    assert place_of_unit(7, "") != place_of_unit(7, "")  # nobody: drawn anew


def test_old_and_new_units_get_what_is_rolled_out() -> None:
    shop = create(control="A")
    inside = play(shop, 200)
    assert {"A", "B", "C"} == set(inside.values())
    done = shop.roll_out(by="Ann", reason="it won")
    assert (done.variant, done.share) == ("B", 1.0)
    assert shop.status().roll_out == done
    for unit in (*inside, "new"):
        check_outside(shop.ask(unit), "B")
    assert shop.status().total_assigned == 200
    # a reward of a unit of the test still counts for its assignment
    fresh = create(budget=30)
    fresh.ask("u1")
    fresh.roll_out("C", stop=True)
    assert fresh.state == "stopped"
    assert fresh.tell_many([("u1", 1.0), ("new", 1.0)]) == ["stored", "outside"]
    (entry,) = entries(shop, "rolled_out")
    assert entry.author == "Ann"
    assert entry.detail == {"variant": "B", "share": 1.0, "reason": "it won"}


def test_shares_grow_and_keep_their_units() -> None:
    shop = create(control="A", budget=30)
    inside = play(shop, 30, reward=lambda _: 1.0)  # nothing is clear
    with pytest.raises(sa.WrongStateError, match="name the variant"):
        shop.roll_out()
    shop.roll_out("C", 0.1)
    first = seen_by(shop)
    some = {unit for unit in first if first[unit] == "C"}
    assert 15 < len(some) < 85  # five standard errors around 50
    assert {first[unit] for unit in first if unit not in some} == {"A"}
    kept = {unit: shop.ask(unit) for unit in inside}
    for unit, name in inside.items():
        reached = place_of_unit(1, unit) < 0.1
        assert (kept[unit].in_test, kept[unit].name) == (not reached, "C" if reached else name)
    shop.roll_out(share=0.5)
    second = seen_by(shop)
    assert {unit for unit in second if second[unit] == "C"} > some
    shop.roll_out(share=0.5)  # said again: nothing happens
    assert len(entries(shop, "rolled_out")) == 2
    shop.roll_out()
    assert set(seen_by(shop).values()) == {"C"}


def test_nothing_is_taken_away_unless_that_is_said() -> None:
    shop = create(control="A", budget=30)
    play(shop, 30, reward=lambda _: 1.0)
    shop.roll_out("C", 0.5)
    before = seen_by(shop)
    for more, field in (({"share": 0.2}, "share"), ({"variant": "B"}, "variant")):
        with pytest.raises(sa.InvalidInputError, match=r"takes it away|to replace it by") as caught:
            shop.roll_out(**more)
        assert caught.value.field == field
    assert seen_by(shop) == before
    shop.roll_out("B", 0.2, change=True)
    now = seen_by(shop)
    for unit in UNITS:  # B reaches a fifth; others see the default
        assert now[unit] == ("B" if place_of_unit(1, unit) < 0.2 else "A")
    shop.roll_out(share=0, change=True)
    assert set(seen_by(shop).values()) == {"A"}
    entry = shop.history()[-1]
    assert entry.detail["before"] == {"variant": "B", "share": 0.2}


def test_a_running_test_is_ended_only_if_that_is_said() -> None:
    shop = create(control="A")
    play(shop, 20)
    with pytest.raises(sa.WrongStateError, match=r"is running, and a roll-out ends the test"):
        shop.roll_out("B")
    assert shop.ask("new").in_test
    shop.pause()
    with pytest.raises(sa.WrongStateError, match="is paused"):
        shop.roll_out("B")
    shop.roll_out("B", 0.0, stop=True)
    assert shop.state == "stopped"
    assert shop.ask("new").in_test  # it keeps its variant
    check_outside(shop.ask("newer"), "A")
    with pytest.raises(sa.WrongStateError, match="draft"):
        create(start=False).roll_out("A", stop=True)
    shop.archive()
    shop.roll_out("B", by="Ann")
    check_outside(shop.ask("newer"), "B")


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "half"])
def test_bad_shares_and_variants_are_refused(share: float) -> None:
    shop = create(budget=30)
    shop.stop()
    with pytest.raises(sa.InvalidInputError, match="share"):
        shop.roll_out("B", share)
    with pytest.raises(sa.InvalidInputError, match="expected one of: A, B, C"):
        shop.roll_out("D")
    assert shop.status().outside is None


def test_other_processes_show_it_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    shop = create(storage=url)
    known = [f"u{i}" for i in range(20)]
    for unit in known:
        shop.ask(unit)
    other = sa.load_experiment("shop", url)
    assert all(other.ask(unit).in_test for unit in known)
    assert all(each is not None for each in other.find_visible(known))
    shop.roll_out("C", stop=True)
    assert {other.ask(unit).name for unit in [*known, "new"]} == {"C"}
    seen = [each for each in other.find_visible([*known, "new"]) if each is not None]
    assert [(each.unit, each.name, each.in_test) for each in seen] == [
        (unit, "C", False) for unit in [*known, "new"]
    ]
    third = sa.load_experiment("shop", url)
    shop.roll_out("B", change=True)
    assert {process.ask(unit).name for process in (other, third) for unit in known} == {"B"}
    for process in (shop, other, third):
        process.close()


# Shares of the traffic, layers of tests that have no unit in common, and previews


def units_in(shop: sa.Experiment) -> set[str]:
    """The units that take part; all others see the control."""
    inside = set()
    answers: Any = shop.ask_many(UNITS)
    for unit, shown in zip(UNITS, answers, strict=True):
        if shown.in_test:
            inside.add(unit)
        else:
            check_outside(shown, "A")
    return inside


def test_a_share_of_the_traffic_takes_part() -> None:
    shop = create(5000, control="A", traffic=0.3)
    inside = units_in(shop)
    assert 98 < len(inside) < 202  # five standard errors around 150
    assert units_in(shop) == inside
    assert shop.status().total_assigned == len(inside)
    out = next(unit for unit in UNITS if unit not in inside)
    assert shop.tell_many([(min(inside), 1.0), (out, 1.0)]) == ["stored", "outside"]
    shop.roll_out("B", stop=True)
    check_outside(shop.ask(out), "B")


def test_tests_of_a_layer_have_no_unit_in_common(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path}/layers.db")
    usual: dict[str, Any] = {"control": "A", "storage": storage, "layer": "checkout"}
    first = create(5000, name="first", traffic=0.5, **usual)
    second = create(5000, name="second", traffic=0.3, **usual | {"seed": 2})
    create(5000, name="other", traffic=1.0, **usual | {"layer": "search"})
    inside = units_in(first), units_in(second)
    assert not inside[0] & inside[1]
    with pytest.raises(sa.InvalidInputError, match="no room for 0"):
        create(5000, name="third", traffic=0.3, **usual)
    assert [one.name for one in storage.summaries()] == ["first", "second", "other"]
    first.stop()
    first.archive()
    third = create(5000, name="third", traffic=0.4, **usual | {"seed": 3})
    assert not units_in(third) & inside[1]
    assert units_in(sa.load_experiment("second", storage)) == inside[1]


def test_a_preview_shows_a_variant_and_stores_nothing() -> None:
    shop = create(control="A")
    check_outside(shop.ask("colleague", preview="B"), "B")
    with pytest.raises(sa.InvalidInputError, match="'D'"):
        shop.ask("colleague", preview="D")
    assert shop.status().total_assigned == 0
    assert shop.ask("colleague").in_test
