"""Verdicts on their way through JSON."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.verdict import Verdict
from steadyarm.wire.responses import ArmEstimate, Recommendation


def verdict(control: str | None, mean: float, rounds: int = 300) -> Verdict:
    session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), 300, control=control)
    rng = np.random.default_rng(1)
    for _ in range(rounds):
        session.tell(session.ask(), mean + rng.normal())
    return session.recommend()


def sent(found: Verdict) -> Recommendation:
    text = msgspec.json.encode(Recommendation.of(found))
    return msgspec.json.decode(text, type=Recommendation)


def column(arms: list[ArmEstimate], name: str, unknown: float = np.nan) -> list[float]:
    values = [getattr(arm, name) for arm in arms]
    return [unknown if value is None else value for value in values]


@pytest.mark.parametrize("mean", [3.0, 0.0])
@pytest.mark.parametrize("rounds", [300, 60])
def test_estimates_and_lifts_survive(mean: float, rounds: int) -> None:
    found = verdict("B", mean, rounds)
    answer = sent(found)
    assert (answer.control, answer.decision.text) == ("B", found.decision.text)
    np.testing.assert_array_equal(column(answer.arms, "estimate"), found.estimates)
    np.testing.assert_array_equal(column(answer.arms, "lift"), found.lifts)
    np.testing.assert_array_equal(
        column(answer.arms, "lift_low", -np.inf), found.lift_intervals[:, 0]
    )
    np.testing.assert_array_equal(column(answer.arms, "relative"), found.relative)
    undefined = bool(np.isnan(found.relative[0]))
    assert undefined == (mean == 0 or rounds < 300)
    assert (answer.arms[0].relative is None) == undefined
    assert answer.arms[1].lift == 0


def test_without_a_control_lifts_are_null() -> None:
    answer = sent(verdict(None, 3.0))
    assert answer.control is None
    first = answer.arms[0]
    assert (first.lift, first.lift_low, first.relative_high) == (None, None, None)
