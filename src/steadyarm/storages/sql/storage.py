"""SQLStorage: the contract of `Storage` on SQLite and PostgreSQL.

Each part of the contract has its file: `experiments`, `assignments`, `rewards`, `operators`. Here
are the storage as a whole, its heartbeat, and what removes old rows.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from threading import Lock, Thread

from sqlalchemy import Connection, Table, and_, delete, exists, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import URL

from steadyarm.errors import SteadyArmError, StorageError, UnknownExperimentError
from steadyarm.segments import Draws
from steadyarm.storages.changes import Pruned
from steadyarm.storages.sql.assignments import Assignments
from steadyarm.storages.sql.engine import HINTS, MEMORY, Database, check_folder
from steadyarm.storages.sql.experiments import Experiments
from steadyarm.storages.sql.operators import Operators, forget_corrected
from steadyarm.storages.sql.schema import (
    OWNED,
    audit,
    experiments,
    marks,
    segments,
    sessions,
    tallies,
)
from steadyarm.storages.sql.upkeep import damage_of, prepare
from steadyarm.storages.webhooks import Webhooks


class SQLStorage(Experiments, Assignments, Operators):
    """Experiments in a database; made by `open_storage`.

    SQLite has one writer at a time, who needs no further locks. On PostgreSQL rows are locked in
    one order: the counter, assignments or rewards by unit or number, tallies, series.
    """

    def __init__(self, url: URL) -> None:
        check_folder(url)
        super().__init__(url)
        self.in_memory = url == MEMORY
        self.webhooks = Webhooks(self._database, self.now)
        self._heartbeat = Heartbeat(self._database)
        try:
            prepare(self._database)
        except BaseException:
            self._database.close()
            raise
        self._database.reopened = self._reopened

    def __repr__(self) -> str:
        return f"SQLStorage({self._database.shown})"

    def _reopened(self) -> None:
        """Go on with another file than was opened, if it has the same experiments."""
        before, self._known = self._known, {}
        self._configs, self._draws = {}, Draws()
        prepare(self._database, new=False)
        try:
            self._database.read(lambda c: [self._facts(c, key) for key in before])
        except UnknownExperimentError:
            self._known = {}
        if self._known != before:
            self._known = before
            raise StorageError(
                f"{self._database.shown}: the file was replaced by one with other experiments than "
                "those in use; end the processes that use it and start them again."
            )

    def check(self) -> None:
        """Raise what the last heartbeat found, if anything."""
        self._heartbeat.check()

    def prune(self, now: int, archived_before: int | None = None, dry: bool = False) -> Pruned:
        """Forget what was known of deleted experiments, too."""
        pruned = prune(self._database, now, archived_before, dry)
        if pruned.experiments and not dry:
            self._known = {}
        return pruned

    def close(self) -> None:
        """Close all connections."""
        self._database.close()


# The heartbeat


EVERY = 1.0  # seconds between two heartbeats
PATIENCE = 2.5  # seconds after which a heartbeat has failed
ROOM = 1 << 20  # free bytes below which a disk counts as full
EXAMINED = 5.0  # seconds between two readings of a whole file, at least
SHARE = 100  # after a reading, none begins for this many times its duration


_new = insert(marks)
BEAT = _new.on_conflict_do_update(
    index_elements=["name"],
    set_={"value": _new.excluded.value, "note": func.coalesce(_new.excluded.note, marks.c.note)},
)


def beat(connection: Connection, value: int, note: str | None = None) -> None:
    """Write the heartbeat, a time in microseconds; the old note stays if none is given."""
    row = {"name": "heartbeat", "value": value, "note": note}
    connection.execute(BEAT, row)


class Heartbeat:
    """Whether a database takes durable writes, tested at most once a second.

    The heartbeat is one row. It proves what a `SELECT 1` does not: that the storage takes a durable
    write now.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = Lock()
        self._beaten = -inf
        self._wrong: SteadyArmError | None = None
        self._reading: Thread | None = None  # the whole file, by a thread of its own
        self._read, self._next = -inf, -inf  # when that last began, and when it does again
        self._damage: str | None = None

    def check(self) -> None:
        """Return if the last heartbeat succeeded; it is at most a second old."""
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
            if database.file is not None:
                database.attend()
                self._inspect(database.file)
            # Under load other writes prove it, and a heartbeat would have to wait for them.
            if time.monotonic() - database.written > EVERY:
                now = time.time_ns() // 1000
                database.write(lambda connection: beat(connection, now), seconds=PATIENCE)
        except SteadyArmError as error:
            return error
        return None

    def _inspect(self, file: Path) -> None:
        """Find what a small write does not show, because it may fit into the existing log."""
        if not os.access(file, os.W_OK):
            raise self._error(HINTS[8])
        if shutil.disk_usage(file.parent).free < ROOM:
            raise self._error(HINTS[13])
        suspected = self._database.damaged > self._read
        if self._reading is None and (suspected or time.monotonic() >= self._next):
            self._reading = Thread(target=self._examine, args=(file, suspected), daemon=True)
            self._reading.start()
        if (reading := self._reading) is not None:
            reading.join(PATIENCE / 5)
        if self._damage is not None or self._database.damaged > self._read:
            raise self._error(HINTS[11])

    def _examine(self, file: Path, suspected: bool) -> None:
        """Read the whole file; thoroughly if damage is suspected, again soon if there is any."""
        began = time.monotonic()
        with suppress(sqlite3.Error):  # such as a missing file, which the heartbeat reports
            self._damage = damage_of(file, quick=not suspected)
            self._read = began
        ended = time.monotonic()
        rest = EXAMINED if self._damage else max(EXAMINED, SHARE * (ended - began))
        self._next, self._reading = ended + rest, None

    def _error(self, reason: str) -> StorageError:
        error = StorageError(f"{self._database.shown}: {reason}.")
        error.reason = reason
        return error


# What nobody needs any more


PORTION = 20_000  # rows that are deleted in one transaction


def prune(database: Database, now: int, archived_before: int | None, dry: bool) -> Pruned:
    """Work in many small transactions, so that traffic goes on between them."""
    old: dict[int, str] = {}
    if archived_before is not None:
        old = database.read(lambda c: _archived(c, archived_before))
    if dry:
        return Pruned(0, tuple(old.values()))
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
    return Pruned(signed_in, tuple(old.values()))


def _archived(connection: Connection, before: int) -> dict[int, str]:
    """Names by key of experiments that were archived before a time."""
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


def _delete(database: Database, table: Table, key: int) -> None:
    """Delete an experiment's rows of a table, some at a time."""
    columns = tuple(table.primary_key.columns)
    some = select(*columns).where(table.c.key == key).limit(PORTION)
    statement = delete(table).where(table.c.key == key, tuple_(*columns).in_(some))
    while database.write(lambda c: c.execute(statement).rowcount):
        pass
