"""Every backend on fresh data, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from steadyarm.storages.base import Storage
from steadyarm.storages.checks import Open
from steadyarm.storages.memory import MemoryStorage

BACKENDS = ("memory", "sqlite", "postgresql")

_databases = count()


@pytest.fixture(params=BACKENDS)
def open_fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens a storage on the same fresh data, as often as it is called; all are closed at last."""
    opened: list[Storage] = []
    if request.param == "memory":
        memory = MemoryStorage()

        def open_one() -> Storage:
            return memory
    else:
        from steadyarm.storages import open_storage, upgrade_storage

        if request.param == "sqlite":
            url = f"sqlite:///{tmp_path / 'storage.db'}"
        else:
            url = _database(request.getfixturevalue("postgres"))
        upgrade_storage(url)

        def open_one() -> Storage:
            opened.append(open_storage(url))
            return opened[-1]

    yield open_one
    for storage in opened:
        storage.close()


def _database(server: str) -> str:
    """The URL of a new database on a server."""
    import psycopg
    from sqlalchemy.engine import make_url

    name = f"storage_{next(_databases)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = make_url(server).set(drivername="postgresql+psycopg", database=name)
    return url.render_as_string(hide_password=False)
