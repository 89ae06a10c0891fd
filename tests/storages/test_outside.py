"""Checks of what experiments show outside of their tests."""

from __future__ import annotations

from typing import Any

from steadyarm.errors import UnknownExperimentError
from tests.storages.bench import NOW, Bench, refused

DEFAULT = {"default": "a", "why": "ü", "list": [1, None, 0.1]}
ACTION = "experiment.default"


def test_outside_is_set_once_seen(bench: Bench) -> None:
    """What is shown outside of the test is set by those who saw what it was before."""
    key, detail = bench.running(8), {"variant": "a"}
    assert bench.find("e").outside is None
    wrong = bench.show_outside(key, DEFAULT, {}, ACTION, NOW)
    assert not wrong
    assert bench.find("e").outside is None
    assert bench.show_outside(key, None, DEFAULT, ACTION, NOW + 5, by="me", detail=detail)
    assert not bench.show_outside(key, None, {}, ACTION, NOW)
    for found in (bench.find("e"), bench.again().find("e"), bench.snapshot(key).experiment):
        assert found.outside == DEFAULT
    (summary,) = bench.summaries()
    assert summary.outside == DEFAULT
    after = dict(DEFAULT, default="b")
    assert bench.again().show_outside(key, DEFAULT, after, ACTION, NOW + 6)
    assert bench.find("e").outside == after
    entries = [entry for entry in bench.history("e") if entry.action == ACTION]
    said = [(entry.author, entry.created, entry.detail) for entry in entries]
    assert said == [("me", NOW + 5, detail), ("", NOW + 6, {})]
    given: tuple[Any, ...] = 99, None, {}, ACTION, NOW
    refused(UnknownExperimentError, bench.show_outside, *given)


def test_experiments_of_units(bench: Bench) -> None:
    """In which experiments units have assignments is read for all of them at once."""
    first, second = (bench.running(8, name=name) for name in ("first", "second"))
    loose = bench.running(8, name="loose", sticky=False)
    bench.assign(first, ["u1", "u2", "it's"])
    bench.assign(second, ["u1"])
    bench.assign(loose, ["u1"])
    keys, units = [second, first, loose, 99], ["u9", "u1", "u2", "u1", "it's"]
    found = bench.again().experiments_of(units, keys)
    both, one = frozenset([first, second]), frozenset([first])
    assert found == (frozenset(), both, one, both, one)
    assert bench.experiments_of(["u1"], [second]) == (frozenset([second]),)
    assert bench.experiments_of(["u1"], []) == (frozenset(),)
    assert bench.experiments_of([], keys) == ()
