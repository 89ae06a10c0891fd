"""The storage's clock: one for all processes that share a database, whatever their own clocks say.

PostgreSQL has a clock of its own, on its own machine; it is asked now and then, and the time
between is counted by the steady clock of this machine, which no one sets.

An SQLite file has no clock, but all of its processes run on one machine and share the machine's
uptime. The mark "clock" says which time of day belongs to which uptime; a process that writes keeps
it fresh. A process whose time of day does not fit the mark has another clock than the others (or
somebody has set the machine's), so it goes by the mark. Where nobody has kept the mark for a
minute, or after a restart of the machine, whoever comes next says what time it is.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select
from sqlalchemy.dialects import sqlite

from steadyarm.storages.sql.engine import Database
from steadyarm.storages.sql.schema import marks

__all__ = ["Clock"]

log = logging.getLogger("steadyarm")

SECOND = 1_000_000
TOLD = SECOND  # from which difference on a process is told that its clock is wrong
RELOAD = {"sqlite": 1.0, "postgresql": 10.0}  # seconds between two looks at the storage's clock
FRESH, STALE = 5.0, 60.0  # seconds: when the mark is written again, and when it counts no more
UPTIME, BOOT = Path("/proc/uptime"), Path("/proc/sys/kernel/random/boot_id")
MARK = "clock"

READ = select(marks.c.value, marks.c.note).where(marks.c.name == MARK)
NOW = select(func.floor(func.extract("epoch", func.clock_timestamp()) * SECOND))
_new = sqlite.insert(marks)
WRITE = _new.on_conflict_do_update(
    index_elements=["name"], set_={"value": _new.excluded.value, "note": _new.excluded.note}
)


class Boot(NamedTuple):
    """Seconds since the machine was started, and which start that was."""

    uptime: float
    id: str


class Clock:
    """What time it is for one storage; any thread may ask.

    Parameters
    ----------
    database : whose clock it is
    wall : the clock of this process, in seconds since 1970
    boot : how long the machine has been up; None where it does not say, and then processes are
        taken to agree
    """

    def __init__(
        self,
        database: Database,
        wall: Callable[[], float] = time.time,
        boot: Callable[[], Boot | None] | None = None,
    ) -> None:
        self._database, self._wall, self._boot = database, wall, boot or _boot
        self._lock = Lock()
        self._offset = 0  # microseconds that the storage's clock is ahead of `_steady`
        self._looked = float("-inf")
        self._written = float("-inf")
        self._told = False

    def now(self) -> int:
        """Microseconds since 1970."""
        steady = _steady()
        with self._lock:
            if steady - self._looked >= RELOAD[self._database.engine.dialect.name]:
                self._offset = self._look() - round(_steady() * SECOND)
                self._looked = steady
            return self._offset + round(_steady() * SECOND)

    def keep(self, connection: Connection) -> None:
        """Write the mark of SQLite again, if it is time, in a transaction that writes anyway."""
        if not self._database.sqlite or _steady() - self._written < FRESH:
            return
        if (boot := self._boot()) is None:
            return
        now = self.now()
        note = json.dumps({"boot": boot.id, "uptime": boot.uptime})
        connection.execute(WRITE, {"name": MARK, "value": now, "note": note})
        self._written = _steady()

    def _look(self) -> int:
        own = round(self._wall() * SECOND)
        if self._database.sqlite:
            now = self._database.look(self._marked)
        else:
            before = _steady()
            now = int(self._database.look(_asked))
            own += round((_steady() - before) * SECOND)
        wrong = abs(own - now) > TOLD
        if wrong and not self._told:
            log.warning(
                "the clock of this process is %.1f s %s that of the storage %s; the storage's "
                "counts. Set this machine's clock, with NTP.",
                abs(own - now) / SECOND,
                "ahead of" if own > now else "behind",
                self._database.shown,
            )
        self._told = wrong
        return now if wrong else own

    def _marked(self, connection: Connection) -> int:
        """The time by the mark; by the clock of this process if there is none that counts."""
        own, boot = round(self._wall() * SECOND), self._boot()
        row = connection.execute(READ).one_or_none()
        if row is None or boot is None:
            return own
        note = json.loads(row.note)
        age = boot.uptime - float(note["uptime"])
        if note["boot"] != boot.id or not 0 <= age < STALE:
            return own
        return int(row.value) + round(age * SECOND)


def _asked(connection: Connection) -> Any:
    return connection.execute(NOW).scalar_one()


def _steady() -> float:
    """Seconds of a clock that nobody sets and that goes on while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _boot() -> Boot | None:
    try:
        return Boot(float(UPTIME.read_text().split()[0]), BOOT.read_text().strip())
    except (OSError, ValueError, IndexError):
        return None
