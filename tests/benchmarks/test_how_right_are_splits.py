"""The benchmark of splits has the intervals that `analyze` has of the same logs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

import steadyarm as sa
from benchmarks import how_right_are_splits as splits
from steadyarm.inference import Evidence, fixed_budget


def frame_of(log: splits.Log) -> pl.DataFrame:
    columns: dict[str, Any] = {
        "timestamp": [splits.START + timedelta(days=day) for day in log.day.tolist()],
        "arm": np.where(log.arm == 1, "B", "A"),
        "reward": log.reward,
    }
    columns |= {} if log.z is None else {"z": log.z}
    columns |= {} if log.store is None else {"store": log.store}
    return pl.DataFrame(columns)


def assert_same(found: sa.Analysis, evidence: Evidence) -> None:
    expected = fixed_budget(evidence)
    for name in ("estimates", "gap_low", "gap_high"):
        np.testing.assert_allclose(
            getattr(found.intervals, name), getattr(expected, name), rtol=1e-7, err_msg=name
        )


@pytest.mark.parametrize("name", splits.CELLS)
def test_logs_are_analysed_alike(name: str) -> None:
    make, analyse = splits.CELLS[name]
    log = make(np.random.default_rng([7, 1]))
    frame, evidence = frame_of(log), analyse(log)
    if analyse is splits.cluster_evidence:
        found = sa.analyze(frame, split="equal", cluster="store")
    elif analyse is splits.with_covariate:
        found = sa.analyze(frame, split="equal", covariates=["z"])
    elif analyse is splits.ratio_evidence:
        assert log.z is not None
        users = frame.with_row_index("unit")
        orders = [i for i, count in enumerate(log.z.astype(int).tolist()) for _ in range(count)]
        events = users[orders].select(
            "unit", "timestamp", event=pl.lit("order"), value=pl.col("reward") / pl.col("z")
        )
        exposures = users.select("unit", "timestamp", "arm")
        both = sa.analyze(
            exposures=exposures,
            events=events,
            split="equal",
            metrics=["paid = sum(order) / count(order)"],
        )
        found = both
    else:
        found = sa.analyze(frame, split="equal")
    assert_same(found, evidence)


def test_a_batch_counts_what_its_tests_count() -> None:
    make, analyse = splits.CELLS["switchback, 12 stores"]
    logs = [make(np.random.default_rng([7, i])) for i in range(12)]
    found = [analyse(log) for log in logs]
    assert splits.covering(found, 0.3) == sum(splits.covering([one], 0.3) for one in found)
    assert splits.covering(found, 30.0) == 0
