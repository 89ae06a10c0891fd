"""One service and one server of pages for all tests of a file; every test is a new person."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.e2e.browser.chromium import new_context
from tests.e2e.sdk.shops import PageServer, Shop, build, create_shop, serving_pages


@pytest.fixture(scope="session")
def pages() -> Iterator[PageServer]:
    build()
    with serving_pages() as found:
        yield found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, pages: PageServer) -> Iterator[Shop]:
    with create_shop(tmp_path_factory.mktemp("shop"), pages.url).open() as found:
        yield found


@pytest.fixture
def visitor(browser: Browser, pages: PageServer) -> Iterator[BrowserContext]:
    context = new_context(browser, pages.url)
    yield context
    context.close()
