"""Real faults under a storage that is in use: nothing hangs, nothing is acknowledged and lost."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import psutil
import psycopg
import pytest
from sqlalchemy import Connection, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from steadyarm.errors import StorageError
from steadyarm.storages import open_storage
from steadyarm.storages.sql import engine as engine_module
from steadyarm.storages.sql import storage as storage_module
from steadyarm.storages.sql.engine import HINTS
from steadyarm.storages.sql.schema import marks
from steadyarm.storages.sql.storage import SQLStorage
from steadyarm.testing.storages.bench import new_record
from tests.disks import small_disk, unwritable
from tests.storages.databases import fresh_database, running_in


def ask(storage: SQLStorage, key: int, unit: str) -> int:
    (given,) = storage.assign(key, [unit], now=0).assigned
    assert given is not None
    return given.number


# A frozen server


@contextmanager
def frozen(server: str) -> Iterator[None]:
    """Stop all processes of a PostgreSQL server: the kernel still takes connections for them."""
    folder = Path(str(make_url(server).query["host"]))
    first = psutil.Process(int((folder / "postmaster.pid").read_text().split()[0]))
    stopped = [first, *first.children(recursive=True)]
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(stopped):
            process.send_signal(signal.SIGCONT)


def test_calls_end_while_the_server_is_frozen(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = engine_module.LOCK, engine_module.STATEMENT, engine_module.CALL
    assert limits == (5.0, 8.0, 9.0)  # all under the deadline of a request
    for name in ("LOCK", "STATEMENT", "CALL"):
        monkeypatch.setattr(engine_module, name, 1.0)
    storage = open_storage(fresh_database(postgres))
    assert isinstance(storage, SQLStorage)
    key = running_in(storage, 10)
    took: list[float] = []

    def call() -> None:
        began = time.monotonic()
        with pytest.raises(StorageError, match="check that the server runs"):
            storage.assign(key, ["a"], now=0)
        took.append(time.monotonic() - began)

    with frozen(postgres):  # one call has the open connection, others need another
        threads = [Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert wrong_with(storage, within=3.5) == "the server does not answer"
        for thread in threads:
            thread.join()
    assert len(took) == 2
    assert max(took) < 3  # a new connection is waited for at least two seconds
    assert ask(storage, key, "a") == 0
    assert ready(storage)
    storage.close()


def test_a_lock_that_is_kept_ends_a_call_on_the_server(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "LOCK", 0.1)
    url = fresh_database(postgres)
    storage, other = open_storage(url), open_storage(url)
    assert isinstance(storage, SQLStorage)
    assert isinstance(other, SQLStorage)
    key = running_in(storage, 10)
    with other._database.engine.begin() as connection:
        connection.exec_driver_sql("LOCK TABLE steadyarm_segments")
        with pytest.raises(StorageError, match="has kept a lock for"):
            storage.assign(key, ["a"], now=0)
    assert ask(storage, key, "a") == 0
    storage.close()
    other.close()


# A file that is deleted or replaced


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "storage.db"


@pytest.fixture
def storage(file: Path) -> Iterator[SQLStorage]:
    opened = open_storage(f"sqlite:///{file}")
    assert isinstance(opened, SQLStorage)
    yield opened
    opened.close()


def test_nothing_is_acknowledged_into_a_deleted_file(storage: SQLStorage, file: Path) -> None:
    key = running_in(storage, 10)
    assert ask(storage, key, "a") == 0
    file.rename(file.with_name("aside.db"))
    for call in (lambda: ask(storage, key, "b"), storage.summaries, storage.check):
        with pytest.raises(StorageError, match="was deleted or moved; nothing was stored"):
            call()
    assert not file.exists()  # nor is an empty one made
    file.with_name("aside.db").rename(file)
    assert [ask(storage, key, unit) for unit in "ab"] == [0, 1]


def test_a_file_deleted_during_a_transaction_is_noticed(storage: SQLStorage, file: Path) -> None:
    def work(connection: Connection) -> None:
        connection.exec_driver_sql("UPDATE steadyarm_version SET version_num = '1'")
        file.unlink()

    with pytest.raises(StorageError, match="while it was written to; nothing was stored"):
        storage._database.write(work)


def copied(file: Path, to: Path) -> None:
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


def test_a_backup_in_the_place_of_a_deleted_file_is_taken_up(
    storage: SQLStorage, file: Path, tmp_path: Path
) -> None:
    key = running_in(storage, 10)
    copied(file, tmp_path / "backup.db")
    ask(storage, key, "a")
    file.unlink()
    shutil.copy(tmp_path / "backup.db", file)
    with pytest.raises(StorageError, match="the -wal of the file before is still beside it"):
        storage.summaries()
    os.unlink(f"{file}-wal")
    os.unlink(f"{file}-shm")
    assert storage.log(key) == []  # it came after the backup
    assert ask(storage, key, "b") == 0


@pytest.mark.parametrize(
    ("made", "message"),
    [("", "one without tables"), ("other", "other experiments than those in use")],
)
def test_a_file_that_is_not_ours_is_not_taken_up(
    storage: SQLStorage, file: Path, tmp_path: Path, made: str, message: str
) -> None:
    key = running_in(storage, 10)
    ask(storage, key, "a")
    new = tmp_path / "new.db"
    if made:
        other = open_storage(f"sqlite:///{new}")
        other.create(new_record("e", {"seed": 7, "sticky": "unit"}, tag="another tag"))
        other.close()
    else:
        sqlite3.connect(new).close()
    os.unlink(f"{file}-wal")
    new.rename(file)
    for _ in range(2):
        with pytest.raises(StorageError, match=message):
            ask(storage, key, "b")


# The heartbeat: `check` proves a durable write


def heartbeat_of(storage: SQLStorage) -> tuple[int, str | None]:
    def read(connection: Connection) -> tuple[int, str | None]:
        row = connection.execute(select(marks).where(marks.c.name == "heartbeat")).one()
        return row.value, row.note

    return storage._database.read(read)


def wrong_with(storage: SQLStorage, within: float = 3.0) -> str:
    """Why the storage is not ready; found out anew, and in time."""
    storage._heartbeat._beaten = -inf
    began = time.monotonic()
    with pytest.raises(StorageError) as caught:
        storage.check()
    assert time.monotonic() - began < within
    assert storage._database.shown not in caught.value.reason
    return caught.value.reason


def ready(storage: SQLStorage) -> bool:
    storage._heartbeat._beaten = storage._database.written = -inf
    storage.check()
    return True


def test_a_heartbeat_is_written_at_most_once_a_second(url: str) -> None:
    storage = open_storage(url)
    assert isinstance(storage, SQLStorage)
    assert ready(storage)
    first, note = heartbeat_of(storage)
    assert abs(first / 1e6 - time.time()) < 10
    assert note is None
    storage._database.write(lambda c: storage_module.beat(c, 5, "a clock"))
    storage.check()
    assert heartbeat_of(storage) == (5, "a clock")  # not yet again
    assert ready(storage)
    second, note = heartbeat_of(storage)
    assert second >= first
    assert note == "a clock"
    storage.close()


def test_a_deleted_file_is_not_ready(storage: SQLStorage, file: Path) -> None:
    storage.check()
    file.rename(file.with_name("aside.db"))
    assert wrong_with(storage) == "the file was deleted or moved"
    file.with_name("aside.db").rename(file)
    assert ready(storage)


def test_a_locked_file_is_not_ready(
    storage: SQLStorage, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert storage_module.PATIENCE < 3.0
    monkeypatch.setattr(storage_module, "PATIENCE", 0.2)
    storage.check()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        storage._database.written = -inf
        assert "kept it locked" in wrong_with(storage, within=1.0)
    assert ready(storage)


def test_writers_are_heartbeat_enough(storage: SQLStorage, file: Path) -> None:
    key = running_in(storage, 10)
    ask(storage, key, "a")
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # a load that leaves no gap
        storage.check()


def test_a_damaged_file_is_not_ready(storage: SQLStorage, file: Path) -> None:
    key = running_in(storage, 100)
    storage.assign(key, [f"unit {i}" for i in range(100)], now=0)
    assert ready(storage)
    storage.close()  # all of it is in the file now
    whole = file.read_bytes()
    half = len(whole) // 2
    file.write_bytes(whole[:half] + b"\x7f" * 8192 + whole[half + 8192 :])
    storage._heartbeat._next = -inf
    assert "damaged" in wrong_with(storage)
    assert "damaged" in wrong_with(storage)  # known, although it is not read again
    storage.close()
    file.write_bytes(whole)
    storage._heartbeat._next = -inf
    assert ready(storage)


def test_damage_that_somebody_met_is_not_ready(storage: SQLStorage) -> None:
    assert ready(storage)
    error = sqlite3.DatabaseError("malformed")
    error.sqlite_errorcode = 11
    storage._database._translated(DBAPIError("SELECT", {}, error))
    assert storage._database.damaged > storage._heartbeat._read
    assert ready(storage)  # the whole file was read again, and is in order


def test_an_immutable_file_is_not_ready() -> None:
    with TemporaryDirectory() as folder:  # the usual one is hidden from other users
        os.chmod(folder, 0o755)
        file = Path(folder) / "storage.db"
        with closing(open_storage(f"sqlite:///{file}")) as storage:
            assert isinstance(storage, SQLStorage)
            with unwritable(file):
                assert "it cannot be written" in wrong_with(storage)
            assert ready(storage)


def test_a_full_disk_is_not_ready(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 << 20) as disk:
        storage = open_storage(f"sqlite:///{disk.folder / 'storage.db'}")
        assert isinstance(storage, SQLStorage)
        assert ready(storage)
        disk.fill()
        storage._database.written = -inf
        reason = wrong_with(storage)
        assert reason == "the disk is full" or (not disk.mounted and reason == HINTS[10])
        disk.free()
        assert ready(storage)
        storage.close()


def test_a_file_that_may_not_grow_is_not_ready(storage: SQLStorage, file: Path) -> None:
    assert ready(storage)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat(f"{file}-wal").st_size, before[1]))
    try:
        storage._database.written = -inf
        assert wrong_with(storage) in ("the disk is full", HINTS[10])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ready(storage)


def test_a_server_that_only_reads_is_not_ready(postgres: str) -> None:
    url = fresh_database(postgres)
    storage = open_storage(url)
    assert isinstance(storage, SQLStorage)
    storage.check()
    name = make_url(url).database
    for value, then in (("on", "the server only reads"), ("off", None)):
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}")
        storage._database.engine.dispose()  # it counts for new connections
        assert then is None or then in wrong_with(storage)
    assert ready(storage)
    storage.close()
