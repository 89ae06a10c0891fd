"""Shares of the traffic, layers of tests that have no unit in common, and previews."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.storages import open_storage
from steadyarm.storages.storage import Storage
from tests.live.test_after import check_outside

UNITS = [f"v{i}" for i in range(500)]


def create(name: str, storage: Storage, **settings: Any) -> sa.Experiment:
    usual: dict[str, Any] = {"control": "A", "missing": "drop", "seed": 1}
    return sa.create_experiment(name, ["A", "B"], sa.Steady(), 5000, storage, **usual | settings)


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
    shop = create("shop", open_storage("memory"), traffic=0.3)
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
    first = create("first", storage, traffic=0.5, layer="checkout")
    second = create("second", storage, traffic=0.3, layer="checkout", seed=2)
    create("other", storage, traffic=1.0, layer="search")
    inside = units_in(first), units_in(second)
    assert not inside[0] & inside[1]
    with pytest.raises(sa.InvalidInputError, match="no room for 0"):
        create("third", storage, traffic=0.3, layer="checkout")
    assert [one.name for one in storage.summaries()] == ["first", "second", "other"]
    first.stop()
    first.archive()
    third = create("third", storage, traffic=0.4, layer="checkout", seed=3)
    assert not units_in(third) & inside[1]
    assert units_in(sa.load_experiment("second", storage)) == inside[1]


def test_a_preview_shows_a_variant_and_stores_nothing() -> None:
    shop = create("shop", open_storage("memory"))
    check_outside(shop.ask("colleague", preview="B"), "B")
    with pytest.raises(sa.InvalidInputError, match="'C'"):
        shop.ask("colleague", preview="C")
    assert shop.status().total_assigned == 0
    assert shop.ask("colleague").in_test
