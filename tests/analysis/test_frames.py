"""DataFrames as logs: the numbers of the same rows in a file, whatever the frame's library."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
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
from steadyarm.analysis.frames import is_frame
from tests.analysis.logs import COLUMNS, random_rows, write_csv

ROWS = random_rows()


def pandas_frame() -> Any:
    columns = list(zip(*(row.values for row in ROWS), strict=True))
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))


def arrow_table() -> Any:
    columns = list(zip(*(row.values for row in ROWS), strict=True))
    return pa.table(dict(zip(COLUMNS, columns, strict=True)))


class Stream:
    """Nothing but an Arrow stream that can be read once."""

    def __init__(self) -> None:
        self.reader = arrow_table().to_reader(max_chunksize=100)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader.__arrow_c_stream__(requested_schema)


def duckdb_relation() -> Any:
    import duckdb

    return duckdb.connect().from_arrow(arrow_table())


FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": pandas_frame,
    "pandas, Arrow types": lambda: pandas_frame().convert_dtypes(dtype_backend="pyarrow"),
    "pandas, nullable types": lambda: pandas_frame().convert_dtypes(),
    "pandas, objects": lambda: pandas_frame().astype({"arm": object, "unit": object}),
    "pandas, another index": lambda: pandas_frame().set_index(np.arange(600)[::-1] * 7),
    "pandas, times as index": lambda: pandas_frame().set_index("timestamp"),
    "pandas, two levels": lambda: pandas_frame().set_index(["timestamp", "unit"]),
    "pandas, categories": lambda: pandas_frame().astype({"arm": "category", "unit": "category"}),
    "polars": lambda: pl.from_arrow(arrow_table()),
    "polars, categories": lambda: pl.DataFrame(pandas_frame()).with_columns(
        arm=pl.col("arm").cast(pl.Categorical), unit=pl.col("unit").cast(pl.Categorical)
    ),
    "polars, enumeration": lambda: pl.DataFrame(pandas_frame()).with_columns(
        arm=pl.col("arm").cast(pl.Enum(["C", "B", "A"]))
    ),
    "polars, lazy": lambda: pl.LazyFrame(pandas_frame()),
    "Arrow table": arrow_table,
    "Arrow dictionary": lambda: arrow_table().set_column(
        2, "arm", arrow_table()["arm"].dictionary_encode()
    ),
    "Arrow batch": lambda: arrow_table().combine_chunks().to_batches()[0],
    "Arrow reader": lambda: arrow_table().to_reader(max_chunksize=50),
    "Arrow dataset": lambda: pyarrow.dataset.dataset(arrow_table()),
    "Arrow stream": Stream,
    "DuckDB relation": duckdb_relation,
    "Ibis": lambda: ibis.memtable(arrow_table()),
    "nanoseconds": lambda: pandas_frame().astype({"timestamp": "datetime64[ns]"}),
    "milliseconds": lambda: pandas_frame().astype({"timestamp": "datetime64[ms]"}),
    "another zone": lambda: pandas_frame().assign(
        timestamp=lambda f: f.timestamp.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    ),
    "another zone, polars": lambda: pl.DataFrame(pandas_frame()).with_columns(
        timestamp=pl.col("timestamp").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo")
    ),
    "times as text": lambda: pandas_frame().assign(
        timestamp=lambda f: f.timestamp.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    ),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> sa.Analysis:
    return sa.analyze(write_csv(tmp_path_factory.mktemp("log") / "log.csv", ROWS))


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_say_what_the_file_says(kind: str, expected: sa.Analysis) -> None:
    frame = FRAMES[kind]()
    before = frame.copy() if isinstance(frame, pd.DataFrame) else None
    found = sa.analyze(frame)
    for name in ("rounds", "scores", "squares"):
        mine, theirs = getattr(expected.evidence, name), getattr(found.evidence, name)
        scale = np.abs(mine).max()
        np.testing.assert_allclose(theirs, mine, rtol=1e-12, atol=1e-12 * scale)
    assert found.drift.periods == expected.drift.periods
    assert found.plausible == expected.plausible
    assert found.health.status == "ok"
    if before is not None:
        pd.testing.assert_frame_equal(frame, before)


def test_units_of_frames_are_grouped(tmp_path: Path) -> None:
    frame = pandas_frame().assign(unit=[f"u{i // 4}" for i in range(600)])
    frame.to_csv(tmp_path / "log.csv", index=False)
    expected = sa.analyze(tmp_path / "log.csv")
    for other in (frame, frame.astype({"unit": "category"}), pl.LazyFrame(frame)):
        found = sa.analyze(other)
        assert found.units == expected.units
        np.testing.assert_allclose(found.intervals.low, expected.intervals.low, rtol=1e-10)


@pytest.mark.parametrize(
    "rewards",
    [
        [Decimal("1.50"), Decimal("2.25")],
        np.array([3, 4], dtype=np.int8),
        pd.array([True, False], dtype="boolean"),
        np.array([1.5, 2.5], dtype=np.float32),
        pd.array([1, 2], dtype="Int64"),
        ["1.5", "-2"],
    ],
)
def test_rewards_of_any_number_type(rewards: Any) -> None:
    frame = pd.DataFrame({"reward": rewards}).iloc[np.arange(600) % 2].reset_index(drop=True)
    arms = [row.arm for row in ROWS]
    values = [float(value) for value in rewards]
    found = sa.analyze(pandas_frame().assign(reward=frame["reward"]))
    for arm, mean in zip(found.arms.names, found.means, strict=True):
        own = [values[i % 2] for i in range(600) if arms[i] == arm]
        assert mean == pytest.approx(np.mean(own))


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_faults_name_rows_of_the_frame(library: str) -> None:
    frame = pandas_frame()
    frame.loc[16, "probability"] = 0.0
    frame.loc[30, "reward"] = np.inf
    frame.index = frame.index[::-1]
    made: dict[str, Callable[[], Any]] = {
        "pandas": lambda: frame,
        "polars": lambda: pl.DataFrame(frame),
        "arrow": lambda: pa.Table.from_pandas(frame, preserve_index=False),
    }
    broken = made[library]()
    with pytest.raises(sa.InvalidInputError) as error:
        sa.analyze(broken)
    said = str(error.value)
    assert said.startswith("the frame cannot be analysed (rows are counted from 1 in the frame)")
    assert "row 17: the probability is 0.0" in said
    assert "row 31: the reward is inf" in said


def test_missing_rewards_are_missing_in_every_library() -> None:
    frame = pandas_frame()
    frame.loc[[4, 9], "reward"] = np.nan
    for other in (
        frame,
        frame.convert_dtypes(),
        pl.from_pandas(frame),
        pa.Table.from_pandas(frame),
    ):
        with pytest.raises(sa.InvalidInputError, match=r"row 5, row 10: the reward is missing"):
            sa.analyze(other)
        assert sa.analyze(other, missing="drop").rewards == 598
    nan = pl.DataFrame(frame.reset_index(drop=True)).with_columns(reward=pl.lit(float("nan")))
    with pytest.raises(sa.InvalidInputError, match="the reward is nan"):
        sa.analyze(nan)


def test_columns_are_mapped_and_queried() -> None:
    frame = pandas_frame().rename(columns={"arm": "variant", "reward": "revenue"})
    names = {"arm": "variant", "reward": "revenue"}
    found = sa.analyze(frame, columns=names)
    assert found.rows == 600
    query = "select *, variant as arm, revenue as reward from log where variant <> 'C'"
    assert sa.analyze(pl.LazyFrame(frame), query=query).arms.names == ("A", "B")
    with pytest.raises(sa.InvalidInputError, match="the frame has no column arm, reward"):
        sa.analyze(frame)


def test_columns_that_nobody_asks_for_may_be_of_any_type() -> None:
    frame = pandas_frame()
    frame["month"] = frame["timestamp"].dt.to_period("M")
    frame[7] = 1.0
    assert sa.analyze(frame).rows == 600
    wide = arrow_table().append_column("wide", pa.array([1] * 600, pa.decimal256(60, 2)))
    assert sa.analyze(wide).rows == 600
    huge = pl.DataFrame(pandas_frame()).with_columns(huge=pl.lit(1, dtype=pl.Int128))
    assert sa.analyze(huge).rows == 600
    with pytest.raises(sa.InvalidInputError, match=r"column 'month' .* type period\[M\], which"):
        sa.analyze(frame, columns={"timestamp": "month"})


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (lambda: pandas_frame()["reward"], "is a Series, which is one column"),
        (lambda: pl.Series([1.0]), "is a Series, which is one column"),
        (lambda: {"arm": ["A"]}, "the log is .*arm.*; expected"),
        (lambda: [{"arm": "A"}], "no names of files; make a DataFrame"),
        (lambda: 7, "the log is 7; expected"),
        (lambda: pandas_frame().iloc[:0], "the frame has no rows"),
        (lambda: pd.DataFrame(), "the frame has no column"),
        (
            lambda: pd.concat([pandas_frame(), pandas_frame()[["reward"]]], axis=1),
            "several columns called 'reward'",
        ),
        (
            lambda: pandas_frame().assign(reward=pd.to_timedelta(1, unit="s")),
            "the column reward of the frame has type interval",
        ),
        (
            lambda: pandas_frame().assign(timestamp=[{"a": 1}] * 600),
            "the column timestamp of the frame has type",
        ),
        (lambda: pandas_frame().assign(timestamp="soon"), "row 1, row 2, .* time stamp is 'soon'"),
        (lambda: pandas_frame().assign(reward=["1"] * 599 + ["x"]), "row 600: the reward is 'x'"),
    ],
)
def test_what_is_refused(frame: Callable[[], Any], message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.analyze(frame())


def test_a_table_of_a_frame_is_refused() -> None:
    with pytest.raises(sa.InvalidInputError, match="the log is a frame; a query may name it log"):
        sa.analyze(pandas_frame(), table="visits")


def test_rows_are_numbered_in_order_in_large_frames() -> None:
    """DuckDB reads large frames in several threads."""
    n = 600_000
    frame = pl.DataFrame(
        {
            "timestamp": pl.Series(np.arange(n)),
            "arm": np.where(np.arange(n) % 2, "A", "B"),
            "probability": np.full(n, 0.5),
            "reward": np.where(np.isin(np.arange(n), [399_999, 599_999]), np.inf, 1.0),
        }
    )
    for other in (frame, frame.to_pandas(), frame.to_arrow().to_reader()):
        with pytest.raises(sa.InvalidInputError, match="row 400000, row 600000: the reward"):
            sa.analyze(other)


def test_what_is_a_frame() -> None:
    assert not any(map(is_frame, ("log.csv", Path("log.csv"), ["a.csv"], {"arm": []}, 3, None)))
    assert all(is_frame(make()) for make in FRAMES.values())
