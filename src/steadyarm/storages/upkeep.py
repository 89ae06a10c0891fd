"""Maintenance of databases: the version of the tables, checks, copies, backups and old rows."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from sqlalchemy import (
    Connection,
    Table,
    and_,
    delete,
    exists,
    func,
    insert,
    inspect,
    select,
    text,
    tuple_,
)

from steadyarm.errors import InvalidInputError, MissingExtraError, StorageError, StorageVersionError
from steadyarm.storages import database_url
from steadyarm.storages.engine import BUSY, Database, file_of, hide_password
from steadyarm.storages.schema import (
    OWNED,
    PREFIX,
    REVISIONS,
    VERSION_TABLE,
    audit,
    create_tables,
    experiments,
    marks,
    metadata,
    refusals_of,
    segments,
    sessions,
    tallies,
    version_table,
)

# The version of the tables, which Alembic brings up to date


MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST = REVISIONS[-1]
TURN = 0x57EAD7A3  # PostgreSQL's advisory lock: one upgrade at a time
ALEMBIC = Lock()  # it keeps its state in a module
ROWS = 10_000  # that are copied or deleted at a time

State = Literal["current", "older", "newer", "empty"]


@dataclass(frozen=True)
class StorageStatus:
    """The version of a storage's tables.

    Attributes
    ----------
    url : without its password
    backend : "sqlite" or "postgresql"
    revision : the revision of the tables, None if there are none
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
    with closing(Database(parsed)) as database:
        backend = parsed.get_backend_name()
        if database.file is not None and not database.file.exists():
            return StorageStatus(database.shown, backend, None, NEWEST, "empty")
        revision, state = database.read(_version)
    damage = damage_of(database.file, quick=True) if thorough and database.file else None
    return StorageStatus(database.shown, backend, revision, NEWEST, state, damage)


def prepare(database: Database) -> None:
    """Create the tables if there are none; refuse those of another version."""
    database.use_wal()
    revision, state = database.read(_version)
    if state == "empty":
        revision, state = database.write(_create, seconds=inf)
    if state == "older":
        raise StorageVersionError(
            f"the tables in {database.shown} are of version {revision or 'unknown'}, this "
            f"SteadyArm works with {NEWEST}; make a backup, then run: steadyarm storage upgrade "
            f"--storage {database.shown}"
        )
    if state == "newer":
        raise _too_new(database, revision)


def upgrade_storage(url: str | None = None) -> tuple[str | None, str]:
    """Bring the tables at a URL up to date, in one transaction; the revisions before and after."""
    with closing(Database(database_url(url))) as database:
        database.use_wal()

        def work(connection: Connection) -> str | None:
            _wait(connection)
            revision, state = _version(connection)
            if state == "newer":
                raise _too_new(database, revision)
            migrate(connection, NEWEST)
            return revision

        return database.write(work, seconds=inf), NEWEST


def migrate(connection: Connection, revision: str) -> None:
    """Run the migrations up to a revision, in the connection's transaction."""
    try:
        from alembic.config import Config
        from alembic.runtime.environment import EnvironmentContext
        from alembic.script import ScriptDirectory
    except ImportError as error:
        raise MissingExtraError(
            f"making the tables of a storage needs {error.name}; install it with: "
            "pip install 'steadyarm[live]'"
        ) from None
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)

    def steps(current: Any, _: Any) -> Any:
        return scripts._upgrade_revs(revision, current)

    with ALEMBIC, EnvironmentContext(config, scripts, fn=steps) as environment:
        environment.configure(
            connection=connection, version_table=VERSION_TABLE, transactional_ddl=True
        )
        with environment.begin_transaction():
            environment.run_migrations()


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
    """Wait until no other process changes tables. SQLite has only one writer."""
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


def _too_new(database: Database, revision: str | None) -> StorageVersionError:
    return StorageVersionError(
        f"the tables in {database.shown} are of version {revision}, this SteadyArm knows versions "
        f"up to {NEWEST}; install a newer SteadyArm."
    )


# Faults


def damage_of(file: Path, quick: bool = False) -> str | None:
    """Describe damage of an SQLite file in a line; None if there is none. Reads the whole file.

    quick : do not compare indices with their tables, and stop at the first fault
    """
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=5)) as connection:
        try:
            statement = "PRAGMA quick_check(1)" if quick else "PRAGMA integrity_check(10)"
            lines = [str(line) for (line,) in connection.execute(statement)]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF in BUSY:
                raise StorageError(f"{file}: {error}.") from None
            lines = [str(error)]
    return None if lines == ["ok"] else " ".join("; ".join(lines).split())


def storage_faults(url: str | None = None) -> tuple[str, ...]:
    """Describe faults of the file and the tables at a URL, a line each; changes nothing.

    `steadyarm.live.lifecycle.check_storage` replays every experiment, too.
    """
    parsed = database_url(url)
    file = file_of(parsed)
    if file is not None and not file.exists():
        raise StorageError(f"{hide_password(parsed)}: there is no such file.")
    damage = None if file is None else damage_of(file)
    if damage:
        return (f"the file is damaged: {damage}",)

    with closing(Database(parsed)) as database:
        there = database.read(lambda c: inspect(c).get_table_names(), seconds=inf)
    return tuple(f"the table {name} is missing" for name in sorted({*metadata.tables} - {*there}))


def experiment_names(url: str | None = None) -> tuple[str, ...]:
    """Names of all experiments at a URL, oldest first, even of those that cannot be read."""
    every = select(experiments.c.name).order_by(experiments.c.key)
    with closing(Database(database_url(url))) as database:
        return tuple(database.read(lambda connection: list(connection.execute(every).scalars())))


def _name(table: Table) -> str:
    return table.name.removeprefix(PREFIX)


# Copies and backups


def copy_storage(source: str, target: str) -> dict[str, int]:
    """Copy all tables to another database, which must be empty; the number of rows by table.

    The copy is as of one moment of the source, and happens as a whole or not at all.
    """
    with (
        closing(Database(database_url(source))) as old,
        closing(Database(database_url(target))) as new,
    ):
        if old.file is not None and not old.file.exists():
            raise StorageError(f"{old.shown}: there is no such file to copy.")
        prepare(old)
        prepare(new)
        return old.read(
            lambda reading: new.write(lambda writing: _copy(reading, writing, new), inf), inf
        )


def _copy(reading: Connection, writing: Connection, new: Database) -> dict[str, int]:
    copied = dict[str, int]()
    for table in metadata.sorted_tables:
        if table is not marks and writing.execute(select(table).limit(1)).first() is not None:
            raise InvalidInputError(
                f"{new.shown} has {_name(table)} already; give an empty database."
            )
        if table is marks:  # such as a heartbeat
            writing.execute(delete(marks))
        rows = reading.execution_options(yield_per=ROWS).execute(select(table))
        for page in rows.mappings().partitions():
            writing.execute(insert(table), [dict(row) for row in page])
            copied[_name(table)] = copied.get(_name(table), 0) + len(page)
        column = table.autoincrement_column
        if column is not None and not new.sqlite:
            # Explicit numbers do not move the sequence.
            greatest = func.max(column)
            sequence = func.pg_get_serial_sequence(table.name, column.name)
            writing.execute(select(func.setval(sequence, greatest)).having(greatest.is_not(None)))
    return copied


def backup_storage(url: str | None, target: str | Path, *, force: bool = False) -> Path:
    """Copy the SQLite storage at a URL as it is at one moment, and check the copy.

    The storage can stay in use.

    force : replace an existing file, which must not be in use
    """
    parsed, target = database_url(url), Path(os.path.abspath(target))
    file = file_of(parsed)
    if file is None:
        address = hide_password(parsed.set(drivername="postgresql", password=None))
        raise InvalidInputError(
            "PostgreSQL has a tool of its own for backups: pg_dump --format custom --file "
            f"{target.name} --dbname {address}"
        )
    if not file.is_file():
        raise StorageError(f"{hide_password(parsed)}: there is no such file to back up.")
    if not target.parent.is_dir():
        raise InvalidInputError(f"there is no folder {target.parent}; make it first.")
    if target.exists() and (target.samefile(file) or not force):
        raise InvalidInputError(
            f"{target} is there already; choose another name, or replace it with --force (the "
            "storage itself cannot be replaced)."
        )
    new = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(new)) as copy:
            source.backup(copy)  # in one step, so as of one moment
            copy.execute("PRAGMA journal_mode=DELETE").close()  # one file, without a log
        if damage := damage_of(new):
            raise StorageError(f"{file} is damaged, no backup was made: {damage}.")
        for suffix in ("-wal", "-shm"):
            Path(f"{target}{suffix}").unlink(missing_ok=True)
        os.replace(new, target)
    except sqlite3.Error as error:
        raise StorageError(f"{file}: {error}.") from None
    finally:
        new.unlink(missing_ok=True)
    return target


# What nobody needs any more


@dataclass(frozen=True)
class PruneResult:
    """The rows that `Storage.prune` has removed, or would remove.

    Attributes
    ----------
    sessions : number of expired sessions
    experiments : names of deleted experiments
    """

    sessions: int
    experiments: tuple[str, ...]


def prune(database: Database, now: int, archived_before: int | None, dry: bool) -> PruneResult:
    """Remove old rows in many small transactions, so that traffic goes on between them."""
    old: dict[int, str] = {}
    if archived_before is not None:
        old = database.read(lambda c: _find_archived(c, archived_before))
    if dry:
        return PruneResult(0, tuple(old.values()))
    expired = delete(sessions).where(sessions.c.expires <= now)
    ended = database.write(lambda c: c.execute(expired).rowcount)
    if old:
        these = and_(experiments.c.key.in_(list(old)), experiments.c.state == "archived")
        database.write(lambda c: c.execute(delete(experiments).where(these)).close())
    unknown = ~exists().where(experiments.c.key == segments.c.key)
    gone = select(segments.c.key).where(unknown).distinct()
    for key in old.keys() | database.read(lambda c: set(c.execute(gone).scalars())):
        for table in OWNED:
            _delete(database, table, key)
        _forget(database, key)
    return PruneResult(ended, tuple(old.values()))


def _find_archived(connection: Connection, before: int) -> dict[int, str]:
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


def _forget(database: Database, key: int) -> None:
    """Delete what is kept of events that an experiment refused."""
    database.write(lambda c: c.execute(delete(marks).where(refusals_of(key))).close())


def _delete(database: Database, table: Table, key: int) -> None:
    """Delete an experiment's rows of a table, some at a time."""
    columns: tuple[Any, ...] = tuple(table.primary_key.columns)
    some = select(*columns).where(table.c.key == key).limit(ROWS)
    statement = delete(table).where(table.c.key == key, tuple_(*columns).in_(some))
    while database.write(lambda c: c.execute(statement).rowcount):
        pass
