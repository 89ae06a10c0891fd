"""Carries on with recorded sessions and databases, in the same way before and after a change.

`write.py` calls these functions once to record the expected outcomes, and ``tests/test_before.py``
calls them again to compare. They use public names only, so that they survive a new layout of the
package.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import steadyarm as sa

__all__ = [
    "DATABASE",
    "EXPORT",
    "FOLDER",
    "NEXT",
    "OLDER",
    "START",
    "Clock",
    "canonical",
    "export_outcome",
    "live_outcome",
    "openapi",
    "reward",
    "session_outcome",
    "unpack",
    "url_of",
]

FOLDER = Path(__file__).parent
DATABASE = "database.db"
OLDER = ("older-0002.db", "older-0004.db")
EXPORT = ("exported.csv", "exported.csv.experiment.json")
NEXT = 40  # assignments that are compared one by one
TOGETHER = 5  # of them are asked for in one transaction
START = 1_750_000_000.0  # seconds since 1970: in June 2025


class Clock:
    """A clock that moves only when it is told to, in seconds since 1970."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now


def reward(arm: int, t: int) -> float:
    """A reward in [0, 1] that drifts; it needs only integers and sums, so it is exact anywhere."""
    noise = (1103515245 * (t + 7 * arm + 1) + 12345) % 2147483648 / 2147483648
    drift = 0.25 if t % 30 < 12 and arm % 3 == 1 else 0.0
    return (arm * 37 % 11) / 22 + drift + noise / 4


def unpack(name: str, folder: Path) -> Path:
    """A copy of a recorded file in `folder`, which may be changed."""
    target = folder / name
    with gzip.open(FOLDER / f"{name}.gz") as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file)
    return target


def url_of(path: Path) -> str:
    """The URL of an SQLite database."""
    return f"sqlite:///{path}"


def session_outcome(text: str, whole: bool) -> dict[str, Any]:
    """What happens when a session is read from its file and carried on.

    whole : to the end of its budget; otherwise only for `NEXT` assignments
    """
    session = sa.Session.from_json(text)
    pending = list(session.pending)
    for number in pending:
        session.tell(number, reward(0, number))
    first = session.asked
    given: list[list[Any]] = []
    while whole or len(given) < NEXT:
        try:
            assignment = session.ask()
        except sa.BudgetSpentError:
            break
        given.append([assignment.number, assignment.name, assignment.probability])
        session.tell(assignment, reward(assignment.arm, assignment.number))
    return {
        "policy": session.policy.name,
        "asked": [first, session.asked],
        "pending": pending,
        "next": given[:NEXT],
        "verdict": _verdict(session.recommend),
    }


def live_outcome(
    name: str, url: str, now: float | None, again: list[str], late: list[str], lease: Any
) -> dict[str, Any]:
    """What an experiment of a recorded database says, and what happens when it goes on.

    Parameters
    ----------
    now : the time at which the database was recorded; None for the storage's own clock
    again : units that come again
    late : units or ids of assignments whose rewards come now
    lease : id of a lease and positions of it that are to be reported; None if there is none
    """
    clock = None if now is None else Clock(now)
    outcome: dict[str, Any] = {}
    with sa.load_experiment(name, url, clock=clock) as live:
        outcome["at first"] = _standing(live)
        if lease is not None and clock is not None:
            outcome["leased"] = _report(live, lease, clock)
        outcome["again"] = [_shown(found) for found in live.ask_many(again)]
        outcome["late rewards"] = _tell(live, late)
        outcome["next"] = _visits(live, clock)
        outcome["in the end"] = _standing(live)
    return outcome


def export_outcome(folder: Path) -> dict[str, Any]:
    """What happens when the recorded export is imported into memory and carried on."""
    clock = Clock(START + 86400.0)
    log, _ = [unpack(name, folder) for name in EXPORT]
    live = sa.import_experiment(log, "memory", clock=clock)
    with live:
        return {
            "at first": _standing(live),
            "next": _visits(live, clock),
            "in the end": _standing(live),
        }


def openapi() -> Any:
    """The OpenAPI document of the application that ``steadyarm serve`` runs, as it is served."""
    import httpx2

    from steadyarm.dashboard.app import create_app
    from steadyarm.storages import open_storage

    app = create_app(open_storage("memory"))

    async def fetch() -> Any:
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1"
        ) as client:
            answer = await client.get("/openapi.json")
        assert answer.status_code == 200, answer.text
        return answer.json()

    with ThreadPoolExecutor(1) as thread:  # tests in a browser have the main thread's event loop
        return thread.submit(asyncio.run, fetch()).result()


def _report(live: sa.Experiment, lease: dict[str, Any], clock: Clock) -> list[Any]:
    """Report units for positions of a lease that was taken before the recording.

    They bring rewards. The other positions go back when the lease has run out.
    """
    clock.now += 1.0
    when = int(clock.now * 1e6)
    used = [(position, f"leased {position}", when) for position in lease["positions"]]
    given = live.report(lease["id"], used)
    _tell(live, [unit for _, unit, _ in used])
    clock.now += 3600.0
    return [_shown(found) for found in given]


def _visits(live: sa.Experiment, clock: Clock | None) -> list[Any]:
    """New units, some minutes apart; two of the last ones bring no reward.

    A few at a time, since each transaction waits for the disk.
    """
    given: list[Any] = []
    for first in range(0, NEXT, TOGETHER):
        if clock is not None:
            clock.now += 60.0 * TOGETHER
        found = live.ask_many([f"new {t}" for t in range(first, first + TOGETHER)])
        given += [_shown(each) for each in found]
        rewards = [
            (each, reward(each.arm, t))
            for t, each in enumerate(found, first)
            if isinstance(each, sa.LiveAssignment) and t not in (31, 37)
        ]
        live.tell_many(rewards)
    return given


def _tell(live: sa.Experiment, targets: list[str]) -> list[str]:
    """Rewards of units or ids; what became of each, or the error's class if all are refused."""
    try:
        answers = live.tell_many([(target, reward(0, t)) for t, target in enumerate(targets)])
    except sa.SteadyArmError as error:
        return [type(error).__name__]
    return [each if isinstance(each, str) else type(each).__name__ for each in answers]


def _shown(found: sa.LiveAssignment | sa.SteadyArmError) -> Any:
    """An assignment, or the class of the error in its place: texts may be worded better."""
    if isinstance(found, sa.SteadyArmError):
        return type(found).__name__
    if not found.in_test:
        return "outside"
    return [found.id, found.unit, found.arm, found.name, found.probability, found.new]


def _standing(live: sa.Experiment) -> dict[str, Any]:
    """Status, verdict, corrections and replay."""
    status = live.status()
    fields = ("name", "state", "budget", "segments", "observed", "leased", "excluded")
    counts = {
        field: list(getattr(status, field) or ()) for field in ("arms", "assigned", "rewarded")
    }
    return {
        "status": {field: getattr(status, field) for field in fields}
        | counts
        | {"created": status.created.isoformat()},
        "corrections": [entry.action for entry in live.corrections()],
        "verdict": _verdict(live.recommend),
        "replay agrees": live.replay().agrees,
    }


def _verdict(recommend: Callable[[], sa.Verdict]) -> Any:
    """The numbers of a verdict, or the class of the error if there is none."""
    try:
        verdict = recommend()
    except sa.SteadyArmError as error:
        return type(error).__name__
    fields = ("arm", "name", "rewards", "missing", "judged", "waiting", "pending", "others")
    return {field: getattr(verdict, field) for field in fields} | {
        "estimates": _numbers(verdict.estimates),
        "standard errors": _numbers(verdict.standard_errors),
        "intervals": _numbers(verdict.intervals.ravel()),
        "plausible": list(verdict.plausible),
        "healthy": not verdict.unhealthy,
    }


def _numbers(values: Iterable[float]) -> list[float | None]:
    """Exact numbers as JSON keeps them; None for those that are not finite."""
    return [float(value) if math.isfinite(value) else None for value in values]


def canonical(document: Any) -> str:
    """JSON with sorted keys and nothing that could differ between two ways to write it."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False)
