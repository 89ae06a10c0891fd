"""More units than fit into memory: DuckDB spills, and leaves nothing behind."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest

import steadyarm as sa

UNITS, ROWS = 400_000, 1_200_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rows for each unit, whose names are long and far apart."""
    path = tmp_path_factory.mktemp("large") / "log.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"""
            COPY (
              SELECT TIMESTAMP '2026-03-01' + to_seconds(i) AS "timestamp",
                md5((i % {UNITS})::VARCHAR) || md5((i % {UNITS} + 7)::VARCHAR) AS unit,
                CASE WHEN i % {UNITS} % 2 = 0 THEN 'A' ELSE 'B' END AS arm, 0.5 AS probability,
                hash(i) % 100 / 10.0 + i % 2 AS reward
              FROM range({ROWS}) AS t(i)
            ) TO '{path}' (FORMAT parquet)""")
    return path


def test_units_that_do_not_fit_into_memory(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spilled"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spilled").mkdir()
    most, over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.002):
            files: list[Any] = list((tmp_path / "spilled").glob("steadyarm-*/*"))
            most = max(most, len(files))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        monkeypatch.setattr("steadyarm.analysis.source.MEMORY", "280MB")
        found = sa.analyze(large)
    finally:
        over.set()
        watcher.join()
    assert found.units is not None
    assert (found.units.units, found.units.rows) == (UNITS, ROWS)
    assert most > 0, "nothing was spilled, so nothing was tested"
    assert list((tmp_path / "spilled").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["spilled"]
    monkeypatch.setattr("steadyarm.analysis.source.MEMORY", "3GB")
    free = sa.analyze(large)
    assert found.estimates == pytest.approx(free.estimates, rel=1e-9)
