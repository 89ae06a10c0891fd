"""Faults under load: kill the service or its storage, compare what is left with the notes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import steadyarm as sa
from benchmarks.traffic.servers import Postgres, Service
from benchmarks.traffic.shopper import reward_of
from steadyarm.storages.records import LogRow, parse_assignment_id, place_of

SHOPPER = Path(__file__).with_name("shopper.py")
SHOWN = 20  # faults that are printed
BUDGET = 200_000
SHOPPERS = 8


@dataclass(frozen=True)
class Aftermath:
    """What was left.

    Attributes
    ----------
    assigned, told : acknowledged to some client, each counted once
    lost, doubled : of what was acknowledged
    failed : requests that had to be sent again
    faults : what is wrong, in words; empty if nothing is
    """

    assigned: int
    told: int
    lost: int
    doubled: int
    failed: int
    faults: tuple[str, ...]


def kill_under_load(
    storage: str, database: Postgres | None, kills: int, pause: tuple[float, float], seed: int = 1
) -> Aftermath:
    """Kill -9 a service while clients use it; compare their notes with what is stored.

    Each second time PostgreSQL is killed, too, if there is one.
    """
    rng = random.Random(seed)

    def cause(service: Service) -> None:
        for k in range(kills):
            time.sleep(rng.uniform(*pause))
            if database is not None and k % 2 == 1:
                database.kill()
                time.sleep(rng.uniform(0, 0.5))
                database.start()
                time.sleep(rng.uniform(*pause))
            service.kill()
            service.start()

    return load_through(storage, Service(storage), cause, rng.uniform(*pause), seed)


def load_through(
    storage: str,
    service: Service,
    cause: Callable[[Service], object],
    pause: float,
    seed: int = 1,
    **options: Any,
) -> Aftermath:
    """Load a service before, during and after a fault; compare what is left with clients' notes.

    cause : makes the fault and ends it
    pause : seconds of load before and after
    options : of the experiment
    """
    settings: dict[str, Any] = {"seed": seed, "missing": "drop"} | options
    sa.create_experiment("shop", list("ABCD"), sa.Steady(), BUDGET, storage, **settings).close()
    with tempfile.TemporaryDirectory() as folder, service:
        until = Path(folder, "until")
        notes = [Path(folder, f"notes-{i}.jsonl") for i in range(SHOPPERS)]
        clients = [
            subprocess.Popen(
                [sys.executable, SHOPPER, str(service.port), "shop", str(i), "150000", path, until]
            )
            for i, path in enumerate(notes)
        ]
        try:
            while not all(path.exists() for path in notes):
                time.sleep(0.02)
            time.sleep(pause)
            cause(service)
            service.await_ready(notes)
            time.sleep(pause)
        finally:
            until.touch()
            for client in clients:
                client.wait(60)
        service.stop()
        said = [json.loads(line) for path in notes for line in path.read_text().splitlines()]
    with sa.load_experiment("shop", storage) as left:
        lost, doubled, others = _faults(left, said)
    asked = {line[2]["id"] for line in said if line[0] == "asked"}
    told = {line[2] for line in said if line[0] == "told"}
    failed = sum(line[1] for line in said if line[0] == "failed")
    faults = (*lost, *doubled, *others)[:SHOWN]
    return Aftermath(len(asked), len(told), len(lost), len(doubled), failed, faults)


def _faults(
    live: sa.Experiment, said: list[list[object]]
) -> tuple[list[str], list[str], list[str]]:
    """What was lost, what was doubled, and whatever else is wrong."""
    rows = {row.number: row for page in live.storage.pages(live.key) for row in page}
    lost: list[str] = []
    others: list[str] = []

    def stored(name: str) -> LogRow | None:
        ticket = parse_assignment_id(name, live.tag)
        return None if ticket is None else rows.get(ticket[0])

    for what, status, *rest in said:
        answer = rest[0]
        if what == "asked" and isinstance(answer, dict):
            row = stored(answer["id"])
            if status not in (200, 201) or row is None:
                lost.append(f"acknowledged and lost: {answer} ({status})")
            elif (row.unit, live.arms.names[row.arm]) != (answer["unit"], answer["arm"]):
                others.append(f"stored otherwise: {answer}, {row}")
        elif what == "told" and isinstance(answer, str):
            row = stored(answer)
            if status not in (200, 201) or row is None or row.reward != rest[1]:
                lost.append(f"reward acknowledged and lost: {answer} ({status}), {row}")
    counts = Counter(row.unit for row in rows.values())
    doubled = [f"two assignments of {unit}" for unit, n in counts.items() if n > 1]
    told = [row for row in rows.values() if row.reward is not None]
    others += [f"wrong reward: {row}" for row in told if row.reward != reward_of(row.unit)]
    others += _beyond(live, set(rows))
    return lost, doubled, [*others, *live.replay().differences]


def _beyond(live: sa.Experiment, numbers: set[int]) -> list[str]:
    """Positions that no counter has reached."""
    snapshot = live.storage.snapshot(live.key, everything=True)
    ends = {record.index: record.used for record, _ in snapshot.segments}
    beyond = [n for n in numbers if place_of(n)[1] >= ends[place_of(n)[0]]]
    return [f"place {place_of(number)} is beyond its segment's counter" for number in beyond]
