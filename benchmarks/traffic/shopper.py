"""A client in a process of its own: asks, tells, and notes what was acknowledged.

Started by path with the standard library alone, so that many start at once. A request that got no
answer is sent again, as a web shop would; what was answered is written down and flushed.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import time
from pathlib import Path
from typing import Any, TextIO

AGAIN = {500, 502, 503, 504}


def reward_of(unit: str) -> float:
    """What a unit brings: the same whoever tells it, and however often."""
    return random.Random(unit).randrange(1000) / 1000


class Shopper:
    """One keep-alive connection that outlives the server."""

    def __init__(self, port: int, experiment: str) -> None:
        self.port, self.path = port, f"/v1/experiments/{experiment}"
        self.connection: http.client.HTTPConnection | None = None
        self.failed = 0  # requests that had to be sent again

    def send(self, route: str, body: Any, until: Path) -> tuple[int, Any] | None:
        """Status and answer; None if it is time to go."""
        data = json.dumps(body)
        while not until.exists():
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                self.connection.request(
                    "POST", self.path + route, data, {"Content-Type": "application/json"}
                )
                answer = self.connection.getresponse()
                text = answer.read()
                if answer.status not in AGAIN:
                    return answer.status, json.loads(text)
            except (OSError, http.client.HTTPException, ValueError):
                if self.connection is not None:
                    self.connection.close()
                self.connection = None
            self.failed += 1
            time.sleep(0.02)
        return None


def main(port: int, experiment: str, seed: int, units: int, out: Path, until: Path) -> None:
    """Ask for random units and tell their rewards until the file `until` is there."""
    shopper = Shopper(port, experiment)
    with out.open("a", buffering=1) as notes:
        _shop(shopper, random.Random(seed), units, notes, until)
        notes.write(json.dumps(["failed", shopper.failed, ""]) + "\n")


def _shop(shopper: Shopper, rng: random.Random, units: int, notes: TextIO, until: Path) -> None:
    while not until.exists():
        unit = f"u{rng.randrange(units)}"
        found = shopper.send("/assignments", {"unit": unit}, until)
        if found is None:
            return
        status, answer = found
        if status == 409 or not answer["in_test"]:
            return  # the budget is spent
        notes.write(json.dumps(["asked", status, answer]) + "\n")
        if rng.random() < 0.9:
            value = reward_of(unit)
            found = shopper.send("/rewards", {"assignment": answer["id"], "reward": value}, until)
            if found is None:
                return
            notes.write(json.dumps(["told", found[0], answer["id"], value]) + "\n")


if __name__ == "__main__":
    port, experiment, seed, units, out, until = sys.argv[1:]
    main(int(port), experiment, int(seed), int(units), Path(out), Path(until))
