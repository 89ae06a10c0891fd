"""A person at a service that wants tokens."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.sites import HOSTILE_TOKEN, Site, address, hurry

PAGE = address("landing-page")


def test_a_reader_signs_in_reads_and_is_told_of_signing_out(
    visitor: Visitor, guarded: Site
) -> None:
    page, watch = visitor(guarded)
    for status in ("403", "401"):
        watch.allow(f"status of {status}")
    hurry(page)
    title = page.get_by_role("heading", level=1)
    page.goto(PAGE)
    expect(title).to_have_text("Sign in")
    assert "landing-page" not in page.get_by_role("main").inner_text()
    for token in ("sa_<script>alert(1)</script>", guarded.tokens["read"]):
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        if "script" in token:
            expect(page.get_by_role("alert")).to_contain_text("is unknown")
            expect(page.get_by_label("Token")).to_have_value("")
            assert "alert(1)" not in page.content()
    expect(title).to_contain_text("landing-page")
    expect(page.get_by_role("banner")).to_contain_text(HOSTILE_TOKEN)
    for name in ("Pause", "Stop", "New experiment"):
        expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
    assert page.evaluate("document.cookie") == ""
    page.goto(f"{PAGE}/stop")
    expect(page.get_by_role("main")).to_contain_text("This needs admin")
    page.goto(PAGE)
    cookies: Any = page.context.cookies()
    page.context.clear_cookies()  # as if this person had signed out elsewhere
    expect(page.get_by_text("signed out")).to_be_visible()
    page.context.add_cookies(cookies)
    page.goto(PAGE)
    page.get_by_role("button", name="Sign out").click()
    expect(title).to_have_text("Sign in")
    page.go_back()
    page.goto(PAGE)
    expect(title).to_have_text("Sign in")
