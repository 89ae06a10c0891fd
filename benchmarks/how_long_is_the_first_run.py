"""How long does one wait for the first verdict after an installation?

Each part runs in a process of its own, first with an empty cache of compiled code, then again with
what the first run has compiled. What is printed are the seconds until the first result (a verdict,
or an assignment by the service) and until the end, the processor time of the whole run, and that
of the first run as a multiple of the second.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.traffic.servers import Service

LIVE = """
import steadyarm as sa
arms = sa.ArmSet.one_hot(["A", "B", "C"])
test = sa.create_experiment("first", arms, sa.Steady(), 3000, "memory", seed=1,
                            reward_range=(0, 1), reward_window="1d")
for visit in range(3000):
    assignment = test.ask(f"visitor {visit}")
    test.tell(assignment, float(visit % 7 < 1 + (assignment.name == "C")))
print("Verdict:", test.recommend(), flush=True)
"""


class Run(NamedTuple):
    """Seconds that a run took."""

    first: float  # until the first result
    whole: float
    processor: float


def live() -> Run:
    """3,000 visits to three variants, and a verdict."""
    return _command([sys.executable, "-W", "ignore", "-c", LIVE])


def demo() -> Run:
    """`steadyarm demo`: a live test of 16 layouts, then 3,500 simulated ones."""
    return _command([sys.executable, "-m", "steadyarm.cli.main", "demo"])


def warm() -> Run:
    """`python -m steadyarm.warming`: all that installations compile ahead."""
    return _command([sys.executable, "-m", "steadyarm.warming"])


def service() -> Run:
    """`steadyarm serve` until it has created a test and assigned a first variant."""
    before, began = _processor(), time.perf_counter()
    with Service("sqlite:///service.db", warm=True) as server:
        url = f"http://127.0.0.1:{server.port}/v1/experiments"
        settings = {"name": "shop", "arms": ["A", "B", "C"], "budget": 20_000, "missing": "drop"}
        for path, body in (("", settings), ("/shop/assignments", {"unit": "visitor 1"})):
            data, header = json.dumps(body).encode(), {"content-type": "application/json"}
            urllib.request.urlopen(urllib.request.Request(url + path, data, header)).close()
        first = time.perf_counter() - began
    Path("service.db").unlink()
    return Run(first, time.perf_counter() - began, _processor() - before)


def _command(words: list[str]) -> Run:
    before, began = _processor(), time.perf_counter()
    first = None
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if first is None and line.startswith("Verdict"):
                first = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(process.returncode)
    whole = time.perf_counter() - began
    return Run(first or whole, whole, _processor() - before)


def _processor() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


PARTS: dict[str, Callable[[], Run]] = {
    "live": live,
    "service": service,
    "demo": demo,
    "warm": warm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts to run (default: all)")
    chosen: list[str] = parser.parse_args().only or list(PARTS)
    print(
        "Seconds; 'again' is the processor time of the first run divided by that of the second.\n"
    )
    print(f"{'':<10}{'first result':>14}{'end':>8}{'processor':>11}{'again':>8}")
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["NUMBA_CACHE_DIR"] = f"{folder}/cache"
            os.chdir(folder)
            first = PARTS[name]()
            second = PARTS[name]()
            os.chdir("/")
        ratio = first.processor / second.processor
        for run, again in ((first, f"{ratio:8.1f}"), (second, "")):
            label = name if run is first else ""
            print(f"{label:<10}{run.first:14.1f}{run.whole:8.1f}{run.processor:11.1f}{again}")


if __name__ == "__main__":
    main()
