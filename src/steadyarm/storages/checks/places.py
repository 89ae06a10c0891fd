"""Checks of places: which one a unit gets, and with which arm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadyarm.errors import WrongStateError
from steadyarm.storages.checks.bench import (
    NAMES,
    NOW,
    SEED,
    Check,
    Open,
    assign,
    leased,
    new_experiment,
    new_segment,
    open_segment,
    refused,
    running,
)
from steadyarm.storages.checks.looking import (
    accounted,
    every,
    everything,
    has_arms_of,
    numbers_given,
    numbers_of,
)
from steadyarm.storages.records import Assigned, ExperimentState, Handed, Outcome, number_of

__all__ = ["CHECKS"]


def check_arms_of_places(open_storage: Open) -> None:
    """Arms are those of the places, in all orders and also far into a segment."""
    storage = open_storage()
    reference = np.array([[0.1, -1 / 3]])
    for seed in (0, SEED):
        key = new_experiment(storage, f"seed {seed}", sticky=False, seed=seed).key
        for order in ("iid", "blocks", "shuffled"):
            segment = replace(new_segment(2300, order, 7), reference=reference)
            index = open_segment(storage, key, segment)
            given: list[Assigned] = []
            for size in (1, 2, 1020, 1, 276, 1000):
                units = [f"u{len(given) + i}" for i in range(size)]
                given += every(assign(storage, key, units))
            for position, a in enumerate(given):
                assert a.number == number_of(index, position), "places are not given in order"
                assert a.unit == f"u{position}", "an assignment is not for its unit"
                assert (a.new, a.created) == (True, NOW), "not new, or of another time"
            has_arms_of(given, segment, index, seed)
    accounted(storage, key)


def check_sticky_units(open_storage: Open) -> None:
    """A unit of a sticky experiment keeps its first assignment for ever."""
    storage = open_storage()
    key = running(storage, 8)
    first = every(assign(storage, key, ["a", "b", "a", "c", "a"]))
    assert [a.number for a in first] == [0, 1, 0, 2, 0], "a unit named twice got two places"
    assert [a.new for a in first] == [True, True, False, True, False], "new is not the first time"
    later = every(assign(open_storage(), key, ["c", "d", "b"], now=NOW + 5))
    assert [a.number for a in later] == [2, 3, 1], "a unit did not keep its assignment"
    assert later[0] == replace(first[3], new=False), "an old assignment came back changed"
    assert (later[1].new, later[1].created) == (True, NOW + 5), "not new, or of another time"
    open_segment(storage, key, new_segment(5))
    assert every(assign(storage, key, ["a"]))[0].number == 0, "a new segment took a unit's place"
    for unit in (*NAMES, "A", ""):
        one, two = (every(assign(storage, key, [unit]))[0] for _ in range(2))
        assert one.new, f"the unit {unit!r} is taken for another"
        assert two == replace(one, new=False), f"the unit {unit!r} is not recognised"
        assert one.unit == unit, f"the unit {unit!r} became {one.unit!r}"
        if unit == NAMES[4]:
            open_segment(storage, key, new_segment(50))
    accounted(storage, key)


def check_units_that_do_not_stick(open_storage: Open) -> None:
    """Every request of another experiment is a new assignment."""
    storage = open_storage()
    key = running(storage, 8, sticky=False)
    given = every(assign(storage, key, ["a", "a", "b"])) + every(assign(storage, key, ["a"]))
    assert [a.number for a in given] == [0, 1, 2, 3], "a request was not given a new place"
    assert all(a.new for a in given), "an assignment is not new"
    assert storage.find_assignments(key, ["a"]) == [None], "such units do not name assignments"
    outcome = storage.reward(key, [("a", 1.0)], None, NOW)
    assert outcome == (Outcome("unknown"),), "such units do not name assignments in rewards"


def check_positions_run_out(open_storage: Open) -> None:
    """Where positions run out the unit gets None, and nothing is stored for it."""
    storage = open_storage()
    key = new_experiment(storage).key
    assert assign(storage, key, ["a", "b"], ahead=3) == Handed((None, None), ()), "no segment yet"
    assert leased(storage, key, 3) == (), "leased without a segment"
    open_segment(storage, key, new_segment(3))
    handed = assign(storage, key, ["a", "b", "c", "d", "a", "d"], ahead=2)
    numbers = numbers_of(handed)
    assert numbers == [0, 1, 2, None, 0, None], f"places {numbers} of three"
    assert handed.leases == (), "leased positions that are not there"
    assert leased(storage, key, 3) == (), "leased beyond the end"
    assert storage.find_assignments(key, ["d"]) == [None], "a unit without a place was stored"
    open_segment(storage, key, new_segment(3))
    assert every(assign(storage, key, ["d", "a"]))[0].number == number_of(1, 0)
    accounted(storage, key)


def check_only_running_assigns(open_storage: Open) -> None:
    """New assignments and leases need a running experiment; old ones are given in any state."""
    storage = open_storage()
    path: dict[ExperimentState, tuple[ExperimentState, ...]] = {
        "paused": ("paused",),
        "stopped": ("stopped",),
        "archived": ("stopped", "archived"),
    }
    for state, moves in path.items():
        key = running(storage, 9, name=state)
        old = assign(storage, key, ["a"], ahead=2)
        for move in moves:
            storage.move(key, move)
        before = everything(storage, key)
        again = assign(storage, key, ["a", "a"], old.leases, ahead=2)
        assert [a.number for a in every(again)] == [0, 0], f"{state}: old assignments are refused"
        assert again.leases == old.leases, f"{state}: the caller's leases changed"
        assert assign(storage, key, []).assigned == ()
        for held in ((), old.leases):
            promise = f"a new assignment while {state}"
            refused(WrongStateError, promise, assign, storage, key, ["a", "b"], held)
        promise = f"a lease while {state}"
        refused(WrongStateError, promise, leased, storage, key, 1)
        assert everything(storage, key) == before, f"{state}: a refusal left something behind"
    key = new_experiment(storage, "draft", state="draft").key
    refused(WrongStateError, "an assignment of a draft", assign, storage, key, ["a"])


def check_last_segment_gives_new_positions(open_storage: Open) -> None:
    """The segment opened last gives new positions, others only those that were released."""
    storage = open_storage()
    key = running(storage, 10)
    assign(storage, key, ["a", "b"])
    (lease,) = leased(storage, key, 3)
    open_segment(storage, key, new_segment(4))
    assert numbers_of(assign(storage, key, ["c"])) == [number_of(1, 0)], "an older segment gave one"
    assert storage.release(key, [lease.id]) == 3
    given = numbers_given(assign(storage, key, ["d", "e", "f", "g"]))
    assert sorted(given) == [2, 3, 4, number_of(1, 1)], "released ones do not come first"
    last = numbers_of(assign(storage, key, ["h", "i", "j"]))
    assert last == [number_of(1, 2), number_of(1, 3), None], "an older segment gave new positions"
    assert storage.segments(key, [0])[0].handed == 5, "an older segment's counter moved"
    accounted(storage, key)


CHECKS: tuple[Check, ...] = (
    check_arms_of_places,
    check_sticky_units,
    check_units_that_do_not_stick,
    check_positions_run_out,
    check_only_running_assigns,
    check_last_segment_gives_new_positions,
)
