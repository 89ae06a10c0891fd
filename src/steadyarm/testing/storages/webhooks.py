"""Checks of webhooks: endpoints, events that are noticed once, deliveries that are leased."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from steadyarm.errors import InvalidInputError, UnknownExperimentError
from steadyarm.storages.webhooks import (
    EVENTS,
    KEPT,
    SERVICE,
    Attempt,
    Delivery,
    Message,
    Notice,
    Secret,
    WebhookRecord,
)
from steadyarm.testing.storages.bench import DAY, HOUR, NAMES, NOW, Bench, refused, together

SECOND = 1_000_000
LEASE = 30 * SECOND
DONE = Attempt("delivered", status=204)


def _webhook(id: str = "wh_1", **more: Any) -> WebhookRecord:
    given = {"url": f"https://hooks.example/{id}", "secrets": (Secret(f"whsec_{id}"),)}
    return WebhookRecord(id=id, **given | {"created": NOW} | more)


def _message(number: int = 1, type: str = EVENTS[0], at: int = NOW, **more: Any) -> Message:
    given: dict[str, Any] = {"experiment": "e", "body": {"type": type, "data": {"n": number}}}
    return Message(f"msg_{number}", type, at=at, **given | more)


def _taken(storage: Bench, now: int) -> list[Delivery]:
    return [one for one, _ in storage.take_deliveries(now, now + LEASE)]


# Endpoints


def check_webhooks(storage: Bench) -> None:
    """Endpoints are kept as given, in the order of their creation, each with an audit entry."""
    assert storage.webhooks() == [], "a fresh storage has endpoints"
    secrets = Secret("whsec_new"), Secret("whsec_old", NOW + HOUR)
    more = {"events": EVENTS[:2], "experiments": NAMES, "private": True, "secrets": secrets}
    made = [
        _webhook("wh_b", **more),
        _webhook("wh_a", created=NOW + 1, format="slack", disabled=NOW + 5, note="gone: 410"),
        _webhook("wh_c", created=NOW + 2, url="http://user.example:8080/x?key=hidden"),
    ]
    for one in (made[1], made[0], made[2]):
        storage.add_webhook(one, by="ada")
    assert storage.again().webhooks() == made, "endpoints are not kept as given, in order"
    gone = storage.remove_webhook("wh_a", now=NOW + 9, by="bob")
    assert gone == made[1], "remove_webhook returns another record"
    assert storage.webhooks() == [made[0], made[2]], "not that one endpoint was removed"
    refused(InvalidInputError, "removing no endpoint", storage.remove_webhook, "wh_a", now=NOW)
    noted = [(e.action, e.author, e.created, e.detail["webhook"]) for e in storage.audit()]
    assert noted[-1] == ("webhook.removed", "bob", NOW + 9, "wh_a"), "removing is not noted"
    assert Counter(n[:2] for n in noted)["webhook.added", "ada"] == 3, "adding is not noted"
    said = str(storage.audit())
    assert "whsec_" not in said, "the audit log has a secret"
    assert "hidden" not in said, "the audit log has what may be secret"


def check_rotated(storage: Bench) -> None:
    """After a rotation the secret before it signs for a while, too."""
    storage.add_webhook(_webhook())
    until = NOW + DAY
    found = storage.rotate_webhook("wh_1", "whsec_2", until=until, now=NOW + 1, by="ada")
    assert storage.again().webhooks() == [found], "not stored as it was returned"
    assert found.secrets == (Secret("whsec_2"), Secret("whsec_wh_1", until)), "not both secrets"
    later = storage.rotate_webhook("wh_1", "whsec_3", until=until + DAY, now=until, by="ada")
    kept = Secret("whsec_3"), Secret("whsec_2", until + DAY)
    assert later.secrets == kept, "a secret that no longer signs is kept, or one that does is not"
    assert storage.audit()[-1].action == "webhook.rotated", "rotating is not noted"
    unknown = {"until": until, "now": NOW}
    refused(InvalidInputError, "rotating nothing", storage.rotate_webhook, "x", "whsec_", **unknown)


# Events


def check_noticed(storage: Bench) -> None:
    """What is noticed is stored with its deliveries, and only on the version it rests on."""
    key, other = storage.new_experiment("e").key, storage.new_experiment("f").key
    storage.add_webhook(_webhook())
    assert storage.notices() == {}, "something was noticed by itself"
    state = {"started": True, "decision": ["ship", NAMES[4]], "told": None}
    assert storage.notice(key, 0, state, [_message(1)], NOW + 2), "a first notice was refused"
    again = storage.again()
    assert again.notices() == {key: Notice(1, state)}, "not kept as given"
    for version in (0, 2):
        done = again.notice(key, version, {}, [_message(2)], NOW + 3)
        assert not done, "stored on another version"
    assert again.notices() == {key: Notice(1, state)}, "a refused notice changed something"
    more = state | {"spent": True}
    messages = [_message(2, EVENTS[3]), _message(3, EVENTS[1])]
    assert again.notice(key, 1, more, messages, NOW + 4), "a second notice was refused"
    assert storage.notice(other, 0, {}, [], NOW + 4), "a notice without messages was refused"
    assert storage.notices() == {key: Notice(2, more), other: Notice(1, {})}, "not both"
    found = storage.deliveries()
    assert [(d.message, d.type) for d in found] == [
        ("msg_3", EVENTS[1]),
        ("msg_2", EVENTS[3]),
        ("msg_1", EVENTS[0]),
    ], "not each message once, the newest first"
    assert [(d.created, d.due, d.state, d.attempts) for d in found[1:]] == [
        (NOW + 4, NOW + 4, "waiting", 0),
        (NOW + 2, NOW + 2, "waiting", 0),
    ], "deliveries do not wait as they should"
    assert found[-1].body == _message(1).body, "the body is not kept"
    refused(UnknownExperimentError, "a notice of nothing", storage.notice, 10**6, 0, {}, [], NOW)


def check_who_hears(storage: Bench) -> None:
    """Endpoints hear of what they want, if it happened after they were added."""
    key = storage.new_experiment("e").key
    for one in (
        _webhook("all"),
        _webhook("decided", events=(EVENTS[1],)),
        _webhook("mine", experiments=("e", "x")),
        _webhook("others", experiments=("f",)),
        _webhook("late", created=NOW + 10),
        _webhook("off", disabled=NOW),
    ):
        storage.add_webhook(one)
    messages = [_message(1, EVENTS[1], at=NOW + 9), _message(2, EVENTS[0], at=NOW + 10)]
    assert storage.notice(key, 0, {}, messages, NOW + 20)
    heard = Counter((d.webhook, d.message) for d in storage.deliveries())
    expected = [("all", 1), ("all", 2), ("decided", 1), ("mine", 1), ("mine", 2), ("late", 2)]
    assert heard == Counter((w, f"msg_{n}") for w, n in expected), "not those who want it hear"
    assert [d.webhook for d in storage.deliveries("mine")] == ["mine"] * 2, "of other endpoints"
    refused(InvalidInputError, "deliveries of no endpoint", storage.deliveries, "x")
    storage.remove_webhook("mine", now=NOW + 30)
    left = {d.webhook for d in storage.deliveries()}
    assert left == {"all", "decided", "late"}, "deliveries of a removed endpoint are left"
    (last,) = storage.deliveries(most=1)
    page = storage.deliveries(before=last.id, most=2)
    assert [d.id < last.id for d in page] == [True, True], "pages do not go on after the last one"


def check_threads_notice(storage: Bench) -> None:
    """Of many who notice the same, one stores it: each message is delivered once."""
    storages = [storage.again() for _ in range(3)]
    key = storages[0].new_experiment("e").key
    storage.add_webhook(_webhook("wh_1"))
    storage.add_webhook(_webhook("wh_2"))
    for version in range(3):

        def notice(i: int, version: int = version) -> bool:
            message = _message(version)
            return bool(storages[i % 3].notice(key, version, {"n": version}, [message], NOW))

        assert sum(together(notice, 6)) == 1, "several noticed the same, or nobody did"
    sent = Counter((d.webhook, d.message) for d in storage.deliveries())
    assert set(sent.values()) == {1}, "a message is delivered twice"
    assert len(sent) == 6, "a message is lost"


# Deliveries


def check_taken(storage: Bench) -> None:
    """One delivery of each endpoint is under way at a time, the one due for longest."""
    key = storage.new_experiment("e").key
    for one in (_webhook("a"), _webhook("b", created=NOW + 5)):
        storage.add_webhook(one)
    messages = [_message(n, at=NOW + n) for n in (4, 5, 6)]
    assert storage.notice(key, 0, {}, messages, NOW + 9)
    assert storage.take_deliveries(NOW + 8, NOW + LEASE) == [], "taken before it was due"
    found = storage.take_deliveries(NOW + 9, NOW + LEASE)
    assert [(d.message, w.id, d.attempts, d.leased) for d, w in found] == [
        ("msg_4", "a", 1, NOW + LEASE),
        ("msg_5", "b", 1, NOW + LEASE),
    ], "not the oldest of each endpoint"
    assert [w for _, w in found] == storage.webhooks(), "not with their endpoints"
    assert _taken(storage.again(), NOW + 10) == [], "an endpoint has two under way"
    (first, _), (second, _) = found
    assert storage.again().settle(first.id, 1, DONE, NOW + 11), "an attempt is not stored"
    (stored,) = [d for d in storage.deliveries() if d.id == first.id]
    shown = stored.state, stored.status, stored.ended, stored.leased
    assert shown == ("delivered", 204, NOW + 11, 0), "how it went is not kept"
    later = Attempt("waiting", NOW + HOUR, 503, "answered 503")
    assert storage.settle(second.id, 1, later, NOW + 12), "a failed attempt is not stored"
    # What waits for its next attempt holds up nothing.
    assert len(storage.take_deliveries(NOW + 13, NOW + 13, 1)) == 1, "more than were wanted"
    next_ones = _taken(storage, NOW + 13)
    assert [(d.message, d.webhook) for d in next_ones] == [
        ("msg_5", "a"),
        ("msg_6", "b"),
    ], "not the next of each endpoint"
    for begun in next_ones:
        assert storage.settle(begun.id, begun.attempts, DONE, NOW + 14)
    (again,) = [d for d in _taken(storage, NOW + HOUR) if d.webhook == "b"]
    assert (again.id, again.attempts) == (second.id, 2), "what failed is not tried again"
    assert (again.status, again.note) == (503, "answered 503"), "how it went is forgotten"


def check_fair(storage: Bench) -> None:
    """What fails again and again does not hold up what is new."""
    key = storage.new_experiment("e").key
    storage.add_webhook(_webhook())
    assert storage.notice(key, 0, {}, [_message(1), _message(2)], NOW)
    (first,) = _taken(storage, NOW)
    assert storage.settle(first.id, 1, Attempt("waiting", NOW + 5, 500, "answered 500"), NOW + 1)
    assert storage.notice(key, 1, {}, [_message(3)], NOW + 3)
    order = []
    for _ in range(3):
        (one,) = _taken(storage, NOW + 9)
        order.append(one.message)
        assert storage.settle(one.id, one.attempts, DONE, NOW + 9)
    assert order == ["msg_2", "msg_3", "msg_1"], "not the one that was due for longest first"


def check_killed(storage: Bench) -> None:
    """A delivery whose process was killed is sent again; what that process reports is ignored."""
    key = storage.new_experiment("e").key
    storage.add_webhook(_webhook())
    assert storage.notice(key, 0, {}, [_message(1)], NOW)
    (first,) = _taken(storage, NOW)
    assert _taken(storage, NOW + LEASE - 1) == [], "taken before the lease expired"
    (second,) = _taken(storage.again(), NOW + LEASE)
    assert (second.id, second.message, second.attempts) == (first.id, "msg_1", 2), "another one"
    slow = Attempt("failed", note="too late")
    assert not storage.settle(first.id, 1, slow, NOW + LEASE + 1), "an old attempt is stored"
    assert storage.settle(second.id, 2, DONE, NOW + LEASE + 2), "the last attempt is not stored"
    assert not storage.settle(second.id, 2, DONE, NOW + LEASE + 3), "stored twice"
    assert _taken(storage, NOW + DAY) == [], "sent again after it was delivered"
    assert not storage.settle(10**6, 1, DONE, NOW), "an attempt of no delivery is stored"


def check_gone(storage: Bench) -> None:
    """An endpoint that is gone is disabled, its deliveries fail; it can be enabled again."""
    key = storage.new_experiment("e").key
    for one in ("a", "b"):
        storage.add_webhook(_webhook(one))
    assert storage.notice(key, 0, {}, [_message(1), _message(2)], NOW)
    (first, _), (other, _) = storage.take_deliveries(NOW, NOW + LEASE)
    gone = Attempt("failed", None, 410, "answered 410 Gone", gone=True)
    assert storage.settle(first.id, 1, gone, NOW + 5)
    found = {one.id: one for one in storage.again().webhooks()}
    assert (found["a"].disabled, found["a"].note) == (NOW + 5, gone.note), "not disabled"
    assert found["b"].active, "another endpoint was disabled"
    states = {(d.webhook, d.message): (d.state, d.note) for d in storage.deliveries()}
    failed = "failed", gone.note
    assert states["a", "msg_1"] == states["a", "msg_2"] == failed, "deliveries still wait"
    assert states["b", "msg_2"] == ("waiting", ""), "deliveries of others failed"
    entry = storage.audit()[-1]
    assert (entry.action, entry.author) == ("webhook.disabled", SERVICE), "it is not noted"
    assert storage.settle(other.id, 1, DONE, NOW + 6)
    assert storage.notice(key, 1, {}, [_message(3)], NOW + 7)
    assert {d.webhook for d in _taken(storage, NOW + 8)} == {"b"}, "sent to a disabled endpoint"
    back = storage.enable_webhook("a", now=NOW + 9, by="ada")
    assert (back.active, back.note) == (True, ""), "not enabled"
    assert storage.webhooks()[0] == back, "not stored as it was returned"
    count = len(storage.audit())
    assert storage.audit()[-1].action == "webhook.enabled", "enabling is not noted"
    assert storage.enable_webhook("a", now=NOW + 9) == back, "enabling twice changes something"
    assert len(storage.audit()) == count, "what changes nothing is noted"
    refused(InvalidInputError, "enabling nothing", storage.enable_webhook, "x", now=NOW)


def check_delivered_by_hand(storage: Bench) -> None:
    """A test goes to one endpoint, whatever it wants; anything can be sent again."""
    storage.add_webhook(_webhook(events=(EVENTS[1],), experiments=("x",)))
    test = _message(1, "webhook.test", experiment=None)
    made = storage.deliver("wh_1", test, now=NOW, leased=NOW + LEASE)
    assert (made.attempts, made.experiment, made.body) == (1, None, test.body), "not as given"
    assert storage.again().deliveries() == [made], "not stored as it was returned"
    assert _taken(storage, NOW + 1) == [], "taken although it is under way"
    assert storage.settle(made.id, 1, Attempt("failed", None, 500, "answered 500"), NOW + 2)
    again = storage.resend(made.id, now=NOW + HOUR)
    shown = again.message, again.state, again.attempts, again.due, again.ended, again.began
    assert shown == ("msg_1", "waiting", 1, NOW + HOUR, None, NOW + HOUR), "not the same message"
    (second,) = _taken(storage, NOW + HOUR)
    assert (second.message, second.attempts) == ("msg_1", 2), "not sent again"
    unleased = storage.deliver("wh_1", _message(2), now=NOW)
    assert (unleased.attempts, unleased.leased) == (0, 0), "an attempt was counted"
    refused(InvalidInputError, "sending no delivery", storage.resend, 10**6, now=NOW)
    refused(InvalidInputError, "a test of nothing", storage.deliver, "x", test, now=NOW)


def check_threads_take(storage: Bench) -> None:
    """However many take at once, an endpoint has one under way, and each is taken in turn."""
    storages = [storage.again() for _ in range(3)]
    key = storages[0].new_experiment("e").key
    for name in ("a", "b"):
        storage.add_webhook(_webhook(name))
    assert storage.notice(key, 0, {}, [_message(n) for n in range(5)], NOW)
    order: list[tuple[str, str]] = []
    for turn in range(5):

        def take(i: int) -> list[Delivery]:
            return _taken(storages[i % 3], NOW)

        taken = sorted((d for some in together(take, 6) for d in some), key=lambda d: d.webhook)
        assert [d.webhook for d in taken] == ["a", "b"], "not one of each endpoint"
        for one in taken:
            order.append((one.webhook, one.message))
            assert storages[turn % 3].settle(one.id, one.attempts, DONE, NOW + turn)
    assert order == [(w, f"msg_{n}") for n in range(5) for w in "ab"], "not in their order"
    assert _taken(storage, NOW + DAY) == [], "something is left"


def check_turns(storage: Bench) -> None:
    """One holder has the turn; another one gets it when its time is over or it is given back."""
    other = storage.again()
    assert storage.take_turn("send", "one", NOW, NOW + 10), "a free turn is refused"
    assert not other.take_turn("send", "two", NOW + 9, NOW + 99), "two have the turn"
    assert other.take_turn("watch", "two", NOW + 9, NOW + 99), "another turn is taken, too"
    assert storage.take_turn("send", "one", NOW + 9, NOW + 20), "the holder may not go on"
    assert not other.take_turn("send", "two", NOW + 10, NOW + 99), "it was not prolonged"
    assert other.take_turn("send", "two", NOW + 20, NOW + 99), "its time is over"
    assert not storage.take_turn("send", "one", NOW + 30, NOW + 40), "two have the turn"
    assert other.take_turn("send", "two", NOW + 30, NOW + 30), "it cannot be given back"
    assert storage.take_turn("send", "one", NOW + 30, NOW + 40), "it was not given back"

    def take(i: int) -> bool:
        return bool((storage, other)[i % 2].take_turn("race", f"{i}", NOW, NOW + 9))

    assert sum(together(take, 6)) == 1, "several have the turn"


def check_deliveries_pruned(storage: Bench) -> None:
    """Deliveries that ended long ago are removed; notices go with their experiment."""
    key = storage.new_experiment("e", state="stopped").key
    storage.add_webhook(_webhook())
    assert storage.notice(key, 0, {"n": 1}, [_message(n) for n in range(3)], NOW)
    for when in (NOW, NOW + DAY):
        (taken,) = _taken(storage, when)
        assert storage.settle(taken.id, 1, replace(DONE, status=200), when)
    assert storage.prune(NOW + KEPT).deliveries == 0, "removed too soon"
    assert storage.prune(NOW + KEPT + 1).deliveries == 1, "not only the oldest was removed"
    assert [d.message for d in storage.deliveries()] == ["msg_2", "msg_1"], "not the oldest"
    assert storage.prune(NOW + 2 * KEPT).deliveries == 1, "what waits was removed"
    storage.move(key, "archived", now=NOW + 1)
    storage.prune(NOW + 2, NOW + HOUR)
    assert storage.notices() == {}, "a notice outlives its experiment"
