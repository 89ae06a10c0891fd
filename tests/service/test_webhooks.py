"""Webhooks: who is told what, when, how often, and how it is signed; days pass in milliseconds."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trustme
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

import steadyarm as sa
from steadyarm.errors import InvalidInputError, StorageError, UnknownExperimentError
from steadyarm.live.experiment import Experiment
from steadyarm.service import outgoing
from steadyarm.service.outgoing import DeliveryError, ReceiverAnswer, checked_url, is_public, post
from steadyarm.service.webhooks import (
    FIRST,
    GIVEN_UP,
    LEASED,
    LONGEST,
    ROTATING,
    Notifier,
    attempt_of,
    new_secret,
    new_webhook,
    request_of,
    rotate,
    slack_body,
)
from steadyarm.storages import open_storage
from steadyarm.storages.base import Storage
from steadyarm.storages.changes import Change
from steadyarm.storages.webhooks import EVENTS, Delivery, Notice, WebhookRecord
from tests.service.clients import run_apart
from tests.service.receivers import Receiver, receiving

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
START = 1_780_000_000 * SECOND  # a time after the one at which experiments here are made


class Clock:
    """A time that tests set."""

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    @property
    def seconds(self) -> float:
        return self.now / SECOND


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A storage in memory whose clock is that of the test."""
    found = open_storage("memory")
    monkeypatch.setattr(found, "now", clock)
    return found


def listen(storage: Storage, url: str = "http://127.0.0.1:9/", **given: Any) -> WebhookRecord:
    webhook = new_webhook(url, storage.now(), private=True, **given)
    storage.add_webhook(webhook)
    return webhook


def tell(notifier: Notifier, watch: bool = True) -> None:
    """Watch once, and send all that is due."""

    async def work() -> None:
        if watch:
            await notifier.watch()
        while True:
            await notifier.send_due()
            if not notifier._sending:
                return
            await notifier.settled()

    run_apart(work())


Sent = list[tuple[str, dict[str, str], bytes]]


def sending(*answers: ReceiverAnswer | DeliveryError) -> tuple[Callable[..., Any], Sent]:
    """Sends nothing; answers in turn, the last one for ever; and what it was to send."""
    left, sent = list(answers), Sent()

    async def send(
        url: str, headers: dict[str, str], body: bytes, *, private: bool
    ) -> ReceiverAnswer:
        sent.append((url, headers, body))
        answer = left.pop(0) if left[1:] else left[0]
        if isinstance(answer, DeliveryError):
            raise answer
        return answer

    return send, sent


def shop(storage: Storage, name: str = "shop", **given: Any) -> Experiment:
    settings: dict[str, Any] = {"reward_window": "1d", "missing": "zero", "control": "A"}
    settings |= {"seed": 1} | given
    return sa.create_experiment(name, ["A", "B"], sa.Uniform(), 400, storage, **settings)


def play(test: Experiment, visits: int, better: float = 0.5) -> None:
    """A gets a reward in a tenth of its visits, B in a share of `better` more."""
    for i in range(visits):
        got = test.ask(f"visitor {i}")
        lucky = i % 10 < (1 if got.name == "A" else 1 + round(10 * better))
        test.tell(got, float(lucky))


def types(storage: Storage) -> list[str]:
    return [one.type for one in reversed(storage.deliveries())]


# Events


def test_the_life_of_a_test_is_told_event_by_event(storage: Storage, clock: Clock) -> None:
    send, sent = sending(ReceiverAnswer(204))
    notifier = Notifier(storage, "https://tests.example.org/ab/", send=send, now=clock)
    listen(storage)
    test = shop(storage, start=False)
    tell(notifier)
    assert types(storage) == []  # a draft is no news
    clock.now += SECOND
    test.start()
    tell(notifier)
    tell(notifier)
    assert types(storage) == ["experiment.started"]
    play(test, 400)
    clock.now += 60 * SECOND
    tell(notifier)
    # All rewards are in, so that no window has to be waited for.
    told = ["budget_spent", "decided", "window_closed"]
    assert types(storage)[1:] == [f"experiment.{one}" for one in told]
    clock.now += 3 * DAY
    tell(notifier)
    assert len(types(storage)) == 4
    assert len(sent) == 4
    body = storage.deliveries()[0].body
    assert set(body) == {"type", "timestamp", "data"}
    data = body["data"]
    assert (data["experiment"], data["assigned"], data["budget"]) == ("shop", 400, 400)
    assert data["decision"]["word"] == "ship"
    assert data["decision"]["variant"] == "B"
    assert data["decision"]["text"].startswith("Ship B: it beats A by ")
    assert data["health"] == {"status": "ok", "findings": []}
    assert data["final"] is True
    assert data["url"] == "https://tests.example.org/ab/experiments/shop"
    assert "visitor" not in str(body)
    assert len(sent[-1][2]) < 4000
    assert len({headers["webhook-id"] for _, headers, _ in sent}) == 4


def test_windows_close_by_time_alone(storage: Storage, clock: Clock) -> None:
    notifier = Notifier(storage, send=sending(ReceiverAnswer(200))[0], now=clock)
    listen(storage)
    test = shop(storage)
    test.ask("u")
    test.stop()
    clock.now += SECOND
    tell(notifier)
    assert types(storage) == ["experiment.started"]
    clock.now += DAY  # the window is over, the grace after it is not
    tell(notifier)
    assert types(storage) == ["experiment.started"]
    clock.now += DAY
    tell(notifier)
    assert types(storage)[1:] == ["experiment.unhealthy", "experiment.window_closed"]
    assert storage.deliveries()[1].body["data"]["decision"]["word"] == "unhealthy"


def test_health_is_told_when_it_turns_bad_and_at_most_once_a_day(
    storage: Storage, clock: Clock
) -> None:
    notifier = Notifier(storage, send=sending(ReceiverAnswer(200))[0], now=clock)
    listen(storage, events=["experiment.unhealthy"])
    test = shop(storage)
    units = [test.ask(f"u{i}") for i in range(300)]
    tell(notifier)
    assert types(storage) == []
    clock.now += 60 * SECOND
    gone = [one for one in units if one.name == "B"][:100]
    for one in gone:  # so that far more of A are left than were planned
        test.exclude(unit=one.unit, reason="a bot")
    clock.now += 60 * SECOND
    tell(notifier)
    assert test.health().status == "fail"
    assert types(storage) == ["experiment.unhealthy"]
    data = storage.deliveries()[0].body["data"]
    assert data["health"]["status"] == "fail"
    assert data["decision"]["word"] == "unhealthy"
    assert "do not decide" in data["decision"]["text"]

    def all_back() -> None:
        for entry in test.corrections():
            if entry.action == "visits.excluded":
                with suppress(InvalidInputError):  # it is back already
                    test.include(entry.id, reason="no bot")

    def away() -> None:
        for one in gone:
            test.exclude(unit=one.unit, reason="a bot")

    all_back()
    clock.now += 60 * SECOND
    tell(notifier)
    away()
    clock.now += 60 * SECOND
    tell(notifier)
    assert test.health().status == "fail"
    assert types(storage) == ["experiment.unhealthy"]  # within a day
    all_back()
    clock.now += 2 * HOUR
    tell(notifier)
    clock.now += DAY - 3 * HOUR
    away()
    clock.now += 2 * HOUR
    tell(notifier)
    assert types(storage) == ["experiment.unhealthy"] * 2
    first, second = storage.deliveries()
    assert first.message != second.message


def test_another_decision_is_news_the_same_one_is_not(storage: Storage, clock: Clock) -> None:
    notifier = Notifier(storage, send=sending(ReceiverAnswer(200))[0], now=clock)
    listen(storage, events=["experiment.decided"])
    test = shop(storage)
    play(test, 400)
    clock.now += 3 * DAY
    tell(notifier)
    assert [d.body["data"]["decision"]["variant"] for d in storage.deliveries()] == ["B"]
    record = storage.find("shop")
    for row in storage.log(record.key):  # the rewards of both variants were swapped
        if row.reward is not None:
            right = 1.0 if row.arm == 0 and row.number % 2 else 0.0
            if row.reward != right:
                change = Change(kind="correct", target=row.number, reward=right, reason="swapped")
                storage.correct(record.key, change, now=clock.now)
    clock.now += DAY
    tell(notifier)
    tell(notifier)
    words = [d.body["data"]["decision"] for d in storage.deliveries()]
    assert [one["variant"] for one in words] == ["A", "B"]
    assert words[0]["word"] == "keep"


def test_no_news_of_what_was_over_before_somebody_listened(storage: Storage, clock: Clock) -> None:
    notifier = Notifier(storage, send=sending(ReceiverAnswer(200))[0], now=clock)
    over, going = shop(storage, "over"), shop(storage, "going")
    for test in (over, going):
        play(test, 300)
    over.stop()
    clock.now += 7 * DAY
    listen(storage)
    clock.now += SECOND
    tell(notifier)
    # What stands in a test that goes on is told; that it started a week ago is not.
    assert {(d.experiment, d.type) for d in storage.deliveries()} == {
        ("going", "experiment.decided")
    }
    assert len(storage.notices()) == 2
    clock.now += SECOND
    going.stop()
    clock.now += 3 * DAY
    tell(notifier)
    assert [(d.experiment, d.type) for d in storage.deliveries()][:-1] == [
        ("going", "experiment.window_closed")
    ]


def test_a_policy_of_somebodys_own_is_told_of_as_far_as_it_is_known(
    storage: Storage, clock: Clock
) -> None:
    @dataclass(frozen=True)
    class Own(sa.Uniform):
        name = "own"

    notifier = Notifier(storage, send=sending(ReceiverAnswer(200))[0], now=clock)
    listen(storage)
    test = sa.create_experiment("own", ["A", "B"], Own(), 4, storage, missing="drop")
    for i in range(4):
        test.ask(f"u{i}")
    clock.now += SECOND
    tell(notifier)
    assert types(storage) == ["experiment.started", "experiment.budget_spent"]
    assert storage.deliveries()[0].body["data"]["headline"] is None


def test_two_who_watch_tell_once(storage: Storage, clock: Clock) -> None:
    listen(storage)
    test = shop(storage)
    play(test, 400)
    clock.now += 3 * DAY
    several = [Notifier(storage, send=sending(ReceiverAnswer(200))[0], now=clock) for _ in range(3)]

    async def watch() -> None:
        await asyncio.gather(*(one.watch() for one in several))

    run_apart(watch())
    assert Counter(types(storage)).most_common(1)[0][1] == 1
    assert len(types(storage)) == 4


def test_crashes_between_noticing_and_sending_lose_nothing(
    storage: Storage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen(storage)
    shop(storage)
    clock.now += SECOND

    def crash(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "notice", crash)
        (summary,) = storage.summaries()
        with pytest.raises(KeyboardInterrupt):
            Notifier(storage, now=clock).examine(summary, Notice())
    assert types(storage) == []
    send, sent = sending(ReceiverAnswer(200))
    tell(Notifier(storage, send=send, now=clock))
    assert len(sent) == 1
    assert types(storage) == ["experiment.started"]


def test_a_storage_that_does_not_answer_delays_events_and_loses_none(
    storage: Storage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen(storage)
    shop(storage)
    clock.now += SECOND
    send, sent = sending(ReceiverAnswer(200))
    notifier = Notifier(storage, send=send, now=clock)
    for method in ("summaries", "find", "history", "notice", "take_deliveries", "settle"):

        def fail(*_: object) -> None:
            raise StorageError("the disk is full")

        with monkeypatch.context() as patch, suppress(StorageError):
            patch.setattr(storage, method, fail)
            tell(notifier)
        clock.now += LEASED
    assert len(sent) == 1  # whose outcome was not stored
    tell(notifier)
    assert [one.state for one in storage.deliveries()] == ["delivered"]
    assert len(sent) == 2
    assert sent[0][1]["webhook-id"] == sent[1][1]["webhook-id"]


def test_an_experiment_that_cannot_be_examined_holds_up_no_other(
    storage: Storage,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    listen(storage)
    shop(storage, "bad")
    shop(storage, "good")
    clock.now += SECOND
    find = storage.find

    def found(name: str) -> Any:
        if name == "bad":
            raise UnknownExperimentError("it was deleted meanwhile")
        return find(name)

    notifier = Notifier(storage, send=sending(ReceiverAnswer(200))[0], now=clock)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "find", found)
        tell(notifier)
    assert [one.experiment for one in storage.deliveries()] == ["good"]
    assert "'bad' cannot be examined" in caplog.text
    clock.now += 301 * SECOND
    tell(notifier)
    assert {one.experiment for one in storage.deliveries()} == {"good", "bad"}


# Attempts


def test_attempts_are_spread_over_three_days_then_it_has_failed(
    storage: Storage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    send, sent = sending(DeliveryError("the connection failed"))
    notifier = Notifier(storage, send=send, now=clock, draw=lambda: 0.5)
    webhook = listen(storage)
    shop(storage)
    clock.now += SECOND
    tell(notifier)
    began, times = clock.now, [clock.now]
    while (delivery := storage.deliveries()[0]).state == "waiting":
        assert delivery.note == "the connection failed"
        clock.now = delivery.due - 1
        tell(notifier, watch=False)
        assert len(sent) == len(times)  # not before it is due
        clock.now = delivery.due
        tell(notifier, watch=False)
        times.append(clock.now)
    pauses = [(b - a) / SECOND for a, b in pairwise(times)]
    assert pauses[0] == FIRST
    assert all(b == min(4 * a, LONGEST) for a, b in pairwise(pauses))
    assert 2 * DAY < times[-1] - began <= GIVEN_UP == 3 * DAY
    assert len(sent) == delivery.attempts == len(times) == 13
    assert len({headers["webhook-id"] for _, headers, _ in sent}) == 1
    assert len({body for _, _, body in sent}) == 1
    assert len({headers["webhook-timestamp"] for _, headers, _ in sent}) == 13
    assert delivery.state == "failed"
    assert f"webhook {webhook.id}: delivery {delivery.id}" in caplog.text
    assert "failed for good at attempt 13: the connection failed" in caplog.text
    storage.resend(delivery.id, now=clock.now)
    tell(notifier, watch=False)
    assert storage.deliveries()[0].state == "waiting"  # three more days begin
    assert sent[-1][1]["webhook-id"] == sent[0][1]["webhook-id"]


def test_pauses_are_spread_at_random(storage: Storage, clock: Clock) -> None:
    listen(storage)
    shop(storage)
    clock.now += SECOND
    (delivery,) = _noticed(storage, clock)
    pauses = {
        attempt_of(delivery, ReceiverAnswer(500), clock.now, partial(float, u)).due
        for u in (0.0, 0.5, 1.0)
    }
    assert pauses == {clock.now + round(5 * f * SECOND) for f in (0.75, 1.0, 1.25)}


def _noticed(storage: Storage, clock: Clock) -> list[Delivery]:
    run_apart(Notifier(storage, now=clock).watch())
    return [one for one, _ in storage.take_deliveries(clock.now, clock.now + LEASED)]


@pytest.mark.parametrize(
    ("answer", "state", "note"),
    [
        (ReceiverAnswer(200), "delivered", ""),
        (ReceiverAnswer(299), "delivered", ""),
        (ReceiverAnswer(302), "waiting", "answered 302 Found; redirects are not followed"),
        (ReceiverAnswer(400), "waiting", "answered 400 Bad Request"),
        (ReceiverAnswer(500), "waiting", "answered 500 Internal Server Error"),
    ],
)
def test_only_a_status_of_success_is_delivered(
    answer: ReceiverAnswer, state: str, note: str, storage: Storage, clock: Clock
) -> None:
    listen(storage)
    shop(storage)
    clock.now += SECOND
    tell(Notifier(storage, send=sending(answer)[0], now=clock))
    (delivery,) = storage.deliveries()
    assert (delivery.state, delivery.note, delivery.status) == (state, note, answer.status)


def test_a_receiver_may_ask_for_a_longer_pause(storage: Storage, clock: Clock) -> None:
    listen(storage)
    shop(storage)
    clock.now += SECOND
    tell(Notifier(storage, send=sending(ReceiverAnswer(429, 600.0))[0], now=clock))
    assert storage.deliveries()[0].due == clock.now + 600 * SECOND
    clock.now += 600 * SECOND
    tell(Notifier(storage, send=sending(ReceiverAnswer(503, 1e9))[0], now=clock))
    assert storage.deliveries()[0].due == clock.now + int(LONGEST) * SECOND


def test_an_endpoint_that_is_gone_is_disabled(
    storage: Storage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    webhook = listen(storage)
    shop(storage)
    clock.now += SECOND
    send, sent = sending(ReceiverAnswer(410))
    notifier = Notifier(storage, send=send, now=clock)
    tell(notifier)
    (found,) = storage.webhooks()
    assert (found.active, found.note) == (False, "answered 410 Gone")
    assert f"webhook {webhook.id} is disabled" in caplog.text
    shop(storage, "other")
    clock.now += SECOND
    tell(notifier)
    assert len(sent) == 1
    assert storage.audit()[-2].action == "webhook.disabled"


def test_a_failure_holds_up_neither_later_messages_nor_other_endpoints(
    storage: Storage, clock: Clock
) -> None:
    listen(storage, "http://127.0.0.1:9/bad")
    listen(storage, "http://127.0.0.1:9/good")
    sent: list[tuple[str, str]] = []

    async def send(
        url: str, headers: dict[str, str], body: bytes, *, private: bool
    ) -> ReceiverAnswer:
        sent.append((url[-4:].strip("/"), headers["webhook-id"]))
        return ReceiverAnswer(500 if url.endswith("bad") and len(sent) < 3 else 200)

    notifier = Notifier(storage, send=send, now=clock)
    for name in ("one", "two", "three"):
        shop(storage, name)
    clock.now += SECOND
    tell(notifier)
    good = [id for where, id in sent if where == "good"]
    bad = [id for where, id in sent if where == "bad"]
    assert good == bad  # the first attempts are in order, and each message came to both
    assert len(good) == 3
    clock.now += 60 * SECOND
    tell(notifier, watch=False)
    assert sent[-1] == ("bad", bad[0])
    assert {one.state for one in storage.deliveries()} == {"delivered"}


# What is sent


def test_signatures_are_those_of_standard_webhooks(storage: Storage) -> None:
    storage = open_storage("memory")  # the package compares timestamps with the real clock
    with receiving() as receiver:
        webhook = listen(storage, receiver.url)
        shop(storage)
        tell(Notifier(storage))
        receiver.wait(1)
        old = webhook.secrets[0].text
        new = rotate(storage, webhook.id, "ada").secrets[0].text
        assert new != old
        storage.resend(storage.deliveries()[0].id, now=storage.now())
        tell(Notifier(storage), watch=False)
        receiver.wait(2)
        first, second = receiver.got
    assert Webhook(old).verify(first.body, first.headers) == first.content
    for secret in (old, new):
        assert Webhook(secret).verify(second.body, second.headers) == second.content
    assert first.id == second.id
    assert first.headers["content-type"] == "application/json"
    assert (first.path, first.headers["host"]) == ("/hook", f"127.0.0.1:{receiver.port}")
    with pytest.raises(WebhookVerificationError):
        Webhook(new).verify(first.body, first.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify(first.body.replace(b"shop", b"shoq"), first.headers)


def test_the_snippet_of_the_guide_checks_real_messages() -> None:
    guide = Path(__file__).parents[2] / "docs/guides/webhooks.md"
    (code,) = re.findall(r"```python\n(.*?)```", guide.read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()):
        exec(compile(code, "snippet", "exec"), names)
    is_genuine, storage = names["is_genuine"], open_storage("memory")
    with receiving() as receiver:
        webhook = listen(storage, receiver.url)
        rotated = rotate(storage, webhook.id, "ada")
        shop(storage)
        tell(Notifier(storage))
        receiver.wait(1)
    (got,) = receiver.got
    for secret in rotated.secrets:
        assert is_genuine(secret.text, got.headers, got.body)
    assert not is_genuine(new_secret(), got.headers, got.body)
    assert not is_genuine(rotated.secrets[0].text, got.headers, got.body + b" ")
    late = int(got.headers["webhook-timestamp"]) + 301
    assert not is_genuine(rotated.secrets[0].text, got.headers, got.body, now=late)


def test_a_secret_stops_signing_a_day_after_its_rotation(storage: Storage, clock: Clock) -> None:
    webhook = listen(storage)
    shop(storage)
    clock.now += SECOND
    (delivery,) = _noticed(storage, clock)
    rotated = rotate(storage, webhook.id, "ada")
    for later, count in ((0, 2), (ROTATING - 1, 2), (ROTATING, 1)):
        headers, _ = request_of(delivery, rotated, clock.now + later)
        assert len(headers["webhook-signature"].split(" ")) == count


def test_slack_gets_what_it_shows() -> None:
    data = {
        "experiment": "shop",
        "headline": "After 5 visits, <B> leads & wins.",
        "decision": {"word": "ship", "text": "Ship <B>.", "variant": "<B>"},
        "url": "https://tests.example.org/experiments/shop",
    }
    found = slack_body({"type": "experiment.decided", "timestamp": "", "data": data})
    assert found == {
        "text": "shop is decided. Ship &lt;B&gt;. After 5 visits, &lt;B&gt; leads &amp; wins.",
        "blocks": [
            {
                "type": "section",
                "text": {
                    "type": "mrkdwn",
                    "text": "*shop is decided.*\nShip &lt;B&gt;.\nAfter 5 visits, &lt;B&gt; leads "
                    "&amp; wins.\n"
                    "<https://tests.example.org/experiments/shop|Open the experiment>",
                },
            }
        ],
    }


def test_every_event_has_words_for_slack() -> None:
    data = {"experiment": "shop", "headline": "H.", "decision": None, "url": None}
    for event in EVENTS:
        assert event not in slack_body({"type": event, "data": data})["text"]


def test_long_names_make_no_long_messages(storage: Storage, clock: Clock) -> None:
    notifier = Notifier(storage, send=sending(ReceiverAnswer(200))[0], now=clock)
    listen(storage)
    names = [letter * 5000 for letter in "AB"]
    test = sa.create_experiment(
        "long", names, sa.Uniform(), 400, storage, missing="zero", reward_window="1d", seed=1
    )
    for i in range(400):
        got = test.ask(f"u{i}")
        test.tell(got, float(i % 10 < (1 if got.name == names[0] else 6)))
    clock.now += 3 * DAY
    tell(notifier)
    assert all(len(str(one.body)) < 5000 for one in storage.deliveries())
    assert any(one.type == "experiment.decided" for one in storage.deliveries())


# Sending


def test_a_receiver_that_is_down_then_failing_then_up_gets_it(storage: Storage) -> None:
    storage, clock = open_storage("memory"), Clock(open_storage("memory").now())
    with receiving() as receiver:
        port = receiver.port
    listen(storage, receiver.url)
    shop(storage)
    clock.now += SECOND
    notifier = Notifier(storage, now=clock)
    tell(notifier)
    assert "the connection failed" in storage.deliveries()[0].note
    with receiving(port, statuses=[500, 503, 204]) as receiver:
        for _ in range(3):
            clock.now = storage.deliveries()[0].due
            tell(notifier, watch=False)
    assert len({one.id for one in receiver.got}) == 1
    (delivery,) = storage.deliveries()
    assert (delivery.state, delivery.attempts, delivery.status) == ("delivered", 4, 204)


def test_a_slow_receiver_is_given_up_and_holds_up_nobody() -> None:
    async def work(slow: Receiver, quick: Receiver) -> tuple[Any, ...]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        slowly = asyncio.create_task(post(slow.url, {}, b"{}", private=True, timeout=0.6))
        answer = await post(quick.url, {}, b"{}", private=True)
        between = slowly.done()
        with pytest.raises(DeliveryError, match=r"no response within 0\.6 s"):
            await slowly
        return answer, between, loop.time() - began

    with receiving(delay=20) as slow, receiving(statuses=[202]) as quick:
        answer, between, took = run_apart(work(slow, quick))
    assert answer == ReceiverAnswer(202)
    assert not between
    assert took < 10


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"statuses": [200], "content": b"x" * 3_000_000}, ReceiverAnswer(200)),
        ({"statuses": [429], "headers": {"Retry-After": "120"}}, ReceiverAnswer(429, 120.0)),
        ({"statuses": [429], "headers": {"Retry-After": "Wed, 21 Oct 2026"}}, ReceiverAnswer(429)),
        ({"statuses": [302], "headers": {"Location": "http://127.0.0.1:1/"}}, ReceiverAnswer(302)),
    ],
)
def test_answers_are_read_and_redirects_not_followed(
    given: dict[str, Any], expected: ReceiverAnswer
) -> None:
    with receiving(**given) as receiver:
        assert run_apart(post(receiver.url, {}, b"{}", private=True)) == expected
    assert len(receiver.got) == 1


async def _raw(answer: bytes) -> ReceiverAnswer | DeliveryError:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            return await post(f"http://127.0.0.1:{port}/", {}, b"{}", private=True, timeout=5)
        except DeliveryError as error:
            return error


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "closed before a response came"),
        (b"nonsense\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "larger than"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            "answered 101",
        ),
    ],
)
def test_what_is_no_answer_is_an_error(answer: bytes, said: str) -> None:
    found = run_apart(_raw(answer))
    assert isinstance(found, DeliveryError)
    assert said in str(found)


def test_an_informational_answer_is_not_the_answer() -> None:
    raw = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
    assert run_apart(_raw(raw)) == ReceiverAnswer(204)


@pytest.mark.parametrize("more", [b"HTTP/1.1 500 Oh\r\nRetry-After: 9\r\n\r\n", b"nonsense"])
def test_what_comes_after_the_answer_does_not_matter(more: bytes) -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + more
    assert run_apart(_raw(raw)) == ReceiverAnswer(200)


def test_an_unforeseen_error_is_a_failed_attempt_with_a_pause(
    storage: Storage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> ReceiverAnswer:
        raise ZeroDivisionError

    webhook = listen(storage, "https://hooks.example/")
    shop(storage)
    notifier = Notifier(storage, send=broken, now=clock)
    clock.now += SECOND
    tell(notifier)
    (delivery,) = storage.deliveries()
    assert (delivery.state, delivery.attempts) == ("waiting", 1)
    assert delivery.note == "sending failed: ZeroDivisionError"
    assert delivery.due > clock.now
    assert "ZeroDivisionError" in caplog.text
    tested = run_apart(notifier.test(webhook.id))
    assert (tested.state, tested.note) == ("failed", delivery.note)


@pytest.mark.parametrize(
    ("host", "trusted", "said"),
    [
        ("127.0.0.1", True, ""),
        ("127.0.0.1", False, "the certificate is not valid: unable to get local issuer"),
        ("hooks.example", True, "the certificate is not valid: IP address mismatch"),
    ],
)
def test_certificates_are_checked(
    host: str, trusted: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(server_side)
    if trusted:
        knows = ssl.create_default_context()
        authority.configure_trust(knows)
        monkeypatch.setattr(outgoing, "_tls", lambda: knows)

    async def work() -> ReceiverAnswer:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_side)
        async with server:
            url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            return await post(url, {}, b"{}", private=True, timeout=5)

    if said:
        with pytest.raises(DeliveryError, match=said):
            run_apart(work())
    else:
        assert run_apart(work()) == ReceiverAnswer(204)


# Addresses


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1"),
        *("::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:a00:1::", "2001:0:1::1", "ff02::1"),
        *("::127.0.0.1", "240.0.0.1", "64:ff9b:1::1", "fec0::1"),
    ],
)
def test_private_addresses_are_known(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111"])
def test_public_addresses_are_known(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://hooks.example/", "file:///etc/passwd", "hooks.example", "//hooks.example", ""),
        *("https://", "https://user:password@hooks.example/", "https://hooks.example/#part"),
        *("https://hooks.example/a b", "https://hooks.example/\r\nX: y", "https://hooks.example:x"),
        *("https://hooks.example/ü", "https://hooks.example:0/", "https://[::1", "javascript:1"),
        "https://hooks.example/" + "x" * 3000,
    ],
)
@pytest.mark.parametrize("private", [True, False])
def test_what_is_no_address_is_refused(url: str, private: bool) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        checked_url(url, private)


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1/", "http://localhost:8000/", "https://10.0.0.7/", "http://[::1]/"),
        *("http://0.0.0.0/", "http://169.254.169.254/latest/", "http://metadata.google.internal/"),
        *("http://[::ffff:127.0.0.1]/", "http://printer.local/"),
    ],
)
def test_private_targets_are_refused_unless_allowed(url: str) -> None:
    with pytest.raises(InvalidInputError, match="--allow-private"):
        checked_url(url)
    assert checked_url(url, private=True) == url


@pytest.mark.parametrize("url", ["http://2130706433/", "http://127.1/", "http://0x7f.1/"])
def test_names_that_lead_to_private_addresses_are_refused_when_sent(url: str) -> None:
    with pytest.raises(DeliveryError, match=r"private address 127\.0\.0\.1|not found"):
        run_apart(post(url, {}, b"{}"))


def test_a_name_that_changes_its_address_is_checked_when_it_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with receiving() as receiver:

        async def work(address: str, private: bool) -> ReceiverAnswer:
            loop = asyncio.get_running_loop()

            async def lookup(host: str, port: int, **_: Any) -> list[Any]:
                assert host == "hooks.example"
                return [(2, 1, 6, "", (address, port))]

            monkeypatch.setattr(loop, "getaddrinfo", lookup)
            url = f"http://hooks.example:{receiver.port}/"
            return await post(url, {}, b"{}", private=private, timeout=5)

        with pytest.raises(DeliveryError, match=r"private address 127\.0\.0\.1, which is not"):
            run_apart(work("127.0.0.1", private=False))
        assert receiver.got == []
        assert run_apart(work("127.0.0.1", private=True)) == ReceiverAnswer(204)
    assert receiver.got[0].headers["host"] == f"hooks.example:{receiver.port}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"events": ["experiment.exploded"]}, "experiment.exploded"),
        ({"format": "teams"}, "teams"),
        ({"experiments": ["a b"]}, "a b"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        new_webhook("https://hooks.example/", START, **given)


def test_what_may_be_secret_is_not_shown() -> None:
    url = "https://hooks.example/path?key=hidden"
    plain = new_webhook(url, START)
    slack = new_webhook(url, START, format="slack")
    assert plain.shown == "https://hooks.example/path?…"
    assert slack.shown == "https://hooks.example/…"
    assert plain.secrets[0].text not in repr(plain)
    assert "hidden" not in str(plain.detail)
    assert "path" not in str(slack.detail)


def test_failures_are_no_secret_of_the_log(
    storage: Storage, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    webhook = listen(storage, "http://127.0.0.1:9/hidden")
    shop(storage)
    clock.now += SECOND
    notifier = Notifier(storage, send=sending(ReceiverAnswer(410))[0], now=clock)
    tell(notifier)
    assert webhook.secrets[0].text not in caplog.text
    assert "hidden" not in caplog.text
