"""How much traffic does the service take, beside the floor of its stack?

In one run, on SQLite and on PostgreSQL, with durable commits: requests per second and their times
for /healthz (which does nothing: the floor), single assignments, single rewards, batches of 100;
and the time of a local assignment, which needs no request. One worker, 64 connections.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import steadyarm as sa
from benchmarks.traffic.servers import Service, storages

LOAD = Path(__file__).with_name("traffic") / "load.py"
BATCH = 100
VARIANTS = [f"variant {k}" for k in range(8)]


@dataclass(frozen=True)
class Measured:
    """Requests per second, and seconds that half and all but a hundredth of them took."""

    rate: float
    p50: float
    p99: float


class Loaded:
    """A running service with an experiment, and what was sent to it."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service, self.folder = service, folder

    def measure(
        self, method: str, path: str, bodies: list[Any]
    ) -> tuple[Measured, list[dict[str, Any]]]:
        """Send all bodies; gives the answers, too."""
        source, out = self.folder / "bodies", self.folder / "answers"
        source.write_text("\n".join("" if b is None else json.dumps(b) for b in bodies) + "\n")
        port = str(self.service.port)
        command = [sys.executable, str(LOAD), port, method, path, str(source), str(out)]
        printed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        answers = [json.loads(line) for line in out.read_bytes().splitlines()]
        return Measured(**json.loads(printed)), answers


def measure(backend: str, requests: int, workers: int) -> None:
    with (
        storages(backend) as (url, _),
        tempfile.TemporaryDirectory() as folder,
        Service(url, workers) as service,
    ):
        live = sa.create_experiment(
            "shop", VARIANTS, sa.Steady(), 10_000_000, url, seed=1, missing="drop"
        )
        loaded, base = Loaded(service, Path(folder)), "/v1/experiments/shop"
        loaded.measure("GET", "/healthz", [None] * 2000)  # warm
        floor, _ = loaded.measure("GET", "/healthz", [None] * requests)
        units = [{"unit": f"u{i}"} for i in range(requests)]
        single, given = loaded.measure("POST", f"{base}/assignments", units)
        rewards = [{"assignment": a["id"], "reward": i % 2} for i, a in enumerate(given)]
        told, _ = loaded.measure("POST", f"{base}/rewards", rewards)
        again, _ = loaded.measure("GET", "/healthz", [None] * requests)
        rows = range(0, 5 * requests, BATCH)
        many = [{"units": [f"b{j}" for j in range(i, i + BATCH)]} for i in rows]
        batch, given = loaded.measure("POST", f"{base}/assignments:batch", many)
        back = [
            {"rewards": [{"assignment": a["id"], "reward": 1.0} for a in page["assignments"]]}
            for page in given
        ]
        tolds, _ = loaded.measure("POST", f"{base}/rewards:batch", back)
        local = measure_local(service.port)
        live.close()
    base_rate = (floor.rate + again.rate) / 2
    print(f"\n{backend}, {workers} worker{'s' * (workers > 1)}, {requests:,} requests each")
    print(f"{'':<24}{'requests/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'of the floor':>14}{'rows/s':>10}")
    line("/healthz (the floor)", floor, base_rate)
    line("/healthz (again)", again, base_rate)
    line("one assignment", single, base_rate, 1)
    line("one reward", told, base_rate, 1)
    line(f"{BATCH} assignments", batch, base_rate, BATCH)
    line(f"{BATCH} rewards", tolds, base_rate, BATCH)
    print(f"local assignment: {local * 1e6:.1f} µs each")


def measure_local(port: int, asks: int = 9_000) -> float:
    """Seconds per local assignment, leasing and reporting in the background."""
    with (
        sa.Client(f"http://127.0.0.1:{port}") as client,
        client.experiment("shop").local(positions=asks + 500) as local,
    ):
        local.ask("first")
        began = time.perf_counter()
        for i in range(asks):
            local.ask(f"local {i}")
        return (time.perf_counter() - began) / asks


def line(name: str, found: Measured, floor: float, rows: int = 0) -> None:
    share = f"{found.rate / floor:.2f}"
    per_second = f"{found.rate * rows:,.0f}" if rows else ""
    print(
        f"{name:<24}{found.rate:>11,.0f}{1000 * found.p50:>9.1f}{1000 * found.p99:>9.1f}"
        f"{share:>14}{per_second:>10}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="of each kind")
    parser.add_argument("--workers", type=int, default=1, help="of the service")
    parser.add_argument("--backend", choices=["sqlite", "postgresql"], help="default: both")
    args = parser.parse_args()
    for backend in [args.backend] if args.backend else ["sqlite", "postgresql"]:
        measure(backend, args.requests, args.workers)
