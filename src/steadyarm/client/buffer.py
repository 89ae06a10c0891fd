"""RewardBuffer: rewards that could not be delivered, in a file that survives the process.

SQLite and not lines of text: what was delivered is taken out again, several processes share the
file, and a crash in the middle of a write must leave it whole; all of that SQLite has already.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from steadyarm.client.reading import Outcome
from steadyarm.errors import (
    InvalidInputError,
    RepeatedRewardError,
    ServiceError,
    SteadyArmError,
    StorageError,
)
from steadyarm.validation import whole_number

__all__ = ["Kept", "RewardBuffer", "Told", "time_text"]

MARK = 0x53415257  # "SARW": says that a file is one of these
WAIT = 5.0  # seconds for another process that writes
SCHEMA = """
CREATE TABLE IF NOT EXISTS rewards (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    service TEXT NOT NULL,
    experiment TEXT NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    reward REAL NOT NULL,
    kept REAL NOT NULL,
    UNIQUE (service, experiment, target)
)
"""


@dataclass(frozen=True)
class Told:
    """One reward, and whose it is: an assignment's by its id, or a unit's.

    at : when it happened, by the clock of this machine, in seconds since 1970
    """

    kind: Literal["assignment", "unit"]
    target: str
    reward: float
    at: float

    def to_dict(self) -> dict[str, str | float]:
        """As the service takes it."""
        return {self.kind: self.target, "reward": self.reward, "at": time_text(self.at)}


@dataclass(frozen=True)
class Kept:
    """One reward that waits in the file."""

    number: int
    experiment: str
    told: Told


class RewardBuffer:
    """A file of rewards that wait for the service; any number of processes may share it.

    Parameters
    ----------
    path : of the file; beside it lies PATH.rejected with what the service refused, as JSON lines
    limit : how many may wait; more are refused
    """

    def __init__(self, path: str | os.PathLike[str], limit: int = 100_000) -> None:
        self.path = Path(path)
        self.rejected = self.path.with_name(self.path.name + ".rejected")
        self.limit = whole_number(limit, "limit", least=1)
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            mark = db.execute("PRAGMA application_id").fetchone()[0]
            tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if mark != MARK and tables:
                raise InvalidInputError(
                    f"{self.path} is a database of something else; give kept rewards a file of "
                    "their own."
                )
            db.execute(SCHEMA)
            db.execute(f"PRAGMA application_id = {MARK}")
            db.execute("COMMIT")

    def keep(
        self, service: str, experiment: str, rewards: Iterable[Told]
    ) -> list[Outcome | SteadyArmError]:
        """Write rewards down; when this returns all that are "kept" are on disk.

        The same reward of the same assignment is kept once; another one is refused, as the service
        does. So it does not matter in which order rewards of different assignments are sent. What
        is refused, also since too many wait, has the error in its place, and the others are kept.
        """
        outcomes = list[Outcome | SteadyArmError]()
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            left = self.limit - db.execute("SELECT count(*) FROM rewards").fetchone()[0]
            for told in rewards:
                try:
                    if not self._held(db, service, experiment, told):
                        self._check_room(left)
                        left -= 1
                        db.execute(
                            "INSERT INTO rewards (service, experiment, kind, target, reward, kept) "
                            "VALUES (?, ?, ?, ?, ?, ?)",
                            (service, experiment, told.kind, told.target, told.reward, told.at),
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
                "already; this one was not kept. Tell it again when the service is back."
            )

    def holds(self, service: str, experiment: str, told: Told) -> bool:
        """Whether this reward waits already; RepeatedRewardError if another one does."""
        with self._open() as db:
            return self._held(db, service, experiment, told)

    def _held(self, db: sqlite3.Connection, service: str, experiment: str, told: Told) -> bool:
        found = db.execute(
            "SELECT reward FROM rewards WHERE service = ? AND experiment = ? AND target = ?",
            (service, experiment, told.target),
        ).fetchone()
        if found is not None and found[0] != told.reward:
            raise RepeatedRewardError(
                f"{told.target!r} has the reward {found[0]!r} already, which waits to be sent; "
                f"{told.reward!r} is another; the first one counts."
            )
        return found is not None

    def count(self, service: str) -> int:
        """How many wait for this service."""
        with self._open() as db:
            query = "SELECT count(*) FROM rewards WHERE service = ?"
            return int(db.execute(query, (service,)).fetchone()[0])

    def oldest(self, service: str, most: int) -> list[Kept]:
        """The next ones to send, all of one experiment, in the order in which they were told."""
        with self._open() as db:
            rows = db.execute(
                "SELECT number, experiment, kind, target, reward, kept FROM rewards "
                "WHERE service = ? ORDER BY number LIMIT ?",
                (service, most),
            ).fetchall()
        found = [Kept(row[0], row[1], Told(*row[2:])) for row in rows]
        same = [kept.experiment == found[0].experiment for kept in found]
        return found[: same.index(False)] if False in same else found

    def settle(
        self, done: Sequence[Kept], refused: Sequence[tuple[Kept, SteadyArmError]] = ()
    ) -> None:
        """Take out what the service has answered to; what it refused is moved aside."""
        if refused:
            with self.rejected.open("a", encoding="utf-8") as file:
                file.writelines(_line(kept, error) + "\n" for kept, error in refused)
                file.flush()
                os.fsync(file.fileno())
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM rewards WHERE number = ?", [(k.number,) for k in done])
            db.execute("COMMIT")

    @contextmanager
    def sending(self) -> Iterator[bool]:
        """True for one process at a time, which sends; its end, even by a crash, frees the place.

        The lock is one of SQLite on a file of its own, since those exist on every system.
        """
        with closing(
            sqlite3.connect(f"{self.path}.sending", timeout=0, isolation_level=None)
        ) as db:
            try:
                db.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                yield False
            else:
                yield True

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # A connection for every use: it can be shared neither by threads nor with forked children.
        try:
            with closing(sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)) as db:
                db.execute("PRAGMA synchronous = FULL")
                yield db
        except sqlite3.Error as error:
            raise StorageError(
                f"the file of kept rewards {self.path} cannot be used: {error}."
            ) from None


def time_text(seconds: float) -> str:
    """A time as the service reads it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _line(kept: Kept, error: SteadyArmError) -> str:
    return json.dumps(
        {
            "experiment": kept.experiment,
            **kept.told.to_dict(),
            "error": type(error).__name__,
            "reason": str(error),
        },
        ensure_ascii=False,
    )
