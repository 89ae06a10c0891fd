"""Events of metrics are replayed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from steadyarm.live.experiment import Experiment
from steadyarm.storages import open_storage
from steadyarm.storages.changes import Change
from steadyarm.storages.records import Event
from steadyarm.storages.storage import Storage
from tests.live.tampering import tamper
from tests.live.worlds import create

METRICS = (
    {"name": "clicked", "several": "first"},
    {"name": "spent", "several": "sum", "cap": 3.0, "window": 3_600_000_000, "grace": 0},
)
PRIMARY = {"name": "orders", "role": "primary", "several": "sum"}


class Declared(Experiment):
    """An experiment whose config declares metrics, whatever its settings know of them."""

    def __init__(self, storage: Storage, plain: Mapping[str, Any], name: str = "test") -> None:
        super().__init__(storage, replace(storage.find(name), config=plain))


def declared(primary: dict[str, Any] | None = None, storage: Storage | None = None) -> Declared:
    """A test of 90 visits with metrics; the reward is made of events if a primary one is given."""
    storage = storage or open_storage("memory")
    draft = create(budget=90, start=False)
    record = draft.storage.find("test")
    metrics = {"metrics": [*METRICS, *([primary] if primary else [])]}
    config = dict(record.config) | metrics | {"products": [["reward", "spent"]]}
    storage.create(replace(record, config=config, state="running"))
    live = Declared(storage, record.config)
    rng = np.random.default_rng(2)
    for i in range(70):
        live.ask(f"u{i}")
        events = [
            Event(f"u{i}", float(rng.standard_normal()), "spent", key=f"order {j}")
            for j in range(rng.integers(0, 4))
        ]
        events += [Event(f"u{i}", 1.0, "clicked")] * (i % 3 == 0)
        if primary is not None:
            events += [replace(event, metric="orders") for event in events if event.key]
        else:
            live.tell(f"u{i}", float(rng.standard_normal()))
        outcomes = storage.record(live.key, events, live.now()).outcomes
        assert {outcome.status for outcome in outcomes} <= {"stored", "closed"}
        live.refresh()
    return live


EVENT = "(SELECT max(number) FROM steadyarm_events WHERE metric = 'spent') AND metric = 'spent'"


def change_event(live: Experiment) -> None:
    tamper(live, f"UPDATE steadyarm_events SET value = value + 1e-6 WHERE number = {EVENT}")


def lose_event(live: Experiment) -> None:
    tamper(live, f"DELETE FROM steadyarm_events WHERE number = {EVENT}")


def change_sum(live: Experiment) -> None:
    tamper(live, "UPDATE steadyarm_series SET sums = sums + 1 WHERE series = 'spent'")


def lose_product(live: Experiment) -> None:
    tamper(live, "DELETE FROM steadyarm_series WHERE series = 'reward*spent'")


def foreign_event(live: Experiment) -> None:
    tamper(live, f"UPDATE steadyarm_events SET metric = 'unheard-of' WHERE number = {EVENT}")


def test_replay_computes_series_anew() -> None:
    live = declared()
    found = live.replay()
    assert found.agrees, str(found)
    assert found.events == sum(len(row.events) for row in live.storage.log(live.key)) > 70
    assert f"{found.events} events" in str(found)
    live.storage.correct(live.key, Change("exclude", unit="u3", reason="a bot"), now=live.now())
    assert live.replay().agrees


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_event, "its rows give"),
        (lose_event, "its rows give"),
        (change_sum, "its rows give"),
        (lose_product, "of 'reward[*]spent' of day"),
        (foreign_event, "no metric 'unheard-of'"),
    ],
)
def test_replay_finds_what_was_changed(change: Callable[[Experiment], None], words: str) -> None:
    live = declared()
    change(live)
    found = live.replay()
    assert not found.agrees
    assert any(re.search(words, line) for line in found.differences), str(found)
