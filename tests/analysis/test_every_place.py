"""A live test's log gives the live test's numbers, from whatever place it is analysed.

Rewards are eighths and every share is a quarter, so that sums are exact in any order: the numbers
are the same to the bit, wherever they are added up.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import polars as pl
import pyarrow.dataset
import pytest

import steadyarm as sa
from steadyarm.inference import fixed_budget

ARMS = sa.ArmSet.one_hot(["D", "C", "B", "A"])
VISITS = 2400
NUMBERS = ("rounds", "scores", "squares")


@pytest.fixture(scope="module")
def live() -> sa.Experiment:
    """A test of a week whose rewards come hours later, in another order."""
    clock = [datetime(2026, 3, 2, tzinfo=UTC).timestamp()]
    made = sa.create_experiment(
        "shop", ARMS, sa.Uniform(), VISITS, "memory", seed=5, missing="drop", clock=lambda: clock[0]
    )
    rng, waiting = np.random.default_rng(3), []
    for i in range(VISITS):
        clock[0] += 240
        waiting.append(made.ask(unit=f"u{i}"))
        if len(waiting) == 40 or i == VISITS - 1:
            for k in rng.permutation(len(waiting)).tolist():
                made.tell(waiting[k], float(rng.integers(0, 40) + 2 * waiting[k].arm) / 8)
            waiting = []
    return made


@pytest.fixture(scope="module")
def export(live: sa.Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return live.export(tmp_path_factory.mktemp("export") / "log.csv")


def frame_of(export: Path) -> pl.DataFrame:
    """What is in the export, with types."""
    names = ["timestamp", "unit", "arm", "probability", "reward", "segment", "block"]
    frame = pl.read_csv(export, columns=names)
    return frame.with_columns(pl.col("timestamp").str.to_datetime(time_zone="UTC"))


def write_sqlite(export: Path) -> Path:
    path = export.with_suffix(".sqlite")
    frame = frame_of(export).with_columns(pl.col("timestamp").dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    with sqlite3.connect(path) as connection:
        kinds = "text, unit text, arm text, probability real, reward real, segment int, block int"
        connection.execute(f"create table if not exists log (timestamp {kinds})")
        connection.executemany("insert into log values (?, ?, ?, ?, ?, ?, ?)", frame.rows())
    connection.close()
    return path


def write_duckdb(export: Path) -> Path:
    import duckdb

    path = export.with_suffix(".duckdb")
    with duckdb.connect(str(path)) as connection:
        connection.register("frame", frame_of(export).to_arrow())
        connection.execute("create table log as select * from frame")
    return path


def write_folder(export: Path) -> Path:
    folder = export.parent / "parts"
    folder.mkdir()
    for number, part in enumerate(frame_of(export).iter_slices(500)):
        part.write_parquet(folder / f"{number}.parquet")
    return folder


def write_parquet(export: Path) -> Path:
    path = export.parent / "frame.parquet"
    frame_of(export).write_parquet(path)
    return path


PLACES: dict[str, Callable[[Path], Any]] = {
    "export": lambda export: export,
    "CSV": lambda export: export.rename(export.with_name("other.csv")),
    "Parquet": write_parquet,
    "folder": write_folder,
    "pandas": lambda export: frame_of(export).to_pandas(),
    "polars": frame_of,
    "polars, lazy": lambda export: frame_of(export).lazy(),
    "polars, any order": lambda export: frame_of(export).sample(fraction=1, shuffle=True, seed=1),
    "Arrow": lambda export: frame_of(export).to_arrow(),
    "Arrow reader": lambda export: frame_of(export).to_arrow().to_reader(max_chunksize=100),
    "Arrow dataset": lambda export: pyarrow.dataset.dataset(write_parquet(export)),
    "Ibis": lambda export: ibis.duckdb.connect().read_parquet(write_parquet(export)),
    "DuckDB": write_duckdb,
    "SQLite": write_sqlite,
}


def assert_same(found: sa.Analysis, live: sa.Experiment) -> None:
    evidence, verdict = live.evidence(), live.recommend()
    for name in NUMBERS:
        np.testing.assert_array_equal(getattr(found.evidence, name), getattr(evidence, name), name)
    np.testing.assert_array_equal(found.estimates, verdict.estimates)
    once = fixed_budget(evidence)
    for name in ("low", "high", "gap_low", "gap_high", "plausible"):
        np.testing.assert_array_equal(getattr(found.intervals, name), getattr(once, name), name)
    assert (found.recommended, found.rows) == (verdict.name, VISITS)
    first = next(f for f in live.health().findings if f.name == "assignments")
    assert found.health.findings[0].p_value == first.p_value


@pytest.mark.parametrize("place", PLACES)
def test_the_numbers_are_those_of_the_live_test(
    place: str, live: sa.Experiment, tmp_path: Path
) -> None:
    source = PLACES[place](live.export(tmp_path / "log.csv"))
    assert_same(sa.analyze(source, arms=ARMS, reference=False), live)


def test_postgresql_has_the_same_numbers(live: sa.Experiment, export: Path, postgres: str) -> None:
    import psycopg

    with psycopg.connect(postgres) as connection:
        connection.execute("drop table if exists every_place")
        connection.execute(
            "create table every_place (timestamp timestamptz, unit text, arm text, probability "
            "double precision, reward double precision, segment int, block int)"
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                "insert into every_place values (%s, %s, %s, %s, %s, %s, %s)",
                frame_of(export).rows(),
            )
    assert_same(sa.analyze(postgres, table="every_place", arms=ARMS, reference=False), live)


def test_a_split_has_the_same_numbers_from_every_place(export: Path, tmp_path: Path) -> None:
    """What a company has of the same test: who saw what, and no probability."""
    frame = frame_of(export).select("timestamp", "unit", "arm", "reward")
    frame.write_csv(tmp_path / "log.csv")
    first = sa.analyze(tmp_path / "log.csv", split="equal")
    for source in (frame, frame.to_pandas(), frame.lazy(), frame.to_arrow().to_reader()):
        found = sa.analyze(source, split="equal")
        for name in NUMBERS:
            mine, theirs = (getattr(each.evidence, name) for each in (first, found))
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(found.intervals.gap_low, first.intervals.gap_low)
