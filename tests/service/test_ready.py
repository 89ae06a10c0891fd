"""Ready means writable: probes say why not, once in the log, and it comes back by itself."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

import steadyarm as sa
from steadyarm.service import monitoring
from steadyarm.service import service as live_service
from steadyarm.storages import open_storage, service
from steadyarm.storages.engine import MEMORY
from steadyarm.storages.storage import Storage
from tests.service.clients import SHOP, in_process, until

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
        assert client.get("/readyz").status_code == 200


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
