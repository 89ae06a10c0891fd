"""results.csv: one row per cell, written whole or not at all."""

from __future__ import annotations

import csv
import os
from importlib import resources
from pathlib import Path

import pytest

from steadyarm.paper.report import results_csv, write_results
from steadyarm.paper.specification import published_counts
from steadyarm.simulation import clopper_pearson
from steadyarm.wording import write_atomically
from tests.simulation.own import counted


def test_published_counts_come_back_line_by_line() -> None:
    """The first seven columns are those of the published table, to the letter."""
    published = (resources.files("steadyarm.paper") / "published_results.csv").read_text()
    rows = [row for row in csv.DictReader(published.splitlines()) if row["min_gap"]]
    assert rows
    cells = [
        counted(
            row["figure"],
            row["parameter"],
            float(row["value"]) if row["value"] else None,
            row["policy"],
            int(row["trials"]),
            int(row["errors"]),
            float(row["min_gap"]),
            0.25,
        )
        for row in rows
    ]
    lines = results_csv(cells).splitlines()
    assert lines[0] == published.splitlines()[0] + ",low,high,regret,seconds"
    wanted = [",".join(row.values()) for row in rows]
    assert [line.rsplit(",", 4)[0] for line in lines[1:]] == wanted
    low, high = map(float, lines[1].split(",")[7:9])
    theirs = published_counts()["soare_stationary", 10, "G-BAI"]
    assert (low, high) == pytest.approx(clopper_pearson(theirs.errors, theirs.trials), abs=1e-8)


def test_values() -> None:
    cells = [counted("f", "", v, "P, Q", 10, 1, 1 / 3, 2.0) for v in (None, 3, 3.0, 2.5, 1e7)]
    rows = list(csv.DictReader(results_csv(cells).splitlines()))
    assert [row["value"] for row in rows] == ["", "3", "3", "2.5", "10000000"]
    assert {row["policy"] for row in rows} == {"P, Q"}
    assert {row["min_gap"] for row in rows} == {"0.33333333"}


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "results.csv"
    cell = counted("f", "", None, "P", 10, 1, 0.1, 2.0)
    write_results([cell], path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk is full"):
        write_atomically(path, b"half")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["results.csv"]
