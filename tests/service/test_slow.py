"""Slow and stuck things: nobody else waits for them, and whoever waits is told in time."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

import steadyarm as sa
from steadyarm.service import process
from steadyarm.storages import open_storage
from tests.service.clients import SHOP, InProcess, in_process, running, until

BASE = "/v1/experiments/shop"


def ask(client: InProcess, unit: str, name: str = "shop") -> tuple[httpx2.Response, float]:
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


def test_while_nothing_can_be_written_requests_are_told_in_time(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    with in_process(open_storage(f"sqlite:///{file}")) as client:
        client.post("/v1/experiments", SHOP)
        client.limit(0.8)
        with ThreadPoolExecutor(4) as pool, locked(file):
            stuck = [pool.submit(ask, client, f"new {i}") for i in range(3)]
            told = [one.result() for one in stuck]
            client.limit(60)
            assert client.get(BASE).status_code == 200  # reads go on
        for answer, took in told:
            assert answer.status_code == 503
            assert answer.json()["type"].endswith("timeout")
            assert answer.json()["hint"].endswith("Check before you repeat anything else.")
            assert answer.headers["Retry-After"] == "1"
            assert took < 30  # SQLite alone would wait for the lock
        until(lambda: ask(client, "new 0")[0].status_code != 503)


def test_a_slow_decision_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    going, decided, begun = threading.Event(), threading.Event(), list[str]()
    decide = sa.Steady.next_segment

    def slow(policy: Any, state: Any) -> Any:
        if state.budget == 77:
            begun.append(threading.current_thread().name)
            going.set()
            assert decided.wait(120)
        return decide(policy, state)

    shop = SHOP | {"reward_window": 60}  # so that every ask looks at the windows, too
    with in_process() as client, ThreadPoolExecutor(3) as pool:
        client.post("/v1/experiments", shop)
        client.post("/v1/experiments", shop | {"name": "slow", "budget": 77})
        monkeypatch.setattr(sa.Steady, "next_segment", slow)
        asked = pool.submit(ask, client, "u", "slow")
        others = [pool.submit(ask, client, f"u{i}", "slow") for i in range(2)]
        assert going.wait(120)
        try:
            time.sleep(0.1)  # all of them want a decision
            assert ask(client, "u")[0].status_code == 201  # opens a segment of its own, too
            assert len(begun) == 1
            for i in range(3):  # while the decision is still being made
                assert ask(client, f"u{i}")[0].status_code == 201
        finally:
            decided.set()
        assert asked.result()[0].status_code == 201
        assert [one.result()[0].status_code for one in others] == [201, 201]


def test_a_body_that_comes_slowly_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Event()

    async def slowly() -> Any:
        yield b'{"unit": '
        while not gone.is_set():
            await client.app.state.service.run_short(time.sleep, 0.05)
            yield b" "

    with in_process() as client:
        client.post("/v1/experiments", SHOP)
        client.limit(0.3)
        try:
            answer = client.post(f"{BASE}/assignments", content=slowly())
        finally:
            gone.set()
        assert answer.status_code == 503
        assert answer.json()["type"].endswith("timeout")
        assert answer.headers["Connection"] == "close"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers at once, or, at /held, after a while."""
    if scope["path"] == "/held":
        await asyncio.sleep(1.0)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def listening(most: int) -> AbstractContextManager[tuple[str, int]]:
    """A server that keeps so many connections."""
    quiet: Any = {"lifespan": "off", "log_config": None, "access_log": False}
    http = process.LimitedProtocol
    return running(uvicorn.Config(answer, http=http, limit_concurrency=most, **quiet))


def is_closed(one: socket.socket, within: float) -> bool:
    """Whether the other side closes; what it sends before is left alone."""
    one.settimeout(within)
    try:
        while one.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def test_connections_without_a_whole_head_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HEAD", 0.5)
    with listening(100) as at, httpx2.Client() as good:
        url = f"http://{at[0]}:{at[1]}"
        assert good.get(url).text == "ok"
        silent, drip, again = (socket.create_connection(at) for _ in range(3))
        drip.sendall(b"GET / HTTP/1.1\r\nX: ")
        again.sendall(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
        assert again.recv(1000).startswith(b"HTTP/1.1 200")  # an answer may take longer
        again.sendall(b"GET / HTTP/1.1\r\nX: ")
        for one in (silent, drip, again):
            assert is_closed(one, 60)
            one.close()
        assert good.get(url).text == "ok"


def test_a_full_house_is_said_until_the_silent_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HEAD", 3.0)
    with listening(5) as at:
        url = f"http://{at[0]}:{at[1]}"
        silent = [socket.create_connection(at) for _ in range(5)]
        assert httpx2.get(url).status_code == 503
        for one in silent:
            assert is_closed(one, 60)
            one.close()
        assert httpx2.get(url).text == "ok"
