"""Logs for tests: rows, the same rows in every place, and what is true of them."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Sequence
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


def write_csv(path: Path, rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([text(value) for value in row.values] for row in rows)
    return path


def write_parquet(path: Path, rows: Sequence[Row], group: int | None = None) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = list(zip(*(row.values for row in rows), strict=True))
    pq.write_table(pa.table(dict(zip(COLUMNS, columns, strict=True))), path, row_group_size=group)
    return path


def write_sqlite(path: Path, rows: Sequence[Row]) -> Path:
    with sqlite3.connect(path) as connection:
        connection.execute(
            "create table log (timestamp text, unit text, arm text, probability real, reward real)"
        )
        values = [(text(row.timestamp) or None, *row.values[1:]) for row in rows]
        connection.executemany("insert into log values (?, ?, ?, ?, ?)", values)
    connection.close()
    return path


def write_postgres(
    url: str, rows: Sequence[Row], table: str = "log", time: str = "timestamp"
) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(f"drop table if exists {table}")
        connection.execute(
            f"create table {table} (timestamp {time}, unit text, arm text, "
            "probability double precision, reward double precision)"
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                f"insert into {table} values (%s, %s, %s, %s, %s)",
                [row.values for row in rows],
            )


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
