"""How much traffic does the service take, beside the floor of its stack?

In one run, on SQLite and on PostgreSQL, with durable commits and 64 connections: requests per
second and their times for /healthz (which does nothing: the floor), single assignments and rewards,
also at half of that load, batches of 100, and the creation of 2,000 variants (within 2 seconds);
OFREP beside native assignments, and events beside rewards, in turns. The processor time of the
service for each request says what it costs where other programs keep the machine busy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import steadyarm as sa
from benchmarks.traffic.servers import Service, storages

FLAG = "/ofrep/v1/evaluate/flags/shop"
LOAD = Path(__file__).with_name("traffic") / "load.py"
BATCH = 100
TURNS = 5  # in which two routes are compared
VARIANTS = [f"variant {k}" for k in range(8)]


@dataclass(frozen=True)
class Measured:
    """Requests per second, and seconds that half and all but a hundredth of them took.

    cpu : seconds of the service's processes for each request
    """

    rate: float
    p50: float
    p99: float
    cpu: float


class Loaded:
    """A running service with an experiment, and what was sent to it."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service, self.folder = service, folder

    def measure(
        self, method: str, path: str, bodies: list[Any], rate: float = 0.0
    ) -> tuple[Measured, list[dict[str, Any]]]:
        """Send all bodies, at that rate or as fast as they are answered; gives the answers, too."""
        source, out = self.folder / "bodies", self.folder / "answers"
        source.write_text("\n".join("" if b is None else json.dumps(b) for b in bodies) + "\n")
        given = str(self.service.port), method, path, str(source), str(out), str(rate)
        used = self._cpu()
        printed = subprocess.run(
            [sys.executable, str(LOAD), *given], stdout=subprocess.PIPE, check=True
        ).stdout
        cpu = (self._cpu() - used) / len(bodies)
        answers = [json.loads(line) for line in out.read_bytes().splitlines()]
        return Measured(**json.loads(printed), cpu=cpu), answers

    def _cpu(self) -> float:
        assert self.service.process is not None
        first = psutil.Process(self.service.process.pid)
        times = [one.cpu_times() for one in (first, *first.children(recursive=True))]
        return float(sum(one.user + one.system for one in times))


def measure(backend: str, requests: int) -> None:
    """Print a table."""
    base = "/v1/experiments/shop"
    with (
        storages(backend) as (url, _),
        tempfile.TemporaryDirectory() as folder,
        Service(url) as service,
        sa.create_experiment(
            "shop", VARIANTS, sa.Steady(), 10_000_000, url, seed=1, missing="drop"
        ),
    ):
        loaded = Loaded(service, Path(folder))

        def healthz(count: int) -> Measured:
            return loaded.measure("GET", "/healthz", [None] * count)[0]

        def assigned(prefix: str, rate: float = 0.0) -> tuple[Measured, list[dict[str, Any]]]:
            units = [{"unit": f"{prefix}{i}"} for i in range(requests)]
            return loaded.measure("POST", f"{base}/assignments", units, rate)

        def rewarded(given: list[dict[str, Any]], rate: float = 0.0) -> Measured:
            rewards = [{"assignment": a["id"], "reward": i % 2} for i, a in enumerate(given)]
            return loaded.measure("POST", f"{base}/rewards", rewards, rate)[0]

        healthz(2000)  # warm
        floor = healthz(requests)
        single, given = assigned("u")
        reward = rewarded(given)
        again = healthz(requests)
        calm, given = assigned("c", single.rate / 2)
        calm_reward = rewarded(given, reward.rate / 2)
        rows = range(0, 5 * requests, BATCH)
        many = [{"units": [f"b{j}" for j in range(i, i + BATCH)]} for i in rows]
        batch, given = loaded.measure("POST", f"{base}/assignments:batch", many)
        back = [
            {"rewards": [{"assignment": a["id"], "reward": 1.0} for a in page["assignments"]]}
            for page in given
        ]
        rewards, _ = loaded.measure("POST", f"{base}/rewards:batch", back)
        turns = measure_turns(loaded, base, requests // TURNS)
        large = [
            {"name": f"large-{k}", "arms": [f"variant {i}" for i in range(2000)]}
            | {"budget": 100_000, "missing": "drop"}
            for k in range(5)
        ]
        alone = [loaded.measure("POST", "/v1/experiments", [body])[0] for body in large]
        created = min(alone, key=lambda measured: measured.p50)
    rate, cpu = (floor.rate + again.rate) / 2, (floor.cpu + again.cpu) / 2
    print(f"\n{backend}, {requests:,} requests each")
    print(
        f"{'':<24}{'requests/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'of the floor':>14}{'rows/s':>10}"
        f"{'CPU µs':>9}{'floors':>8}"
    )
    for name, found, size in (
        ("/healthz (the floor)", floor, 0),
        ("/healthz (again)", again, 0),
        ("one assignment", single, 1),
        ("one reward", reward, 1),
        ("assignment, half load", calm, 1),
        ("reward, half load", calm_reward, 1),
        (f"{BATCH} assignments", batch, BATCH),
        (f"{BATCH} rewards", rewards, BATCH),
        ("creating 2,000 variants", created, 0),
    ):
        print(
            f"{name:<24}{found.rate:>11,.0f}{1000 * found.p50:>9.1f}{1000 * found.p99:>9.1f}"
            f"{found.rate / rate:>14.2f}{f'{found.rate * size:,.0f}' if size else '':>10}"
            f"{1e6 * found.cpu:>9.0f}{found.cpu / cpu:>8.1f}"
        )
    print(turns)


def measure_turns(loaded: Loaded, base: str, requests: int) -> str:
    """What OFREP and events cost, as multiples of the native routes."""
    routes: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
        "assignment": (f"{base}/assignments", lambda unit: {"unit": unit}),
        "OFREP": (FLAG, lambda unit: {"context": {"targetingKey": unit}}),
        "reward": (f"{base}/rewards", lambda unit: {"unit": unit, "reward": 1.0}),
        "event": ("/v1/events", lambda unit: {"unit": unit, "event": "shop"}),
    }
    found: dict[str, list[Measured]] = {name: [] for name in routes}
    for turn in range(TURNS + 1):  # the first one warms up
        for name, (path, body) in routes.items():
            # Rewards are those of units that the native route has assigned, events the others'.
            whose = {"reward": "assignment", "event": "OFREP"}.get(name, name)
            bodies = [body(f"{whose} {turn} {i}") for i in range(requests)]
            measured, _ = loaded.measure("POST", path, bodies)
            found[name] += [measured] if turn else []
    cpu = {name: sum(one.cpu for one in each) for name, each in found.items()}
    seconds = {name: sum(1 / one.rate for one in each) for name, each in found.items()}
    return "\n".join(
        f"{new} / {old}: {cpu[new] / cpu[old]:.2f} of the processor time of a request, "
        f"{seconds[old] / seconds[new]:.2f} of the requests/s"
        for new, old in (("OFREP", "assignment"), ("event", "reward"))
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="of each kind")
    parser.add_argument("--backend", choices=["sqlite", "postgresql"], help="default: both")
    args = parser.parse_args()
    for backend in [args.backend] if args.backend else ["sqlite", "postgresql"]:
        measure(backend, args.requests)
