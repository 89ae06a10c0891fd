"""One clock for all processes, and rewards that count by when they happened."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

import steadyarm as sa
from steadyarm.storages import open_storage
from tests.live.worlds import START, Clock, create
from tests.storages.databases import fresh_database

HOURS = 3600


def test_a_reward_that_waited_out_an_outage_counts() -> None:
    clock = Clock()
    live = create(clock=clock, reward_window=20, missing="zero", budget=12)
    given = [live.ask(f"u{i}") for i in range(12)]
    happened = datetime.fromtimestamp(START + 1, UTC)
    clock.pass_(22)  # the window has closed, the grace has not
    assert live.status().observed == 0
    assert live.tell_many([(one, 1.0, happened) for one in given[:6]]) == ["stored"] * 6
    live.tell(given[6], 1.0, at=timedelta(seconds=20))
    for late in (None, timedelta(seconds=1), datetime.fromtimestamp(START + 21, UTC)):
        with pytest.raises(sa.RewardTooLateError, match=r"of 20s; .* the visit counts as 0"):
            live.tell(given[7], 1.0, at=late)
    clock.pass_(19)  # the grace has ended, too
    with pytest.raises(sa.RewardTooLateError, match="and the reward_grace of 20s;"):
        live.tell(given[7], 1.0, at=happened)
    assert live.recommend().rewards == 7
    assert live.replay().agrees
    rows = live.storage.log(live.key)
    stored = (round((START + 1) * 1e6), round((START + 22) * 1e6))
    assert (rows[0].rewarded, rows[0].received) == stored


def test_times_that_cannot_be_are_refused_and_nothing_is_lost() -> None:
    clock = Clock()
    live = create(clock=clock)
    one = live.ask("u")
    for at, message in (
        (datetime.fromtimestamp(START + HOURS, UTC), r"20\d\d-\d\d-\d\dT\S+Z, which lies"),
        (datetime.fromtimestamp(START - HOURS, UTC), "before its assignment"),
        (datetime(2026, 1, 1), "with its time zone"),
        ("yesterday", "the time is 'yesterday'"),
    ):
        with pytest.raises(sa.InvalidInputError, match=message):
            live.tell(one, 1.0, at=at)  # type: ignore[arg-type]  # refused
    live.tell(one, 1.0, at=datetime.fromtimestamp(START - 60, UTC))  # clocks differ a little
    assert live.status().total_rewarded == 1


def test_the_time_of_postgresql_is_the_servers(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() - 2 * HOURS * 10**9)
    storage = open_storage(fresh_database(postgres))
    assert abs(storage.now() - now() / 1000) < 10**6
    storage.close()


def test_a_clock_that_jumps_closes_no_window_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    system, monotonic, ahead = time.time_ns, time.monotonic_ns, {"system": 0, "monotonic": 0}

    def pass_(clock: str, seconds: int) -> None:
        ahead[clock] += seconds * 10**9

    monkeypatch.setattr(time, "time_ns", lambda: system() + ahead["system"])
    monkeypatch.setattr(time, "monotonic_ns", lambda: monotonic() + ahead["monotonic"])
    live = create(arms=["A", "B"], reward_window=1800, reward_grace=0, policy=sa.Uniform())
    for i in range(100):
        live.ask(f"u{i}")
    pass_("system", HOURS)
    live.tell("u0", 1.0)
    live.refresh()
    assert not live.due
    pass_("system", 30 - HOURS)  # it is right again, half a minute later
    pass_("monotonic", 30)
    live.tell("u1", 1.0)
    pass_("system", HOURS)  # from now on an hour has passed
    live.refresh()
    pass_("system", 61)
    pass_("monotonic", 61)
    live.refresh()
    with pytest.raises(sa.SteadyArmError):
        live.tell("u2", 1.0)
