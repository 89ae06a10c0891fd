"""Batches, request ids, metrics, logs, and what happens when the storage fails."""

from __future__ import annotations

import asyncio
import logging
from platform import python_version
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.errors import StorageError
from steadyarm.service.service import Batcher
from steadyarm.storages import open_storage
from tests.service.clients import SHOP, InProcess, in_process, run_apart

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
