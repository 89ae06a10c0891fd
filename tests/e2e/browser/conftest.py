"""One service of a kind for all tests of a worker; every test is a new person."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.browser.chromium import attended, new_context
from tests.e2e.browser.sites import Site, site, worlds_in
from tests.e2e.browser.watching import Watch

_numbers = count()


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worlds as a file, which all workers share."""
    base = tmp_path_factory.getbasetemp()
    return worlds_in(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Iterator[Site]:
    """A service without tokens."""
    with site(tmp_path_factory.mktemp("shop"), worlds) as found:
        yield found


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory, worlds: Path) -> Iterator[Site]:
    """A service that wants tokens."""
    with site(tmp_path_factory.mktemp("guarded"), worlds, guarded=True) as found:
        yield found


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Site]:
    """A service without tokens and experiments."""
    with site(tmp_path, None) as found:
        yield found


Screen = tuple[str, int, bool]  # address of the service, width, whether it is dark
Visitor = Callable[..., tuple[Page, Watch]]


@pytest.fixture(scope="session")
def screens(browser: Browser) -> Iterator[dict[Screen, Watch]]:
    """Contexts of the browser that tests share, so that each loads Vega once."""
    found: dict[Screen, Watch] = {}
    yield found
    with attended(browser):
        for watch in found.values():
            watch.context.close()


@pytest.fixture
def visitor(browser: Browser, screens: dict[Screen, Watch]) -> Iterator[Visitor]:
    """A person's page at a service, and who watches it; whatever must not happen fails the test."""
    opened: list[tuple[Page, Watch]] = []

    def come(to: Site, width: int = 1280, dark: bool = False) -> tuple[Page, Watch]:
        screen = (to.url, width, dark)
        if screen not in screens:
            screens[screen] = Watch(new_context(browser, *screen), to.url)
        watch = screens[screen]
        assert not watch.context.pages, "one person at a time"
        watch.begin()
        opened.append((watch.context.new_page(), watch))
        return opened[-1]

    yield come
    for page, _ in opened:
        page.close()
    for _, watch in opened:
        watch.check()


@pytest.fixture
def name() -> str:
    """Of an experiment that no other test has."""
    return f"test-{next(_numbers)}"
