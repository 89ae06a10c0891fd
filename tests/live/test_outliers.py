"""One unit that carries a large part of the variance is named, in sessions and experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.inference.health import HealthReport
from steadyarm.live.scorecard import compute_scorecard
from steadyarm.segments import Direction


def _orders(bot: float) -> list[float]:
    rewards = [float(r) for r in np.random.default_rng(3).poisson(1.0, 2000)]
    rewards[700] = bot
    return rewards


def _health(test: sa.Session | sa.Experiment, rewards: Sequence[float]) -> HealthReport:
    for first in range(0, len(rewards), 20):
        some = range(first, first + 20)
        if isinstance(test, sa.Session):
            for k in some:
                test.tell(test.ask(), rewards[k])
        else:
            shown: Any = test.ask_many([f"user {k}" for k in some])
            test.tell_many([(one, rewards[k]) for k, one in zip(some, shown, strict=True)])
    return test.health()


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("kind", [sa.Session, sa.Experiment])
def test_a_bot_is_named(kind: type, direction: Direction) -> None:
    test: sa.Session | sa.Experiment
    if kind is sa.Session:
        arms = sa.ArmSet.one_hot(["A", "B"])
        test = sa.Session(sa.Steady(), arms, budget=2000, seed=1, direction=direction)
    else:
        how: dict[str, Any] = {"role": "primary", "kind": "count", "missing": "drop"}
        metric = sa.Metric("orders", direction=direction, **how)
        test = sa.create_experiment(
            "shop", ["A", "B"], sa.Steady(), 2000, "memory", seed=1, metrics=[metric]
        )
    [found] = [f for f in _health(test, _orders(1000.0)).findings if f.name == "outliers"]
    assert found.status == "warn"
    who = "with a reward of 1000" if kind is sa.Session else "user 700"
    assert f"One unit ({who}) accounts for 100 % of the variance of" in found.explanation
    assert "Declare a cap or exclude the unit" in found.advice
    verdict = test.recommend()
    assert verdict.decision.more is None  # limits that are refused tell nothing of the time left
    if isinstance(test, sa.Experiment):  # which says that its rewards are counts
        card = compute_scorecard(test).verdict
        assert card is not None
        assert (verdict.intervals >= 0).all()
        assert np.array_equal(card.intervals, verdict.intervals)
    if isinstance(test, sa.Experiment):
        test.exclude(unit="user 700", reason="a bot")
        [found] = [f for f in test.health().findings if f.name == "outliers"]
        assert found.status == "ok"


def test_few_large_orders_are_no_outliers_live_and_in_the_log(tmp_path: Path) -> None:
    test = sa.create_experiment(
        "shop", ["A", "B"], sa.Steady(), 2000, "memory", seed=1, missing="drop"
    )
    prices = [200.0 if k in (300, 900, 1500) else 10.0 * (k % 10 == 0) for k in range(2000)]
    for found in (_health(test, prices), sa.analyze(test.export(tmp_path / "shop.csv")).health):
        [outliers] = [finding for finding in found.findings if finding.name == "outliers"]
        assert outliers.status == "ok"


def test_clicks_have_no_outliers() -> None:
    test = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), budget=500, seed=1)
    found = _health(test, [float(k == 7) for k in range(500)])
    assert "outliers" not in [finding.name for finding in found.findings]
