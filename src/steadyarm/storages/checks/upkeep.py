"""Checks of the storage as a whole: large requests, several views of it."""

from __future__ import annotations

from steadyarm.errors import UnknownExperimentError
from steadyarm.storages.checks.bench import (
    HOUR,
    NOW,
    Check,
    Open,
    assign,
    busy,
    decided,
    leased,
    refused,
    running,
)
from steadyarm.storages.checks.looking import every, everything, numbers_of, tallied
from steadyarm.storages.records import Decision, Target

__all__ = ["CHECKS"]


def check_many_at_once(open_storage: Open) -> None:
    """Large requests are answered like small ones."""
    storage = open_storage()
    key = running(storage, 5000)
    units = [f"unit {i}" for i in range(3000)]
    given = every(assign(storage, key, units))
    assert [a.number for a in given] == [*range(3000)], "not one place each, in order"
    again = every(assign(storage, key, units[::-1]))
    assert [a.number for a in again] == [*range(2999, -1, -1)], "units were not recognised"
    assert not any(a.new for a in again)
    told: list[tuple[Target, float]] = [(i if i % 2 else units[i], float(i)) for i in range(3000)]
    assert {o.status for o in storage.reward(key, told, None, NOW)} == {"stored"}
    assert numbers_of(storage.find_assignments(key, units)) == [*range(3000)]
    (lease,) = leased(storage, key, 1500)
    said = storage.report(key, lease.id, [(3000 + i, f"l{i}", NOW) for i in range(1500)], NOW)
    assert numbers_of(said) == [*range(3000, 4500)], "not what was reported"
    tallied(storage, key)


def check_reopened(open_storage: Open) -> None:
    """Whoever opens the storage sees the same, at once."""
    storage = open_storage()
    key = busy(storage, "e")
    other = open_storage()
    assert everything(other, key) == everything(storage, key), "opened again, it is different"
    handed = assign(other, key, ["new"], ahead=2)
    assert storage.find_assignments(key, ["new"])[0] is not None, "the other's work is not seen"
    assert {x.id for x in handed.leases} <= {x.id for x in storage.leases(key)}
    assert everything(other, key) == everything(storage, key), "two views of one storage differ"


def check_experiments_apart(open_storage: Open) -> None:
    """Experiments do not touch each other."""
    storage = open_storage()
    one, two = busy(storage, "one"), busy(storage, "two")
    before = everything(storage, one)
    assert before[1:] == everything(storage, two)[1:], "the same steps gave another experiment"
    assign(storage, two, ["x"], ahead=3)
    storage.reward(two, [("x", 3.0)], None, NOW)
    storage.release(two, [lease.id for lease in storage.leases(two)])
    assert decided(storage, two, Decision({"other": 1})), "decide refused"
    storage.move(two, "stopped")
    assert everything(storage, one) == before, "work on one experiment changed another"


def check_pruned(open_storage: Open) -> None:
    """`prune` gives expired leases back and deletes archived experiments; others stay."""
    storage = open_storage()
    one, two, three = busy(storage, "one"), busy(storage, "two"), busy(storage, "three")
    before = everything(storage, one)[:4]
    for key in (two, three):
        storage.move(key, "stopped", now=NOW)
        storage.move(key, "archived", now=NOW)
    later, ended = NOW + HOUR, NOW + 2 * HOUR
    assert storage.prune(NOW, later, dry=True).experiments == ("two", "three"), "not both"
    assert storage.prune(NOW, NOW).experiments == (), "deleted what was in use after that time"
    assert len(storage.experiments()) == 3, "a dry run deletes"
    out = sum(map(len, storage.leases(one)))
    assert 0 < storage.prune(ended - 1).positions < out, "not only the expired went back"
    pruned = storage.prune(ended, later)
    assert pruned.experiments == ("two", "three"), "not what the dry run said"
    assert pruned.positions > 0, "an expired lease did not go back"
    assert storage.leases(one) == (), "expired leases are still out"
    assert everything(storage, one)[:4] == before, "pruning changed more than leases"
    assert [e.name for e in storage.experiments()] == ["one"], "not those were deleted"
    for key in (two, three):
        refused(UnknownExperimentError, "reading what was deleted", storage.log, key)
    assert busy(storage, "two") not in (one, two, three), "a key is used again"
    again = storage.prune(NOW, later)
    assert (again.positions, again.leases, again.experiments) == (0, 0, ()), "pruned twice"


def check_answers(open_storage: Open) -> None:
    """`check` returns on a storage that works, as often as it is asked."""
    storage = open_storage()
    for _ in range(3):
        storage.check()
    open_storage().check()


CHECKS: tuple[Check, ...] = (
    check_many_at_once,
    check_reopened,
    check_experiments_apart,
    check_pruned,
    check_answers,
)
