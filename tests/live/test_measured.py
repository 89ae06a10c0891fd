"""Further metrics of a live test: events, windows, guardrails and ratios; they never steer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.assigner import LiveAssignment
from steadyarm.live.estimates import MetricResult
from steadyarm.live.metrics import Metric
from tests.live import worlds

BOUGHT = Metric("bought", role="primary", kind="yes/no", window="1d", grace=0)
REVENUE = Metric("revenue", kind="money", unit="€", several="sum", window="2d", grace=0, cap=100)
ORDERS = Metric("orders", kind="count", several="sum", window="2d", grace=0)
PER_ORDER = Metric("revenue per order", ratio=("revenue", "orders"))
LOADING = Metric(
    "loading", role="guardrail", direction="minimize", margin="10%", window="1h", grace=0
)
ALL = (BOUGHT, REVENUE, ORDERS, PER_ORDER, LOADING)


class Shop(worlds.Shop):
    """A live test with metrics."""

    def __init__(self, metrics: Sequence[Metric], budget: int = 600, **settings: Any) -> None:
        super().__init__(
            arms=["A", "B", "C"], budget=budget, missing=None, metrics=metrics, **settings
        )

    def metric(self, name: str) -> MetricResult:
        """What is known of a metric."""
        return next(one for one in self.test.metrics() if one.name == name)


def test_only_the_primary_metric_steers() -> None:
    drawn = random.Random(7)
    bought = [drawn.random() for _ in range(600)]

    def bare(shown: LiveAssignment) -> dict[str, float]:
        share = {"A": 0.1, "B": 0.4, "C": 0.1}[shown.name]
        return {"bought": float(bought[int(shown.unit.split()[1])] < share)}

    def whole(shown: LiveAssignment) -> dict[str, float]:
        orders = {"revenue": 100 * drawn.random(), "orders": 1.0}
        together.test.tell(shown, orders, event="order 1")
        return bare(shown) | {"loading": drawn.random()}

    alone, together = Shop((BOUGHT,)), Shop(ALL)
    alone.visit(600, bare)
    together.visit(600, whole)
    assert alone.shown == together.shown
    assert len(set(alone.shown[-100:])) == 3
    for shop in (alone, together):
        shop.wait(3)
    one, other = alone.test.recommend(), together.test.recommend()
    assert np.array_equal(one.intervals, other.intervals)
    assert together.test.replay().agrees


def test_a_ratio_is_that_of_two_sums_with_the_error_of_the_delta_method() -> None:
    shop, drawn = Shop(ALL, budget=2400), random.Random(5)
    sums = {name: np.zeros(5) for name in ("A", "B", "C")}

    def tell(shown: LiveAssignment) -> None:
        orders = drawn.choice([0, 0, 1, 2])
        spent = [round(drawn.uniform(10, 30), 2) for _ in range(orders)]
        for i, amount in enumerate(spent):
            shop.test.tell(shown, {"revenue": amount, "orders": 1}, event=f"{shown.unit} {i}")
        a, b = sum(spent), orders
        sums[shown.name] += np.array([1, a, b, a * a, 0])
        sums[shown.name][4] += (a - 20 * b) ** 2

    shop.visit(2400, tell)
    shop.wait(4)
    found = shop.metric("revenue per order")
    for k, name in enumerate(found.names):
        n, a, b, _, spread = sums[name]
        assert found.estimates[k] == pytest.approx(a / b, rel=0.02)  # blocks may be cut short
        error = np.sqrt(spread / n) / (b / n) / np.sqrt(n)  # the ratio is 20 in truth
        reach = (found.intervals[k, 1] - found.intervals[k, 0]) / 2
        assert 2.0 < reach / error < 3.2  # a simultaneous critical value for three of four metrics
        assert found.intervals[k, 0] < 20 < found.intervals[k, 1]


@pytest.mark.parametrize(
    ("slower", "safety", "word"), [(0.0, "safe", "ship"), (0.3, "broken", "keep")]
)
def test_a_guardrail_decides_whether_a_winner_is_shipped(
    slower: float, safety: str, word: str
) -> None:
    shop, drawn = Shop((BOUGHT, LOADING), budget=1200), random.Random(11)

    def tell(shown: LiveAssignment) -> dict[str, float]:
        better = shown.name == "B"
        loading = drawn.gauss(1.0 + slower * better, 0.2)
        return {"bought": float(drawn.random() < (0.4 if better else 0.1)), "loading": loading}

    shop.visit(1200, tell)
    shop.wait(2)
    verdict = shop.test.recommend()
    (loading,) = verdict.metrics
    assert loading.safety == ("control", safety, "safe")
    assert (verdict.name, verdict.decision.word) == ("B", word)
    if word == "keep":
        assert "loading got worse" in verdict.decision.text
        assert verdict.decision.variant == "A"


def test_a_primary_metric_of_events_is_final_after_its_window(tmp_path: Any) -> None:
    spent = Metric("spent", role="primary", kind="money", several="sum", window="1d", grace=0)
    shop = Shop((spent,), budget=120, storage=f"sqlite:///{tmp_path}/shop.db")

    def tell(shown: LiveAssignment) -> None:
        for i in range(1 + (shown.name == "B")):
            shop.test.tell(shown, 10.0, event=f"{shown.unit} {i}")

    shop.visit(30, tell)
    assert shop.test.status().observed == 0  # a further purchase may still come
    shop.wait(1.1)
    assert shop.test.status().observed > 0
    shop.visit(90, tell)
    shop.wait(1.1)
    verdict = shop.test.recommend()
    assert verdict.name == "B"
    assert verdict.estimates == pytest.approx([10.0, 20.0, 10.0])
    assert shop.test.replay().agrees
    with pytest.raises(sa.RewardTooLateError, match="happened after its reward_window of 1d"):
        shop.test.tell("visitor 0", 10.0, event="too late")


def test_reports_are_checked_as_a_whole() -> None:
    shop = Shop(ALL, budget=60)
    shop.visit(3)
    for reward, event, words in (
        ({"bought": 1, "revenu": 3}, "x", "did you mean revenue"),
        ({"bought": 1, "revenue": 3}, None, "give each a key"),
        ({"bought": 7, "revenue": 3}, "x", "outside of the reward_range"),
        ({"bought": 1, "revenue": float("nan")}, "x", "finite"),
        ({}, None, "no value is given"),
        ({"bought": 1}, "x" * 513, "the event is"),
    ):
        with pytest.raises(sa.InvalidInputError, match=words):
            shop.test.tell("visitor 0", reward, event=event)
    assert sum(shop.test.status().rewarded) == 0
    shop.test.tell("visitor 0", {"bought": 1, "revenue": 3}, event="x")
    with pytest.raises(sa.RepeatedRewardError, match=r"the revenue 3\.0 of the event 'x' already"):
        shop.test.tell("visitor 0", {"revenue": 4}, event="x")
    assert sum(shop.test.status().rewarded) == 1


def test_a_ratio_of_few_denominators_is_refused_then_wide() -> None:
    shop = Shop((BOUGHT, REVENUE, ORDERS, PER_ORDER), budget=900)
    drawn, seen, every = random.Random(2), Counter[str](), 40

    def tell(shown: LiveAssignment) -> None:
        seen[shown.name] += 1
        if seen[shown.name] % every == 0:
            values = {"orders": 1.0, "revenue": round(drawn.uniform(15, 25), 2)}
            shop.test.tell(shown, values, event="only")

    shop.visit(300, tell)
    shop.wait(3)
    few = shop.metric("revenue per order")
    assert len(few.estimates) == 0
    assert "needs 10 units with orders in every variant" in few.obstacle
    every = 20
    shop.visit(600, tell)
    shop.wait(3)
    found = shop.metric("revenue per order")
    assert found.estimates == pytest.approx([20.0] * 3, abs=5.0)
    reach = (found.intervals[:, 1] - found.intervals[:, 0]) / 2
    error = 10 / 12**0.5 / 12**0.5  # of the mean of twelve amounts between 15 and 25
    assert (reach > 2.5 * error).all()  # simultaneous, for two of three metrics, by Student's t


def test_a_guardrail_of_which_nothing_ever_happened_is_safe_within_a_margin() -> None:
    hour: dict[str, Any] = {"direction": "minimize", "margin": 0.02, "window": "1h", "grace": 0}
    shop = Shop((BOUGHT, Metric("crashed", "guardrail", "yes/no", **hour)), budget=1800)
    shop.visit(300, lambda shown: 1.0)
    shop.wait(0.1)
    assert shop.metric("crashed").safety == ("control", "unclear", "unclear")  # few visits
    shop.visit(1500, lambda shown: 1.0)
    shop.wait(2)
    found = shop.metric("crashed")
    assert found.safety == ("control", "safe", "safe")
    worst = found.lift_intervals[1:, 1]
    assert ((worst > 0.003) & (worst < 0.02)).all()  # with 600 visits up to 3/600 is plausible
