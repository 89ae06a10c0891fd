"""Real faults under a storage that is in use: nothing hangs, nothing is acknowledged and lost."""

from __future__ import annotations

import os
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
from sqlalchemy import create_engine, select
from sqlalchemy.engine import make_url

from steadyarm.errors import StorageError
from steadyarm.storages import engine as engine_module
from steadyarm.storages import open_storage
from steadyarm.storages import service as service_module
from steadyarm.storages.engine import HINTS
from steadyarm.storages.schema import marks
from steadyarm.storages.storage import Storage
from tests.disks import small_disk, unwritable
from tests.storages.databases import fresh_database, running_in


def ask(storage: Storage, key: int, unit: str) -> int:
    (given,) = storage.assign(key, [unit], now=0).assigned
    assert given is not None
    return given.number


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
    with closing(open_storage(fresh_database(postgres))) as storage:
        key = running_in(storage, 10)
        other = create_engine(storage._database.engine.url)
        with other.begin() as connection:
            connection.exec_driver_sql("LOCK TABLE steadyarm_segments")
            with pytest.raises(StorageError, match="has kept a lock for"):
                storage.assign(key, ["a"], now=0)
        assert ask(storage, key, "a") == 0
        other.dispose()


def wrong_with(storage: Storage, within: float = 3.0) -> str:
    """Why the storage is not ready; found out anew, and in time."""
    storage.heartbeat.beaten = -inf
    began = time.monotonic()
    with pytest.raises(StorageError) as caught:
        storage.check()
    assert time.monotonic() - began < within
    assert storage._database.shown not in caught.value.reason
    return caught.value.reason


def ready(storage: Storage) -> bool:
    storage.heartbeat.beaten = -inf
    storage.check()
    return True


def test_a_heartbeat_is_written_at_most_once_a_second(storage: Storage) -> None:
    beats = select(marks.c.value).where(marks.c.name == "heartbeat")

    def heartbeat() -> int:
        return storage._database.read(lambda c: int(c.execute(beats).scalar_one()))

    assert ready(storage)
    first = heartbeat()
    assert abs(first / 1e6 - time.time()) < 10
    storage.check()
    assert heartbeat() == first  # not yet again
    assert ready(storage)
    assert heartbeat() > first


def test_a_deleted_file_is_not_ready(on_sqlite: Storage, tmp_path: Path) -> None:
    storage, file = on_sqlite, tmp_path / "storage.db"
    storage.check()
    file.rename(file.with_name("aside.db"))
    assert wrong_with(storage) == "the file was deleted or moved"
    file.with_name("aside.db").rename(file)
    assert ready(storage)


def test_a_locked_file_is_not_ready(
    on_sqlite: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, file = on_sqlite, tmp_path / "storage.db"
    assert service_module.PATIENCE < 3.0
    monkeypatch.setattr(service_module, "PATIENCE", 0.2)
    storage.check()
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert "kept it locked" in wrong_with(storage, within=1.0)
    assert ready(storage)


def test_an_immutable_file_is_not_ready() -> None:
    with TemporaryDirectory() as folder:  # the usual one is hidden from other users
        os.chmod(folder, 0o755)
        file = Path(folder) / "storage.db"
        with closing(open_storage(f"sqlite:///{file}")) as storage:
            with unwritable(file):
                assert "it cannot be written" in wrong_with(storage)
            assert ready(storage)


def test_a_full_disk_is_not_ready(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 << 20) as disk:
        storage = open_storage(f"sqlite:///{disk.folder / 'storage.db'}")
        assert ready(storage)
        disk.fill()
        reason = wrong_with(storage)
        assert reason == "the disk is full" or (not disk.mounted and reason == HINTS[10])
        disk.free()
        assert ready(storage)
        storage.close()


def test_a_server_that_only_reads_is_not_ready(postgres: str, on_postgres: Storage) -> None:
    storage, name = on_postgres, on_postgres._database.engine.url.database
    storage.check()
    for value, then in (("on", "the server only reads"), ("off", None)):
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}")
        storage._database.engine.dispose()  # it counts for new connections
        assert then is None or then in wrong_with(storage)
    assert ready(storage)
