"""Looks at a test whose rewards are under way rest on mature visits alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy

import steadyarm as sa
from steadyarm.live.scorecard import compute_scorecard
from tests.live.worlds import START, Clock, create

DAY = 86_400.0


def shop(
    seed: int, days: int = 10, visits: int = 120, window: float = 3, **settings: Any
) -> tuple[sa.Experiment, list[sa.Verdict], list[str]]:
    """Ten days of clicks of 10 %; buyers of "slow" come days after those of "fast".

    Gives the test, and what it said every evening: verdicts, and headlines.
    """
    clock, rng = Clock(), np.random.default_rng(seed)
    live = create(
        arms=["fast", "slow"],
        budget=days * visits,
        seed=seed,
        clock=clock,
        reward_window=window * DAY,
        reward_grace=0,
        **{"missing": "zero", "reward_range": (0, 1)} | settings,
    )
    due: list[tuple[float, sa.LiveAssignment]] = []
    verdicts, headlines = [], []
    for day in range(days):
        for hour in range(0, 24, 4):
            clock.now = START + day * DAY + hour * 3600
            units = [f"{day} {hour} {i}" for i in range(visits // 6)]
            for shown in live.ask_many(units):
                assert isinstance(shown, sa.LiveAssignment)
                if rng.random() < 0.1:
                    most = window * DAY if shown.name == "slow" else 3 * 3600
                    due.append((clock.now + rng.uniform(0, most), shown))
            live.tell_many((shown, 1.0) for when, shown in due if when <= clock.now)
            due = [one for one in due if one[0] > clock.now]
        headlines.append(compute_scorecard(live).headline)
        try:
            verdicts.append(live.recommend())
        except sa.RewardsPendingError:
            continue
    clock.pass_(window * DAY + 3600)
    return live, verdicts, headlines


def test_slow_rewards_make_no_variant_lose() -> None:
    """Counting what is pending as zero, "fast" won nearly every such test on the first days."""
    wrong, tests = 0, 4
    for seed in range(tests):
        _, verdicts, headlines = shop(seed)
        assert len(verdicts) == 7  # three days pass before the first visit is mature
        assert all("can be judged yet" in text for text in headlines[:3])
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
    assert (card.verdict.judged, card.verdict.rewards, card.verdict.missing) == (
        60,
        20,
        40,
    )


@pytest.mark.parametrize("policy", [sa.Steady(), sa.GBAI()], ids=repr)
def test_pending_rewards_are_not_missing_ones(policy: sa.Policy[Any]) -> None:
    """One variant's rewards take two days: while they are under way that is no attrition."""
    clock = Clock()
    live = create(
        arms=["A", "B"],
        policy=policy,
        budget=2000,
        clock=clock,
        reward_window="3d",
        reward_grace=0,
        missing="drop",
    )
    late = []
    for hour in range(100):
        clock.now = START + hour * 3600
        for i in range(20):
            shown = live.ask(f"{hour} {i}")
            if shown.name == "A":
                live.tell(shown, 1.0)
            else:
                late.append((clock.now + 2 * DAY, shown))
        live.tell_many((shown, 1.0) for when, shown in late if when <= clock.now)
        late = [one for one in late if one[0] > clock.now]
        if hour % 10 == 9:
            assert live.health().status == "ok", live.health()
    clock.pass_(4 * DAY)
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
    clock, rng = Clock(), np.random.default_rng(3)
    live = create(
        arms=["A", "B", "C"], policy=policy, budget=900, direction=direction, clock=clock, seed=4
    )
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
