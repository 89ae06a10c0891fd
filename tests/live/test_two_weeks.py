"""A two-week test with late, repeated, missing and out-of-order rewards, in seconds.

The truth is computed from the log alone: what every visitor saw, and what they would have done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.storages.records import place_of
from tests.live.worlds import DAY, Clock, create

HOUR = 3600.0
DAYS, VISITS = 14, 150
WINDOW = 2 * DAY
Floats = NDArray[np.float64]


Message = tuple[float, str, float, bool]
"""When it comes, whose reward it is, which value it claims, and whether it is the first."""


def drifting_reward(rng: np.random.Generator, arm: int, day: int) -> float:
    """Weekends please others than weekdays do; whole cents, so that sums are easily followed."""
    base = [0.30, 0.34, 0.32, 0.26][arm]
    mood = 0.1 * (1 if arm % 2 else -1) * (1 if day % 7 > 4 else -0.4)
    return round(base + mood + 0.2 * rng.standard_normal(), 2)


def run_weeks(
    live: sa.Experiment, clock: Clock, rng: np.random.Generator
) -> tuple[dict[str, float], set[str]]:
    """Visits over two weeks; gives every visitor's true reward, and who told it in time."""
    truth, in_time, queue = dict[str, float](), set[str](), list[Message]()
    start = clock.now
    for visit in range(DAYS * VISITS):
        clock.now = start + visit * DAY / VISITS
        queue = deliver(live, clock.now, queue, in_time)
        unit = f"visitor {visit}"
        reward = truth[unit] = drifting_reward(rng, live.ask(unit).arm, visit // VISITS)
        queue += messages(rng, clock.now, unit, reward)
    clock.now = start + DAYS * DAY
    while queue:
        clock.pass_(HOUR)
        queue = deliver(live, clock.now, queue, in_time)
    return truth, in_time


def messages(rng: np.random.Generator, now: float, unit: str, reward: float) -> list[Message]:
    """What is sent about one visit: at once, hours or days later, twice, wrongly again, never."""
    chance = rng.random()
    if chance < 0.03:
        return []  # never sent
    time = now + (60.0 if chance < 0.5 else float(rng.exponential(6 * HOUR)))
    if chance > 0.97:
        time = now + WINDOW + float(rng.uniform(1, DAY))  # too late
    sent = [(time, unit, reward, True)]
    for share, wrong in ((0.1, 0.0), (0.05, 1.0)):
        if rng.random() < share:
            sent.append((time + float(rng.uniform(0, HOUR)), unit, reward + wrong, False))
    return sent


def deliver(
    live: sa.Experiment, now: float, queue: list[Message], in_time: set[str]
) -> list[Message]:
    """Tell what is due, newest first, as a queue that was stuck would; the rest."""
    due = [message for message in queue if message[0] <= now]
    for _, unit, value, first in sorted(due, key=lambda m: (not m[3], -m[0])):
        try:
            live.tell(unit, value)
            in_time.add(unit)
        except sa.RewardTooLateError:
            assert unit not in in_time
        except sa.RepeatedRewardError:
            assert not first
            assert unit in in_time
    return [message for message in queue if message[0] > now]


def estimates_of_log(live: sa.Experiment, rewards: dict[str, float], rule: str) -> Floats:
    """Inverse-propensity estimates by hand, row by row, missing rewards as the rule says.

    A dropped one counts as the mean of its variant in its segment; where there is none, as the
    line through those of the nearest segments before and after says.
    """
    segments = dict(live.storage.segments(live.key, range(10_000)))
    rows: dict[int, list[Any]] = {}
    for row in live.storage.log(live.key, most=100_000):
        rows.setdefault(place_of(row.number)[0], []).append(row)
    total, count = np.zeros(live.arms.size), 0
    means: dict[int, dict[float, float]] = {k: {} for k in range(live.arms.size)}
    middles, begun = {}, 0
    for index, group in sorted(rows.items()):
        middles[index] = begun + len(group) / 2
        begun += len(group)
        for k in means:
            seen = [rewards[row.unit] for row in group if row.arm == k and row.unit in rewards]
            if seen:
                means[k][middles[index]] = float(np.mean(seen))
    for index, group in rows.items():
        weights = segments[index].segment.weights[0]
        reference = segments[index].segment.reference
        m = np.zeros(live.arms.size) if reference is None else reference[0]
        for row in group:
            value = rewards.get(row.unit)
            if value is None:
                at, values = list(means[row.arm]), list(means[row.arm].values())
                mean = np.interp(middles[index], at, values)
                value = 0.0 if rule == "zero" else float(mean)
            score = m.copy()
            score[row.arm] += (value - m[row.arm]) / weights[row.arm]
            total += score
            count += 1
    return total / count


@pytest.mark.parametrize(("rule", "policy"), [("zero", sa.Steady()), ("drop", sa.P1RAGE())])
def test_two_messy_weeks_end_with_the_estimate_of_the_clean_log(
    rule: Any, policy: sa.Policy[Any]
) -> None:
    clock, rng = Clock(), np.random.default_rng(7)
    rules = {"budget": DAYS * VISITS, "clock": clock, "missing": rule, "reward_window": "2d"}
    live = create(arms=list("ABCD"), policy=policy, **rules)
    truth, in_time = run_weeks(live, clock, rng)
    clock.pass_(2 * WINDOW + 1)  # as long for what comes late
    live.refresh()
    status = live.status()
    assert sum(status.assigned) == DAYS * VISITS
    assert sum(status.rewarded) == len(in_time)
    assert 0.03 < 1 - len(in_time) / len(truth) < 0.1  # as many are missing as were meant to be
    assert status.observed == status.segments  # the policy has observed every segment
    assert status.segments > 20

    clean = {unit: truth[unit] for unit in in_time}
    verdict = live.recommend()
    np.testing.assert_allclose(verdict.estimates, estimates_of_log(live, clean, rule), rtol=1e-9)
    replayed = live.replay()
    assert replayed.agrees, replayed
    assert replayed.rewards == len(in_time)


def test_missing_rewards_fail_if_they_were_declared_to() -> None:
    clock = Clock()
    live = create(missing="fail", reward_window="1h", clock=clock, budget=100)
    given = [live.ask(f"u{i}") for i in range(100)]
    for answer in given[:-2]:
        live.tell(answer, 1.0)
    clock.pass_(2 * HOUR)
    live.stop()
    with pytest.raises(sa.RewardsPendingError, match="2 rewards"):
        live.recommend()
    assert "2 rewards are missing" in str(live.health())
