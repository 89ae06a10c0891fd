"""The attack list: ways in that were tried on a real service, each with what it must answer.

Slow connections are in the tests of serving, formulas in the tests of exports.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import socket
import sqlite3
import time
from contextlib import ExitStack, closing, suppress
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from zipfile import ZipFile

import httpx2
import pytest

import steadyarm as sa
from steadyarm.cli.main import build_parser, main
from steadyarm.live.export import read_export
from steadyarm.service import auth, service
from steadyarm.storages import open_storage
from steadyarm.storages.service import Scope
from tests.dashboard.clients import dashboard
from tests.service.clients import SHOP, add_token, bearer, in_process, listening, until

GUIDE = (Path(__file__).parents[2] / "docs/operate/production.md").read_text()
BASE = "/v1/experiments/shop"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens count soon after they come and go."""
    monkeypatch.setattr(service, "RELOAD", 0.05)


def token_in(storage: str, name: str = "me", scope: Scope = "admin") -> str:
    with closing(open_storage(storage)) as opened:
        return add_token(opened, name, scope)


def raw(url: str, *lines: str, body: str = "") -> tuple[int, str]:
    """Send these very lines; the status, and all that was answered."""
    host, port = url.removeprefix("http://").split(":")
    head = [*lines, f"Content-Length: {len(body)}", "Connection: close", "", body]
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall("\r\n".join(head).encode())
        told = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return int(told.split()[1]), told


DIRECT = ("GET /v1/experiments HTTP/1.1", "Host: localhost")
FROM_ELSEWHERE = {
    "name of another host": ("GET /v1/experiments HTTP/1.1", "Host: tests.example.org"),
    "name like ours": ("GET /v1/experiments HTTP/1.1", "Host: localhost.example.org"),
    "name behind ours": ("GET /v1/experiments HTTP/1.1", "Host: localhost:8000@example.org"),
    "two names": (*DIRECT, "Host: tests.example.org"),
    "no name": ("GET /v1/experiments HTTP/1.1", "Accept: */*"),
    "a proxy's version": ("GET /v1/experiments HTTP/1.0", "Host: localhost"),
    "page of another site": (*DIRECT, "Origin: https://tests.example.org"),
    "page without an origin": (*DIRECT, "Origin: null"),
    **{
        line.partition(":")[0]: (*DIRECT, line)
        for line in (
            *("Forwarded: for=10.1.2.3", "X-Forwarded-For: 127.0.0.1", "x-forwarded-proto: https"),
            *("X-Forwarded-Host: localhost", "X-Real-IP: 127.0.0.1", "Via: 1.1 proxy"),
            *("CF-Connecting-IP: 10.1.2.3", "True-Client-IP: 10.1.2.3", "X-Envoy-Internal: true"),
        )
    },
}


def test_before_the_first_token_only_direct_connections_get_in(tmp_path: Path) -> None:
    with listening(f"sqlite:///{tmp_path}/a.db") as url:
        for host in ("localhost", "LOCALHOST:8000", "127.0.0.1", "127.8.8.8:1", "[::1]:8000"):
            assert raw(url, DIRECT[0], f"Host: {host}")[0] == 200, host
        assert raw(url, *DIRECT, "Origin: http://localhost:3000")[0] == 200
        for what, lines in FROM_ELSEWHERE.items():
            status, told = raw(url, *lines)
            assert status in (400, 403), what
            if status == 403:
                assert "steadyarm token create" in told, what
            page = lines[0].replace("/v1/experiments", "/"), *lines[1:]
            assert raw(url, *page, "Accept: text/html")[0] in (400, 403), what
        status, _ = raw(
            *(url, "POST /v1/experiments HTTP/1.1", "Host: localhost", "X-Forwarded-For: ::1"),
            body=json.dumps(SHOP),
        )
        assert status == 403
        assert json.loads(raw(url, *DIRECT)[1].rpartition("\r\n")[2])["experiments"] == []


def test_removing_the_last_token_lets_nobody_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = f"sqlite:///{tmp_path}/a.db"
    at = ["--storage", storage]
    token = token_in(storage)
    token_in(storage, "shop", "write")
    attack = ("POST /v1/experiments HTTP/1.1", "Host: localhost", "Content-Type: application/json")
    with listening(storage, allowed_hosts=("localhost",)) as url:
        headers = bearer(token) | {"Host": "localhost"}
        assert httpx2.get(f"{url}/metrics", headers=headers).is_success
        assert main(["token", "remove", "me", *at]) == 1
        assert "nobody could administer the service" in capsys.readouterr().err
        assert main(["token", "remove", "me", "--lock-out", *at]) == 0
        assert main(["token", "remove", "shop", *at]) == 1
        assert main(["token", "remove", "shop", "--lock-out", *at]) == 0
        page = ("GET /sign-in HTTP/1.1", "Host: localhost", "Accept: text/html")
        until(lambda: raw(url, *page)[0] == 401)
        for more in ((), ("X-Forwarded-For: 10.1.2.3",), (f"Authorization: Bearer {token}",)):
            status, told = raw(url, *attack, *more, body=json.dumps(SHOP))
            assert status == 401
            assert "steadyarm token create" in told
        for asked in (page, ("GET / HTTP/1.1", *page[1:])):
            status, told = raw(url, *asked)
            assert status == 401
            assert "steadyarm token create" in told
    with listening(storage) as url:  # nor does a restart
        assert raw(url, *attack, body=json.dumps(SHOP))[0] == 401
        new = token_in(storage, "again")
        until(lambda: httpx2.get(f"{url}/v1/experiments", headers=bearer(new)).is_success)
    with closing(open_storage(storage)) as opened:
        done = [(entry.action, entry.detail["name"]) for entry in opened.audit()]
    created, removed = "token.created", "token.removed"
    names = [(created, "me"), (created, "shop"), (removed, "me"), (removed, "shop")]
    assert done == [*names, (created, "again")]


@pytest.mark.parametrize("hosts", ["", "Host: a\r\nHost: b\r\n"])
def test_a_request_needs_exactly_one_host(tmp_path: Path, hosts: str) -> None:
    storage = f"sqlite:///{tmp_path}/a.db"
    head = f"GET /v1/experiments HTTP/1.1\r\n{hosts}X-API-Key: {token_in(storage)}\r\n\r\n"
    with listening(storage) as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port or 80), timeout=60) as sent:
            sent.sendall(head.encode())
            answer = sent.recv(1000)
    assert answer.startswith(b"HTTP/1.1 400")


def test_a_copied_cookie_ends_with_signing_out_in_every_process(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/a.db"
    token = token_in(storage)
    with ExitStack() as stack:
        one, other = (stack.enter_context(listening(storage, port=8000)) for _ in range(2))
        person = stack.enter_context(httpx2.Client(base_url=one, headers={"Accept": "text/html"}))
        thief = stack.enter_context(httpx2.Client(base_url=other, headers={"Accept": "text/html"}))
        key = _key(person, "/sign-in")
        assert person.post("/sign-in", data={"csrf": key, "token": token}).status_code == 303
        thief.cookies.update(dict(person.cookies))
        stolen = _key(thief, "/new")
        with closing(sqlite3.connect(tmp_path / "a.db")) as database:
            rows = database.execute("SELECT id, token FROM steadyarm_sessions").fetchall()
        assert [len(value) for value in rows[0]] == [64, 64]
        inside = next(iter(thief.cookies.values())).partition(".")[0]
        assert rows[0][0] not in inside
        assert person.post("/sign-out", data={"csrf": _key(person, "/new")}).status_code == 303
        person.cookies.update(dict(thief.cookies))
        for client in (thief, person):
            assert client.get("/new").headers["location"] == "/sign-in?next=/new"
            sent = client.post("/new", data={"csrf": stolen, "name": "x"})
            assert sent.headers["location"] == "/sign-in"


def _key(client: httpx2.Client, path: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(path).text)
    assert found
    return found[1]


def test_assignments_of_another_experiment_are_not_known(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path}/a.db")
    with in_process(storage) as client:
        ids = {}
        for name in ("ours", "theirs"):
            assert client.post("/v1/experiments", SHOP | {"name": name}).status_code == 201
            given = client.post(f"/v1/experiments/{name}/assignments", {"unit": f"{name} 1"})
            ids[name] = given.json()["id"]
        (tag, *place, check), foreign = ids["ours"].split("-"), ids["theirs"].split("-")
        forged = [
            ids["theirs"],
            "-".join([tag, *foreign[1:]]),  # their unit at our place
            "-".join([tag, *place, foreign[-1]]),
            "-".join([foreign[0], *place, check]),
            *(f"{tag}-{segment}-{at}-{check}" for segment, at in ((0, 1), (1, 0), (-1, 0))),
            *(f"{tag}-{segment}-{at}-{check}" for segment, at in ((2**40, 0), (0, 2**40))),
            ids["ours"] + "0",
            ids["ours"].upper(),
        ]
        rewards = [{"assignment": id_, "reward": 1} for id_ in forged]
        for told in (*rewards, {"unit": "theirs 1", "reward": 1}):
            answer = client.post("/v1/experiments/ours/rewards", told)
            assert answer.status_code == 404, told
            assert answer.json()["type"] == "urn:steadyarm:problem:unknown-assignment"
        assert [summary.rewarded for summary in storage.summaries()] == [0, 0]
        mine = client.post("/v1/experiments/ours/rewards", {"assignment": ids["ours"], "reward": 1})
        assert mine.status_code == 201


def test_guessing_tokens_is_limited_and_who_has_one_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = open_storage("memory")
    token, record = auth.new_token("me", "admin")
    storage.tokens.add(record)
    now = [1000.0]
    with in_process(storage) as client, caplog.at_level(logging.WARNING, "steadyarm.service"):
        guard = client.app.state.service.guard
        guard._failures = auth.PerMinute(auth.ADDRESSES, lambda: now[0])
        guess = bearer("sa_" + "x" * 43)
        found = [client.get("/v1/experiments", headers=guess) for _ in range(auth.FAILURES + 10)]
        assert [one.status_code for one in found] == [401] * auth.FAILURES + [429] * 10
        assert found[-1].json()["type"] == "urn:steadyarm:problem:too-many-failures"
        assert found[-1].headers["retry-after"] == "60"
        assert client.get("/v1/experiments", headers=bearer(token)).status_code == 200
        assert client.get("/v1/experiments").status_code == 401  # no guess
        now[0] += 45
        assert client.get("/v1/experiments", headers=guess).headers["retry-after"] == "15"
        assert len(caplog.records) == 1
        now[0] += 15
        found = [client.get("/v1/experiments", headers=guess) for _ in range(auth.FAILURES + 9)]
        assert [one.status_code for one in found] == [401] * auth.FAILURES + [429] * 9
        assert len(caplog.records) == 2  # once a minute
    storage = open_storage("memory")
    storage.tokens.add(record)
    with dashboard(storage) as browser:  # on its pages, too
        guesses = [browser.sign_in(f"sa_{i}") for i in range(auth.FAILURES + 1)]
        assert [one.status_code for one in guesses] == [403] * auth.FAILURES + [429]
        assert "You can try another one" in guesses[-1].text
        assert browser.sign_in(token).status_code == 303


def test_failures_of_many_addresses_are_bounded() -> None:
    now = [0.0]
    counted = auth.PerMinute(auth.ADDRESSES, lambda: now[0])
    failures = SimpleNamespace(add=lambda address: counted.add(address, auth.FAILURES))
    for i in range(auth.ADDRESSES + 100):
        assert failures.add(f"10.0.{i // 250}.{i % 250}") == 0
    assert len(counted) == auth.ADDRESSES
    for host in range(auth.FAILURES):
        assert failures.add(f"2001:db8:1:2::{host:x}") == 0
    assert failures.add("2001:db8:1:2:ffff::1") == 60  # one subscriber has 2⁶⁴ addresses
    assert failures.add("2001:db8:1:3::1") == 0
    assert [failures.add("unix socket") for _ in range(21)][-1] == 60
    assert [failures.add("::ffff:10.9.9.9") for _ in range(21)][-1] == 60
    assert failures.add("10.9.9.9") == 60
    assert counted.add("10.9.9.9", auth.FAILURES, what="something else") == 0
    now[0] = 60.0
    assert [failures.add("10.9.9.9") for _ in range(21)] == [0] * 20 + [60]


HOSTS = ("tests.example.org", "10.0.0.7", "fd00::7")


def test_names_of_the_service_are_declared() -> None:
    storage = open_storage("memory")
    token = add_token(storage)
    with in_process(storage, allowed_hosts=HOSTS) as client:
        for host, status in (
            *(("tests.example.org", 200), ("Tests.Example.ORG:443", 200), ("10.0.0.7:8000", 200)),
            *(("[fd00::7]:8000", 200), ("evil.example", 400), ("localhost", 400)),
            ("x.tests.example.org", 400),
        ):
            headers = bearer(token) | {"Host": host, "X-Forwarded-Host": HOSTS[0]}
            for path in ("/v1/experiments", "/openapi.json"):
                assert client.get(path, headers=headers).status_code == status, host
            for path in ("/healthz", "/readyz"):
                assert client.get(path, headers=headers).status_code == 200


def test_large_heads_and_announced_bodies_are_refused(tmp_path: Path) -> None:
    with listening(f"sqlite:///{tmp_path}/a.db") as url:
        assert raw(url, *DIRECT, f"X-Filling: {'x' * 60_000}")[0] == 200
        assert raw(url, *DIRECT, f"X-Filling: {'x' * 70_000}")[0] == 431
        assert raw(url, *DIRECT, *("X-Filling: " + "x" * 7_000 for _ in range(10)))[0] == 431
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nX: ")
            with suppress(OSError):
                for _ in range(100):  # a head that never ends
                    connection.sendall(b"x" * 10_000)
                    time.sleep(0.001)
                raise AssertionError("nobody ended it")
        lines = ("POST /v1/experiments HTTP/1.1", "Host: localhost", "Content-Length: 100000000")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall("\r\n".join([*lines, "", "{"]).encode())
            assert connection.recv(65536).startswith(b"HTTP/1.1 413")


def test_the_proxy_of_the_guide_works_and_opens_nothing(tmp_path: Path) -> None:
    block = re.search(r"```nginx\n(.*?)```", GUIDE, re.DOTALL)
    command = re.search(r"^(steadyarm serve --allowed-host .*?)( *#.*)?$", GUIDE, re.MULTILINE)
    assert block
    assert command
    values = {"$host": "example.org", "$http_host": "example.org", "$scheme": "https"}
    values["$proxy_add_x_forwarded_for"] = "10.1.2.3"
    passed = dict(re.findall(r"proxy_set_header (\S+) +(\S+);", block[1]))
    headers = {name: values[value] for name, value in passed.items()}
    version = re.search(r"proxy_http_version (\S+);", block[1])
    assert version
    args = build_parser().parse_args(shlex.split(command[1])[1:])
    asked = (
        f"GET /v1/experiments HTTP/{version[1]}",
        *(f"{name}: {value}" for name, value in headers.items()),
    )
    storage = f"sqlite:///{tmp_path}/a.db"
    hosts, proxies = tuple(args.allowed_hosts), tuple(args.trusted_proxies)
    with listening(storage, allowed_hosts=hosts, trusted_proxies=proxies) as url:
        assert raw(url, *asked)[0] == 403
        assert raw(url, *(line.replace("example.org", "localhost") for line in asked))[0] == 400
        token = token_in(storage)
        until(lambda: raw(url, *asked)[0] == 401)
        assert raw(url, *asked, f"Authorization: Bearer {token}")[0] == 200
        page = asked[0].replace("/v1/experiments", "/sign-in"), *asked[1:], "Accept: text/html"
        status, told = raw(url, *page)
        assert status == 200
        assert "__Host-steadyarm-" in told


def test_exports_are_sent_while_they_are_made_and_are_limited_in_number(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with closing(open_storage(url)) as storage:
        test = sa.create_experiment(
            "shop", ["A", "B"], sa.Uniform(), 20_000, storage, missing="drop", seed=1
        )
        test.ask_many([f"unit {i}" for i in range(20_000)])
    small = httpx2.HTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)])
    with ExitStack() as stack:
        address = stack.enter_context(listening(url))
        client = stack.enter_context(httpx2.Client(base_url=address, transport=small))
        exports = [
            stack.enter_context(client.stream("GET", f"{BASE}/export?format={form}"))
            for form in ("csv", "csv")
        ]
        parts = [export.iter_raw() for export in exports]
        assert next(parts[0]).startswith(b"timestamp,unit,arm")
        assert next(parts[1]).startswith(b"timestamp,unit,arm")
        # Both wait for their readers now. A third is refused; everything else goes on.
        refused = client.get(f"{BASE}/export")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        assert client.get(f"{BASE}/replay").status_code == 429
        assert client.get("/metrics").status_code == 200
        assert client.get("/v1/experiments").status_code == 200
        assert b"".join(parts[0]).count(b"\r\n") >= 20_000 - 1
        exports[1].close()  # half of it
        until(lambda: client.get(f"{BASE}/replay").status_code != 429)
        zipped = client.get(f"{BASE}/export?format=zip", timeout=60).content
    folder = tmp_path / "zip"
    with ZipFile(BytesIO(zipped)) as file:
        file.extractall(folder)
    assert read_export(folder / "shop.csv").snapshot.experiment.name == "shop"
