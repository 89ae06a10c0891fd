"""Batches, logs and metrics; slow, stuck and lost things: who waits is told in time and why."""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from platform import python_version
from typing import Any

import httpx2
import pytest
import uvicorn

import steadyarm as sa
from steadyarm.errors import StorageError
from steadyarm.service import monitoring, process
from steadyarm.service import service as live_service
from steadyarm.service.service import Batcher
from steadyarm.storages import open_storage, service
from steadyarm.storages.engine import MEMORY
from steadyarm.storages.storage import Storage
from tests.service.clients import SHOP, InProcess, in_process, run_apart, running, until

BASE = "/v1/experiments/shop"


def test_items_that_arrive_during_a_batch_form_the_next() -> None:
    sizes: list[int] = []

    async def work(items: list[int]) -> list[int]:
        await asyncio.sleep(0.05)
        return [2 * item for item in items]

    async def run() -> list[Any]:
        batcher = Batcher(work, sizes.append, most=6)
        first = [batcher.put([i]) for i in range(3)]
        await asyncio.sleep(0.02)
        answers = await asyncio.gather(*first, *(batcher.put([i]) for i in range(3, 12)))
        await batcher.drain()
        return list(answers)

    assert run_apart(run()) == [[2 * i] for i in range(12)]
    assert sizes == [3, 6, 3]


def test_what_a_batch_raises_is_the_answer_to_all_and_the_next_goes_on() -> None:
    calls = 0

    async def work(items: list[int]) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StorageError("away")
        assert 3 not in items  # it was cancelled before its turn
        return items

    async def run() -> list[Any]:
        batcher = Batcher(work, lambda size: None)
        failed = await asyncio.gather(batcher.put([1]), batcher.put([2]), return_exceptions=True)
        cancelled = batcher.put([3])
        cancelled.cancel()
        return [*failed, *await batcher.put([4])]

    first, second, third = run_apart(run())
    assert isinstance(first, StorageError)
    assert first is second
    assert third == 4


def test_the_name_of_a_pruned_experiment_is_free_again() -> None:
    storage = open_storage("memory")
    with in_process(storage) as client:
        service, base = client.app.state.service, "/v1/experiments/shop"
        ids = []
        for budget in (1000, 500):
            made = client.post("/v1/experiments", SHOP | {"budget": budget})
            assert made.status_code == 201
            asked = client.post(f"{base}/assignments", {"unit": "u"})
            assert asked.status_code == 201
            ids.append(asked.json()["id"])
            assert client.get(base).json()["settings"]["budget"] == budget
            for action in ("stop", "archive"):
                client.post(f"{base}/{action}")
            later = storage.now() + 10**6
            assert storage.prune(later, later).experiments == ("shop",)  # as another process does
        assert ids[0] != ids[1]
        assert "shop" in service.live

        client.run(service.reconcile())
        assert service.live == {}
        assert client.get(base).status_code == 404


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("abc-1", True), ("a" * 101, False), ("a b", False), ("", False), ('"x', False)],
)
def test_sane_request_ids_are_kept(client: InProcess, sent: str, kept: bool) -> None:
    answer = client.get("/healthz", headers={"X-Request-ID": sent})
    assert (answer.headers["x-request-id"] == sent) is kept
    assert answer.headers["x-request-id"]


def test_metrics_count_by_route_template(shop: InProcess) -> None:
    for unit in ("a", "b", "a"):
        shop.post(f"{BASE}/assignments", {"unit": unit})
    shop.post(f"{BASE}/rewards", {"unit": "a", "reward": 1})
    shop.get("/v1/experiments/absent")
    shop.get("/some/where/else")
    text = shop.get("/metrics").text
    path = "/v1/experiments/{name}"
    for line in (
        f'steadyarm_requests_total{{method="POST",route="{path}/assignments",status="201"}} 2.0',
        f'steadyarm_requests_total{{method="GET",route="{path}",status="404"}} 1.0',
        'steadyarm_requests_total{method="GET",route="unmatched",status="404"} 1.0',
        'steadyarm_batch_size_count{kind="assignments"} 3.0',
        "steadyarm_assignments_total 2.0",
        "steadyarm_rewards_total 1.0",
        'steadyarm_experiments{state="running"} 1.0',
        'steadyarm_problems_total{kind="unknown-experiment"} 1.0',
        "steadyarm_ready 1.0",
        "steadyarm_waiting_requests 0.0",
        "steadyarm_webhook_queue 0.0",
        f'steadyarm_build_info{{python="{python_version()}",version="{sa.__version__}"}} 1.0',
    ):
        assert line in text.splitlines()
    assert 'steadyarm_request_seconds_bucket{le="0.001"' in text
    assert "process_resident_memory_bytes" in text


def test_an_outage_has_one_line_when_it_begins_and_one_when_it_ends(
    shop: InProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise StorageError("the disk is full")

    readiness = shop.app.state.service.readiness
    with caplog.at_level(logging.INFO, "steadyarm.service"):
        with monkeypatch.context() as patch:
            patch.setattr(shop.app.state.service.storage, "assign", fail)
            patch.setattr(shop.app.state.service.storage, "check", fail)
            for unit in "abcde":
                sent = shop.post(f"{BASE}/assignments", {"unit": unit})
                assert sent.status_code == 503
            shop.run(readiness.watch())
            text = shop.get("/metrics").text
        shop.run(readiness.watch())
    assert [record.message for record in caplog.records] == [
        "not ready: the disk is full",
        "ready again: the storage accepts writes",
    ]
    assert "steadyarm_storage_errors_total 5.0" in text
    assert "steadyarm_ready 0.0" in text


def test_the_access_log_has_a_line_for_every_request(capsys: pytest.CaptureFixture[str]) -> None:
    with in_process(access_log=True) as client:
        client.get("/healthz", headers={"X-Request-ID": "r1"})
        client.get("/nope%0Aforged")
    first, _ = capsys.readouterr().out.splitlines()
    assert "GET /healthz 200" in first
    assert "r1" in first


def ask(client: InProcess, unit: str, name: str = "shop") -> tuple[httpx2.Response, float]:
    """The answer, and how many seconds it took."""
    began = time.monotonic()
    answer = client.post(f"/v1/experiments/{name}/assignments", {"unit": unit})
    return answer, time.monotonic() - began


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process would hold the file like this."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
    finally:
        db.close()


def test_while_nothing_can_be_written_requests_are_told_in_time(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    with in_process(open_storage(f"sqlite:///{file}")) as client:
        client.post("/v1/experiments", SHOP)
        client.limit(0.8)
        with ThreadPoolExecutor(4) as pool, locked(file):
            stuck = [pool.submit(ask, client, f"new {i}") for i in range(3)]
            told = [one.result() for one in stuck]
            client.limit(60)
            assert client.get(BASE).status_code == 200  # reads go on
        for answer, took in told:
            assert answer.status_code == 503
            assert answer.json()["type"].endswith("timeout")
            assert answer.json()["hint"].endswith("Check before you repeat anything else.")
            assert answer.headers["Retry-After"] == "1"
            assert took < 30  # SQLite alone would wait for the lock
        until(lambda: ask(client, "new 0")[0].status_code != 503)


def test_a_slow_decision_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    going, decided, begun = threading.Event(), threading.Event(), list[str]()
    decide = sa.Steady.next_segment

    def slow(policy: Any, state: Any) -> Any:
        if state.budget == 77:
            begun.append(threading.current_thread().name)
            going.set()
            assert decided.wait(120)
        return decide(policy, state)

    shop = SHOP | {"reward_window": 60}  # so that every ask looks at the windows, too
    with in_process() as client, ThreadPoolExecutor(3) as pool:
        client.post("/v1/experiments", shop)
        client.post("/v1/experiments", shop | {"name": "slow", "budget": 77})
        monkeypatch.setattr(sa.Steady, "next_segment", slow)
        asked = pool.submit(ask, client, "u", "slow")
        others = [pool.submit(ask, client, f"u{i}", "slow") for i in range(2)]
        assert going.wait(120)
        try:
            time.sleep(0.1)  # all of them want a decision
            assert ask(client, "u")[0].status_code == 201  # opens a segment of its own, too
            assert len(begun) == 1
            for i in range(3):  # while the decision is still being made
                assert ask(client, f"u{i}")[0].status_code == 201
        finally:
            decided.set()
        assert asked.result()[0].status_code == 201
        assert [one.result()[0].status_code for one in others] == [201, 201]


def test_a_body_that_comes_slowly_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = threading.Event()

    async def slowly() -> Any:
        yield b'{"unit": '
        while not gone.is_set():
            await client.app.state.service.run_short(time.sleep, 0.05)
            yield b" "

    with in_process() as client:
        client.post("/v1/experiments", SHOP)
        client.limit(0.3)
        try:
            answer = client.post(f"{BASE}/assignments", content=slowly())
        finally:
            gone.set()
        assert answer.status_code == 503
        assert answer.json()["type"].endswith("timeout")
        assert answer.headers["Connection"] == "close"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers at once, or, at /held, after a while."""
    if scope["path"] == "/held":
        await asyncio.sleep(1.0)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def listening(most: int) -> AbstractContextManager[tuple[str, int]]:
    quiet: Any = {"lifespan": "off", "log_config": None, "access_log": False}
    http = process.LimitedProtocol
    return running(uvicorn.Config(answer, http=http, limit_concurrency=most, **quiet))


def is_closed(one: socket.socket, within: float) -> bool:
    """Whether the other side closes; what it sends before is left alone."""
    one.settimeout(within)
    try:
        while one.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def test_connections_without_a_whole_head_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HEAD", 0.5)
    with listening(100) as at, httpx2.Client() as good:
        url = f"http://{at[0]}:{at[1]}"
        assert good.get(url).text == "ok"
        silent, drip, again = (socket.create_connection(at) for _ in range(3))
        drip.sendall(b"GET / HTTP/1.1\r\nX: ")
        again.sendall(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
        assert again.recv(1000).startswith(b"HTTP/1.1 200")  # an answer may take longer
        again.sendall(b"GET / HTTP/1.1\r\nX: ")
        for one in (silent, drip, again):
            assert is_closed(one, 60)
            one.close()
        assert good.get(url).text == "ok"


def test_a_full_house_is_said_until_the_silent_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HEAD", 3.0)
    with listening(5) as at:
        url = f"http://{at[0]}:{at[1]}"
        silent = [socket.create_connection(at) for _ in range(5)]
        assert httpx2.get(url).status_code == 503
        for one in silent:
            assert is_closed(one, 60)
            one.close()
        assert httpx2.get(url).text == "ok"


ASK = "/v1/experiments/shop/assignments"


def test_a_moved_file_is_not_ready_and_comes_back_with_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "EVERY", 0.0)
    file, aside = tmp_path / "tests.db", tmp_path / "aside.db"
    with in_process(open_storage(f"sqlite:///{file}")) as client:
        assert client.post("/v1/experiments", SHOP).status_code == 201
        assert client.post(ASK, {"unit": "a"}).status_code == 201
        assert client.get("/readyz").json() == {"status": "ok"}
        file.rename(aside)
        with caplog.at_level(logging.WARNING, "steadyarm.service"):
            for _ in range(3):
                away = client.get("/readyz")
            assert client.post(ASK, {"unit": "b"}).status_code == 201  # into the moved file
            assert client.get("/healthz").status_code == 200
            aside.rename(file)
            for _ in range(2):
                assert client.get("/readyz").status_code == 200
        assert (away.status_code, away.headers["retry-after"]) == (503, "1")
        assert away.json()["detail"] == "Not ready: the file was deleted or moved."
        assert str(tmp_path) not in away.text
        answers = [client.post(ASK, {"unit": unit}).status_code for unit in ("a", "b", "c")]
        assert answers == [200, 200, 201]
        assert client.get("/v1/experiments/shop/replay").json()["agrees"]
    said = [r.message for r in caplog.records if "ready" in r.message]
    assert [line.partition(":")[0] for line in said] == ["not ready", "ready again"]
    assert str(file) in said[0]


def test_a_file_that_was_damaged_before_the_start_is_not_ready(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tests.db"
    with closing(open_storage(url)) as storage:
        test = sa.create_experiment("shop", ["A", "B"], sa.Steady(), 5000, storage, missing="drop")
        test.ask_many([f"u{i}" for i in range(5000)])
    with (tmp_path / "tests.db").open("r+b") as file:
        file.seek(-8192, 2)  # of the last rows
        file.write(b"\x7f" * 4096)
    with in_process(open_storage(url)) as client:
        until(lambda: client.get("/readyz").status_code != 200)
        assert "the file is damaged" in client.get("/readyz").json()["detail"]


def test_a_storage_that_does_not_answer_is_said_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "PROBE", 0.1)
    done, asked = threading.Event(), []

    class Frozen(Storage):
        def check(self) -> None:
            asked.append(1)
            done.wait(120)

    with in_process(Frozen(MEMORY)) as client:
        began = time.monotonic()
        answers = [client.get("/readyz") for _ in range(3)]
        assert time.monotonic() - began < 60  # nobody waits for the storage
        assert len(asked) == 1  # probes share the answer
        assert {answer.status_code for answer in answers} == {503}
        assert "has not answered within" in answers[0].json()["detail"]
        done.set()
        until(lambda: client.get("/readyz").status_code == 200)


def test_it_is_alive_before_numerical_code_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = threading.Event()
    monkeypatch.setattr(live_service, "tiny_tests", lambda: iter([loaded.wait]))
    with in_process(warm=True) as client:
        assert client.get("/healthz").status_code == 200
        early = client.get("/readyz")
        assert (early.status_code, early.headers["retry-after"]) == (503, "1")
        assert early.json()["type"] == "urn:steadyarm:problem:starting"
        loaded.set()
        until(lambda: client.get("/readyz").status_code == 200)
