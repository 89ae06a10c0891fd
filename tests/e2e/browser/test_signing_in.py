"""Who may see and do what, at a service that wants tokens."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.reading import address, hurry, sign_in
from tests.e2e.browser.sites import HOSTILE_TOKEN, Site

PAGE = address("landing-page")
POST = """async ([path, csrf]) => (await fetch(path, {method: "POST",
  headers: csrf === null ? {} : {"x-csrf-token": csrf}})).status"""


def test_without_a_token_there_is_nothing_to_see(visitor: Visitor, guarded: Site) -> None:
    page, watch = visitor(guarded)
    watch.allow("status of 403")
    for path in (PAGE, f"{PAGE}/log.zip", "/new", "/"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        assert "landing-page" not in page.get_by_role("main").inner_text()
    sign_in(page, "sa_<script>alert(1)</script>")
    expect(page.get_by_role("alert")).to_contain_text("is unknown")
    expect(page.get_by_label("Token")).to_have_value("")
    assert "alert(1)" not in page.content()


def test_a_reader_reads_and_does_nothing_else(visitor: Visitor, guarded: Site) -> None:
    page, watch = visitor(guarded)
    watch.allow("status of 403")
    page.goto(PAGE)
    sign_in(page, guarded.tokens["read"])
    expect(page.get_by_role("heading", level=1)).to_contain_text("landing-page")
    expect(page.get_by_role("banner")).to_contain_text(HOSTILE_TOKEN)
    for name in ("Pause", "Stop", "New experiment"):
        expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    assert guarded.tokens["read"] not in cookie["value"]
    assert page.evaluate("document.cookie") == ""
    csrf = page.locator("meta[name=csrf]").get_attribute("content")
    assert page.evaluate(POST, [f"{PAGE}/stop", csrf]) == 403
    page.goto(f"{PAGE}/stop")
    expect(page.get_by_role("main")).to_contain_text("This needs admin")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.go_back()
    page.goto(PAGE)
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_who_is_signed_out_elsewhere_is_told(visitor: Visitor, guarded: Site) -> None:
    page, watch = visitor(guarded)
    watch.allow("status of 401")
    hurry(page)
    page.goto(PAGE)
    sign_in(page, guarded.tokens["read"])
    expect(page.get_by_role("heading", level=1)).to_contain_text("landing-page")
    page.context.clear_cookies()
    expect(page.get_by_text("signed out")).to_be_visible()
