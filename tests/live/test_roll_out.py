"""Roll-outs: who gets what, in steps that keep units, and never by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.live.after_test import place_of_unit
from tests.live.test_after import check_outside, create, play

UNITS = [f"v{i}" for i in range(400)]


def seen_by(shop: sa.Experiment, units: list[str] = UNITS) -> dict[str, str]:
    """What units see now; none of it may be part of a test."""
    found = {}
    for unit in units:
        shown = shop.ask(unit)
        assert not shown.in_test
        found[unit] = shown.name
    return found


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
    (entry,) = [each for each in shop.history() if each.action == "experiment.rolled_out"]
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
    assert 15 < len(some) < 70
    assert {first[unit] for unit in first if unit not in some} == {"A"}
    kept = {unit: shop.ask(unit) for unit in inside}
    for unit, name in inside.items():
        reached = place_of_unit(1, unit) < 0.1
        assert (kept[unit].in_test, kept[unit].name) == (not reached, "C" if reached else name)
    shop.roll_out(share=0.5)
    second = seen_by(shop)
    assert {unit for unit in second if second[unit] == "C"} > some
    shop.roll_out(share=0.5)  # said again: nothing happens
    assert len([e for e in shop.history() if e.action == "experiment.rolled_out"]) == 2
    shop.roll_out()
    assert set(seen_by(shop).values()) == {"C"}


def test_nothing_is_taken_away_unless_that_is_said() -> None:
    shop = create(control="A", budget=30)
    play(shop, 30, reward=lambda _: 1.0)
    shop.roll_out("C", 0.5)
    before = seen_by(shop)
    with pytest.raises(sa.InvalidInputError, match="takes it away") as caught:
        shop.roll_out(share=0.2)
    assert caught.value.field == "share"
    with pytest.raises(sa.InvalidInputError, match="to replace it by") as caught:
        shop.roll_out("B")
    assert caught.value.field == "variant"
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
