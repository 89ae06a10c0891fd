"""The storage's clock: one for all processes that share a database, whatever their own clocks say.

PostgreSQL has a clock of its own, on its own machine; it is asked now and then, and the time
between is counted by the steady clock of this machine, which no one sets.

An SQLite file has no clock, but all of its processes run on one machine and share its uptime. The
mark "clock" says at which time of day the machine was started, as those who write see it: their
time of day less the uptime. Where a process sees another one by more than a second, its clock is
not that of the others, so it goes by the mark and does not write it. A process that sees its own
change knows that somebody has set the machine's clock, and writes the new one. Where nobody has
written for a minute, or after a restart of the machine, whoever comes next says what time it is.
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
SLOW = 1.0  # seconds after which an answer of PostgreSQL does not say what time it is
CLOSE = 0.05  # seconds in which two clocks are read together
JITTER = 20_000  # microseconds that readings of clocks may differ by
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
        self._turn = Lock()
        self._ahead: int | None = None  # microseconds that the storage is ahead of `_steady`
        self._looked = self._written = float("-inf")
        self._started: int | None = None  # when this process thinks that the machine was started
        self._mine = True  # whether this process and the storage agree
        self._told = False

    def now(self) -> int:
        """Microseconds since 1970; who asks while another thread looks does not wait for it."""
        due = _steady() - self._looked >= RELOAD[self._database.engine.dialect.name]
        if due and self._turn.acquire(blocking=self._ahead is None):
            try:
                self._look()
                self._looked = _steady()
            finally:
                self._turn.release()
        assert self._ahead is not None
        return self._ahead + round(_steady() * SECOND)

    def keep(self, connection: Connection) -> None:
        """Write the mark of SQLite again, if it is time, in a transaction that writes anyway."""
        if not self._database.sqlite or not self._mine or self._started is None:
            return
        if _steady() - self._written < FRESH or (boot := self._boot()) is None:
            return
        note = json.dumps({"boot": boot.id, "uptime": boot.uptime})
        connection.execute(WRITE, {"name": MARK, "value": self._started, "note": note})
        self._written = _steady()

    def _look(self) -> None:
        """Compare the clock of this process with the storage's, and go by that one."""
        if self._database.sqlite:
            self._read_mark()
            return
        before = _steady()
        theirs = int(self._database.look(_asked))
        waited = _steady() - before
        if waited > SLOW and self._ahead is not None:
            return  # the answer was under way for too long to say what time it is
        self._compare(self._own(), theirs - round((before + waited / 2) * SECOND))

    def _read_mark(self) -> None:
        row = self._database.look(lambda c: c.execute(READ).one_or_none())
        own, before = self._own(), self._started
        while True:
            began = _steady()
            boot, steady = self._boot(), _steady()
            if steady - began < CLOSE:
                break
        if boot is None:
            self._compare(own, own)
            return
        started = own + round((steady - boot.uptime) * SECOND)
        self._started = started
        if before is not None and abs(started - before) > TOLD:
            log.warning(
                "the clock of this machine was set by %+.1f s; times of the storage %s follow it.",
                (started - before) / SECOND,
                self._database.shown,
            )
            self._written = float("-inf")
            row = None
        theirs = _marked(row, boot)
        self._compare(own, own if theirs is None else own + theirs - started)

    def _own(self) -> int:
        """How far the clock of this process is ahead of `_steady`; of some readings the closest."""
        best, least = 0, float("inf")
        for _ in range(5):
            before, wall, after = _steady(), self._wall(), _steady()
            if after - before < least:
                best, least = round((wall - (before + after) / 2) * SECOND), after - before
        return best

    def _compare(self, own: int, theirs: int) -> None:
        """Go by the clock of this process if it agrees with the storage's, else by that one.

        Both are given as what they are ahead of `_steady`. Tiny differences to before are those of
        reading clocks: time must not jump by them.
        """
        self._mine = abs(own - theirs) <= TOLD
        if not self._mine and not self._told:
            log.warning(
                "the clock of this process is %.1f s %s that of the storage %s; the storage's "
                "counts. Set this machine's clock, with NTP.",
                abs(own - theirs) / SECOND,
                "ahead of" if own > theirs else "behind",
                self._database.shown,
            )
        self._told = not self._mine
        ahead = own if self._mine else theirs
        if self._ahead is None or abs(ahead - self._ahead) > JITTER:
            self._ahead = ahead


def _marked(row: Any, boot: Boot) -> int | None:
    """When the machine was started, by a mark that counts; None if it does not."""
    if row is None:
        return None
    note = json.loads(row.note)
    fresh = note["boot"] == boot.id and 0 <= boot.uptime - float(note["uptime"]) < STALE
    return int(row.value) if fresh else None


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
