"""Two tables for tests: exposures and events, in every place, and a plain join of them."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tests.analysis.logs import START, text

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


def write_csvs(
    folder: Path, exposures: Sequence[Exposure], events: Sequence[Event]
) -> tuple[Path, Path]:
    paths = folder / "exposures.csv", folder / "events.csv"
    tables: list[tuple[Path, tuple[str, ...], Sequence[tuple[Any, ...]]]] = [
        (paths[0], EXPOSURES, exposures),
        (paths[1], EVENTS, events),
    ]
    for path, header, rows in tables:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows([text(value) for value in row] for row in rows)
    return paths


def write_parquets(
    folder: Path, exposures: Sequence[Exposure], events: Sequence[Event]
) -> tuple[Path, Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = folder / "exposures.parquet", folder / "events.parquet"
    for path, header, rows in ((paths[0], EXPOSURES, exposures), (paths[1], EVENTS, events)):
        columns = list(zip(*rows, strict=True))
        pq.write_table(pa.table(dict(zip(header, columns, strict=True))), path)
    return paths


def write_sqlite_tables(path: Path, exposures: Sequence[Exposure], events: Sequence[Event]) -> Path:
    with sqlite3.connect(path) as connection:
        connection.execute(
            "create table exposures (user_id text, exposed_at text, variant text, probability real)"
        )
        connection.execute(
            "create table events (user_id text, event_time text, event_name text, amount real)"
        )
        for name, rows in (("exposures", exposures), ("events", events)):
            values = [(row[0], text(row[1]), *row[2:]) for row in rows]
            connection.executemany(f"insert into {name} values (?, ?, ?, ?)", values)
    connection.close()
    return path


def write_postgres_tables(url: str, exposures: Sequence[Exposure], events: Sequence[Event]) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("drop table if exists exposures; drop table if exists events")
        connection.execute(
            "create table exposures (user_id text, exposed_at timestamp, variant text, "
            "probability double precision)"
        )
        connection.execute(
            "create table events (user_id text, event_time timestamp, event_name text, "
            "amount double precision)"
        )
        with connection.cursor() as cursor:
            for name, rows in (("exposures", exposures), ("events", events)):
                cursor.executemany(f"insert into {name} values (%s, %s, %s, %s)", list(rows))
