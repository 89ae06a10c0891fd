"""The same log from every place gives the same numbers, and they are those of the single rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import steadyarm as sa
from tests.analysis.logs import (
    COLUMNS,
    Row,
    random_rows,
    true_evidence,
    write_csv,
    write_log,
)

NAMES = ["A", "B", "C"]
ROWS = random_rows()


def assert_like_rows(found: sa.Analysis, rows: list[Row]) -> None:
    rounds, scores, squares = true_evidence(rows, NAMES)
    assert found.evidence.rounds[0].tolist() == rounds.tolist()
    size = np.abs(squares).max()
    np.testing.assert_allclose(found.evidence.scores[0], scores, rtol=1e-11, atol=1e-11 * size)
    np.testing.assert_allclose(found.evidence.squares[0], squares, rtol=1e-9, atol=1e-10 * size)
    for k, name in enumerate(NAMES):
        mine = [row.reward for row in rows if row.arm == name]
        assert found.counts[k] == len(mine)
        assert found.means[k] == pytest.approx(np.mean(mine), abs=1e-12)


@pytest.mark.parametrize("level", [0.0, 1000.0])
def test_every_place_says_the_same(level: float, tmp_path: Path, postgres: str) -> None:
    import duckdb

    rows = random_rows(level=level)
    folder = tmp_path / "logs"
    folder.mkdir()
    write_csv(folder / "1.csv", rows[:250])
    write_csv(folder / "2.csv", rows[250:])
    write_log(postgres, rows)
    parquet = write_log(tmp_path / "log.parquet", rows)
    with duckdb.connect(str(tmp_path / "log.duckdb")) as connection:
        connection.execute(f"create table log as select * from '{parquet}'")
    found = {
        "csv": sa.analyze(write_csv(tmp_path / "log.csv", rows)),
        "parquet": sa.analyze(parquet),
        "folder": sa.analyze(folder),
        "duckdb": sa.analyze(tmp_path / "log.duckdb"),
        "sqlite": sa.analyze(write_log(tmp_path / "log.db", rows)),
        "postgres": sa.analyze(postgres, query="log"),
        "query": sa.analyze(postgres, query="select * from log"),
    }
    for place, one in found.items():
        assert_like_rows(one, rows)
        assert one.recommended == found["csv"].recommended, place
        assert one.drift.periods == found["csv"].drift.periods
        mine, theirs = (
            [(f.name, f.status, f.explanation) for f in each.health.findings[:2]]
            for each in (one, found["csv"])
        )
        assert mine == theirs
    assert found["csv"].units is None
    assert found["csv"].intervals.method == "rounds"


def pandas_frame() -> Any:
    columns = list(zip(*(row.values for row in ROWS), strict=True))
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))


def arrow_table() -> Any:
    return pa.Table.from_pandas(pandas_frame(), preserve_index=False)


FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": pandas_frame,
    "pandas, nullable types": lambda: pandas_frame().convert_dtypes(),
    "pandas, times as index": lambda: pandas_frame().set_index("timestamp"),
    "pandas, categories": lambda: pandas_frame().astype({"arm": "category", "unit": "category"}),
    "polars": lambda: pl.from_arrow(arrow_table()),
    "polars, lazy": lambda: pl.LazyFrame(pandas_frame()),
    "Arrow table": arrow_table,
    "Arrow reader": lambda: arrow_table().to_reader(max_chunksize=50),
    "Arrow dataset": lambda: pyarrow.dataset.dataset(arrow_table()),
    "Ibis": lambda: ibis.memtable(arrow_table()),
    "another zone": lambda: pl.DataFrame(pandas_frame()).with_columns(
        timestamp=pl.col("timestamp").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo")
    ),
    "times as text": lambda: pandas_frame().assign(
        timestamp=lambda f: f.timestamp.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_say_what_the_file_says(kind: str) -> None:
    frame = FRAMES[kind]()
    before = frame.copy() if isinstance(frame, pd.DataFrame) else None
    found = sa.analyze(frame)
    assert_like_rows(found, ROWS)
    assert found.health.status == "ok"
    if before is not None:
        pd.testing.assert_frame_equal(frame, before)


def test_frames_are_mapped_and_queried() -> None:
    frame = pandas_frame().rename(columns={"arm": "variant", "reward": "revenue"})
    assert sa.analyze(frame, columns=sa.Columns(arm="variant", reward="revenue")).rows == 600
    query = "select *, variant as arm, revenue as reward from log where variant <> 'C'"
    assert sa.analyze(pl.LazyFrame(frame), query=query).arms.names == ("A", "B")
    with pytest.raises(sa.InvalidInputError, match="may name it log"):
        sa.analyze(frame, query="visits")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (lambda: pandas_frame()["reward"], "one column"),
        (lambda: {"arm": ["A"]}, "the log is dict; expected"),
        (lambda: pandas_frame().iloc[:0], "the frame has no rows"),
        (lambda: pd.DataFrame(), "the frame"),
        (
            lambda: pandas_frame().assign(reward=pd.to_timedelta(1, unit="s")),
            "the column 'reward' of the frame has type interval",
        ),
        (lambda: pandas_frame().assign(reward=["1"] * 599 + ["x"]), "row 600: the reward is 'x'"),
    ],
)
def test_frames_that_are_no_logs(frame: Callable[[], Any], message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.analyze(frame())


@pytest.mark.parametrize("period", ["hour", "week", "month", "shares:3"])
def test_periods_only_cut_the_same_rows_otherwise(
    period: str, tmp_path: Path, postgres: str
) -> None:
    rows = random_rows(seed=6)
    write_log(postgres, rows, table="periods")
    found = [
        sa.analyze(write_log(tmp_path / "log.parquet", rows), period=period),
        sa.analyze(write_log(tmp_path / "log.db", rows), period=period),
        sa.analyze(postgres, query="periods", period=period),
    ]
    for one in found:
        np.testing.assert_allclose(one.evidence.scores, found[0].evidence.scores, rtol=1e-11)
        assert one.evidence.played[0] == 600
        assert one.drift.periods == found[0].drift.periods


@pytest.mark.parametrize("kind", ["csv", "parquet", "postgres"])
def test_seconds_since_1970(kind: str, tmp_path: Path, postgres: str) -> None:
    rows = random_rows(seed=8)
    true = sa.analyze(write_csv(tmp_path / "true.csv", rows))
    for scale in (1, 1000):
        numbers = [
            replace(row, timestamp=int(row.timestamp.replace(tzinfo=UTC).timestamp()) * scale)
            for row in rows
        ]
        place = postgres if kind == "postgres" else tmp_path / f"log.{kind}"
        found = sa.analyze(
            write_log(place, numbers, table="seconds", kinds={"timestamp": "bigint"}),
            query="seconds" if kind == "postgres" else None,
        )
        assert found.drift.periods == true.drift.periods
        np.testing.assert_allclose(found.estimates, true.estimates, rtol=1e-12)


@pytest.mark.parametrize(
    ("form", "time_format"),
    [
        ("%d.%m.%Y %H:%M", None),
        ("%B %d, %Y", None),
        ("%m/%d/%Y %I:%M %p", "%m/%d/%Y %I:%M %p"),
        ("%d/%m/%Y", "%d/%m/%Y"),
    ],
)
def test_dates_as_people_write_them(form: str, time_format: str | None, tmp_path: Path) -> None:
    rows = random_rows(seed=8)
    true = sa.analyze(write_csv(tmp_path / "log.csv", rows))
    log = write_csv(
        tmp_path / "dates.csv", [replace(r, timestamp=f"{r.timestamp:{form}}") for r in rows]
    )
    assert (
        sa.analyze(log, columns=sa.Columns(time_format=time_format)).drift.periods
        == true.drift.periods
    )
    if time_format:
        with pytest.raises(sa.InvalidInputError, match="--time-format"):
            sa.analyze(log)


def test_a_log_without_times_has_one_period() -> None:
    frame = pandas_frame().drop(columns="timestamp").rename(columns={"reward": "revenue"})
    found = sa.analyze(frame.rename(columns={"arm": "variant", "unit": "user_id"}))
    assert found.drift.periods == ("all rows",)
    assert "The log has no times, so drift cannot be tested." in found.notes
    with pytest.raises(
        sa.InvalidInputError, match="the shares changed, but the frame has no times"
    ):
        sa.analyze(
            frame.drop(columns="probability"), split=["equal", "2026-03-03: A=0.4,B=0.3,C=0.3"]
        )
