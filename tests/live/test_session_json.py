"""Sessions as JSON: what goes on is what was, and damage is noticed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from tests.live.rewards import ARMS, reward


@pytest.mark.parametrize(
    "policy", [sa.P1RAGE(), sa.MixedPeace(), sa.Peace(), sa.ODLinBAI(), sa.P1()]
)
def test_going_on_from_json_gives_the_same_run(policy: sa.Policy[Any]) -> None:
    straight = sa.Session(policy, ARMS, budget=90, seed=2)
    broken = sa.Session(policy, ARMS, budget=90, seed=2)
    for i in range(90):
        try:
            a = straight.ask()
        except sa.BudgetSpentError:
            break
        assert broken.ask() == a
        straight.tell(a, reward(a))
        if i % 7 == 3:
            broken = sa.Session.from_json(broken.to_json())
        broken.tell(a.number, reward(a))
    assert straight.to_json() == broken.to_json()
    assert np.array_equal(straight.recommend().intervals, broken.recommend().intervals)


NONSENSE: tuple[Any, ...] = (None, "x", -7, 1e300, math.nan, [], {})


def test_damaged_json_is_refused_whatever_is_damaged() -> None:
    """Every single value of a session's JSON replaced by nonsense: refused, or harmless."""
    session = sa.Session(sa.MixedPeace(), sa.ArmSet.one_hot(["A", "B"]), budget=40, seed=1)
    for _ in range(25):
        a = session.ask()
        if a.number % 3:
            session.tell(a, reward(a))
    data = json.loads(session.to_json())
    refused = 0
    for path in _paths(data):
        for nonsense in NONSENSE:
            damaged = json.loads(json.dumps(data))
            place = damaged
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = nonsense
            try:
                again = sa.Session.from_json(json.dumps(damaged))
                while again.asked < again.budget:
                    again.tell(again.ask(), 0.5)
                again.recommend()
            except sa.SteadyArmError:
                refused += 1
    assert refused


def _paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in entries:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from _paths(value, (*path, key))


def test_a_session_goes_on_with_the_policy_it_was_run_with() -> None:
    text = sa.Session(sa.P1RAGE(max_phases=3), ARMS, budget=9).to_json()
    assert sa.Session.from_json(text, sa.P1RAGE(max_phases=3)).policy == sa.P1RAGE(max_phases=3)
    with pytest.raises(sa.InvalidInputError, match="give the one it was run with"):
        sa.Session.from_json(text, sa.P1RAGE(max_phases=9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not the JSON of a session"),
        ("[]", "but 'list'"),
        (None, "not the JSON of a session"),
        ('{"format": 99}', "but 99"),
        ('{"format": 3}', "incomplete or damaged"),
        ('{"format": 2}', "but 2"),
    ],
)
def test_bad_json_is_refused(text: Any, message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.Session.from_json(text)


@pytest.mark.parametrize("tally", ["assigned", "forgotten", "counts"])
def test_tallies_that_do_not_fit_the_assignments_are_refused(tally: str) -> None:
    """One of an arm's tally goes to another arm, so that the sum is still right."""
    session = sa.Session(sa.Steady(), ARMS, budget=60, seed=1)
    for _ in range(60):
        a = session.ask()
        if a.number % 3 == 0:
            session.tell(a, reward(a))
        elif a.number % 3 == 1:
            session.forget(a)
    data = json.loads(session.to_json())
    piece = data["books"]["open"][0]
    giver = next(k for k in range(ARMS.size) if piece[tally][k])
    piece[tally][giver] -= 1
    piece[tally][(giver + 1) % ARMS.size] += 1
    with pytest.raises(sa.InvalidInputError, match="do not fit its assignments"):
        sa.Session.from_json(json.dumps(data))
