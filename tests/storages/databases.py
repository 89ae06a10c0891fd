"""Databases for tests of storages: empty ones, and an experiment to begin with."""

from __future__ import annotations

from itertools import count

import psycopg
from sqlalchemy.engine import make_url

from steadyarm.storages.storage import Storage
from tests.storages.bench import Bench

_databases = count()


def fresh_database(server: str) -> str:
    """The URL of a new database on a server of PostgreSQL."""
    name = f"storage_{next(_databases)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} STRATEGY FILE_COPY")  # the quickest
    url = make_url(server).set(drivername="postgresql+psycopg", database=name)
    return url.render_as_string(hide_password=False)


def running_in(storage: Storage, rounds: int, window: int | None = None) -> int:
    """The key of a running experiment with one open segment."""
    return Bench(lambda: storage).running(rounds, window=window)
