"""Pictures of the pages that matter most are written for people to look at."""

from __future__ import annotations

import struct
from pathlib import Path

from playwright.sync_api import Browser

from tests.e2e.browser.chromium import SIZES
from tests.e2e.browser.reading import address
from tests.e2e.browser.screenshots import take, warm
from tests.e2e.browser.sites import Site

FOLDER = Path(__file__).parents[3] / "steadyarm-screenshots"


def test_pictures_are_written_in_three_sizes(browser: Browser, shop: Site) -> None:
    FOLDER.mkdir(exist_ok=True)
    warm(shop)
    pages = {"overview": "/", "landing-page": address("landing-page")}
    made = take(browser, shop, pages, FOLDER, shades=(False,))
    made += take(browser, shop, pages, FOLDER, widths=(1280,), shades=(True,))
    widths = {struct.unpack(">I", path.read_bytes()[16:20])[0] for path in made}
    assert widths == set(SIZES)
    assert len(set(made)) == 8
