"""The version of a database's tables: looked up, and brought up to date with Alembic."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from math import inf
from pathlib import Path
from threading import Lock
from typing import Literal

from sqlalchemy import Connection, column, inspect, select, table, text
from sqlalchemy.engine import URL

from steadyarm.errors import MissingExtraError, StorageError, StorageVersionError
from steadyarm.storages.sql.engine import Database, shown
from steadyarm.storages.sql.schema import PREFIX, REVISIONS, VERSION_TABLE
from steadyarm.storages.sql.upkeep import whole

__all__ = ["StorageStatus", "migrate", "prepare", "status", "upgrade"]

MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST = REVISIONS[-1]
TURN = 0x57EAD7A3  # PostgreSQL's advisory lock: one upgrade at a time
ALEMBIC = Lock()  # keeps what it works on in a module of its own

version = table(VERSION_TABLE, column("version_num"))

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
