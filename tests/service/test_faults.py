"""Every route with every fault of the storage: the right status, no secrets, and it recovers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from steadyarm.errors import StorageError
from steadyarm.service.routes import ROUTES, Route
from steadyarm.storages import open_storage
from tests.service.clients import SHOP, InProcess, in_process

UNIT = {"unit": "u"}
CONTEXT = {"context": {"targetingKey": "u"}}
BODIES: dict[str, Any] = {
    "/assignments": UNIT,
    "/assignments:batch": {"units": ["u", "v"]},
    "/rewards": UNIT | {"reward": 1},
    "/rewards:batch": {"rewards": [UNIT | {"reward": 1}]},
    "/flags/{name}": CONTEXT,
    "/flags": CONTEXT,
    "/events": UNIT | {"event": "shop"},
    "/events:batch": {"events": [UNIT | {"event": "shop"}]},
    "/v1/experiments": SHOP | {"name": "other"},
    "/roll-out": {"variant": "A", "stop": True},
    "/reopen": {"reason": "stopped by mistake"},
    "/corrections": UNIT | {"kind": "exclude", "reason": "a monitor"},
}
NOTHING_READ = ("/healthz", "/readyz", "/v1/experiments/{name}/breakdowns/{attribute}")
TOUCHING = [route for route in ROUTES if route.path not in NOTHING_READ]


class Faulty:
    """A database of which every use fails."""

    def __init__(self, fail: Callable[..., Any]) -> None:
        self._fail = fail

    def __getattr__(self, name: str) -> Any:
        return self._fail


@pytest.fixture(scope="module")
def shop() -> Iterator[InProcess]:
    with in_process(open_storage("memory")) as client:
        assert client.post("/v1/experiments", SHOP | {"bulk": True}).status_code == 201
        assert client.post("/v1/experiments/shop/assignments", UNIT).status_code == 201
        yield client


def request(client: InProcess, route: Route) -> Any:
    path = route.path.format(name="shop", attribute="device")
    ends = [end for end in BODIES if route.method == "POST" and route.path.endswith(end)]
    given = {"json": BODIES[max(ends, key=len)]} if ends else {}
    return client.request(route.method, path, headers={"X-Request-ID": "r7"}, **given)


@pytest.mark.parametrize("route", TOUCHING, ids=lambda route: f"{route.method} {route.path}")
@pytest.mark.parametrize("fault", ["away", "bug", "stuck"])
def test_every_route_with_every_fault_of_the_storage(
    shop: InProcess,
    route: Route,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    released = threading.Event()

    def fail(*_: Any, **__: Any) -> Any:
        if fault == "stuck":
            released.wait(10)
        raise KeyError("secret-key") if fault == "bug" else StorageError("secret-host:5432 refuses")

    service = shop.app.state.service
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(service.storage, "_database", Faulty(fail))
        patch.setattr("steadyarm.service.service.LONG", 1)
        shop.limit(0.1 if fault == "stuck" else 60)
        answer = request(shop, route)
        shop.limit(60)
        released.set()
        assert shop.get("/healthz").status_code == 200
    status = 500 if fault == "bug" else 503
    if answer.status_code == 200 and route.path == "/metrics":  # which tell of the fault
        assert fault == "away"
        assert "steadyarm_ready" in answer.text
        assert "steadyarm_experiments" not in answer.text
        return
    if answer.status_code == 200:  # errors of a batch stand in their places
        assert route.path.endswith(":batch")
        (entry,) = answer.json()["events"]
        assert entry["experiments"][0]["error"]["status"] == status
    else:
        assert answer.status_code == status, answer.text
    assert "secret" not in answer.text
    if fault != "bug":
        assert answer.headers.get("retry-after", "1") == "1"
    if fault != "stuck":
        assert "secret" in caplog.text
    if fault == "bug":
        assert "r7" in caplog.text
    for batch in service.live.values():
        shop.run(batch.drain())
    assert shop.get("/readyz").status_code == 200  # so that the next fault is logged again
    assert shop.post("/v1/experiments/shop/assignments", UNIT).status_code == 200


def test_units_keep_their_variants_while_nothing_can_be_written(
    shop: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/v1/experiments/shop/assignments"
    shown = shop.post(path, UNIT).json()

    def fail(*_: Any, **__: Any) -> Any:
        raise StorageError("the disk is full")

    monkeypatch.setattr(shop.app.state.service.storage, "assign", fail)
    kept = shop.post(path, UNIT)
    assert (kept.status_code, kept.json()["arm"]) == (200, shown["arm"])
    assert shop.post(path, {"unit": "new"}).status_code == 503
    both = shop.post(f"{path}:batch", {"units": ["u", "new"]}).json()["assignments"]
    assert both[0]["arm"] == shown["arm"]
    assert both[1]["error"]["status"] == 503
