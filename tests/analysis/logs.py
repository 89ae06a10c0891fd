"""Logs for tests: rows, the same rows in every place, and what is true of them."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = ("timestamp", "unit", "arm", "probability", "reward")
START = datetime(2026, 3, 1)


@dataclass(frozen=True)
class Row:
    timestamp: Any
    unit: Any
    arm: Any
    probability: Any
    reward: Any

    @property
    def values(self) -> tuple[Any, ...]:
        return (self.timestamp, self.unit, self.arm, self.probability, self.reward)


def random_rows(
    rows: int = 600, days: int = 5, arms: str = "ABC", seed: int = 0, level: float = 0.0
) -> list[Row]:
    """Rows whose probabilities change every day and whose rewards differ by arm and day."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(len(arms), 5.0), size=days) * 0.7 + 0.3 / len(arms)
    made = []
    for i in range(rows):
        day = i * days // rows
        k = int(rng.choice(len(arms), p=p[day] / p[day].sum()))
        time = START + timedelta(days=day, seconds=int(i % (rows // days)) * 60)
        reward = level + 0.3 * k - 0.1 * day + float(rng.normal())
        made.append(Row(time, f"u{i}", arms[k], float(p[day, k]), reward))
    return made


def text(value: Any) -> str:
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, datetime) else str(value)


KINDS = {datetime: "timestamp", str: "text", float: "double precision", int: "integer"}


def kind_of(values: Sequence[Any]) -> str:
    """What a database calls the type of the first value."""
    first = next((value for value in values if value is not None), 0.0)
    return next(kind for python, kind in KINDS.items() if isinstance(first, python))


def write_table(
    place: Path | str,
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    table: str = "log",
    kinds: Mapping[str, str] | None = None,
) -> Any:
    """Write rows to a .csv, .parquet or SQLite file, or to a table at the URL of a PostgreSQL.

    kinds : of columns of PostgreSQL, where they are not those of the first values
    """
    if isinstance(place, Path) and place.suffix == ".csv":
        with place.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(names)
            writer.writerows([text(value) for value in row] for row in rows)
        return place
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    if isinstance(place, Path) and place.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), place)
        return place
    own = kinds or {}
    types = {name: own.get(name) or kind_of(values) for name, values in columns.items()}
    if isinstance(place, str):
        import psycopg

        with psycopg.connect(place) as server, server.cursor() as cursor:
            head = ", ".join(f"{name} {kind}" for name, kind in types.items())
            cursor.execute(f"drop table if exists {table}; create table {table} ({head})")
            marks = ", ".join(["%s"] * len(names))
            cursor.executemany(f"insert into {table} values ({marks})", [list(row) for row in rows])
        return place
    with closing(sqlite3.connect(place)) as database, database:
        head = ", ".join(f"{n} {kind.replace('timestamp', 'text')}" for n, kind in types.items())
        database.execute(f"create table {table} ({head})")
        plain = [[text(v) or None if isinstance(v, datetime) else v for v in row] for row in rows]
        marks = ", ".join("?" * len(names))
        database.executemany(f"insert into {table} values ({marks})", plain)
    return place


def write_csv(path: Path, rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> Path:
    write_log(path, rows, columns)
    return path


def write_log(
    place: Any,
    rows: Sequence[Row],
    columns: Sequence[str] = COLUMNS,
    table: str = "log",
    kinds: Mapping[str, str] | None = None,
) -> Any:
    """Write a log; see `write_table`."""
    return write_table(place, columns, [row.values for row in rows], table, kinds)


def true_evidence(rows: Sequence[Row], names: Sequence[str]) -> tuple[Any, Any, Any]:
    """Rounds, scores and squares by day from single rows, with the reference of earlier days.

    Squares around the mean of a day have the factor n / (n - 1).
    """
    days = sorted({row.timestamp.date() for row in rows})
    K = len(names)
    seen, total = np.zeros(K), np.zeros(K)
    rounds, scores, squares = [], [], []
    for day in days:
        today = [row for row in rows if row.timestamp.date() == day]
        if not seen.any():
            v = np.full(K, np.mean([row.reward for row in today]))
        else:
            v = np.where(seen > 0, total / np.maximum(seen, 1), total.sum() / seen.sum())
        each = np.tile(v, (len(today), 1))
        for i, row in enumerate(today):
            k = names.index(row.arm)
            each[i, k] += (row.reward - v[k]) / row.probability
            seen[k] += 1
            total[k] += row.reward
        rounds.append(len(today))
        scores.append(each.sum(axis=0))
        n, level = len(today), np.outer(each.sum(axis=0), each.sum(axis=0)) / len(today)
        squares.append((each.T @ each - level) * n / max(n - 1, 1) + level)
    return np.array(rounds), np.array(scores), np.array(squares)
