"""Who may see and do what: signing in, cookies, keys for forms, addresses to go on to."""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from steadyarm.dashboard import access
from steadyarm.errors import InvalidInputError
from steadyarm.service.auth import new_token
from steadyarm.service.service import STRANGERS
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages import open_storage
from steadyarm.storages.service import Scope
from tests.dashboard.clients import (
    SCOPES,
    STOP,
    Browser,
    Guarded,
    add_tokens,
    create,
    dashboard,
    pages_of,
    state_of,
)

COOKIE = "steadyarm-8000"
EMPTY = base64.urlsafe_b64encode(b'""').decode().rstrip("=")


def test_a_person_signs_in_acts_and_signs_out(guarded: Guarded) -> None:
    browser, _, tokens = guarded
    away = browser.get(STOP)
    assert (away.status_code, away.headers["location"]) == (303, f"/sign-in?next={STOP}")
    asked = browser.get(away.headers["location"])
    assert asked.status_code == 200
    assert f'name="next" value="{STOP}"' in asked.text
    assert 'type="password"' in asked.text
    assert asked.text.count("<h1") == 1
    signed = browser.sign_in(tokens["admin"], STOP)
    assert (signed.status_code, signed.headers["location"]) == (303, STOP)
    cookie = signed.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=lax", "Path=/", f"Max-Age={12 * 60 * 60}"):
        assert part in cookie
    assert "Secure" not in cookie
    confirm = browser.get(STOP)
    assert confirm.status_code == 200
    assert browser.csrf() in confirm.text
    assert state_of(browser) == "running"
    done = browser.post_form(STOP)
    assert (done.status_code, done.headers["location"]) == (303, "/experiments/shop")
    assert state_of(browser) == "stopped"
    refused = browser.post_form("/experiments/shop/pause")
    assert refused.status_code == 409
    assert "state does not allow this</h1>" in refused.text
    out = browser.post_form("/sign-out")
    assert (out.status_code, out.headers["location"]) == (303, "/sign-in")
    assert browser.get(STOP).status_code == 303


@pytest.mark.parametrize("used", [None, *SCOPES])
def test_every_page_with_every_scope(guarded: Guarded, used: Scope | None) -> None:
    browser, _, tokens = guarded
    if used is not None:
        browser.sign_in(tokens[used])
    for method, path, needed in pages_of(browser):
        if needed is None:
            continue
        answer = browser.post_form(path) if method == "POST" else browser.get(path)
        if used is None:
            assert answer.status_code == (401 if path.endswith(".json") else 303), path
        elif SCOPES.index(used) < SCOPES.index(needed):
            assert answer.status_code == 403, path
            assert needed in answer.text
        else:
            assert answer.status_code not in (401, 403, 500), path
    assert state_of(browser) == ("archived" if used == "admin" else "running")


def test_an_admin_creates_and_revokes_tokens(empty: Browser) -> None:
    assert empty.post_form("/tokens", {"name": "web", "scope": "write"}).status_code == 422
    for name in ("", "<b>"):
        assert empty.post_form("/tokens", {"name": name, "scope": "admin"}).status_code == 422
    made = empty.post_form("/tokens", {"name": "me", "scope": "admin"})
    assert "Sign in with it" in made.text
    token = re.search(r"sa_[\w-]+", made.text)
    assert token is not None
    assert empty.get("/").headers["location"] == "/sign-in"  # at once
    empty.sign_in(token[0])
    web = empty.post_form("/tokens", {"name": "web", "scope": "write", "expires": "90 days"})
    assert token[0] not in web.text
    assert len(empty.app.state.service.storage.tokens.all()) == 2
    assert "already" in empty.post_form("/tokens", {"name": "web", "scope": "read"}).text
    assert empty.post_form("/tokens", {"remove": "web"}).status_code == 303
    last = empty.post_form("/tokens", {"remove": "me"})
    assert (last.status_code, "the last one" in last.text) == (422, True)
    assert [token.name for token in empty.app.state.service.storage.tokens.all()] == ["me"]


def test_a_session_ends_with_its_token(guarded: Guarded) -> None:
    browser, storage, tokens = guarded
    browser.sign_in(tokens["admin"])
    assert browser.get(STOP).status_code == 200
    storage.tokens.remove("admin", now=0, lock_out=True)
    assert browser.get(STOP).status_code == 303  # at once
    storage.tokens.add(new_token("admin", "admin")[1])  # another one of the same name
    browser.app.state.service.guard.reload()
    assert browser.get(STOP).status_code == 303
    assert browser.post_form(STOP).status_code == 303
    assert state_of(browser) == "running"


def test_a_session_lasts_twelve_hours(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, storage, tokens = guarded
    asked = []

    def clock(late: float) -> Callable[[], int]:
        def now() -> int:
            asked.append(threading.current_thread().name)
            return began + round(late * 1e6)

        return now

    began = storage.now()
    for late, status in ((0, 200), (access.LASTS - 60, 200), (access.LASTS + 60, 303), (60, 200)):
        monkeypatch.setattr(storage, "now", clock(late))  # of the storage, not of this process
        if late == 0:
            browser.sign_in(tokens["admin"])
        assert browser.get(STOP).status_code == status
    # Asking a server what time it is must not hold up the event loop.
    assert len(asked) >= 5
    assert all(name.startswith("steadyarm-") for name in asked)


def test_a_session_that_is_not_found_in_time_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage, free = open_storage("memory"), threading.Event()
    token = add_tokens(storage, "admin")["admin"]
    with dashboard(storage) as browser, ThreadPoolExecutor(5) as pool:
        browser.sign_in(token)
        browser.limit(1.0)
        monkeypatch.setattr(storage.sessions, "find", lambda *_: free.wait(20) and None)
        try:
            began = time.monotonic()
            paths = ("/", "/", STOP, "/nowhere", "/")
            found = [one.status_code for one in pool.map(browser.get, paths)]
            assert found == [503, 503, 503, 404, 503]
            assert time.monotonic() - began < 15
        finally:
            free.set()


def test_strangers_can_fill_no_memory(guarded: Guarded) -> None:
    browser, _, tokens = guarded
    read = list[int]()

    async def much() -> Any:
        for _ in range(100):
            read.append(1000)
            yield b"a" * 1000

    def sent(**headers: str) -> int:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = browser.request("POST", "/sign-in", content=much(), headers=kind | headers)
        return answer.status_code

    assert (sent(), read) == (403, [])  # without a session nothing is read
    key = browser.csrf()
    assert sent() == sent(**{"X-CSRF-Token": key}) == 413
    assert len(read) == 2 * (access.SMALL_FORM // 1000 + 1)
    service = browser.app.state.service
    assert service.bodies._bytes == {True: 0, False: 0}
    service.bodies._bytes[False] = STRANGERS  # others hold all that people may who did not sign in
    assert browser.sign_in(tokens["admin"]).status_code == 503
    headers = {"Authorization": f"Bearer {tokens['write']}"}
    asked = browser.post("/v1/experiments/shop/assignments", {"unit": "u"}, headers=headers)
    assert asked.status_code == 201
    service.bodies._bytes[False] = 0
    assert browser.sign_in(tokens["admin"]).status_code == 303
    assert browser.post_form(STOP).status_code == 303


def test_an_open_visit_is_worth_nothing_once_there_are_tokens() -> None:
    storage = open_storage("memory")
    create(storage)
    with dashboard(storage) as browser:
        assert browser.get(STOP).status_code == 200
        add_tokens(storage, "admin")
        browser.app.state.service.guard.reload()
        assert browser.get(STOP).status_code == 303
        assert browser.post_form(STOP).headers["location"] == "/sign-in"
        assert state_of(browser) == "running"


def test_by_https_cookies_never_travel_open() -> None:
    storage = open_storage("memory")
    tokens = add_tokens(storage, "admin")
    with dashboard(storage, https=True) as browser:
        answer = browser.get("/sign-in")
        assert answer.headers["set-cookie"].startswith("__Host-steadyarm-8000=")
        assert "Secure" in answer.headers["set-cookie"]
        found = re.search(r'name="csrf" value="([^"]+)"', answer.text)
        assert found
        fields = {"token": tokens["admin"], "csrf": found[1]}
        cookie = answer.headers["set-cookie"].partition(";")[0]
        signed = browser.request("POST", "/sign-in", data=fields, headers={"Cookie": cookie})
        assert signed.status_code == 303
        assert "Secure" in signed.headers["set-cookie"]


def test_all_workers_share_the_secret(tmp_path: Path) -> None:
    settings = ServiceSettings(secret="s" * 32, https=True)
    assert "sss" not in repr(settings)
    with pytest.raises(InvalidInputError, match="at least 16") as told:
        ServiceSettings(secret="too short")
    assert "too short" not in str(told.value)
    url = f"sqlite:///{tmp_path}/tests.db"
    with closing(open_storage(url)) as storage:
        tokens = add_tokens(storage, "admin")
    given: dict[str, Any]
    for given, status in (({"secret": "s" * 32}, 404), ({}, 303)):
        stores = open_storage(url), open_storage(url)
        with dashboard(stores[0], **given) as one, dashboard(stores[1], **given) as other:
            one.sign_in(tokens["admin"])
            other.cookies.update(one.cookies)
            assert other.get("/experiments/absent/stop").status_code == status


def test_forged_cookies_are_worth_nothing(guarded: Guarded) -> None:
    browser, _, tokens = guarded
    browser.sign_in(tokens["admin"])
    good = browser.cookies[COOKIE]
    body, signature = good.rsplit(".", 1)
    with dashboard(secret="another secret of 32 characters!") as elsewhere:
        foreign = elsewhere.app.state.access._cookies.dumps("x" * 43)
    forged = ["", "é", ".", good[:-1], good + "x", f"{body}.{signature[::-1]}"]
    forged += [f"{EMPTY}.{signature}", foreign, "\x80" * 5000]
    browser.cookies.clear()
    for cookie in forged:
        headers = [(b"Cookie", f"{COOKIE}={cookie}".encode("latin-1"))]
        assert browser.get(STOP, headers=headers).status_code == 303, cookie
        browser.cookies.clear()
    assert browser.get(STOP, headers={"Cookie": f"{COOKIE}={good}"}).status_code == 200


@pytest.mark.parametrize("open_", [False, True])
def test_posts_need_the_key_of_their_own_session(open_: bool) -> None:
    storage = open_storage("memory")
    tokens = {} if open_ else add_tokens(storage, "admin")
    create(storage)
    with dashboard(storage) as browser:

        def come() -> str:
            browser.cookies.clear()
            if not open_:
                browser.sign_in(tokens["admin"])
            return browser.csrf()

        key = come()
        mine = dict(browser.cookies)
        other = come()
        assert other != key
        refused = [browser.post_form(STOP, {"csrf": k}) for k in ("", "x", "é", other + "x", key)]
        headers = [(b"x-csrf-token", key.encode())]
        body = f'--b\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{other}\r\n--b--\r\n'
        parts = {"Content-Type": "multipart/form-data; boundary=b"}
        refused += [
            browser.request("POST", STOP, headers=headers),
            browser.request("POST", STOP),
            browser.post(STOP, {"csrf": other}),  # JSON is no form
            browser.request("POST", STOP, content=body, headers=parts),
            *(browser.post_form(STOP, headers={"Origin": origin}) for origin in OTHERS),
        ]
        assert [answer.status_code for answer in refused] == [403] * len(refused)
        assert "Load the page again" in refused[0].text
        assert state_of(browser) == "running"
        assert browser.post("/experiments/shop/pause", headers={"x-csrf-token": other}).is_redirect
        browser.cookies.clear()
        assert not browser.request("POST", STOP, data={"csrf": key}).is_success
        assert state_of(browser) == "paused"
        browser.cookies.clear()  # the refusal may have brought another
        browser.cookies.update(mine)
        own = {"Origin": "http://127.0.0.1"}
        assert browser.request("POST", STOP, data={"csrf": key}, headers=own).is_redirect
        assert state_of(browser) == "stopped"


OTHERS = (
    *("http://127.0.0.1:8001", "http://localhost", "http://evil.example", "null", "127.0.0.1"),
    "http://127.0.0.1.evil.example",
)


def test_signing_in_and_out_need_the_key_too(guarded: Guarded) -> None:
    browser, _, tokens = guarded
    answer = browser.request("POST", "/sign-in", data={"token": tokens["admin"]})
    assert answer.status_code == 403
    before = browser.csrf()
    browser.sign_in(tokens["admin"])
    assert browser.csrf() != before  # a session that others may know ends with the sign-in
    assert browser.post_form("/sign-out", {"csrf": before}).status_code == 403
    assert browser.get(STOP).status_code == 200
