"""The page of the API: everything of the OpenAPI document, for anybody, from this service alone."""

from __future__ import annotations

import re

import pytest

from steadyarm.dashboard import pages
from steadyarm.service.problems import KINDS
from steadyarm.service.routes import ROUTES, document
from tests.dashboard.clients import Browser, Guarded, dashboard


def test_the_page_has_every_route_object_field_and_error(free: Browser) -> None:
    answer = free.get("/docs")
    assert answer.status_code == 200
    text = answer.text
    for route in ROUTES:
        place = f'<span class="method">{route.method}</span> {route.path}</code></h3>'
        assert text.count(place) == 1, route.path
        assert f'id="{route.handler.__name__}"' in text
    for name, schema in document()["components"]["schemas"].items():
        begins = text.index(f'<h3 id="{name}">')
        section = text[begins : text.index("</section>", begins)]
        for field in schema["properties"]:
            assert f"<code>{field}</code></th>" in section, f"{name}.{field}"
    for kind in KINDS:
        assert f"<code>{kind}</code>" in text


def test_every_link_of_the_page_leads_somewhere(free: Browser) -> None:
    text = free.get("/docs").text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)
    inside = set(re.findall(r'href="#([^"]+)"', text))
    assert inside <= {*ids}
    assert len(inside) > 100
    for link in set(re.findall(r'(?:href|src)="(/[^"]*)"', text)):
        assert free.get(link).status_code in (200, 303), link
    elsewhere = re.findall(r'(?:href|src)="(?![/#])([^"]*)"', text)
    assert elsewhere == []
    assert "<script" not in text
    assert " style=" not in text


def test_anybody_may_read_the_page_and_nobody_is_remembered(guarded: Guarded) -> None:
    browser, _, _ = guarded
    answer = browser.get("/docs")
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers
    assert 'name="csrf" content=""' in answer.text
    again = browser.get("/docs", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


def test_the_page_is_made_once(free: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    first = free.get("/docs")
    monkeypatch.setattr(pages, "page", None)  # what would make it again
    assert free.get("/docs").text == first.text


def test_the_page_under_a_root_path() -> None:
    with dashboard(root_path="/ab") as browser:
        text = browser.get("/ab/docs").text
        assert "all addresses begin with <code>/ab</code>" in text
        assert 'href="/ab/openapi.json"' in text
