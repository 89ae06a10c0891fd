"""A race: many clients ask two processes of the service for the same units at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import steadyarm as sa
from benchmarks.traffic.servers import Service
from steadyarm.segments import arms_between
from steadyarm.storages.records import place_of

CROWD = Path(__file__).with_name("crowd.py")


@dataclass(frozen=True)
class Finish:
    """How it ended: requests sent, and what is wrong, in words."""

    requests: int
    faults: tuple[str, ...]


def race_for_units(
    storage: str, clients: int = 64, units: int = 1000, processes: int = 4
) -> Finish:
    """All clients ask for the same units, which are the whole budget of a test."""
    live = sa.create_experiment(
        "race", list("ABCDE"), sa.Steady(), units, storage, seed=3, missing="drop"
    )
    with Service(storage) as service, Service(storage) as other:
        each, ports = str(clients // processes), [str(service.port), str(other.port)]
        crowd = [
            subprocess.Popen(
                [sys.executable, CROWD, ports[i % 2], "race", str(i), each, str(units)],
                stdout=subprocess.PIPE,
            )
            for i in range(processes)
        ]
        seen = [line for process in crowd for line in json.loads(process.communicate()[0])]
    faults = (*_answers(seen, units), *_places(live), *live.replay().differences)
    live.close()
    return Finish(len(seen), faults)


def _answers(seen: list[tuple[str, int, str]], units: int) -> list[str]:
    ids: dict[str, set[str]] = {}
    for unit, _, given in seen:
        ids.setdefault(unit, set()).add(given)
    found = [f"{unit} was given {given}" for unit, given in ids.items() if len(given) > 1]
    statuses = Counter(status for _, status, _ in seen)
    if not set(statuses) <= {200, 201}:
        found.append(f"answers were {dict(statuses)}")
    if statuses[201] != units:
        found.append(f"{statuses[201]} were new, there are {units} units")
    return found[:20]


def _places(live: sa.Experiment) -> list[str]:
    """Arms of every segment, against those that its design draws."""
    played: dict[int, list[int]] = {}
    for page in live.storage.pages(live.key):
        for row in page:
            played.setdefault(place_of(row.number)[0], []).append(row.arm)
    found = []
    for record, tally in live.storage.snapshot(live.key, everything=True).segments:
        drawn = arms_between(record.segment, live.settings.seed, record.index, 0, record.rounds)
        planned = np.bincount(drawn, minlength=live.arms.size)
        counted = np.bincount(played.get(record.index, []), minlength=live.arms.size)
        if not (planned == counted).all() or tuple(counted) != tally.assigned:
            found.append(f"segment {record.index}: {counted} were played, {planned} designed")
    return found
