"""The service is ready when numerical code is loaded, and compiles it in the background."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from steadyarm.service import service
from tests.service.clients import InProcess, in_process


def _wait(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("in vain")


def _ready(client: InProcess) -> bool:
    return client.get("/readyz").status_code == 200


def test_it_is_alive_before_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = threading.Event()
    monkeypatch.setattr(service, "tiny_tests", lambda: iter([ready.wait]))
    with in_process(warm=True) as client:
        assert client.get("/healthz").status_code == 200
        early = client.get("/readyz")
        assert (early.status_code, early.headers["retry-after"]) == (503, "1")
        assert early.json()["type"] == "urn:steadyarm:problem:starting"
        ready.set()
        _wait(lambda: _ready(client))


def test_real_steps_are_quiet_and_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with in_process(warm=True) as client:
        _wait(lambda: _ready(client))
        assert client.get("/v1/experiments").json() == {"experiments": []}
    assert "failed" not in caplog.text
