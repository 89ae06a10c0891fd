"""Requests: tried again where safe, within the time limit, and errors in the service's words."""

from __future__ import annotations

import random
import socket
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.client import Client, ServiceDownError
from steadyarm.client.pools import AsyncioPool, BlockingPool, Pool, run
from steadyarm.client.transport import KINDS, Transport
from steadyarm.wire.responses import Up
from tests.client.servers import Scripted
from tests.service.clients import run_apart

Line = tuple[int, dict[str, str], Any]

GOOD: Line = (200, {}, {"status": "ok"})
BUSY: Line = (503, {}, {})


def problem(kind: str, status: int = 409, **more: str) -> Line:
    told = {"type": f"urn:steadyarm:problem:{kind}", "status": status, "detail": "That is why."}
    return status, {"Content-Type": "application/problem+json"}, told | more


class Impatient(AsyncioPool):
    """Notes the pauses down instead of waiting."""

    def __init__(self, url: str, headers: Mapping[str, str], pauses: list[float]) -> None:
        super().__init__(url, headers)
        self._pauses = pauses

    async def sleep(self, seconds: float) -> None:
        self._pauses.append(seconds)


class Caller:
    """A transport whose calls are awaited to their end, and the pauses between its tries."""

    def __init__(self, driver: str, url: str, patient: bool = False, **more: Any) -> None:
        self.pauses: list[float] = []

        def pool(url: str, headers: Mapping[str, str]) -> Pool:
            if driver == "asyncio":
                return (
                    AsyncioPool(url, headers) if patient else Impatient(url, headers, self.pauses)
                )
            return BlockingPool(url, headers, time.sleep if patient else self.pauses.append)

        self._run: Callable[[Any], Any] = run if driver == "threads" else run_apart
        self._transport = Transport(url, jitter=random.Random(1), pool=pool, **more)

    def call(self, *given: Any, **more: Any) -> Any:
        async def once() -> Any:
            try:
                return await self._transport.call(*given, **more)
            finally:
                await self._transport.pool.close()

        return self._run(once())


@pytest.fixture(params=["threads", "asyncio"])
def driver(request: pytest.FixtureRequest) -> str:
    """Both ways to wait: the decisions are the same."""
    return str(request.param)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_service_is_asked_again(driver: str, status: int) -> None:
    with Scripted((status, {}, {}), (status, {}, {}), GOOD) as server:
        asked = Caller(driver, server.url)
        assert asked.call(Up, "GET", "x") == Up("ok")
    assert len(server.requests) == 3
    assert 0.025 <= asked.pauses[0] <= 0.075
    assert 0.05 <= asked.pauses[1] <= 0.15


def test_pauses_are_reproducible(driver: str) -> None:
    def pauses() -> list[float]:
        with Scripted(BUSY) as server:
            asked = Caller(driver, server.url)
            with pytest.raises(ServiceDownError, match="answered 503"):
                asked.call(Up, "GET", "x")
            return asked.pauses

    assert pauses() == pauses()


def test_dropped_connections_are_tried_again(driver: str) -> None:
    with Scripted("drop", "drop", GOOD) as server:
        asked = Caller(driver, server.url)
        assert asked.call(Up, "POST", "x", body={"a": 1}) == Up("ok")
    assert [request[2] for request in server.requests] == [{"a": 1}] * 3


def test_what_cannot_be_repeated_is_not_sent_twice(driver: str) -> None:
    for line in ("drop", BUSY):
        with Scripted(line, GOOD) as server:
            asked = Caller(driver, server.url)
            with pytest.raises(ServiceDownError):
                asked.call(Up, "POST", "x", repeatable=False)
            assert len(server.requests) == 1


def test_what_was_never_sent_is_tried_again(driver: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    asked = Caller(driver, f"http://127.0.0.1:{port}")
    with pytest.raises(ServiceDownError, match=r"cannot be reached.*is it running"):
        asked.call(Up, "POST", "x", repeatable=False)
    assert len(asked.pauses) == 3


@pytest.mark.parametrize("date", [False, True])
def test_retry_after_is_honoured(driver: str, date: bool) -> None:
    value = format_datetime(datetime.now(UTC) + timedelta(seconds=2)) if date else "1"
    with Scripted((503, {"Retry-After": value}, {}), GOOD) as server:
        asked = Caller(driver, server.url, timeout=5)
        asked.call(Up, "GET", "x")
    assert 0.5 < asked.pauses[0] <= 2


def test_retry_after_beyond_the_time_limit_ends_it(driver: str) -> None:
    with Scripted((503, {"Retry-After": "60"}, {}), GOOD) as server:
        asked = Caller(driver, server.url)
        with pytest.raises(ServiceDownError):
            asked.call(Up, "GET", "x")
    assert asked.pauses == []


def test_slow_answers_end_in_time(driver: str) -> None:
    with Scripted(1.0) as server:
        asked = Caller(driver, server.url, patient=True, timeout=0.3)
        began = time.monotonic()
        with pytest.raises(ServiceDownError, match="did not answer in time"):
            asked.call(Up, "GET", "x")
        assert time.monotonic() - began < 0.6
    assert len(server.requests) >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_problems_become_the_errors_of_experiments(kind: str) -> None:
    with (
        Scripted(problem(kind, hint="Do this.")) as server,
        Client(server.url) as client,
        pytest.raises(KINDS[kind], match=r"That is why\. Do this\.$") as caught,
    ):
        client.experiments()
    assert type(caught.value) is KINDS[kind]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (problem("unauthorized", 401), r"That is why\. Give a token"),
        (problem("forbidden", 403, hint="Another one."), r"That is why\. Another one\."),
        (problem("too-large", 413, request_id="r1"), r"That is why\. \(request r1\)"),
        ((413, {}, b"<h1>nginx</h1>"), "answered 413"),
        ((404, {}, b"<h1>nginx</h1>"), "answered 404 Not Found, and not as a SteadyArm"),
        ((307, {"Location": "/login"}, b""), "answered 307"),
        ((200, {}, b"<h1>Log in</h1>"), "which is no JSON"),
        ((200, {}, {"other": 1}), "cannot be read .*of another version"),
    ],
)
def test_all_else_is_a_service_error(line: Any, message: str) -> None:
    with (
        Scripted(line) as server,
        Client(server.url) as client,
        pytest.raises(sa.ServiceError, match=message) as caught,
    ):
        client.experiments()
    assert not isinstance(caught.value, ServiceDownError)


def test_an_error_of_the_service_itself_is_not_tried_again() -> None:
    with (
        Scripted(problem("internal", 500, request_id="r7")) as server,
        Client(server.url) as client,
        pytest.raises(ServiceDownError, match="request r7"),
    ):
        client.experiments()
    assert len(server.requests) == 1


def test_the_token_is_sent_and_not_shown() -> None:
    with (
        Scripted((200, {}, {"experiments": []})) as server,
        Client(server.url + "/behind/", "sa_secret") as client,
    ):
        assert client.experiments() == []
        assert "sa_secret" not in repr(client)
    _, path, _, headers = server.requests[0]
    assert (path, headers["Authorization"]) == ("/behind/v1/experiments", "Bearer sa_secret")


def test_httpx_is_only_needed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(sa.MissingExtraError, match=r"pip install 'steadyarm\[client\]'"):
        Client("http://localhost:8000")


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(sa.InvalidInputError, match="address of a service"):
        Client("localhost:8000")
    for url in ("http://", "http:///v1", "http://[::1", "http://host:99999"):
        with pytest.raises(sa.InvalidInputError, match="address of a service"):
            Client(url)
    with Client("http://v1") as client:
        assert client.url == "http://v1"
    with pytest.raises(sa.InvalidInputError, match="seconds above 0"):
        Client("http://localhost", timeout=0)
    with Client("http://localhost") as client:
        with pytest.raises(sa.InvalidInputError, match="expected an experiment's"):
            client.experiment("")
        with pytest.raises(sa.InvalidInputError, match="cannot be sent"):
            client.create("x", ["A", "B"], budget=10, seed=float("nan"), missing="drop")
    with pytest.raises(sa.ServiceError, match="was closed"):
        client.experiments()
