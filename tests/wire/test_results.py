"""Verdicts on their way through JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.verdict import Verdict
from steadyarm.wire.results import Recommendation

LIFTS = ("lifts", "lift_intervals", "relative", "relative_intervals")


def verdict(control: str | None, mean: float, rounds: int = 300) -> Verdict:
    session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), 300, control=control)
    rng = np.random.default_rng(1)
    for _ in range(rounds):
        session.tell(session.ask(), mean + rng.normal())
    return session.recommend()


def sent(found: Verdict) -> tuple[Verdict, dict[str, Any]]:
    text = msgspec.json.encode(Recommendation.of(found))
    return msgspec.json.decode(text, type=Recommendation).to_verdict(), msgspec.json.decode(text)


@pytest.mark.parametrize("mean", [3.0, 0.0])
@pytest.mark.parametrize("rounds", [300, 60])
def test_lifts_survive(mean: float, rounds: int) -> None:
    found = verdict("B", mean, rounds)
    again, plain = sent(found)
    assert (again.control, again.decision) == ("B", found.decision)
    assert plain["decision"]["text"] == found.decision.text
    for name in LIFTS:
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert found.relative is not None
    undefined = bool(np.isnan(found.relative[0]))
    assert undefined == (mean == 0 or rounds < 300)
    assert (plain["arms"][0]["relative"] is None) == undefined
    assert plain["arms"][1]["lift"] == 0


def test_without_a_control_lifts_are_null() -> None:
    again, plain = sent(verdict(None, 3.0))
    assert plain["control"] is None
    assert {plain["arms"][0][name] for name in ("lift", "lift_low", "relative_high")} == {None}
    assert [getattr(again, name) for name in LIFTS] == [None] * 4
