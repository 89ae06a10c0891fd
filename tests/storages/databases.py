"""Databases for tests of storages: empty ones, and an experiment to begin with."""

from __future__ import annotations

from itertools import count

import numpy as np
import psycopg
from sqlalchemy.engine import make_url

from steadyarm.segments import Segment
from steadyarm.storages.records import Decision, SegmentRecord
from steadyarm.storages.storage import Storage
from tests.storages.bench import new_record, windows

_databases = count()


def fresh_database(server: str) -> str:
    """The URL of a new database on a server of PostgreSQL."""
    name = f"storage_{next(_databases)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} STRATEGY FILE_COPY")  # the quickest
    url = make_url(server).set(drivername="postgresql+psycopg", database=name)
    return url.render_as_string(hide_password=False)


def running_in(storage: Storage, rounds: int, window: int | None = None) -> int:
    """The key of a running experiment of two arms with one open segment."""
    config = {"seed": 7, "arms": ["a", "b"], "sticky": "unit"} | windows(window)
    key = storage.create(new_record("e", config, state="running")).key
    segment = Segment(np.array([[0.5, 0.5]]), np.array([rounds]))
    opened = SegmentRecord(0, segment, False, False, 0, 0)
    assert storage.decide(key, 0, Decision({}, opened=opened), 0)
    return key
