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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread

from steadyarm.client.core import (
    BATCH,
    Call,
    Report,
    Result,
    Service,
    ServiceDownError,
    TooLargeError,
    halves,
)
from steadyarm.errors import InvalidInputError, ServiceError, SteadyArmError, StorageError
from steadyarm.validation import whole_number

log = logging.getLogger("steadyarm.client")

SOONEST, LONGEST = 1.0, 30.0  # seconds between tries while the service is down
CLAIM = 60.0  # seconds after which another process sends what one has begun to send
WAIT = 5.0  # seconds for another process that writes
SCHEMA = """
CREATE TABLE IF NOT EXISTS steadyarm_rewards (
    number INTEGER PRIMARY KEY,
    service TEXT NOT NULL,
    experiment TEXT,           -- null: an event
    body TEXT NOT NULL,        -- as it is sent
    due REAL NOT NULL          -- when it may be sent, in seconds since 1970
)
"""


class RewardBuffer:
    """A file of rewards that wait for the service; any number of processes may share it.

    Parameters
    ----------
    path : of the file, an SQLite database; ":memory:" for none
    limit : how many may wait; more are refused

    Examples
    --------
    >>> import tempfile
    >>> import steadyarm as sa
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = RewardBuffer(f"{folder}/rewards.db", limit=1000)
    ...     with sa.Client("http://127.0.0.1:9", retries=0, buffer=kept) as client:
    ...         client.experiment("shop").tell("visitor 1", 1.0)
    ...         client.pending
    1
    """

    def __init__(self, path: str | os.PathLike[str], limit: int = 100_000) -> None:
        self.path, self.limit = Path(path), whole_number(limit, "limit", least=1)
        self._lock = Lock()
        with self._translated():
            self._db = sqlite3.connect(
                path, timeout=WAIT, isolation_level=None, check_same_thread=False
            )
        with self._transaction() as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            if tables and "steadyarm_rewards" not in tables:
                raise InvalidInputError(
                    f"{path} is a database of something else; give kept rewards a file of their "
                    "own."
                )
            db.execute(SCHEMA)

    def add(self, service: str, experiment: str | None, reports: Sequence[Report]) -> list[Result]:
        """Write rewards down: those that are "kept" are on disk, others have their error."""
        with self._transaction() as db:
            room = self.limit - db.execute("SELECT count(*) FROM steadyarm_rewards").fetchone()[0]
            rows = [(service, experiment, json.dumps(one)) for one in reports[: max(room, 0)]]
            db.executemany("INSERT INTO steadyarm_rewards VALUES (NULL, ?, ?, ?, 0)", rows)
        full = ServiceError(
            f"the service cannot be reached, and {self.limit} rewards wait in {self.path} already; "
            "this one was not kept. Report it again when the service is back."
        )
        return ["kept" if i < len(rows) else full for i in range(len(reports))]

    def count(self, service: str) -> int:
        """How many wait for this service."""
        query = "SELECT count(*) FROM steadyarm_rewards WHERE service = ?"
        with self._transaction() as db:
            return int(db.execute(query, (service,)).fetchone()[0])

    def claim(self, service: str) -> tuple[str | None, dict[int, Report]]:
        """Take the oldest rewards that no other process sends: of one experiment, by number."""
        now = time.time()
        with self._transaction() as db:
            rows = db.execute(
                "SELECT number, experiment, body FROM steadyarm_rewards "
                "WHERE service = ? AND due <= ? ORDER BY number LIMIT ?",
                (service, now, BATCH),
            ).fetchall()
            experiment = rows[0][1] if rows else None
            claimed = {number: json.loads(body) for number, of, body in rows if of == experiment}
            self._set_due(db, claimed, now + CLAIM)
        return experiment, claimed

    def release(self, claimed: dict[int, Report]) -> None:
        """Give back what could not be sent."""
        with self._transaction() as db:
            self._set_due(db, claimed, 0.0)

    def remove(self, claimed: dict[int, Report]) -> None:
        """Take out what the service has answered to."""
        with self._transaction() as db:
            numbers = [(number,) for number in claimed]
            db.executemany("DELETE FROM steadyarm_rewards WHERE number = ?", numbers)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _set_due(self, db: sqlite3.Connection, claimed: dict[int, Report], due: float) -> None:
        rows = [(due, number) for number in claimed]
        db.executemany("UPDATE steadyarm_rewards SET due = ? WHERE number = ?", rows)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                self._db.rollback()  # does nothing after a commit

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(
                f"the file of kept rewards {self.path} cannot be used: {error}."
            ) from None


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
        service.recovered = self._awake.set
        if self.pending:  # left by another process
            self._start()

    @property
    def pending(self) -> int:
        """How many rewards wait."""
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
            try:
                results = self._deliver(experiment, list(claimed.values()))
            except BaseException:
                self._buffer.release(claimed)
                raise
            self._buffer.remove(claimed)
            for report, result in zip(claimed.values(), results, strict=True):
                if isinstance(result, SteadyArmError):
                    self._reject(experiment, report, result)

    def _deliver(self, experiment: str | None, reports: Sequence[Report]) -> list[Result]:
        try:
            return self._send(self._service.deliver(experiment, reports))
        except TooLargeError as error:
            if len(reports) == 1:
                return [error]
            first, second = halves(reports)
            return self._deliver(experiment, first) + self._deliver(experiment, second)
        except (ServiceError, StorageError):
            raise
        except SteadyArmError as error:
            return [error] * len(reports)

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
            except Exception as error:  # a thread has nobody to raise to; closing may cut it short
                pause = min(2 * pause, LONGEST)
                log.info("buffered rewards wait on: %s", error)
