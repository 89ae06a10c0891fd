"""Backup and restore of a whole database, and what is wrong with one.

A backup of SQLite is SQLite's own: it is as of one moment although others write meanwhile.
PostgreSQL has tools for this, which are named here and not replaced.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from sqlalchemy import Connection, inspect, select
from sqlalchemy.engine import URL

from steadyarm.errors import InvalidInputError, StorageError, StorageVersionError
from steadyarm.storages.sql.access import CLOSED
from steadyarm.storages.sql.engine import BUSY, Database, file_of, shown
from steadyarm.storages.sql.schema import (
    REVISIONS,
    VERSION_TABLE,
    experiments,
    marks,
    metadata,
    sessions,
    tokens,
)
from steadyarm.storages.sql.upkeep import migrate, strays, whole

__all__ = ["Restored", "backup", "command_of", "faults", "names", "restore"]

# Where whoever has a file of SQLite open keeps it locked (https://sqlite.org/fileformat2.html).
SHARED_FIRST, SHARED_SIZE = 0x40000002, 510


@dataclass(frozen=True)
class Restored:
    """What `restore` has done.

    Attributes
    ----------
    file : that holds the backup's data now
    before : where the file that was there is kept; None if there was none
    revision : of the tables; older than `newest` if they must be upgraded
    closed : whether the service refuses requests without a token: the backup or what was there has
        had one. What was there counts as closed if it cannot be read
    tokens : names and scopes of those that are valid now
    returned : names of those among them that were not valid in what was there
    newest : revision that this version of SteadyArm works with
    """

    file: Path
    before: Path | None
    revision: str
    closed: bool
    tokens: tuple[tuple[str, str], ...]
    returned: tuple[str, ...] = ()
    newest: str = REVISIONS[-1]


@dataclass(frozen=True)
class _Admitted:
    """Who gets into a storage.

    closed : when it had its first token; None if it has had none
    tokens : name, scope and hash of each, oldest first
    known : False if it cannot be read
    """

    closed: int | None = None
    tokens: tuple[tuple[str, str, str], ...] = ()
    known: bool = True


def faults(url: URL) -> tuple[str, ...]:
    """What is wrong with the file and the tables, a line each; reads all of them."""
    file = file_of(url)
    if file is not None:
        with _told(file):
            damage = whole(file)
        if damage:
            return (f"the file is damaged: {damage}",)

    def work(connection: Connection) -> list[str]:
        there = inspect(connection).get_table_names()
        if missing := sorted(set(metadata.tables) - set(there)):
            return [f"the table {name} is missing" for name in missing]
        return list(strays(connection))

    with closing(Database(url)) as database:
        return tuple(database.read(work, seconds=inf))


def names(url: URL) -> tuple[str, ...]:
    """Names of all experiments, oldest first; reads nothing else of them."""
    every = select(experiments.c.name).order_by(experiments.c.key)
    with closing(Database(url)) as database:
        return tuple(database.read(lambda connection: list(connection.execute(every).scalars())))


def command_of(url: URL, file: Path, tool: str) -> str | None:
    """The command line of PostgreSQL that makes or restores a backup; None for SQLite.

    Examples
    --------
    >>> from sqlalchemy.engine import make_url
    >>> url = make_url("postgresql+psycopg://me:secret@host/tests")
    >>> command_of(url, Path("tests.dump"), "pg_dump")
    'pg_dump --format custom --file tests.dump --dbname postgresql://me@host/tests'
    """
    if url.get_backend_name() == "sqlite":
        return None
    secrets = [name for name in url.query if "password" in name.lower()]
    named = url.difference_update_query(secrets)._replace(drivername="postgresql", password=None)
    address = named.render_as_string(hide_password=False)
    if tool == "pg_dump":
        return shlex.join(
            ["pg_dump", "--format", "custom", "--file", str(file), "--dbname", address]
        )
    options = ["--clean", "--if-exists", "--exit-on-error", "--single-transaction"]
    return shlex.join(["pg_restore", *options, "--dbname", address, str(file)])


def backup(url: URL, target: Path, force: bool = False) -> Path:
    """Copy an SQLite database as it is at one moment, checked, into a file of its own.

    force : replace a file that is there, unless it is in use
    """
    file = _file(url, target, "pg_dump")
    target = Path(os.path.abspath(target))
    if not file.is_file():
        raise StorageError(f"{shown(url)}: there is no such file, so nothing to back up.")
    _check_other(file, target)
    if target.exists() and not force:
        raise InvalidInputError(f"{target} is there already; choose another name, or --force it.")
    with _copied(file, target) as new, _alone(target):
        _replace(new, target)
    return target


def restore(url: URL, source: Path) -> Restored:
    """Put a backup in the place of an SQLite database that nobody uses, and keep what was there.

    A storage that has had a token stays closed, and whoever was signed in is so no more.
    """
    file = _file(url, source, "pg_restore")
    source = Path(os.path.abspath(source))
    if not source.is_file():
        raise InvalidInputError(f"there is no backup {source}; give the file that backup wrote.")
    _check_other(file, source)
    with _copied(source, file) as new:
        revision = _revision(new, source)
        with _alone(file) as old:
            there = _Admitted(known=not file.exists()) if old is None else _admitted(old)
            closed = round(time.time() * 1e6) if not there.known else there.closed
            with _told(new):
                now = _secured(new, closed)
                revision = _revision(new, source)
            before = _kept(file)
            _replace(new, file)
    hashes = {hashed for _, _, hashed in there.tokens}
    comparable = there.known and before is not None
    return Restored(
        file,
        before,
        revision,
        now.closed is not None,
        tuple((name, scope) for name, scope, _ in now.tokens),
        tuple(name for name, _, hashed in now.tokens if comparable and hashed not in hashes),
    )


def _admitted(connection: sqlite3.Connection) -> _Admitted:
    try:
        tables = _tables(connection)
        closed, found = None, []
        if tokens.name in tables:
            columns = f"name, scope, hash, created FROM {tokens.name} ORDER BY created, name"
            found = connection.execute(f"SELECT {columns}").fetchall()
            closed = found[0][3] if found else None  # as the upgrade of older tables says
        if marks.name in tables:
            mark = f"SELECT value FROM {marks.name} WHERE name = ?"
            row = connection.execute(mark, (CLOSED,)).fetchone()
            closed = closed if row is None else row[0]
    except sqlite3.Error:
        return _Admitted(known=False)
    return _Admitted(closed, tuple((name, scope, hashed) for name, scope, hashed, _ in found))


def _secured(new: Path, closed: int | None) -> _Admitted:
    """End all sessions in a copy, and mark it as closed if what it replaces was; who gets in."""
    with closing(_connected(new)) as connection:
        found, old = _admitted(connection), marks.name not in _tables(connection)
    if closed is not None and found.closed is None and old:  # there is no place for the mark
        with closing(Database(URL.create("sqlite", database=str(new)))) as database:
            database.write(lambda upgraded: migrate(upgraded, REVISIONS[-1]), seconds=inf)
    with closing(_connected(new)) as connection:
        tables = _tables(connection)
        if sessions.name in tables:
            connection.execute(f"DELETE FROM {sessions.name}").close()
        if closed is not None and marks.name in tables:
            mark = f"INSERT OR IGNORE INTO {marks.name} (name, value) VALUES (?, ?)"
            connection.execute(mark, (CLOSED, closed)).close()
        return _admitted(connection)


def _tables(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in rows}


def _file(url: URL, other: Path, tool: str) -> Path:
    file = file_of(url)
    if file is None:
        raise InvalidInputError(
            f"PostgreSQL has tools of its own for this: {command_of(url, other, tool)}"
        )
    return file


def _check_other(file: Path, other: Path) -> None:
    if not other.parent.is_dir() or not file.parent.is_dir():
        folder = other.parent if file.parent.is_dir() else file.parent
        raise InvalidInputError(f"there is no folder {folder}; make it first.")
    if other == file or (file.exists() and other.exists() and file.samefile(other)):
        raise InvalidInputError(f"{other} is the storage itself; give another file.")


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """Tell the driver's errors in our words."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"{file}: {error}.") from None


def _connected(file: Path, timeout: float = 5.0) -> sqlite3.Connection:
    address = f"{file.as_uri()}?mode=rw"  # makes no file
    return sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None)


@contextmanager
def _copied(file: Path, target: Path) -> Iterator[Path]:
    """A checked copy of a database, beside its target, on disk; removed if it stays there."""
    new = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with _told(file):
            with closing(_connected(file)) as old, closing(sqlite3.connect(new)) as copy:
                old.backup(copy)  # in one step, so as of one moment
                copy.execute("PRAGMA journal_mode=DELETE").close()  # one file, without a log
            damage = whole(new)
        if damage:
            raise StorageError(f"{file} is damaged, nothing was changed: {damage}.")
        with suppress(OSError):  # who restores need not be who uses it
            there = target.stat() if target.exists() else file.stat()
            os.chmod(new, there.st_mode & 0o777)
            os.chown(new, there.st_uid, there.st_gid)
        _sync(new)
        yield new
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            Path(f"{new}{suffix}").unlink(missing_ok=True)


def _revision(file: Path, source: Path) -> str:
    """Of the tables; refuses what this version of SteadyArm cannot use."""
    with closing(_connected(file)) as connection:
        try:
            (found,) = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
        except (sqlite3.Error, TypeError):
            raise InvalidInputError(
                f"{source} has no tables of SteadyArm; give a file that steadyarm storage backup "
                "wrote."
            ) from None
    if found not in REVISIONS:
        raise StorageVersionError(
            f"the tables in {source} are of version {found}, this SteadyArm knows versions up to "
            f"{REVISIONS[-1]}; install a newer SteadyArm."
        )
    return str(found)


@contextmanager
def _alone(file: Path) -> Iterator[sqlite3.Connection | None]:
    """Keep everybody else out of a database; StorageError if somebody has it open.

    Gives the connection that keeps it; None if there is no file, or SQLite cannot read it.

    Whoever has a database with a write-ahead log open holds a shared lock, also while idle.
    Leaving that kind of log needs the exclusive one, and puts what the log has into the file.
    """
    with ExitStack() as held:
        only: sqlite3.Connection | None = None
        if file.exists():
            try:
                connection = held.enter_context(closing(_connected(file, timeout=0)))
                connection.execute("PRAGMA locking_mode=EXCLUSIVE").close()
                connection.execute("PRAGMA journal_mode=DELETE").close()
                connection.execute("BEGIN EXCLUSIVE")
                only = connection
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY:
                    raise _in_use(file) from None
                held.enter_context(_locked(file))  # damaged: ask for the same lock without SQLite
        yield only


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    if sys.platform == "win32":  # a file that is open cannot be replaced there
        yield
        return
    import fcntl

    handle = os.open(file, os.O_RDWR)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, SHARED_SIZE, SHARED_FIRST)
        yield
    except BlockingIOError:
        raise _in_use(file) from None
    finally:
        os.close(handle)


def _in_use(file: Path) -> StorageError:
    return StorageError(
        f"{file} is in use; stop the service and all other programs that have it open, then try "
        "again. Nothing was changed."
    )


def _kept(file: Path) -> Path | None:
    """Another name for the file that will be replaced; its log, if it is damaged, goes along."""
    if not file.exists():
        return None
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    before = file.with_name(f"{file.name}.before-restore-{stamp}")
    if before.exists():
        raise StorageError(f"{before} is there already; try again in a second.")
    with suppress(FileNotFoundError):
        os.rename(f"{file}-wal", f"{before}-wal")
    try:
        os.link(file, before)
    except OSError:  # such as a file system without links
        os.rename(file, before)
    return before


def _replace(new: Path, file: Path) -> None:
    """Put a new file in a place, in one step, without the log of the one before."""
    for suffix in ("-wal", "-shm", "-journal"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    os.replace(new, file)
    _sync(file.parent)


def _sync(path: Path) -> None:
    with suppress(OSError):  # not every system can do this with a folder
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
