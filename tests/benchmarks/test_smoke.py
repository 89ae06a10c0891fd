"""Benchmarks run, with as few tests as they take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = {
    "coverage": [
        "--what",
        "stopping",
        "--tests",
        "20",
        "--only",
        f"{'normal':<44}  2",
    ],
    "bench_steady": ["--part", "rivals", "--trials", "2"],
    "bench_trial": ["--help"],
    "bench_peers": ["--tools", "steady", "--trials", "2", "--visits", "20", "--jobs", "1"],
}


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    words = [*SMALL[name], *(["--out", str(tmp_path / "out.csv")] if name == "bench_peers" else [])]
    command = [sys.executable, "-m", f"benchmarks.{name}", *words]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) > 2


def test_every_record_is_linked() -> None:
    page = (ROOT / "benchmarks/README.md").read_text()
    for path in (ROOT / "benchmarks/results").iterdir():
        assert path.name in page
