"""The community's OFREP provider for Python, as PyPI has it, against a real server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason

import steadyarm as sa
from steadyarm.service.auth import new_token
from steadyarm.storages import open_storage
from tests.service.clients import SHOP, Server, served

VARIANTS = {"A", "B", "C"}


@contextmanager
def openfeature(url: str, token: str | None = None) -> Iterator[OpenFeatureClient]:
    """A client of OpenFeature with the provider; the line that an application changes."""
    headers = None if token is None else {"Authorization": f"Bearer {token}"}
    provider = OFREPProvider(url, headers_factory=None if headers is None else lambda: headers)
    api.set_provider(provider)
    try:
        yield api.get_client()
    finally:
        api.shutdown()
        provider.session.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with served(tmp_path) as found:
        yield found


def post(server: Server, path: str, body: object) -> httpx2.Response:
    return httpx2.post(f"{server.url}{path}", json=body, timeout=30)


def test_a_whole_test_is_run_through_the_community_provider(server: Server, tmp_path: Path) -> None:
    """A shop of 150 visitors, of whom those who see B buy: B is what is shown in the end."""
    post(server, "/v1/experiments", SHOP | {"budget": 150, "attributes": {"device": ["m", "d"]}})
    with openfeature(server.url) as client:
        seen: dict[str, str] = {}
        for i in range(150):
            visitor = EvaluationContext(f"visitor {i}", {"device": "md"[i % 2], "age": 30 + i % 9})
            details = client.get_string_details("shop", "A", visitor)
            assert details.error_code is None
            assert details.reason == Reason.SPLIT
            assert details.value == details.variant
            assert details.value in VARIANTS
            assert details.flag_metadata["experiment"] == "shop"
            assert details.flag_metadata["inTest"] is True
            probability = details.flag_metadata["probability"]
            assert isinstance(probability, float)
            assert 0 < probability < 1
            seen[f"visitor {i}"] = details.value
            event = {"unit": f"visitor {i}", "event": "shop", "value": float(details.value == "B")}
            stored = post(server, "/v1/events", event).json()["experiments"]
            assert stored == [{"name": "shop", "status": "stored"}]
        again = EvaluationContext("visitor 7", {"device": "m"})
        assert client.get_string_value("shop", "A", again) == seen["visitor 7"]
        late = client.get_string_details("shop", "A", EvaluationContext("visitor 150"))
        assert (late.value, late.reason, late.error_code) == ("B", Reason.STATIC, None)
        assert late.flag_metadata == {"experiment": "shop", "inTest": False}
    storage = open_storage(f"sqlite:///{tmp_path}/tests.db")
    shop = sa.load_experiment("shop", storage)
    assert shop.status().total_assigned == shop.status().total_rewarded == 150
    assert shop.recommend().name == "B"
    rows = shop.storage.log(shop.key)
    assert {row.unit: shop.arms.names[row.arm] for row in rows} == seen
    assert {row.events[0].metric for row in rows} == {"device=m", "device=d"}
    storage.close()


def test_a_variant_may_be_of_any_type_of_flag(server: Server) -> None:
    arms: dict[str, Any] = {"arms": ["A", "B"]}
    parts = {"factorial": {"headline": ["long", "short"], "image": ["dog", "cat"]}}
    for name, given in {
        "on": arms | {"values": [True, False]},
        "count": arms | {"values": [3, 5]},
        "price": arms | {"values": {"A": 9.5, "B": 12.0}},
        "theme": arms | {"values": [{"color": "red", "sizes": [1, 2]}, {"color": "blue"}]},
        "list": arms | {"values": [["x"], ["y", "z"]]},
        "teaser": {"arms": parts},
    }.items():
        made = post(server, "/v1/experiments", SHOP | given | {"name": name})
        assert made.status_code == 201, made.text
    visitor = EvaluationContext("visitor 1")
    with openfeature(server.url) as client:
        assert client.get_boolean_value("on", True, visitor) in (True, False)
        assert client.get_integer_value("count", 0, visitor) in (3, 5)
        assert client.get_float_value("price", 0.0, visitor) in (9.5, 12.0)
        theme = client.get_object_details("theme", {}, visitor)
        shown = {"A": {"color": "red", "sizes": [1, 2]}, "B": {"color": "blue"}}
        assert theme.error_code is None
        assert theme.value == shown[str(theme.variant)]
        assert client.get_object_value("list", [], visitor) in (["x"], ["y", "z"])
        teaser = client.get_object_details("teaser", {}, visitor)
        assert isinstance(teaser.value, dict)
        assert set(teaser.value) == {"headline", "image"}
        assert all(str(level) in str(teaser.variant) for level in teaser.value.values())
        for key in ("on", "count", "price", "theme"):
            assert client.get_string_details(key, "", visitor).error_code == ErrorCode.TYPE_MISMATCH


def test_errors_reach_the_application_with_its_own_default(server: Server, tmp_path: Path) -> None:
    post(server, "/v1/experiments", SHOP)
    post(server, "/v1/experiments", SHOP | {"name": "draft", "start": False})
    visitor = EvaluationContext("visitor 1")
    with openfeature(server.url) as client:
        for key, context, code in (
            ("nothing", visitor, ErrorCode.FLAG_NOT_FOUND),
            ("shop", EvaluationContext(), ErrorCode.TARGETING_KEY_MISSING),
            ("shop", EvaluationContext("x" * 600), ErrorCode.INVALID_CONTEXT),
        ):
            details = client.get_string_details(key, "mine", context)
            assert (details.value, details.error_code) == ("mine", code), key
            assert details.reason == Reason.ERROR
            assert details.error_message
        wrong = client.get_boolean_details("shop", True, visitor)
        assert (wrong.value, wrong.error_code) == (True, ErrorCode.TYPE_MISMATCH)
        # Nothing can be shown of a draft: not an error, the default in the code is used.
        draft = client.get_string_details("draft", "mine", visitor)
        assert (draft.value, draft.reason, draft.error_code) == ("mine", Reason.DISABLED, None)
        assert draft.flag_metadata["inTest"] is False
    storage = open_storage(f"sqlite:///{tmp_path}/tests.db")
    tokens = {}
    for scope in ("admin", "write", "read"):
        tokens[scope], record = new_token(scope, scope)
        storage.tokens.add(record)
    storage.close()
    until = time.monotonic() + 20
    while post(server, "/v1/events", {}).status_code != 401:
        assert time.monotonic() < until, "the server does not notice its tokens"
        time.sleep(0.1)
    for token in (None, tokens["read"]):
        with openfeature(server.url, token) as client:
            refused = client.get_string_details("shop", "mine", visitor)
            assert (refused.value, refused.error_code) == ("mine", ErrorCode.GENERAL)
    with openfeature(server.url, tokens["write"]) as client:
        assert client.get_string_value("shop", "mine", visitor) in VARIANTS


def test_an_application_goes_on_while_the_service_is_away(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        post(server, "/v1/experiments", SHOP)
        with openfeature(server.url) as client:
            visitor = EvaluationContext("visitor 1")
            assert client.get_string_value("shop", "mine", visitor) in VARIANTS
            server.end()
            away = client.get_string_details("shop", "mine", visitor)
            assert (away.value, away.error_code) == ("mine", ErrorCode.GENERAL)
