"""Both clients against a real service: verbs, errors, outages, lost answers and cancellation."""

from __future__ import annotations

import asyncio
import inspect
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.client import (
    AsyncClient,
    AsyncRemoteExperiment,
    Client,
    RemoteExperiment,
    ServiceDownError,
)
from tests.client.conftest import Connect, Create, Proxy
from tests.service.clients import receiving, run_apart

PRICES = {"A": {"price": 9}, "B": {"price": 12}}
METRICS: list[dict[str, Any]] = [
    {"name": "bought", "role": "primary", "kind": "yes/no", "window": "1d"},
    {"name": "revenue", "kind": "money", "several": "sum", "window": "1d"},
]


def test_both_kinds_have_the_same_verbs() -> None:
    for waits, awaits in ((Client, AsyncClient), (RemoteExperiment, AsyncRemoteExperiment)):
        verbs = {name for name in dir(waits) if not name.startswith("_")}
        assert verbs == {name for name in dir(awaits) if not name.startswith("_")}
        for verb in verbs - {"experiment"}:
            one, other = getattr(waits, verb), getattr(awaits, verb)
            if inspect.isfunction(one):
                assert inspect.signature(one) == inspect.signature(other)


def test_a_whole_test(url: str, connect: Connect, create: Create, name: str) -> None:
    there = create("ABC", 600, reward_range=(0, 1), control="B", seed=3)
    client = connect(url, timeout=30)
    shop = client.experiment(name)
    first = shop.ask("u0")
    assert (first.unit, first.new, first.in_test, first.value) == ("u0", True, True, first.arm)
    for target in (first, first.id, "u0"):
        shop.tell(target, 1.0)
    answers = shop.ask_many([f"u{i}" for i in range(300)])
    outcomes = shop.tell_many([(one, (3 * i) % 7 / 7) for i, one in enumerate(answers) if i])
    assert outcomes == ["stored"] * 299
    assert shop.tell_many([("u0", 1.0), (answers[1].id, 3 / 7)]) == ["repeated"] * 2
    with pytest.raises(sa.RepeatedRewardError, match="first one counts"):
        shop.tell(first, 0.0)
    status = shop.status()
    assert (status.totals.assigned, status.totals.rewarded) == (300, 300)
    assert status.settings.budget == 600
    verdict, found = there.recommend(0.9), shop.recommend(0.9)
    assert (found.arm, found.decision.text) == (verdict.name, verdict.decision.text)
    assert [one.estimate for one in found.arms] == pytest.approx(verdict.estimates.tolist())
    assert shop.recommend(0.9, anytime=False).anytime is False


def test_what_is_known_of_units_is_sent(
    url: str, connect: Connect, create: Create, name: str
) -> None:
    there = create(
        attributes={"device": ["mobile", "desktop"]},
        covariates=["spend", "expected"],
        values=PRICES,
    )
    shop = connect(url).experiment(name)
    assert (one := shop.ask("u1", {"device": "mobile"}, {"spend": 41.0}, 3.2)).value == (
        PRICES[one.arm]
    )
    with pytest.raises(sa.InvalidInputError, match="not an attribute"):
        shop.ask("u2", {"color": "red"})
    answers = shop.ask_many(
        ["u3", "u4", "u5"], [{"device": "desktop"}, {"color": "red"}, None], None, [2.0, None, None]
    )
    assert isinstance(answers[1], sa.InvalidInputError)
    with pytest.raises(sa.InvalidInputError, match="give as many"):
        shop.ask_many(["u6"], covariates=[])
    found = {
        row.unit: {e.metric: e.value for e in row.events} for row in there.storage.log(there.key)
    }
    assert found["u1"].keys() >= {"device=mobile", "spend", "expected"}
    assert (found["u1"]["spend"], found["u1"]["expected"]) == (41.0, 3.2)
    assert found["u3"]["expected"] == 2.0
    assert found.keys() == {"u1", "u3", "u5"}


def test_metrics_and_events(
    url: str, connect: Connect, create: Create, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    create(metrics=METRICS, missing=None)
    client = connect(url)
    shop = client.experiment(name)
    shown = shop.ask("ann")
    shop.tell(shown, {"bought": 1})
    for order in ("1", "1", "2"):
        shop.tell("ann", {"revenue": 10.0}, timedelta(seconds=1), f"order {order}")
    assert client.track("revenue", "ann", 5.0, id="order 3") == "stored"
    assert client.track("revenue", "ann", 5.0, id="order 3") == "repeated"
    with pytest.raises(sa.InvalidInputError, match="give each an id"):
        client.track("revenue", "ann", 5.0)
    for _ in range(2):
        assert client.track("revenue", "nobody", 5.0, id="1") == "ignored"
        assert client.track("unheard-of", "ann") == "ignored"
        shop.tell("nobody", {"bought": 1})
    assert shop.tell_many([("nobody", {"bought": 1}), ("ann", {"bought": 1})]) == [
        "ignored",
        "repeated",
    ]
    assert client.ignored == 7
    assert caplog.text.count("'unheard-of'") == 1
    assert caplog.text.count("without an assignment") == 1
    strict = connect(url, on_unknown="raise")
    with pytest.raises(sa.UnknownAssignmentError):
        strict.track("unheard-of", "ann")
    with pytest.raises(sa.UnknownAssignmentError):
        strict.experiment(name).tell("nobody", {"bought": 1})


def test_errors_are_those_of_experiments(
    url: str, connect: Connect, create: Create, name: str
) -> None:
    shop = connect(url).experiment(name)
    with pytest.raises(sa.UnknownExperimentError, match=name):
        shop.ask("u")
    there = create(budget=2, start=False, after="refuse", reward_window=1, missing="zero")
    with pytest.raises(sa.WrongStateError, match="draft"):
        shop.ask("u")
    there.start()
    for unit in ("", "\ud800", 3):
        with pytest.raises(sa.InvalidInputError):
            shop.ask(unit)
    first, _ = shop.ask("u1"), shop.ask("u2")
    for reward in (float("nan"), "many"):
        with pytest.raises(sa.InvalidInputError, match="the reward is"):
            shop.tell(first, reward)
    bad, unknown, good = shop.tell_many([("\ud800", 1.0), (3, 1.0), ("u1", 1.0)])
    assert isinstance(bad, sa.InvalidInputError)
    assert isinstance(unknown, sa.InvalidInputError)
    assert good == "stored"
    with pytest.raises(sa.BudgetSpentError):
        shop.ask("u3")
    (refused,) = shop.ask_many(["u3"])
    assert isinstance(refused, sa.BudgetSpentError)
    time.sleep(2.1)  # its window, and as long for what comes late
    with pytest.raises(sa.RewardTooLateError):
        shop.tell("u2", 1.0)


def test_an_outage_is_bridged(
    proxy: Proxy, connect: Connect, create: Create, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    there = create()
    for unit in ("u1", "u2", "u3"):
        there.ask(unit)
    client = connect(proxy.url, default_arm="A", timeout=1, cooldown=0.5)
    shop = client.experiment(name)
    assert shop.ask("u1").in_test
    proxy.mode = "hang"
    began = time.monotonic()
    shown = shop.ask("u1")
    assert 0.5 < time.monotonic() - began < 15
    assert (shown.arm, shown.id, shown.unit, shown.in_test) == ("A", "", "u1", False)
    began = time.monotonic()
    assert not any(shop.ask("u1").in_test for _ in range(50))
    assert client.experiment(name, default_arm="B").ask("u2").arm == "B"
    assert [one.arm for one in shop.ask_many(["u4", "u5"])] == ["A", "A"]
    assert time.monotonic() - began < 10  # the breaker is open: nobody waits
    assert client.defaulted == 54
    assert shop.tell_many([(shown, 1.0), ("", 1.0), ("u3", 1.0)]) == ["ignored", "ignored", "lost"]
    assert (client.ignored, client.lost) == (2, 1)
    proxy.mode = "pass"
    time.sleep(0.6)
    # Other programs may report rewards of the units that saw the default arm here.
    assert shop.tell_many([("u1", 1.0), ("u2", 1.0), ("u3", 1.0)]) == [
        "ignored",
        "ignored",
        "stored",
    ]
    assert shop.ask("u1").in_test
    shop.tell("u1", 0.25)
    with pytest.raises(sa.InvalidInputError):  # no outage, so no default arm
        shop.ask("")
    rewards = {row.unit: row.reward for row in there.storage.log(there.key)}
    assert rewards == {"u1": 0.25, "u2": None, "u3": 1.0}
    messages = " ".join(caplog.messages)
    assert messages.count("default arm 'A'") == 1
    assert messages.count("loses rewards") == 1


def test_no_reason_of_the_service_stops_a_page(
    url: str, connect: Connect, create: Create, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(url, default_arm="B")
    shop = client.experiment(name)
    assert shop.ask("u1").arm == "B"  # unknown experiment
    there = create(budget=2, after="refuse", values=PRICES)
    first, second, bad, late = shop.ask_many(["u1", "u2", "", "u3"])
    assert (first.in_test, second.in_test, late.in_test) == (True, True, False)
    assert late.value == PRICES["B"]
    assert isinstance(bad, sa.InvalidInputError)
    assert not shop.ask("u4").in_test  # the budget is spent
    there.stop()
    assert not shop.ask("u4").in_test
    assert client.defaulted == 4
    assert "WrongStateError: the experiment " in caplog.text
    caplog.clear()
    red = client.experiment(name, default_arm="red")
    assert (red.ask("u5").arm, red.ask("u6").arm) == ("red", "red")
    assert f"'red' is no variant of the experiment {name!r}; it has ['A', 'B']" in caplog.text


def test_a_lost_answer_changes_nothing(
    proxy: Proxy, connect: Connect, create: Create, name: str
) -> None:
    there = create()
    weak, strong = connect(proxy.url, retries=0), connect(proxy.url, timeout=5)
    weak.experiment(name).status()
    proxy.mode = "cut"
    with pytest.raises(ServiceDownError):
        weak.experiment(name).ask("u1")
    assert there.status().total_assigned == 1
    with pytest.raises(ServiceDownError):
        weak.experiment(name).tell("u1", 1.0)
    assert there.status().total_rewarded == 1
    proxy.mode = "pass"
    again = strong.experiment(name).ask("u1")
    assert not again.new
    assert strong.experiment(name).tell_many([(again, 1.0)]) == ["repeated"]
    assert there.status().total_assigned == 1


def test_without_sticky_units_a_lost_answer_is_not_asked_for_again(
    proxy: Proxy, connect: Connect, create: Create, name: str
) -> None:
    there = create(sticky="none")
    shop = connect(proxy.url, default_arm="A").experiment(name)
    assert shop.ask().unit == ""
    proxy.mode = "cut"
    assert not shop.ask().in_test
    assert there.status().total_assigned == 2


def test_a_closed_client_says_so(url: str, connect: Connect, name: str) -> None:
    client = connect(url)
    client.close()
    client.close()  # again is harmless
    with pytest.raises(sa.ServiceError, match="was closed"):
        client.experiment(name).status()


def test_cancelled_calls_leave_nothing_half_done(
    proxy: Proxy, create: Create, name: str, tmp_path: Path
) -> None:
    """Cancelled where they are: waiting for a connection, for an answer, or between tries."""
    there = create(budget=2000)

    async def test() -> tuple[list[str], int]:
        options: dict[str, Any] = {"default_arm": "A", "buffer": tmp_path / "rewards.db"}
        async with AsyncClient(proxy.url, timeout=20, **options) as client:
            shop = client.experiment(name)
            await shop.ask("first")
            proxy.mode = "hang"  # requests wait there; connections are more than the pool has
            asks = [asyncio.create_task(shop.ask(f"u{i}")) for i in range(150)]
            tells = [asyncio.create_task(shop.tell("first", 1.0)) for _ in range(20)]
            await asyncio.sleep(0.5)
            for task in (*asks, *tells):
                task.cancel()
            ended = await asyncio.gather(*asks, *tells, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended)
            proxy.mode = "pass"
            assert not client.service.breaker.open  # nobody said that the service is down
            again = await asyncio.gather(*(shop.ask(f"u{i}") for i in range(150)))
            await shop.tell("first", 1.0)
            assert client.pending == 0
            return [one.id for one in again], client.defaulted

    ids, defaulted = run_apart(test())
    assert (len(set(ids)), defaulted) == (150, 0)
    status = there.status()
    assert (status.total_assigned, status.total_rewarded) == (151, 1)


def test_an_answer_that_drips_ends_in_time() -> None:
    """Each byte comes in time, the whole does not; other tasks go on meanwhile."""

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _byte in range(1000):
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def test() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            async with AsyncClient(f"http://127.0.0.1:{port}", retries=0, timeout=0.3) as client:
                with pytest.raises(ServiceDownError, match="did not answer in time"):
                    await client.experiment("shop").ask("u1")

    run_apart(test())


def test_nobody_waits_for_a_service_that_is_not_there(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    client = connect(url, timeout=30)
    for verb in ("ask", "status", "recommend"):
        with pytest.raises(ServiceDownError, match="cannot be reached"):
            getattr(client.experiment("shop"), verb)()
    with pytest.raises(ServiceDownError):
        client.experiment("shop").tell("u1", 1.0)
    answers = ["drop", "drop", (200, {"rewards": [{"status": "stored"}]})]
    with receiving(answers=answers) as server:
        connect(server.address).experiment("shop").tell("u1", 1.0)
        assert len(server.got) == 3
