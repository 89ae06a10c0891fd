"""One service for all tests of a file, and both kinds of clients with the same verbs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.client import AsyncClient, AsyncRemoteExperiment, Client
from tests.client.proxies import Proxy
from tests.service.clients import listening

Connect = Callable[..., Any]
Create = Callable[..., sa.Experiment]
Stored = Callable[[str], sa.Experiment]

_numbers = count()


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
    """Create an experiment in the storage of the service."""
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
