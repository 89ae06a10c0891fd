"""What goes wrong in databases and URLs is told in words, without passwords."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from steadyarm.errors import InvalidInputError, MissingExtraError, StorageError
from steadyarm.storages import open_storage, storage_status
from steadyarm.storages.engine import Database
from steadyarm.storages.records import Event
from steadyarm.storages.storage import Storage
from tests.storages.bench import new_record
from tests.storages.databases import fresh_database, running_in


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


def test_a_full_disk_leaves_nothing_behind(on_sqlite: Storage) -> None:
    storage = on_sqlite
    connection = storage._database.engine.raw_connection()  # the only one so far
    (pages,) = connection.cursor().execute("PRAGMA page_count").fetchone()
    connection.cursor().execute(f"PRAGMA max_page_count={pages + 2}")
    connection.close()
    with pytest.raises(StorageError, match="disk is full"):
        storage.create(new_record("e", {"seed": 1, "long": "x" * 10**6}))
    assert storage.summaries() == []
    assert storage.create(new_record("e", {"seed": 1})).name == "e"


def test_values_no_database_has(storage: Storage) -> None:
    key = running_in(storage, 10)
    with pytest.raises(InvalidInputError, match=r"cannot be stored|refuses a value"):
        storage.assign(key, ["fine", "\ud800"], now=0)
    assert storage.log(key) == []
    outcomes = storage.record(
        key, [Event(number, 1.0) for number in (2**63, 2**70, -1)], 0
    ).outcomes
    assert [outcome.status for outcome in outcomes] == ["unknown"] * 3


def test_sqlite_is_set_up_to_keep_what_it_acknowledged(on_sqlite: Storage) -> None:
    def pragma(name: str) -> Any:
        return on_sqlite._database.read(lambda c: c.execute(text(f"PRAGMA {name}")).scalar())

    assert (pragma("journal_mode"), pragma("synchronous"), pragma("mmap_size")) == ("wal", 2, 0)
    assert pragma("busy_timeout") == 5_000


# Where storages are opened, and what has to be installed


def test_where_a_storage_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEADYARM_STORAGE", raising=False)
    open_storage().close()
    assert (tmp_path / "steadyarm.db").exists()
    monkeypatch.setenv("STEADYARM_STORAGE", "sqlite:///other.db")
    open_storage().close()
    assert (tmp_path / "other.db").exists()
    assert storage_status().url == "sqlite:///other.db"
    memory = open_storage("memory")
    assert memory.in_memory
    assert open_storage("memory://") is not memory
    assert open_storage(memory) is memory


def test_postgres_has_several_schemes(postgres: str) -> None:
    url = fresh_database(postgres)
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        storage = open_storage(url.replace("postgresql+psycopg", scheme))
        storage.check()
        storage.close()
    assert storage_status(url).backend == "postgresql"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("storage.db", "sqlite:///FILE"),
        ("", "expected sqlite"),
        ("mysql://u:secret@h/d", "'mysql' are not supported"),
        ("postgresql+psycopg2://u:secret@h/d", "'postgresql\\+psycopg2' are not supported"),
        ("postgresql://u:secret@h:port/d", "cannot be read"),
        ("sqlite://", "names a file"),
        ("sqlite:///:memory:", "give memory"),
        ("sqlite://storage.db", "three slashes"),
    ],
)
def test_other_urls_are_refused_without_showing_passwords(url: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)


def test_databases_are_imported_when_used() -> None:
    code = "import sys, steadyarm.storages; print('sqlalchemy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [
        ("sqlalchemy.engine", "sqlite:///x.db", "live"),
        ("psycopg", "postgresql://h/d", "postgres"),
    ],
)
def test_missing_extras_are_named(
    module: str, url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'steadyarm\[{extra}\]'"):
        open_storage(url)
