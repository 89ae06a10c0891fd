"""RewardBuffer: rewards that could not be delivered, in a file that survives the process.

`Delivery` sends them in a thread when the service is back.


SQLite and not lines of text: what was delivered is taken out again, several processes share the
file, and a crash in the middle of a write must leave it whole; all of that SQLite has already.
Taking out needs some room on the disk for a moment. So that a buffer on a full disk can empty
itself, a file beside it holds room in reserve.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Literal

from steadyarm.client.pools import BlockingPool, forget_after_fork, run
from steadyarm.client.transport import (
    BATCH,
    PATIENCE,
    ServiceDownError,
    Transport,
    each_in,
    in_halves,
)
from steadyarm.errors import (
    InvalidInputError,
    RepeatedRewardError,
    ServiceError,
    SteadyArmError,
    StorageError,
)
from steadyarm.validation import whole_number
from steadyarm.wire.responses import (
    EventAnswer,
    EventAnswers,
    EventStatus,
    RewardStatus,
    RewardStatuses,
)

log = logging.getLogger("steadyarm.client")

# What becomes of a reward; "kept" until the service is back, "ignored" if it is of a default arm or
# of a unit without an assignment, "lost" if the service is down and there is no buffer.
Outcome = Literal["stored", "repeated", "outside", "kept", "ignored", "lost"]
EVENTS = ""  # in place of an experiment's name: an event, which goes to all that measure it

RESERVE = 2**19  # bytes: what SQLite notes down while it takes out SLICE rewards
SLICE = 25
MARK = 0x53415257  # "SARW": says that a file is one of these
WAIT = 5.0  # seconds for another process that writes
FULL = (10, 13)  # SQLite's codes of a disk that fails or is full
SCHEMA = """
CREATE TABLE IF NOT EXISTS rewards (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    service TEXT NOT NULL,
    experiment TEXT NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    reward REAL,
    kept REAL NOT NULL,
    part TEXT NOT NULL DEFAULT '',
    metrics TEXT,
    event TEXT,
    UNIQUE (service, experiment, target, part)
)
"""
COLUMNS = "service, experiment, kind, target, reward, kept"  # of a file that knows no metrics
MORE = "part, metrics, event"


@dataclass(frozen=True)
class RewardReport:
    """One reward, or values of metrics, and whose: an assignment's by its id, or a unit's.

    at : when it happened, by the clock of this machine, in seconds since 1970
    event : the key of the event that the values come from; None if it has none
    """

    kind: Literal["assignment", "unit"]
    target: str
    reward: float | Mapping[str, float]
    at: float
    event: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As the service expects it."""
        found: dict[str, Any] = {
            self.kind: self.target,
            "reward" if isinstance(self.reward, float) else "metrics": self.reward,
            "at": datetime.fromtimestamp(self.at, UTC).isoformat(),
        }
        return found if self.event is None else found | {"event": self.event}

    @property
    def name(self) -> str:
        """The name of an event, which has one value."""
        assert isinstance(self.reward, Mapping)
        (name,) = self.reward
        return str(name)

    def to_event(self) -> dict[str, Any]:
        """As the service expects an event: one value, whose name every experiment may measure."""
        assert isinstance(self.reward, Mapping)
        at, value = self.to_dict()["at"], self.reward[self.name]
        found = {"unit": self.target, "event": self.name, "value": value, "at": at}
        return found if self.event is None else found | {"id": self.event}

    @property
    def part(self) -> str:
        """What tells it from other reports of the same target: its metrics and its event."""
        names = [] if isinstance(self.reward, float) else sorted(self.reward)
        return "" if not names and self.event is None else json.dumps([self.event, *names])

    @property
    def metrics(self) -> str | None:
        """The values of metrics as JSON; None of a plain reward."""
        return None if isinstance(self.reward, float) else json.dumps(dict(self.reward))


@dataclass(frozen=True)
class BufferedReward:
    """One reward that waits in the file."""

    number: int
    experiment: str
    report: RewardReport


# By number, with the reason if the service refused it.
Answered = dict[int, tuple[BufferedReward, SteadyArmError | None]]


class _FullError(StorageError):
    """There is no room on the disk."""


class RewardBuffer:
    """A file of rewards that wait for the service; any number of processes may share it.

    Parameters
    ----------
    path : of the file; beside it lies PATH.rejected with what the service refused, as JSON lines
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
        self.path = Path(path)
        self.rejected = self.path.with_name(self.path.name + ".rejected")
        self._reserve = self.path.with_name(self.path.name + ".reserve")
        self._answered: Answered = {}  # and not taken out yet
        self.limit = whole_number(limit, "limit", least=1)
        with self._open() as db:
            if not self._made(db):  # else nothing need be written, for the disk may be full
                db.execute("PRAGMA auto_vacuum = FULL")  # the file shrinks with what it holds
                db.execute("BEGIN IMMEDIATE")
                if not self._made(db):
                    db.execute(SCHEMA)
                    db.execute(f"PRAGMA application_id = {MARK}")
                db.execute("COMMIT")
            self._upgrade(db)
        # SQLite writes a little when an empty file is locked, for which there may be no room later.
        with closing(self._lock()) as db, suppress(sqlite3.OperationalError):
            if not db.execute("PRAGMA application_id").fetchone()[0]:
                db.execute(f"PRAGMA application_id = {MARK}")
        self._hold_room()

    def _made(self, db: sqlite3.Connection) -> bool:
        mark = db.execute("PRAGMA application_id").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if mark != MARK and tables:
            raise InvalidInputError(
                f"{self.path} is a database of something else; give kept rewards a file of their "
                "own."
            )
        return bool(tables)

    def _upgrade(self, db: sqlite3.Connection) -> None:
        """Let a file of a release that knew no metrics hold them, too."""

        def old() -> bool:
            return all(row[1] != "part" for row in db.execute("PRAGMA table_info(rewards)"))

        if old():
            db.execute("BEGIN IMMEDIATE")
            if old():
                db.execute("ALTER TABLE rewards RENAME TO plain_rewards")
                db.execute(SCHEMA)
                columns = f"number, {COLUMNS}"
                db.execute(f"INSERT INTO rewards ({columns}) SELECT {columns} FROM plain_rewards")
                db.execute("DROP TABLE plain_rewards")
            db.execute("COMMIT")

    def keep(
        self, service: str, experiment: str, rewards: Iterable[RewardReport]
    ) -> list[Outcome | SteadyArmError]:
        """Write rewards down; when this returns all that are "kept" are on disk.

        The same reward of the same assignment is kept once; another one is refused, as the service
        does. So it does not matter in which order rewards of different assignments are sent. What
        is refused, also since too many wait, has the error in its place, and the others are kept.

        Parameters
        ----------
        service : its address
        experiment : its name
        rewards : to write down
        """
        outcomes = list[Outcome | SteadyArmError]()
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            left = self.limit - db.execute("SELECT count(*) FROM rewards").fetchone()[0]
            for report in rewards:
                try:
                    if not self._held(db, service, experiment, report):
                        self._check_room(left)
                        left -= 1
                        db.execute(
                            f"INSERT INTO rewards ({COLUMNS}, {MORE}) "
                            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                            (
                                *(service, experiment, report.kind, report.target),
                                report.reward if isinstance(report.reward, float) else None,
                                *(report.at, report.part, report.metrics, report.event),
                            ),
                        )
                    outcomes.append("kept")
                except SteadyArmError as error:
                    outcomes.append(error)
            db.execute("COMMIT")
        return outcomes

    def _check_room(self, left: int) -> None:
        if left <= 0:
            raise ServiceError(
                f"the service cannot be reached, and {self.limit} rewards wait in {self.path} "
                "already; this one was not kept. Report it again when the service is back."
            )

    def holds(self, service: str, experiment: str, report: RewardReport) -> bool:
        """Whether this reward waits already; RepeatedRewardError if another one does.

        Parameters
        ----------
        service : its address
        experiment : its name
        report : the reward
        """
        with self._open() as db:
            return self._held(db, service, experiment, report)

    def _held(
        self, db: sqlite3.Connection, service: str, experiment: str, report: RewardReport
    ) -> bool:
        found = db.execute(
            "SELECT reward, metrics FROM rewards "
            "WHERE service = ? AND experiment = ? AND target = ? AND part = ?",
            (service, experiment, report.target, report.part),
        ).fetchone()
        if found is None:
            return False
        there = found[0] if found[1] is None else json.loads(found[1])
        if there != report.reward:
            raise RepeatedRewardError(
                f"{report.target!r} has the reward {there!r} already, which waits to be sent; "
                f"{report.reward!r} is another; the first one counts."
            )
        return True

    def count(self, service: str) -> int:
        """How many wait for this service."""
        with self._open() as db:
            if not self._answered:
                query = "SELECT count(*) FROM rewards WHERE service = ?"
                return int(db.execute(query, (service,)).fetchone()[0])
            numbers = db.execute("SELECT number FROM rewards WHERE service = ?", (service,))
            return sum(number not in self._answered for (number,) in numbers)

    def oldest(self, service: str, most: int) -> list[BufferedReward]:
        """The next ones to send, all of one experiment, in the order of their reports.

        Parameters
        ----------
        service : its address
        most : how many
        """
        with self._open() as db:
            rows = db.execute(
                "SELECT number, experiment, kind, target, reward, kept, metrics, event "
                "FROM rewards WHERE service = ? ORDER BY number LIMIT ?",
                (service, most + len(self._answered)),
            ).fetchall()
        rows = [row for row in rows if row[0] not in self._answered][:most]
        found = [
            BufferedReward(
                row[0],
                row[1],
                RewardReport(
                    row[2], row[3], json.loads(row[6]) if row[6] else row[4], row[5], row[7]
                ),
            )
            for row in rows
        ]
        same = [kept.experiment == found[0].experiment for kept in found]
        return found[: same.index(False)] if False in same else found

    def settle(
        self,
        done: Sequence[BufferedReward],
        refused: Sequence[tuple[BufferedReward, SteadyArmError]] = (),
    ) -> None:
        """Take out what the service has answered to; what it refused is moved aside.

        On a full disk the reserve is used up. If that is not enough either, this process remembers
        what it need not send again, and takes it out when there is room.

        Parameters
        ----------
        done : what was answered
        refused : of these what was refused, and why
        """
        why = {kept.number: error for kept, error in refused}
        left = self._answered | {kept.number: (kept, why.get(kept.number)) for kept in done}
        try:
            self._take_out(left, len(left))
        except _FullError:
            self._reserve.unlink(missing_ok=True)
            try:
                self._take_out(left, SLICE)
            except _FullError as error:
                log.warning("%s What it holds was delivered, and is taken out later.", error)
        self._answered = left
        self._hold_room()

    def _take_out(self, answered: Answered, together: int) -> None:
        while part := [*islice(answered.values(), together)]:
            with self._open() as db:
                db.execute("BEGIN IMMEDIATE")
                numbers = [(kept.number,) for kept, _ in part]
                db.executemany("DELETE FROM rewards WHERE number = ?", numbers)
                self._move_aside([(kept, error) for kept, error in part if error is not None])
                db.execute("COMMIT")
            for kept, _ in part:
                del answered[kept.number]

    def _move_aside(self, refused: Sequence[tuple[BufferedReward, SteadyArmError]]) -> None:
        if not refused:
            return
        with self.rejected.open("ab") as file:
            before = file.tell()
            try:
                file.write(b"".join(_line(kept, error).encode() + b"\n" for kept, error in refused))
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                with suppress(OSError):
                    file.truncate(before)  # a line that ends early would spoil the next
                raise _full_or(error, self.rejected) from None

    def _hold_room(self) -> None:
        """Fill the reserve, if there is room; without it all works but on a full disk."""
        with suppress(OSError):
            if not self._reserve.exists() or self._reserve.stat().st_size != RESERVE:
                self._reserve.write_bytes(b"\1" * RESERVE)

    @contextmanager
    def sending(self) -> Iterator[bool]:
        """True for one process at a time, which sends; its end, even by a crash, frees the place.

        The lock is one of SQLite on a file of its own, since those exist on every system.
        """
        with closing(self._lock()) as db:
            try:
                db.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                yield False
            else:
                yield True

    def _lock(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{self.path}.sending", timeout=0, isolation_level=None)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # A connection for every use: it can be shared neither by threads nor with forked children.
        try:
            with closing(sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)) as db:
                db.execute("PRAGMA synchronous = FULL")
                yield db
        except sqlite3.Error as error:
            kind = _FullError if _code(error) in FULL else StorageError
            raise kind(f"the file of kept rewards {self.path} cannot be used: {error}.") from None


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary code; 0 for what its driver raises by itself."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _full_or(error: OSError, path: Path) -> StorageError:
    kind = _FullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
    return kind(f"{path} cannot be written: {error}.")


def _line(kept: BufferedReward, error: SteadyArmError) -> str:
    return json.dumps(
        {
            "experiment": kept.experiment,
            **kept.report.to_dict(),
            "error": type(error).__name__,
            "reason": str(error),
        },
        ensure_ascii=False,
    )


SOONEST, LONGEST = 1.0, 30.0  # seconds between tries while the service is down


async def send_rewards(
    transport: Transport, experiment: str, rewards: Sequence[RewardReport]
) -> list[Outcome | SteadyArmError]:
    """Whether each reward is "stored" or "repeated", or why it is refused; see `in_halves`.

    experiment : its name, or EVENTS
    """

    async def send(part: Sequence[RewardReport]) -> list[Outcome | SteadyArmError]:
        found = await transport.call(
            RewardStatuses,
            *("POST", "experiments", experiment, "rewards:batch"),
            body={"rewards": [one.to_dict() for one in part]},
            within=PATIENCE,
            stamped=True,
        )
        each = each_in(found.rewards, RewardStatus, len(part))
        return [one if isinstance(one, SteadyArmError) else one.status for one in each]

    async def send_events(part: Sequence[RewardReport]) -> list[Outcome | SteadyArmError]:
        found = await transport.call(
            EventAnswers,
            *("POST", "events:batch"),
            body={"events": [one.to_event() for one in part]},
            within=PATIENCE,
            stamped=True,
        )
        each = each_in(found.events, EventAnswer, len(part))
        return [
            one if isinstance(one, SteadyArmError) else _together(transport, event, one)
            for event, one in zip(part, each, strict=True)
        ]

    return await in_halves(send_events if experiment == EVENTS else send, rewards)


def _together(transport: Transport, event: RewardReport, answer: EventAnswer) -> Outcome:
    """What became of an event that counts: "stored" if an experiment has stored it now."""
    each = each_in(answer.experiments, EventStatus, len(answer.experiments))
    for one in each:
        if isinstance(one, SteadyArmError) and transport.is_new(event.name, one):
            log.warning("an event does not count in one of its experiments: %s", one)
    return "stored" if any(getattr(one, "status", "") == "stored" for one in each) else "repeated"


class Delivery:
    """Empties a buffer into a service, in a thread, also for clients under asyncio.

    Attributes
    ----------
    rejected : rewards that the service refused for good, and that were moved aside
    """

    def __init__(self, transport: Transport, buffer: RewardBuffer) -> None:
        self.buffer, self.rejected = buffer, 0
        self._own = not isinstance(transport.pool, BlockingPool)
        self._transport = transport.for_threads() if self._own else transport
        self.forget()
        # Another process may have sent what waits; what this process buffers is never overlooked.
        self.waiting = self.pending > 0
        transport.recovered = self._transport.recovered = self.wake
        forget_after_fork(self)
        self.wake()

    @property
    def pending(self) -> int:
        """How many rewards wait."""
        return self.buffer.count(self._transport.url)

    def keep(
        self, experiment: str, rewards: Sequence[RewardReport]
    ) -> list[Outcome | SteadyArmError]:
        """Buffer rewards and send them later; "kept" for each, or why it is not."""
        outcomes = self.buffer.keep(self._transport.url, experiment, rewards)
        self.waiting = True
        self._start()
        return outcomes

    def holds(self, experiment: str, report: RewardReport) -> bool:
        """Whether this reward waits already; RepeatedRewardError if another one does."""
        return self.waiting and self.buffer.holds(self._transport.url, experiment, report)

    def deliver(self) -> int:
        """Send until nothing waits; the number sent. Raises if the service is down."""
        sent = 0
        with self.buffer.sending() as mine:
            while mine and (batch := self.buffer.oldest(self._transport.url, BATCH)):
                sent += len(batch)
                self._deliver(batch)
            if mine:
                self.waiting = False
                if self.pending:  # buffered meanwhile
                    self.waiting = True
        return sent

    def _deliver(self, batch: list[BufferedReward]) -> None:
        rewards = [one.report for one in batch]
        results = run(send_rewards(self._transport, batch[0].experiment, rewards))
        refused = [
            (one, result)
            for one, result in zip(batch, results, strict=True)
            if isinstance(result, SteadyArmError)
        ]
        self.buffer.settle(batch, refused)
        self.rejected += len(refused)
        for one, result in refused:
            log.warning("a buffered reward of %r was refused: %s", one.report.target, result)

    def flush(self, within: float) -> None:
        """Return when nothing waits any more; ServiceError if that takes longer."""
        deadline = time.monotonic() + within
        while self.pending:
            self.deliver()
            if time.monotonic() > deadline:
                raise ServiceDownError(
                    f"{self.pending} rewards still wait after {within:g} seconds; another process "
                    "may be sending them."
                )
            if self.pending:
                time.sleep(0.05)

    def wake(self) -> None:
        """Try now, in the thread."""
        if self.waiting:
            self._start()
            self._awake.set()

    def close(self) -> None:
        """Stop the thread; what waits stays in the file, for the next process."""
        self._stopped = True
        self._awake.set()
        if self._thread is not None:
            self._thread.join(self._transport.timeout)  # it may hang on a service that hangs
        if self._own:
            run(self._transport.pool.close())

    def forget(self) -> None:
        """Start without a thread, as the child of a fork has none."""
        self._lock, self._awake, self._stopped = Lock(), Event(), False
        self._thread: Thread | None = None

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
            if self._stopped or not self.waiting:
                continue
            try:
                self.deliver()
                pause = SOONEST
            except Exception as error:  # a thread has nobody to raise to; closing may cut it short
                pause = min(2 * pause, LONGEST)
                log.info("buffered rewards wait on: %s", error)
