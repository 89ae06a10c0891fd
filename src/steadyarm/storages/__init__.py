"""Storages of live experiments: SQLite, in a file or in memory, and PostgreSQL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from steadyarm.errors import InvalidInputError, MissingExtraError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from steadyarm.storages.storage import Storage
    from steadyarm.storages.upkeep import (
        backup_storage,
        copy_storage,
        experiment_names,
        storage_faults,
        storage_status,
        upgrade_storage,
    )

__all__ = [
    "Storage",
    "backup_storage",
    "copy_storage",
    "database_url",
    "experiment_names",
    "open_storage",
    "storage_faults",
    "storage_status",
    "upgrade_storage",
]

DEFAULT = "sqlite:///steadyarm.db"
VARIABLE = "STEADYARM_STORAGE"
FORMS = "sqlite:///FILE, postgresql+psycopg://USER:PASSWORD@HOST/DATABASE or memory"
DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


def __getattr__(name: str) -> Any:
    """Load what works on databases only when it is used, because SQLAlchemy is an extra."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _need_sqlalchemy()
    from steadyarm.storages import storage, upkeep

    return storage.Storage if name == "Storage" else getattr(upkeep, name)


def open_storage(url: str | Storage | None = None) -> Storage:
    """The storage at a URL; an empty database gets its tables, other versions are refused.

    url : sqlite:///FILE, postgresql+psycopg://USER:PASSWORD@HOST/DATABASE, or "memory" for a
        storage that lives as long as the process; None for the environment variable
        STEADYARM_STORAGE or, without it, steadyarm.db in the current folder. A storage is returned
        unchanged.
    """
    _need_sqlalchemy()
    from steadyarm.storages.engine import MEMORY
    from steadyarm.storages.storage import Storage

    if isinstance(url, Storage):
        return url
    url = _default_url(url)
    return Storage(MEMORY if url in ("memory", "memory://") else database_url(url))


def _default_url(url: str | None) -> str:
    return os.environ.get(VARIABLE) or DEFAULT if url is None else url


def _need_sqlalchemy() -> None:
    try:
        import sqlalchemy.engine  # noqa: F401  # only to see whether it is installed
    except ImportError as error:
        raise MissingExtraError(
            f"storages in databases need {error.name}; install it with: "
            "pip install 'steadyarm[live]'"
        ) from None


def database_url(url: str | None = None) -> URL:
    """The database at the URL of a storage; errors show no more of a URL than its scheme.

    url : as in `open_storage`, but not in memory
    """
    url = _default_url(url)
    if url in ("memory", "memory://"):
        raise InvalidInputError("a storage in memory has no tables; give the URL of a database.")
    _need_sqlalchemy()
    scheme, found, rest = url.partition("://")
    if not found:
        hint = " a file is given as sqlite:///FILE;" if url.endswith((".db", ".sqlite")) else ""
        raise InvalidInputError(f"{url!r} is no URL of a storage;{hint} expected {FORMS}.")
    if scheme in ("http", "https"):
        raise InvalidInputError(
            "this needs the database itself, and the address of a service was given; do it where "
            f"the database can be reached, with its URL: {FORMS}."
        )
    if scheme not in DRIVERS:
        raise InvalidInputError(f"storages of kind {scheme!r} are not supported; expected {FORMS}.")
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(f"{DRIVERS[scheme]}://{rest}")
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
        import psycopg  # noqa: F401  # only to see whether it is installed
    except ImportError as error:
        raise MissingExtraError(
            f"storages in PostgreSQL need {error.name}; install it with: "
            "pip install 'steadyarm[postgres]'"
        ) from None
    return parsed
