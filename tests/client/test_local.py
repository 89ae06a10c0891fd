"""Local assignment: the service's own variants, each position once, whatever goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.client import Client, RewardBuffer, is_default
from steadyarm.client.local import Places
from steadyarm.live.assignments import LocalLease
from steadyarm.storages.records import parse_assignment_id
from steadyarm.wire.responses import Lease, SettingsAnswer
from tests.client.servers import Proxy, Scripted
from tests.live.worlds import create

Stored = Callable[[str], sa.Experiment]


def units(many: int, who: str = "u") -> list[str]:
    return [f"{who}{i}" for i in range(many)]


def lease_of(many: int, until: int, id: int = 1) -> LocalLease:
    return Lease(
        id=id,
        tag="abcdefgh",
        seed=1,
        arms=["A", "B"],
        indices=None,
        segment=0,
        weights=[0.5, 0.5],
        rounds=100,
        order="blocks",
        block=2,
        start=10 * id,
        stop=10 * id + many,
        until=until,
    ).to_lease()


def test_places_are_handed_out_once_and_never_too_late() -> None:
    places = Places()
    places.add([lease_of(3, until=100, id=1), lease_of(2, until=200, id=2)])
    assert (places.left(0), places.left(150), places.left(200)) == (5, 2, 0)
    first = places.draw("u1", 99)
    assert first is not None
    assert first.id.startswith("abcdefgh-0-10-")
    second = places.draw("u2", 100)  # the first lease has ended
    assert second is not None
    assert second.id.startswith("abcdefgh-0-20-")
    assert places.draw("u3", 200) is None
    assert places.finished(200) == []  # both are still to be reported
    places.reported(places.used[0], spare=False)
    assert places.finished(200) == [1]
    places.reported(places.used[1], spare=True)
    assert places.finished(200) == [2]


def test_variants_are_those_that_the_service_stores(
    client: Client, name: str, stored: Stored
) -> None:
    shop = client.create(name, ["A", "B", "C"], budget=500, missing="drop")
    with shop.local(positions=60, seconds=30) as local:
        given = [local.ask(unit) for unit in units(150)]
        for i, one in enumerate(given):
            local.tell(one, i % 2)
        again = local.ask("u7")
        assert (again.id, again.new) == (given[7].id, False)
        local.flush()
        assert (local.conflicts, local.expired, local.refused) == (0, 0, 0)
    here = stored(name)
    rows = {row.number: row for row in here.storage.log(here.key)}
    assert len(rows) == 150
    for i, one in enumerate(given):
        ticket = parse_assignment_id(one.id, here.tag)
        assert ticket is not None
        row = rows[ticket[0]]
        assert (row.unit, row.arm, row.probability) == (one.unit, one.arm, one.probability)
        assert row.reward == i % 2
        assert abs(row.created - one.created.timestamp() * 1e6) < 1e6
    assert here.status().leased == 0
    assert here.replay().agrees


def test_threads_share_it(client: Client, name: str, stored: Stored) -> None:
    shop = client.create(name, ["A", "B"], budget=1000, missing="drop")
    with shop.local(positions=500) as local, ThreadPoolExecutor(8) as pool:
        runs = list(
            pool.map(lambda _: [local.ask(unit).id for unit in units(100)], range(8), timeout=30)
        )
    assert all(run == runs[0] for run in runs)
    assert len(set(runs[0])) == sum(stored(name).status().assigned) == 100


WORKERS = """
import json, os, sys
from steadyarm.client import Client
url, name = sys.argv[1:]
who = "a" if not os.fork() else "b" if not os.fork() else "c"
with Client(url) as client, client.experiment(name).local(positions=20, seconds=30) as local:
    shown = [local.ask(f"{who}{i}").id for i in range(10)]
    child = os.fork() if who == "c" else None
    if child == 0:
        shown = [local.ask(f"c{i}").id for i in range(5, 10)]
        who = "child of c"
    shown += [local.ask(f"{who}{i}").id for i in range(10, 70)]
    os.write(1, json.dumps(shown).encode() + b"\\n")  # in one piece
if who == "c":
    for _ in range(3):
        assert os.wait()[1] == 0
"""


def test_processes_and_their_children_use_each_position_once(
    url: str, client: Client, name: str, stored: Stored
) -> None:
    client.create(name, ["A", "B", "C"], budget=2000, missing="drop")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", WORKERS, url, name]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    shown = [json.loads(line) for line in output.stdout.splitlines()]
    assert sorted(map(len, shown)) == [65, 70, 70, 70]
    ids = {id for of_process in shown for id in of_process}
    assert len(ids) == 3 * 70 + 60  # the child remembers what its parent gave, and shows it again
    status = stored(name).status()
    assert (sum(status.assigned), status.leased) == (len(ids), 0)


def test_a_unit_with_another_assignment_gets_that_one(
    client: Client, name: str, stored: Stored
) -> None:
    shop = client.create(name, ["A", "B"], budget=200, missing="drop")
    with shop.local(positions=50) as local:
        with local._turn:  # nothing is reported meanwhile
            mine = local.ask("u1")
            other = shop.ask("u1")
            local.tell(mine, 1.0)
            assert mine.id != other.id
        local.flush()
        assert local.ask("u1").id == other.id
        assert (local.conflicts, local.expired, local.refused) == (1, 0, 1)
        local.tell(local.ask("u1"), 0.0)
    status = stored(name).status()
    assert (sum(status.assigned), sum(status.rewarded), status.leased) == (1, 1, 0)


def test_leases_that_are_gone_are_counted(client: Client, name: str, stored: Stored) -> None:
    shop = client.create(name, ["A", "B"], budget=200, missing="drop")
    with shop.local(positions=50) as local:
        with local._turn:
            mine = local.ask("u1")
            local.tell(mine, 1.0)
            here = stored(name)
            here.storage.release(here.key, [lease.id for lease in here.storage.leases(here.key)])
            other = shop.ask("u2")
        assert other.id.rpartition("-")[0] == mine.id.rpartition("-")[0]  # somebody else has it
        local.flush()
        assert (local.conflicts, local.expired, local.refused) == (0, 1, 1)
    assert sum(stored(name).status().rewarded) == 0  # u1's reward did not become u2's


def test_leases_end_and_are_replaced(client: Client, name: str, stored: Stored) -> None:
    shop = client.create(name, ["A", "B"], budget=500, missing="drop")
    with shop.local(positions=20, seconds=0.4) as local:
        for unit in units(40):
            local.ask(unit)
            time.sleep(0.03)
        assert local.expired == 0
        deadline = time.monotonic() + 10
        while stored(name).status().leased and time.monotonic() < deadline:
            time.sleep(0.1)  # nobody asks: leases end and no new ones are taken
        time.sleep(0.5)
        assert stored(name).status().leased == 0
        assert local.ask("late").new
    status = stored(name).status()
    assert (sum(status.assigned), status.leased) == (41, 0)


def test_without_positions_the_service_is_asked(client: Client, name: str) -> None:
    shop = client.create(name, ["A", "B"], budget=30, missing="drop")
    with shop.local(positions=1000) as local:
        given = [local.ask(unit) for unit in units(30)]
        assert not local.ask("one more").in_test
        assert local.ask("u3").id == given[3].id
    with pytest.raises(sa.ServiceError, match="10,000"):
        shop.local(positions=20_000)
    with pytest.raises(sa.UnknownExperimentError):
        client.experiment("nowhere").local()


def test_without_sticky_units_each_request_is_drawn(
    client: Client, name: str, stored: Stored
) -> None:
    shop = client.create(name, ["A", "B"], budget=100, sticky="none", missing="drop")
    with shop.local(positions=50) as local:
        given = [local.ask(), local.ask(), local.ask("u"), local.ask("u")]
        assert len({one.id for one in given}) == 4
        for one in given:
            local.tell(one, 1.0)
    assert sum(stored(name).status().rewarded) == 4


def test_an_outage_in_between(proxy: Proxy, client: Client, name: str, stored: Stored) -> None:
    client.create(name, ["A", "B"], budget=2000, missing="drop")
    with Client(proxy.url, default_arm="B", timeout=2, cooldown=0.2) as other:
        with other.experiment(name).local(positions=10) as local:
            proxy.down()
            given = [local.ask(unit) for unit in units(15)]
            assert not any(is_default(one) for one in given[:10])
            assert all(is_default(one) and one.name == "B" for one in given[10:])
            for one in given:
                local.tell(one, 1.0)
            with pytest.raises(sa.ServiceError):
                local.flush()
            proxy.up()
            time.sleep(0.3)
            local.flush()
            assert sum(stored(name).status().rewarded) == 10
            assert not is_default(local.ask("u14"))
        assert (other.defaulted, other.ignored) == (5, 5)


def test_a_service_that_comes_later(proxy: Proxy, client: Client, name: str) -> None:
    client.create(name, ["A", "B"], budget=200, missing="drop")
    proxy.down()
    with (
        Client(proxy.url, default_arm="A", timeout=2, cooldown=0.1) as other,
        other.experiment(name).local(positions=10) as local,
    ):
        assert is_default(local.ask("u1"))
        proxy.up()
        time.sleep(0.2)
        assert not is_default(local.ask("u1"))


def test_units_are_checked_as_the_service_does(client: Client, name: str) -> None:
    shop = client.create(name, ["A", "B"], budget=100, missing="drop")
    with shop.local(positions=10) as local:
        for unit in ("", "x" * 513, "a\0b", "\ud800", None, 7):
            with pytest.raises(sa.InvalidInputError, match="names who gets the variant"):
                local.ask(unit)  # type: ignore[arg-type]  # meant to be wrong
        local.ask("ünit 😀")
        local.flush()
        assert local.expired == 0
    assert sum(shop.status().assigned) == 1


def test_a_bad_reward_does_not_stop_the_others(client: Client, name: str, stored: Stored) -> None:
    shop = client.create(name, ["A", "B"], budget=100, missing="drop")
    with shop.local(positions=50) as local:
        with pytest.raises(sa.InvalidInputError, match="expected an assignment"):
            local.tell(["u"], 1.0)  # type: ignore[arg-type]  # meant to be wrong
        local.tell("x" * 600, 1.0)
        local.tell("\ud800", 1.0)
        for unit in units(20):
            local.tell(local.ask(unit), 1.0)
        local.flush()
        assert local.refused == 2
    assert sum(stored(name).status().rewarded) == 20


def test_rewards_of_an_archived_test_are_refused_once(client: Client, name: str) -> None:
    shop = client.create(name, ["A", "B"], budget=100, missing="drop")
    with shop.local(positions=10) as local:
        given = [local.ask(unit) for unit in units(5)]
        local.flush()
        shop.stop()
        shop.archive()
        for one in given:
            local.tell(one, 1.0)
        local.flush()
        assert (local.refused, local._rewards) == (5, [])


def test_requests_that_are_refused_as_a_whole_are_split() -> None:
    def answer(path: str, body: Any) -> Any:
        if not path.endswith("rewards:batch"):
            return problem("wrong-state", 409)
        told = [one["unit"] for one in body["rewards"]]
        if "bad" in told:
            return problem("invalid-input", 422)
        arrived.extend(told)
        return 200, {}, {"rewards": [{"status": "stored"}] * len(told)}

    arrived: list[str] = []
    with Scripted(answer) as server, Client(server.url) as client:
        shop = client.experiment("shop")
        shop.core._settings = SettingsAnswer.of(create().settings)
        with shop.local() as local:
            for unit in ["bad", *units(20), "bad"]:
                local.tell(unit, 1.0)
            local.flush()
            assert local.refused == 2
            assert arrived == units(20)


@pytest.mark.parametrize("down", [False, True])
def test_what_says_nothing_about_rewards_does_not_cost_them(tmp_path: Path, down: bool) -> None:
    def answer(path: str, body: Any) -> Any:
        if not path.endswith("rewards:batch"):
            return problem("wrong-state", 409)
        if bad_weather:
            return problem("internal", 500) if down else problem("unauthorized", 401)
        arrived.extend(one["unit"] for one in body["rewards"])
        return 200, {}, {"rewards": [{"status": "stored"}] * len(body["rewards"])}

    arrived: list[str] = []
    bad_weather = True
    buffer = RewardBuffer(tmp_path / "rewards.db", limit=2)
    with Scripted(answer) as server, Client(server.url, buffer=buffer) as client:
        shop = client.experiment("shop")
        shop.core._settings = SettingsAnswer.of(create().settings)
        with shop.local() as local:
            for unit in units(5):
                local.tell(unit, 1.0)
            with pytest.raises(sa.ServiceError):
                local.flush()
            assert (local.refused, client.pending) == (0, 2 if down else 0)
            bad_weather = False
            client.flush()
            local.flush()
            assert local.refused == 0
    assert sorted(arrived) == units(5)  # the buffer and the queue are sent side by side


def problem(kind: str, status: int) -> Any:
    told = {"type": f"urn:steadyarm:problem:{kind}", "status": status, "detail": "No."}
    return status, {}, told
