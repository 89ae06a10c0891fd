"""What goes wrong in databases is told in words, without passwords, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from steadyarm.errors import InvalidInputError, StorageError
from steadyarm.storages import open_storage, storage_status
from steadyarm.storages.engine import Database
from steadyarm.storages.records import Event
from steadyarm.storages.storage import Storage
from tests.storages.bench import new_record
from tests.storages.databases import running_in


def test_passwords_are_not_shown() -> None:
    url = "postgresql://somebody:s%40cret@127.0.0.1:1/d"
    for call in (open_storage, storage_status):
        with pytest.raises(StorageError, match="check that the server runs") as caught:
            call(url)
        assert "somebody:***@" in str(caught.value)
        assert "s%40cret" not in str(caught.value)
        assert "s@cret" not in str(caught.value)
        assert caught.value.__cause__ is None
    assert "s%40cret" not in repr(Database(make_url(url).set(drivername="postgresql+psycopg")))


@pytest.mark.parametrize("call", [open_storage, storage_status])
def test_what_is_no_database(tmp_path: Path, call: Callable[[str], object]) -> None:
    path = tmp_path / "notes.db"
    path.write_text("not a database, but long enough to be looked at. " * 50)
    with pytest.raises(StorageError, match="not an SQLite database"):
        call(f"sqlite:///{path}")
    assert path.read_text().startswith("not a database")
    with pytest.raises(StorageError, match=f"the folder {tmp_path / 'no'} does not exist"):
        call(f"sqlite:///{tmp_path / 'no' / 'storage.db'}")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "storage.db"
    open_storage(f"sqlite:///{path}").close()
    storage = open_storage(f"sqlite:///file:{path}?mode=ro&uri=true")
    assert storage.summaries() == []
    with pytest.raises(StorageError, match="cannot be written; check the permissions"):
        storage.create(new_record("e", {"seed": 1}))
    storage.close()


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 'storage.db'}")
    connection = storage._database.engine.raw_connection()  # the only one so far
    (pages,) = connection.cursor().execute("PRAGMA page_count").fetchone()
    connection.cursor().execute(f"PRAGMA max_page_count={pages + 2}")
    connection.close()
    with pytest.raises(StorageError, match="disk is full"):
        storage.create(new_record("e", {"seed": 1, "long": "x" * 10**6}))
    assert storage.summaries() == []
    assert storage.create(new_record("e", {"seed": 1})).name == "e"
    storage.close()


def test_values_no_database_has(storage: Storage) -> None:
    key = running_in(storage, 10)
    with pytest.raises(InvalidInputError, match=r"cannot be stored|refuses a value"):
        storage.assign(key, ["fine", "\ud800"], now=0)
    assert storage.log(key) == []
    outcomes = storage.record(
        key, [Event(number, 1.0) for number in (2**63, 2**70, -1)], 0
    ).outcomes
    assert [outcome.status for outcome in outcomes] == ["unknown"] * 3


def test_sqlite_is_set_up_to_keep_what_it_acknowledged(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 'storage.db'}")

    def pragma(name: str) -> Any:
        return storage._database.read(lambda c: c.execute(text(f"PRAGMA {name}")).scalar())

    assert (pragma("journal_mode"), pragma("synchronous"), pragma("mmap_size")) == ("wal", 2, 0)
    assert pragma("busy_timeout") == 5_000
    storage.close()
