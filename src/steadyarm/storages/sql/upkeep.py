"""Upkeep of a database: its heartbeat, orphaned rows, and what can be thrown away.

The heartbeat is one row that is written at most once a second. It proves what a `SELECT 1` does
not: that the storage takes a durable write now.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    column,
    delete,
    exists,
    func,
    inspect,
    or_,
    select,
    text,
    tuple_,
)
from sqlalchemy import table as lightweight_table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL

from steadyarm.errors import MissingExtraError, SteadyArmError, StorageError, StorageVersionError
from steadyarm.storages.records import POSITIONS, Pruned
from steadyarm.storages.sql.assignments import NEVER, release
from steadyarm.storages.sql.corrections import forget_corrected
from steadyarm.storages.sql.engine import DAMAGED, HINTS, Database, shown
from steadyarm.storages.sql.schema import (
    PREFIX,
    RELEASED,
    REVISIONS,
    VERSION_TABLE,
    assignments,
    audit,
    corrections,
    experiments,
    leases,
    marks,
    rewards,
    segments,
    sessions,
    tallies,
)

__all__ = [
    "Heartbeat",
    "StorageStatus",
    "beat",
    "migrate",
    "prepare",
    "prune",
    "status",
    "strays",
    "upgrade",
    "whole",
]

EVERY = 1.0  # seconds between two heartbeats
PATIENCE = 2.5  # seconds in which one must have ended
ROOM = 1 << 20  # bytes of a disk below which it counts as full
EXAMINED = 5.0  # seconds between two readings of a whole file, at least
SHARE = 100  # a reading is followed by so many times its own length without one
PORTION = 20_000  # rows that are deleted in one transaction

# Rows of an experiment, in the order in which they go: what is left of a deletion that was
# interrupted is found by the segments.
OWNED = (rewards, assignments, corrections, leases, tallies, segments)


# Heartbeat


def _beat(dialect: Any) -> Any:
    statement = dialect.insert(marks)
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["name"],
        set_={"value": new.value, "note": func.coalesce(new.note, marks.c.note)},
    )


BEAT = {"sqlite": _beat(sqlite), "postgresql": _beat(postgresql)}


def beat(connection: Connection, value: int, note: str | None = None) -> None:
    """Write the heartbeat: a time in microseconds; a note of None leaves the one that is there."""
    row = {"name": "heartbeat", "value": value, "note": note}
    connection.execute(BEAT[connection.dialect.name], row)


class Heartbeat:
    """Whether a database takes durable writes, found out at most once a second."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = Lock()
        self._beaten = -inf
        self._wrong: SteadyArmError | None = None
        self._reading: Thread | None = None  # the whole file, by a thread of its own
        self._read, self._next = -inf, -inf  # when that last began, and when it does again
        self._damage: str | None = None

    def check(self) -> None:
        """Return if the last heartbeat went well; it is not older than a second."""
        with self._turn:
            if time.monotonic() - self._beaten >= EVERY:
                self._wrong = self._found()
                self._beaten = time.monotonic()
            wrong = self._wrong
        if wrong is not None:
            again = type(wrong)(str(wrong))
            if isinstance(wrong, StorageError) and isinstance(again, StorageError):
                again.reason = wrong.reason
            raise again

    def _found(self) -> SteadyArmError | None:
        database = self._database
        try:
            database.attend()
            if database.file is not None:
                self._look_at(database.file)
            # Under load the writers prove it, and a heartbeat would have to wait for its turn.
            if time.monotonic() - database.written > EVERY:
                now = time.time_ns() // 1000
                database.write(lambda connection: beat(connection, now), seconds=PATIENCE)
        except SteadyArmError as error:
            return error
        return None

    def _look_at(self, file: Path) -> None:
        """What a small write does not tell: it may fit into the log that is there already."""
        if not os.access(file, os.W_OK):
            raise self._told(HINTS[8])
        if shutil.disk_usage(file.parent).free < ROOM:
            raise self._told(HINTS[13])
        suspected = self._database.damaged > self._read
        if self._reading is None and (suspected or time.monotonic() >= self._next):
            self._reading = Thread(target=self._examine, args=(file, suspected), daemon=True)
            self._reading.start()
        if (reading := self._reading) is not None:
            reading.join(PATIENCE / 5)
        if self._damage is not None or self._database.damaged > self._read:
            raise self._told(HINTS[11])

    def _examine(self, file: Path, suspected: bool) -> None:
        """Read the whole file; more thoroughly if somebody met damage, again soon if there is."""
        began = time.monotonic()
        with suppress(sqlite3.Error):  # such as a file that is gone: the heartbeat tells
            self._damage = whole(file, quick=not suspected)
            self._read = began
        ended = time.monotonic()
        rest = EXAMINED if self._damage else max(EXAMINED, SHARE * (ended - began))
        self._next, self._reading = ended + rest, None

    def _told(self, reason: str) -> StorageError:
        error = StorageError(f"{self._database.shown}: {reason}.")
        error.reason = reason
        return error


def whole(file: Path, quick: bool = False) -> str | None:
    """What is wrong with an SQLite file, in a line; None if it is in order. Reads all of it.

    quick : leave out whether indices agree with their tables; stops at the first fault
    """
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=1)) as connection:
        try:
            statement = "PRAGMA quick_check(1)" if quick else "PRAGMA integrity_check(10)"
            lines = [str(line) for (line,) in connection.execute(statement)]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in DAMAGED:
                raise
            lines = [str(error)]
    return None if lines == ["ok"] else " ".join("; ".join(lines).split())


# Rows that belong to nothing


def strays(connection: Connection) -> Iterator[str]:
    """What is there without what it belongs to, a line for each table and experiment."""
    for table in OWNED:
        unknown = ~exists().where(experiments.c.key == table.c.key)
        for key, count in _counted(connection, table, unknown):
            yield f"{_name(table)}: {count:,} rows of the experiment with key {key}, which is gone"
    assigned = exists().where(
        assignments.c.key == rewards.c.key, assignments.c.number == rewards.c.number
    )
    for key, count in _counted(connection, rewards, ~assigned):
        yield f"rewards: {count:,} rows of the experiment with key {key} have no assignment"
    for table, segment in (
        (assignments, assignments.c.number // POSITIONS),
        (tallies, tallies.c.segment),
        (leases, leases.c.segment),
    ):
        there = exists().where(segments.c.key == table.c.key, segments.c.index == segment)
        known = exists().where(experiments.c.key == table.c.key)
        for key, count in _counted(connection, table, and_(known, ~there)):
            yield f"{_name(table)}: {count:,} rows of the experiment with key {key} have no segment"


def _counted(
    connection: Connection, table: Table, condition: ColumnElement[bool]
) -> list[tuple[int, int]]:
    """Keys of experiments, and how many rows of theirs meet a condition."""
    counts = select(table.c.key, func.count()).where(condition).group_by(table.c.key)
    return [(row[0], row[1]) for row in connection.execute(counts.order_by(table.c.key))]


def _name(table: Table) -> str:
    return table.name.removeprefix(PREFIX)


# What can go


def prune(database: Database, now: int, archived_before: int | None, dry: bool) -> Pruned:
    """See `Storage.prune`. Many small transactions: traffic goes on between them."""
    old: dict[int, str] = {}
    if archived_before is not None:
        old = database.read(lambda c: _archived(c, archived_before))
    if dry:
        return Pruned(0, 0, 0, tuple(old.values()))
    given_back = 0
    for key, ids in database.read(lambda c: _expired(c, now)).items():
        given_back += database.write(partial(release, key=key, ids=ids))
    archived = select(experiments.c.key).where(experiments.c.state == "archived")
    ended = and_(
        leases.c.start == leases.c.stop, or_(leases.c.expires <= now, leases.c.expires == NEVER)
    )
    rows = database.write(
        lambda c: c.execute(delete(leases).where(or_(ended, leases.c.key.in_(archived)))).rowcount
    )
    signed_in = database.write(
        lambda c: c.execute(delete(sessions).where(sessions.c.expires <= now)).rowcount
    )
    if old:
        one = and_(experiments.c.key.in_(list(old)), experiments.c.state == "archived")
        database.write(lambda c: c.execute(delete(experiments).where(one)))
    unknown = ~exists().where(experiments.c.key == segments.c.key)
    gone = select(segments.c.key).where(unknown).distinct()
    for key in old.keys() | database.read(lambda c: set(c.execute(gone).scalars())):
        for table in OWNED:
            _delete(database, table, key)
        database.write(partial(forget_corrected, key=key))
    return Pruned(given_back, rows, signed_in, tuple(old.values()))


def _archived(connection: Connection, before: int) -> dict[int, str]:
    """Names by key of experiments that were archived before a time.

    The audit log tells when; of those that were archived before there was one, the last assignment.
    """
    used = select(func.max(tallies.c.last)).where(tallies.c.key == experiments.c.key)
    done = select(func.max(audit.c.created)).where(audit.c.experiment == experiments.c.name)
    old = (
        select(experiments.c.key, experiments.c.name)
        .where(experiments.c.state == "archived", experiments.c.created < before)
        .where(func.coalesce(used.scalar_subquery(), 0) < before)
        .where(func.coalesce(done.scalar_subquery(), 0) < before)
        .order_by(experiments.c.key)
    )
    return {row.key: row.name for row in connection.execute(old)}


def _expired(connection: Connection, now: int) -> dict[int, list[int]]:
    """Ids of leases that have run out, by experiment; without those of which nothing is left."""
    out = and_(leases.c.expires > RELEASED, leases.c.start < leases.c.stop)
    found: dict[int, list[int]] = {}
    for key, number in connection.execute(
        select(leases.c.key, leases.c.id).where(out, leases.c.expires <= now)
    ):
        found.setdefault(key, []).append(number)
    return found


def _delete(database: Database, table: Table, key: int) -> None:
    """Delete an experiment's rows of a table, some at a time."""
    columns = tuple(table.primary_key.columns)
    some = select(*columns).where(table.c.key == key).limit(PORTION)
    statement = delete(table).where(table.c.key == key, tuple_(*columns).in_(some))
    while database.write(lambda c: c.execute(statement).rowcount):
        pass


# The version of a database's tables: looked up, and brought up to date with Alembic.


MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST = REVISIONS[-1]
TURN = 0x57EAD7A3  # PostgreSQL's advisory lock: one upgrade at a time
ALEMBIC = Lock()  # keeps what it works on in a module of its own

version = lightweight_table(VERSION_TABLE, column("version_num"))

State = Literal["current", "older", "newer", "empty"]


@dataclass(frozen=True)
class StorageStatus:
    """How the tables of a storage stand.

    Attributes
    ----------
    url : without its password
    backend : "sqlite" or "postgresql"
    revision : of the tables, None if there are none
    newest : revision that this version of SteadyArm works with
    state : "current"; "older", upgrade it; "newer", upgrade SteadyArm; "empty", no tables yet
    damage : what is wrong with the file of an SQLite storage; None if nothing is, or if the whole
        file was not read
    """

    url: str
    backend: str
    revision: str | None
    newest: str
    state: State
    damage: str | None = None


def status(url: URL, thorough: bool = False) -> StorageStatus:
    """Look at a database; makes nothing, not even a file.

    thorough : read a whole file of SQLite, to find damage
    """
    shown_url, backend = shown(url), url.get_backend_name()
    if backend == "sqlite" and not Path(url.database or "").exists():
        return StorageStatus(shown_url, backend, None, NEWEST, "empty")
    with closing(Database(url)) as database:
        revision, state = database.read(_look)
    damage = whole(database.file, quick=True) if thorough and database.file else None
    return StorageStatus(shown_url, backend, revision, NEWEST, state, damage)


def prepare(database: Database, new: bool = True) -> None:
    """Refuse tables of another version.

    new : whether tables are made if there are none; else that is refused, too
    """
    if database.sqlite:
        database.use_wal()
    revision, state = database.read(_look)
    if state == "empty" and not new:
        raise StorageError(
            f"{database.shown}: the file was replaced by one without tables; restore a backup "
            "with: steadyarm storage restore"
        )
    if state == "empty":
        revision, state = database.write(_create, seconds=inf)
    if state == "older":
        raise StorageVersionError(
            f"the tables in {database.shown} are of version {revision or 'unknown'}, this "
            f"SteadyArm works with {NEWEST}; make a backup, then run: steadyarm storage upgrade "
            f"--storage {database.shown}"
        )
    if state == "newer":
        raise StorageVersionError(_too_new(database, revision))


def upgrade(url: URL) -> tuple[str | None, str]:
    """Bring tables up to date, in one transaction; the revisions before and after."""
    with closing(Database(url)) as database:
        if database.sqlite:
            database.use_wal()

        def work(connection: Connection) -> str | None:
            _wait(connection)
            revision, state = _look(connection)
            if state == "newer":
                raise StorageVersionError(_too_new(database, revision))
            migrate(connection, NEWEST)
            return revision

        return database.write(work, seconds=inf), NEWEST


def migrate(connection: Connection, revision: str) -> None:
    """Run the migrations up to a revision, in the connection's transaction."""
    try:
        from alembic import command
        from alembic.config import Config
    except ImportError as error:
        raise MissingExtraError(
            f"making the tables of a storage needs {error.name}; install it with: "
            "pip install 'steadyarm[live]'"
        ) from None
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with ALEMBIC:
        command.upgrade(config, revision)


def _create(connection: Connection) -> tuple[str | None, State]:
    _wait(connection)
    revision, state = _look(connection)  # another process may have been faster
    if state == "empty":
        migrate(connection, NEWEST)
        return NEWEST, "current"
    return revision, state


def _wait(connection: Connection) -> None:
    """Be the only one that changes tables; on SQLite, whoever writes is."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": TURN})


def _look(connection: Connection) -> tuple[str | None, State]:
    names = inspect(connection).get_table_names()
    if VERSION_TABLE in names:
        revision = connection.execute(select(version.c.version_num)).scalar()
        if revision == NEWEST:
            return revision, "current"
        return revision, "older" if revision in (None, *REVISIONS) else "newer"
    return None, "older" if any(name.startswith(PREFIX) for name in names) else "empty"


def _too_new(database: Database, revision: str | None) -> str:
    return (
        f"the tables in {database.shown} are of version {revision}, this SteadyArm knows versions "
        f"up to {NEWEST}; install a newer SteadyArm."
    )
