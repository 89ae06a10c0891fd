"""What the tests do on real clusters, as a script: sockets of killed workers die with its process.

python -m tests.simulation.dask_scenarios sweep FOLDER N   a sweep; a worker is killed in the middle
python -m tests.simulation.dask_scenarios jobs FOLDER N    a sweep on jobs of dask-jobqueue
python -m tests.simulation.dask_scenarios slurm FOLDER     what the guide's recipe would submit
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from distributed import LocalCluster

from steadyarm.engines import DaskEngine
from tests.simulation import own


def sweep(cluster: LocalCluster, folder: Path) -> Any:
    """What the sweep counted, and what was there when a worker was killed."""
    journal = folder / "sweep.jsonl"
    seen: dict[str, int] = {}

    def kill() -> None:
        while not journal.exists() or not (lines := journal.read_bytes().count(b"\n")):
            time.sleep(0.002)
        seen.update(killed=cluster.workers[0].pid, finished=lines)
        os.kill(cluster.workers[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    found = own.sweep(DaskEngine(cluster), str(journal), int(sys.argv[3]))
    killer.join(timeout=30)
    return {"counts": own.counts(found), **seen}


HERE: dict[str, Any] = {"scheduler_options": {"host": "127.0.0.1", "dashboard_address": None}}


def jobs(folder: Path) -> Any:
    """Counts of a sweep whose workers are jobs, which start here instead of in a queue."""
    from dask_jobqueue.local import LocalCluster as Jobs

    size: dict[str, Any] = {
        "cores": 1,
        "processes": 1,
        "memory": "1GB",
        "log_directory": str(folder),
    }
    with Jobs(**size, **HERE) as cluster:
        cluster.scale(jobs=2)
        return own.counts(own.sweep(DaskEngine(cluster), None, int(sys.argv[3])))


def slurm(folder: Path) -> Any:
    """The script that the guide's cluster submits for each of its jobs."""
    from dask_jobqueue.slurm import SLURMCluster

    guide = Path(__file__).parents[2] / "docs" / "guides" / "compare_policies.md"
    (recipe,) = re.findall(r"^cluster = (SLURMCluster\(.*\))$", guide.read_text(), re.MULTILINE)
    with eval(recipe, {"SLURMCluster": partial(SLURMCluster, **HERE)}) as cluster:  # our own text
        return cluster.job_script()


def main() -> None:
    folder = Path(sys.argv[2])
    if alone := {"jobs": jobs, "slurm": slurm}.get(sys.argv[1]):
        print(json.dumps(alone(folder)))
        return
    with LocalCluster(
        n_workers=3, threads_per_worker=1, dashboard_address=None, silence_logs="CRITICAL"
    ) as cluster:
        print(json.dumps(sweep(cluster, folder)))


if __name__ == "__main__":
    main()
