"""Checks of assignments: positions, leases, and reports of what was assigned from a lease."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadyarm.errors import WrongStateError
from steadyarm.storages.records import (
    Assigned,
    ExperimentState,
    Handed,
    Outcome,
    number_of,
    room_ahead,
)
from steadyarm.testing.storages.bench import (
    NAMES,
    NOW,
    SEED,
    Bench,
    every,
    has_arms_of,
    new_segment,
    numbers_given,
    numbers_of,
    places_of,
    refused,
    those_given,
)

# Checks of positions: which one a unit gets, and with which arm.


def check_arms_of_places(storage: Bench) -> None:
    """Arms are those of the places, in all orders and also far into a segment."""
    reference = np.array([[0.1, -1 / 3]])
    for seed in (0, SEED):
        key = storage.new_experiment(f"seed {seed}", sticky=False, seed=seed).key
        for order in ("iid", "blocks", "shuffled"):
            segment = replace(new_segment(2300, order, 7), reference=reference)
            index = storage.open_segment(key, segment)
            given: list[Assigned] = []
            for size in (1, 2, 1020, 1, 276, 1000):
                units = [f"u{len(given) + i}" for i in range(size)]
                given += every(storage.assign(key, units))
            for position, a in enumerate(given):
                assert a.number == number_of(index, position), "positions are not given in order"
                assert a.unit == f"u{position}", "an assignment is not for its unit"
                assert (a.new, a.created) == (True, NOW), "not new, or of another time"
            has_arms_of(given, segment, index, seed)
    storage.accounted(key)


def check_sticky_units(storage: Bench) -> None:
    """A unit of a sticky experiment keeps its first assignment for ever."""
    key = storage.running(8)
    first = every(storage.assign(key, ["a", "b", "a", "c", "a"]))
    assert [a.number for a in first] == [0, 1, 0, 2, 0], "a unit named twice got two places"
    assert [a.new for a in first] == [True, True, False, True, False], "new is not the first time"
    later = every(storage.again().assign(key, ["c", "d", "b"], now=NOW + 5))
    assert [a.number for a in later] == [2, 3, 1], "a unit did not keep its assignment"
    assert later[0] == replace(first[3], new=False), "an old assignment came back changed"
    assert (later[1].new, later[1].created) == (True, NOW + 5), "not new, or of another time"
    storage.open_segment(key, new_segment(5))
    assert every(storage.assign(key, ["a"]))[0].number == 0, (
        "a new segment took a unit's assignment"
    )
    for unit in (*NAMES, "A", ""):
        one, two = (every(storage.assign(key, [unit]))[0] for _ in range(2))
        assert one.new, f"the unit {unit!r} is taken for another"
        assert two == replace(one, new=False), f"the unit {unit!r} is not recognised"
        assert one.unit == unit, f"the unit {unit!r} became {one.unit!r}"
        if unit == NAMES[4]:
            storage.open_segment(key, new_segment(50))
    storage.accounted(key)


def check_units_that_do_not_stick(storage: Bench) -> None:
    """Every request of another experiment is a new assignment."""
    key = storage.running(8, sticky=False)
    given = every(storage.assign(key, ["a", "a", "b"])) + every(storage.assign(key, ["a"]))
    assert [a.number for a in given] == [0, 1, 2, 3], "a request got no new position"
    assert all(a.new for a in given), "an assignment is not new"
    assert storage.find_assignments(key, ["a"]) == [None], "such units do not name assignments"
    outcome = storage.reward(key, [("a", 1.0)], None, NOW)
    assert outcome == (Outcome("unknown"),), "such units do not name assignments in rewards"


def check_positions_run_out(storage: Bench) -> None:
    """Where positions run out the unit gets None, and nothing is stored for it."""
    key = storage.new_experiment().key
    assert storage.assign(key, ["a", "b"], ahead=3) == Handed((None, None), ()), "no segment yet"
    assert storage.lease(key, 3) == (), "leased without a segment"
    storage.open_segment(key, new_segment(3))
    handed = storage.assign(key, ["a", "b", "c", "d", "a", "d"], ahead=2)
    numbers = numbers_of(handed)
    assert numbers == [0, 1, 2, None, 0, None], f"places {numbers} of three"
    assert handed.leases == (), "leased positions that are not there"
    assert storage.lease(key, 3) == (), "leased beyond the end"
    assert storage.find_assignments(key, ["d"]) == [None], "a unit without a position was stored"
    storage.open_segment(key, new_segment(3))
    assert every(storage.assign(key, ["d", "a"]))[0].number == number_of(1, 0)
    storage.accounted(key)


def check_only_running_assigns(storage: Bench) -> None:
    """New assignments and leases need a running experiment; old ones are given in any state."""
    path: dict[ExperimentState, tuple[ExperimentState, ...]] = {
        "paused": ("paused",),
        "stopped": ("stopped",),
        "archived": ("stopped", "archived"),
    }
    for state, moves in path.items():
        key = storage.running(9, name=state)
        old = storage.assign(key, ["a"], ahead=2)
        for move in moves:
            storage.move(key, move)
        before = storage.everything(key)
        again = storage.assign(key, ["a", "a"], old.leases, ahead=2)
        assert [a.number for a in every(again)] == [0, 0], f"{state}: old assignments are refused"
        assert again.leases == old.leases, f"{state}: the caller's leases changed"
        assert storage.assign(key, []).assigned == ()
        for held in ((), old.leases):
            promise = f"a new assignment while {state}"
            refused(WrongStateError, promise, storage.assign, key, ["a", "b"], held)
        promise = f"a lease while {state}"
        refused(WrongStateError, promise, storage.lease, key, 1)
        assert storage.everything(key) == before, f"{state}: a refusal left something behind"
    key = storage.new_experiment("draft", state="draft").key
    refused(WrongStateError, "an assignment of a draft", storage.assign, key, ["a"])


def check_last_segment_gives_new_positions(storage: Bench) -> None:
    """The segment opened last gives new positions, others only those that were released."""
    key = storage.running(10)
    storage.assign(key, ["a", "b"])
    (lease,) = storage.lease(key, 3)
    storage.open_segment(key, new_segment(4))
    assert numbers_of(storage.assign(key, ["c"])) == [number_of(1, 0)], "an older segment gave one"
    assert storage.release(key, [lease.id]) == 3
    given = numbers_given(storage.assign(key, ["d", "e", "f", "g"]))
    assert sorted(given) == [2, 3, 4, number_of(1, 1)], "released ones do not come first"
    last = numbers_of(storage.assign(key, ["h", "i", "j"]))
    assert last == [number_of(1, 2), number_of(1, 3), None], "an older segment gave new positions"
    assert storage.segments(key, [0])[0].handed == 5, "an older segment's counter moved"
    storage.accounted(key)


# Checks of leases: positions given ahead, used, released and taken back.


def check_leases_ahead(storage: Bench) -> None:
    """`ahead` leases what follows, and who holds it uses it first, in order."""
    key = storage.running(50)
    one = storage.assign(key, ["a", "b"], ahead=4, expires=NOW + 7)
    assert places_of(one.leases) == [2, 3, 4, 5], "`ahead` did not lease the next positions"
    assert all(lease.expires == NOW + 7 for lease in one.leases), "a lease expires at another time"
    assert storage.counter(key) == 6, "leased positions are not below the counter"
    assert places_of(storage.leases(key)) == [2, 3, 4, 5], "leases() does not list them"
    two = storage.assign(key, ["c"], ahead=2)
    assert [*numbers_of(two), *places_of(two.leases)] == [6, 7, 8], "leased to two callers"
    assert {x.id for x in one.leases}.isdisjoint(x.id for x in two.leases), "two leases, one id"
    old = storage.assign(key, ["a", "c"], one.leases, ahead=4)
    assert places_of(old.leases) == [2, 3, 4, 5], "leases changed where no new position was taken"
    more = storage.again().assign(key, ["d", "a", "e"], one.leases, ahead=4)
    assert numbers_of(more) == [2, 0, 3], "held leases are not used first"
    assert places_of(more.leases) == [4, 5], "a caller whose leases suffice was given other ones"
    assert places_of(storage.leases(key)) == [4, 5, 7, 8], "a used position is still leased"
    last = storage.assign(key, ["f", "g", "h", "i"], more.leases, ahead=3)
    assert numbers_of(last) == [4, 5, 9, 10], "after the held ones the counter does not follow"
    assert places_of(last.leases) == [11, 12, 13], "nothing was leased with the new positions"
    assert places_of(storage.leases(key)) == [7, 8, 11, 12, 13], "a used-up lease is still out"
    wide = storage.assign(key, ["y"], ahead=50)
    assert len(places_of(wide.leases)) == room_ahead(35), "more was leased than there is room for"
    left = 50 - storage.counter(key)
    last = storage.assign(key, [f"n{i}" for i in range(left - 7)], ahead=50)
    assert last.leases == (), "the last positions were leased ahead"
    assert numbers_of(storage.assign(key, ["z"])) == [43], "the last positions are not for anybody"
    storage.accounted(key)


def check_arms_of_leased_places(storage: Bench) -> None:
    """Arm and probability are those of the position, however it was assigned."""
    key = storage.new_experiment().key
    segment = new_segment(40, "blocks", 8)
    storage.open_segment(key, segment)
    handed = storage.assign(key, ["a"], ahead=10)
    given = every(storage.assign(key, ["b", "c"], handed.leases))
    leases = storage.lease(key, 20)
    used = [(p, f"l{p}", NOW + p) for p in places_of(leases)]
    reported = storage.report(key, leases[0].id, used, NOW + 99)
    assert None not in reported, "a report on a lease that is out was refused"
    given += those_given(reported)
    assert len(given) == 22
    has_arms_of(given, segment)


def check_held_is_what_the_caller_has_left(storage: Bench) -> None:
    """Of a lease only what the caller still holds is used: the rest may be in use, unreported."""
    key = storage.running(20)
    (lease,) = storage.lease(key, 6)
    handed = storage.assign(key, ["a"], [replace(lease, start=2)])
    assert numbers_of(handed) == [2], "a position that the caller no longer holds was used"
    assert places_of(handed.leases) == [3, 4, 5], "the caller is said to hold other positions"
    first = storage.report(key, lease.id, [(0, "x", NOW), (1, "y", NOW)], NOW)
    assert numbers_of(first) == [0, 1], "positions in local use were lost"
    stale = storage.assign(key, ["b"], [lease])
    assert numbers_of(stale) == [3], "used positions of a lease are not passed over"
    assert places_of(stale.leases) == [4, 5], "used positions are held again"
    beyond = storage.assign(key, ["c", "d", "e"], [replace(lease, stop=9)])
    assert sorted(numbers_given(beyond)) == [4, 5, 6], "positions beyond a lease were assigned"
    other = storage.running(20, name="other")
    foreign = storage.assign(other, ["a"], [replace(lease, start=2), replace(lease, id=10**9)])
    assert numbers_of(foreign) == [0], "a lease of another experiment was used"
    assert foreign.leases == (), "a lease of another experiment is held"
    (lease,) = storage.lease(other, 5)
    twice = storage.assign(other, ["b", "c"], [lease, lease])
    assert numbers_of(twice) == [1, 2], "a lease that is named twice is not used once"
    assert places_of(twice.leases) == [3, 4, 5], "a lease that is named twice is held twice"
    storage.accounted(key)
    storage.accounted(other)


def check_lease(storage: Bench) -> None:
    """`lease` gives released positions, then new ones, up to as many as wanted."""
    key = storage.running(10)
    one = storage.lease(key, 4, expires=NOW + 5)
    assert places_of(one) == [0, 1, 2, 3], "not the next positions"
    assert all((x.segment, x.expires) == (0, NOW + 5) for x in one)
    assert sum(len(x) for x in one) == 4
    two = storage.lease(key, 2)
    assert places_of(two) == [4, 5], "leased twice"
    assert storage.lease(key, 0) == (), "asked for none, got some"
    assert storage.release(key, [x.id for x in one]) == 4, "release does not say how many"
    assert places_of(storage.leases(key)) == [4, 5], "a released lease is still out"
    assert storage.counter(key) == 6, "the counter went back"
    three = storage.lease(key, 5)
    assert places_of(three) == [0, 1, 2, 3, 6], "released positions are not leased first"
    four = storage.lease(key, 50)
    assert places_of(four) == [7, 8, 9], "not up to what there is"
    ids = [x.id for x in (*one, *two, *three, *four)]
    assert len({x.id for x in one} & {x.id for x in three}) == 0, "the id of a lease came again"
    assert places_of(storage.again().leases(key)) == [*range(10)]
    assert storage.release(key, ids) == 10, "some were not released"
    assert storage.release(key, [*ids, 10**9]) == 0, "released twice"
    assert sorted(numbers_given(storage.assign(key, [f"u{i}" for i in range(12)]))) == [*range(10)]
    storage.accounted(key)


def check_release_gives_what_is_left(storage: Bench) -> None:
    """Used positions of a released lease stay used; it works in any state."""
    key = storage.running(60)
    handed = storage.assign(key, ["a"], ahead=6)
    storage.assign(key, ["b", "c"], handed.leases)
    (lease,) = handed.leases
    storage.report(key, lease.id, [(5, "d", NOW)], NOW)
    storage.move(key, "paused")
    assert storage.release(key, [lease.id, lease.id]) == 3, "not what is left of a lease"
    assert storage.leases(key) == (), "a released lease is still out"
    storage.move(key, "running")
    stale = storage.assign(key, ["e"], handed.leases)
    assert lease.id not in {x.id for x in stale.leases}, "a released lease was used"
    given = numbers_given(stale) + numbers_given(storage.assign(key, ["f", "g", "h"]))
    assert sorted(given) == [3, 4, 6, 7], "released positions do not come before new ones"
    storage.accounted(key)


def check_expired_leases(storage: Bench) -> None:
    """Expired leases are released by who needs positions next, less what was used of them."""
    key = storage.running(8)
    storage.assign(key, ["a"])
    (lease,) = storage.lease(key, 5, expires=NOW + 100)
    storage.assign(key, ["b"], [lease])
    storage.report(key, lease.id, [(3, "c", NOW)], NOW)
    others = storage.lease(key, 2, now=NOW + 50)
    assert places_of(others) == [6, 7], "a lease was taken before it expired"
    assert numbers_of(storage.assign(key, ["x"], now=NOW + 50)) == [None], "taken before its time"
    assert places_of(storage.leases(key)) == [2, 4, 5, 6, 7], "leases() is not what is left"
    got = storage.assign(key, ["d"], now=NOW + 200)
    assert numbers_given(got)[0] in (2, 4, 5), "an expired lease's position was not assigned"
    assert places_of(storage.leases(key)) == [6, 7], "an expired lease is still out, or another not"
    stale = storage.assign(key, ["e"], [replace(lease, start=2)], now=NOW + 201)
    assert lease.id not in {x.id for x in stale.leases}, "the old holder still holds its lease"
    left = ({2, 4, 5} - {*numbers_given(got), *numbers_given(stale)}).pop()
    late = storage.report(key, lease.id, [(left, "f", NOW), (3, "c", NOW)], NOW + 202)
    assert late[0] is None, "a report on a position that was released is not refused"
    assert numbers_of(late) == [None, 3], "an earlier report was forgotten"
    (again,) = storage.lease(key, 5, now=NOW + 203)
    assert places_of([again]) == [left], "what is left of an expired lease was lost"
    assert again.id != lease.id, "the id of a lease came again"
    assert storage.report(key, lease.id, [(left, "f", NOW)], NOW) == (None,), "leased to another"
    storage.accounted(key)


def check_expired_leases_are_leased_again(storage: Bench) -> None:
    """`lease` releases expired leases as `assign` does."""
    key = storage.running(4)
    old = storage.lease(key, 4, expires=NOW + 100)
    assert storage.lease(key, 1, now=NOW + 50) == (), "taken before its time"
    new = storage.lease(key, 3, now=NOW + 200)
    assert len(places_of(new)) == 3, "an expired lease was not leased again"
    assert old[0].id not in {x.id for x in storage.leases(key)}, "an expired lease is still out"
    storage.accounted(key)


def check_holder_may_go_on(storage: Bench) -> None:
    """An expired lease that nobody took is still its holder's."""
    key = storage.running(20)
    handed = storage.assign(key, ["a"], ahead=4, expires=NOW + 100)
    (lease,) = handed.leases
    later = storage.assign(key, ["b"], handed.leases, now=NOW + 200)
    assert numbers_of(later) == [1], "an expired lease that nobody took was not used"
    outcomes = storage.report(key, lease.id, [(2, "c", NOW + 250)], NOW + 250)
    assert numbers_of(outcomes) == [2], "it could not be reported on"
    more = storage.assign(key, list("defgh"), [replace(lease, start=3)], now=NOW + 300)
    assert sorted(numbers_given(more)) == [3, 4, 5, 6, 7], "positions were lost or given twice"
    storage.accounted(key)


# Checks of reports: what was assigned from a lease, reported afterwards.


def check_report(storage: Bench) -> None:
    """A report stores each use at its own time; the same again changes nothing."""
    for sticky in (True, False):
        key = storage.running(20, sticky=sticky, name=f"sticky {sticky}")
        (lease,) = storage.lease(key, 5)
        used = [(1, "b", NOW + 2), (0, "a", NOW + 1)]
        first = storage.report(key, lease.id, used, NOW + 10)
        found = [(a.number, a.unit, a.created, a.new) for a in those_given(first)]
        assert found == [(1, "b", NOW + 2, True), (0, "a", NOW + 1, True)], "not what was reported"
        assert places_of(storage.leases(key)) == [2, 3, 4], "a reported position is still leased"
        before = storage.everything(key)
        again = storage.report(key, lease.id, [(0, "a", NOW + 5), (1, "b", NOW + 2)], NOW + 20)
        for a, b in zip(again, reversed(first), strict=True):
            assert a is not None, "a repeated report was refused"
            assert replace(a, new=True) == b, "a repeated report gives another assignment"
        assert storage.report(key, lease.id, [], NOW) == ()
        assert storage.everything(key) == before, "a repeated report changed something"
        rest = [(2, "c", NOW), (3, "d", NOW), (4, "e", NOW)]
        storage.move(key, "stopped")
        full = storage.report(key, lease.id, rest, NOW)
        assert None not in full, "what was assigned before the stop cannot be reported"
        assert storage.leases(key) == (), "a used-up lease is still out"
        once_more = storage.again().report(key, lease.id, rest, NOW)
        assert numbers_of(once_more) == [2, 3, 4], "a used-up lease is forgotten"
        storage.accounted(key)


def check_report_of_strange_positions(storage: Bench) -> None:
    """What is not the lease's (any more) is answered by None and not stored."""
    for sticky in (True, False):
        key = storage.running(20, sticky=sticky, name=f"sticky {sticky}")
        storage.assign(key, ["first"])
        (lease,) = storage.lease(key, 4)
        (other,) = storage.lease(key, 2)
        storage.report(key, lease.id, [(2, "a", NOW)], NOW)
        before = storage.everything(key)
        for position in (0, 2, 5, 6, 7, 19, 20, -1):
            said = storage.report(key, lease.id, [(position, "x", NOW)], NOW)
            assert said == (None,), f"position {position} is not the lease's but was accepted"
        assert storage.report(key, 10**9, [(1, "x", NOW)], NOW) == (None,), "an unknown lease"
        assert storage.everything(key) == before, "a refused report changed something"
        twice = storage.report(key, lease.id, [(1, "x", NOW), (1, "y", NOW)], NOW)
        assert numbers_of(twice) == [1, None], "one position, two units"
        assert storage.release(key, [lease.id]) == 2
        said = storage.report(key, lease.id, [(3, "z", NOW), (1, "x", NOW)], NOW)
        assert numbers_of(said) == [None, 1], "a released lease was reported on"
        assert places_of(storage.leases(key)) == [other.start, other.start + 1]
        storage.accounted(key)


def check_report_of_known_units(storage: Bench) -> None:
    """A unit that has another assignment keeps it, and the position stays with the lease."""
    key = storage.running(9)
    (old,) = every(storage.assign(key, ["a"]))
    (lease,) = storage.lease(key, 5)
    used = [(1, "a", NOW + 1), (2, "b", NOW + 1), (3, "b", NOW + 2), (4, "c", NOW + 3)]
    said = storage.report(key, lease.id, used, NOW + 5)
    assert said[0] == replace(old, new=False), "a unit did not keep its assignment"
    assert numbers_of(said) == [0, 2, 2, 4], "not one assignment for each unit"
    assert said[2] == replace(said[2] or old, new=False), "an assignment is new twice"
    assert places_of(storage.leases(key)) == [1, 3, 5], "positions did not stay with the lease"
    handed = storage.assign(key, ["d"], [lease])
    assert numbers_given(handed)[0] in (1, 3, 5), "a position that stayed is not used"
    held = places_of(handed.leases)
    assert sorted([*held, *numbers_given(handed)]) == [1, 3, 5], "used positions are held again"
    assert storage.release(key, [lease.id]) == 2, "not what is left of a lease with gaps"
    said = storage.report(key, lease.id, [(held[0], "a", NOW)], NOW)
    assert said == (replace(old, new=False),), "the assignment that counts was not given"
    given = numbers_given(storage.assign(key, ["e", "f", "g"]))
    assert sorted(given) == sorted([*held, 6]), "gaps of a released lease are not assigned"
    storage.accounted(key)


def check_reports_without_stickiness(storage: Bench) -> None:
    """Where units do not stick, every reported use is an assignment."""
    key = storage.running(9, sticky=False)
    storage.assign(key, ["a"])
    (lease,) = storage.lease(key, 3)
    said = storage.report(key, lease.id, [(p, "a", NOW) for p in (1, 2, 3)], NOW)
    assert numbers_of(said) == [1, 2, 3], "a use was taken for another"
    storage.accounted(key)
