"""Corrections: verdicts follow at once, replay agrees and shows them, exports bring them along."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.inference import Evidence
from steadyarm.live.scorecard import compute_scorecard
from steadyarm.segments import SegmentStats
from steadyarm.storages.records import LogRow, place_of
from tests.live.worlds import Clock, create, records_of

WHY = "a monitor of our own"


def played(visits: int = 240, loves: str = "C", **settings: Any) -> sa.Experiment:
    """A test of three variants, B the best; every tenth visit is a bot's, with huge rewards."""
    live = create(**{"budget": 240, "sticky": "none"} | settings)
    rng = np.random.default_rng(3)
    for i in range(visits):
        bot = i % 10 == 3
        answer = live.ask("bot" if bot and live.settings.sticky == "none" else f"u{i}")
        good = rng.normal({"A": 0.0, "B": 1.0, "C": 0.0}[answer.name], 0.5)
        live.tell(answer, 90.0 if bot and answer.name in loves else float(good))
    return live


def check_evidence(live: sa.Experiment, left_out: Callable[[LogRow], bool]) -> None:
    """All is concluded from what the log says, as if some visits had never been."""
    rows = [row for row in live.storage.log(live.key) if not left_out(row)]
    pieces = []
    for record in records_of(live):
        mine = [row for row in rows if place_of(row.number)[0] == record.index]
        arms, rewards = [row.arm for row in mine], np.array([row.reward for row in mine], float)
        counts = np.bincount(arms, minlength=3)[None]
        sums = np.bincount(arms, rewards, minlength=3)[None].astype(float)
        squares = np.bincount(arms, rewards**2, minlength=3)[None].astype(float)
        pieces.append((record.segment.lasting(len(mine)), SegmentStats(counts, sums, squares)))
    expected, evidence = Evidence.from_segments(live.arms, pieces), live.results().evidence
    for name in ("rounds", "scores", "squares", "within", "weights", "references"):
        found, hand_made = getattr(evidence, name), getattr(expected, name)
        assert (found is None) == (hand_made is None), name
        if found is not None:
            np.testing.assert_allclose(found, hand_made, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("policy", [sa.Steady(), sa.P1RAGE()], ids=lambda p: p.name)
def test_without_the_bot_all_is_that_of_a_test_without_it(policy: Any) -> None:
    live = played(policy=policy)
    assert live.recommend().name == "C"
    check_evidence(live, lambda row: False)
    done = live.exclude(unit="bot", reason=WHY, by="ada")
    assert done.assignments == 24
    check_evidence(live, lambda row: row.unit == "bot")
    verdict = live.recommend()
    assert (verdict.name, verdict.judged, verdict.caution) == ("B", 216, "")
    assert verdict.unhealthy == ""
    assert "24 of 240 visits were excluded" in str(live.health())
    status = live.status()
    assert (status.total_assigned, status.total_rewarded, status.excluded) == (240, 216, 24)
    assert compute_scorecard(live).verdict.name == "B"  # type: ignore[union-attr]  # there is one
    replayed = live.replay()
    assert replayed.agrees, replayed
    assert (replayed.rewards, replayed.corrections) == (216, 1)
    assert "with 1 correction: all agree" in str(replayed)
    assert [(entry.id, entry.author, entry.action) for entry in live.corrections()] == [
        (done.entry, "ada", "visits.excluded")
    ]
    assert live.history()[0].action == "experiment.created"


def test_rewards_are_voided_and_told_again() -> None:
    live = played(visits=100, sticky="unit", reward_range=(-100, 100))
    expected = {row.number: row.reward for row in live.storage.log(live.key)}
    bad = next(row for row in live.storage.log(live.key) if row.reward == 90.0)
    live.void(bad.unit, reason="cents, not euros")
    expected[bad.number] = None
    last = live.ask("the last")
    live.tell(last, 1.0)
    live.void(last, reason="somebody else's")
    with pytest.raises(sa.RewardTooLateError):  # the policy has observed it
        live.tell(bad.unit, 0.25)
    live.tell(last.id, 0.5)
    expected[live.storage.log(live.key)[-1].number] = 0.5
    assert {row.number: row.reward for row in live.storage.log(live.key)} == expected
    with pytest.raises(TypeError):
        live.void(last)  # type: ignore[call-arg]  # a reason is needed
    replayed = live.replay()
    assert replayed.agrees, replayed
    assert replayed.corrections == 2


def test_a_period_is_excluded_and_the_test_goes_on() -> None:
    clock = Clock()
    live = create(budget=60, clock=clock, reward_window="1h", missing="zero", reward_range=(0, 1))
    times = []
    for i in range(30):
        clock.pass_(60)
        live.tell(live.ask(f"u{i}"), float(i % 2))
        times.append(datetime.fromtimestamp(clock(), UTC))
    with pytest.raises(sa.InvalidInputError, match="in the future"):
        live.exclude(since=times[0], until=times[-1] + timedelta(days=1), reason=WHY)
    done = live.exclude(since=times[10], until=times[20], reason="the shop was down")
    assert done.assignments == 10
    for i in range(30, 60):
        clock.pass_(60)
        live.ask(f"u{i}")
    clock.pass_(3 * 3600)
    live.refresh()
    status = live.status()
    assert (status.total_assigned, status.total_rewarded) == (60, 20)
    assert status.observed == status.segments
    verdict = live.recommend()
    assert (verdict.judged, verdict.missing) == (50, 30)  # 30 zeros; excluded ones are none
    assert live.replay().agrees


@pytest.mark.parametrize("policy", [sa.SequentialHalving(), sa.TopTwoThompson()])
def test_policies_that_leave_variants_out_say_what_a_correction_cannot_tell(policy: Any) -> None:
    live = played(policy=policy)
    caution = live.recommend().caution
    live.exclude(unit="bot", reason=WHY)  # B was kept all the same
    after = live.recommend()
    assert (after.name, after.caution) == ("B", caution)
    assert live.replay().agrees
    live = played(policy=policy, loves="AC")
    wrong = live.recommend().name
    assert wrong != "B"
    live.exclude(unit="bot", reason=WHY)
    after = live.recommend()
    if policy.waits:  # B was dropped in the first round, and nobody has seen it since
        assert after.name == wrong
        assert "would have kept others" in after.caution
    else:
        assert (after.name, after.caution) == ("B", caution)
    assert live.replay().agrees


def test_a_test_of_which_all_is_excluded_says_so() -> None:
    live = played(visits=30)
    done = live.exclude(since=0, until=live.now(), reason="a rehearsal")
    assert done.assignments == 30
    for card in (live.recommend, live.health):
        with pytest.raises(sa.RewardsPendingError, match="all 30 visits so far were excluded"):
            card()
    assert (compute_scorecard(live).verdict, compute_scorecard(live).shares) == (None, None)
    assert live.replay().agrees
    live.tell(live.ask("the first"), 1.0)
    assert live.status().total_rewarded == 1
