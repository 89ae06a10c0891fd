"""Rewards: what becomes of each, and what is counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.segments import Order, Segment
from steadyarm.storages.counting import RunningTally, columns_of
from steadyarm.storages.records import (
    SKEW,
    Event,
    ExperimentState,
    LogRow,
    Outcome,
    Target,
    check_of,
    number_of,
)
from tests.storages.bench import (
    DAY,
    HOUR,
    NAMES,
    NOW,
    Bench,
    Open,
    every,
    has_arms_of,
    new_segment,
    shape_of,
)
from tests.storages.databases import running_in


def test_outcomes(bench: Bench) -> None:
    """An assignment has one reward, the first that was recorded; by number or by unit."""
    key = bench.running(9)
    bench.assign(key, ["a", "b", NAMES[2], "0"])
    none = bench.reward(key, [], NOW)
    assert none == ()
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
        ((1, check_of("b")), -2.0),
        ((1, check_of("a")), -2.0),
        ((9, ""), 1.0),
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
        Outcome("repeated", 1, -2.0),
        Outcome("unknown"),
        Outcome("unknown"),
    )
    got = bench.reward(key, rewards, NOW + 9)
    assert got == expected
    rows = bench.log(key)
    assert [r.reward for r in rows] == [0.1, -2.0, 0.0, 3.0]
    assert [r.rewarded for r in rows] == [NOW + 9] * 4
    before = bench.everything(key)
    again = bench.again().reward(key, [("b", -2.0), (0, 5.0)], NOW + 10)
    assert again == (Outcome("repeated", 1, -2.0), Outcome("conflict", 0, 0.1))
    assert bench.everything(key) == before
    bench.tallied(key)


def test_rewards_in_any_state(bench: Bench) -> None:
    """Rewards count also while the experiment is paused or stopped, not once it is archived."""
    key = bench.running(9)
    bench.assign(key, ["a", "b", "c"])
    states: dict[str, ExperimentState] = {"a": "paused", "b": "stopped"}
    for unit, state in states.items():
        bench.move(key, state)
        (outcome,) = bench.reward(key, [(unit, 1.0)], NOW)
        assert outcome.status == "stored"
    bench.move(key, "archived")
    before = bench.everything(key)
    got = bench.reward(key, [("c", 1.0), ("a", 1.0), ("x", 1.0)], NOW)
    assert [o.status for o in got] == ["archived", "archived", "unknown"]
    assert bench.everything(key) == before


HAPPENED: tuple[
    tuple[int | None, int, str, tuple[int | None, int | None]], ...
] = (  # when it happened, when it arrived, what becomes of it, and the stored times
    (None, 49, "stored", (49, None)),
    (None, 51, "late", (None, None)),
    (49, 80, "stored", (49, 80)),
    (51, 60, "late", (None, None)),
    (40, 81, "late", (None, None)),
    (-SKEW - 1, 20, "early", (None, None)),
    (-SKEW, 20, "stored", (0, 20)),
    (500, 30, "stored", (30, None)),
)


def test_window(bench: Bench) -> None:
    """A reward counts by when it happened, if it arrives within the grace after its window."""
    key = bench.running(9, window=50, grace=30)
    start = NOW + 10 * SKEW
    bench.assign(key, [f"u{i}" for i in range(len(HAPPENED))], now=start)
    for i, (at, now, status, times) in enumerate(HAPPENED):
        reward = f"u{i}", 1.0, *([] if at is None else [start + at])
        (outcome,) = bench.reward(key, [reward], start + now)
        created = start if status == "late" else None
        assert (outcome.number, outcome.status, outcome.created) == (i, status, created)
        row = bench.log(key)[i]
        stored = [None if time is None else start + time for time in times]
        assert [row.rewarded, row.received] == stored
    again = [("u0", 1.0), ("u0", 2.0), ("u1", 2.0, start + 60), ("u1", 3.0, start + 45)]
    statuses = [outcome.status for outcome in bench.reward(key, again, start + 70)]
    assert statuses == ["repeated", "conflict", "late", "stored"]
    bench.tallied(key)
    endless = bench.running(9, name="without a window")
    bench.assign(endless, ["b"], now=NOW)
    (outcome,) = bench.reward(endless, [("b", 1.0)], NOW + 10**15)
    assert outcome.status == "stored"


def test_late_rewards(bench: Bench) -> None:
    """Refused rewards count as late on their assignment's day, each attempt, and nowhere else."""
    key = bench.running(6, window=HOUR)
    first = every(bench.assign(key, ["a", "b", "c"], now=NOW))
    second = every(bench.assign(key, ["d", "e", "f"], now=NOW + DAY))
    bench.reward(key, [("a", 1.0)], NOW + 1)
    before = bench.tallied(key)
    # Another opening may have nothing of its own to add to.
    other = bench.again()
    other.reward(key, [("b", 1.0), ("b", 1.0), ("a", 1.0)], NOW + 2 * HOUR)
    bench.reward(key, [("b", 2.0), ("d", 0.5), ("nobody", 1.0)], NOW + DAY + HOUR)
    late = [0, 0, 0], [0, 0, 0]
    late[0][first[1].arm] += 3
    assert bench.late(key) == [tuple(each) for each in late]
    (tally,) = bench.tallied(key)
    assert tally.total_rewarded == before[0].total_rewarded + 1
    bench.open_segment(key, new_segment(9), closed=[0])
    bench.assign(key, ["g"], now=NOW + DAY)
    statuses = [o.status for o in other.reward(key, [("e", 1.0), ("g", 1.0)], NOW + DAY)]
    assert statuses == ["closed", "stored"]
    bench.reward(key, [("c", 1.0), ("f", 1.0), ("d", 0.5)], NOW + 9 * DAY)
    for given in (first[2], second[1], second[2]):
        late[0 if given in first else 1][given.arm] += 1
    assert bench.late(key) == [*(tuple(each) for each in late), (0, 0, 0)]
    bench.tallied(key)


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


def test_some_arms(bench: Bench) -> None:
    """Segments keep their arms to the bit; places, tallies and days are theirs."""
    for order in ("iid", "blocks", "shuffled"):
        key = bench.new_experiment(order).key
        segment = some(FIRST, 40, order, 8)
        bench.open_segment(key, segment)
        given = every(bench.assign(key, [f"u{i}" for i in range(12)]))
        for i in range(28):
            given += every(bench.assign(key, [f"l{i}"], now=NOW + i))
        assert len(given) == 40
        has_arms_of(given, segment)
        assert {a.arm for a in given} <= set(FIRST.tolist())
        _reward(bench, key, [a.unit for a in given])
        for again in (bench, bench.again()):
            ((record, tally),) = again.snapshot(key, everything=True).segments
            assert record.segment.arms is not None
            assert np.array_equal(record.segment.arms, FIRST)
            assert record.segment.arms.dtype == np.int64
            assert shape_of(record)[1:] == shape_of(replace(record, segment=segment))[1:]
            assert shape_of(again.segments(key, [0])[0]) == shape_of(record)
            counts = tuple(sum(a.arm == k for a in given) for k in FIRST.tolist())
            assert tally.assigned == counts
            assert [row.arm for row in again.whole_log(key)] == [
                a.arm for a in sorted(given, key=lambda a: a.number)
            ]
        bench.accounted(key)


def test_other_arms(bench: Bench) -> None:
    """One segment closes, another plays other arms, a third all: each with its own columns."""
    key = bench.new_experiment().key
    bench.open_segment(key, some(FIRST, 10))
    _play(bench, key, "a", 10)
    bench.open_segment(key, some(SECOND, 15), closed=[0])
    _play(bench.again(), key, "b", 15)
    bench.open_segment(key, new_segment(20))
    _play(bench, key, "c", 9)
    (outcome,) = bench.reward(key, [("a9", 1.0)], NOW + DAY)
    assert outcome.status == "closed"
    assert [len(tally.sums) for tally in bench.tallied(key)] == [4, 3, 3]
    assert [(len(sums.late), sum(sums.late)) for sums in bench.dayed(key)] == [
        (4, 1),
        (3, 0),
        (3, 0),
    ]


def _play(bench: Bench, key: int, name: str, units: int) -> None:
    given = every(bench.assign(key, [f"{name}{i}" for i in range(units)]))
    _reward(bench, key, [a.unit for a in given[:-1]])


def _reward(bench: Bench, key: int, units: list[str]) -> None:
    reported: list[tuple[Target, float]] = [(unit, 0.1 + i / 3) for i, unit in enumerate(units)]
    bench.reward(key, reported, NOW + 99)


def test_a_late_reward_counts_where_a_worker_has_counted_nothing_yet(open_fresh: Open) -> None:
    storage = open_fresh()
    key = running_in(storage, 10, window=5)
    storage.assign(key, ["a", "b"], now=0)
    storage._database.shard = 3
    other = open_fresh()
    other._database.shard = 4
    once = [Event("a", 1.0)]
    for told in (once, [*once, Event("b", 1.0), Event("a", 2.0)]):
        for worker in (storage, other):
            said = worker.record(key, told, 6).outcomes
            assert {outcome.status for outcome in said} == {"late"}
    (sums,) = storage.days(key)
    assert (sum(sums.late), sums.tally.total_assigned, sums.tally.total_rewarded) == (8, 2, 0)
    assert [sums.tally for sums in storage.days(key)] == [storage.snapshot(key).segments[0][1]]


def test_running_sums_refuse_arms_of_other_segments() -> None:
    tally = RunningTally(columns_of(some(FIRST, 10)))
    tally.add(LogRow(0, "a", 1_048_575, 0.4, 5, 0.5, 7))
    assert tally.tally().assigned == (0, 0, 0, 1)
    with pytest.raises(InvalidInputError, match="arm 5 was not assigned from this segment"):
        tally.add(LogRow(3, "d", 5, 0.2, 1, None, None))
