"""Checks of reports: what was handed out from a lease, told afterwards."""

from __future__ import annotations

from dataclasses import replace

from steadyarm.storages.checks.bench import NOW, Check, Open, assign, leased, running
from steadyarm.storages.checks.looking import (
    accounted,
    every,
    everything,
    numbers_given,
    numbers_of,
    places_of,
    those_given,
)

__all__ = ["CHECKS"]


def check_report(open_storage: Open) -> None:
    """A report stores each use at its own time; the same again changes nothing."""
    storage = open_storage()
    for sticky in (True, False):
        key = running(storage, 20, sticky=sticky, name=f"sticky {sticky}")
        (lease,) = leased(storage, key, 5)
        used = [(1, "b", NOW + 2), (0, "a", NOW + 1)]
        first = storage.report(key, lease.id, used, NOW + 10)
        found = [(a.number, a.unit, a.created, a.new) for a in those_given(first)]
        assert found == [(1, "b", NOW + 2, True), (0, "a", NOW + 1, True)], "not what was reported"
        assert places_of(storage.leases(key)) == [2, 3, 4], "a reported position is still leased"
        before = everything(storage, key)
        again = storage.report(key, lease.id, [(0, "a", NOW + 5), (1, "b", NOW + 2)], NOW + 20)
        for a, b in zip(again, reversed(first), strict=True):
            assert a is not None, "a repeated report was refused"
            assert replace(a, new=True) == b, "a repeated report gives another assignment"
        assert storage.report(key, lease.id, [], NOW) == ()
        assert everything(storage, key) == before, "a repeated report changed something"
        rest = [(2, "c", NOW), (3, "d", NOW), (4, "e", NOW)]
        storage.move(key, "stopped")
        full = storage.report(key, lease.id, rest, NOW)
        assert None not in full, "what was handed out before the stop cannot be reported"
        assert storage.leases(key) == (), "a used-up lease is still out"
        once_more = open_storage().report(key, lease.id, rest, NOW)
        assert numbers_of(once_more) == [2, 3, 4], "a used-up lease is forgotten"
        accounted(storage, key)


def check_report_of_strange_positions(open_storage: Open) -> None:
    """What is not the lease's (any more) is answered by None and not stored."""
    storage = open_storage()
    for sticky in (True, False):
        key = running(storage, 20, sticky=sticky, name=f"sticky {sticky}")
        assign(storage, key, ["first"])
        (lease,) = leased(storage, key, 4)
        (other,) = leased(storage, key, 2)
        storage.report(key, lease.id, [(2, "a", NOW)], NOW)
        before = everything(storage, key)
        for position in (0, 2, 5, 6, 7, 19, 20, -1):
            said = storage.report(key, lease.id, [(position, "x", NOW)], NOW)
            assert said == (None,), f"position {position} is not the lease's but was accepted"
        assert storage.report(key, 10**9, [(1, "x", NOW)], NOW) == (None,), "an unknown lease"
        assert everything(storage, key) == before, "a refused report changed something"
        twice = storage.report(key, lease.id, [(1, "x", NOW), (1, "y", NOW)], NOW)
        assert numbers_of(twice) == [1, None], "one position, two units"
        assert storage.release(key, [lease.id]) == 2
        said = storage.report(key, lease.id, [(3, "z", NOW), (1, "x", NOW)], NOW)
        assert numbers_of(said) == [None, 1], "a released lease was reported on"
        assert places_of(storage.leases(key)) == [other.start, other.start + 1]
        accounted(storage, key)


def check_report_of_known_units(open_storage: Open) -> None:
    """A unit that has another assignment keeps it, and the position stays with the lease."""
    storage = open_storage()
    key = running(storage, 9)
    (old,) = every(assign(storage, key, ["a"]))
    (lease,) = leased(storage, key, 5)
    used = [(1, "a", NOW + 1), (2, "b", NOW + 1), (3, "b", NOW + 2), (4, "c", NOW + 3)]
    said = storage.report(key, lease.id, used, NOW + 5)
    assert said[0] == replace(old, new=False), "a unit did not keep its assignment"
    assert numbers_of(said) == [0, 2, 2, 4], "not one assignment for each unit"
    assert said[2] == replace(said[2] or old, new=False), "an assignment is new twice"
    assert places_of(storage.leases(key)) == [1, 3, 5], "positions did not stay with the lease"
    handed = assign(storage, key, ["d"], [lease])
    assert numbers_given(handed)[0] in (1, 3, 5), "a position that stayed is not used"
    held = places_of(handed.leases)
    assert sorted([*held, *numbers_given(handed)]) == [1, 3, 5], "used positions are held again"
    assert storage.release(key, [lease.id]) == 2, "not what is left of a lease with gaps"
    said = storage.report(key, lease.id, [(held[0], "a", NOW)], NOW)
    assert said == (replace(old, new=False),), "the assignment that counts was not given"
    given = numbers_given(assign(storage, key, ["e", "f", "g"]))
    assert sorted(given) == sorted([*held, 6]), "gaps of a released lease are not handed out"
    accounted(storage, key)


def check_reports_without_stickiness(open_storage: Open) -> None:
    """Where units do not stick, every reported use is an assignment."""
    storage = open_storage()
    key = running(storage, 9, sticky=False)
    assign(storage, key, ["a"])
    (lease,) = leased(storage, key, 3)
    said = storage.report(key, lease.id, [(p, "a", NOW) for p in (1, 2, 3)], NOW)
    assert numbers_of(said) == [1, 2, 3], "a use was taken for another"
    accounted(storage, key)


CHECKS: tuple[Check, ...] = (
    check_report,
    check_report_of_strange_positions,
    check_report_of_known_units,
    check_reports_without_stickiness,
)
