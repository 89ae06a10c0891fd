"""Decisions and intervals where rewards are money: few buyers, unequal prices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import steadyarm as sa

ROUNDS = 600


def price_test(seed: int, **given: Any) -> sa.Verdict:
    """A price test of equal revenue: 10 % buy at 10, or 1 % at 100."""
    rng = np.random.default_rng([9, seed])
    test = sa.create_experiment(
        "price",
        ["cheap", "dear"],
        sa.Steady(),
        ROUNDS,
        "memory",
        seed=seed,
        control="cheap",
        **given,
    )
    while test.state == "running" and sum(test.status().assigned) < ROUNDS:
        for assignment in test.ask_many([f"{seed} {rng.random()}" for _ in range(20)]):
            assert not isinstance(assignment, sa.SteadyArmError)
            price, rate = (10.0, 0.1) if assignment.name == "cheap" else (100.0, 0.01)
            test.tell(assignment, price * (rng.random() < rate))
    return test.recommend()


@pytest.mark.parametrize("seed", range(4))
def test_no_decision_rests_on_a_refused_limit(seed: int) -> None:
    verdict = price_test(seed, missing="drop", stop="when sure")
    assert verdict.decision is not None
    assert verdict.decision.word == "unclear"
    assert np.isinf(verdict.intervals[1, 1])
    assert np.isinf(verdict.lift_intervals[1, 1])
    assert "declare a range or a cap" in verdict.no_interval


@pytest.mark.parametrize(
    "metric",
    [
        sa.Metric("revenue", "primary", "money", missing="drop", range=(0, 100)),
        sa.Metric("revenue", "primary", "money", missing="drop", cap=100),
    ],
    ids=["range", "cap"],
)
def test_a_declared_bound_gives_the_refused_limits(metric: sa.Metric) -> None:
    verdict = price_test(1, metrics=[metric])
    assert np.isfinite(verdict.intervals).all()
    assert (verdict.intervals[:, 0] >= 0).all()
    low, high = verdict.lift_intervals[1]
    assert -np.inf < low < 0 < high < np.inf
