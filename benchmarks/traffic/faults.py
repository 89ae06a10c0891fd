"""Crashes under load: kill the server at random moments, compare what is left with the notes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import steadyarm as sa
from benchmarks.traffic.servers import Postgres, Service
from benchmarks.traffic.shopper import reward_of
from steadyarm.answers import ticket_in
from steadyarm.replay import pages
from steadyarm.storages.records import LogRow, place_of

__all__ = ["Aftermath", "crash_under_load"]

SHOPPER = Path(__file__).with_name("shopper.py")


@dataclass(frozen=True)
class Aftermath:
    """What was left.

    Attributes
    ----------
    kills, database_kills : of the service, and of the database behind it
    assigned, told : acknowledged to some client, each counted once
    stored : assignments in the storage, acknowledged or not
    faults : what is wrong, in words; empty if nothing is
    """

    kills: int
    database_kills: int
    assigned: int
    told: int
    stored: int
    faults: tuple[str, ...]


def crash_under_load(
    storage: str,
    database: Postgres | None,
    kills: int,
    shoppers: int = 8,
    pause: tuple[float, float] = (0.3, 1.5),
    seed: int = 1,
) -> Aftermath:
    """Kill the service again and again while clients use it, each second time the database, too."""
    rng = random.Random(seed)
    live = sa.create_experiment(
        "shop", list("ABCD"), sa.Steady(), 200_000, storage, seed=seed, missing="drop"
    )
    database_kills = 0
    with tempfile.TemporaryDirectory() as folder, Service(storage) as service:
        until = Path(folder, "until")
        notes = [Path(folder, f"notes-{i}.jsonl") for i in range(shoppers)]
        clients = [
            subprocess.Popen(
                [sys.executable, SHOPPER, str(service.port), "shop", str(i), "150000", path, until]
            )
            for i, path in enumerate(notes)
        ]
        try:
            for k in range(kills):
                time.sleep(rng.uniform(*pause))
                if database is not None and k % 2 == 1:
                    database.kill()
                    time.sleep(rng.uniform(0, 0.5))
                    database_kills += 1
                    database.start()
                    time.sleep(rng.uniform(*pause))
                service.kill()
                service.start()
            time.sleep(rng.uniform(*pause))
        finally:
            until.touch()
            for client in clients:
                client.wait(60)
        service.stop()
        said = [json.loads(line) for path in notes for line in path.read_text().splitlines()]
    faults = _faults(live, said)
    asked = {line[2]["id"] for line in said if line[0] == "asked"}
    told = {line[2] for line in said if line[0] == "told"}
    stored = sum(live.status().assigned)
    live.close()
    return Aftermath(kills, database_kills, len(asked), len(told), stored, faults)


def _faults(live: sa.Experiment, said: list[list[object]]) -> tuple[str, ...]:
    rows = {row.number: row for page in pages(live.storage, live.key) for row in page}
    found: list[str] = []

    def stored(name: str) -> LogRow | None:
        ticket = ticket_in(name, live.tag)
        return None if ticket is None else rows.get(ticket[0])

    for what, status, *rest in said:
        answer = rest[0]
        if what == "asked" and isinstance(answer, dict):
            row = stored(answer["id"])
            if status not in (200, 201) or row is None:
                found.append(f"acknowledged and lost: {answer} ({status})")
            elif (row.unit, live.arms.names[row.arm]) != (answer["unit"], answer["arm"]):
                found.append(f"stored otherwise: {answer}, {row}")
        elif what == "told" and isinstance(answer, str):
            row = stored(answer)
            if status not in (200, 201) or row is None or row.reward != rest[1]:
                found.append(f"reward acknowledged and lost: {answer} ({status}), {row}")
    doubles = [unit for unit, n in Counter(row.unit for row in rows.values()).items() if n > 1]
    found += [f"two assignments of {unit}" for unit in doubles]
    told = [row for row in rows.values() if row.reward is not None]
    found += [f"wrong reward: {row}" for row in told if row.reward != reward_of(row.unit)]
    found += _beyond(live, set(rows))
    replayed = live.replay()
    return (*found[:20], *replayed.differences)


def _beyond(live: sa.Experiment, numbers: set[int]) -> list[str]:
    """Positions that no counter has reached."""
    snapshot = live.storage.snapshot(live.key, everything=True)
    ends = {record.index: record.handed for record, _ in snapshot.segments}
    beyond = [n for n in numbers if place_of(n)[1] >= ends[place_of(n)[0]]]
    return [f"place {place_of(number)} is beyond its segment's counter" for number in beyond]
