"""Sessions as JSON: a session that is read again goes on as before; changes are noticed."""

from __future__ import annotations

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


def test_damaged_json_is_refused() -> None:
    session = sa.Session(sa.MixedPeace(), sa.ArmSet.one_hot(["A", "B"]), budget=40, seed=1)
    session.tell(session.ask(), 0.25)
    text = session.to_json()
    for damaged in (text.replace("0.25", "0.5"), text.replace('"asked": 1', '"asked": 2')):
        with pytest.raises(sa.InvalidInputError, match="incomplete or was changed"):
            sa.Session.from_json(damaged)


def test_a_session_goes_on_with_the_policy_it_was_run_with() -> None:
    text = sa.Session(sa.P1RAGE(max_phases=3), ARMS, budget=9).to_json()
    assert sa.Session.from_json(text, sa.P1RAGE(max_phases=3)).policy == sa.P1RAGE(max_phases=3)
    with pytest.raises(sa.InvalidInputError, match="give the policy of the test"):
        sa.Session.from_json(text, sa.P1RAGE(max_phases=9))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not the JSON of a session"),
        ("[]", "but 'list'"),
        (None, "not the JSON of a session"),
        ('{"format": 99}', "but 99"),
        ('{"format": 4}', "incomplete or was changed"),
    ],
)
def test_bad_json_is_refused(text: Any, message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        sa.Session.from_json(text)
