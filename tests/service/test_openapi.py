"""The OpenAPI document is true: requests made from it get the answers that it promises."""

from __future__ import annotations

from collections.abc import Iterator
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

from steadyarm.service.problems import KINDS, MEDIA
from steadyarm.service.routes import document
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
