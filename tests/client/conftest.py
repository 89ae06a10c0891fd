"""One service for all tests of a worker; every test has an experiment of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.client import Client
from tests.client.servers import Proxy, serving

_numbers = count()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="session")
def url(folder: Path) -> Iterator[str]:
    with serving(folder) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"test-{next(_numbers)}"


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    yield proxy
    proxy.mode = "pass"
    proxy.down()


@pytest.fixture
def stored(folder: Path) -> Iterator[Callable[[str], sa.Experiment]]:
    """The experiment as the service's storage has it."""
    opened: list[sa.Experiment] = []

    def load(name: str) -> sa.Experiment:
        opened.append(sa.load_experiment(name, f"sqlite:///{folder}/service.db"))
        return opened[-1]

    yield load
    for experiment in opened:
        experiment.close()
