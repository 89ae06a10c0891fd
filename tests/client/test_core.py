"""What clients decide: tries, pauses, errors and defaults, without a network."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx2
import pytest

import steadyarm as sa
from steadyarm.client import Client, ServiceDownError
from steadyarm.client.core import KINDS, BusyError, Call, Service, Visit
from tests.service.clients import receiving

URL = "http://shop.example"


def service(url: str = URL, **options: Any) -> Service:
    usual: dict[str, Any] = {"timeout": 2.0, "retries": 3, "default_arm": None, "cooldown": 5.0}
    return Service(url, None, **usual | {"on_unknown": "ignore", "buffered": False} | options)


def call(of: Service, **options: Any) -> Call[bytes]:
    return Call(of, bytes, "POST", ("x",), **options)


def answer(status: int, body: Any = None, **headers: str) -> httpx2.Response:
    request = httpx2.Request("POST", f"{URL}/v1/x")
    return httpx2.Response(status, headers=headers, json=body, request=request)


def problem(kind: str, status: int = 409, **more: Any) -> dict[str, Any]:
    given = {"type": f"urn:steadyarm:problem:{kind}", "status": status, "detail": "That is why."}
    return given | more


def fail(tried: Call[bytes], error: Exception) -> list[float]:
    """The pauses between tries that all fail alike."""
    pauses: list[float] = []
    while True:
        tried.request()
        try:
            pauses.append(tried.pause_after(error))
        except sa.SteadyArmError:
            return pauses


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_service_is_asked_again(status: int) -> None:
    tried = call(service())
    with pytest.raises(BusyError) as caught:
        tried.receive(answer(status))
    first, second, third = fail(tried, caught.value)
    assert 0.025 <= first <= 0.075
    assert 0.05 <= second <= 0.15
    assert 0.1 <= third <= 0.3


def test_tries_share_the_time_limit() -> None:
    tried = call(service(timeout=4.0, retries=1))
    assert 1.9 < tried.request()["timeout"] <= 2.0
    tried.pause_after(httpx2.ReadTimeout("slow"))
    assert 3.5 < tried.request()["timeout"] <= 4.0
    whole = call(service(timeout=4.0), repeatable=False)
    assert 3.9 < whole.request()["timeout"] <= 4.0


@pytest.mark.parametrize(
    ("error", "tries"),
    [(httpx2.ReadError("cut"), 1), (httpx2.ReadTimeout("slow"), 1), (httpx2.ConnectError("no"), 4)],
)
def test_what_may_have_been_processed_is_not_repeated(error: Exception, tries: int) -> None:
    assert len(fail(call(service(), repeatable=False), error)) == tries - 1
    assert len(fail(call(service()), error)) == 3


def test_retry_after_is_honoured() -> None:
    tried = call(service(timeout=5))
    with pytest.raises(BusyError) as caught:
        tried.receive(answer(503, **{"Retry-After": "1"}))
    assert tried.pause_after(caught.value) == 1.0
    late = call(service(timeout=0.1))
    with pytest.raises(ServiceDownError, match="answered 503"):
        late.pause_after(caught.value)


def test_the_breaker_hears_of_outages_and_not_of_slow_verdicts() -> None:
    of = service(retries=0)
    with pytest.raises(ServiceDownError, match="did not answer in time"):
        call(of, seconds=30.0).pause_after(httpx2.ReadTimeout("slow"))
    assert not of.breaker.open
    with pytest.raises(ServiceDownError, match="cannot be reached: refused; is it running"):
        call(of, seconds=30.0).pause_after(httpx2.ConnectError("refused"))
    assert of.breaker.open
    heard: list[bool] = []
    of.recovered = lambda: heard.append(True)
    with pytest.raises(sa.ServiceError):
        call(of).receive(answer(404))
    assert (of.breaker.open, heard) == (False, [True])


@pytest.mark.parametrize("kind", KINDS)
def test_problems_become_the_errors_of_experiments(kind: str) -> None:
    with pytest.raises(KINDS[kind], match=r"That is why\. Do this\.$") as caught:
        call(service()).receive(answer(409, problem(kind, hint="Do this.")))
    assert type(caught.value) is KINDS[kind]


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, problem("internal", 500, request_id="r7"), "request r7"),
        (401, problem("unauthorized", 401), r"That is why\. Give a token"),
        (403, problem("forbidden", 403, hint="Another one."), r"That is why\. Another one\."),
        (413, problem("too-large", 413, request_id="r1"), r"That is why\. \(request r1\)"),
        (413, "<h1>nginx</h1>", "answered 413"),
        (404, "<h1>nginx</h1>", "answered 404 Not Found, and not as a SteadyArm"),
        (307, "", "answered 307"),
    ],
)
def test_all_else_is_a_service_error(status: int, body: Any, message: str) -> None:
    with pytest.raises(sa.ServiceError, match=message) as caught:
        call(service()).receive(answer(status, body))
    assert isinstance(caught.value, ServiceDownError) == (status == 500)  # which is not repeated


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"<h1>Log in</h1>", "which is no JSON"), (b'{"other": 1}', "cannot be read .*other version")],
)
def test_strange_answers_are_service_errors(body: bytes, message: str) -> None:
    status = service().experiment("shop", None).status()
    request = httpx2.Request("GET", URL)
    with pytest.raises(sa.ServiceError, match=message):
        status.receive(httpx2.Response(200, content=body, request=request))


def test_batches_have_an_entry_for_each(caplog: pytest.LogCaptureFixture) -> None:
    of = service()
    send = of.deliver("shop", [{"unit": "a"}, {"unit": "b"}])
    refused = {"error": problem("reward-conflict")}
    stored, conflict = send.receive(answer(200, {"rewards": [{"status": "stored"}, refused]}))
    assert stored == "stored"
    assert isinstance(conflict, sa.RepeatedRewardError)
    with pytest.raises(sa.ServiceError, match="1 entries for 2"):
        send.receive(answer(200, {"rewards": [{"status": "stored"}]}))
    down = {"error": problem("storage-unavailable", 503)}
    with pytest.raises(sa.StorageError):  # about the service, not about the reward
        send.receive(answer(200, {"rewards": [{"status": "stored"}, down]}))
    event = of.event("bought", "ann", 1.0, None, None)
    partly = {"experiments": [{"name": "a", "status": "stored"}, {"name": "b", **refused}]}
    for _ in range(2):
        assert of.deliver(None, [event]).receive(answer(200, {"events": [partly]})) == ["stored"]
    assert caplog.text.count("an event does not count everywhere") == 1


def test_each_kind_of_reason_is_said_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = service(default_arm="A").experiment("shop", None)
    start = time.monotonic()
    for now in (0.0, 30.0, 59.0, 61.0):
        monkeypatch.setattr(time, "monotonic", lambda now=now: start + now)
        for error in (sa.BudgetSpentError("All are out."), sa.ServiceError("Nothing there.")):
            (shown,) = shop.settle([Visit("u")], [error])
            assert not isinstance(shown, sa.SteadyArmError)
    said = [line.rpartition("test: ")[2] for line in caplog.messages]
    assert said == ["BudgetSpentError: All are out.", "ServiceError: Nothing there."] * 2


NO_ADDRESSES = ("localhost:8000", "http://", "http:///v1", "http://[::1", "http://host:99999")


def test_bad_arguments_are_refused() -> None:
    for url in ("http://v1", "http://v1/", "http://v1/v1", "http://v1/v1/"):
        assert service(url).url == "http://v1"
    nan, of = float("nan"), service()
    wrong: list[tuple[Callable[[], object], str]] = [
        *((partial(service, url), "address of a service") for url in NO_ADDRESSES),
        (lambda: service(timeout=0), "seconds above 0"),
        (lambda: service(on_unknown="stop"), "on_unknown is 'stop'"),
        (lambda: of.experiment("", None), "expected an experiment's"),
        (lambda: call(of, body={"x": nan}).request(), "cannot be sent"),
        (lambda: of.event("bought", "ann", nan, None, None), "value of 'bought' is nan"),
        (lambda: of.event("bought", "ann", 1.0, "", None), "id of the event"),
    ]
    for attempt, message in wrong:
        with pytest.raises(sa.InvalidInputError, match=message):
            attempt()


def test_the_token_is_sent_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with (
        receiving(answers=[(401, problem("unauthorized", 401))]) as server,
        Client(server.address + "/behind/", "sa_secret", default_arm="A") as client,
        caplog.at_level(logging.WARNING),
    ):
        shop = client.experiment("shop")
        assert not any(shop.ask(f"u{i}").in_test for i in range(5))
        assert (client.defaulted, len(server.got)) == (5, 5)  # no outage: a new token works
        assert "sa_secret" not in repr(client) + repr(shop) + caplog.text
    first = server.got[0]
    assert first.path == "/behind/v1/experiments/shop"
    assert first.headers["authorization"] == "Bearer sa_secret"
    (line,) = caplog.messages
    assert "Give a token" in line
