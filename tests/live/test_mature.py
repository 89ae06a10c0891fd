"""Looks at a test whose rewards are under way rest on mature visits alone."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import scipy

import steadyarm as sa
from steadyarm.live.scorecard import compute_scorecard
from tests.live.worlds import DAY, Clock, Shop, create


def test_slow_rewards_make_no_variant_lose() -> None:
    """Counting what is pending as zero, "fast" won nearly every such test on the first days."""
    wrong, tests, window = 0, 4, {"reward_window": "3d", "reward_grace": 0, "missing": "zero"}
    for seed in range(tests):
        rng, verdicts = np.random.default_rng(seed), list[sa.Verdict]()
        rules: dict[str, Any] = {"seed": seed, "control": None, "reward_range": (0, 1)} | window
        shop = Shop(arms=["fast", "slow"], budget=1200, **rules)

        def click(shown: sa.LiveAssignment, shop: Shop = shop, rng: Any = rng) -> None:
            if rng.random() < 0.1:  # buyers of "slow" come days after those of "fast"
                shop.later(shown, rng.uniform(0, 3 * DAY if shown.name == "slow" else 3 * 3600))

        for day in range(7):
            shop.visit(120, click, every=DAY / 120, group=40)
            if day < 3:
                assert "can be judged yet" in compute_scorecard(shop.test).headline
            with suppress(sa.RewardsPendingError):
                verdicts.append(shop.test.recommend())
        assert len(verdicts) == 4  # three days pass before the first visit is mature
        wrong += any(v.sure for v in verdicts)
    assert wrong <= scipy.stats.binom.ppf(0.999, tests, 0.05)


def test_every_look_is_a_prefix_of_the_test() -> None:
    clock = Clock()
    live = create(budget=600, clock=clock, reward_window="1d", reward_grace=0, missing="zero")
    answers = [live.ask(f"u{i}") for i in range(300)]
    segments = live.storage.snapshot(live.key, everything=True).segments
    first = segments[0][0].rounds
    live.tell_many((one, 1.0) for one in answers[first:])  # all but the first segment
    with pytest.raises(sa.RewardsPendingError, match=rf"{first} of the first {first} still wait"):
        live.recommend()
    live.tell_many((one, 0.0) for one in answers[: first - 1])
    with pytest.raises(sa.RewardsPendingError, match=f"1 of the first {first} still wait"):
        live.recommend()
    live.tell(answers[first - 1], 0.0)
    whole = [record for record, tally in segments if tally.total_assigned == record.rounds]
    assert live.recommend().judged == sum(record.rounds for record in whole)


def test_without_a_window_only_the_operator_knows_the_end() -> None:
    with pytest.warns(UserWarning, match="judged only after the test is stopped"):
        live = create(budget=60, missing="zero", reward_range=(0, 1))
    for i in range(60):
        shown = live.ask(f"u{i}")
        if i % 3 == 0:
            live.tell(shown, 1.0)
    card = compute_scorecard(live)
    assert card.needs_stop
    assert not card.settled
    assert card.verdict is None
    live.stop()
    assert "40 of 60 rewards did not come and count as zero" in str(live.health())
    card = compute_scorecard(live)
    assert card.settled
    assert card.verdict is not None
    found = card.verdict
    assert (found.judged, found.rewards, found.missing) == (60, 20, 40)


@pytest.mark.parametrize("policy", [sa.Steady(), sa.GBAI()], ids=repr)
def test_pending_rewards_are_not_missing_ones(policy: sa.Policy[Any]) -> None:
    """One variant's rewards take two days: while they are under way that is no attrition."""
    rules: dict[str, Any] = {"reward_window": "3d", "reward_grace": 0, "control": None}
    shop = Shop(arms=["A", "B"], policy=policy, budget=2000, **rules)
    live = shop.test

    def report_of(shown: sa.LiveAssignment) -> float | None:
        if shown.name == "A":
            return 1.0
        shop.later(shown, 2 * DAY)
        return None

    for _ in range(10):
        shop.visit(200, report_of, every=180, group=20)
        assert live.health().status == "ok", live.health()
    shop.clock.pass_(4 * DAY)
    report = live.health()
    assert report.status == "fail"  # now those of the last two days are lost, all of B
    assert "B misses" in str(report)
    verdict = live.recommend()
    assert verdict.unhealthy.startswith("Not healthy: do not decide yet. B misses")
    assert not verdict.sure
    assert "not healthy, do not decide yet. B misses" in compute_scorecard(live).headline


@pytest.mark.parametrize(
    ("policy", "direction"), [(sa.Steady(), "maximize"), (sa.GBAI(), "minimize")]
)
def test_a_variant_without_a_reward_is_unknown_not_zero(
    policy: sa.Policy[Any], direction: Any
) -> None:
    """All of C's rewards get lost: its value is unknown, and those of the others are right."""
    rng = np.random.default_rng(3)
    live = create(policy=policy, budget=900, direction=direction, seed=4)
    for i in range(900):
        shown = live.ask(f"u{i}")
        if shown.name != "C":
            live.tell(shown, 10.0 + (shown.name == "B") + float(rng.normal()))
    live.stop()
    verdict = live.recommend()
    assert verdict.name == ("B" if direction == "maximize" else "A")
    assert not verdict.sure
    assert "C" in verdict.plausible
    low, high = verdict.intervals.T
    assert (low[:2] < [10, 11]).all()
    assert (high[:2] > [10, 11]).all()
    assert (high - low)[:2].max() < 3
    assert low[2] < -100
    assert high[2] > 100
    assert live.replay().agrees
