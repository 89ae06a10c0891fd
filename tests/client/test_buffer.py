"""Kept rewards: nothing is lost, nothing counts twice, what is refused is moved aside."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.client import Client, RewardBuffer
from steadyarm.client.buffer import RewardReport
from tests.client.servers import Proxy, Scripted
from tests.disks import small_disk

Stored = Callable[[str], sa.Experiment]
NOBODY = "http://127.0.0.1:9"


def told(target: str, reward: float = 1.0) -> RewardReport:
    return RewardReport("assignment", target, reward, 1_700_000_000.0)


def test_the_file_keeps_the_first_reward_of_each(tmp_path: Path) -> None:
    buffer = RewardBuffer(tmp_path / "rewards.db", limit=3)
    assert buffer.keep("s", "shop", [told("a"), told("b"), told("a")]) == ["kept"] * 3
    assert buffer.holds("s", "shop", told("a"))
    assert not buffer.holds("s", "other", told("a"))
    other, third, fourth, again = buffer.keep(
        "s", "shop", [told("a", 0.0), told("c"), told("d"), told("b")]
    )
    assert isinstance(other, sa.RepeatedRewardError)
    assert "waits to be sent" in str(other)
    assert isinstance(fourth, sa.ServiceError)
    assert "3 rewards wait" in str(fourth)
    assert (third, again) == ("kept", "kept")
    assert [kept.report.target for kept in buffer.oldest("s", 10)] == ["a", "b", "c"]
    assert RewardBuffer(tmp_path / "rewards.db").count("other service") == 0


def test_other_files_are_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mine.db")) as db:
        db.execute("CREATE TABLE mine (x)")
    with pytest.raises(sa.InvalidInputError, match="something else"):
        Client(NOBODY, buffer=tmp_path / "mine.db")
    (tmp_path / "text.db").write_text("no database at all, whoever reads it" * 100)
    with pytest.raises(sa.StorageError, match="cannot be used"):
        Client(NOBODY, buffer=tmp_path / "text.db")


def test_only_one_sends_at_a_time(tmp_path: Path) -> None:
    buffer = RewardBuffer(tmp_path / "rewards.db")
    with buffer.sending() as first, RewardBuffer(tmp_path / "rewards.db").sending() as second:
        assert (first, second) == (True, False)
    with buffer.sending() as again:
        assert again


def test_an_outage_longer_than_the_window_loses_no_reward(
    proxy: Proxy, client: Client, name: str, stored: Stored, tmp_path: Path
) -> None:
    client.create(name, ["A", "B"], budget=20, reward_window=1, reward_grace=60, missing="zero")
    with Client(proxy.url, buffer=tmp_path / "rewards.db", timeout=2, cooldown=0.2) as other:
        shop = other.experiment(name)
        given = [shop.ask(f"u{i}") for i in range(20)]
        proxy.down()
        soon = timedelta(seconds=0.1)  # after the visit, however slow this machine is
        assert shop.tell_many([(one, 1.0, one.created + soon) for one in given]) == ["kept"] * 20
        time.sleep(1.3)
        proxy.up()
        other.flush()
        assert (other.pending, other.rejected) == (0, 0)
    assert stored(name).status().total_rewarded == 20


def test_rewards_wait_for_the_service(
    proxy: Proxy, client: Client, name: str, stored: Stored, tmp_path: Path
) -> None:
    client.create(name, ["A", "B"], budget=100, missing="drop")
    with Client(proxy.url, buffer=tmp_path / "rewards.db", timeout=2, cooldown=0.2) as other:
        shop = other.experiment(name)
        given = [shop.ask(f"u{i}") for i in range(4)]
        shop.tell("nobody", 1.0)  # answered at once, not kept
        assert (other.ignored, other.pending) == (1, 0)
        proxy.down()
        shop.tell(given[0], 1.0)
        assert shop.tell_many([(given[0], 1.0), (given[1].id, 0.5)]) == ["kept", "kept"]
        shop.tell("u2", 0.25)
        with pytest.raises(sa.RepeatedRewardError):
            shop.tell(given[0], 0.0)
        assert other.pending == 3
        proxy.up()
        time.sleep(0.25)
        shop.ask("u0")  # the service is back: the thread is told
        for _ in range(100):
            if not other.pending:
                break
            time.sleep(0.02)
        assert other.pending == 0
    assert sum(stored(name).status().rewarded) == 3
    assert not (tmp_path / "rewards.db.rejected").exists()


def test_one_that_is_refused_does_not_cost_the_others(tmp_path: Path) -> None:
    buffer = RewardBuffer(tmp_path / "rewards.db", limit=3)
    with Client(NOBODY, buffer=buffer, retries=0) as client:
        shop = client.experiment("shop")
        for _ in range(2):  # the service is found to be down, then known to be
            first, second, other, bad = shop.tell_many(
                [("u1", 1.0), ("u2", 1.0), ("u1", 0.0), ("\ud800", 1.0)]
            )
            assert (first, second) == ("kept", "kept")
            assert isinstance(other, sa.RepeatedRewardError)
            assert isinstance(bad, sa.InvalidInputError)
            assert client.pending == 2
        third, full = shop.tell_many([("u3", 1.0), ("u4", 1.0)])
        assert third == "kept"
        assert isinstance(full, sa.ServiceError)
        with pytest.raises(sa.ServiceError, match="was not kept"):
            shop.tell("u4", 1.0)
        assert [kept.report.target for kept in buffer.oldest(NOBODY, 9)] == ["u1", "u2", "u3"]


CRASH = """
import os, signal, sys
from steadyarm.client import Client
client = Client(sys.argv[1], buffer=sys.argv[2], retries=0, timeout=0.3)
for i in range(20):
    client.experiment(sys.argv[3]).tell(f"u{i}", 1.0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_rewards_survive_a_kill_and_processes_share_the_file(
    proxy: Proxy, client: Client, name: str, stored: Stored, tmp_path: Path
) -> None:
    shop = client.create(name, ["A", "B"], budget=100, missing="drop")
    shop.ask_many([*(f"u{i}" for i in range(20)), "ours"])
    shop.tell("u1", 1.0)  # as if it had arrived already, and the answer had been lost
    proxy.down()
    path = tmp_path / "rewards.db"
    buffer, ours = RewardBuffer(path), 0
    with subprocess.Popen([sys.executable, "-c", CRASH, proxy.url, str(path), name]) as process:
        while process.poll() is None:
            buffer.keep(proxy.url, "elsewhere", [told(f"{ours}")])
            ours += 1
            time.sleep(0.01)
    assert process.returncode == -9
    assert buffer.count(proxy.url) == 20 + ours
    proxy.up()
    with Client(proxy.url, buffer=path) as heir:
        heir.experiment(name).tell("ours", 1.0)
        heir.flush()
        assert (heir.pending, heir.rejected) == (0, ours)
    assert sum(stored(name).status().rewarded) == 21


def test_batches_go_in_order_and_what_is_refused_goes_aside(tmp_path: Path) -> None:
    conflict = {"type": "urn:steadyarm:problem:reward-conflict", "detail": "Had 0.5."}

    def answer(path: str, body: Any) -> Any:
        results = [
            {"error": conflict} if one["reward"] == 7 else {"status": "stored"}
            for one in body["rewards"]
        ]
        return 200, {}, {"rewards": results}

    with Scripted(answer) as server:
        buffer = RewardBuffer(tmp_path / "rewards.db")
        buffer.keep(server.url, "shop", [told(f"a{i}", float(i)) for i in range(300)])
        buffer.keep(server.url, "bar", [told("b")])
        buffer.keep(server.url, "shop", [told("last")])
        with Client(server.url, buffer=buffer) as client:
            client.flush()
            assert (client.pending, client.rejected) == (0, 1)
    paths = [path for _, path, _, _ in server.requests]
    assert paths == [
        f"/v1/experiments/{of}/rewards:batch" for of in ("shop",) * 2 + ("bar", "shop")
    ]
    sent = [one["assignment"] for _, _, body, _ in server.requests for one in body["rewards"]]
    assert sent == [*(f"a{i}" for i in range(300)), "b", "last"]
    (line,) = (tmp_path / "rewards.db.rejected").read_text().splitlines()
    refused = json.loads(line)
    assert (refused["assignment"], refused["reward"]) == ("a7", 7.0)
    assert (refused["error"], refused["reason"]) == ("RepeatedRewardError", "Had 0.5.")


@pytest.mark.parametrize(
    ("status", "kind", "left"), [(401, "unauthorized", 2), (404, "unknown-experiment", 0)]
)
def test_only_what_is_about_the_rewards_rejects_them(
    tmp_path: Path, status: int, kind: str, left: int
) -> None:
    told_why = {"type": f"urn:steadyarm:problem:{kind}", "status": status, "detail": "No."}
    with Scripted((status, {}, told_why)) as server:
        buffer = RewardBuffer(tmp_path / "rewards.db")
        buffer.keep(server.url, "shop", [told("a"), told("b")])
        with Client(server.url, buffer=buffer) as client:
            if left:
                with pytest.raises(sa.ServiceError, match="No"):
                    client.flush()
            else:
                client.flush()
            assert (client.pending, client.rejected) == (left, 2 - left)


def _refusing_odd(_: str, body: Any) -> tuple[int, dict[str, str], Any]:
    """A service that stores every other reward and refuses the rest for good."""
    problem = {"type": "urn:steadyarm:problem:unknown-assignment", "detail": "unknown."}
    found = [{"status": "stored"}, {"error": problem}] * len(body["rewards"])
    return 200, {}, {"rewards": found[: len(body["rewards"])]}


@pytest.mark.parametrize("room", ["reserve", "none"])
def test_a_buffer_on_a_full_disk_empties_itself(tmp_path: Path, room: str) -> None:
    with small_disk(tmp_path / "disk", 2 << 20) as disk, Scripted(_refusing_odd) as server:
        file = disk.folder / "rewards.db"
        many = [told(f"{i * 7919 % 1009} of a visitor with a long name") for i in range(600)]
        RewardBuffer(file).keep(server.url, "shop", many)
        if room == "none":  # somebody else took it
            Path(f"{file}.reserve").unlink()
        disk.fill()
        before = file.stat().st_size
        with Client(server.url, buffer=file) as client:
            client.flush()
            assert client.pending == 0
            asked = len(server.requests)
            client.flush()
            assert len(server.requests) == asked  # nothing goes twice
            if room == "none" or not disk.mounted:  # a limit is no wider without the reserve
                disk.free()
                assert client.delivery is not None
                client.delivery.buffer.settle([])
        assert asked == 3
        assert RewardBuffer(file).count(server.url) == 0
        assert file.stat().st_size < before / 4
        lines = Path(f"{file}.rejected").read_text().splitlines()
        assert len({json.loads(line)["assignment"] for line in lines}) == 300


def test_events_of_metrics_are_kept_each_by_its_key(tmp_path: Path) -> None:
    buffer = RewardBuffer(tmp_path / "rewards.db")

    def order(key: str, amount: float) -> RewardReport:
        return RewardReport("unit", "u", {"revenue": amount}, 1.7e9, key)

    given = [order("1", 5.0), order("2", 6.0), order("1", 5.0), told("u"), order("1", 7.0)]
    *good, other = buffer.keep("s", "shop", given)
    assert good == ["kept"] * 4
    assert isinstance(other, sa.RepeatedRewardError)
    kept = [one.report for one in buffer.oldest("s", 10)]
    assert kept == [given[0], given[1], given[3]]
    assert kept[0].to_dict()["metrics"] == {"revenue": 5.0}
    assert kept[0].to_dict()["event"] == "1"


def test_a_file_of_a_release_without_metrics_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rewards.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "CREATE TABLE rewards (number INTEGER PRIMARY KEY AUTOINCREMENT, "
            "service TEXT NOT NULL, experiment TEXT NOT NULL, kind TEXT NOT NULL, "
            "target TEXT NOT NULL, reward REAL NOT NULL, kept REAL NOT NULL, "
            "UNIQUE (service, experiment, target))"
        )
        db.execute(f"PRAGMA application_id = {0x53415257}")
        db.execute("INSERT INTO rewards VALUES (7, 's', 'shop', 'unit', 'u', 0.5, 1.7e9)")
        db.commit()
    buffer = RewardBuffer(path)
    assert [one.number for one in buffer.oldest("s", 10)] == [7]
    assert buffer.keep("s", "shop", [RewardReport("unit", "u", {"x": 1.0}, 1.7e9)]) == ["kept"]
    assert [one.report.reward for one in buffer.oldest("s", 10)] == [0.5, {"x": 1.0}]
