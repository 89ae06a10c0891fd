"""Assigning: the last positions of a budget, and the transactions of an ask, a tell, a decision."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

import steadyarm as sa
from steadyarm.live import assignments
from steadyarm.storages import open_storage
from tests.live.worlds import create

ARMS = sa.ArmSet.one_hot(list("ABCDE"))


def until_one_is_left() -> tuple[sa.Experiment, sa.Experiment]:
    """Two holders of a test; one place of its budget is left, and leased to the first."""
    holder = create(arms=ARMS, budget=50)
    other = sa.load_experiment(holder.name, holder.storage)
    holder.ask_many([f"u{i}" for i in range(16)], ahead=64)
    assert holder.status().leased == 1
    for i in range(16, 49):
        other.ask(f"u{i}")
    return holder, other


def test_who_needs_the_last_place_waits_until_its_holder_gives_it_back() -> None:
    holder, other = until_one_is_left()
    giving = Timer(0.2, holder.release)
    giving.start()
    assert other.ask("u49").new
    giving.join()
    assert other.status().total_assigned == 50
    assert not other.ask("one too many").in_test


def test_who_waits_learns_that_the_holder_has_served_the_same_unit() -> None:
    holder, other = until_one_is_left()
    asking = Timer(0.2, holder.ask, ["u49"])
    asking.start()
    assert not other.ask("u49").new
    asking.join()
    assert other.replay().agrees


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "PATIENCE", 0.1)
    _, other = until_one_is_left()
    assert not other.ask("u49").in_test


def test_what_clients_have_leased_is_not_waited_for() -> None:
    live = create(budget=50)
    live.ask_many([f"u{i}" for i in range(40)])
    while live.status().total_assigned + live.status().leased < 50:
        live.lease(50, seconds=1)
    began = time.monotonic()
    assert not live.ask("late").in_test
    assert time.monotonic() - began < assignments.PATIENCE


STATEMENT = "progress"  # a single statement, which needs no transaction
METHODS = ("assign", "reward", "snapshot", "decide", "find_assignments", "leases", STATEMENT)


@pytest.fixture(params=["memory", "sqlite"])
def counted(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[sa.Experiment, list[str]]]:
    """A test, and the names of the storage's methods that are called, as they come."""
    url = "memory" if request.param == "memory" else f"sqlite:///{tmp_path / 'tests.db'}"
    storage, called = open_storage(url), list[str]()

    def noting(name: str, method: Any) -> Any:
        def note(*given: Any, **named: Any) -> Any:
            called.append(name)
            return method(*given, **named)

        return note

    with create(storage=storage, budget=600) as live:
        for name in METHODS:
            monkeypatch.setattr(storage, name, noting(name, getattr(storage, name)))
        yield live, called


def test_a_decision_costs_two_transactions_beside_its_cause(
    counted: tuple[sa.Experiment, list[str]],
) -> None:
    live, called = counted
    decisions = 0
    for i in range(60):
        called.clear()
        answer = live.ask(f"u{i}")
        opens = ["assign", "snapshot", "decide", "assign"]
        assert called in (["assign"], opens)
        decisions += called == opens
        called.clear()
        live.tell(answer, float(i % 2))
        closes = ["reward", STATEMENT, "snapshot", "decide"]
        assert called in (["reward", STATEMENT], closes)
        decisions += called == closes
    assert decisions >= 10
    assert live.replay().agrees


def test_a_known_unit_is_found_by_the_assignment_itself(
    counted: tuple[sa.Experiment, list[str]],
) -> None:
    live, called = counted
    first = live.ask("u")
    called.clear()
    assert live.ask("u").id == first.id
    assert called == ["assign"]
