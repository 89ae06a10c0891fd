"""Every backend on fresh data, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from steadyarm.storages import open_storage
from steadyarm.storages.storage import Storage
from tests.storages.bench import Bench, Open
from tests.storages.databases import fresh_database


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'storage.db'}"
    return fresh_database(request.getfixturevalue("postgres"))


@pytest.fixture
def open_fresh(url: str) -> Iterator[Open]:
    """Opens a storage on the same fresh data, as often as it is called; all are closed at last."""
    opened: list[Storage] = []

    def open_one() -> Storage:
        opened.append(open_storage(url))
        return opened[-1]

    yield open_one
    for storage in opened:
        storage.close()


@pytest.fixture
def bench(open_fresh: Open) -> Bench:
    """A storage with steps that several tests take."""
    return Bench(open_fresh)


@pytest.fixture
def storage(open_fresh: Open) -> Storage:
    """On an empty database."""
    return open_fresh()


@pytest.fixture
def on_postgres(postgres: str) -> Iterator[Storage]:
    with closing(open_storage(fresh_database(postgres))) as opened:
        yield opened


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Storage]:
    """In the file storage.db of the folder."""
    with closing(open_storage(f"sqlite:///{tmp_path / 'storage.db'}")) as opened:
        yield opened
