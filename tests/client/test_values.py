"""Values of variants through a client: asked for, from leased positions, and of a default arm."""

from __future__ import annotations

from steadyarm.client import Client, is_default

PRICES = {"A": {"price": 9}, "B": {"price": 12}}


def test_a_default_arm_has_its_value(client: Client, name: str) -> None:
    client.create(name, ["A", "B"], budget=200, missing="drop", values=PRICES, start=False)
    shop = client.experiment(name, default_arm="B")
    shop.status()
    shown = shop.ask("u1")
    assert is_default(shown)
    assert shown.value == PRICES["B"]
