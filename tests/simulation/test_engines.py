"""Engines hand over every result once, and stop when a call fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.engines import DaskEngine, LocalEngine, ProcessEngine

ROOT = Path(__file__).parents[2]


def _square(x: int) -> int:
    return x * x


def _fail(x: int) -> int:
    if x == 2:
        raise ValueError("two")
    return x


@pytest.mark.parametrize("jobs", [None, 1, 3])
def test_threads_hand_over_every_result_once(jobs: int | None) -> None:
    results = list(LocalEngine(jobs).run(_square, [(i,) for i in range(50)]))
    assert sorted(results) == [(i, i * i) for i in range(50)]


def test_a_failing_call_stops_the_run() -> None:
    with pytest.raises(ValueError, match="two"):
        list(LocalEngine(2).run(_fail, [(i,) for i in range(5)]))


def test_stopping_early_cancels_what_has_not_begun() -> None:
    begun: list[int] = []
    lock = threading.Lock()

    def note(x: int) -> int:
        with lock:
            begun.append(x)
        time.sleep(0.005)
        return x

    run = LocalEngine(1).run(note, [(i,) for i in range(1000)])
    next(run)
    run.close()  # type: ignore[attr-defined]  # it is a generator
    assert len(begun) < 100


def test_no_scheduler_is_a_clear_error() -> None:
    code = (
        "from steadyarm.engines import DaskEngine\n"
        "list(DaskEngine('tcp://127.0.0.1:9', timeout=1).run(abs, [(1,)]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert "InvalidInputError: no Dask scheduler answers at tcp://127.0.0.1:9" in found.stderr


@pytest.mark.parametrize("engine", [LocalEngine, ProcessEngine, DaskEngine])
def test_bad_jobs_are_refused(engine: Any) -> None:
    with pytest.raises(sa.InvalidInputError, match="jobs is 0"):
        engine(jobs=0)
    assert engine(jobs=3).workers == 3
    assert engine().workers == os.cpu_count()
