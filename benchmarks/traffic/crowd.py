"""Many clients in one process: each asks for the same units, in an order of its own.

Prints how often a new assignment was made, and every unit's ids. The standard library alone.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
from threading import Thread


def ask_all(port: int, experiment: str, units: list[str], seen: list[tuple[str, int, str]]) -> None:
    """Ask for every unit once; note unit, status and what was given."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for unit in units:
        connection.request(
            "POST",
            f"/v1/experiments/{experiment}/assignments",
            json.dumps({"unit": unit}),
            {"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        given = json.loads(answer.read())
        seen.append((unit, answer.status, given.get("id", str(given))))
    connection.close()


def main(port: int, experiment: str, seed: int, clients: int, count: int) -> None:
    """Let all clients ask at once."""
    seen: list[tuple[str, int, str]] = []
    threads = []
    for client in range(clients):
        units = [f"u{i}" for i in range(count)]
        random.Random(seed * 1000 + client).shuffle(units)
        threads.append(Thread(target=ask_all, args=(port, experiment, units, seen)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(seen))


if __name__ == "__main__":
    port, experiment, seed, clients, count = sys.argv[1:]
    main(int(port), experiment, int(seed), int(clients), int(count))
