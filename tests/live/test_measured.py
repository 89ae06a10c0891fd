"""Further metrics of a live test: events, windows, guardrails and ratios; they never steer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.assigner import LiveAssignment
from steadyarm.live.estimates import MetricResult
from steadyarm.live.metrics import Metric

DAY = 86400.0
BOUGHT = Metric("bought", role="primary", kind="yes/no", window="1d", grace=0)
REVENUE = Metric("revenue", kind="money", unit="€", several="sum", window="2d", grace=0, cap=100)
ORDERS = Metric("orders", kind="count", several="sum", window="2d", grace=0)
PER_ORDER = Metric("revenue per order", ratio=("revenue", "orders"))
LOADING = Metric(
    "loading", role="guardrail", direction="minimize", margin="10%", window="1h", grace=0
)
ALL = (BOUGHT, REVENUE, ORDERS, PER_ORDER, LOADING)


class Shop:
    """A live test with a clock that can be moved."""

    def __init__(
        self, metrics: Sequence[Metric], budget: int = 600, storage: str = "memory"
    ) -> None:
        self.now = 1.7e9
        self.test = sa.create_experiment(
            "shop",
            ["today", "guest", "fast"],
            sa.Steady(),
            budget,
            storage,
            seed=1,
            control="today",
            metrics=metrics,
            clock=lambda: self.now,
        )
        self.shown: list[str] = []

    def visit(self, tell: Callable[[sa.Experiment, LiveAssignment], Any], visits: int) -> None:
        """So many visits, a minute after each other."""
        for _ in range(visits):
            self.now += 60
            assignment = self.test.ask(f"visitor {len(self.shown)}")
            self.shown.append(assignment.name)
            tell(self.test, assignment)

    def wait(self, days: float) -> None:
        """Let time pass."""
        self.now += days * DAY
        self.test.refresh()

    def metric(self, name: str) -> MetricResult:
        """What is known of a metric."""
        return next(one for one in self.test.metrics() if one.name == name)


def test_only_the_primary_metric_steers() -> None:
    drawn = random.Random(7)
    bought = [drawn.random() for _ in range(600)]

    def bare(test: sa.Experiment, shown: LiveAssignment) -> None:
        share = {"today": 0.1, "guest": 0.4, "fast": 0.1}[shown.name]
        test.tell(shown, float(bought[int(shown.unit.split()[1])] < share))

    def whole(test: sa.Experiment, shown: LiveAssignment) -> None:
        bare(test, shown)
        test.tell(shown, {"loading": drawn.random()})
        test.tell(shown, {"revenue": 100 * drawn.random(), "orders": 1}, event="order 1")

    alone, together = Shop((BOUGHT,)), Shop(ALL)
    alone.visit(bare, 600)
    together.visit(whole, 600)
    assert alone.shown == together.shown
    assert len(set(alone.shown[-100:])) == 3
    for shop in (alone, together):
        shop.wait(3)
    one, other = alone.test.recommend(), together.test.recommend()
    assert np.array_equal(one.intervals, other.intervals)
    assert together.test.replay().agrees


def test_a_ratio_is_that_of_two_sums_with_the_error_of_the_delta_method() -> None:
    shop, drawn = Shop(ALL, budget=2400), random.Random(5)
    sums = {name: np.zeros(5) for name in ("today", "guest", "fast")}

    def tell(test: sa.Experiment, shown: LiveAssignment) -> None:
        orders = drawn.choice([0, 0, 1, 2])
        spent = [round(drawn.uniform(10, 30), 2) for _ in range(orders)]
        for i, amount in enumerate(spent):
            test.tell(shown, {"revenue": amount, "orders": 1}, event=f"{shown.unit} {i}")
        a, b = sum(spent), orders
        sums[shown.name] += np.array([1, a, b, a * a, 0])
        sums[shown.name][4] += (a - 20 * b) ** 2

    shop.visit(tell, 2400)
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

    def tell(test: sa.Experiment, shown: LiveAssignment) -> None:
        better = shown.name == "guest"
        loading = drawn.gauss(1.0 + slower * better, 0.2)
        bought = float(drawn.random() < (0.4 if better else 0.1))
        test.tell(shown, {"bought": bought, "loading": loading})

    shop.visit(tell, 1200)
    shop.wait(2)
    verdict = shop.test.recommend()
    (loading,) = verdict.metrics
    assert loading.safety == ("control", safety, "safe")
    assert (verdict.name, verdict.decision.word) == ("guest", word)
    if word == "keep":
        assert "loading got worse" in verdict.decision.text
        assert verdict.decision.variant == "today"


def test_a_primary_metric_of_events_is_final_after_its_window(tmp_path: Any) -> None:
    spent = Metric("spent", role="primary", kind="money", several="sum", window="1d", grace=0)
    shop = Shop((spent,), budget=120, storage=f"sqlite:///{tmp_path}/shop.db")

    def tell(test: sa.Experiment, shown: LiveAssignment) -> None:
        better = shown.name == "guest"
        for i in range(1 + better):
            test.tell(shown, 10.0, event=f"{shown.unit} {i}")

    shop.visit(tell, 30)
    assert shop.test.status().observed == 0  # a further purchase may still come
    shop.wait(1.1)
    assert shop.test.status().observed > 0
    shop.visit(tell, 90)
    shop.wait(1.1)
    verdict = shop.test.recommend()
    assert verdict.name == "guest"
    assert verdict.estimates == pytest.approx([10.0, 20.0, 10.0])
    assert shop.test.replay().agrees
    with pytest.raises(sa.RewardTooLateError, match="happened after its reward_window of 1d"):
        shop.test.tell("visitor 0", 10.0, event="too late")


def test_reports_are_checked_as_a_whole() -> None:
    shop = Shop(ALL, budget=60)
    shop.visit(lambda test, shown: None, 3)
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
    drawn = random.Random(2)

    def tell(every: int) -> Callable[[sa.Experiment, LiveAssignment], Any]:
        def one(test: sa.Experiment, shown: LiveAssignment) -> None:
            if shop.shown.count(shown.name) % every == 0:
                values = {"orders": 1.0, "revenue": round(drawn.uniform(15, 25), 2)}
                test.tell(shown, values, event="only")

        return one

    shop.visit(tell(40), 300)
    shop.wait(3)
    few = shop.metric("revenue per order")
    assert len(few.estimates) == 0
    assert "needs 10 units with orders in every variant" in few.obstacle
    shop.visit(tell(20), 600)
    shop.wait(3)
    found = shop.metric("revenue per order")
    assert found.estimates == pytest.approx([20.0] * 3, abs=5.0)
    reach = (found.intervals[:, 1] - found.intervals[:, 0]) / 2
    error = 10 / 12**0.5 / 12**0.5  # of the mean of twelve amounts between 15 and 25
    assert (reach > 2.5 * error).all()  # simultaneous, for two of three metrics, by Student's t


def test_a_guardrail_of_which_nothing_ever_happened_is_safe_within_a_margin() -> None:
    crash = Metric(
        *("crashed", "guardrail", "yes/no", "", "minimize"), window=3600.0, grace=0, margin=0.02
    )
    shop = Shop((BOUGHT, crash), budget=1800)
    shop.visit(lambda test, shown: test.tell(shown, 1.0), 300)
    shop.wait(0.1)
    assert shop.metric("crashed").safety == ("control", "unclear", "unclear")  # few visits
    shop.visit(lambda test, shown: test.tell(shown, 1.0), 1500)
    shop.wait(2)
    found = shop.metric("crashed")
    assert found.safety == ("control", "safe", "safe")
    worst = found.lift_intervals[1:, 1]
    assert ((worst > 0.003) & (worst < 0.02)).all()  # with 600 visits up to 3/600 is plausible
