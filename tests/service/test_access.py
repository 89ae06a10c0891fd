"""Who may do what: every route times every kind of token, tokens in time, and proxies."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from steadyarm.dashboard.app import create_app as create_dashboard
from steadyarm.errors import InvalidInputError
from steadyarm.live.lifecycle import create_experiment
from steadyarm.policies import Steady
from steadyarm.service import auth, service
from steadyarm.service.app import Endpoint, Preflight, create_app
from steadyarm.service.routes import ROUTES, Route
from steadyarm.service.settings import OWN_PATHS, ServiceSettings
from steadyarm.storages import open_storage
from steadyarm.storages.service import Scope
from tests.dashboard.clients import dashboard
from tests.service.clients import SHOP, InProcess, add_token, bearer, in_process, until

SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
TABLE = [(route.method, route.path, route.scope) for route in ROUTES]
KEYS = {"its key": "absent", "key of another": "shop"}  # and the experiments that they are for
ORIGIN = "https://shop.example"
PLACES = {"attribute": "device"}  # in paths; all others are names of experiments
ALL = [pytest.param(route, id=f"{route.method} {route.path}") for route in ROUTES]


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[InProcess, dict[str, str]]]:
    storage, tokens = open_storage("memory"), {"wrong": "sa_" + "x" * 43}
    for scope in SCOPES:
        tokens[scope] = add_token(storage, scope, scope)
    for name, experiment in KEYS.items():
        tokens[name], record = auth.new_key(name, [experiment], [ORIGIN], rate=1_000_000)
        storage.tokens.add(record)
    with pytest.MonkeyPatch.context() as patch, in_process(storage) as client:
        patch.setattr(auth, "FAILURES", 10_000)  # tests here send many wrong tokens
        client.post("/v1/experiments", SHOP, headers=bearer(tokens["admin"]))
        yield client, tokens


def test_every_route_of_the_app_declares_a_scope() -> None:
    storage = open_storage("memory")
    app = create_app(storage)
    undeclared = [route for route in app.routes if not isinstance(route, (Endpoint, Preflight))]
    assert [getattr(route, "path", None) for route in undeclared] == ["/openapi.json"]
    asked = [route.route for route in app.routes if isinstance(route, Preflight)]
    assert asked == [route for route in ROUTES if route.publishable is not None]
    free = {path for _, path, scope in TABLE if scope is None}
    assert free == {"/healthz", "/readyz"}
    storage.close()


@pytest.mark.parametrize(("method", "path", "needed"), TABLE)
@pytest.mark.parametrize("used", [None, "wrong", *SCOPES])
def test_every_route_with_every_scope(
    guarded: tuple[InProcess, dict[str, str]],
    method: str,
    path: str,
    needed: Scope | None,
    used: str | None,
) -> None:
    client, tokens = guarded
    answer = _sent(client, method, path, {} if used is None else bearer(tokens[used]))
    if needed is None or (used in SCOPES and SCOPES.index(used) >= SCOPES.index(needed)):
        assert answer.status_code in (200, 400, 404)
    elif used in SCOPES:
        assert answer.status_code == 403
        ofrep = path.startswith("/ofrep/")
        assert needed in answer.json()["errorDetails" if ofrep else "detail"]
    else:
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")


def _sent(client: InProcess, method: str, path: str, headers: dict[str, str]) -> httpx2.Response:
    """The response of a route to a request that is not good, but for its token."""
    given: dict[str, Any] = {"content": b"no json"} if method == "POST" else {}
    return client.request(method, _address(path), headers=headers, **given)


def _address(path: str) -> str:
    return re.sub(r"{(\w+)}", lambda found: PLACES.get(found[1], "absent"), path)


def _cors(answer: httpx2.Response) -> dict[str, str]:
    kept = ("access-control-", "vary")
    return {name: value for name, value in answer.headers.items() if name.startswith(kept)}


@pytest.mark.parametrize("route", ALL)
@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
@pytest.mark.parametrize("used", KEYS)
def test_every_route_with_publishable_keys(
    guarded: tuple[InProcess, dict[str, str]], route: Route, header: str, used: str
) -> None:
    client, tokens = guarded
    key = {header: ("Bearer " if header == "Authorization" else "") + tokens[used]}

    def sent(**more: str) -> httpx2.Response:
        return _sent(client, route.method, route.path, key | more)

    answer = sent(Origin=ORIGIN)
    if route.scope is None:
        assert answer.status_code in (200, 503)
        assert _cors(answer) == {}
        return
    if route.publishable is None:
        assert answer.status_code == 403
        assert _cors(answer) == {}
        assert "publishable" in answer.json()["detail"]
        return
    theirs = used == "key of another" and route.publishable.parameter is not None
    assert answer.status_code == (403 if theirs else 400)
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in answer.headers
    for wrong in ({}, *({"Origin": one} for one in OTHERS)):
        answer = sent(**wrong)
        assert answer.status_code == 403, wrong
        assert _cors(answer) == {}, wrong


OTHERS = (
    *("https://evil.example", "http://shop.example", "https://shop.example:8443", "null", "none"),
    *("https://shop.example.evil.example", "https://a.shop.example", "https://shop.example/", "*"),
)


@pytest.mark.parametrize("route", ALL)
def test_every_route_before_a_page_of_another_site_calls_it(
    guarded: tuple[InProcess, dict[str, str]], route: Route
) -> None:
    client, _ = guarded

    def asked(origin: str | None, method: str = route.method) -> httpx2.Response:
        headers = {"Access-Control-Request-Method": method}
        headers |= {} if origin is None else {"Origin": origin}
        return client.request("OPTIONS", _address(route.path), headers=headers)

    answer = asked(ORIGIN)
    if route.publishable is None:
        assert (answer.status_code, _cors(answer)) == (405, {})
    else:
        assert answer.status_code == 204
        assert answer.content == b""
        assert _cors(answer) == {
            "access-control-allow-origin": ORIGIN,
            "access-control-allow-methods": route.method,
            "access-control-allow-headers": auth.SENT,
            "access-control-max-age": "600",
            "vary": "Origin",
        }
    for wrong in (asked(None), *map(asked, OTHERS), asked(ORIGIN, "DELETE"), asked(ORIGIN, "")):
        assert (wrong.status_code, _cors(wrong)) == (405, {})


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic c2E6eA==", "Bearer \xff\xfe"])
def test_odd_authorization_headers_are_refused(
    guarded: tuple[InProcess, dict[str, str]], header: str
) -> None:
    client, _ = guarded
    answer = client.get("/v1/experiments", headers=[(b"Authorization", header.encode("latin-1"))])
    assert answer.status_code == 401


def test_tokens_expire_and_say_when_they_were_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "RELOAD", 0.02)
    monkeypatch.setattr(service, "NOTED_PERIOD", 0.02)
    storage = open_storage("memory")
    short = add_token(storage, "short", "read", lasts=3.0)
    lasting = add_token(storage, "lasting")
    with dashboard(storage) as client:

        def asked() -> httpx2.Response:
            return client.get("/v1/experiments", headers=bearer(short))

        until(lambda: asked().status_code == 200)
        until(lambda: asked().status_code == 401)
        assert "expired" in asked().text
        until(lambda: storage.tokens.all()[0].used)
        used = {token.name: token.used for token in storage.tokens.all()}
        assert used["lasting"] is None
        assert used["short"] is not None
        assert abs(used["short"] / 1e6 - time.time()) < 30
        client.sign_in(lasting)
        page = client.get("/tokens").text
        assert ["expired" in page, "short" in page, short in page] == [True, True, False]
        # An expired token does not count as one that is left.
        with pytest.raises(InvalidInputError, match="the last one"):
            storage.tokens.remove("lasting", now=storage.now())


PROXY, INNER, ELSEWHERE = "10.0.0.1", "10.0.0.2", "203.0.113.9"


def come_from(client: InProcess, address: str) -> None:
    transport: Any = client._client._transport
    transport.client = (address, 5)


def test_the_rate_counts_the_visitor_behind_a_trusted_proxy_and_nobody_elses_word() -> None:
    storage = open_storage("memory")
    create_experiment("shop", ["A", "B"], Steady(), 100, storage=storage, missing="drop")
    key, record = auth.new_key("web", ["shop"], [ORIGIN], rate=5)
    storage.tokens.add(record)
    hosts = ("127.0.0.1", "tests.example.org")
    with in_process(storage, trusted_proxies=(PROXY,), allowed_hosts=hosts) as client:
        page = {"Authorization": f"Bearer {key}", "Origin": ORIGIN}

        def asked(forwarded: str) -> int:
            headers = page | {"X-Forwarded-For": forwarded}
            place = "/v1/experiments/shop/assignments"
            return client.post(place, {"unit": "u"}, headers=headers).status_code

        come_from(client, PROXY)
        assert [asked("198.51.100.7") for _ in range(6)][-2:] == [200, 429]
        assert asked("198.51.100.8") == 200
        # Whatever a visitor writes stands before what the proxy adds.
        assert asked("1.2.3.4, 198.51.100.7") == 429
        come_from(client, ELSEWHERE)
        assert [asked(f"198.51.100.{i}") for i in range(20, 26)][-2:] == [200, 429]


@pytest.mark.parametrize("proxies", [(), ("127.0.0.1",)])
def test_before_the_first_token_nobody_from_elsewhere_gets_in(proxies: tuple[str, ...]) -> None:
    with in_process(trusted_proxies=proxies) as client:
        assert client.get("/v1/experiments").status_code == 200
        for forwarded in ("127.0.0.1", "::1", "198.51.100.7"):
            headers = {"X-Forwarded-For": forwarded}
            assert client.get("/v1/experiments", headers=headers).status_code == 403
        come_from(client, ELSEWHERE)
        answer = client.get("/v1/experiments", headers={"Host": "localhost"})
        assert answer.status_code == 403
        assert "another machine" in answer.json()["detail"]


@pytest.mark.parametrize("prefix", ["/ab", ""])
def test_requests_come_with_the_root_path_or_without(prefix: str) -> None:
    with in_process(root_path="/ab/") as client:
        assert client.post(f"{prefix}/v1/experiments", SHOP).status_code == 201
        assert client.get(f"{prefix}/healthz").status_code == 200
        assert client.get(f"{prefix}/v1/experiments/shop").status_code == 200
        assert client.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/ab"}]
        for wrong in ("/abc", "/a", "/ab/ab", "/AB", "/ab/"):
            assert client.get(f"{wrong}/healthz").status_code == 404, wrong


def test_root_paths_of_our_own_pages_are_refused() -> None:
    storage = open_storage("memory")
    app = create_dashboard(storage)
    paths = {str(getattr(route, "path", "")).split("/")[1] for route in app.routes}
    assert paths - {""} <= OWN_PATHS
    for path in OWN_PATHS:
        with pytest.raises(InvalidInputError, match="which is a page of the service"):
            ServiceSettings(root_path=f"/{path}/ab")
    storage.close()


@pytest.mark.parametrize(
    ("setting", "wrong", "match"),
    [
        (
            "root_path",
            ("ab", "/a b", "/ab?", "/ab#", "//ab", "/ab/../c", "/.", "/é", "/%61"),
            "such as /ab",
        ),
        (
            "trusted_proxies",
            ("proxy", "*", "0.0.0.0/0", "::/0", "", "10.0.0.1:80", "10.0.0.0/99"),
            "trusted_proxies has",
        ),
        (
            "allowed_hosts",
            ("https://example.org", "example.org:443", "a b", "*.example.org", ""),
            "without scheme and port",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    setting: str, wrong: tuple[str, ...], match: str
) -> None:
    for value in wrong:
        given: Any = value if setting == "root_path" else (value,)
        with pytest.raises(InvalidInputError, match=match):
            ServiceSettings(**{setting: given})


def test_settings_come_from_the_environment() -> None:
    variables = {
        "STEADYARM_PORT": "0",
        "STEADYARM_REQUEST_TIMEOUT": "2.5",
        "STEADYARM_ACCESS_LOG": "false",
        "STEADYARM_ALLOWED_HOSTS": "a.example.org, 10.0.0.7",
        "STEADYARM_ROOT_PATH": "/ab/",
        "PORT": "1",
    }
    hosts = ("a.example.org", "10.0.0.7")
    expected = ServiceSettings(
        port=0, request_timeout=2.5, access_log=False, allowed_hosts=hosts, root_path="/ab"
    )
    assert ServiceSettings.from_environment(variables) == expected
    assert ServiceSettings.from_environment(variables, port=82).port == 82
    with pytest.raises(InvalidInputError, match="STEADYARM_PORT is 'x'"):
        ServiceSettings.from_environment({"STEADYARM_PORT": "x"})
