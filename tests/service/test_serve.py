"""The real server: `steadyarm serve` as a process, from its greeting to a graceful end."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import httpx2
import pytest

from steadyarm.cli.main import main
from steadyarm.service.auth import new_token
from steadyarm.storages import open_storage
from tests.service.clients import SHOP, served, until


def test_a_server_is_greeted_used_and_ended_gracefully(tmp_path: Path) -> None:
    variables = {"STEADYARM_WARM": "true", "STEADYARM_ACCESS_LOG": "true"}
    with served(tmp_path, "--log-format", "json", **variables) as server:
        greeting = json.loads(server.said.splitlines()[0])
        _, storage, access = greeting["message"].splitlines()
        assert storage == f"  storage: SQLite, {tmp_path}/tests.db"
        assert "no tokens" in access
        with httpx2.Client(base_url=server.url) as client:
            created = client.post("/v1/experiments", json=SHOP | {"budget": 100_000})
            assert created.status_code == 201
            big = client.post("/v1/experiments/shop/assignments", content=b"x" * 1_500_000)
            assert big.status_code == 413
        stored: list[str] = []

        def ask(thread: int) -> None:
            url = "/v1/experiments/shop/assignments"
            with suppress(httpx2.TransportError), httpx2.Client(base_url=server.url) as client:
                for i in range(10_000):
                    answer = client.post(url, json={"unit": f"{thread}-{i}"})
                    assert answer.status_code == 201
                    stored.append(answer.json()["id"])

        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(ask, thread) for thread in range(8)]
            until(lambda: len(stored) > 50)
            assert server.end() == 0
            for one in asking:
                one.result()
        logged = [json.loads(line) for line in server.said.splitlines()]
    assert logged[-1]["message"] == "steadyarm: stopped"
    assert {line["time"][-1] for line in logged} == {"Z"}
    request = next(line for line in logged if line.get("status") == 201)
    assert (request["client"], request["level"], request["token"]) == ("127.0.0.1", "info", None)
    assert sum(line.get("status") == 201 for line in logged) >= len(stored)
    with closing(open_storage(f"sqlite:///{tmp_path}/tests.db")) as storage:
        kept = storage.log(storage.find("shop").key, most=100_000)
        assert len(kept) >= len(stored) == len(set(stored))


def test_a_reload_under_load_refuses_no_request(tmp_path: Path) -> None:
    with served(tmp_path, STEADYARM_SECRTE="typing error") as server:
        url = f"{server.url}/v1/experiments"
        assert httpx2.post(url, json=SHOP | {"budget": 100_000}).status_code == 201
        done, statuses = threading.Event(), list[int]()

        def ask(thread: int) -> None:
            each_alone = {"Connection": "close"}  # as a proxy opens one for every request
            with httpx2.Client(headers=each_alone, timeout=60) as client:
                for i in itertools.takewhile(lambda _: not done.is_set(), itertools.count()):
                    unit = {"unit": f"{thread}-{i}"}
                    statuses.append(client.post(f"{url}/shop/assignments", json=unit).status_code)

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask, thread) for thread in range(4)]
            try:
                until(lambda: len(statuses) > 50)
                server.process.send_signal(signal.SIGHUP)
                until(lambda: server.said.count("STEADYARM_SECRTE") > 1 and server.is_ready())
                before = len(statuses)
                until(lambda: len(statuses) > before + 50)
            finally:
                done.set()
            for one in asking:
                one.result()
        assert server.end() == 0
        assert "Traceback" not in server.said
    assert set(statuses) == {201}


def test_at_the_end_new_connections_are_refused_and_requests_on_their_way_answered(
    tmp_path: Path,
) -> None:
    with served(tmp_path, "--clock-from", "2026-03-01T23:59", "--clock-speed", "10000") as server:
        assert "rehearsal" in server.said  # whose clock is its own
        assert httpx2.post(f"{server.url}/v1/experiments", json=SHOP).status_code == 201
        created = httpx2.get(f"{server.url}/v1/experiments/shop").json()["created"]
        assert created.startswith("2026-03-0")
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        head = "POST /v1/experiments HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{"
        with socket.create_connection(address) as going:
            going.sendall(head.encode())
            time.sleep(0.5)
            server.process.send_signal(signal.SIGTERM)
            until(lambda: is_refused(address))  # so that a proxy takes another process
            assert server.process.poll() is None
            going.sendall(b"}")
            assert going.recv(65536).startswith(b"HTTP/1.1 422")
        assert server.end() == 0


def is_refused(address: tuple[str, int]) -> bool:
    with suppress(ConnectionResetError):  # it waited in the queue when this was closed
        try:
            socket.create_connection(address).close()
        except ConnectionRefusedError:
            return True
    return False


def test_an_interruption_during_the_start_shows_no_traceback() -> None:
    words = ["-m", "steadyarm", "serve", "--port", "0", "--storage", "memory"]
    process = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("SteadyArm serves")
    assert process.stdout.readline() == "  storage: memory (gone when the server ends)\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    rest, _ = process.communicate(timeout=120)
    assert "Traceback" not in rest
    assert rest.splitlines()[-1] == "steadyarm: stopped"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--storage", "sqlite:///{folder}/a.db", "--port", "{taken}"], "another --port"),
        (["--storage", "sqlite:///{folder}/a.db", "--host", "0.0.0.0"], "token create"),
        (["--storage", "sqlite:///{folder}/no/a.db"], "folder"),
        (["--storage", "memory", "--max-batch", "0"], "max_batch is 0"),
        (["--storage", "memory", "--clock-from", "soon"], "a time such as 2026-03-01T08:00"),
        (["--storage", "memory", "--clock-speed", "9"], "beside clock_from"),
        (["--storage", "sqlite:///{folder}/real.db", "--clock-from", "2026-03-01"], "are real"),
    ],
)
def test_what_cannot_be_served_is_told(
    tmp_path: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(open_storage(f"sqlite:///{tmp_path}/real.db")) as real:
        real.tokens.add(new_token("me", "admin")[1])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        typed = [word.format(folder=tmp_path, taken=port) for word in words]
        assert main(["serve", *typed]) == 1
        assert told in capsys.readouterr().err
