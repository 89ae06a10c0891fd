"""Events of metrics are replayed, exported and imported, to the bit."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.experiment import Experiment
from steadyarm.live.export import read_export
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
        outcomes = storage.record(live.key, events, live.now())
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


def delay_event(live: Experiment) -> None:
    late = "(SELECT created FROM steadyarm_assignments AS a WHERE a.number = e.number) + 3600000001"
    tamper(live, f"UPDATE steadyarm_events AS e SET at = {late} WHERE number = {EVENT}")


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
        (delay_event, "came too late"),
        (foreign_event, "no metric 'unheard-of'"),
    ],
)
def test_replay_finds_what_was_changed(change: Callable[[Experiment], None], words: str) -> None:
    live = declared()
    change(live)
    found = live.replay()
    assert not found.agrees
    assert any(re.search(words, line) for line in found.differences), str(found)


@pytest.mark.parametrize("primary", [None, PRIMARY], ids=["one reward", "events"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_events_are_exported_and_read(
    tmp_path: Path, suffix: str, primary: dict[str, Any] | None
) -> None:
    live = declared(primary)
    void = Change("void", target="u3", metric="clicked", reason="a mistake")
    live.storage.correct(live.key, void, now=live.now())
    test = read_export(live.export(tmp_path / f"log{suffix}"))
    stored = live.storage.series(live.key)
    assert len(test.series) == len(stored) > 4
    for one, other in zip(test.series, stored, strict=True):
        assert (one.segment, one.day, one.series) == (other.segment, other.day, other.series)
        assert one.rewarded == other.rewarded
        assert one.sums == pytest.approx(other.sums)
    assert [c.metric for c in test.trace.corrections] == ["clicked"]


@pytest.mark.parametrize("damage", ["lost", "no event", "no time"])
def test_an_export_with_other_events_is_refused(tmp_path: Path, damage: str) -> None:
    path = declared().export(tmp_path / "log.csv")
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    place = rows[0].index("events")
    line = next(i for i, row in enumerate(rows[1:], 1) if len(json.loads(row[place] or "[]")) > 1)
    events = json.loads(rows[line][place])
    if damage == "lost":
        events = events[1:]
    elif damage == "no event":
        events[0][1] = 7
    else:
        events[0][3] = None
    rows[line][place] = json.dumps(events)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    words = "of other rewards or events" if damage == "lost" else rf"row {line + 1}: .*event"
    with pytest.raises(sa.InvalidInputError, match=words):
        read_export(path)
