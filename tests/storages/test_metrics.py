"""Metrics in storages, beyond the contract: any order, crashes, processes, and what is read."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, delete, insert

from steadyarm.storages import open_storage, storage_faults, upgrade_storage
from steadyarm.storages.base import Storage
from steadyarm.storages.records import (
    Measured,
)
from steadyarm.storages.series import Rule
from steadyarm.storages.sql import rewards as rewards_module
from steadyarm.storages.sql.base import SERIES
from steadyarm.storages.sql.engine import Statement
from steadyarm.storages.sql.schema import assignments, events, series
from steadyarm.storages.sql.storage import SQLStorage
from steadyarm.testing.storages.bench import NOW, Bench
from steadyarm.testing.storages.metrics import ALL, PRODUCTS, SPENT, counted, declared

ORDERS = {"name": "orders", "role": "primary", "several": "sum"}


def bench(storage: Storage) -> Bench:
    return Bench(lambda: storage)


# Any order and repetition

VALUES = st.floats(-1e6, 1e6, allow_nan=False) | st.sampled_from([1e300, -1e300, 1e-300, 1 / 3])
EVENTS = st.lists(
    st.builds(
        Measured,
        target=st.sampled_from(["a", "b"]),
        metric=st.sampled_from(["orders", "spent", "speed", "seen"]),
        value=VALUES,
        at=st.integers(NOW, NOW + 3),
        event=st.sampled_from("xyz"),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda event: (event.target, event.metric, event.event),
)


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Storage]]:
    file = tmp_path_factory.mktemp("metrics") / "storage.db"
    storages = open_storage("memory"), open_storage(f"sqlite:///{file}")
    yield storages
    for storage in storages:
        storage.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=EVENTS, data=st.data())
def test_sums_depend_on_no_order(
    events: list[Measured], data: st.DataObject, databases: Sequence[Storage]
) -> None:
    orders = [events, data.draw(st.permutations(events * 2)), sorted(events, key=repr)]
    found = []
    for storage in databases:
        for order in orders:
            name = f"e{len(storage.summaries())}"
            products = [("orders", "seen"), *PRODUCTS]
            key = declared(bench(storage), ORDERS, *ALL, products=products, name=name)
            storage.assign(key, ["a", "b"], now=NOW)
            size = data.draw(st.integers(1, len(order)))
            for start in range(0, len(order), size):
                storage.measure(key, order[start : start + size], NOW + 3)
            tally = storage.snapshot(key).segments[0][1]
            found.append((storage.series(key), storage.log(key), storage.days(key), tally))
    counted(bench(databases[0]), key)
    assert all(each == found[0] for each in found)


def test_a_sum_that_is_too_large_counts_as_the_largest_number() -> None:
    rule = Rule("spent", "sum")
    (one, two) = (Measured("a", "spent", 1.7e308, NOW, event) for event in "xy")
    storage = open_storage("memory")
    key = declared(bench(storage), SPENT | {"cap": None})
    storage.assign(key, ["a"], now=NOW)
    storage.measure(key, [one, two], NOW)
    assert rule.value(storage.log(key)[0].events) == np.finfo(float).max
    counted_rows = storage.series(key)
    assert sum(counted_rows[0].sums) == Fraction(np.finfo(float).max)


# Processes and crashes


def _all_events() -> list[Measured]:
    return [
        Measured(f"u{unit}", metric, 0.1 * (i + 1), NOW + i, f"e{i}")
        for unit in range(6)
        for metric in ("orders", "spent", "seen")
        for i in range(5)
    ]


def _prepared(storage: Storage) -> int:
    key = declared(bench(storage), ORDERS, *ALL, products=[("orders", "spent")])
    storage.assign(key, [f"u{i}" for i in range(6)], now=NOW)
    return key


def _send(url: str, i: int, breaks: int | None) -> None:
    """Send all events; die in the middle of a transaction when so many have been sent."""
    storage, sent = open_storage(url), 0
    key = storage.find("e").key
    given = _all_events()
    if breaks is not None:
        add = rewards_module.add

        def die(*args: Any, **named: Any) -> None:
            add(*args, **named)
            if sent >= breaks:
                os._exit(7)

        rewards_module.add = die
    for part in np.array_split(np.random.default_rng(i).permutation(len(given)), 15):
        storage.measure(key, [given[j] for j in part], NOW + 9)
        sent += len(part)
    storage.close()


def test_events_count_once_although_processes_race_and_die(url: str) -> None:
    upgrade_storage(url)
    with closing(open_storage(url)) as storage:
        key = _prepared(storage)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        for breaks, code in ((30, 7), (None, 0)):
            started = [
                context.Process(target=_send, args=(url, i, breaks if i else None))
                for i in range(3)
            ]
            for process in started:
                process.start()
            for process in started:
                process.join(60)
            assert [process.exitcode for process in started] == [0, code, code]
            found = counted(bench(storage), key)
        total = float(sum(Fraction(0.1 * (i + 1)) for i in range(5)))
        assert found["spent"] == (6, 6 * Fraction(total))
        assert [row.reward for row in storage.log(key)] == [total] * 6
        assert storage_faults(url) == ()


def test_a_transaction_that_fails_leaves_nothing(
    storage: SQLStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = _prepared(storage)
    add = rewards_module.add

    def fail(*args: Any, **named: Any) -> None:
        add(*args, **named)
        if named.get("sums") is SERIES:
            raise RuntimeError("half-way")

    before = bench(storage).everything(key), storage.series(key)
    with monkeypatch.context() as patched:
        patched.setattr(rewards_module, "add", fail)
        with pytest.raises(RuntimeError, match="half-way"):
            storage.measure(key, _all_events(), NOW + 9)
    assert (bench(storage).everything(key), storage.series(key)) == before
    assert {o.status for o in storage.measure(key, _all_events(), NOW + 9)} == {"stored"}
    counted(bench(storage), key)


# What is written and read


@pytest.fixture
def tables_used(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The statements that were executed since the last call."""
    executed: list[str] = []
    execute = Statement.execute

    def noted(self: Statement, driver: Any, dialect: Any, values: Any) -> Any:
        done = execute(self, driver, dialect, values)
        executed.append(self._compiled[dialect.name == "sqlite"][0])
        return done

    monkeypatch.setattr(Statement, "execute", noted)

    def taken() -> list[str]:
        done = executed.copy()
        executed.clear()
        return done

    return taken


def test_experiments_without_metrics_read_and_write_no_events(
    storage: SQLStorage, tables_used: Callable[[], list[str]]
) -> None:
    key = bench(storage).running(9)
    storage.assign(key, ["a", "b"], now=NOW)
    storage.reward(key, [("a", 1.0)], None, NOW)
    storage.log(key)
    storage.find_assignments(key, ["a"])
    assert storage.series(key) == ()
    used = tables_used()
    assert used
    assert not any(table.name in sql for sql in used for table in (events, series))


def test_rewards_beside_metrics_need_no_more_statements(
    storage: SQLStorage, tables_used: Callable[[], list[str]]
) -> None:
    counts = []
    for key in (bench(storage).running(9, name="plain"), declared(bench(storage), *ALL)):
        storage.assign(key, ["a", "b"], now=NOW)
        storage.reward(key, [("a", 1.0)], None, NOW)
        tables_used()
        storage.reward(key, [("b", 1.0)], None, NOW)
        counts.append(len(tables_used()))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_check_finds_events_that_belong_to_nothing(url: str, storage: SQLStorage) -> None:
    key = _prepared(storage)
    storage.measure(key, _all_events(), NOW + 9)
    assert storage_faults(url) == ()

    def damage(connection: Connection) -> None:
        connection.execute(delete(assignments).where(assignments.c.unit == "u0"))
        stray = {"key": 77, "number": 0, "metric": "m", "event": "", "value": 1.0, "created": 0}
        connection.execute(insert(events), stray)
        connection.execute(series.update().where(series.c.series == "spent").values(segment=9))

    storage._database.write(damage)
    lines = "\n".join(storage_faults(url))
    assert "events: 15 rows of the experiment with key 1 have no assignment" in lines
    assert "events: 1 rows of the experiment with key 77, which is gone" in lines
    assert "rows of the experiment with key 1 have no segment" in lines
