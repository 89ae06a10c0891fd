"""A client in this process with one running experiment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.clients import SHOP, InProcess, in_process


@pytest.fixture
def client() -> Iterator[InProcess]:
    with in_process() as found:
        yield found


@pytest.fixture
def shop(client: InProcess) -> InProcess:
    assert client.post("/v1/experiments", SHOP).status_code == 201
    return client
