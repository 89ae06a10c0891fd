"""Declarations of metrics: what they say, what is refused, and how they are written down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.lifecycle import settings_from_description
from steadyarm.live.metrics import Metric
from steadyarm.live.settings import Settings

SHOP = [
    {"name": "bought", "role": "primary", "kind": "yes/no", "window": "7d"},
    {
        "name": "revenue",
        "kind": "money",
        "unit": "€",
        "several": "sum",
        "window": "14d",
        "cap": 500,
    },
    {"name": "orders", "kind": "count", "several": "sum", "window": "14d", "grace": "1d"},
    {"name": "revenue per order", "unit": "€", "ratio": ["revenue", "orders"]},
    {"name": "loading", "unit": "s", "direction": "minimize", "role": "guardrail", "margin": 0.2},
]


def described(**changes: Any) -> Settings:
    usual = {"arms": ["A", "B"], "budget": 1000, "seed": 1, "control": "A", "metrics": SHOP}
    return settings_from_description(usual | changes)


def test_the_primary_metric_says_what_the_reward_is() -> None:
    settings = described()
    assert settings.primary.name == "bought"
    assert (settings.reward_range, settings.missing) == ((0.0, 1.0), "zero")
    assert settings.reward_window == settings.reward_grace == 7 * 86400
    assert list(settings.measured) == ["bought", "revenue", "orders", "loading"]


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({}, (-np.inf, np.inf)),
        ({"kind": "count"}, (0, np.inf)),
        ({"range": (1, 5)}, (1, 5)),
        ({"range": (1, 5), "missing": "zero"}, (0, 5)),
        ({"range": (1, 5), "cap": 3}, (1, 3)),
        ({"range": (1, 5), "several": "max", "window": "1d"}, (1, 5)),
        ({"range": (1, 5), "several": "sum", "window": "1d"}, (0, np.inf)),
        ({"range": (-1, 5), "several": "sum", "window": "1d"}, (-np.inf, np.inf)),
        ({"range": (1, 5), "several": "sum", "window": "1d", "cap": 9}, (0, 9)),
    ],
)
def test_limits_are_clipped_to_the_values_of_a_unit(
    settings: dict[str, Any], limits: tuple[float, float]
) -> None:
    low, high = sa.Metric("m", **settings).clip(np.array([-100.0, 100.0]))
    assert (low, high) == (max(limits[0], -100.0), min(limits[1], 100.0))


def test_values_are_checked_and_shown_in_their_unit() -> None:
    money = Metric("revenue", kind="money", unit="€", range=(0, 1000))
    assert money.check(35) == 35.0
    assert money.format_value(1234.5) == "1,234.50 €"
    with pytest.raises(sa.InvalidInputError, match="value of 'revenue' is 1001, outside of its"):
        money.check(1001)
    assert Metric("bought", kind="yes/no").format_value(0.031) == "3.1 %"
    assert Metric("loading", unit="s").format_value(1.25) == "1.25 s"
    assert Metric("loading").format_value(float("nan")) == "unknown"
