"""Under a path of a proxy: links, forms, redirects, cookies and files all begin with it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from steadyarm.live.lifecycle import create_experiment
from steadyarm.policies import Steady
from steadyarm.storages import open_storage
from tests.dashboard.clients import STOP, Browser, add_tokens, dashboard, pages_of, state_of

ROOT = "/tools/ab"
LINK = re.compile(r'\b(href|src|action|data-[a-z]+)="(/[^"]*)"')


@pytest.fixture
def under() -> Iterator[tuple[Browser, str]]:
    """A dashboard with an experiment that has results, and the token of an admin."""
    storage = open_storage("memory")
    token = add_tokens(storage, "admin")["admin"]
    test = create_experiment("shop", ["A", "B"], Steady(), 400, storage=storage, missing="drop")
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
