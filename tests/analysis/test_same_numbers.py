"""The same log from every place gives the same numbers, and they are those of the single rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steadyarm as sa
from steadyarm.analysis.log import Log
from tests.analysis.logs import (
    Row,
    random_rows,
    true_evidence,
    write_csv,
    write_parquet,
    write_postgres,
    write_sqlite,
)

NAMES = ["A", "B", "C"]


def assert_like_rows(found: sa.Analysis, rows: list[Row]) -> None:
    rounds, scores, squares = true_evidence(rows, NAMES)
    assert found.evidence.rounds[0].tolist() == rounds.tolist()
    size = np.abs(squares).max()
    np.testing.assert_allclose(found.evidence.scores[0], scores, rtol=1e-11, atol=1e-11 * size)
    np.testing.assert_allclose(found.evidence.squares[0], squares, rtol=1e-11, atol=1e-11 * size)
    for k, name in enumerate(NAMES):
        mine = [row.reward for row in rows if row.arm == name]
        assert found.counts[k] == len(mine)
        assert found.means[k] == pytest.approx(np.mean(mine), abs=1e-12)


@pytest.mark.parametrize("level", [0.0, 1000.0])
def test_every_place_says_the_same(level: float, tmp_path: Path, postgres: str) -> None:
    rows = random_rows(level=level)
    folder = tmp_path / "logs"
    folder.mkdir()
    write_csv(folder / "1.csv", rows[:250])
    write_csv(folder / "2.csv", rows[250:])
    write_postgres(postgres, rows)
    found = {
        "csv": sa.analyze(write_csv(tmp_path / "log.csv", rows)),
        "parquet": sa.analyze(write_parquet(tmp_path / "log.parquet", rows)),
        "folder": sa.analyze(folder),
        "sqlite": sa.analyze(write_sqlite(tmp_path / "log.db", rows)),
        "postgres": sa.analyze(postgres, table="log"),
        "query": sa.analyze(postgres, query="select * from log"),
    }
    first = found["csv"]
    assert_like_rows(first, rows)
    for place, other in found.items():
        assert other.recommended == first.recommended, place
        for name in ("scores", "squares"):
            mine, theirs = getattr(first.evidence, name), getattr(other.evidence, name)
            scale = np.abs(mine).max()
            np.testing.assert_allclose(theirs, mine, rtol=1e-12, atol=1e-12 * scale, err_msg=place)
        assert other.drift.periods == first.drift.periods
        assert other.health.findings[:2] == first.health.findings[:2]


def test_weighing_row_by_row_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows(seed=3)
    log = write_csv(tmp_path / "log.csv", rows)
    few = sa.analyze(log)
    monkeypatch.setattr("steadyarm.analysis.sums.FEW", 0)
    many = sa.analyze(log)
    assert_like_rows(many, rows)
    np.testing.assert_allclose(many.estimates, few.estimates, rtol=1e-12)


@pytest.mark.parametrize("period", ["hour", "week", "month", "shares:3"])
def test_periods_only_cut_the_same_rows_otherwise(
    period: str, tmp_path: Path, postgres: str
) -> None:
    rows = random_rows(seed=6)
    write_postgres(postgres, rows, "periods")
    files = write_parquet(tmp_path / "log.parquet", rows), write_csv(tmp_path / "log.csv", rows)
    found = [sa.analyze(file, period=period) for file in files]
    found += [sa.analyze(write_sqlite(tmp_path / "log.db", rows), period=period)]
    found += [sa.analyze(postgres, table="periods", period=period)]
    for one in found:
        np.testing.assert_allclose(one.evidence.scores, found[0].evidence.scores, rtol=1e-11)
        assert one.evidence.played[0] == 600
        assert one.drift.periods == found[0].drift.periods


@pytest.mark.parametrize("unit", [1, 1000])
def test_numbers_as_times_tell_the_order(unit: int, tmp_path: Path) -> None:
    rows = random_rows(seed=8)
    numbers = [replace(row, timestamp=int(row.timestamp.timestamp()) * unit) for row in rows]
    log = write_parquet(tmp_path / "log.parquet", numbers)
    found, true = sa.analyze(log), sa.analyze(write_csv(tmp_path / "log.csv", rows))
    assert (found.rows, len(found.drift.periods)) == (600, 20)
    assert found.drift.periods[0] == f"from {numbers[0].timestamp}"
    np.testing.assert_allclose(found.estimates, true.estimates, atol=0.1)
    with pytest.raises(sa.InvalidInputError, match="plain numbers, whose unit is not known"):
        sa.analyze(log, period="day")
    text = write_csv(tmp_path / "numbers.csv", numbers)
    with pytest.raises(sa.InvalidInputError, match="turn seconds since 1970") as error:
        sa.analyze(text)
    assert f"row 1: the time stamp is '{numbers[0].timestamp}'" in str(error.value)
    seconds = f"to_timestamp(timestamp::double / {unit})"
    query = f"select * replace ({seconds} as timestamp) from log"
    for file in (text, log):
        assert sa.analyze(file, query=query).drift.periods == true.drift.periods


def test_duckdb_files_keep_to_their_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    rows = random_rows(seed=9)
    log = write_parquet(tmp_path / "log.parquet", rows)
    with duckdb.connect(str(tmp_path / "log.duckdb")) as connection:
        connection.execute(f"create table log as select * from '{log}'")
    seen = []

    def look(self: Log) -> None:
        seen.append(self.rows("select current_setting('memory_limit')")[0][0])

    monkeypatch.setattr(Log, "close", look)
    found = sa.analyze(tmp_path / "log.duckdb", memory="512MiB")
    assert_like_rows(found, rows)
    assert seen == ["512.0 MiB"]


def test_row_by_row_on_postgres(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(seed=4)
    write_postgres(postgres, rows, "other")
    monkeypatch.setattr("steadyarm.analysis.sums.FEW", 0)
    assert_like_rows(sa.analyze(postgres, table="other"), rows)


@settings(max_examples=12)
@given(
    picks=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 4),
            st.floats(0.01, 1.0),
            st.floats(-100, 100, allow_subnormal=False),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_any_small_log(picks: list[tuple[int, int, float, float]], tmp_path_factory: Any) -> None:
    from datetime import timedelta

    from tests.analysis.logs import START

    picks = [(0, 0, 0.5, 1.0), (1, 0, 0.5, 2.0), (2, 3, 0.5, 3.0), *picks]
    rows = [
        Row(START + timedelta(days=day, seconds=i), i, NAMES[k], p, r)
        for i, (k, day, p, r) in enumerate(sorted(picks, key=lambda pick: pick[1]))
    ]
    folder = tmp_path_factory.mktemp("log")
    assert_like_rows(sa.analyze(write_csv(folder / "log.csv", rows), period="day"), rows)


def test_quotes_of_other_kinds(tmp_path: Path) -> None:
    rows = random_rows(60)
    log = write_csv(tmp_path / "log.csv", [replace(row, arm=f'{row.arm}, 5" "x"') for row in rows])
    true = sa.analyze(log)
    assert true.arms.names == tuple(f'{arm}, 5" "x"' for arm in "ABC")
    log.write_text(log.read_text().replace('""', '\\"'))  # as Spark writes them
    found = sa.analyze(log)
    assert found.arms.names == true.arms.names
    assert found.estimates.tolist() == true.estimates.tolist()


def test_no_unit_twice_needs_no_search_for_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows(60)
    log = write_csv(tmp_path / "log.csv", rows)
    true = sa.analyze(log, units=False)
    monkeypatch.setattr("steadyarm.analysis.faults.duplicate_finding", None)
    found = sa.analyze(log)
    assert found.health.findings[-1] == true.health.findings[-1]
