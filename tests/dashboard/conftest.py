"""A browser at a service with tokens, and one at a service without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from steadyarm.storages import open_storage
from tests.dashboard.clients import SCOPES, Browser, Guarded, add_tokens, dashboard
from tests.service.clients import SHOP


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    """A browser, nobody signed in; tokens of each scope and a running experiment called shop."""
    storage = open_storage("memory")
    tokens = add_tokens(storage, *SCOPES)
    with dashboard(storage) as browser:
        headers = {"Authorization": f"Bearer {tokens['admin']}"}
        assert browser.post("/v1/experiments", SHOP, headers=headers).status_code == 201
        yield browser, storage, tokens


@pytest.fixture
def free() -> Iterator[Browser]:
    """A browser at a service without tokens; it has a running experiment called shop."""
    with dashboard() as browser:
        assert browser.post("/v1/experiments", SHOP).status_code == 201
        yield browser
