"""One service of a kind for all tests of a file; every test is a new person."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.browser.chromium import attended, new_context
from tests.e2e.browser.sites import Site, Watch, site, store_experiments

_numbers = count()


@pytest.fixture(scope="session")
def experiments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiments as a file, which all workers share."""
    base = tmp_path_factory.getbasetemp()
    return store_experiments(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, experiments: Path) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("shop"), experiments) as service:
        yield service


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, experiments: Path) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("guarded"), experiments, guarded=True) as service:
        yield service


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path, None) as service:
        yield service


Visitor = Callable[..., tuple[Page, Watch]]


@pytest.fixture(scope="session")
def screens(browser: Browser) -> Iterator[dict[tuple[str, int], Watch]]:
    """Contexts of the browser by address and width, shared so that each loads Vega once."""
    watches: dict[tuple[str, int], Watch] = {}
    yield watches
    with attended(browser):
        for watch in watches.values():
            watch.context.close()


@pytest.fixture
def visitor(browser: Browser, screens: dict[tuple[str, int], Watch]) -> Iterator[Visitor]:
    """A person's page at a service, and who watches it; whatever must not happen fails the test."""
    opened: list[tuple[Page, Watch]] = []

    def come(to: Site, width: int = 1280) -> tuple[Page, Watch]:
        screen = (to.url, width)
        if screen not in screens:
            screens[screen] = Watch(new_context(browser, *screen), to.url)
        watch = screens[screen]
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
    return f"test-{next(_numbers)}"
