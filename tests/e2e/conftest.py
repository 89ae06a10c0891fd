"""One browser for all tests of a worker that need one, and out of the way of all others.

Playwright lets its event loop count as running in this thread for as long as the browser is open.
Other tests of the same worker run loops of their own, so it is put aside after each test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser.chromium import attended, open_browser

expect.set_options(timeout=30_000)  # other tests keep the machine busy


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture(autouse=True)
def loop_of_browser(request: pytest.FixtureRequest) -> Iterator[None]:
    """Begins before and ends after whatever else a test does with the browser."""
    if "browser" not in request.fixturenames:
        yield
        return
    with attended(request.getfixturevalue("browser")):
        yield
