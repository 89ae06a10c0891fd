"""Checks of leases: positions given ahead, used, released and taken back."""

from __future__ import annotations

from dataclasses import replace

from steadyarm.storages.checks.bench import (
    NOW,
    Check,
    Open,
    assign,
    leased,
    new_experiment,
    new_segment,
    open_segment,
    running,
)
from steadyarm.storages.checks.looking import (
    accounted,
    counter_of,
    every,
    has_arms_of,
    numbers_given,
    numbers_of,
    places_of,
    those_given,
)
from steadyarm.storages.records import room_ahead

__all__ = ["CHECKS"]


def check_leases_ahead(open_storage: Open) -> None:
    """`ahead` leases what follows, and who holds it uses it first, in order."""
    storage = open_storage()
    key = running(storage, 50)
    one = assign(storage, key, ["a", "b"], ahead=4, expires=NOW + 7)
    assert places_of(one.leases) == [2, 3, 4, 5], "`ahead` did not lease the next positions"
    assert all(lease.expires == NOW + 7 for lease in one.leases), "a lease expires at another time"
    assert counter_of(storage, key) == 6, "leased positions are not below the counter"
    assert places_of(storage.leases(key)) == [2, 3, 4, 5], "leases() does not list them"
    two = assign(storage, key, ["c"], ahead=2)
    assert [*numbers_of(two), *places_of(two.leases)] == [6, 7, 8], "leased to two callers"
    assert {x.id for x in one.leases}.isdisjoint(x.id for x in two.leases), "two leases, one id"
    old = assign(storage, key, ["a", "c"], one.leases, ahead=4)
    assert places_of(old.leases) == [2, 3, 4, 5], "leases changed where no new place was taken"
    more = assign(open_storage(), key, ["d", "a", "e"], one.leases, ahead=4)
    assert numbers_of(more) == [2, 0, 3], "held leases are not used first"
    assert places_of(more.leases) == [4, 5], "a caller whose leases suffice was given other ones"
    assert places_of(storage.leases(key)) == [4, 5, 7, 8], "a used position is still leased"
    last = assign(storage, key, ["f", "g", "h", "i"], more.leases, ahead=3)
    assert numbers_of(last) == [4, 5, 9, 10], "after the held ones the counter does not follow"
    assert places_of(last.leases) == [11, 12, 13], "nothing was leased with the new positions"
    assert places_of(storage.leases(key)) == [7, 8, 11, 12, 13], "a used-up lease is still out"
    wide = assign(storage, key, ["y"], ahead=50)
    assert len(places_of(wide.leases)) == room_ahead(35), "more was leased than there is room for"
    left = 50 - counter_of(storage, key)
    last = assign(storage, key, [f"n{i}" for i in range(left - 7)], ahead=50)
    assert last.leases == (), "the last positions were leased ahead"
    assert numbers_of(assign(storage, key, ["z"])) == [43], "the last positions are not for anybody"
    accounted(storage, key)


def check_arms_of_leased_places(open_storage: Open) -> None:
    """Arm and probability are those of the place, whichever way it was handed out."""
    storage = open_storage()
    key = new_experiment(storage).key
    segment = new_segment(40, "blocks", 8)
    open_segment(storage, key, segment)
    handed = assign(storage, key, ["a"], ahead=10)
    given = every(assign(storage, key, ["b", "c"], handed.leases))
    leases = leased(storage, key, 20)
    used = [(p, f"l{p}", NOW + p) for p in places_of(leases)]
    reported = storage.report(key, leases[0].id, used, NOW + 99)
    assert None not in reported, "a report on a lease that is out was refused"
    given += those_given(reported)
    assert len(given) == 22
    has_arms_of(given, segment)


def check_held_is_what_the_caller_has_left(open_storage: Open) -> None:
    """Of a lease only what the caller still holds is used: the rest may be in use, unreported."""
    storage = open_storage()
    key = running(storage, 20)
    (lease,) = leased(storage, key, 6)
    handed = assign(storage, key, ["a"], [replace(lease, start=2)])
    assert numbers_of(handed) == [2], "a position that the caller no longer holds was used"
    assert places_of(handed.leases) == [3, 4, 5], "the caller is told to hold other positions"
    first = storage.report(key, lease.id, [(0, "x", NOW), (1, "y", NOW)], NOW)
    assert numbers_of(first) == [0, 1], "positions in local use were lost"
    stale = assign(storage, key, ["b"], [lease])
    assert numbers_of(stale) == [3], "used positions of a lease are not passed over"
    assert places_of(stale.leases) == [4, 5], "used positions are held again"
    beyond = assign(storage, key, ["c", "d", "e"], [replace(lease, stop=9)])
    assert sorted(numbers_given(beyond)) == [4, 5, 6], "positions beyond a lease were handed out"
    other = running(storage, 20, name="other")
    foreign = assign(storage, other, ["a"], [replace(lease, start=2), replace(lease, id=10**9)])
    assert numbers_of(foreign) == [0], "a lease of another experiment was used"
    assert foreign.leases == (), "a lease of another experiment is held"
    (lease,) = leased(storage, other, 5)
    twice = assign(storage, other, ["b", "c"], [lease, lease])
    assert numbers_of(twice) == [1, 2], "a lease that is named twice is not used once"
    assert places_of(twice.leases) == [3, 4, 5], "a lease that is named twice is held twice"
    accounted(storage, key)
    accounted(storage, other)


def check_lease(open_storage: Open) -> None:
    """`lease` gives released positions, then new ones, up to as many as wanted."""
    storage = open_storage()
    key = running(storage, 10)
    one = leased(storage, key, 4, expires=NOW + 5)
    assert places_of(one) == [0, 1, 2, 3], "not the next positions"
    assert all((x.segment, x.expires) == (0, NOW + 5) for x in one)
    assert sum(len(x) for x in one) == 4
    two = leased(storage, key, 2)
    assert places_of(two) == [4, 5], "leased twice"
    assert leased(storage, key, 0) == (), "asked for none, got some"
    assert storage.release(key, [x.id for x in one]) == 4, "release does not say how many"
    assert places_of(storage.leases(key)) == [4, 5], "a released lease is still out"
    assert counter_of(storage, key) == 6, "the counter went back"
    three = leased(storage, key, 5)
    assert places_of(three) == [0, 1, 2, 3, 6], "released positions are not leased first"
    four = leased(storage, key, 50)
    assert places_of(four) == [7, 8, 9], "not up to what there is"
    ids = [x.id for x in (*one, *two, *three, *four)]
    assert len({x.id for x in one} & {x.id for x in three}) == 0, "the id of a lease came again"
    assert places_of(open_storage().leases(key)) == [*range(10)]
    assert storage.release(key, ids) == 10, "some were not released"
    assert storage.release(key, [*ids, 10**9]) == 0, "released twice"
    assert sorted(numbers_given(assign(storage, key, [f"u{i}" for i in range(12)]))) == [*range(10)]
    accounted(storage, key)


def check_release_gives_what_is_left(open_storage: Open) -> None:
    """Used positions of a released lease stay used; it works in any state."""
    storage = open_storage()
    key = running(storage, 60)
    handed = assign(storage, key, ["a"], ahead=6)
    assign(storage, key, ["b", "c"], handed.leases)
    (lease,) = handed.leases
    storage.report(key, lease.id, [(5, "d", NOW)], NOW)
    storage.move(key, "paused")
    assert storage.release(key, [lease.id, lease.id]) == 3, "not what is left of a lease"
    assert storage.leases(key) == (), "a released lease is still out"
    storage.move(key, "running")
    stale = assign(storage, key, ["e"], handed.leases)
    assert lease.id not in {x.id for x in stale.leases}, "a released lease was used"
    given = numbers_given(stale) + numbers_given(assign(storage, key, ["f", "g", "h"]))
    assert sorted(given) == [3, 4, 6, 7], "released positions do not come before new ones"
    accounted(storage, key)


def check_expired_leases(open_storage: Open) -> None:
    """Expired leases are released by who needs positions next, less what was used of them."""
    storage = open_storage()
    key = running(storage, 8)
    assign(storage, key, ["a"])
    (lease,) = leased(storage, key, 5, expires=NOW + 100)
    assign(storage, key, ["b"], [lease])
    storage.report(key, lease.id, [(3, "c", NOW)], NOW)
    others = leased(storage, key, 2, now=NOW + 50)
    assert places_of(others) == [6, 7], "a lease was taken before it expired"
    assert numbers_of(assign(storage, key, ["x"], now=NOW + 50)) == [None], "taken before its time"
    assert places_of(storage.leases(key)) == [2, 4, 5, 6, 7], "leases() is not what is left"
    got = assign(storage, key, ["d"], now=NOW + 200)
    assert numbers_given(got)[0] in (2, 4, 5), "an expired lease's position was not handed out"
    assert places_of(storage.leases(key)) == [6, 7], "an expired lease is still out, or another not"
    stale = assign(storage, key, ["e"], [replace(lease, start=2)], now=NOW + 201)
    assert lease.id not in {x.id for x in stale.leases}, "the old holder still holds its lease"
    left = ({2, 4, 5} - {*numbers_given(got), *numbers_given(stale)}).pop()
    late = storage.report(key, lease.id, [(left, "f", NOW), (3, "c", NOW)], NOW + 202)
    assert late[0] is None, "a report on a position that was released is not refused"
    assert numbers_of(late) == [None, 3], "an earlier report was forgotten"
    (again,) = leased(storage, key, 5, now=NOW + 203)
    assert places_of([again]) == [left], "what is left of an expired lease was lost"
    assert again.id != lease.id, "the id of a lease came again"
    assert storage.report(key, lease.id, [(left, "f", NOW)], NOW) == (None,), "leased to another"
    accounted(storage, key)


def check_expired_leases_are_leased_again(open_storage: Open) -> None:
    """`lease` releases expired leases as `assign` does."""
    storage = open_storage()
    key = running(storage, 4)
    old = leased(storage, key, 4, expires=NOW + 100)
    assert leased(storage, key, 1, now=NOW + 50) == (), "taken before its time"
    new = leased(storage, key, 3, now=NOW + 200)
    assert len(places_of(new)) == 3, "an expired lease was not leased again"
    assert old[0].id not in {x.id for x in storage.leases(key)}, "an expired lease is still out"
    accounted(storage, key)


def check_holder_may_go_on(open_storage: Open) -> None:
    """An expired lease that nobody took is still its holder's."""
    storage = open_storage()
    key = running(storage, 20)
    handed = assign(storage, key, ["a"], ahead=4, expires=NOW + 100)
    (lease,) = handed.leases
    later = assign(storage, key, ["b"], handed.leases, now=NOW + 200)
    assert numbers_of(later) == [1], "an expired lease that nobody took was not used"
    told = storage.report(key, lease.id, [(2, "c", NOW + 250)], NOW + 250)
    assert numbers_of(told) == [2], "it could not be reported on"
    more = assign(storage, key, list("defgh"), [replace(lease, start=3)], now=NOW + 300)
    assert sorted(numbers_given(more)) == [3, 4, 5, 6, 7], "positions were lost or given twice"
    accounted(storage, key)


CHECKS: tuple[Check, ...] = (
    check_leases_ahead,
    check_arms_of_leased_places,
    check_held_is_what_the_caller_has_left,
    check_lease,
    check_release_gives_what_is_left,
    check_expired_leases,
    check_expired_leases_are_leased_again,
    check_holder_may_go_on,
)
