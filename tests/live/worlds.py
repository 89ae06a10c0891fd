"""What tests of live experiments share."""

from __future__ import annotations

from typing import Any

import steadyarm as sa
from steadyarm.storages import open_storage

START = 1_780_000_000.0


class Clock:
    """Seconds since 1970 that pass when they are told to."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def arms_of(count: int) -> sa.ArmSet:
    return sa.ArmSet.one_hot([f"arm {k}" for k in range(count)])


def create(**settings: Any) -> sa.Experiment:
    """An experiment of three variants in memory, if nothing else is said."""
    given: dict[str, Any] = {
        "name": "test",
        "arms": ["A", "B", "C"],
        "policy": sa.Steady(),
        "budget": 100,
        "seed": 5,
        "missing": "drop",
    } | settings
    storage = given.pop("storage", None) or open_storage("memory")
    return sa.create_experiment(storage=storage, **given)
