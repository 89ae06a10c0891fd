"""Who may see and do what, at a service that wants tokens."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.e2e.browser.conftest import Visitor
from tests.e2e.browser.reading import address, hurry, sign_in
from tests.e2e.browser.sites import HOSTILE_TOKEN, Site

ACTIONS = ("Start", "Pause", "Resume", "Stop", "Archive")


def actions(page: Page) -> list[str]:
    """What is offered to be done."""
    offered = page.get_by_role("link").or_(page.get_by_role("button")).all_inner_texts()
    return [text for text in offered if text in ACTIONS]


def test_without_a_token_there_is_nothing_to_see(visitor: Visitor, guarded: Site) -> None:
    page, _ = visitor(guarded)
    for path in ("/", "/new", address("landing-page"), f"{address('landing-page')}/log.zip"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        assert "landing-page" not in page.get_by_role("main").inner_text()


def test_a_wrong_token_is_refused_and_not_repeated(visitor: Visitor, guarded: Site) -> None:
    page, watch = visitor(guarded)
    watch.allow("status of 403")
    page.goto("/")
    sign_in(page, "sa_<script>alert(1)</script>")
    expect(page.get_by_role("alert")).to_contain_text("not known")
    expect(page.get_by_label("Token")).to_have_value("")
    assert "alert(1)" not in page.content()
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_a_reader_reads_and_does_nothing_else(visitor: Visitor, guarded: Site) -> None:
    page, watch = visitor(guarded)
    watch.allow("status of 403")
    page.goto(address("landing-page"))
    sign_in(page, guarded.tokens["read"])
    expect(page.get_by_role("heading", level=1)).to_contain_text("landing-page")
    expect(page.get_by_role("banner")).to_contain_text(HOSTILE_TOKEN)
    assert actions(page) == []
    expect(page.get_by_role("link", name="New experiment")).to_have_count(0)
    expect(page.get_by_role("link", name="Report", exact=True)).to_be_visible()

    csrf = page.locator("meta[name=csrf]").get_attribute("content")
    refused = page.evaluate(
        """async ([path, csrf]) => (await fetch(path, {method: "POST",
             headers: {"x-csrf-token": csrf}})).status""",
        [f"{address('landing-page')}/stop", csrf],
    )
    assert refused == 403
    for path in ("/new", f"{address('landing-page')}/stop"):
        page.goto(path)
        expect(page.get_by_role("main")).to_contain_text("this needs admin")
    with guarded.api() as api:
        assert api.get(f"/v1{address('landing-page')}").json()["state"] == "running"


def test_an_admin_may_stop_but_not_from_elsewhere(visitor: Visitor, guarded: Site) -> None:
    page, watch = visitor(guarded)
    watch.allow("status of 403")
    page.goto(address("landing-page"))
    sign_in(page, guarded.tokens["admin"])
    expect(page.get_by_role("heading", level=1)).to_contain_text("landing-page")
    assert actions(page) == ["Pause", "Stop"]
    refused = page.evaluate(
        "async (path) => (await fetch(path, {method: 'POST'})).status",
        f"{address('landing-page')}/stop",
    )
    assert refused == 403  # without the page's own key
    with guarded.api() as api:
        assert api.get(f"/v1{address('landing-page')}").json()["state"] == "running"


def test_the_cookie_is_hidden_from_scripts_and_other_sites(visitor: Visitor, guarded: Site) -> None:
    page, _ = visitor(guarded)
    page.goto("/")
    sign_in(page, guarded.tokens["read"])
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    cookies = page.context.cookies()
    assert cookies
    for cookie in cookies:
        assert cookie["httpOnly"]
        assert cookie["sameSite"] in ("Lax", "Strict")
        assert guarded.tokens["read"] not in cookie["value"]
    assert page.evaluate("document.cookie") == ""


def test_after_signing_out_there_is_nothing_to_see(visitor: Visitor, guarded: Site) -> None:
    page, _ = visitor(guarded)
    page.goto("/")
    sign_in(page, guarded.tokens["read"])
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.go_back()
    page.goto(address("landing-page"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_who_is_signed_out_elsewhere_is_told(visitor: Visitor, guarded: Site) -> None:
    page, watch = visitor(guarded)
    watch.allow("status of 401")
    hurry(page)
    page.goto(address("not-started"))
    sign_in(page, guarded.tokens["read"])
    expect(page.get_by_role("heading", level=1)).to_contain_text("not-started")
    page.context.clear_cookies()
    expect(page.get_by_text("signed out")).to_be_visible()
