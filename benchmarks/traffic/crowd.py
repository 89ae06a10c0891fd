"""Many clients in one process: each asks for the same units, in an order of its own.

Started by path, beside shopper.py. Prints every unit's status and id.
"""

from __future__ import annotations

import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shopper import Shopper  # type: ignore[import-not-found]  # in the folder of this script


def ask_all(port: int, experiment: str, units: list[str]) -> list[tuple[str, int, str]]:
    """Ask for every unit once; its status and what was given."""
    shopper = Shopper(port, experiment)
    seen = []
    for unit in units:
        status, answer = shopper.send("/assignments", {"unit": unit}, Path("never"))
        seen.append((unit, status, answer.get("id", str(answer))))
    return seen


if __name__ == "__main__":
    port, experiment, seed, clients, count = sys.argv[1:]
    with ThreadPoolExecutor(int(clients)) as pool:
        jobs = []
        for client in range(int(clients)):
            units = [f"u{i}" for i in range(int(count))]
            random.Random(int(seed) * 1000 + client).shuffle(units)
            jobs.append(pool.submit(ask_all, int(port), experiment, units))
        print(json.dumps([line for job in jobs for line in job.result()]))
