"""A browser at a service with tokens, at one without, and at one that has a test of six days."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import steadyarm as sa
from steadyarm.live.scorecard import Scorecard, compute_scorecard
from steadyarm.storages import open_storage
from tests.dashboard.clients import SCOPES, Browser, Guarded, add_tokens, dashboard, stored
from tests.live.scorecards import NAMES, played
from tests.service.clients import SHOP, bearer


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    """A browser, nobody signed in; tokens of each scope and a running experiment called shop."""
    storage = open_storage("memory")
    tokens = add_tokens(storage, *SCOPES)
    with dashboard(storage) as browser:
        made = browser.post("/v1/experiments", SHOP, headers=bearer(tokens["admin"]))
        assert made.status_code == 201
        yield browser, storage, tokens


@pytest.fixture
def empty() -> Iterator[Browser]:
    with dashboard() as browser:
        yield browser


@pytest.fixture
def free() -> Iterator[Browser]:
    """A browser at a service without tokens; it has a running experiment called shop."""
    with dashboard() as browser:
        assert browser.post("/v1/experiments", SHOP).status_code == 201
        yield browser


@pytest.fixture(scope="module")
def test() -> sa.Experiment:
    """2,400 of the 4,000 visits of a test of six combinations, on six days, one the control."""
    return played(budget=4000, visits=2400, days=6, reward_range=(0, 1), control=NAMES[0])


@pytest.fixture
def shown(test: sa.Experiment) -> Iterator[tuple[Browser, Scorecard]]:
    """A browser at a service that has the test, and its scorecard."""
    storage = open_storage("memory")
    stored(test, storage, "layouts")
    with dashboard(storage) as browser:
        yield browser, compute_scorecard(sa.load_experiment("layouts", storage))
