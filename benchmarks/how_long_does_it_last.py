"""Do memory, files and descriptors stay flat while a service runs for long?

Clients ask for new and known units, tell rewards in time, late and twice, and look at verdicts.
Every ten seconds the memory of all processes, the size of SQLite's write-ahead log and the open
descriptors are noted; after a warm-up of a third of the time a line is fitted, and its rise until
the end is given with the noise around it: within twice the noise, or a fiftieth, it is flat.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

import steadyarm as sa
from benchmarks.traffic.servers import Service, storages

SHOPPER = Path(__file__).parent / "traffic" / "shopper.py"
EVERY = 10.0  # seconds between notes
WARM = 1 / 3  # of the time
UNITS = 100_000_000  # visitors at most, so that most are new; of a small budget they come again
# What is measured, and which rise says nothing: one more connection of a pool has three files.
LITTLE = {"memory, MB": 2.0, "write-ahead log, MB": 0.1, "descriptors": 3.0}


def observe(service: Service, file: Path | None) -> tuple[float, float, float]:
    assert service.process is not None
    master = psutil.Process(service.process.pid)
    processes = [master, *master.children(recursive=True)]
    memory = sum(process.memory_info().rss for process in processes) / 1e6
    descriptors = float(sum(process.num_fds() for process in processes))
    wal = None if file is None else file.with_name(file.name + "-wal")
    return memory, wal.stat().st_size / 1e6 if wal and wal.exists() else 0.0, descriptors


def rise(seconds: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[float, float]:
    """How much a fitted line rises after the warm-up, and the standard deviation around it."""
    kept = seconds >= WARM * seconds[-1]
    x, y = seconds[kept], values[kept]
    slope, level = np.polyfit(x - x.mean(), y, 1)
    return float(slope * (x[-1] - x[0])), float(np.std(y - level - slope * (x - x.mean())))


def measure(backend: str, workers: int, budget: int, minutes: float, shoppers: int) -> bool:
    with storages(backend) as (url, _), tempfile.TemporaryDirectory() as folder:
        sa.create_experiment(
            *("shop", list("ABCD"), sa.Steady(), budget, url),
            seed=1,
            missing="zero",
            reward_range=(0.0, 1.0),
            reward_window="30s",
        ).close()
        file = Path(url.removeprefix("sqlite:///")) if backend == "sqlite" else None
        until = Path(folder, "until")
        noted: list[tuple[float, ...]] = []
        with Service(url, workers) as service:
            clients = [
                subprocess.Popen(
                    [
                        *(sys.executable, SHOPPER, str(service.port), "shop", str(i)),
                        *(str(min(UNITS, 9 * budget // 10)), "/dev/null", until),
                    ]
                )
                for i in range(shoppers)
            ]
            began = time.monotonic()
            try:
                while (at := time.monotonic() - began) < 60 * minutes:
                    noted.append((at, *observe(service, file)))
                    time.sleep(EVERY)
            finally:
                until.touch()
                for client in clients:
                    client.wait(60)
        with sa.load_experiment("shop", url) as live:
            handed = live.status().total_assigned
    table = np.array(noted)
    flat = True
    print(f"{backend}, {workers} workers, budget {budget:,}, {minutes:g} min: {handed:,} visits")
    for name, values in zip(LITTLE, table[:, 1:].T, strict=True):
        more, noise = rise(table[:, 0], values)
        calm = more <= max(2 * noise, 0.02 * float(values.max()), LITTLE[name])
        flat = flat and calm
        print(
            f"  {name}: {values[0]:.0f} at the start, {values[-1]:.0f} at the end; rise after the "
            f"warm-up {more:+.1f}, noise {noise:.1f}: {'flat' if calm else 'GROWS'}",
            flush=True,
        )
    return flat


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of load, for each case")
    parser.add_argument("--shoppers", type=int, default=8, help="client processes")
    parser.add_argument("--backend", choices=["sqlite", "postgresql"], help="default: both")
    parser.add_argument("--budget", type=int, help="default: 100,000 and 1,000,000,000")
    args = parser.parse_args()
    cases = [
        (backend, workers, budget)
        for backend, workers in (("sqlite", 2), ("postgresql", 10))
        for budget in (100_000, 1_000_000_000)
        if args.backend in (None, backend) and args.budget in (None, budget)
    ]
    flat = [measure(*case, args.minutes, args.shoppers) for case in cases]
    sys.exit(not all(flat))
