"""The default arm: pages live on whatever the service says, the log says why, no reward strays."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import pytest

import steadyarm as sa
from steadyarm.client import Client, is_default, remote, transport
from tests.client.servers import Scripted

Stored = Callable[[str], sa.Experiment]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "steadyarm.client" and record.levelno == logging.WARNING
    ]


def names(answers: list[sa.LiveAssignment | sa.SteadyArmError]) -> list[str]:
    assert all(isinstance(one, sa.LiveAssignment) for one in answers)
    return [one.name for one in answers if isinstance(one, sa.LiveAssignment) and is_default(one)]


def test_an_unknown_experiment_and_one_that_waits(client: Client, name: str) -> None:
    shop = client.experiment(name, default_arm="A")
    assert is_default(shop.ask("u1"))
    assert names(shop.ask_many(["u1", "u2"])) == ["A", "A"]
    client.create(name, ["A", "B", "C"], "sequential-halving", budget=12, missing="drop")
    answers = shop.ask_many([f"u{i}" for i in range(12)])
    assert 0 < len(names(answers)) < 12  # the others wait for rewards
    assert is_default(shop.ask("u99"))


def test_many_are_answered_each_for_itself(client: Client, name: str) -> None:
    client.create(name, ["A", "B"], budget=2, missing="drop", after="refuse")
    shop = client.experiment(name, default_arm="A")
    first, second, bad, late = shop.ask_many(["u1", "u2", "", "u3"])
    assert isinstance(first, sa.LiveAssignment)
    assert isinstance(second, sa.LiveAssignment)
    assert first.id
    assert second.id
    assert isinstance(bad, sa.InvalidInputError)
    assert names([late]) == ["A"]
    assert client.defaulted == 1


def test_a_wrong_token_is_seen_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    told = {"type": "urn:steadyarm:problem:unauthorized", "status": 401, "detail": "No token."}
    with Scripted((401, {}, told)) as server, Client(server.url, default_arm="A") as client:
        shop = client.experiment("shop")
        assert all(is_default(shop.ask(f"u{i}")) for i in range(5))
        assert client.defaulted == 5
        assert len(server.requests) == 5  # no outage: a new token works at once
        with (
            Client(server.url) as other,
            pytest.raises(sa.ServiceError, match="Give a token"),
        ):
            other.experiment("shop").ask("u")
    (line,) = warnings(caplog)
    reason = "ServiceError: No token. Give a token: Client(url, token=…)."
    assert line.endswith(f"outside the test: {reason}")


def test_each_kind_of_reason_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    with Client("http://127.0.0.1:9", default_arm="A") as client:
        shown = remote.Fallback(
            client.core, "shop", "A", transport.RecentUnits(), clock=lambda: now
        )
        for now in (0.0, 30.0, 59.0, 60.0):  # noqa: B007  # read by the clock
            shown.settle("u", sa.BudgetSpentError("All are out."))
            shown.settle("u", sa.ServiceError("Nothing there."))
    said = [line.rpartition("test: ")[2] for line in warnings(caplog)]
    assert said == ["BudgetSpentError: All are out.", "ServiceError: Nothing there."] * 2


def test_wrong_addresses_are_seen_in_the_log(
    url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    secure = url.replace("http:", "https:")
    for address, word in [(secure, "SSL"), (url + "/elsewhere", "no GET of '/elsewhere/v1")]:
        caplog.clear()
        with Client(address, default_arm="A", retries=0) as client:
            assert is_default(client.experiment(name).ask("u1"))
            assert is_default(client.experiment(name).ask("u2"))
        (line,) = warnings(caplog)
        assert word in line


def test_the_log_hears_of_an_outage_that_others_met(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with Client(url, default_arm="A", retries=0) as client:
        shop = client.experiment("shop")
        shop.tell("u1", 1.0)  # which might be in the test: nobody knows
        assert shop.tell_many([("u2", 1.0), ("u3", 1.0)]) == ["lost", "lost"]
        assert client.lost == 3
        assert is_default(shop.ask("u1"))  # the breaker is open
        assert shop.tell_many([("u1", 1.0)]) == ["ignored"]
    lost, shown = warnings(caplog)
    assert "loses rewards, as the client has no buffer: ServiceDownError" in lost
    for line in (lost, shown):
        assert f"{url} cannot be reached" in line


def test_a_default_that_is_no_variant_is_said_once(
    client: Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.create(name, ["A", "B"], budget=1, missing="drop", after="refuse")
    shop = client.experiment(name, default_arm="red")
    assert not is_default(shop.ask("u1"))
    shop.status()
    assert warnings(caplog) == [
        f"the default arm 'red' is no variant of the experiment {name!r}; it has ['A', 'B']"
    ]
    assert (shop.ask("u2").name, shop.ask("u2").arm) == ("red", -1)


@pytest.mark.parametrize("ending", ["/", "/v1", "/v1/", "//"])
def test_addresses_may_name_the_version(url: str, client: Client, name: str, ending: str) -> None:
    client.create(name, ["A", "B"], budget=10, missing="drop")
    with Client(url + ending) as other:
        assert other.url == url
        assert not is_default(other.experiment(name).ask("u1"))
