"""The page of the API: every route, for anybody."""

from __future__ import annotations

from steadyarm.service.routes import ROUTES
from tests.dashboard.clients import Guarded, dashboard


def test_the_page_has_every_route_and_anybody_may_read_it(guarded: Guarded) -> None:
    browser, _, _ = guarded
    answer = browser.get("/docs")
    assert answer.status_code == 200
    for route in ROUTES:
        assert answer.text.count(f"<code>{route.method} {route.path}</code>") == 1, route.path
    assert "set-cookie" not in answer.headers
    again = browser.get("/docs", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


def test_the_page_under_a_root_path() -> None:
    with dashboard(root_path="/ab") as browser:
        text = browser.get("/ab/docs").text
        assert "all addresses begin with <code>/ab</code>" in text
        assert 'href="/ab/openapi.json"' in text
