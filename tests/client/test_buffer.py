"""Kept rewards: nothing is lost, and nothing counts twice."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.client import Client, RewardBuffer, ServiceDownError
from tests.client.conftest import Connect, Create, Proxy
from tests.service.clients import receiving, until

NOBODY = "http://127.0.0.1:9"


def reward(unit: str, value: float = 1.0) -> dict[str, Any]:
    return {"unit": unit, "reward": value, "at": "2025-01-31T12:00:00+00:00"}


def test_claims_are_of_one_experiment_and_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rewards.db"
    ours, theirs = RewardBuffer(path), RewardBuffer(path)
    assert ours.add("s", "shop", [reward("a"), reward("b")]) == ["kept", "kept"]
    theirs.add("s", "bar", [reward("c")])
    theirs.add("other", "shop", [reward("d")])
    shop, first = ours.claim("s")
    bar, second = theirs.claim("s")
    assert (shop, [one["unit"] for one in first.values()]) == ("shop", ["a", "b"])
    assert (bar, [one["unit"] for one in second.values()]) == ("bar", ["c"])
    assert ours.claim("s") == (None, {})
    theirs.remove(second)
    ours.release(first)
    assert theirs.claim("s") == ("shop", first)
    assert (ours.count("s"), ours.count("other")) == (2, 1)
    theirs.close()  # as after a crash: what it claimed is sent later
    assert ours.claim("s") == (None, {})
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    assert ours.claim("s") == ("shop", first)
    ours.close()
    with pytest.raises(sa.ServiceError, match="is closed"):
        ours.count("s")


def test_a_full_buffer_and_other_files_are_refused(tmp_path: Path) -> None:
    buffer = RewardBuffer(tmp_path / "rewards.db", limit=2)
    with Client(NOBODY, buffer=buffer, retries=0) as client:
        shop = client.experiment("shop")
        first, second, full = shop.tell_many([("a", 1.0), ("b", 1.0), ("c", 1.0)])
        assert (first, second) == ("kept", "kept")
        assert isinstance(full, sa.ServiceError)
        with pytest.raises(sa.ServiceError, match=r"2 rewards wait .*this one was not kept"):
            shop.tell("d", 1.0)
        assert client.pending == 2
    with closing(sqlite3.connect(tmp_path / "mine.db")) as db:
        db.execute("CREATE TABLE mine (x)")
    with pytest.raises(sa.InvalidInputError, match="something else"):
        Client(NOBODY, buffer=tmp_path / "mine.db")


@pytest.mark.parametrize("damage", ["text", "page"])
def test_a_damaged_file_is_set_aside(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rewards.db"
    buffer = RewardBuffer(path)
    buffer.add(NOBODY, "shop", [reward(f"u{i}") for i in range(500)])
    buffer.close()
    content = path.read_bytes()
    damaged = b"no database" * 100 if damage == "text" else content[:8192] + b"x" * 4096
    path.write_bytes(damaged + content[12288:])
    with Client(NOBODY, buffer=path, retries=0) as client:
        client.experiment("shop").tell("u1", 1.0)
        assert client.pending == 1
    assert "is damaged; it was moved to" in caplog.text
    (aside,) = tmp_path.glob("rewards.db.damaged-*")
    assert aside.read_bytes() == damaged + content[12288:]
    with Client(NOBODY, buffer=path, retries=0) as client:
        assert client.pending == 1


def test_a_file_that_fails_is_replaced_by_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(NOBODY, buffer=tmp_path / "nowhere/rewards.db", retries=0) as client:
        client.experiment("shop").tell("u1", 1.0)
        assert client.pending == 1
    path = tmp_path / "rewards.db"
    buffer = RewardBuffer(path)
    buffer.add("s", "shop", [reward("a")])
    _, claimed = buffer.claim("s")
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DROP TABLE steadyarm_rewards")
        db.commit()
    assert buffer.add("s", "shop", [reward("b")]) == ["kept"]
    buffer.remove(claimed)
    assert buffer.count("s") == 1
    buffer.close()
    assert caplog.text.count("rewards wait in memory, for this program only") == 2


def test_rewards_wait_for_the_service(
    proxy: Proxy, connect: Connect, create: Create, name: str, tmp_path: Path
) -> None:
    """Also longer than the window: they count by when they happened."""
    there = create(reward_window=1, reward_grace=60, missing="zero")
    client = connect(proxy.url, buffer=tmp_path / "rewards.db", cooldown=0.2)
    shop = client.experiment(name)
    given = [shop.ask(f"u{i}") for i in range(5)]
    shop.tell("nobody", 1.0)  # answered at once, not kept
    assert (client.ignored, client.pending) == (1, 0)
    proxy.down()
    soon = timedelta(seconds=0.1)  # after the visit, however slow this machine is
    shop.tell(given[0], 1.0, given[0].created + soon)
    rewards = [(one, 1.0, one.created + soon) for one in given]
    assert shop.tell_many(rewards) == ["kept"] * 5
    assert client.track(name, "u4", at=given[4].created + soon) == "kept"
    assert client.pending == 7
    with pytest.raises(ServiceDownError):
        client.flush(0.3)
    time.sleep(1.2)
    proxy.up()
    client.flush()
    assert (client.pending, client.rejected) == (0, 0)
    assert there.status().total_rewarded == 5


def test_the_thread_is_woken_when_the_service_is_back(
    proxy: Proxy, connect: Connect, create: Create, name: str, tmp_path: Path
) -> None:
    there = create()
    client = connect(proxy.url, buffer=tmp_path / "rewards.db", cooldown=0.1)
    shop = client.experiment(name)
    shown = shop.ask("u1")
    proxy.down()
    shop.tell(shown, 1.0)
    proxy.up()
    time.sleep(0.15)
    shop.ask("u1")  # the service is back
    until(lambda: not client.pending)
    assert there.status().total_rewarded == 1


CRASH = """
import os, signal, sys
from steadyarm.client import Client
client = Client(sys.argv[1], buffer=sys.argv[2], retries=0, timeout=0.3)
for i in range(20):
    client.experiment(sys.argv[3]).tell(f"u{i}", 1.0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_rewards_survive_a_kill_and_processes_share_the_file(
    proxy: Proxy, create: Create, name: str, tmp_path: Path
) -> None:
    there = create()
    there.ask_many([f"u{i}" for i in range(20)])
    there.tell("u1", 1.0)  # as if it had arrived already, and the answer had been lost
    proxy.down()
    path = tmp_path / "rewards.db"
    buffer, ours = RewardBuffer(path), 0
    with subprocess.Popen([sys.executable, "-c", CRASH, proxy.url, str(path), name]) as process:
        while process.poll() is None:
            buffer.add(proxy.url, "elsewhere", [reward(f"{ours}")])
            ours += 1
            time.sleep(0.01)
    assert process.returncode == -9
    assert buffer.count(proxy.url) == 20 + ours
    buffer.close()
    proxy.up()
    with Client(proxy.url, buffer=path, timeout=30) as heir:
        heir.flush()
        assert (heir.pending, heir.rejected) == (0, ours)
    assert there.status().total_rewarded == 20


def test_one_that_is_refused_does_not_hold_up_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conflict = {"type": "urn:steadyarm:problem:reward-conflict", "detail": "Had 0.5."}

    def answer(path: str, body: Any) -> Any:
        assert len(body["rewards"]) <= 100
        results = [
            {"error": conflict} if one["reward"] == 7 else {"status": "stored"}
            for one in body["rewards"]
        ]
        return 200, {"rewards": results}

    with receiving(answers=[answer]) as server:
        buffer = RewardBuffer(tmp_path / "rewards.db")
        buffer.add(server.address, "shop", [reward(f"a{i}", float(i)) for i in range(300)])
        buffer.add(server.address, "bar", [reward("b")])
        with Client(server.address, buffer=buffer) as client:
            client.flush()
            assert (client.pending, client.rejected) == (0, 1)
    bodies = [one.content for one in server.got]
    sent = [one["unit"] for body in bodies for one in body["rewards"]]
    assert sorted(sent) == sorted([*(f"a{i}" for i in range(300)), "b"])
    assert all(body["sent"] > body["rewards"][0]["at"] for body in bodies)
    assert "'unit': 'a7'" in caplog.text
    assert "Had 0.5." in caplog.text


@pytest.mark.parametrize(
    ("status", "kind", "left"), [(401, "unauthorized", 2), (404, "unknown-experiment", 0)]
)
def test_only_what_is_about_the_rewards_rejects_them(
    tmp_path: Path, status: int, kind: str, left: int
) -> None:
    why = {"type": f"urn:steadyarm:problem:{kind}", "status": status, "detail": "No."}
    with receiving(answers=[(status, why)]) as server:
        buffer = RewardBuffer(tmp_path / "rewards.db")
        buffer.add(server.address, "shop", [reward("a"), reward("b")])
        with Client(server.address, buffer=buffer) as client:
            if left:
                with pytest.raises(sa.ServiceError):
                    client.flush(0.3)
            else:
                client.flush()
            assert (client.pending, client.rejected) == (left, 2 - left)
