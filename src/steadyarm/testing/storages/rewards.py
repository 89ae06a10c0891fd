"""Checks of rewards: what becomes of each, and that sums are exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError, UnknownExperimentError, WrongStateError
from steadyarm.segments import Order, Segment
from steadyarm.storages.records import SKEW, ExperimentState, Outcome, Target, check_of, number_of
from steadyarm.testing.storages.bench import (
    DAY,
    HOUR,
    NAMES,
    NOW,
    Bench,
    every,
    has_arms_of,
    new_segment,
    refused,
    shape_of,
)

# Checks of rewards: what becomes of each, and that sums are exact.


def check_outcomes(storage: Bench) -> None:
    """An assignment has one reward, the first that was recorded; by number or by unit."""
    key = storage.running(9)
    storage.assign(key, ["a", "b", NAMES[2], "0"])
    none = storage.reward(key, [], None, NOW)
    assert none == (), "no rewards, but outcomes"
    rewards: list[tuple[Target, float]] = [
        (0, 0.1),
        ("b", -2.0),
        (0, 0.1),
        ("a", 0.1),
        ("a", 0.2),
        (1, -2.5),
        (4, 1.0),
        ("nobody", 1.0),
        (number_of(1, 0), 1.0),
        (NAMES[2], 0.0),
        ("0", 3.0),
    ]
    expected = (
        Outcome("stored", 0),
        Outcome("stored", 1),
        Outcome("repeated", 0, 0.1),
        Outcome("repeated", 0, 0.1),
        Outcome("conflict", 0, 0.1),
        Outcome("conflict", 1, -2.0),
        Outcome("unknown"),
        Outcome("unknown"),
        Outcome("unknown"),
        Outcome("stored", 2),
        Outcome("stored", 3),
    )
    got = storage.reward(key, rewards, None, NOW + 9)
    for reward, outcome, right in zip(rewards, got, expected, strict=True):
        assert outcome == right, f"{reward} gave {outcome}, expected {right}"
    rows = storage.log(key)
    assert [r.reward for r in rows] == [0.1, -2.0, 0.0, 3.0], "not the first rewards"
    assert [r.rewarded for r in rows] == [NOW + 9] * 4, "not the time of the request"
    before = storage.everything(key)
    again = storage.again().reward(key, [("b", -2.0), (0, 5.0)], None, NOW + 10)
    assert again == (Outcome("repeated", 1, -2.0), Outcome("conflict", 0, 0.1)), f"{again}"
    assert storage.everything(key) == before, "a second reward changed something"
    storage.tallied(key)


def check_rewards_in_any_state(storage: Bench) -> None:
    """Rewards count also while the experiment is paused or stopped, not once it is archived."""
    key = storage.running(9)
    storage.assign(key, ["a", "b", "c"])
    states: dict[str, ExperimentState] = {"a": "paused", "b": "stopped"}
    for unit, state in states.items():
        storage.move(key, state)
        (outcome,) = storage.reward(key, [(unit, 1.0)], None, NOW)
        assert outcome.status == "stored", f"a reward was refused while {state}"
    storage.move(key, "archived")
    before = storage.everything(key)
    promise = "a reward of an archived experiment"
    refused(WrongStateError, promise, storage.reward, key, [("c", 1.0), ("a", 1.0)], None, NOW)
    assert storage.everything(key) == before, "a refused reward changed something"


def check_window(storage: Bench) -> None:
    """A reward that comes after its window is late; one that was there stays."""
    key = storage.running(9)
    storage.assign(key, ["a", "b", "c"], now=NOW)
    storage.assign(key, ["d"], now=NOW + 100)
    assert storage.reward(key, [("a", 1.0)], 50, NOW + 49) == (Outcome("stored", 0),)
    before = storage.everything(key)
    late = storage.reward(key, [("b", 1.0), ("a", 1.0), ("a", 2.0)], 50, NOW + 51)
    assert late[0] == Outcome("late", 1, created=NOW), "a reward after its window was counted"
    assert late[1] == Outcome("repeated", 0, 1.0), "a repeated reward is not recognised"
    assert late[2] == Outcome("conflict", 0, 1.0), "a conflict is not recognised"
    assert storage.everything(key) == before, "a late reward changed something"
    got = storage.reward(key, [("c", 1.0), ("d", 2.0)], 50, NOW + 140)
    assert [o.status for o in got] == ["late", "stored"], "windows begin at each assignment"
    assert storage.reward(key, [("b", 1.0)], None, NOW + 10**15)[0].status == "stored", "no window"
    storage.tallied(key)


def check_event_time(storage: Bench) -> None:
    """A reward counts by when it happened, if it arrives within the grace after its window."""
    key = storage.running(9)
    start = NOW + 10 * SKEW
    storage.assign(key, ["a", "b", "c", "d", "e"], now=start)

    def tell(unit: str, at: int, now: int) -> str:
        (outcome,) = storage.reward(key, [(unit, 1.0, start + at)], 50, start + now, grace=30)
        return str(outcome.status)

    assert tell("a", at=49, now=80) == "stored", "what happened in time and arrived in grace counts"
    assert tell("b", at=51, now=60) == "late", "what happened after its window was counted"
    assert tell("b", at=40, now=81) == "late", "what arrived after the grace was counted"
    assert tell("c", at=-SKEW - 1, now=20) == "early", "it happened before its assignment"
    assert tell("c", at=-SKEW, now=20) == "stored", "clocks may differ a little"
    assert tell("d", at=500, now=30) == "stored", "nothing happens in the future: it happened now"
    pair = [("e", 2.0, start + 60), ("e", 3.0, start + 45)]
    got = storage.reward(key, pair, 50, start + 70, grace=30)
    assert [o.status for o in got] == ["late", "stored"], "each is judged by its own time"
    times = [(row.rewarded, row.received) for row in storage.log(key)]
    assert times == [
        (start + 49, start + 80),
        (None, None),
        (start, start + 20),
        (start + 30, None),
        (start + 45, start + 70),
    ], "the log does not say when rewards happened and arrived"
    storage.tallied(key)


def check_exact_sums(storage: Bench) -> None:
    """Sums are exact, whatever the order in which rewards come."""
    values = [1e16, 1.0, -1e16, 0.1, 0.2, 1 / 3, 1e-300, 5e-324, 1e150, -1e150, 2.0**53, -7.25]
    values = values * 3
    rng = np.random.default_rng(3)
    seen = []
    for run in range(3):
        key = storage.running(40, name=f"run {run}", weights=(0.5, 0.5))
        units = [f"u{i}" for i in range(len(values))]
        storage.assign(key, units)
        reported: list[tuple[Target, float]] = [(u, v) for u, v in zip(units, values, strict=True)]
        order = rng.permutation(len(reported))
        for part in np.array_split(order, run + 1):
            storage.reward(key, [reported[i] for i in part], None, NOW)
        assert [r.reward for r in storage.log(key)] == values, "a reward is not kept exactly"
        seen.append(storage.again().tallied(key)[0])
    assert seen[0] == seen[1] == seen[2], "sums depend on the order of rewards"


def check_closed_segments(storage: Bench) -> None:
    """A reward of a closed segment is refused; one that was there is recognised."""
    key = storage.running(3)
    storage.assign(key, ["a", "b", "c"])
    storage.reward(key, [("a", 1.0)], None, NOW)
    storage.open_segment(key, new_segment(2), closed=[0])
    before = storage.everything(key)
    got = storage.reward(key, [("b", 1.0), ("a", 1.0), (0, 2.0)], None, NOW)
    assert got[0] == Outcome("closed", 1, created=NOW), "a reward of a closed segment is taken"
    assert got[1] == Outcome("repeated", 0, 1.0), "a repeated reward is not recognised"
    assert got[2] == Outcome("conflict", 0, 1.0), "a conflict is not recognised"
    assert storage.everything(key) == before, "a closed segment changed"
    storage.assign(key, ["d"])
    assert storage.reward(key, [("d", 1.0)], None, NOW)[0].status == "stored", "it is open"
    storage.tallied(key)


def check_tallies(storage: Bench) -> None:
    """Tallies count assignments and rewards of each segment by arm, and know the last time."""
    key = storage.running(12)
    storage.assign(key, [f"a{i}" for i in range(7)], now=NOW + 70)
    for p in range(7, 10):
        storage.assign(key, [f"b{p}"], now=NOW + 95 - p)
    storage.open_segment(key, new_segment(10))
    storage.assign(key, [f"c{i}" for i in range(5)], now=NOW + 60)
    storage.reward(key, [("a0", 1.0), ("b8", 2.0), ("c2", 4.0), ("c3", 0.5)], None, NOW + 99)
    first, second = storage.tallied(key)
    assert (first.total_assigned, first.total_rewarded) == (10, 2), (
        "the first segment's tally is not its own"
    )
    assert (second.total_assigned, second.total_rewarded) == (5, 2), (
        "the second segment's tally is not its own"
    )
    assert first.last == NOW + 88, "not the time of the last assignment"
    assert second.last == NOW + 60, "not the time of the segment's own last assignment"


def check_targets_with_a_check(storage: Bench) -> None:
    """A number with the check of a unit is that unit's assignment, or none."""
    key = storage.running(9)
    storage.assign(key, ["a", "b"])
    meant: list[Target] = [(0, check_of("a")), (1, check_of("a")), (1, check_of("b")), (2, "")]
    rows = storage.find_assignments(key, meant)
    assert [row and row.number for row in rows] == [0, None, 1, None], "not the unit that was meant"
    outcomes = storage.reward(key, [(target, 1.0) for target in meant], None, NOW)
    assert [outcome.status for outcome in outcomes] == ["stored", "unknown", "stored", "unknown"]


# Checks of sums by day: of the assignment, whenever its reward comes or is refused.


TODAY = NOW // DAY
MIDNIGHT = (TODAY + 1) * DAY


def check_days(storage: Bench) -> None:
    """Assignments count on their own day, across midnights and segments."""
    assert storage.days(storage.new_experiment("empty").key) == (), "days out of nothing"
    refused(UnknownExperimentError, "days of no experiment", storage.days, 10**6)
    key = storage.running(20)
    assert storage.days(key) == (), "a day on which nothing was assigned"
    storage.assign(key, ["a", "b", "c"], now=NOW)
    storage.assign(key, ["d"], now=MIDNIGHT - 1)
    storage.assign(key, ["e", "a"], now=MIDNIGHT)
    for i in range(4):
        storage.assign(key, [f"l{i}"], now=MIDNIGHT + i * DAY - 1)
    storage.open_segment(key, new_segment(20))
    storage.assign(key, ["f", "g"], now=NOW + 7 * DAY)
    found = [(s.segment, s.day - TODAY, s.tally.total_assigned) for s in storage.dayed(key)]
    assert found == [(0, 0, 5), (0, 1, 2), (0, 2, 1), (0, 3, 1), (1, 7, 2)], f"{found}"
    assert storage.again().dayed(key) == storage.days(key), "opened again, days are different"


def check_rewards_of_days(storage: Bench) -> None:
    """A reward counts on the day of its assignment, once, with the time it was waited for."""
    key = storage.running(30)
    for day in range(3):
        storage.assign(key, [f"{day}.{i}" for i in range(8)], now=NOW + day * DAY)
    reported: list[tuple[Target, float]] = [("0.0", 0.1), ("1.1", 1 / 3), (number_of(0, 1), 2.5)]
    now = NOW + 2 * DAY + 1_999
    for again in range(3):
        storage.again().reward(key, reported, None, now + again * HOUR)
    storage.reward(key, [("0.0", 9.0), ("2.7", -1.0), ("2.7", -1.0)], None, now - DAY)
    found = [(s.tally.total_rewarded, sum(s.waited)) for s in storage.dayed(key)]
    hours = 24 * 3_600_000
    assert found[0] == (2, 2 * (2 * hours + 1)), "whole milliseconds are not summed"
    assert found[1] == (1, hours + 1), "a repeated reward changed the day, or it is not its own"
    assert found[2] == (1, 0), "a reward that seems to come before its assignment is not waited for"
    assert not any(map(any, storage.late(key))), "what was repeated is called late"


def check_late_rewards(storage: Bench) -> None:
    """Refused rewards count as late on their assignment's day, each attempt, and nowhere else."""
    key = storage.running(6)
    first = every(storage.assign(key, ["a", "b", "c"], now=NOW))
    second = every(storage.assign(key, ["d", "e", "f"], now=NOW + DAY))
    storage.reward(key, [("a", 1.0)], HOUR, NOW + 1)
    before = storage.tallied(key)
    # Another opening may have nothing of its own to add to.
    other = storage.again()
    other.reward(key, [("b", 1.0), ("b", 1.0), ("a", 1.0)], HOUR, NOW + 2 * HOUR)
    storage.reward(key, [("b", 2.0), ("d", 0.5), ("nobody", 1.0)], HOUR, NOW + DAY + HOUR)
    late = [0, 0, 0], [0, 0, 0]
    late[0][first[1].arm] += 3
    assert storage.late(key) == [tuple(each) for each in late], "not those after their window"
    (tally,) = storage.tallied(key)
    assert tally.total_rewarded == before[0].total_rewarded + 1, "a late reward is in the tally"
    storage.open_segment(key, new_segment(9), closed=[0])
    storage.assign(key, ["g"], now=NOW + DAY)
    statuses = [o.status for o in other.reward(key, [("e", 1.0), ("g", 1.0)], None, NOW + DAY)]
    assert statuses == ["closed", "stored"], f"{statuses}"
    storage.reward(key, [("c", 1.0), ("f", 1.0), ("d", 0.5)], HOUR, NOW + 9 * DAY)
    for given in (first[2], second[1], second[2]):
        late[0 if given in first else 1][given.arm] += 1
    assert storage.late(key) == [*(tuple(each) for each in late), (0, 0, 0)], (
        "not those of closed segments"
    )
    storage.tallied(key)


def check_restored_days(storage: Bench) -> None:
    """A restored experiment has the same days, and counts late rewards from zero."""
    key = storage.busy("e")
    storage.assign(key, ["x", "y"], now=NOW + 3 * DAY)
    storage.reward(key, [("x", 0.3), ("e0", 0.7), ("a1", 1.0)], None, NOW + 4 * DAY)
    assert sum(map(sum, storage.late(key))) == 1, "the check is not worth much"
    made = storage.restored(key)
    (outcome,) = storage.reward(made.key, [("a1", 1.0)], None, NOW + 5 * DAY)
    assert outcome.status == "closed", f"{outcome}"
    assert storage.late(made.key) == storage.late(key), "late rewards are not counted on"


def check_many_days(storage: Bench) -> None:
    """One request may have rewards of many days, segments and arms."""
    key = storage.running(60)
    reported: list[tuple[Target, float]] = []
    for day in range(40):
        if day == 20:
            storage.open_segment(key, new_segment(60))
        units = [f"{day}.{i}" for i in range(3)]
        storage.assign(key, units, now=NOW + day * DAY)
        reported += [(unit, 0.1 * day + i) for i, unit in enumerate(units)]
    storage.again().reward(key, reported[::-1], None, NOW + 50 * DAY)
    days = storage.dayed(key)
    assert [sums.tally.total_rewarded for sums in days] == [3] * 40, "rewards are not on their days"
    assert storage.tallied(key)[1].total_rewarded == 60, "rewards are not in their segment"


# Checks of segments that play some of very many arms: sums in their columns, arms by index.


FIRST = np.array([0, 17, 4_096, 1_048_575], dtype=np.int64)
SECOND = np.array([3, 17, 900_000], dtype=np.int64)


def some(arms: NDArray[np.int64], rounds: int, order: Order = "iid", block: int = 1) -> Segment:
    """A segment that plays these arms, the later ones more often."""
    shares = np.arange(1.0, arms.size + 1)
    if order == "shuffled":
        counts = np.full((1, arms.size), rounds // arms.size)
        counts[0, -1] += rounds - counts.sum()
        return replace(Segment.shuffled(counts), arms=arms)
    weights = (shares / shares.sum())[None]
    return Segment(weights, np.array([rounds]), order, block, np.array([[0.5, -1.0]]), arms)


def check_some_arms(storage: Bench) -> None:
    """Segments keep their arms to the bit; places, tallies and days are theirs."""
    for order in ("iid", "blocks", "shuffled"):
        key = storage.new_experiment(order).key
        segment = some(FIRST, 40, order, 8)
        storage.open_segment(key, segment)
        given = every(storage.assign(key, [f"u{i}" for i in range(12)]))
        for i in range(28):
            given += every(storage.assign(key, [f"l{i}"], now=NOW + i))
        assert len(given) == 40, "positions were lost"
        has_arms_of(given, segment)
        assert {a.arm for a in given} <= set(FIRST.tolist()), "arms that are not played"
        _reward(storage, key, [a.unit for a in given])
        for again in (storage, storage.again()):
            ((record, tally),) = again.snapshot(key, everything=True).segments
            assert record.segment.arms is not None, "the arms are forgotten"
            assert np.array_equal(record.segment.arms, FIRST), "other arms"
            assert record.segment.arms.dtype == np.int64, "arms of another kind"
            assert shape_of(record)[1:] == shape_of(replace(record, segment=segment))[1:]
            assert shape_of(again.segments(key, [0])[0]) == shape_of(record), "read in two ways"
            counts = tuple(sum(a.arm == k for a in given) for k in FIRST.tolist())
            assert tally.assigned == counts, "columns are not those of the arms"
            assert [row.arm for row in again.whole_log(key)] == [
                a.arm for a in sorted(given, key=lambda a: a.number)
            ], "the log has other arms"
        storage.accounted(key)


def check_other_arms(storage: Bench) -> None:
    """One segment closes, another plays other arms, a third all: each with its own columns."""
    key = storage.new_experiment().key
    storage.open_segment(key, some(FIRST, 10))
    _play(storage, key, "a", 10)
    storage.open_segment(key, some(SECOND, 15), closed=[0])
    _play(storage.again(), key, "b", 15)
    storage.open_segment(key, new_segment(20))
    _play(storage, key, "c", 9)
    assert [len(tally.sums) for tally in storage.tallied(key)] == [4, 3, 3], "other columns"
    assert [len(sums.late) for sums in storage.dayed(key)] == [4, 3, 3], "other columns of days"
    reported: list[tuple[Target, float]] = [("a0", 9.0), ("b0", 9.0)]
    storage.reward(key, reported, None, NOW)
    (outcome,) = storage.reward(key, [("a9", 1.0)], None, NOW + DAY)
    assert outcome.status == "closed", f"{outcome}"
    assert sum(storage.days(key)[0].late) == 1, "a late reward has no column"
    storage.tallied(key)
    assert storage.summaries()[0].assigned == 34, "not all of them are summed up"


def check_restored_arms(storage: Bench) -> None:
    """A restored experiment plays the same arms; rows of other arms are refused."""
    key = storage.new_experiment().key
    storage.open_segment(key, some(FIRST, 10))
    _play(storage, key, "a", 10)
    storage.open_segment(key, some(SECOND, 15), closed=[0])
    _play(storage, key, "b", 6)
    made = storage.restored(key)
    _play(storage, made.key, "c", 9)
    storage.accounted(made.key)
    snapshot, rows = storage.snapshot(key, everything=True), storage.log(key)
    wrong = [replace(rows[0], arm=5), *rows[1:]]
    refused(InvalidInputError, "a row of another arm", storage.restore, "w", snapshot, [wrong])
    names = [record.name for record in storage.summaries()]
    assert names == ["e", "copy"], "a refused restore left something behind"


def _play(storage: Bench, key: int, name: str, units: int) -> None:
    given = every(storage.assign(key, [f"{name}{i}" for i in range(units)]))
    _reward(storage, key, [a.unit for a in given[:-1]])


def _reward(storage: Bench, key: int, units: list[str]) -> None:
    reported: list[tuple[Target, float]] = [(unit, 0.1 + i / 3) for i, unit in enumerate(units)]
    storage.reward(key, reported, None, NOW + 99)
