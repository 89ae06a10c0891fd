"""Where live experiments are kept: memory, SQLite, PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.storages.base import Storage

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from steadyarm.storages.sql.backup import Restored
    from steadyarm.storages.sql.upkeep import StorageStatus

__all__ = [
    "Storage",
    "backup_command",
    "backup_storage",
    "experiment_names",
    "open_storage",
    "restore_storage",
    "storage_faults",
    "storage_status",
    "upgrade_storage",
]

DEFAULT = "sqlite:///steadyarm.db"
VARIABLE = "STEADYARM_STORAGE"
FORMS = "sqlite:///FILE, postgresql+psycopg://USER:PASSWORD@HOST/DATABASE or memory"


def open_storage(url: str | Storage | None = None) -> Storage:
    """The storage at a URL; tables are made in an empty one, other versions of them are refused.

    url : sqlite:///FILE, postgresql+psycopg://USER:PASSWORD@HOST/DATABASE, or "memory" for one that
        lives as long as the process; None for the environment's STEADYARM_STORAGE or, without
        that, steadyarm.db in the current folder. A storage is returned as it is.
    """
    if isinstance(url, Storage):
        return url
    url = _given(url)
    if url in ("memory", "memory://"):
        from steadyarm.storages.memory import MemoryStorage

        return MemoryStorage()
    parsed = _parsed(url)
    from steadyarm.storages.sql.storage import SQLStorage

    return SQLStorage(parsed)


def upgrade_storage(url: str | None = None) -> tuple[str | None, str]:
    """Bring the tables at a URL up to date; their revisions before and after."""
    parsed = _parsed(_given(url))
    from steadyarm.storages.sql.upkeep import upgrade

    return upgrade(parsed)


def storage_status(url: str | None = None, *, thorough: bool = False) -> StorageStatus:
    """How the tables at a URL stand; changes nothing.

    thorough : also read a whole file of SQLite, to find damage
    """
    parsed = _parsed(_given(url))
    from steadyarm.storages.sql.upkeep import status

    return status(parsed, thorough)


def storage_faults(url: str | None = None) -> tuple[str, ...]:
    """What is wrong with the file and the tables at a URL, a line each; changes nothing.

    `steadyarm.live.lifecycle.check_storage` computes every experiment anew, too.
    """
    parsed = _parsed(_given(url))
    from steadyarm.storages.sql.backup import faults

    return faults(parsed)


def experiment_names(url: str | None = None) -> tuple[str, ...]:
    """Names of all experiments at a URL, oldest first, also of those that cannot be read."""
    parsed = _parsed(_given(url))
    from steadyarm.storages.sql.backup import names

    return names(parsed)


def backup_storage(url: str | None, target: str | Path, *, force: bool = False) -> Path:
    """Copy the SQLite storage at a URL, as of one moment and checked; others may go on using it.

    force : replace a file that is there
    """
    parsed = _parsed(_given(url))
    from steadyarm.storages.sql.backup import backup

    return backup(parsed, Path(target), force)


def restore_storage(url: str | None, backup: str | Path) -> Restored:
    """Put a backup in the place of the SQLite storage at a URL, which nobody may be using.

    What was there is kept beside it, under a name that says when. If it has had a token the
    service goes on to refuse requests without one; whoever was signed in has to do so again.
    """
    parsed = _parsed(_given(url))
    from steadyarm.storages.sql.backup import restore

    return restore(parsed, Path(backup))


def backup_command(url: str | None, file: str | Path, *, restore: bool = False) -> str | None:
    """The command line that backs PostgreSQL up, or restores it; None for SQLite."""
    parsed = _parsed(_given(url))
    from steadyarm.storages.sql.backup import command_of

    return command_of(parsed, Path(file), "pg_restore" if restore else "pg_dump")


def _given(url: str | None) -> str:
    return os.environ.get(VARIABLE) or DEFAULT if url is None else url


def _parsed(url: str) -> URL:
    """The URL of a database; errors show no more of it than what stands before the address."""
    if url in ("memory", "memory://"):
        raise InvalidInputError("a storage in memory has no tables; give the URL of a database.")
    try:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError as error:
        raise MissingExtraError(
            f"storages in databases need {error.name}; install it with: "
            "pip install 'steadyarm[live]'"
        ) from None
    scheme, found, rest = url.partition("://")
    if not found:
        hint = " a file is given as sqlite:///FILE;" if url.endswith((".db", ".sqlite")) else ""
        raise InvalidInputError(f"{url!r} is no URL of a storage;{hint} expected {FORMS}.")
    drivers = {
        "sqlite": "sqlite",
        "sqlite+pysqlite": "sqlite",
        "postgres": "postgresql+psycopg",
        "postgresql": "postgresql+psycopg",
        "postgresql+psycopg": "postgresql+psycopg",
    }
    if scheme not in drivers:
        raise InvalidInputError(f"storages of kind {scheme!r} are not supported; expected {FORMS}.")
    try:
        parsed = make_url(f"{drivers[scheme]}://{rest}")
    except (ArgumentError, ValueError):
        raise InvalidInputError(
            f"the URL that begins with {scheme}:// cannot be read; expected {FORMS}. Special "
            "characters in a password are written as %XX."
        ) from None
    if scheme.startswith("sqlite"):
        if parsed.host or not parsed.database or parsed.database == ":memory:":
            raise InvalidInputError(
                "the URL of an SQLite storage names a file: sqlite:///FILE with three slashes, "
                "four if the path begins with one; for a storage without a file give memory."
            )
        return parsed
    try:
        import psycopg  # noqa: F401  # only to see whether it is there
    except ImportError as error:
        raise MissingExtraError(
            f"storages in PostgreSQL need {error.name}; install it with: "
            "pip install 'steadyarm[postgres]'"
        ) from None
    return parsed
