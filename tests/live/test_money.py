"""Decisions and intervals where rewards are money: few buyers, unequal prices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import steadyarm as sa
from tests.live.worlds import Shop


def price_test(seed: int, **given: Any) -> sa.Verdict:
    """A price test of equal revenue: 10 % buy at 10, or 1 % at 100."""
    rng = np.random.default_rng([9, seed])
    rules = {"arms": ["cheap", "dear"], "control": "cheap", "budget": 600, "seed": seed}
    shop = Shop(**rules | given)

    def buy(shown: sa.LiveAssignment) -> float:
        cheap = shown.name == "cheap"
        return (10.0 if cheap else 100.0) * (rng.random() < (0.1 if cheap else 0.01))

    shop.visit(600, buy, group=20)
    return shop.test.recommend()


@pytest.mark.parametrize("seed", range(4))
def test_no_decision_rests_on_a_refused_limit(seed: int) -> None:
    verdict = price_test(seed, stop="when sure")
    assert verdict.decision is not None
    assert verdict.decision.word == "unclear"
    assert np.isinf(verdict.intervals[1, 1])
    assert np.isinf(verdict.lift_intervals[1, 1])
    assert "declare a range or a cap" in verdict.no_interval


@pytest.mark.parametrize("bound", [{"range": (0, 100)}, {"cap": 100}], ids=["range", "cap"])
def test_a_declared_bound_gives_the_refused_limits(bound: dict[str, Any]) -> None:
    metric = sa.Metric("revenue", "primary", "money", missing="drop", **bound)
    verdict = price_test(1, metrics=[metric], missing=None)
    assert np.isfinite(verdict.intervals).all()
    assert (verdict.intervals[:, 0] >= 0).all()
    low, high = verdict.lift_intervals[1]
    assert -np.inf < low < 0 < high < np.inf
    assert verdict.relative_intervals is not None
    assert verdict.relative_intervals[1, 0] >= -1  # no revenue is negative


def test_a_log_names_the_cap_that_gives_a_refused_limit() -> None:
    rng, arm = np.random.default_rng(3), np.array(["cheap", "dear"] * 500)
    price = np.where(arm == "cheap", 10.0, 200.0)
    revenue = price * (rng.random(1000) < 1.0 / price)
    log = pd.DataFrame({"user_id": range(1000), "variant": arm, "revenue": revenue})
    refused = sa.analyze(log, split="equal", metrics=["revenue"])
    assert np.isinf(refused.intervals.high).any()
    declare = "--metric 'revenue capped at NUMBER'"
    assert declare in refused.notes[-1]
    metric = declare.partition("'")[2].rstrip("'").replace("NUMBER", "200")
    found = sa.analyze(log, split="equal", metrics=[metric])
    assert np.isfinite(found.intervals.high).all()
    assert np.array_equal(found.means, refused.means)
    assert declare not in found.notes[-1]


# What is said never contradicts itself, in sessions and in the analysis of their logs.

SHAPES: dict[str, Callable[[np.random.Generator, int], float]] = {
    "clicks, +20 points": lambda rng, arm: float(rng.random() < 0.1 + 0.2 * arm),
    "no clicks": lambda rng, arm: 0.0,
    "one price against another": lambda rng, arm: (
        (10.0, 100.0)[arm] * (rng.random() < (0.1, 0.01)[arm])
    ),
    "few orders": lambda rng, arm: (rng.random() < 0.05) * rng.lognormal(3, 1),
    "many orders, twice as large": lambda rng, arm: (
        (rng.random() < 0.4) * rng.lognormal(3 + 0.7 * arm, 0.5)
    ),
    "seconds without zeros": lambda rng, arm: rng.lognormal(1 + 0.3 * arm, 1.5),
    "losses": lambda rng, arm: -(1.0 + arm) * (rng.random() < 0.1) * rng.lognormal(2, 1),
    "a bot": lambda rng, arm: float(rng.poisson(1.0)) + 1000.0 * (rng.random() < 0.002),
}


def check_consistent(verdict: sa.Verdict, sign: float) -> None:
    """No decision beside an interval that contains 0, or beside one that is not known."""
    decision, names = verdict.decision, list(verdict.names)
    lifts, control = verdict.lift_intervals, verdict.control
    assert lifts is not None
    assert control is not None
    assert not np.isnan(verdict.intervals).any()
    better, worse = (lifts[:, 0], lifts[:, 1]) if sign > 0 else (-lifts[:, 1], -lifts[:, 0])
    low, high = (verdict.gap_intervals[:, end] for end in (0, 1))
    rivals = [name in verdict.plausible for name in names]
    assert ((low <= 0) & (high >= 0))[rivals].all()
    if decision.word in ("ship", "keep"):
        assert decision.variant in verdict.plausible
        assert np.isfinite(verdict.intervals).any(axis=1).all()
    if decision.word == "ship":
        assert decision.variant is not None
        assert better[names.index(decision.variant)] > 0
        assert control not in verdict.plausible
    if decision.word == "keep":
        assert (worse[[name != control for name in names]] <= 0).all()


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_said_agrees(shape: str, share: float, direction: Any) -> None:
    arms, sign = sa.ArmSet.one_hot(["control", "new"]), 1.0 if direction == "maximize" else -1.0
    words = set()
    for seed in range(2):
        rng, rows = np.random.default_rng([31, seed]), []
        session = sa.Session(
            sa.Steady(), arms, 600, seed, direction, control={"control": share}, stop="when sure"
        )
        while session.stopped is None and session.asked < session.budget:
            shown = session.ask()
            reward = float(SHAPES[shape](rng, shown.arm))
            session.tell(shown, reward)
            rows.append((shown.name, reward, shown.probability))
        if not any(reward for _, reward, _ in rows):
            with pytest.raises(sa.RewardsPendingError, match="0"):
                session.recommend()
            continue
        check_consistent(session.recommend(), sign)
        log = pd.DataFrame(rows, columns=["arm", "reward", "probability"])
        when = pd.date_range("2026-03-01", periods=len(rows), freq="5min")
        log = log.assign(unit=range(len(rows)), timestamp=when)
        found = sa.analyze(log, control="control", direction=direction)
        assert found.verdict.plausible == found.plausible
        check_consistent(found.verdict, sign)
        words.add(session.recommend().decision.word)
    if shape in ("clicks, +20 points", "many orders, twice as large") and share == 0.5:
        assert words & {"ship", "keep"}
