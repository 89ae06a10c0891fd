"""How large can a test be: one of 65,536 layouts beside one of 16, simulated and live?

Simulated: a whole test in a world that moves, time and peak memory of a process of its own, and
the time as a multiple of that of the smallest set in the same run.

Live: a service on SQLite with both tests; time of an `ask` over HTTP, one after the other; the
large set's as a multiple of the small one's.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import steadyarm as sa
from benchmarks.traffic.servers import Service
from steadyarm.client import RemoteExperiment

POLICIES: dict[str, Any] = {"steady": sa.Steady(), "p1-rage": sa.P1RAGE(), "g-bai": sa.GBAI()}


def layouts(slots: int) -> sa.ArmSet:
    return sa.ArmSet.factorial({f"slot {i}": ["off", "on"] for i in range(slots)})


def world_of(arms: sa.ArmSet, budget: int) -> sa.ParametricEnvironment:
    """Main effects and weaker pairs; in the middle third some of them turn round."""
    rng = np.random.default_rng(1)
    main = np.array([":" not in name for name in arms.feature_names])
    theta = rng.normal(size=arms.dimension) * np.where(main, 0.3, 0.1)
    turned = np.where(rng.random(arms.dimension) < 0.2, -theta, theta)
    thetas = np.tile(theta, (budget, 1))
    thetas[budget // 3 : 2 * budget // 3] = turned
    return sa.ParametricEnvironment(arms, thetas)


def simulate(policy: str, slots: int, budget: int) -> None:
    """One test; what it took goes to standard output as JSON."""
    arms = layouts(slots)
    small = sa.ParametricEnvironment(layouts(13), np.ones(92), budget=2000)
    sa.simulate(POLICIES[policy], small, trials=1, jobs=1)  # compiled now
    world = world_of(arms, budget)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    found = sa.simulate(POLICIES[policy], world, trials=1, seed=1, jobs=1)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lost = float(world.average[world.best_arm] - world.average[found.recommended[0]])
    said = {"seconds": seconds, "before": before / 1024, "peak": peak / 1024, "lost": lost}
    print(json.dumps(said))


def simulated(slots: list[int], budget: int) -> None:
    print(f"one simulated test of {budget:,} rounds")
    print(f"{'':<10}{'layouts':>9}{'rank':>6}{'seconds':>9}{'times':>7}{'MB':>6}{'lost':>8}")
    for policy in POLICIES:
        least = None
        for count in slots:
            command = [sys.executable, "-m", "benchmarks.how_large_can_a_test_be", "--one", policy]
            command += ["--slots", str(count), "--budget", str(budget)]
            told = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
            one = json.loads(told)
            least = least or one["seconds"]
            rank = 1 + count + count * (count - 1) // 2
            print(
                f"{policy:<10}{2**count:>9,}{rank:>6}{one['seconds']:>9.1f}"
                f"{one['seconds'] / least:>7.0f}{one['peak']:>6.0f}{one['lost']:>8.3f}",
                flush=True,
            )


def live(slots: list[int], budget: int, asks: int) -> None:
    print(f"\n{asks:,} asks of a live test through the service, in milliseconds")
    print(f"{'':<10}{'layouts':>9}{'HTTP p50':>10}{'p99':>7}{'times':>7}")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'tests.db'}"
        for policy in ("steady", "p1-rage"):
            least: float | None = None
            for count in slots:
                name = f"{policy}-{count}"
                made = sa.create_experiment(
                    name, layouts(count), POLICIES[policy], budget, url, seed=1, missing="drop"
                )
                made.close()
                with Service(url) as service, sa.Client(f"http://127.0.0.1:{service.port}") as at:
                    test = at.experiment(name)
                    remote = _times_of(test, asks)[50:]
                half = statistics.median(remote) * 1000
                last = sorted(remote)[-len(remote) // 100] * 1000
                least = least or half
                print(
                    f"{policy:<10}{2**count:>9,}{half:>10.2f}{last:>7.1f}{half / least:>7.2f}",
                    flush=True,
                )


def _times_of(test: RemoteExperiment, asks: int) -> list[float]:
    """Seconds of each ask."""
    times = []
    for i in range(asks):
        began = time.perf_counter()
        test.ask(f"u{i}")
        times.append(time.perf_counter() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, nargs="+", default=[4, 16], help="two kinds each")
    parser.add_argument("--budget", type=int, default=200_000, help="rounds of a test")
    parser.add_argument("--asks", type=int, default=2000, help="of a live test")
    parser.add_argument("--one", choices=POLICIES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        simulate(args.one, args.slots[0], args.budget)
        return
    simulated(args.slots, args.budget)
    live(args.slots, args.budget, args.asks)


if __name__ == "__main__":
    main()
