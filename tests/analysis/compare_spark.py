"""Compares `analyze` on Spark in local mode with DuckDB, on a log of a million rows.

    make test-spark

It needs Java and pyspark, which the target installs; the test suite does not run it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np

import steadyarm as sa

QUESTIONS: dict[str, dict[str, Any]] = {
    "by row": {"columns": sa.Columns(unit=None), "control": "A"},
    "by unit": {"control": "A"},
    "covariates": {"columns": sa.Columns(covariates=["spend"])},
    "clusters": {"columns": sa.Columns(cluster=["store", "day"])},
    "segments": {"columns": sa.Columns(unit=None, segments=["country"])},
}


def write_log(path: Path, rows: int) -> None:
    """Rows of three arms, three for each unit, over two weeks."""
    with duckdb.connect() as connection:
        connection.execute(f"""
            COPY (
              SELECT TIMESTAMP '2026-03-01' + to_seconds(i * 1209600 // {rows}) AS "timestamp",
                'u' || u AS unit, ['A', 'B', 'C'][1 + arm] AS arm, 1.0::DOUBLE / 3 AS probability,
                spend::DOUBLE AS spend, (noise + spend + 2 * arm)::DOUBLE / 10 AS reward,
                store, ['DE', 'FR'][1 + store % 2] AS country
              FROM (
                SELECT i, i // 3 AS u, (hash(u) % 3)::INT AS arm, (hash(u + 7) % 50)::INT AS spend,
                  (hash(i) % 100)::INT AS noise, (hash(u + 1) % 200)::INT AS store
                FROM range({rows}) AS t(i)
              )
            ) TO '{path}' (FORMAT parquet)""")


def main() -> None:
    """Ask both engines the same questions, and stop at the first different number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.parquet")
        write_log(path, rows)
        builder = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false")
        session = builder.config("spark.sql.shuffle.partitions", "8").getOrCreate()
        table = ibis.pyspark.connect(session).read_parquet(str(path))
        for name, options in QUESTIONS.items():
            start = time.perf_counter()
            spark = sa.analyze(table, **options)
            seconds = time.perf_counter() - start
            compare(spark, sa.analyze(path, **options))
            print(f"{name}: the same numbers on {spark.rows:,} rows, {seconds:.0f} s with Spark")
        session.stop()


def compare(spark: sa.Analysis, other: sa.Analysis) -> None:
    """All numbers agree to 1e-9."""
    assert spark.rows == other.rows
    assert spark.recommended == other.recommended
    np.testing.assert_allclose(spark.estimates, other.estimates, rtol=1e-9)
    for field in ("standard_errors", "low", "high"):
        mine, theirs = getattr(spark.intervals, field), getattr(other.intervals, field)
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    assert [one.status for one in spark.health.findings[:3]] == [
        one.status for one in other.health.findings[:3]
    ]
    for mine, theirs in zip(spark.segments, other.segments, strict=True):
        assert [level.name for level in mine.levels] == [level.name for level in theirs.levels]


if __name__ == "__main__":
    main()
