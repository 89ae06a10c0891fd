"""Slow and stuck things: nobody else waits for them, and whoever waits is told in time."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import steadyarm as sa
from steadyarm.advance import open_segment, run
from steadyarm.service import batching, service
from steadyarm.storages import open_storage
from tests.service.clients import SHOP, InProcess, in_process

BASE = "/v1/experiments/shop"


def ask(client: InProcess, unit: str, name: str = "shop") -> tuple[httpx.Response, float]:
    """The answer, and how many seconds it took."""
    began = time.monotonic()
    answer = client.post(f"/v1/experiments/{name}/assignments", {"unit": unit})
    return answer, time.monotonic() - began


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process would hold the file like this."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
    finally:
        db.close()


def test_known_units_are_answered_while_nothing_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    with in_process(open_storage(f"sqlite:///{file}"), request_timeout=0.8) as client:
        client.post("/v1/experiments", SHOP)
        known = [f"u{i}" for i in range(20)]
        first = {unit: ask(client, unit)[0].json()["id"] for unit in known}
        with ThreadPoolExecutor(25) as pool, locked(file):
            stuck = [pool.submit(ask, client, f"new {i}") for i in range(3)]
            found = list(pool.map(lambda unit: ask(client, unit), known))
            batch = client.post(f"{BASE}/assignments:batch", {"units": known})
            told = [one.result() for one in stuck]
        for unit, (answer, took) in zip(known, found, strict=True):
            assert (answer.status_code, answer.json()["id"]) == (200, first[unit])
            assert took < 0.6
        assert [one["id"] for one in batch.json()["assignments"]] == list(first.values())
        for answer, took in told:  # whoever needs a new assignment is told in time
            assert answer.status_code == 503
            assert answer.json()["type"].endswith("timeout")
            assert answer.headers["Retry-After"] == "1"
            assert took < 2
        deadline = time.monotonic() + 10
        while ask(client, "new 0")[0].status_code == 503:
            assert time.monotonic() < deadline


def test_a_spent_experiment_does_not_slow_down_others() -> None:
    storage = open_storage("memory")
    with in_process(storage) as client:
        for name in ("spent", "shop"):
            client.post("/v1/experiments", SHOP | {"name": name, "budget": 30})
        spent = sa.load_experiment("spent", storage)
        spent.ask_many([f"u{i}" for i in range(20)])
        # A client that died has leased the last positions; they will be free in some seconds.
        while spent.status().handed + spent.status().leased < 30:
            run(open_segment(storage, spent.key, spent.settings, spent.now()))
            storage.lease(spent.key, 30, expires=spent.now() + 5_000_000, now=spent.now())
        with ThreadPoolExecutor(8) as pool:
            waiting = [pool.submit(ask, client, f"late {i}", "spent") for i in range(8)]
            time.sleep(0.1)
            others = [ask(client, f"u{i}")[1] for i in range(10)]
            late = [one.result() for one in waiting]
        assert sorted(others)[5] < 0.2
        assert {answer.status_code for answer, _ in late} == {409}
        assert all(0.7 < took < 3 for _, took in late)  # they waited, elsewhere


def test_a_slow_decision_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    going, decided = threading.Event(), threading.Event()
    decide = sa.Steady.next_segment

    def slow(policy: Any, state: Any) -> Any:
        if state.budget == 77:
            going.set()
            assert decided.wait(20)
        return decide(policy, state)

    with in_process() as client, ThreadPoolExecutor(1) as pool:
        client.post("/v1/experiments", SHOP)
        client.post("/v1/experiments", SHOP | {"name": "slow", "budget": 77})
        monkeypatch.setattr(sa.Steady, "next_segment", slow)
        waiting = pool.submit(ask, client, "u", "slow")
        assert going.wait(20)
        try:
            assert ask(client, "u")[0].status_code == 201  # opens a segment of its own, too
        finally:
            decided.set()
        assert waiting.result()[0].status_code == 201


def test_load_is_shed_before_memory_grows(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    storage = open_storage(f"sqlite:///{file}")
    with in_process(storage, max_waiting=40, request_timeout=1.0, max_body=2000) as client:
        client.post("/v1/experiments", SHOP)
        ask(client, "known")
        with ThreadPoolExecutor(30) as pool, locked(file):
            waiting = [pool.submit(ask, client, f"u{i}") for i in range(30)]
            kinds = [one.result()[0].json()["type"].rpartition(":")[2] for one in waiting]
        assert kinds.count("overloaded") == 10  # an experiment has half of what may wait
        assert kinds.count("timeout") == 20
        batch = client.post(f"{BASE}/assignments:batch", {"units": [f"b{i}" for i in range(21)]})
        assert batch.status_code == 503
        assert batch.headers["Retry-After"] == "1"
        assert batch.json()["hint"].startswith("Nothing was done")
        load = client.app.state.service.load
        assert (load.shed, load._all, load._bytes) == (11, 0, 0)
        load._bytes = service.BODIES * 2000  # as many bodies as may be held
        assert ask(client, "known")[0].json()["type"].endswith("overloaded")
        assert load._bytes == service.BODIES * 2000


def test_a_body_that_comes_slowly_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "OFTEN", 0.05)
    gone = threading.Event()

    async def slowly() -> Any:
        yield b'{"unit": '
        while not gone.is_set():
            await client.app.state.service.look_up(time.sleep, 0.05)
            yield b" "

    with in_process(request_timeout=0.3) as client:
        client.post("/v1/experiments", SHOP)
        try:
            answer = client.post(f"{BASE}/assignments", content=slowly())
        finally:
            gone.set()
        assert answer.status_code == 503
        assert answer.json()["type"].endswith("timeout")
        assert answer.headers["Connection"] == "close"
