"""Every route: its answers are those documented, with right, wrong and failing requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from steadyarm.errors import StorageError
from steadyarm.service.problems import KINDS, MEDIA
from steadyarm.service.routes import ROUTES, Route, document
from steadyarm.storages import open_storage
from steadyarm.wire.responses import PROBLEM
from tests.service.clients import SHOP, InProcess, in_process

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
DOCUMENT = document()

OPERATIONS = [(path, method) for path, told in DOCUMENT["paths"].items() for method in told]


@pytest.fixture(scope="module")
def api() -> BaseSchema:
    """The document, as requests are made from it: right ones and wrong ones."""
    found = schemathesis.openapi.from_dict(DOCUMENT)
    found.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    return found


@pytest.fixture(scope="module")
def busy() -> Iterator[InProcess]:
    """A shop with some traffic, which half of all generated requests go to."""
    with in_process() as client:
        client.post("/v1/experiments", SHOP)
        units = [f"u{i}" for i in range(300)]
        client.post("/v1/experiments/shop/assignments:batch", {"units": units})
        rewards = [{"unit": unit, "reward": 1} for unit in units]
        client.post("/v1/experiments/shop/rewards:batch", {"rewards": rewards})
        yield client


@settings(
    max_examples=6,
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def _answer_is_documented(case: Any, busy: InProcess) -> None:
    stateful = case.path.endswith(("/start", "/pause", "/resume", "/stop", "/archive"))
    if (
        "name" in case.path_parameters
        and len(str(case.path_parameters["name"])) % 2
        and not stateful
    ):
        case.path_parameters["name"] = "shop"
    given = case.as_transport_kwargs(base_url="http://127.0.0.1")
    if isinstance(given.get("data"), bytes | str):
        given["content"] = given.pop("data")
    wanted = ("method", "params", "headers", "json", "data", "content")
    answer = busy.request(
        path=given["url"], **{k: given[k] for k in wanted if given.get(k) is not None}
    )
    case.validate_response(answer, checks=CHECKS)
    if answer.status_code >= 400 and answer.headers["content-type"] == MEDIA:
        kind = answer.json()["type"].removeprefix(PROBLEM)
        assert KINDS[kind][0] == answer.status_code


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_answers_are_those_documented(
    path: str, method: str, api: BaseSchema, busy: InProcess
) -> None:
    # `schema.parametrize` makes all requests, which takes seconds, in every process that collects.
    run = build_operation_test(
        config=api.config,
        operation=api[path][method],
        test_func=_answer_is_documented,
        given_kwargs={},
        feedback=FeedbackSources(),
    )
    run(busy=busy)


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
    def __init__(self, fail: Callable[..., Any]) -> None:
        self._fail = fail

    def __getattr__(self, name: str) -> Any:
        return self._fail


@pytest.fixture(scope="module")
def faulty() -> Iterator[InProcess]:
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
    faulty: InProcess,
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

    service = faulty.app.state.service
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(service.storage, "_database", Faulty(fail))
        patch.setattr("steadyarm.service.service.LONG", 1)
        faulty.limit(0.1 if fault == "stuck" else 60)
        answer = request(faulty, route)
        faulty.limit(60)
        released.set()
        assert faulty.get("/healthz").status_code == 200
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
        faulty.run(batch.drain())
    assert faulty.get("/readyz").status_code == 200  # so that the next fault is logged again
    assert faulty.post("/v1/experiments/shop/assignments", UNIT).status_code == 200


def test_units_keep_their_variants_while_nothing_can_be_written(
    faulty: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/v1/experiments/shop/assignments"
    shown = faulty.post(path, UNIT).json()

    def fail(*_: Any, **__: Any) -> Any:
        raise StorageError("the disk is full")

    monkeypatch.setattr(faulty.app.state.service.storage, "assign", fail)
    kept = faulty.post(path, UNIT)
    assert (kept.status_code, kept.json()["arm"]) == (200, shown["arm"])
    assert faulty.post(path, {"unit": "new"}).status_code == 503
    both = faulty.post(f"{path}:batch", {"units": ["u", "new"]}).json()["assignments"]
    assert both[0]["arm"] == shown["arm"]
    assert both[1]["error"]["status"] == 503
