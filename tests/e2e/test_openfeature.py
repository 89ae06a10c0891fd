"""The community's OFREP provider for Python, as PyPI has it, against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason

import steadyarm as sa
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


def test_an_application_goes_on_while_the_service_is_away(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        post(server, "/v1/experiments", SHOP)
        with openfeature(server.url) as client:
            visitor = EvaluationContext("visitor 1")
            assert client.get_string_value("shop", "mine", visitor) in VARIANTS
            server.end()
            away = client.get_string_details("shop", "mine", visitor)
            assert (away.value, away.error_code) == ("mine", ErrorCode.GENERAL)
