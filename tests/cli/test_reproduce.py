"""`steadyarm reproduce`: what a run leaves behind, goes on from, and refuses."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from steadyarm.cli.main import build_parser, main
from steadyarm.cli.research import _points
from steadyarm.paper import (
    FIGURES,
    published_counts,
    read_yahoo,
    yahoo_instance,
)
from tests.paper.clicks import write_log


def test_a_run_leaves_results_pictures_and_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "malicious", "soare-stationary", "--trials", "60", "--seed", "2"]
    assert main([*command, "--policies", "P1RAGE,peace", "--out", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "cells.jsonl",
        "results.csv",
        "report.html",
        *("malicious.png", "malicious.pdf", "soare_stationary.png", "soare_stationary.pdf"),
    }
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (1 + 6)
    assert {row["policy"] for row in rows} == {"P1-RAGE", "Peace"}
    assert {row["trials"] for row in rows} == {"60"}
    assert "Report, pictures and results.csv are in" in capsys.readouterr().out


def test_published_trials_are_those_of_the_paper() -> None:
    args = build_parser().parse_args(["reproduce", "--published-trials"])
    figures = [figure for figure in FIGURES.values() if figure.by_default]
    points = _points(figures, args)
    published = published_counts()
    assert len(points) == 288
    assert sum(trials for *_, trials in points) == 1_096_000
    for figure, value, policy, trials in points:
        assert trials == published[figure.name, value, policy].trials


def test_yahoo_runs_from_an_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = ["--out", str(tmp_path / "out")]
    write_log(tmp_path / "log", lines=3000, seed=1)
    instance = tmp_path / "instance.npz"
    yahoo_instance(read_yahoo(tmp_path / "log")).save(instance)
    monkeypatch.setenv("STEADYARM_YAHOO", str(instance))
    assert main(["reproduce", "yahoo", "--trials", "20", "--policies", "g-bai", *out]) == 0
    assert (tmp_path / "out" / "yahoo.png").exists()
