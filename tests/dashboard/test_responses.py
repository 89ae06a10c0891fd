"""What all pages share: headers, errors, addresses to go on to, and a path of a proxy."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from steadyarm.dashboard import access
from steadyarm.dashboard.access import GuardedPage
from steadyarm.dashboard.responses import HEADERS, local_path
from steadyarm.service.app import Endpoint, Preflight
from steadyarm.storages import open_storage
from tests.dashboard.clients import (
    STOP,
    Browser,
    Guarded,
    add_tokens,
    create,
    dashboard,
    pages_of,
    state_of,
)

SAFE = {name.lower(): value for name, value in HEADERS.items()}


def test_every_route_is_guarded_and_carries_the_headers(guarded: Guarded) -> None:
    browser, _, tokens = guarded
    known = Endpoint | GuardedPage | Preflight
    others = [route for route in browser.app.routes if not isinstance(route, known)]
    assert {getattr(route, "path", None) for route in others} == {"/openapi.json", "/static"}
    pages = pages_of(browser)
    public = {path for _, path, scope in pages if scope is None}
    assert public == {"/sign-in", "/sign-out", "/docs"}
    tried = [(method, path) for method, path, _ in pages]
    tried += [("GET", "/static/vega.js"), ("GET", "/static/nothing"), ("GET", "/nothing")]
    for token in (None, tokens["read"], tokens["admin"]):
        if token is not None:
            browser.cookies.clear()
            assert browser.sign_in(token).status_code == 303
        for method, path in tried:
            answer = browser.request(method, path)
            assert answer.headers.items() >= SAFE.items(), path
            assert "cache-control" in answer.headers
            assert answer.headers["x-request-id"]
            if answer.headers.get("content-type", "").startswith("text/html"):
                assert answer.headers["cache-control"] in ("no-store", "private, no-cache"), path
                assert '<html lang="en"' in answer.text
                assert answer.text.count("<h1") == 1, path


def test_the_content_policy_lets_nothing_in_from_elsewhere() -> None:
    policy = dict(part.split(" ", 1) for part in HEADERS["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["form-action"] == policy["connect-src"] == "'self'"


def test_unforeseen_errors_are_told_without_details(
    free: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(free.app.state.service, "find", fails)
    answer = free.get(STOP)
    assert answer.status_code == 500
    assert "a secret" not in answer.text
    assert answer.headers["x-request-id"] in answer.text
    assert "a secret" in caplog.text


def test_large_forms_are_refused(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, _, _ = guarded
    monkeypatch.setattr(access, "MOST_FIELDS", 1000)  # so many fit into the form for signing in
    assert browser.post_form("/sign-in", {"token": "x" * 8_200}).status_code == 413
    many = {f"f{i}": "" for i in range(1001)}
    assert browser.post_form("/sign-in", many).status_code == 400
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    for body in (b"csrf=%FF", b"csrf=\xff"):
        assert browser.request("POST", "/sign-in", content=body, headers=kind).status_code == 400


def test_pages_are_not_packed(guarded: Guarded) -> None:
    # The size of a packed page would tell how much of the key for forms a guess has right.
    browser, _, tokens = guarded
    browser.sign_in(tokens["read"])
    for path in ("/?q=guess", "/experiments/shop", "/sign-in?next=/guess"):
        answer = browser.get(path, headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in answer.headers


def test_nobody_is_sent_elsewhere(guarded: Guarded) -> None:
    browser, _, tokens = guarded
    for path in (
        *("//evil.example", "/\\evil.example", "https://evil.example/", "https:evil.example"),
        *("javascript:alert(1)", "/\t/evil.example", "/\n/evil.example", "/x\r\nSet-Cookie: a=b"),
        *("/\u2028/evil.example", "/é", "/" + "x" * 3000, ""),
    ):
        assert local_path(path) == "/"
        browser.cookies.clear()
        asked = browser.get("/sign-in", params={"next": path})
        assert 'name="next" value="/"' in asked.text
        assert browser.sign_in(tokens["read"], path).headers["location"] == "/"
        assert browser.get("/sign-in", params={"next": path}).headers["location"] == "/"


@pytest.mark.parametrize(
    ("path", "headers", "status", "page"),
    [
        (STOP, {"Accept": "application/json"}, 401, False),
        (STOP, {"Sec-Fetch-Dest": "empty"}, 401, False),
        ("/<b>nothing", {}, 404, True),
        ("/nothing", {"Accept": "*/*"}, 404, False),
        ("/v1/nothing", {"Accept": "text/html"}, 404, False),
        *(
            (f"/static/{file}", {}, 404, True)
            for file in ("absent.js", "../app.py", "..%2Fapp.py", "%2Fetc%2Fpasswd", "")
        ),
    ],
)
def test_errors_are_pages_for_people_and_json_for_programs(
    guarded: Guarded, path: str, headers: dict[str, str], status: int, page: bool
) -> None:
    browser, _, _ = guarded
    answer = browser.get(path, headers=headers)
    assert answer.status_code == status
    kind = "text/html; charset=utf-8" if page else "application/problem+json"
    assert answer.headers["content-type"] == kind
    if page or path == STOP:
        assert answer.headers.items() >= SAFE.items()
    assert "import" not in answer.text


ROOT = "/tools/ab"
LINK = re.compile(r'\b(href|src|action|data-[a-z]+)="(/[^"]*)"')


@pytest.fixture
def under() -> Iterator[tuple[Browser, str]]:
    """A dashboard with an experiment that has results, and the token of an admin."""
    storage = open_storage("memory")
    token = add_tokens(storage, "admin")["admin"]
    test = create(storage)
    for i in range(200):
        test.tell(test.ask(f"u{i}"), i % 3 == 0)
    hosts = ("127.0.0.1", "localhost", "tests.example.org")
    front = {"root_path": ROOT, "trusted_proxies": ("127.0.0.1",), "allowed_hosts": hosts}
    with dashboard(storage, **front) as browser:
        yield browser, token


def test_every_page_links_below_the_root_path(under: tuple[Browser, str]) -> None:
    browser, token = under
    away = browser.get(f"{ROOT}/sign-in")
    assert _links(away.text) >= {f"{ROOT}/", f"{ROOT}/sign-in"}
    browser.sign_in(token)
    found = set[str]()
    for method, path, _ in pages_of(browser):
        answer = browser.get(ROOT + path) if method == "GET" else None
        if answer is not None and answer.headers.get("content-type", "").startswith("text/html"):
            links = _links(answer.text)
            assert {link for link in links if not link.startswith(f"{ROOT}/")} == set(), path
            found |= links
    assert f"{ROOT}/experiments/shop" in found
    assert f"{ROOT}{STOP}" in found
    followed = [
        link.split("#")[0]
        for link in sorted(found)
        if "sign-out" not in link and not link.endswith(("/preview", "/plan"))
    ]
    assert len(followed) > 20
    (cookie,) = browser.cookies.items()
    for link in followed:  # all lead somewhere, also where a proxy cuts the path off
        assert browser.get(link).status_code == 200, link
        signed = {"Cookie": "=".join(cookie)}
        assert browser.get(link.removeprefix(ROOT), headers=signed).status_code == 200, link
    missing = browser.get(f"{ROOT}/nowhere")
    assert missing.status_code == 404
    assert f'href="{ROOT}/"' in missing.text


def _links(page: str) -> set[str]:
    return {found[2].replace("&amp;", "&") for found in LINK.finditer(page)}


def test_forms_and_redirects_stay_below_the_root_path(under: tuple[Browser, str]) -> None:
    browser, token = under
    away = browser.get(ROOT + STOP)
    assert away.headers["location"] == f"{ROOT}/sign-in?next={STOP}"
    asked = browser.get(away.headers["location"])
    assert f'name="next" value="{STOP}"' in asked.text
    signed = browser.request(
        "POST",
        f"{ROOT}/sign-in",
        data={"csrf": browser.csrf(), "token": token, "next": STOP},
    )
    assert signed.headers["location"] == ROOT + STOP
    assert f"Path={ROOT};" in signed.headers["set-cookie"]
    done = browser.post_form(ROOT + STOP)
    assert done.headers["location"] == f"{ROOT}/experiments/shop"
    assert state_of(browser) == "stopped"
    for evil in ("//evil.example", "https://evil.example", "/\\evil.example"):
        out = browser.get(f"{ROOT}/sign-in", params={"next": evil})
        assert out.headers["location"] == f"{ROOT}/"
    left = browser.post_form(f"{ROOT}/sign-out")
    assert left.headers["location"] == f"{ROOT}/sign-in"
    assert f"Path={ROOT};" in left.headers["set-cookie"]
    assert browser.get(ROOT + STOP).status_code == 303


@pytest.mark.parametrize(
    ("proxy", "scheme", "secure"),
    [("127.0.0.1", "https", True), ("127.0.0.1", "http", False), ("10.0.0.1", "https", False)],
)
def test_cookies_are_secure_when_a_trusted_proxy_says_https(
    proxy: str, scheme: str, secure: bool
) -> None:
    storage = open_storage("memory")
    add_tokens(storage, "admin")
    with dashboard(storage, root_path=ROOT, trusted_proxies=(proxy,)) as browser:
        headers = {"X-Forwarded-Proto": scheme}
        cookie = browser.get(f"{ROOT}/sign-in", headers=headers).headers["set-cookie"]
    assert ("; Secure" in cookie) == secure
    assert cookie.startswith("__Secure-steadyarm-8000=" if secure else "steadyarm-8000=")
    assert f"Path={ROOT};" in cookie
