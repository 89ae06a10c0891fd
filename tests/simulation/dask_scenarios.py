"""What the tests do on real clusters, as a script: sockets of killed workers die with its process.

python dask_scenarios.py killed FOLDER     a worker is killed in the middle
python dask_scenarios.py cells FOLDER      cells of a figure on two workers
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from distributed import LocalCluster

from steadyarm.paper import Cell, Journal, run_cells
from steadyarm.simulation import DaskEngine


def die_once(marker: str, x: int) -> int:
    """Kill the worker the first time it comes to number 3."""
    if x == 3 and not Path(marker).exists():
        Path(marker).write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return x * x


def killed(engine: DaskEngine, folder: Path) -> Any:
    return sorted(engine.run(die_once, [(str(folder / "killed"), i) for i in range(40)]))


def cells(engine: DaskEngine, folder: Path) -> Any:
    asked = [Cell(**cell) for cell in json.loads((folder / "cells.json").read_text())]
    results = run_cells(asked, engine, Journal(folder / "dask.jsonl"))
    return [[r.figure, r.value, r.policy, r.trials, r.errors] for r in results]


def main() -> None:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs="CRITICAL"
    ) as cluster:
        scenario = {"killed": killed, "cells": cells}[sys.argv[1]]
        answer = scenario(DaskEngine(cluster.scheduler_address), Path(sys.argv[2]))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
