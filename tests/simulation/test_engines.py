from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from distributed import LocalCluster

import steadyarm as sa
from steadyarm.simulation.engines import DaskEngine, LocalEngine


def _square(x: int) -> int:
    return x * x


def _die_once(marker: str, x: int) -> int:
    """Kill the worker the first time it comes to number 3."""
    if x == 3 and not Path(marker).exists():
        Path(marker).write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
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


def test_a_cluster_of_processes_survives_a_killed_worker(tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs="CRITICAL"
    ) as cluster:
        engine = DaskEngine(cluster.scheduler_address)
        results = list(engine.run(_die_once, [(str(marker), i) for i in range(40)]))
    assert marker.exists()  # a worker did die
    assert sorted(results) == [(i, i * i) for i in range(40)]


def test_no_scheduler_is_a_clear_error() -> None:
    engine = DaskEngine("tcp://127.0.0.1:9", timeout=1)
    with pytest.raises(sa.InvalidInputError, match="no Dask scheduler answers at tcp"):
        list(engine.run(_square, [(1,)]))


def test_bad_jobs_are_refused() -> None:
    with pytest.raises(sa.InvalidInputError, match="jobs is 0"):
        LocalEngine(0)
