"""Upkeep of whole databases, given their URL: versions, faults, backup and restore.

A backup of SQLite is SQLite's own: it shows one moment although others write meanwhile. PostgreSQL
has tools for this, which are named here and not replaced.
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
from threading import Lock
from typing import Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    exists,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.engine import URL

from steadyarm.errors import InvalidInputError, MissingExtraError, StorageError, StorageVersionError
from steadyarm.storages import database_url
from steadyarm.storages.records import POSITIONS
from steadyarm.storages.sql.engine import BUSY, DAMAGED, Database, check_folder, file_of, shown
from steadyarm.storages.sql.schema import (
    CLOSED,
    OWNED,
    PREFIX,
    REVISIONS,
    VERSION_TABLE,
    assignments,
    create_tables,
    events,
    experiments,
    marks,
    metadata,
    rewards,
    same_assignment,
    segments,
    series,
    sessions,
    tallies,
    tokens,
    version_table,
)

# The version of the tables, which Alembic brings up to date


MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST = REVISIONS[-1]
TURN = 0x57EAD7A3  # PostgreSQL's advisory lock: one upgrade at a time
ALEMBIC = Lock()  # it keeps its state in a module


State = Literal["current", "older", "newer", "empty"]


@dataclass(frozen=True)
class StorageStatus:
    """The version of a storage's tables.

    Attributes
    ----------
    url : without its password
    backend : "sqlite" or "postgresql"
    revision : of the tables, None if there are none
    newest : revision that this version of SteadyArm works with
    state : "current"; "older", upgrade it; "newer", upgrade SteadyArm; "empty", no tables yet
    damage : what is wrong with the file of an SQLite storage; None if nothing is, or if the file
        was not read
    """

    url: str
    backend: str
    revision: str | None
    newest: str
    state: State
    damage: str | None = None


def storage_status(url: str | None = None, *, thorough: bool = False) -> StorageStatus:
    """The version of the tables at a URL; changes nothing and makes no file.

    thorough : also read a whole file of SQLite, to find damage
    """
    parsed = database_url(url)
    shown_url, backend = shown(parsed), parsed.get_backend_name()
    if backend == "sqlite" and not Path(parsed.database or "").exists():
        check_folder(parsed)
        return StorageStatus(shown_url, backend, None, NEWEST, "empty")
    with closing(Database(parsed)) as database:
        revision, state = database.read(_version)
    damage = damage_of(database.file, quick=True) if thorough and database.file else None
    return StorageStatus(shown_url, backend, revision, NEWEST, state, damage)


def prepare(database: Database, new: bool = True) -> None:
    """Refuse tables of another version.

    new : make the tables if there are none; otherwise a database without tables is refused, too
    """
    database.use_wal()
    revision, state = database.read(_version)
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
        raise _too_new(database.shown, revision)


def upgrade_storage(url: str | None = None) -> tuple[str | None, str]:
    """Bring the tables at a URL up to date, in one transaction; the revisions before and after."""
    with closing(Database(database_url(url))) as database:
        database.use_wal()

        def work(connection: Connection) -> str | None:
            _wait(connection)
            revision, state = _version(connection)
            if state == "newer":
                raise _too_new(database.shown, revision)
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
    revision, state = _version(connection)  # another process may have been faster
    if state == "empty":
        create_tables(connection)
        version_table.create(connection)
        connection.execute(insert(version_table), {"version_num": NEWEST})
        return NEWEST, "current"
    return revision, state


def _wait(connection: Connection) -> None:
    """Wait until nobody else changes tables; SQLite has only one writer."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": TURN})


def _version(connection: Connection) -> tuple[str | None, State]:
    names = inspect(connection).get_table_names()
    if VERSION_TABLE in names:
        revision = connection.execute(select(version_table.c.version_num)).scalar()
        if revision == NEWEST:
            return revision, "current"
        return revision, "older" if revision in (None, *REVISIONS) else "newer"
    return None, "older" if any(name.startswith(PREFIX) for name in names) else "empty"


def _too_new(where: str | Path, revision: str | None) -> StorageVersionError:
    return StorageVersionError(
        f"the tables in {where} are of version {revision}, this SteadyArm knows versions up to "
        f"{NEWEST}; install a newer SteadyArm."
    )


# Faults


def damage_of(file: Path, quick: bool = False) -> str | None:
    """What is wrong with an SQLite file, in a line; None if nothing is. Reads the whole file.

    quick : do not compare indices with their tables, and stop at the first fault
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


def _strays(connection: Connection) -> Iterator[str]:
    """Rows without the experiment, assignment or segment they belong to, a line for each kind."""
    for table in OWNED:
        unknown = ~exists().where(experiments.c.key == table.c.key)
        for key, count in _counted(connection, table, unknown):
            yield f"{_name(table)}: {count:,} rows of the experiment with key {key}, which is gone"
    for table in (rewards, events):
        assigned = exists(assignments.c.key).where(same_assignment(assignments, table))
        for key, count in _counted(connection, table, ~assigned):
            yield (
                f"{_name(table)}: {count:,} rows of the experiment with key {key} have no "
                "assignment"
            )
    for table, segment in (
        (assignments, assignments.c.number // POSITIONS),
        (tallies, tallies.c.segment),
        (series, series.c.segment),
    ):
        there = exists().where(segments.c.key == table.c.key, segments.c.index == segment)
        known = exists().where(experiments.c.key == table.c.key)
        for key, count in _counted(connection, table, and_(known, ~there)):
            yield f"{_name(table)}: {count:,} rows of the experiment with key {key} have no segment"


def _counted(
    connection: Connection, table: Table, condition: ColumnElement[bool]
) -> list[tuple[int, int]]:
    """Keys of experiments, and the number of their rows that meet a condition."""
    counts = select(table.c.key, func.count()).where(condition).group_by(table.c.key)
    return [(row[0], row[1]) for row in connection.execute(counts.order_by(table.c.key))]


def _name(table: Table) -> str:
    return table.name.removeprefix(PREFIX)


# Backup and restore


# The bytes that SQLite locks while a file is open (https://sqlite.org/fileformat2.html).
SHARED_FIRST, SHARED_SIZE = 0x40000002, 510


@dataclass(frozen=True)
class Restored:
    """The result of `restore_storage`.

    Attributes
    ----------
    file : the storage, which now has the data of the backup
    before : the file that was there, under a new name; None if there was none
    revision : of the tables; older than `newest` if they must be upgraded
    closed : whether the service refuses requests without a token, because the backup or the file
        before has had one; a file that cannot be read counts as closed
    tokens : names and scopes of the tokens that are valid now
    returned : names of those tokens that were not valid before the restore
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
    """Who may use a storage.

    closed : when it had its first token; None if it has had none
    tokens : name, scope and hash of each, oldest first
    known : False if it cannot be read
    """

    closed: int | None = None
    tokens: tuple[tuple[str, str, str], ...] = ()
    known: bool = True


def storage_faults(url: str | None = None) -> tuple[str, ...]:
    """What is wrong with the file and the tables at a URL, a line each; changes nothing.

    `steadyarm.live.lifecycle.check_storage` replays every experiment, too.
    """
    parsed = database_url(url)
    file = file_of(parsed)
    if file is not None:
        with _translated(file):
            damage = damage_of(file)
        if damage:
            return (f"the file is damaged: {damage}",)

    def work(connection: Connection) -> list[str]:
        there = inspect(connection).get_table_names()
        if missing := sorted(set(metadata.tables) - set(there)):
            return [f"the table {name} is missing" for name in missing]
        return list(_strays(connection))

    with closing(Database(parsed)) as database:
        return tuple(database.read(work, seconds=inf))


def experiment_names(url: str | None = None) -> tuple[str, ...]:
    """Names of all experiments at a URL, oldest first, even of those that cannot be read."""
    every = select(experiments.c.name).order_by(experiments.c.key)
    with closing(Database(database_url(url))) as database:
        return tuple(database.read(lambda connection: list(connection.execute(every).scalars())))


def backup_command(url: str | None, file: str | Path, *, restore: bool = False) -> str | None:
    """The command line that backs PostgreSQL up, or restores it; None for SQLite.

    Examples
    --------
    >>> backup_command("postgresql+psycopg://me:secret@host/tests", "tests.dump")
    'pg_dump --format custom --file tests.dump --dbname postgresql://me@host/tests'
    """
    parsed = database_url(url)
    if parsed.get_backend_name() == "sqlite":
        return None
    secrets = [name for name in parsed.query if "password" in name.lower()]
    named = parsed.difference_update_query(secrets)._replace(drivername="postgresql", password=None)
    address = named.render_as_string(hide_password=False)
    if not restore:
        made = ["--format", "custom", "--file", str(file)]
        return shlex.join(["pg_dump", *made, "--dbname", address])
    options = ["--clean", "--if-exists", "--exit-on-error", "--single-transaction"]
    return shlex.join(["pg_restore", *options, "--dbname", address, str(file)])


def backup_storage(url: str | None, target: str | Path, *, force: bool = False) -> Path:
    """Copy the SQLite storage at a URL as it is at one moment, and check the copy.

    Others may go on using the storage.

    force : replace an existing file, unless it is in use
    """
    file = _file(url, target)
    target = Path(os.path.abspath(target))
    if not file.is_file():
        raise StorageError(f"{shown(database_url(url))}: there is no such file to back up.")
    _check_other(file, target)
    if target.exists() and not force:
        raise InvalidInputError(
            f"{target} is there already; choose another name, or replace it with --force."
        )
    with _copied(file, target) as new, _alone(target):
        _replace(new, target)
    return target


def restore_storage(url: str | None, backup: str | Path) -> Restored:
    """Replace the SQLite storage at a URL, which nobody may be using, by a backup.

    The file that was there is kept beside it, under a name that says when. If the storage has had a
    token the service still refuses requests without one. All sessions end.
    """
    file = _file(url, backup, restore=True)
    source = Path(os.path.abspath(backup))
    if not source.is_file():
        raise InvalidInputError(f"there is no backup {source}; give the file that backup wrote.")
    _check_other(file, source)
    with _copied(source, file) as new:
        revision = _revision(new, source)
        with _alone(file) as old:
            there = _Admitted(known=not file.exists()) if old is None else _admitted(old)
            closed = round(time.time() * 1e6) if not there.known else there.closed
            with _translated(new):
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
    """End all sessions in a copy, and mark it as closed if the file it replaces was."""
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


def _file(url: str | None, other: str | Path, restore: bool = False) -> Path:
    file = file_of(database_url(url))
    if file is None:
        raise InvalidInputError(
            "PostgreSQL has tools of its own for this: "
            f"{backup_command(url, other, restore=restore)}"
        )
    return file


def _check_other(file: Path, other: Path) -> None:
    if not other.parent.is_dir() or not file.parent.is_dir():
        folder = other.parent if file.parent.is_dir() else file.parent
        raise InvalidInputError(f"there is no folder {folder}; make it first.")
    if other == file or (file.exists() and other.exists() and file.samefile(other)):
        raise InvalidInputError(f"{other} is the storage itself; give another file.")


@contextmanager
def _translated(file: Path) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"{file}: {error}.") from None


def _connected(file: Path, timeout: float = 5.0) -> sqlite3.Connection:
    address = f"{file.as_uri()}?mode=rw"  # makes no file
    return sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None)


@contextmanager
def _copied(file: Path, target: Path) -> Iterator[Path]:
    """A checked copy of a database, beside its target; removed at the end if it is still there."""
    new = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with _translated(file):
            with closing(_connected(file)) as old, closing(sqlite3.connect(new)) as copy:
                old.backup(copy)  # in one step, so as of one moment
                copy.execute("PRAGMA journal_mode=DELETE").close()  # one file, without a log
            damage = damage_of(new)
        if damage:
            raise StorageError(f"{file} is damaged, nothing was changed: {damage}.")
        with suppress(OSError):  # the user who restores need not be the one who uses it
            there = target.stat() if target.exists() else file.stat()
            os.chmod(new, there.st_mode & 0o777)
            os.chown(new, there.st_uid, there.st_gid)
        _sync(new)
        yield new
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            Path(f"{new}{suffix}").unlink(missing_ok=True)


def _revision(file: Path, source: Path) -> str:
    """The version of the tables; refused if this SteadyArm cannot use it."""
    with closing(_connected(file)) as connection:
        try:
            (found,) = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
        except (sqlite3.Error, TypeError):
            raise InvalidInputError(
                f"{source} has no tables of SteadyArm; give a file that steadyarm storage backup "
                "wrote."
            ) from None
    if found not in REVISIONS:
        raise _too_new(source, found)
    return str(found)


@contextmanager
def _alone(file: Path) -> Iterator[sqlite3.Connection | None]:
    """Lock a database for nobody else; StorageError if somebody has it open.

    Gives the connection that holds the lock; None if there is no file, or SQLite cannot read it.

    Everybody who has a database with a write-ahead log open holds a shared lock, even while idle.
    Leaving that kind of log needs the exclusive lock, and writes the log into the file.
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
                held.enter_context(_locked(file))  # damaged: take the same lock without SQLite
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
    """Keep the file that will be replaced, and its log if it is damaged, under another name."""
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
    """Replace a file in one step, and remove the log of the old one."""
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
