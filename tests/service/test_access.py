"""Who may do what: every route times every scope, the loopback rule, tokens that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from steadyarm.service import auth, service
from steadyarm.service.app import Endpoint, create_app
from steadyarm.service.routes import ROUTES
from steadyarm.storages import open_storage
from steadyarm.storages.changes import Scope
from tests.service.clients import SHOP, InProcess, in_process

SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
TABLE = [(route.method, route.path, route.scope) for route in ROUTES]


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[InProcess, dict[str, str]]]:
    storage, tokens = open_storage("memory"), {"wrong": "sa_" + "x" * 43}
    for scope in SCOPES:
        tokens[scope], record = auth.new_token(scope, scope)
        storage.add_token(record)
    with pytest.MonkeyPatch.context() as patch, in_process(storage) as client:
        patch.setattr(auth, "FAILURES", 10_000)  # tests here send many wrong tokens
        client.post("/v1/experiments", SHOP, headers=_bearer(tokens["admin"]))
        yield client, tokens


def _bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def test_every_route_of_the_app_declares_a_scope() -> None:
    storage = open_storage("memory")
    app = create_app(storage)
    undeclared = [route for route in app.routes if not isinstance(route, Endpoint)]
    assert [getattr(route, "path", None) for route in undeclared] == ["/openapi.json"]
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
    address = path.format(name="absent", lease=1, attribute="device")
    given: dict[str, Any] = {"content": b"no json"} if method == "POST" else {}
    answer = client.request(
        method, address, headers=_bearer(None if used is None else tokens[used]), **given
    )
    if needed is None or (used in SCOPES and SCOPES.index(used) >= SCOPES.index(needed)):
        assert answer.status_code in (200, 400, 404)
    elif used in SCOPES:
        assert answer.status_code == 403
        assert needed in answer.json()["detail"]
    else:
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic c2E6eA==", "Bearer \xff\xfe"])
def test_odd_authorization_headers_are_refused(
    guarded: tuple[InProcess, dict[str, str]], header: str
) -> None:
    client, _ = guarded
    answer = client.get("/v1/experiments", headers=[(b"Authorization", header.encode("latin-1"))])
    assert answer.status_code == 401


def test_tokens_count_soon_after_they_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setattr(service, "RELOAD", 0.05)
    storage = open_storage("memory")
    with in_process(storage) as client:
        assert client.get("/v1/experiments").status_code == 200
        token, record = auth.new_token("one", "read")
        storage.add_token(record)
        time.sleep(0.5)
        assert client.get("/v1/experiments").status_code == 401
        assert client.get("/v1/experiments", headers=_bearer(token)).status_code == 200
        storage.remove_token("one", now=0, lock_out=True)
        time.sleep(0.5)
        for headers in ({}, _bearer(token)):
            answer = client.get("/v1/experiments", headers=headers)
            assert answer.status_code == 401  # once closed, never open again
            assert "steadyarm token create" in answer.json()["hint"]


def test_a_public_service_without_tokens_refuses_all() -> None:
    with in_process(host="0.0.0.0") as client:
        answer = client.get("/v1/experiments")
        assert answer.status_code == 401
        assert "token create" in answer.json()["hint"]
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
    ],
)
def test_pages_of_other_sites_cannot_use_an_open_service(
    client: InProcess, headers: dict[str, str], status: int
) -> None:
    assert client.get("/v1/experiments", headers=headers).status_code == status


def test_only_a_hash_of_a_token_is_kept() -> None:
    token, record = auth.new_token("one", "read")
    assert token.startswith("sa_")
    assert len(token) == 46
    assert token not in repr(record)
    assert record.hash == auth.hash_of(token)
