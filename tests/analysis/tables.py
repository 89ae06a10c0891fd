"""Two tables for tests: exposures and events, in every place, and a plain join of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tests.analysis.logs import START, write_table

Exposure = tuple[str, datetime, str, float]  # unit, time, arm, probability
Event = tuple[str | None, datetime, str, float | None]  # unit, time, name, value
EXPOSURES = ("user_id", "exposed_at", "variant", "probability")
EVENTS = ("user_id", "event_time", "event_name", "amount")


@dataclass(frozen=True)
class Unit:
    """One unit as the plain join sees it."""

    time: datetime
    arm: str
    probability: float
    values: tuple[float, ...]


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def plain_join(
    exposures: Sequence[Exposure],
    events: Sequence[Event],
    measures: Sequence[tuple[str, str]],
    window: timedelta | None,
) -> list[Unit]:
    """Units in order, with each of the measures (kind, event), in loops."""
    end = max([one[1] for one in exposures] + [one[1] for one in events])
    found = []
    for unit in sorted({one[0] for one in exposures}):
        mine = [one for one in exposures if one[0] == unit]
        start = min(one[1] for one in mine)
        firsts = [one for one in mine if one[1] == start]
        if len({one[2] for one in firsts}) > 1:
            continue
        if window is not None and start + window > end:
            continue
        values = []
        for kind, name in measures:
            inside = [
                one
                for one in events
                if one[0] == unit and one[2] == name and one[1] >= start
                if window is None or one[1] <= start + window
            ]
            amounts = [one[3] for one in inside if one[3] is not None]
            values.append(
                {
                    "conversion": float(len(inside) > 0),
                    "count": float(len(inside)),
                    "sum": float(sum(amounts)),
                    "max": max(amounts, default=0.0),
                }[kind]
            )
        probability = min(one[3] for one in firsts)
        found.append(Unit(start, firsts[0][2], probability, tuple(values)))
    return found


def random_tables(
    units: int = 300, days: int = 6, seed: int = 0, arms: str = "AB"
) -> tuple[list[Exposure], list[Event]]:
    """Units that come over some days, some of them again; views and purchases around that time."""
    rng = np.random.default_rng(seed)
    exposures: list[Exposure] = []
    events: list[Event] = []
    for i in range(units):
        unit, arm = f"u{i}", arms[int(rng.integers(len(arms)))]
        start = START + timedelta(days=days * i / units)
        for again in range(1 + int(rng.integers(2))):
            exposures.append((unit, start + timedelta(hours=30 * again), arm, 1 / len(arms)))
        for _ in range(int(rng.integers(6))):
            time = start + timedelta(minutes=int(rng.integers(-1000, 6000)))
            name = "purchase" if rng.random() < 0.4 else "view"
            events.append((unit, time, name, round(float(rng.gamma(2, 10)), 2)))
    events.append(("nobody", START + timedelta(days=days + 4), "view", None))
    return exposures, events


def write_tables(
    place: Any, exposures: Sequence[Exposure], events: Sequence[Event], suffix: str = ""
) -> tuple[Any, Any]:
    """Write both tables to a database, or with a suffix to files in a folder: their places."""
    pairs = (("exposures", EXPOSURES, exposures), ("events", EVENTS, events))
    left, right = (
        write_table(place / (name + suffix) if suffix else place, names, rows, name)
        for name, names, rows in pairs
    )
    return (left, right) if suffix else ("exposures", "events")


def write_csvs(
    folder: Path, exposures: Sequence[Exposure], events: Sequence[Event]
) -> tuple[Any, Any]:
    return write_tables(folder, exposures, events, ".csv")


def write_parquets(
    folder: Path, exposures: Sequence[Exposure], events: Sequence[Event]
) -> tuple[Any, Any]:
    return write_tables(folder, exposures, events, ".parquet")
