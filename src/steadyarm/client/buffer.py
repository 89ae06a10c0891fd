"""RewardBuffer: rewards that could not be delivered, in a file that survives the process.

`Delivery` sends them in a thread. Two processes may send the same reward: the service counts it
once, by its assignment or by the key of its event.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TypeVar

from steadyarm.client.core import BATCH, Call, Report, Result, Service, ServiceDownError, refuse
from steadyarm.errors import InvalidInputError, ServiceError, SteadyArmError
from steadyarm.validation import whole_number

log = logging.getLogger("steadyarm.client")

SOONEST, LONGEST = 1.0, 30.0  # seconds between tries while the service is down
CLAIM = 60.0  # seconds after which another process sends what one has begun to send
WAIT = 5.0  # seconds for another process that writes
MEMORY = ":memory:"
SCHEMA = """
CREATE TABLE IF NOT EXISTS steadyarm_rewards (
    id TEXT PRIMARY KEY DEFAULT (hex(randomblob(16))),
    service TEXT NOT NULL,
    experiment TEXT,           -- null: an event
    body TEXT NOT NULL,        -- as it is sent
    due REAL NOT NULL          -- when it may be sent, in seconds since 1970
)
"""
INSERT = "INSERT INTO steadyarm_rewards (service, experiment, body, due) VALUES (?, ?, ?, 0)"
OLDEST = """
SELECT id, experiment, body FROM steadyarm_rewards
WHERE service = ? AND due <= ? ORDER BY rowid LIMIT ?
"""

R = TypeVar("R")
Claimed = dict[str, Report]  # by id


class RewardBuffer:
    """A file of rewards that wait for the service; any number of processes may share it.

    A damaged file is set aside under another name, and a new one takes its place. If the file
    cannot be written, rewards wait in memory until the program ends. Both are logged as warnings.

    Parameters
    ----------
    path : the path of the file, an SQLite database; ":memory:" for none
    limit : how many may wait; more are refused

    Examples
    --------
    >>> import tempfile
    >>> import steadyarm as sa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     buffer = RewardBuffer(f"{folder}/rewards.db", limit=1000)
    ...     with sa.Client("http://127.0.0.1:9", retries=0, buffer=buffer) as client:
    ...         client.experiment("shop").tell("visitor 1", 1.0)
    ...         client.pending
    1
    """

    def __init__(self, path: str | os.PathLike[str], limit: int = 100_000) -> None:
        self.path, self.limit = Path(path), whole_number(limit, "limit", least=1)
        self._lock = Lock()
        try:
            self._db = self._open()
        except (sqlite3.Error, OSError) as error:
            self._use_memory(error)

    def add(self, service: str, experiment: str | None, reports: Sequence[Report]) -> list[Result]:
        """Write rewards down: those that are "kept" are on disk, others have their error."""
        rows = [(service, experiment, json.dumps(report)) for report in reports]

        def insert(db: sqlite3.Connection) -> int:
            (waiting,) = db.execute("SELECT count(*) FROM steadyarm_rewards").fetchone()
            fitting = rows[: max(self.limit - waiting, 0)]
            db.executemany(INSERT, fitting)
            return len(fitting)

        kept = self._transact(insert)
        full = ServiceError(
            f"the service cannot be reached, and {self.limit} rewards wait in {self.path} already; "
            "this one was not kept. Report it again when the service is back."
        )
        return ["kept" if i < kept else full for i in range(len(rows))]

    def count(self, service: str) -> int:
        """The number of rewards that wait for this service."""
        query = "SELECT count(*) FROM steadyarm_rewards WHERE service = ?"
        count: int = self._transact(lambda db: db.execute(query, (service,)).fetchone()[0])
        return count

    def claim(self, service: str) -> tuple[str | None, Claimed]:
        """Take the oldest rewards that no other process sends: of one experiment, by id."""
        now = time.time()

        def take(db: sqlite3.Connection) -> tuple[str | None, Claimed]:
            rows = db.execute(OLDEST, (service, now, BATCH)).fetchall()
            experiment = rows[0][1] if rows else None
            claimed = {id: json.loads(body) for id, of, body in rows if of == experiment}
            _set_due(db, claimed, now + CLAIM)
            return experiment, claimed

        return self._transact(take)

    def release(self, claimed: Claimed) -> None:
        """Give back what could not be sent."""
        self._transact(lambda db: _set_due(db, claimed, 0.0))

    def remove(self, claimed: Claimed) -> None:
        """Take out what the service has answered to."""
        query = "DELETE FROM steadyarm_rewards WHERE id = ?"
        self._transact(lambda db: db.executemany(query, [(id,) for id in claimed]))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _transact(self, change: Callable[[sqlite3.Connection], R]) -> R:
        with self._lock:
            try:
                return _commit(self._db, change)
            except sqlite3.ProgrammingError:
                raise ServiceError(f"the reward buffer {self.path} is closed.") from None
            except sqlite3.Error as error:
                self._use_memory(error)
                return _commit(self._db, change)

    def _open(self) -> sqlite3.Connection:
        """Open the file; set a damaged one aside first."""
        inode = self._inode()
        try:
            return _connect(self.path)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                raise
            if inode == self._inode():  # else another process has replaced it meanwhile
                aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
                self.path.rename(aside)
                log.warning("the reward buffer %s is damaged; it was moved to %s", self.path, aside)
            return _connect(self.path)

    def _inode(self) -> int | None:
        return self.path.stat().st_ino if self.path.exists() else None

    def _use_memory(self, error: Exception) -> None:
        log.warning(
            "the reward buffer %s cannot be used: %s; rewards wait in memory, for this program "
            "only",
            self.path,
            error,
        )
        self._db = _connect(MEMORY)


def _connect(path: str | Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=WAIT, isolation_level=None, check_same_thread=False)
    try:
        _commit(db, lambda db: _check(db, path))
    except BaseException:
        db.close()
        raise
    return db


def _check(db: sqlite3.Connection, path: str | Path) -> None:
    """Create the table if the database is empty; raise if it is damaged or something else."""
    (state,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if state != "ok":
        error = sqlite3.DatabaseError(state)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    if tables and "steadyarm_rewards" not in tables:
        raise InvalidInputError(
            f"{path} is a database of something else; give the reward buffer a file of its own."
        )
    db.execute(SCHEMA)


def _commit(db: sqlite3.Connection, change: Callable[[sqlite3.Connection], R]) -> R:
    db.execute("BEGIN IMMEDIATE")
    try:
        result = change(db)
        db.execute("COMMIT")
        return result
    finally:
        db.rollback()  # does nothing after a commit


def _set_due(db: sqlite3.Connection, claimed: Claimed, due: float) -> None:
    rows = [(due, id) for id in claimed]
    db.executemany("UPDATE steadyarm_rewards SET due = ? WHERE id = ?", rows)


class Delivery:
    """Empties a buffer into a service, in a thread.

    Attributes
    ----------
    rejected : rewards that the service refused for good; they are logged
    """

    def __init__(
        self,
        service: Service,
        buffer: RewardBuffer,
        send: Callable[[Call[list[Result]]], list[Result]],
    ) -> None:
        self.rejected = 0
        self._service, self._buffer, self._send = service, buffer, send
        self._lock, self._awake, self._stopped = Lock(), Event(), False
        self._thread: Thread | None = None
        service.recovered = self.wake
        if self.pending:  # left by another process
            self._start()

    @property
    def pending(self) -> int:
        """The number of rewards that wait."""
        return self._buffer.count(self._service.url)

    def keep(self, experiment: str | None, reports: Sequence[Report]) -> list[Result]:
        """Buffer rewards and send them later; "kept" for each, or why it is not."""
        results = self._buffer.add(self._service.url, experiment, reports)
        self._start()
        return results

    def wake(self) -> None:
        """Send now, in the thread."""
        self._awake.set()

    def deliver(self) -> None:
        """Send all that waits; raises if the service is down."""
        while True:
            experiment, claimed = self._buffer.claim(self._service.url)
            if not claimed:
                return
            reports = list(claimed.values())
            try:
                results = self._try(experiment, reports)
            except BaseException:
                self._buffer.release(claimed)
                raise
            self._buffer.remove(claimed)
            for report, result in zip(reports, results, strict=True):
                if isinstance(result, SteadyArmError):
                    self._reject(experiment, report, result)

    def _try(self, experiment: str | None, reports: Sequence[Report]) -> list[Result]:
        try:
            return self._send(self._service.deliver(experiment, reports))
        except SteadyArmError as error:
            return refuse(reports, error)

    def _reject(self, experiment: str | None, report: Report, error: SteadyArmError) -> None:
        self.rejected += 1
        if experiment is None:
            self._service.warn_of_event(report, error, "an event was refused")
        else:
            log.warning("a buffered reward in %r was refused: %s: %s", experiment, report, error)

    def flush(self, seconds: float) -> None:
        """Return when nothing waits any more; ServiceError if that takes longer."""
        deadline = time.monotonic() + seconds
        while self.pending:
            self.deliver()
            if self.pending and time.monotonic() > deadline:
                raise ServiceDownError(
                    f"{self.pending} rewards still wait after {seconds:g} seconds; another process "
                    "may be sending them."
                )
            time.sleep(0.02)

    def close(self, seconds: float = 5.0) -> None:
        """Stop the thread; what waits stays in the file, for the next process."""
        self._stopped = True
        self._awake.set()
        if self._thread is not None:
            self._thread.join(seconds)  # it may hang on a service that hangs
        self._buffer.close()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopped:
                self._thread = Thread(target=self._run, name="steadyarm-rewards", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = SOONEST
        while not self._stopped:
            self._awake.wait(pause)
            self._awake.clear()
            try:
                if not self._stopped:
                    self.deliver()
                pause = SOONEST
            except Exception as error:  # a thread has no caller; closing may interrupt it
                pause = min(2 * pause, LONGEST)
                log.info("buffered rewards wait on: %s", error)
