"""Checks of what experiments show outside of their tests."""

from __future__ import annotations

from typing import Any

from steadyarm.errors import UnknownExperimentError
from steadyarm.storages.records import AssignmentResult
from steadyarm.testing.storages.bench import NOW, Bench, refused, those_given

DEFAULT = {"default": "a", "why": "ü", "list": [1, None, 0.1]}
ACTION = "experiment.default"


def check_outside_is_set_once_seen(storage: Bench) -> None:
    """What is shown outside of the test is set by those who saw what it was before."""
    key, detail = storage.running(8), {"variant": "a"}
    assert storage.find("e").outside is None, "a new one shows something outside of its test"
    wrong = storage.show_outside(key, DEFAULT, {}, ACTION, NOW)
    assert not wrong, "it was set although the caller had seen something else"
    assert storage.find("e").outside is None, "a refused call changed something"
    assert storage.show_outside(key, None, DEFAULT, ACTION, NOW + 5, by="me", detail=detail)
    assert not storage.show_outside(key, None, {}, ACTION, NOW), "a second caller won, too"
    for found in (storage.find("e"), storage.again().find("e"), storage.snapshot(key).experiment):
        assert found.outside == DEFAULT, f"it is {found.outside!r}"
    (summary,) = storage.summaries()
    assert summary.outside == DEFAULT, "lists do not have it"
    after = dict(DEFAULT, default="b")
    assert storage.again().show_outside(key, DEFAULT, after, ACTION, NOW + 6)
    assert storage.find("e").outside == after, "it was not changed"
    entries = [entry for entry in storage.history("e") if entry.action == ACTION]
    said = [(entry.author, entry.created, entry.detail) for entry in entries]
    assert said == [("me", NOW + 5, detail), ("", NOW + 6, {})], f"the audit log has {said}"
    given: tuple[Any, ...] = 99, None, {}, ACTION, NOW
    refused(UnknownExperimentError, "an unknown experiment", storage.show_outside, *given)


def check_nothing_is_assigned_after_it(storage: Bench) -> None:
    """Once something is shown outside of the test, units keep what they have and get no more."""
    for state in ("running", "stopped"):
        key = storage.running(80, name=state)
        mine = storage.assign(key, ["u1", "u2"])
        assert mine.outside is None, "something is shown outside of the test already"
        if state == "stopped":
            storage.move(key, "stopped", NOW)
        assert storage.show_outside(key, None, DEFAULT, ACTION, NOW)
        again = storage.assign(key, ["u2", "u1"])
        before = {one.unit: one.number for one in those_given(mine)}
        assert [one.number for one in those_given(again)] == [before["u2"], before["u1"]]
        assert again.outside == DEFAULT, "assign does not say what is shown"
        new = storage.assign(key, ["u1", "u9"])
        assert new.assigned[1] is None, f"a new unit of a {state} test that is over was assigned"


def check_known(storage: Bench) -> None:
    """What units have is read with the state and with what is shown outside of the test."""
    key = storage.running(8)
    (given,) = those_given(storage.assign(key, ["u1"]))
    assert storage.known(key, []) == AssignmentResult((), "running", None)
    found = storage.again().known(key, ["u9", "u1"])
    assert found.assigned[0] is None, "an unknown unit has an assignment"
    assert found.assigned[1] is not None, "a known unit has none"
    assert (found.assigned[1].number, found.assigned[1].new) == (given.number, False)
    storage.show_outside(key, None, DEFAULT, ACTION, NOW)
    storage.move(key, "stopped", NOW)
    found = storage.known(key, ["u1"])
    assert (found.state, found.outside) == ("stopped", DEFAULT), f"it says {found}"
    loose = storage.running(8, name="loose", sticky=False)
    storage.assign(loose, ["u1"])
    assert storage.known(loose, ["u1"]).assigned == (None,), "units that are not sticky"
    refused(UnknownExperimentError, "known of no experiment", storage.known, 99, ["u1"])


def check_experiments_of_units(storage: Bench) -> None:
    """In which experiments units have assignments is read for all of them at once."""
    first, second = (storage.running(8, name=name) for name in ("first", "second"))
    loose = storage.running(8, name="loose", sticky=False)
    storage.assign(first, ["u1", "u2", "it's"])
    storage.assign(second, ["u1"])
    storage.assign(loose, ["u1"])
    keys, units = [second, first, loose, 99], ["u9", "u1", "u2", "u1", "it's"]
    found = storage.again().experiments_of(units, keys)
    both, one = frozenset([first, second]), frozenset([first])
    assert found == (frozenset(), both, one, both, one), f"it says {found}"
    assert storage.experiments_of(["u1"], [second]) == (frozenset([second]),), "others are named"
    assert storage.experiments_of(["u1"], []) == (frozenset(),)
    assert storage.experiments_of([], keys) == ()


def check_restored_experiments_show_the_same(storage: Bench) -> None:
    """What is shown outside of the test comes along when an experiment is restored."""
    key = storage.busy("e")
    storage.show_outside(key, None, DEFAULT, ACTION, NOW)
    storage.restored(key)
    assert storage.find("copy").outside == DEFAULT, "a restored experiment shows another"
