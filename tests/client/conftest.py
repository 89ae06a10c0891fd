"""One service for all tests of a file, and both kinds of clients with the same verbs."""

from __future__ import annotations

import asyncio
import inspect
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import pytest

import steadyarm as sa
from steadyarm.client import AsyncClient, AsyncRemoteExperiment, Client
from tests.service.clients import listening

Mode = Literal["pass", "cut", "hang"]
Connect = Callable[..., Any]
Create = Callable[..., sa.Experiment]

_numbers = count()


class Proxy:
    """Stands before a service: passes all on, cuts answers off, hangs, or is not there."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._target = (host, int(port))
        self.mode: Mode = "pass"
        self._open: set[socket.socket] = set()
        self._port = 0
        self.up()
        self.url = f"http://127.0.0.1:{self._port}"

    def up(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listening.getsockname()[1]
        self._thread = Thread(target=self._accept, args=(self._listening,), daemon=True)
        self._thread.start()

    def down(self) -> None:
        for one in [self._listening, *self._open]:
            _shut(one)
        self._thread.join()

    def _accept(self, listening: socket.socket) -> None:
        with listening, suppress(OSError):
            while True:
                one, _ = listening.accept()
                self._open.add(one)
                Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with closing(one), closing(socket.create_connection(self._target)) as other:
            self._open.add(other)
            back = Thread(target=self._answers, args=(other, one), daemon=True)
            back.start()
            with suppress(OSError):
                while data := one.recv(65536):
                    while self.mode == "hang":
                        time.sleep(0.01)
                    other.sendall(data)
            _shut(other)
            back.join()
        self._open -= {one, other}

    def _answers(self, other: socket.socket, one: socket.socket) -> None:
        with suppress(OSError):
            while data := other.recv(65536):
                if self.mode == "cut":
                    break
                one.sendall(data)
        _shut(one)


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    storage = f"sqlite:///{folder}/tests.db"
    first = sa.create_experiment("first", ["A", "B"], sa.Steady(), 9, storage, missing="drop")
    first.ask("u")  # the first assignment takes longer than others
    first.close()
    with listening(storage) as url:
        yield url


@pytest.fixture
def name() -> str:
    return f"test-{next(_numbers)}"


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    yield proxy
    proxy.mode = "pass"
    proxy.down()


class Awaited:
    """A client under asyncio whose verbs are waited for; its event loop is in another thread."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = inner, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._call(found) if inspect.ismethod(found) else found

    def _call(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            found = method(*given, **named)
            if inspect.iscoroutine(found):
                return asyncio.run_coroutine_threadsafe(found, self._loop).result()
            if isinstance(found, AsyncRemoteExperiment):
                return Awaited(found, self._loop)
            return found

        return call


@pytest.fixture(params=["threads", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make a client; tests that use this run with both kinds."""
    opened: list[Any] = []
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()

    async def made(url: str, **options: Any) -> AsyncClient:
        return AsyncClient(url, **options)

    def make(url: str, **options: Any) -> Any:
        options = {"timeout": 20} | options
        if request.param == "threads":
            opened.append(Client(url, **options))
        else:
            client = asyncio.run_coroutine_threadsafe(made(url, **options), loop).result()
            opened.append(Awaited(client, loop))
        return opened[-1]

    yield make
    for client in opened:
        client.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def create(folder: Path, name: str) -> Iterator[Create]:
    made: list[sa.Experiment] = []

    def new(arms: Any = ("A", "B"), budget: int = 100, **settings: Any) -> sa.Experiment:
        chosen = arms if isinstance(arms, sa.ArmSet) else list(arms)
        rules = {"missing": "drop", "name": name, "policy": sa.Steady(), **settings}
        called, policy = rules.pop("name"), rules.pop("policy")
        storage = f"sqlite:///{folder}/tests.db"
        made.append(sa.create_experiment(called, chosen, policy, budget, storage, **rules))
        return made[-1]

    yield new
    for experiment in made:
        experiment.close()
