"""Roll-outs while the service is killed: no unit may change its variant without an operator."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import steadyarm as sa
from benchmarks.traffic.servers import Postgres, Service
from benchmarks.traffic.shopper import Shopper

VIEWER = Path(__file__).with_name("viewer.py")
STEPS: tuple[dict[str, Any], ...] = (  # what the operator says, one after the other
    {"variant": "B", "share": 0.1, "stop": True},
    {"share": 0.5},
    {"variant": "C", "share": 0.3, "change": True},
    {"variant": "B", "share": 1.0, "change": True},
)
SHOWN = 20  # faults that are printed


class Seen(NamedTuple):
    """What a unit saw, in an answer to a request that was sent and answered at these times."""

    began: float
    ended: float
    status: int
    unit: str
    arm: str
    in_test: bool


@dataclass(frozen=True)
class Rolled:
    """What was seen.

    Attributes
    ----------
    answers : requests of viewers that were answered
    changes : times that a unit saw another variant than before
    kills : of the service
    faults : what is wrong, in words; empty if nothing is
    """

    answers: int
    changes: int
    kills: int
    faults: tuple[str, ...]


def roll_out_under_kills(
    storage: str,
    database: Postgres | None = None,
    viewers: int = 4,
    units: int = 60,
    pause: tuple[float, float] = (0.3, 1.0),
    seed: int = 1,
) -> Rolled:
    """Spend a budget, then roll out in steps; the service is killed before and during each."""
    rng, budget = random.Random(seed), viewers * units // 2
    live = sa.create_experiment(
        *("shop", list("ABC"), sa.Steady(), budget, storage),
        seed=seed,
        missing="drop",
        control="A",
    )
    live.close()
    killed, said = 0, list[tuple[float, float]]()
    with tempfile.TemporaryDirectory() as folder, Service(storage) as service:
        until = Path(folder, "until")
        notes = [Path(folder, f"notes-{i}.jsonl") for i in range(viewers)]
        given = [str(service.port), "shop"]
        clients = [
            subprocess.Popen([sys.executable, VIEWER, *given, str(i), str(units), path, until])
            for i, path in enumerate(notes)
        ]
        try:
            for step in (None, *STEPS):
                time.sleep(rng.uniform(*pause))
                killing = Thread(target=_kill, args=(service, database, rng.uniform(0, 0.3)))
                killing.start()
                killed += 1
                if step is not None:
                    said.append(_say(service, step))
                killing.join()
                service.await_ready(notes)
            time.sleep(rng.uniform(*pause))
        finally:
            until.touch()
            for client in clients:
                client.wait(60)
        service.stop()
        seen = [Seen(*json.loads(line)) for path in notes for line in path.read_text().splitlines()]
    changes, faults = _unsaid(seen, said)
    with sa.load_experiment("shop", storage) as left:
        faults += _in_the_end(left, seen) + list(left.replay().differences)
    return Rolled(len(seen), changes, killed, tuple(faults[:SHOWN]))


def _kill(service: Service, database: Postgres | None, after: float) -> None:
    time.sleep(after)
    if database is not None:
        database.kill()
        database.start()
    service.kill()
    service.start()


def _say(service: Service, step: dict[str, Any]) -> tuple[float, float]:
    """Roll out, again until it is answered; from when to when that took."""
    began, operator = time.time(), Shopper(service.port, "shop")
    found = operator.send("/roll-out", step, Path("never"))
    ended = time.time()
    if operator.connection is not None:
        operator.connection.close()
    assert found is not None
    assert found[0] == 200, found
    return began, ended


def _unsaid(seen: Sequence[Seen], said: Sequence[tuple[float, float]]) -> tuple[int, list[str]]:
    """How often units saw another variant, and when they did although nobody had said so."""
    last: dict[str, Seen] = {}
    changes, faults = 0, []
    for one in sorted(seen):
        if one.status not in (200, 201):
            faults.append(f"the answer was {one}")
            continue
        before = last.get(one.unit)
        if before is not None and before.arm != one.arm:
            changes += 1
            if not any(began <= one.ended and ended >= before.began for began, ended in said):
                faults.append(f"{one.unit} saw {before.arm} and then {one.arm}: {before}, {one}")
        last[one.unit] = one
    return changes, faults


def _in_the_end(live: sa.Experiment, seen: Sequence[Seen]) -> list[str]:
    """Units that do not see in the end what was rolled out to them."""
    outside = live.status().outside
    if outside is None or outside.roll_out is None:
        return ["nothing is rolled out"]
    units = sorted({one.unit for one in seen})
    shown = {unit: live.ask(unit).name for unit in units}
    return [f"{unit} sees {name}" for unit, name in shown.items() if name != "B"]
