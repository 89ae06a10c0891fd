"""One clock for all processes, and rewards that count by when they happened."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.service.service import Arrived
from steadyarm.storages import open_storage
from steadyarm.storages.sql import base as clocks
from steadyarm.storages.sql.base import Boot
from steadyarm.storages.sql.base import Clock as StorageClock
from steadyarm.storages.sql.storage import SQLStorage
from tests.live.worlds import START, Clock, create
from tests.storages.databases import fresh_database

HOURS = 3600


def test_a_reward_that_waited_out_an_outage_counts(tmp_path: Path) -> None:
    clock = Clock()
    live = create(clock=clock, reward_window=20, missing="zero", budget=12)
    given = [live.ask(f"u{i}") for i in range(12)]
    happened = datetime.fromtimestamp(START + 1, UTC)
    clock.pass_(22)  # the window has closed, the grace has not
    assert live.status().observed == 0
    assert live.tell_many([(one, 1.0, happened) for one in given[:6]]) == ["stored"] * 6
    live.tell(given[6], 1.0, at=timedelta(seconds=20))
    for late in (None, timedelta(seconds=1), datetime.fromtimestamp(START + 21, UTC)):
        with pytest.raises(
            sa.RewardTooLateError,
            match="reward_window of 20s; it does not count; the visit counts as 0",
        ):
            live.tell(given[7], 1.0, at=late)
    clock.pass_(19)  # the grace has ended, too
    with pytest.raises(sa.RewardTooLateError, match="and the reward_grace of 20s;"):
        live.tell(given[7], 1.0, at=happened)
    assert live.recommend().rewards == 7
    assert live.replay().agrees
    back = sa.import_experiment(live.export(tmp_path / "log.csv"), "memory", clock=clock)
    assert back.replay().agrees
    rows, again = (one.storage.log(one.key) for one in (live, back))
    assert rows == again
    stored = (round((START + 1) * 1e6), round((START + 22) * 1e6))
    assert (rows[0].rewarded, rows[0].received) == stored


def test_times_that_cannot_be_are_refused_and_nothing_is_lost() -> None:
    clock = Clock()
    live = create(clock=clock)
    one = live.ask("u")
    for at, message in (
        (datetime.fromtimestamp(START + HOURS, UTC), r"at 20\d\d-\d\d-\d\dT\S+Z, which lies"),
        (datetime.fromtimestamp(START - HOURS, UTC), "before its assignment"),
        (datetime(2026, 1, 1), "with its time zone"),
        ("yesterday", "the time is 'yesterday'"),
    ):
        with pytest.raises(sa.InvalidInputError, match=message):
            live.tell(one, 1.0, at=at)  # type: ignore[arg-type]  # refused
    live.tell(one, 1.0, at=datetime.fromtimestamp(START - 60, UTC))  # clocks differ a little
    assert live.status().total_rewarded == 1


def test_settings_of_the_grace() -> None:
    assert create(reward_window="2h").settings.reward_grace == 2 * HOURS
    assert create(reward_window="30d").settings.reward_grace == 7 * 24 * HOURS
    assert create(reward_window="1d", reward_grace=0).settings.patience == 24 * HOURS * 10**6
    assert create().settings.reward_grace is None
    with pytest.raises(sa.InvalidInputError, match="there is no reward_window"):
        create(reward_grace="1h")
    with pytest.raises(sa.InvalidInputError, match="reward_grace is -1"):
        create(reward_window="1h", reward_grace=-1)
    old = create(reward_window="1h").settings.to_dict()
    del old["reward_grace"]  # as releases before wrote it
    assert type(create().settings).from_dict(old).reward_grace == 0


def test_a_wrong_clock_closes_no_windows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"sqlite:///{tmp_path}/live.db"
    live = create(storage=url, reward_window="1h", missing="zero", budget=40)
    given = [live.ask(f"u{i}") for i in range(40)]
    with caplog.at_level(logging.WARNING):
        fast = sa.load_experiment("test", url, clock=lambda: time.time() + 3 * HOURS)
        fast.refresh()
        assert fast.ask("u0").id == given[0].id
    assert "differs from the storage's by 10800 s" in caplog.text
    assert live.tell_many((one, 1.0) for one in given) == ["stored"] * 40
    for one in (live, fast):
        one.close()


def test_who_comes_without_the_clock_of_a_simulation_closes_no_windows() -> None:
    clock, storage = Clock(), open_storage("memory")
    live = create(storage=storage, clock=clock, reward_window="1h", missing="zero", budget=8)
    given = [live.ask(f"u{i}") for i in range(8)]
    other = sa.load_experiment("test", storage)
    other.refresh()
    assert other.status().observed == 0
    assert live.tell_many((one, 1.0) for one in given) == ["stored"] * 8


def test_a_reward_does_not_become_late_by_waiting_in_the_service() -> None:
    minute = timedelta(minutes=1)
    for at, told in ((None, minute), (minute, 2 * minute), (17, 17)):
        arrived = Arrived(("u", 1.0, at, "order 7"), at=100.0)
        assert arrived.event(160.0) == ("u", 1.0, told, "order 7")
    assert Arrived(("u", 1.0), at=100.0).event(100.5) == ("u", 1.0)


def test_the_time_of_an_sqlite_file_is_that_of_who_keeps_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(clocks.RELOAD, "sqlite", 0.0)
    storage = open_storage(f"sqlite:///{tmp_path}/live.db")
    assert isinstance(storage, SQLStorage)
    database = storage._database
    up, wrong = [100.0], {"fast": 3.0 * HOURS, "right": 0.0}

    def clock(name: str, boot: str = "first") -> StorageClock:
        return StorageClock(
            database, lambda: START + up[0] + wrong[name], lambda: Boot(up[0], boot)
        )

    def off(clock: StorageClock) -> float:
        return clock.now() / 1e6 - START - up[0]

    right, fast = clock("right"), clock("fast")
    assert abs(off(right)) < 1
    database.write(right.keep)
    assert abs(off(fast)) < 1, "a clock that is ahead was believed"
    assert "10800.0 s ahead of that of the storage" in caplog.text
    up[0] += 55
    database.write(fast.keep)  # it is not his to say what time it is
    assert abs(off(fast)) < 1
    assert abs(off(clock("fast", boot="second")) - 3 * HOURS) < 1, "the machine restarted"
    up[0] += 6
    assert abs(off(fast) - 3 * HOURS) < 1, "nobody has kept the time for a minute"
    database.write(fast.keep)
    wrong["fast"] = 0.0
    assert abs(off(fast)) < 1, "the clock of the machine was set, and it is not followed"
    assert "was set by -10800.0 s" in caplog.text
    database.write(fast.keep)
    wrong["right"] = 0.4
    assert abs(off(clock("right")) - 0.4) < 0.1, "half a second is no matter"
    storage.close()


def test_slow_reads_and_many_writers_leave_the_time_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the mark may take long; the time does not drift by that, and nobody waits."""
    monkeypatch.setitem(clocks.RELOAD, "sqlite", 0.0)
    monkeypatch.setattr(clocks, "FRESH", 0.0)
    storage = open_storage(f"sqlite:///{tmp_path}/live.db")
    assert isinstance(storage, SQLStorage)
    database, read = storage._database, storage._database.read_one
    storage.now()

    def slow(work: Callable[[Any], Any]) -> Any:
        found = read(work)
        time.sleep(0.4)
        return found

    monkeypatch.setattr(database, "read_one", slow)
    for _ in range(3):
        storage.now()
        database.write(storage._clock.keep)
    assert abs(storage.now() - time.time() * 1e6) < 2e5
    looking = Thread(target=storage.now)
    looking.start()
    time.sleep(0.1)
    began = time.monotonic()
    storage.now()
    assert time.monotonic() - began < 0.2
    looking.join()
    storage.close()


def test_the_time_of_postgresql_is_the_servers(
    postgres: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = open_storage(fresh_database(postgres))
    assert isinstance(storage, SQLStorage)
    slow = StorageClock(storage._database, lambda: time.time() - 2 * HOURS)
    assert abs(slow.now() - time.time() * 1e6) < 1e6
    assert "7200.0 s behind that of the storage" in caplog.text
    assert abs(storage.now() - time.time() * 1e6) < 1e6
    storage.close()
