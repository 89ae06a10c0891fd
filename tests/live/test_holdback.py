"""Units that are held back from a roll-out, and the lasting effect that they show."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.outside import place_of_unit
from tests.live.test_after import create, play

RATES = {"A": 0.2, "B": 0.5}


def held_back(share: float = 1.0, **more: Any) -> sa.Experiment:
    """A test that is over, whose variant B is rolled out with a holdback of a fifth."""
    shop = create(control="A", budget=60, **more)
    play(shop, 60)
    shop.roll_out("B", share, 0.2, by="Ann")
    return shop


def test_a_fifth_keeps_the_control_and_the_effect_is_followed() -> None:
    shop = held_back()
    follow = shop.follow_up
    assert follow is not None
    assert follow.name == "shop.holdback-1"
    assert follow.settings.control == "A"
    luck, seen = random.Random(3), {}
    for i in range(500):
        shown = shop.ask(f"v{i}")
        assert not shown.in_test
        assert np.isnan(shown.probability)
        assert (shown.arm, shown.value) == ("ABC".index(shown.name), shown.name)
        seen[shown.unit] = shown.name
        target = shown if i % 2 else shown.unit  # by the id of the follow-up, or by unit
        answer = shop.tell_many([(target, float(luck.random() < RATES[shown.name]))])
        assert answer == ["stored"]
    counts = Counter(seen.values())
    assert set(counts) == {"A", "B"}
    assert abs(counts["A"] - 100) < 5 * 9  # five standard errors
    assert {unit: shop.ask(unit).name for unit in seen} == seen
    verdict = follow.recommend()
    assert verdict.control == "A"
    assert verdict.lifts is not None
    assert verdict.lift_intervals is not None
    low, high = verdict.lift_intervals[1]
    assert low < 0.3 < high
    assert verdict.anytime  # it may be read at any time
    assert follow.replay().agrees
    assert shop.replay().agrees
    assert shop.status().total_assigned == 60


def test_units_of_the_test_are_followed_too_and_count_where_they_were() -> None:
    shop = create(control="A", budget=60)
    shown = [shop.ask(f"u{i}") for i in range(60)]
    shop.roll_out("B", 1.0, 0.5)
    now = {one.unit: shop.ask(one.unit).name for one in shown}
    assert set(now.values()) == {"A", "B"}
    assert shop.tell_many([("u0", 1.0)]) == ["stored"]
    assert shop.tell_many([("u0", 1.0)]) == ["repeated"]
    follow = shop.follow_up
    assert follow is not None
    assert (shop.status().total_rewarded, follow.status().total_rewarded) == (1, 1)
    assert shop.tell_many([(shown[1], 1.0)]) == ["stored"]  # by an id of the test: there alone
    assert (shop.status().total_rewarded, follow.status().total_rewarded) == (2, 1)
    assert shop.tell_many([("nobody", 1.0)]) == ["outside"]


def test_a_share_that_grows_keeps_those_who_are_held_back() -> None:
    shop = held_back(0.4)
    units = [f"v{i}" for i in range(300)]
    before = {unit: shop.ask(unit).name for unit in units}
    for unit in units:
        if place_of_unit(1, unit) >= 0.4:
            assert not shop.ask(unit).id
    shop.roll_out(share=0.8)
    after = {unit: shop.ask(unit).name for unit in units}
    for unit in units:
        if place_of_unit(1, unit) < 0.4:
            assert after[unit] == before[unit]
    assert shop.status().roll_out is not None
    assert shop.status().roll_out.follow_up == "shop.holdback-1"  # type: ignore[union-attr]
    with pytest.raises(sa.InvalidInputError, match="held back") as caught:
        shop.roll_out(holdback=0.0)
    assert caught.value.field == "holdback"
    shop.roll_out(holdback=0.0, change=True)
    assert {shop.ask(unit).name for unit in units} == {"B"}
    assert shop.follow_up is None


def test_when_all_that_are_followed_are_assigned_others_see_the_variant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("steadyarm.live.after_test.FOLLOWED", 1)
    shop = held_back(storage=f"sqlite:///{tmp_path}/shop.db")
    seen = {f"v{i}": shop.ask(f"v{i}") for i in range(90)}
    assert [bool(one.id) for one in seen.values()] == [True] * 60 + [False] * 30
    assert {one.name for one in list(seen.values())[60:]} == {"B"}
    follow = shop.follow_up
    assert follow is not None
    outside = follow.status().outside
    assert outside is not None
    assert outside.default == "B"
    assert {unit: shop.ask(unit).name for unit in seen} == {u: o.name for u, o in seen.items()}
    shop.close()


def test_what_cannot_be_held_back_is_refused() -> None:
    shop = create(budget=30)
    shop.stop()
    with pytest.raises(sa.InvalidInputError, match="no control"):
        shop.roll_out("B", holdback=0.1)
    shop = create(budget=30, control="A")
    shop.stop()
    for wrong in (1.0, -0.1, float("nan")):
        with pytest.raises(sa.InvalidInputError, match="holdback"):
            shop.roll_out("B", holdback=wrong)
    with pytest.raises(sa.InvalidInputError, match="is the control itself"):
        shop.roll_out("A", holdback=0.1)
    assert shop.follow_up is None
    assert shop.status().outside is None
    # an attempt that was interrupted after the follow-up was made is made again
    shop.roll_out("B", holdback=0.1)
    other = sa.load_experiment("shop", shop.storage)
    assert other.follow_up is not None
    assert other.follow_up.settings.control_share == 0.1


def followed(shop: sa.Experiment) -> sa.Experiment:
    follow = shop.follow_up
    assert follow is not None
    return follow


def test_a_refused_roll_out_stops_no_test() -> None:
    shop = create(control="A")
    play(shop, 20)
    shop.ask("last")
    before = shop.history()
    for wrong in ({"variant": "A", "holdback": 0.1}, {"variant": "B", "holdback": 1.0}):
        with pytest.raises(sa.InvalidInputError, match="holdback"):
            shop.roll_out(stop=True, **wrong)  # type: ignore[arg-type]
    assert shop.state == "running"
    assert shop.history() == before
    assert shop.ask("new").in_test


@pytest.mark.parametrize("end", [{"holdback": 0.0}, {"variant": "C"}])
def test_rewards_of_units_that_were_followed_count_after_the_holdback(
    end: dict[str, Any], tmp_path: Path
) -> None:
    shop = held_back(storage=f"sqlite:///{tmp_path}/shop.db")
    follow, units = followed(shop), [f"v{i}" for i in range(20)]
    shown = {unit: shop.ask(unit) for unit in units}
    shop.roll_out(change=True, **end)
    assert shop.follow_up is None
    for process in (shop, sa.load_experiment("shop", shop.storage)):
        mine, units = units[:10], units[10:]
        targets = [shown[unit] if unit in mine[:5] else unit for unit in mine]
        assert process.tell_many([(one, 1.0) for one in targets]) == ["stored"] * 10
    assert follow.status().total_rewarded == 20
    follow.stop()
    follow.archive()  # then they count nowhere, and are no errors
    assert shop.tell_many([("v1", 1.0), ("u1", 1.0)])[0] == "outside"
    shop.close()


def test_rewards_reach_the_follow_up_of_an_archived_test() -> None:
    shop = held_back()
    assert shop.ask("u1").id
    shop.stop()
    shop.archive()
    shop.roll_out("B")
    assert shop.tell_many([("u1", 1.0)]) == ["stored"]
    assert followed(shop).status().total_rewarded == 1
    with pytest.raises(sa.WrongStateError, match="archived"):
        shop.tell_many([("u2", 1.0)])


def test_a_further_holdback_follows_units_anew() -> None:
    shop = held_back()
    for i in range(40):
        shop.ask(f"v{i}")
    shop.roll_out(holdback=0.0, change=True)
    shop.roll_out(holdback=0.2, change=True)
    assert followed(shop).name == "shop.holdback-2"
    assert followed(shop).status().total_assigned == 0
    followed(shop).stop()  # without any unit
    shop.roll_out(holdback=0.0, change=True)
    shop.roll_out(holdback=0.2, change=True)
    assert followed(shop).name == "shop.holdback-3"
    names = {shop.ask(f"v{i}").name for i in range(40)}
    assert names == {"A", "B"}


def test_a_follow_up_that_has_ended_is_not_taken_for_a_holdback() -> None:
    shop = held_back()
    seen = {f"v{i}": shop.ask(f"v{i}").name for i in range(40)}
    followed(shop).stop()
    shop.roll_out(share=0.9, change=True)  # nobody asks for a holdback: it goes on as it is
    shop.roll_out()
    assert {unit: shop.ask(unit).name for unit in seen} == seen
    with pytest.raises(sa.InvalidInputError, match="has ended") as caught:
        shop.roll_out(holdback=0.2)
    assert caught.value.field == "holdback"
    shop.roll_out(holdback=0.2, change=True)
    assert followed(shop).name == "shop.holdback-2"
    assert {shop.ask(f"w{i}").name for i in range(40)} == {"A", "B"}


def test_requests_without_units_are_held_back_too() -> None:
    shop = create(control="A", budget=60, sticky="none")
    shop.roll_out("B", holdback=0.5, stop=True)
    shown = [shop.ask() for _ in range(100)]
    assert {one.name for one in shown} == {"A", "B"}
    assert all(one.id and not one.in_test for one in shown)
    assert shop.tell_many([(one, 1.0) for one in shown]) == ["stored"] * 100
    assert followed(shop).status().total_rewarded == 100


def test_a_follow_up_that_was_pruned_changes_nothing_for_the_test() -> None:
    shop = held_back()
    shop.ask("v1")
    follow = followed(shop)
    follow.stop()
    follow.archive()
    shop.storage.prune(shop.now() + 10**12, archived_before=shop.now() + 10**12)
    other = sa.load_experiment("shop", shop.storage)
    assert other.follow_up is None
    assert other.ask("v1").name == "B"
    assert other.known(["v1"])[0] is not None
    assert other.tell_many([("v1", 1.0)]) == ["outside"]


def test_what_was_stored_without_names_of_follow_ups_is_read_and_replaced() -> None:
    shop = held_back()
    shop.ask("v1")
    stored = dict(shop.storage.known(shop.key, []).outside or {})
    older = {name: value for name, value in stored.items() if name != "follow_ups"}
    assert stored["follow_ups"] == ["shop.holdback-1"]
    assert shop.storage.show_outside(shop.key, stored, older, "experiment.rolled_out", shop.now())
    other = sa.load_experiment("shop", shop.storage)
    assert other.tell_many([("v1", 1.0)]) == ["stored"]
    other.roll_out(holdback=0.0, change=True)
    outside = other.status().outside
    assert outside is not None
    assert outside.follow_ups == ("shop.holdback-1",)
