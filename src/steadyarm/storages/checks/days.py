"""Checks of sums by day: of the assignment, whenever its reward comes or is refused."""

from __future__ import annotations

from dataclasses import replace

from steadyarm.errors import UnknownExperimentError
from steadyarm.storages.base import Storage
from steadyarm.storages.checks.bench import (
    DAY,
    HOUR,
    NOW,
    Check,
    Open,
    assign,
    busy,
    leased,
    new_experiment,
    new_segment,
    open_segment,
    refused,
    running,
)
from steadyarm.storages.checks.looking import dayed, every, tallied, whole_log
from steadyarm.storages.records import DaySums, Target, number_of

__all__ = ["CHECKS"]

TODAY = NOW // DAY
MIDNIGHT = (TODAY + 1) * DAY


def check_days(open_storage: Open) -> None:
    """Assignments count on their own day, across midnights and segments, reports included."""
    storage = open_storage()
    assert storage.days(new_experiment(storage, "empty").key) == (), "days out of nothing"
    refused(UnknownExperimentError, "days of no experiment", storage.days, 10**6)
    key = running(storage, 20)
    assert storage.days(key) == (), "a day on which nothing was handed out"
    assign(storage, key, ["a", "b", "c"], now=NOW)
    assign(storage, key, ["d"], now=MIDNIGHT - 1)
    assign(storage, key, ["e", "a"], now=MIDNIGHT)
    (lease,) = leased(storage, key, 4, now=MIDNIGHT)
    used = [(lease.start + i, f"l{i}", MIDNIGHT + i * DAY - 1) for i in range(4)]
    storage.report(key, lease.id, used, MIDNIGHT + 4 * DAY)
    open_segment(storage, key, new_segment(20))
    assign(storage, key, ["f", "g"], now=NOW + 7 * DAY)
    found = [(s.segment, s.day - TODAY, s.tally.handed_out) for s in dayed(storage, key)]
    assert found == [(0, 0, 5), (0, 1, 2), (0, 2, 1), (0, 3, 1), (1, 7, 2)], f"{found}"
    assert dayed(open_storage(), key) == storage.days(key), "opened again, days are different"


def check_rewards_of_days(open_storage: Open) -> None:
    """A reward counts on the day of its assignment, once, with the time it was waited for."""
    storage = open_storage()
    key = running(storage, 30)
    for day in range(3):
        assign(storage, key, [f"{day}.{i}" for i in range(8)], now=NOW + day * DAY)
    told: list[tuple[Target, float]] = [("0.0", 0.1), ("1.1", 1 / 3), (number_of(0, 1), 2.5)]
    now = NOW + 2 * DAY + 1_999
    for again in range(3):
        open_storage().reward(key, told, None, now + again * HOUR)
    storage.reward(key, [("0.0", 9.0), ("2.7", -1.0), ("2.7", -1.0)], None, now - DAY)
    found = [(s.tally.told, sum(s.waited)) for s in dayed(storage, key)]
    hours = 24 * 3_600_000
    assert found[0] == (2, 2 * (2 * hours + 1)), "whole milliseconds are not summed"
    assert found[1] == (1, hours + 1), "a repeated reward changed the day, or it is not its own"
    assert found[2] == (1, 0), "a reward that seems to come before its assignment is not waited for"
    assert not any(map(any, _late(storage, key))), "what was repeated is called late"


def check_late_rewards(open_storage: Open) -> None:
    """Refused rewards count as late on their assignment's day, each telling, and nowhere else."""
    storage = open_storage()
    key = running(storage, 6)
    first = every(assign(storage, key, ["a", "b", "c"], now=NOW))
    second = every(assign(storage, key, ["d", "e", "f"], now=NOW + DAY))
    storage.reward(key, [("a", 1.0)], HOUR, NOW + 1)
    before = tallied(storage, key)
    # Another opening may have nothing of its own to add to.
    other = open_storage()
    other.reward(key, [("b", 1.0), ("b", 1.0), ("a", 1.0)], HOUR, NOW + 2 * HOUR)
    storage.reward(key, [("b", 2.0), ("d", 0.5), ("nobody", 1.0)], HOUR, NOW + DAY + HOUR)
    late = [0, 0, 0], [0, 0, 0]
    late[0][first[1].arm] += 3
    assert _late(storage, key) == [tuple(each) for each in late], "not those after their window"
    (tally,) = tallied(storage, key)
    assert tally.told == before[0].told + 1, "a late reward is in the tally"
    open_segment(storage, key, new_segment(9), closed=[0])
    assign(storage, key, ["g"], now=NOW + DAY)
    statuses = [o.status for o in other.reward(key, [("e", 1.0), ("g", 1.0)], None, NOW + DAY)]
    assert statuses == ["closed", "stored"], f"{statuses}"
    storage.reward(key, [("c", 1.0), ("f", 1.0), ("d", 0.5)], HOUR, NOW + 9 * DAY)
    for given in (first[2], second[1], second[2]):
        late[0 if given in first else 1][given.arm] += 1
    assert _late(storage, key) == [*(tuple(each) for each in late), (0, 0, 0)], (
        "not those of closed segments"
    )
    tallied(storage, key)


def check_days_apart(open_storage: Open) -> None:
    """Days of one experiment are not those of another."""
    storage = open_storage()
    one, two = busy(storage, "one"), busy(storage, "two")
    before = dayed(storage, one)
    assert before == storage.days(two), "the same steps gave other days"
    assign(storage, two, ["x"], now=NOW + DAY)
    storage.reward(two, [("x", 1.0), ("a1", 1.0)], None, NOW + DAY)
    assert storage.days(one) == before, "work on one experiment changed the days of another"
    assert dayed(storage, two) != before, "the day of the work is missing"


def check_restored_days(open_storage: Open) -> None:
    """A restored experiment has the same days; of what came too late nothing is known."""
    storage = open_storage()
    key = busy(storage, "e")
    assign(storage, key, ["x", "y"], now=NOW + 3 * DAY)
    storage.reward(key, [("x", 0.3), ("e0", 0.7), ("a1", 1.0)], None, NOW + 4 * DAY)
    days = dayed(storage, key)
    assert sum(map(sum, _late(storage, key))) == 1, "the check is not worth much"
    snapshot = storage.snapshot(key, everything=True)
    made = storage.restore("copy", snapshot, [whole_log(storage, key)])
    expected = tuple(replace(sums, late=(0, 0, 0)) for sums in days)
    assert dayed(storage, made.key) == expected, "restored days are not as they stood"
    (outcome,) = storage.reward(made.key, [("a1", 1.0)], None, NOW + 5 * DAY)
    assert outcome.status == "closed", f"{outcome}"
    late = [sum(sums.late) for sums in storage.days(made.key)]
    assert late == [sum(sums.late) for sums in days], "not counted on after restoring"
    dayed(storage, made.key)


def check_many_days(open_storage: Open) -> None:
    """One request may tell rewards of many days, segments and arms."""
    storage = open_storage()
    key = running(storage, 60)
    told: list[tuple[Target, float]] = []
    for day in range(40):
        if day == 20:
            open_segment(storage, key, new_segment(60))
        units = [f"{day}.{i}" for i in range(3)]
        assign(storage, key, units, now=NOW + day * DAY)
        told += [(unit, 0.1 * day + i) for i, unit in enumerate(units)]
    open_storage().reward(key, told[::-1], None, NOW + 50 * DAY)
    days = dayed(storage, key)
    assert [sums.tally.told for sums in days] == [3] * 40, "rewards are not on their days"
    assert tallied(storage, key)[1].told == 60, "rewards are not in their segment"


def _late(storage: Storage, key: int) -> list[tuple[int, ...]]:
    days: tuple[DaySums, ...] = storage.days(key)
    return [sums.late for sums in days]


CHECKS: tuple[Check, ...] = (
    check_days,
    check_rewards_of_days,
    check_late_rewards,
    check_days_apart,
    check_restored_days,
    check_many_days,
)
