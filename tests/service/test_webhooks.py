"""Webhooks: who is told what, when, how often, and how it is signed; days pass in milliseconds."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from standardwebhooks.webhooks import Webhook

import steadyarm as sa
from steadyarm.errors import InvalidInputError, StorageError
from steadyarm.live.experiment import Experiment
from steadyarm.service import webhooks
from steadyarm.service.webhooks import (
    GIVEN_UP,
    LEASE,
    DeliveryError,
    Notifier,
    format_for_slack,
    is_public,
    new_endpoint,
    send_test,
)
from steadyarm.storages import open_storage
from steadyarm.storages.schema import outbox
from steadyarm.storages.service import EVENTS, Endpoint, Notice
from steadyarm.storages.storage import Storage
from tests.service.clients import receiving, run_apart
from tests.storages.databases import fresh_database

SECOND = 1_000_000
DAY = 86_400 * SECOND
START = 1_780_000_000 * SECOND  # a time after the one at which experiments here are made


class Clock:
    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


ON_BOTH = pytest.mark.parametrize("storage", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Any:
    url = f"sqlite:///{tmp_path}/tests.db"
    if getattr(request, "param", "sqlite") == "postgresql":
        url = fresh_database(request.getfixturevalue("postgres"))
    with closing(open_storage(url)) as storage:
        monkeypatch.setattr(storage._database, "now", clock)
        monkeypatch.setattr(storage, "now", clock)
        yield storage


def listen(storage: Storage, url: str = "http://127.0.0.1:9/", **given: Any) -> Endpoint:
    endpoint = new_endpoint(url, storage.now(), private=True, **given)
    storage.webhooks.add(endpoint)
    return endpoint


def notify(storage: Storage, send: bool = True) -> None:
    """Watch once, and send all that is due."""

    async def work() -> None:
        notifier = Notifier(storage, "https://tests.example.org/ab/")
        notifier._holder = "one"  # the same process each time
        await notifier.watch()
        while send and await notifier.send_due():
            pass

    run_apart(work())


def shop(storage: Storage, name: str = "shop", **given: Any) -> Experiment:
    settings: dict[str, Any] = {"reward_window": "1d", "missing": "zero", "control": "A"}
    settings |= {"seed": 1} | given
    return sa.create_experiment(name, ["A", "B"], sa.Uniform(), 200, storage, **settings)


def play(test: Experiment, visits: int) -> None:
    """A gets a reward in a tenth of its visits, B in six tenths."""
    shown: Any = test.ask_many([f"visitor {i}" for i in range(visits)])
    rates = {"A": 1, "B": 6}
    test.tell_many([(given, float(i % 10 < rates[given.name])) for i, given in enumerate(shown)])


def waiting(storage: Storage) -> list[Any]:
    """The rows of the outbox."""
    query = select(outbox).order_by(outbox.c.id)
    return list(storage._database.read(lambda c: c.execute(query).all()))


def stored(storage: Storage) -> list[str]:
    """The events in the outbox."""
    return [event for event in EVENTS for row in waiting(storage) if f'"{event}"' in row.body]


@ON_BOTH
def test_the_life_of_a_test_is_told_event_by_event(storage: Storage, clock: Clock) -> None:
    with receiving() as receiver:
        endpoint = listen(storage, receiver.url)
        test = shop(storage, start=False)
        notify(storage)
        assert receiver.got == []
        clock.now += SECOND
        test.start()
        for _ in range(2):
            notify(storage)
        assert receiver.types == ["experiment.started"]
        play(test, 200)
        clock.now += 3 * DAY
        for _ in range(2):
            notify(storage)
    rest = ["experiment.budget_spent", "experiment.decided", "experiment.window_closed"]
    assert receiver.types[1:] == rest
    assert waiting(storage) == []
    for got in receiver.got:
        content = Webhook(endpoint.secret).verify(got.body, got.headers)
        assert set(content) == {"type", "timestamp", "data"}
        assert "visitor" not in str(content)
    data = receiver.got[-1].content["data"]
    assert (data["experiment"], data["assigned"], data["budget"]) == ("shop", 200, 200)
    assert (data["decision"]["word"], data["decision"]["variant"]) == ("ship", "B")
    assert data["health"] == {"status": "ok", "findings": []}
    assert data["final"] is True
    assert data["url"] == "https://tests.example.org/ab/experiments/shop"
    assert len({got.id for got in receiver.got}) == 4


def test_failing_health_is_told_at_most_once_a_day(storage: Storage, clock: Clock) -> None:
    listen(storage, events=["experiment.unhealthy"])
    test = shop(storage)
    units: Any = test.ask_many([f"u{i}" for i in range(200)])
    notify(storage, send=False)
    assert stored(storage) == []
    clock.now += SECOND
    for unit in [one for one in units if one.name == "B"][:60]:  # far more of A are left
        test.exclude(unit=unit.unit, reason="a bot")
    for _ in range(2):
        notify(storage, send=False)
    assert stored(storage) == ["experiment.unhealthy"]


def test_what_was_over_before_an_endpoint_was_added_is_no_news(
    storage: Storage, clock: Clock
) -> None:
    over, going = shop(storage, "over"), shop(storage, "going")
    play(over, 150)
    over.stop()
    clock.now += 7 * DAY
    listen(storage)
    clock.now += SECOND
    notify(storage, send=False)
    assert stored(storage) == []
    play(going, 150)
    notify(storage, send=False)
    assert stored(storage) == ["experiment.decided"]
    assert all('"going"' in row.body for row in waiting(storage))


@ON_BOTH
def test_several_processes_tell_once(storage: Storage, clock: Clock) -> None:
    """They notice the same at once, and take messages at once."""
    listen(storage)
    play(shop(storage), 200)
    clock.now += 3 * DAY
    (summary,) = storage.summaries()
    with ThreadPoolExecutor(4) as threads:

        def notice(_: int) -> None:
            notifier = Notifier(storage)
            notifier.examine(summary, Notice())

        list(threads.map(notice, range(4)))
        assert stored(storage) == [event for event in EVENTS if "unhealthy" not in event]
        taken = [one for some in threads.map(storage.webhooks.take, [LEASE] * 4) for one in some]
    assert len({one.id for one in taken}) == len(taken)


@ON_BOTH
def test_a_killed_process_loses_nothing(storage: Storage, clock: Clock) -> None:
    listen(storage)
    shop(storage)
    notify(storage, send=False)
    (first,) = storage.webhooks.take(LEASE)
    assert storage.webhooks.take(LEASE) == []
    clock.now += LEASE
    (second,) = storage.webhooks.take(LEASE)
    assert (second.message, second.attempts) == (first.message, 2)
    storage.webhooks.retry(first, clock.now, "too late")  # of the process that was taken for dead
    assert storage.webhooks.take(LEASE) == []


def test_a_storage_that_fails_delays_events_and_loses_none(
    storage: Storage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("the disk is full")

    with receiving() as receiver:
        listen(storage, receiver.url)
        shop(storage)
        for part, method in (
            *((storage, "summaries"), (storage, "find"), (storage.webhooks, "notice")),
            *((storage.webhooks, "take"), (storage.webhooks, "end")),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(part, method, fail)
                if method == "end":
                    notify(storage)
                else:
                    with pytest.raises(StorageError):
                        notify(storage)
            clock.now += LEASE
        notify(storage)
    assert receiver.types == ["experiment.started"] * 2  # the first outcome was not stored
    assert len({got.id for got in receiver.got}) == 1
    assert waiting(storage) == []


def test_attempts_go_on_for_three_days_with_growing_pauses(
    storage: Storage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with receiving(answers=[500]) as receiver:
        endpoint = listen(storage, f"{receiver.url}/hidden")
        shop(storage)
        notify(storage, send=False)
        began, pauses = clock.now, list[float]()
        while rows := waiting(storage):
            if rows[0].attempts:
                pauses.append((rows[0].due - clock.now) / SECOND)
                assert storage.webhooks.waiting()[endpoint.id][1].startswith("answered 500")
            clock.now = max(clock.now, rows[0].due)
            notify(storage)
    assert 3.75 <= pauses[0] <= 6.25
    assert all(later > sooner for sooner, later in pairwise(pauses[:6]))
    assert max(pauses) <= 1.25 * 43_200
    assert GIVEN_UP - 1.25 * 43_200 * SECOND < clock.now - began <= GIVEN_UP
    assert len({got.id for got in receiver.got}) == 1
    assert "is given up: answered 500" in caplog.text
    assert endpoint.secret not in caplog.text
    assert "hidden" not in caplog.text


def test_a_failure_holds_up_neither_later_messages_nor_other_endpoints(
    storage: Storage, clock: Clock
) -> None:
    with receiving(answers=[503, 204]) as failing, receiving() as other:
        listen(storage, failing.url)
        listen(storage, other.url)
        for name in ("a", "b"):
            shop(storage, name)
        notify(storage)
        assert [got.content["data"]["experiment"] for got in failing.got] == ["a", "b"]
        assert [got.content["data"]["experiment"] for got in other.got] == ["a", "b"]
        clock.now += 10 * SECOND
        notify(storage)
        assert [got.content["data"]["experiment"] for got in failing.got] == ["a", "b", "a"]


def test_slack_gets_what_it_shows() -> None:
    data = {
        "experiment": "<shop>",
        "headline": "B leads.",
        "decision": {"text": "Ship B."},
        "url": "https://tests.example.org/",
    }
    for event in EVENTS:
        content = format_for_slack({"type": event, "data": data})
        assert content["text"].startswith("&lt;shop&gt; ")
        assert "<https://tests.example.org/|Open" in content["blocks"][0]["text"]["text"]
        assert ("Ship B." in content["text"]) == (event == "experiment.decided")


def try_sending(url: str, **given: Any) -> int:
    return run_apart(send_test(new_endpoint(url, START, **{"private": True} | given), START))


def test_only_a_status_of_success_in_time_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    large = "x" * 3_000_000
    answers = [(200, large), 299, 302]
    with receiving(answers=answers, headers={"Location": "/"}) as receiver:
        assert [try_sending(receiver.url) for _ in range(2)] == [200, 299]
        with pytest.raises(DeliveryError, match="answered 302"):
            try_sending(receiver.url)
    assert len(receiver.got) == 3
    with pytest.raises(DeliveryError, match="ConnectError"):
        try_sending(receiver.url)
    for url in ("http://127.1/", "http://0x7f.1/", "http://2130706433/", "http://hooks.invalid/"):
        with pytest.raises(DeliveryError, match=r"private address|unknown"):
            try_sending(url, private=False)
    monkeypatch.setattr(webhooks, "TIMEOUT", 0.3)
    with receiving(delay=2) as slow, pytest.raises(DeliveryError, match=r"within 0\.3 seconds"):
        try_sending(slow.url)


def test_private_addresses_are_known() -> None:
    assert all(map(is_public, ("93.184.216.34", "1.1.1.1", "2606:4700:4700::1111")))
    private = (
        *("127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.1.1"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1"),
        *("fc00::1", "fec0::1", "ff02::1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1"),
        *("64:ff9b:1::1", "2002:a00:1::", "2001:0:1::1"),
    )
    assert not [address for address in private if is_public(address)]


def test_the_address_that_was_checked_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name leads elsewhere at its second lookup, which therefore must not happen."""
    with receiving() as receiver:
        answers = ["127.0.0.1", "93.184.216.34"]

        async def work() -> int:
            loop = asyncio.get_running_loop()

            async def look_up(host: str, port: int, **_: Any) -> list[Any]:
                return [(2, 1, 6, "", (answers.pop(0) if "." in host else host, port))]

            real = loop.getaddrinfo

            async def getaddrinfo(host: Any, port: Any, **more: Any) -> Any:
                if host == "hooks.example":
                    return await look_up(host, port)
                return await real(host, port, **more)

            monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
            url = f"http://hooks.example:{receiver.port}/"
            return await send_test(new_endpoint(url, START, private=True), START)

        assert run_apart(work()) == 204
        assert answers == ["93.184.216.34"]
    assert receiver.got[0].headers["host"] == f"hooks.example:{receiver.port}"


def test_what_makes_no_sense_is_refused() -> None:
    good = "https://hooks.example/"
    wrong: list[tuple[str, dict[str, Any], str]] = [
        (good, {"events": ["experiment.exploded"]}, "experiment.exploded"),
        (good, {"format": "teams"}, "teams"),
        (good, {"experiments": ["a b"]}, "a b"),
        ("https://10.0.0.7/", {}, "--allow-private"),
        ("http://[::ffff:127.0.0.1]/", {}, "--allow-private"),
        *((url, {}, "expected") for url in ("ftp://hooks.example/", "hooks.example", "", "https:")),
        *((url, {}, "expected") for url in ("https://me:word@hooks.example/", "https://a:x/")),
        (f"{good}\r\nX: y", {}, "expected"),
    ]
    for url, given, error in wrong:
        with pytest.raises(InvalidInputError, match=error):
            new_endpoint(url, START, **given)


def test_what_may_be_secret_is_not_shown(storage: Storage) -> None:
    url = "https://hooks.example/path?key=hidden"
    plain = new_endpoint(url, START)
    slack = new_endpoint(url, START, format="slack")
    assert plain.shown == "https://hooks.example/path?…"
    assert slack.shown == "https://hooks.example/…"
    assert plain.secret not in repr(plain)
    storage.webhooks.add(plain, by="ada")
    storage.webhooks.remove(plain.id, by="ada")
    entries = storage.audit()
    assert [entry.action for entry in entries] == ["webhook.added", "webhook.removed"]
    assert "path" not in str(entries)
