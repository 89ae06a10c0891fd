"""Checks of rewards: what becomes of each, and that sums are exact."""

from __future__ import annotations

import numpy as np

from steadyarm.errors import WrongStateError
from steadyarm.storages.checks.bench import (
    NAMES,
    NOW,
    Check,
    Open,
    assign,
    leased,
    new_segment,
    open_segment,
    refused,
    running,
)
from steadyarm.storages.checks.looking import everything, tallied
from steadyarm.storages.records import (
    SKEW,
    ExperimentState,
    Outcome,
    Target,
    check_of,
    number_of,
)

__all__ = ["CHECKS"]


def check_outcomes(open_storage: Open) -> None:
    """An assignment has one reward, the first one told; by number or by unit."""
    storage = open_storage()
    key = running(storage, 9)
    assign(storage, key, ["a", "b", NAMES[2], "0"])
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
    assert [r.rewarded for r in rows] == [NOW + 9] * 4, "not the time they were told"
    before = everything(storage, key)
    again = open_storage().reward(key, [("b", -2.0), (0, 5.0)], None, NOW + 10)
    assert again == (Outcome("repeated", 1, -2.0), Outcome("conflict", 0, 0.1)), f"{again}"
    assert everything(storage, key) == before, "a second reward changed something"
    tallied(storage, key)


def check_rewards_in_any_state(open_storage: Open) -> None:
    """Rewards count also while the experiment is paused or stopped, not once it is archived."""
    storage = open_storage()
    key = running(storage, 9)
    assign(storage, key, ["a", "b", "c"])
    states: dict[str, ExperimentState] = {"a": "paused", "b": "stopped"}
    for unit, state in states.items():
        storage.move(key, state)
        (outcome,) = storage.reward(key, [(unit, 1.0)], None, NOW)
        assert outcome.status == "stored", f"a reward was refused while {state}"
    storage.move(key, "archived")
    before = everything(storage, key)
    promise = "a reward of an archived experiment"
    refused(WrongStateError, promise, storage.reward, key, [("c", 1.0), ("a", 1.0)], None, NOW)
    assert everything(storage, key) == before, "a refused reward changed something"


def check_window(open_storage: Open) -> None:
    """A reward told after its window is late; one that was there stays."""
    storage = open_storage()
    key = running(storage, 9)
    assign(storage, key, ["a", "b", "c"], now=NOW)
    assign(storage, key, ["d"], now=NOW + 100)
    assert storage.reward(key, [("a", 1.0)], 50, NOW + 49) == (Outcome("stored", 0),)
    before = everything(storage, key)
    late = storage.reward(key, [("b", 1.0), ("a", 1.0), ("a", 2.0)], 50, NOW + 51)
    assert late[0] == Outcome("late", 1), "a reward after its window was counted"
    assert late[1] == Outcome("repeated", 0, 1.0), "a repeated reward is not called so"
    assert late[2] == Outcome("conflict", 0, 1.0), "a conflict is not called so"
    assert everything(storage, key) == before, "a late reward changed something"
    got = storage.reward(key, [("c", 1.0), ("d", 2.0)], 50, NOW + 140)
    assert [o.status for o in got] == ["late", "stored"], "windows begin at each assignment"
    assert storage.reward(key, [("b", 1.0)], None, NOW + 10**15)[0].status == "stored", "no window"
    tallied(storage, key)


def check_event_time(open_storage: Open) -> None:
    """A reward counts by when it happened, if it arrives within the grace after its window."""
    storage = open_storage()
    key = running(storage, 9)
    start = NOW + 10 * SKEW
    assign(storage, key, ["a", "b", "c", "d", "e"], now=start)

    def tell(unit: str, at: int, now: int) -> str:
        (outcome,) = storage.reward(key, [(unit, 1.0, start + at)], 50, start + now, grace=30)
        return outcome.status

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
    tallied(storage, key)


def check_exact_sums(open_storage: Open) -> None:
    """Sums are exact, whatever the order in which rewards come."""
    storage = open_storage()
    values = [1e16, 1.0, -1e16, 0.1, 0.2, 1 / 3, 1e-300, 5e-324, 1e150, -1e150, 2.0**53, -7.25]
    values = values * 3
    rng = np.random.default_rng(3)
    seen = []
    for run in range(3):
        key = running(storage, 40, name=f"run {run}", weights=(0.5, 0.5))
        units = [f"u{i}" for i in range(len(values))]
        assign(storage, key, units)
        told: list[tuple[Target, float]] = [(u, v) for u, v in zip(units, values, strict=True)]
        order = rng.permutation(len(told))
        for part in np.array_split(order, run + 1):
            storage.reward(key, [told[i] for i in part], None, NOW)
        assert [r.reward for r in storage.log(key)] == values, "a reward is not kept exactly"
        seen.append(tallied(open_storage(), key)[0])
    assert seen[0] == seen[1] == seen[2], "sums depend on the order of rewards"


def check_closed_segments(open_storage: Open) -> None:
    """A reward of a closed segment is refused; one that was there is recognised."""
    storage = open_storage()
    key = running(storage, 3)
    assign(storage, key, ["a", "b", "c"])
    storage.reward(key, [("a", 1.0)], None, NOW)
    open_segment(storage, key, new_segment(2), closed=[0])
    before = everything(storage, key)
    got = storage.reward(key, [("b", 1.0), ("a", 1.0), (0, 2.0)], None, NOW)
    assert got[0] == Outcome("closed", 1), "a reward of a closed segment was not refused"
    assert got[1] == Outcome("repeated", 0, 1.0), "a repeated reward is not called so"
    assert got[2] == Outcome("conflict", 0, 1.0), "a conflict is not called so"
    assert everything(storage, key) == before, "a closed segment changed"
    assign(storage, key, ["d"])
    assert storage.reward(key, [("d", 1.0)], None, NOW)[0].status == "stored", "it is open"
    tallied(storage, key)


def check_tallies(open_storage: Open) -> None:
    """Tallies count assignments and rewards of each segment by arm, and know the last time."""
    storage = open_storage()
    key = running(storage, 12)
    assign(storage, key, [f"a{i}" for i in range(7)], now=NOW + 70)
    (lease,) = leased(storage, key, 5, now=NOW + 80)
    used = [(p, f"b{p}", NOW + 95 - p) for p in range(7, 10)]
    storage.report(key, lease.id, used, NOW + 90)
    open_segment(storage, key, new_segment(10))
    assign(storage, key, [f"c{i}" for i in range(5)], now=NOW + 60)
    storage.reward(key, [("a0", 1.0), ("b8", 2.0), ("c2", 4.0), ("c3", 0.5)], None, NOW + 99)
    first, second = tallied(storage, key)
    assert (first.handed_out, first.told) == (10, 2), "the first segment's tally is not its own"
    assert (second.handed_out, second.told) == (5, 2), "the second segment's tally is not its own"
    assert first.last == NOW + 88, "not the time of the last assignment"
    assert second.last == NOW + 60, "not the time of the segment's own last assignment"


def check_targets_with_a_check(open_storage: Open) -> None:
    """A number with the check of a unit is that unit's assignment, or none."""
    storage = open_storage()
    key = running(storage, 9)
    assign(storage, key, ["a", "b"])
    meant: list[Target] = [(0, check_of("a")), (1, check_of("a")), (1, check_of("b")), (2, "")]
    rows = storage.find_assignments(key, meant)
    assert [row and row.number for row in rows] == [0, None, 1, None], "not the unit that was meant"
    told = storage.reward(key, [(target, 1.0) for target in meant], None, NOW)
    assert [outcome.status for outcome in told] == ["stored", "unknown", "stored", "unknown"]


CHECKS: tuple[Check, ...] = (
    check_targets_with_a_check,
    check_outcomes,
    check_rewards_in_any_state,
    check_window,
    check_event_time,
    check_exact_sums,
    check_closed_segments,
    check_tallies,
)
