"""Values of variants through a client: asked for, from leased positions, and of a default arm."""

from __future__ import annotations

from typing import Any

import steadyarm as sa
from steadyarm.client import Client, is_default

PRICES = {"A": {"price": 9}, "B": {"price": 12}}


def test_one_many_and_local(client: Client, name: str) -> None:
    shop = client.create(name, ["A", "B"], budget=200, missing="drop", values=PRICES)
    assert (one := shop.ask("u1")).value == PRICES[one.name]
    many = shop.ask_many(["u1", "u2", "u3"])
    assert all(isinstance(a, sa.LiveAssignment) and a.value == PRICES[a.name] for a in many)
    with shop.local(positions=20) as local:
        drawn = [local.ask(f"v{i}") for i in range(10)]
        assert all(a.value == PRICES[a.name] for a in drawn)


def test_derived_values_are_the_same_here_and_there(client: Client, name: str) -> None:
    arms = sa.ArmSet.factorial({"headline": ["short", "long"], "image": ["dog", "cat"]})
    shop = client.create(name, arms, budget=200, missing="drop")
    with shop.local(positions=20) as local:
        for i in range(10):
            drawn: Any = local.ask(f"v{i}").value
            assert set(drawn) == {"headline", "image"}
        local.flush()
        assert all(local.ask(f"v{i}").value == shop.ask(f"v{i}").value for i in range(10))


def test_a_default_arm_has_its_value(client: Client, name: str) -> None:
    client.create(name, ["A", "B"], budget=200, missing="drop", values=PRICES, start=False)
    shop = client.experiment(name, default_arm="B")
    shop.status()
    shown = shop.ask("u1")
    assert is_default(shown)
    assert shown.value == PRICES["B"]
