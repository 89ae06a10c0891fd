"""Events: one report reaches every experiment that measures it, once, or says where it did not."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

import steadyarm as sa
from steadyarm.errors import StorageError
from steadyarm.storages import open_storage
from steadyarm.storages.engine import MEMORY
from steadyarm.storages.records import Event, RecordResult
from steadyarm.storages.storage import Storage
from tests.service.clients import SHOP, InProcess, in_process, served

CART: dict[str, Any] = SHOP | {
    "name": "cart",
    "metrics": [
        {"name": "purchase", "role": "primary", "kind": "yes/no", "window": "1d"},
        {"name": "revenue", "kind": "money", "several": "sum", "window": "7d"},
        {"name": "value", "ratio": ["revenue", "purchase"]},
    ],
}
del CART["missing"]


def ask(client: InProcess, unit: str, *names: str) -> None:
    for name in names:
        answer = client.post(f"/v1/experiments/{name}/assignments", {"unit": unit})
        assert answer.status_code == 201


def report(client: InProcess, unit: str, event: str, **more: Any) -> dict[str, Any]:
    """What became of an event: a status, or the kind of problem, by experiment."""
    answer = client.post("/v1/events", {"unit": unit, "event": event} | more)
    found = outcomes(answer.json())
    counted = {"stored", "repeated"} & set(found.values())
    assert answer.status_code == (200 if counted else 422), answer.text
    return found


def outcomes(answer: dict[str, Any]) -> dict[str, Any]:
    answer = answer.get("error", answer)  # of an event in a batch that was not counted
    return {
        one["name"]: one.get("status") or one["error"]["type"].rpartition(":")[2]
        for one in answer["experiments"]
    }


STRANGER = "unknown-assignment"


@pytest.fixture
def two(shop: InProcess) -> InProcess:
    """Two experiments; u1 is in both, u2 in shop alone."""
    assert shop.post("/v1/experiments", CART).status_code == 201
    ask(shop, "u1", "shop", "cart")
    ask(shop, "u2", "shop")
    return shop


def test_an_event_reaches_every_experiment_that_measures_it(two: InProcess) -> None:
    assert report(two, "u1", "purchase") == {"cart": "stored"}
    assert report(two, "u1", "purchase") == {"cart": "repeated"}
    assert report(two, "u1", "reward") == {"shop": "stored"}
    assert report(two, "u1", "shop", value=1) == {"shop": "repeated"}
    assert report(two, "u2", "shop", value=0.5) == {"shop": "stored"}
    for event in ("cart", "value"):  # which are no metrics that are reported
        assert report(two, "u1", event) == {}
    assert report(two, "u2", "purchase") == {"cart": STRANGER}
    assert report(two, "nobody", "shop") == {"shop": STRANGER}
    two.post("/v1/experiments", SHOP | {"name": "third"})
    ask(two, "u1", "third")
    assert report(two, "u1", "reward") == {"shop": "repeated", "third": "stored"}
    assert two.get("/v1/experiments/cart").json()["totals"]["rewarded"] == 1
    assert two.get("/v1/experiments/shop").json()["totals"]["rewarded"] == 2
    assert "steadyarm_rewards_total 4.0" in two.get("/metrics").text


def test_an_event_counts_by_the_time_when_it_happened(two: InProcess) -> None:
    now = datetime.now(UTC)
    early, late = ((now + timedelta(days=days)).isoformat() for days in (-2, 2))
    assert report(two, "u1", "purchase", at=early) == {"cart": "invalid-input"}
    assert report(two, "u1", "purchase", at=late) == {"cart": "invalid-input"}
    # The sender's clock is two days ahead: it happened just before the request was sent.
    assert report(two, "u1", "purchase", at=late, sent=late) == {"cart": "stored"}


WRONG: list[tuple[Any, str]] = [
    ({"event": "shop"}, "there is no unit"),
    ({"unit": "u1"}, "there is no event"),
    ({"unit": 3, "event": "shop"}, 'send it as "3"'),
    ({"unit": "u1", "event": "shop", "value": "1"}, "value is '1'; expected a number"),
    ({"unit": "u1", "event": "shop", "at": "yesterday"}, "at is 'yesterday'; expected a time"),
    ([], "expected an object with the keys unit, event"),
    ({"unit": "u1", "event": "purchases"}, "revenue; did you mean purchase?"),
    ({"unit": "nobody", "event": "purchase"}, "cart: 'nobody' has no assignment in 'cart'"),
    ({"unit": "u1", "event": "revenue", "value": 20.0}, 'give each an id, such as "order 17"'),
]


def test_what_is_not_counted_is_an_error_in_words(two: InProcess) -> None:
    for body, detail in WRONG:
        answer = two.post("/v1/events", body)
        assert answer.status_code == 422
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert detail in json.dumps(answer.json(), ensure_ascii=False).replace('\\"', '"')
        (entry,) = two.post("/v1/events:batch", {"events": [body]}).json()["events"]
        assert entry["error"]["detail"] == answer.json()["detail"]
    keyless = answer.json()
    assert keyless["type"] == "urn:steadyarm:problem:event-not-counted"
    assert keyless["experiments"][0]["error"]["field"] == "id"
    two.post("/v1/experiments/shop/rewards", {"unit": "nobody", "reward": 1})
    counts = two.get("/metrics").text
    assert 'steadyarm_rewards_refused_total{reason="unknown-event"} 2.0' in counts
    assert 'steadyarm_rewards_refused_total{reason="unknown-assignment"} 3.0' in counts


def test_an_event_counts_if_one_experiment_counts_it(two: InProcess) -> None:
    strict = {"name": "purchase", "role": "primary", "kind": "money", "range": [0, 10]}
    made = two.post("/v1/experiments", CART | {"name": "strict", "metrics": [strict]})
    assert made.status_code == 201
    ask(two, "u1", "strict")
    event: dict[str, Any] = {"unit": "u1", "event": "purchase", "value": 35.0}
    found = {"cart": "stored", "strict": "invalid-input"}
    assert report(two, **event) == found
    (entry,) = two.post("/v1/events:batch", {"events": [event]}).json()["events"]
    assert outcomes(entry) == found | {"cart": "repeated"}
    storage = two.app.state.service.storage
    (row,) = storage.log(storage.find("cart").key)
    assert row.reward == 1.0  # a yes/no metric counts as one, whatever the value


def test_one_event_feeds_several_metrics(two: InProcess) -> None:
    keyed = {"several": "sum", "window": "7d", "event": "buy"}
    metrics = [
        {"name": "conversion", "role": "primary", "kind": "yes/no", "window": "1s", "event": "buy"},
        {"name": "revenue", "kind": "money", "range": [0, 100], **keyed},
        {"name": "orders", "kind": "count", **keyed},
    ]
    assert two.post("/v1/experiments", CART | {"name": "m", "metrics": metrics}).status_code == 201
    ask(two, "u1", "m")
    assert report(two, "u1", "buy", value=500, id="a") == {"m": "invalid-input"}  # in no metric
    assert report(two, "u1", "buy", value=20) == {"m": "invalid-input"}  # it has no id
    assert report(two, "u1", "buy", value=20, id="a") == {"m": "stored"}
    assert report(two, "u1", "buy", value=20, id="a") == {"m": "repeated"}
    assert report(two, "u1", "buy", value=15.5, id="b") == {"m": "stored"}
    storage = two.app.state.service.storage
    (row,) = storage.log(storage.find("m").key)
    assert row.reward == 1.0
    counted = sorted((event.metric, event.value) for event in row.events)
    assert counted == [("orders", 1.0), ("orders", 1.0), ("revenue", 15.5), ("revenue", 20.0)]


def test_events_of_units_outside_of_the_test_count_nowhere(client: InProcess) -> None:
    client.post("/v1/experiments", SHOP | {"budget": 3})
    for i in range(3):
        ask(client, f"u{i}", "shop")
    late = client.post("/v1/experiments/shop/assignments", {"unit": "late"})
    assert late.json()["in_test"] is False
    assert report(client, "late", "shop") == {"shop": STRANGER}
    assert report(client, "u1", "shop") == {"shop": "stored"}
    client.post("/v1/experiments/shop/roll-out", {"variant": "A"})
    assert report(client, "u2", "shop") == {"shop": "stored"}  # it was part of the test
    assert report(client, "late", "shop") == {"shop": STRANGER}
    assert client.get("/v1/experiments/shop").json()["totals"]["rewarded"] == 2


def test_what_another_process_has_just_created_gets_its_events(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    with closing(open_storage(url)) as elsewhere, in_process(open_storage(url)) as client:
        for i in range(3):
            made = sa.create_experiment(
                f"test-{i}", ["A", "B"], sa.Steady(), 100, elsewhere, missing="drop"
            )
            made.ask("u1")
            assert report(client, "u1", "reward")[made.name] == "stored"
            if i == 0:
                made.stop()
                made.archive()
                assert report(client, "u1", made.name) == {}


class PartlyAway(Storage):
    away: frozenset[int] = frozenset()

    def record(self, key: int, events: Sequence[Event], now: int) -> RecordResult:
        if key in self.away:
            raise StorageError("away")
        return super().record(key, events, now)


def rewarded(storage: Storage, name: str) -> int:
    return sa.load_experiment(name, storage).status().total_rewarded


def test_an_event_that_is_stored_in_part_is_to_be_sent_again() -> None:
    storage = PartlyAway(MEMORY)
    with in_process(storage) as client:
        for name in ("shop", "cart"):
            client.post("/v1/experiments", SHOP | {"name": name})
            ask(client, "u1", name)
            ask(client, "u2", name)
        storage.away = frozenset([storage.find("cart").key])
        event = {"unit": "u1", "event": "reward"}
        failed = client.post("/v1/events", event)
        assert failed.status_code == 503
        assert failed.headers["Retry-After"] == "1"
        assert failed.json()["type"].endswith("storage-unavailable")
        assert "not stored in cart" in failed.json()["detail"]
        batch = {"events": [event, {"unit": "u2", "event": "reward"}]}
        found = client.post("/v1/events:batch", batch).json()["events"]
        assert [outcomes(one) for one in found] == [
            {"shop": "repeated", "cart": "storage-unavailable"},
            {"shop": "stored", "cart": "storage-unavailable"},
        ]
        assert found[0]["experiments"][1]["error"]["status"] == 503
        assert (rewarded(storage, "shop"), rewarded(storage, "cart")) == (2, 0)
        storage.away = frozenset()
        again = client.post("/v1/events:batch", batch).json()["events"]
        assert [outcomes(one) for one in again] == [
            {"shop": "repeated", "cart": "stored"},
            {"shop": "repeated", "cart": "stored"},
        ]
        assert (rewarded(storage, "shop"), rewarded(storage, "cart")) == (2, 2)


def test_events_that_were_answered_survive_a_kill(tmp_path: Path) -> None:
    names = ["shop", "cart"]
    with served(tmp_path) as server, httpx2.Client(base_url=server.url, timeout=30) as client:
        for name in names:
            made = client.post("/v1/experiments", json=SHOP | {"name": name})
            assert made.status_code == 201
            units = {"units": [f"u{i}" for i in range(300)]}
            client.post(f"/v1/experiments/{name}/assignments:batch", json=units)

        def sent(i: int) -> str | None:
            body = {"unit": f"u{i}", "event": "reward"}
            try:
                answer = client.post("/v1/events", json=body)
            except httpx2.TransportError:
                return None
            if i == 150:
                server.process.send_signal(signal.SIGKILL)
            stored = {"experiments": [{"name": name, "status": "stored"} for name in names]}
            return f"u{i}" if answer.json() == stored else None

        with ThreadPoolExecutor(16) as pool:
            answered = {unit for unit in pool.map(sent, range(300)) if unit}
    assert 100 < len(answered) < 300
    storage = open_storage(f"sqlite:///{tmp_path}/tests.db")
    for name in names:
        rows = storage.log(storage.find(name).key)
        kept = {row.unit for row in rows if row.reward is not None}
        assert answered <= kept
    storage.close()
