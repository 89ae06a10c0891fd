"""The browser: chromium of the system, which can reach this machine only."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, BrowserContext, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SIZES = {390: 844, 1280: 800, 1920: 1080}  # width and height of a phone, a laptop, a desk
# Whatever a page asks for elsewhere has no address. Charts are drawn without a graphics card.
ARGUMENTS = ("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--disable-gpu")


def executable() -> str:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:
        raise FileNotFoundError(
            f"there is none of {', '.join(PROGRAMS)}, and CHROMIUM is not set; tests in a browser "
            "need one of them. Install it with: make browser"
        )
    return found


@contextmanager
def open_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable(), args=[*ARGUMENTS], headless=True
        )
        try:
            yield browser
        finally:
            asyncio._set_running_loop(browser._loop)  # for those who put it aside
            browser.close()


@contextmanager
def attended(browser: Browser) -> Iterator[None]:
    """Let Playwright's event loop be that of this thread, and none after it."""
    asyncio._set_running_loop(browser._loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


def new_context(
    browser: Browser, url: str, width: int = 1280, dark: bool = False
) -> BrowserContext:
    """A person with a screen of that width; addresses may leave the service's out."""
    return browser.new_context(
        base_url=url,
        viewport={"width": width, "height": SIZES[width]},
        is_mobile=width < 500,
        has_touch=width < 500,
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
        accept_downloads=True,
    )
