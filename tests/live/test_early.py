"""Allocations that rest on the rewards so far, while others are still missing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.estimators import rewards_so_far
from steadyarm.live import decisions
from steadyarm.live.export import read_export
from steadyarm.segments import Segment, SegmentStats
from steadyarm.storages import open_storage
from steadyarm.storages.records import SegmentRecord, place_of
from tests.live.tampering import tamper_with_segment
from tests.live.worlds import DAY, Shop, arms_of, check_segments, records_of


def one_of_two(name: str) -> float:
    """C is best, B follows, nobody buys from A and D."""
    return {"B": 0.4, "C": 0.6}.get(name, 0.05)


def played(
    until: int = 9,
    rate: Callable[[str], float] = one_of_two,
    days: int = 6,
    visits: int = 80,
    **settings: Any,
) -> sa.Experiment:
    """A test of some visits a day whose purchases come one or two days later, within three.

    until : the day before which visits and purchases come
    """
    rules: dict[str, Any] = {"control": None, "seed": 5, "missing": "zero", "reward_range": (0, 1)}
    rules |= {"reward_window": "3d", "reward_grace": 0} | settings
    shop = Shop(**{"arms": list("ABCD"), "budget": days * visits} | rules)
    rng = np.random.default_rng(4)

    def buy(shown: sa.LiveAssignment) -> None:
        if rng.random() < rate(shown.name):
            shop.later(shown, int(rng.integers(1, 3)) * DAY)

    for day in range(until):
        if day < days:
            shop.visit(visits, buy, every=0, group=visits)
        shop.wait(1)
    return shop.test


@pytest.mark.parametrize("policy", [sa.Steady(), sa.P1RAGE(), sa.P1()], ids=lambda p: p.name)
def test_shares_move_before_the_first_window_ends(policy: sa.Policy[Any]) -> None:
    live = played(until=3, visits=160, policy=policy)
    records = records_of(live)
    early = [record for record in records if record.early]
    assert all(record.policy_version == 0 for record in records)  # nothing is complete yet
    assert early[0].index > 0
    assert not any(record.carried_on for record in early)
    first, *later = (each.segment.weights[0] for each in (records[0], *early))
    assert max(share[1] + share[2] for share in later) > first[1] + first[2] + 0.02
    assert all((share >= first / 2).all() for share in later)  # half of what is planned stays
    assert len(records) < 70  # although P1 decides after every round
    assert live.replay().agrees, live.replay()


@pytest.mark.parametrize(
    ("missing", "direction"), [("zero", "maximize"), ("drop", "minimize"), ("fail", "maximize")]
)
def test_whole_tests_are_replayed_and_come_back_from_an_export(
    missing: str, direction: str, tmp_path: Path
) -> None:
    with closing(open_storage(f"sqlite:///{tmp_path / 'tests.db'}")) as storage:
        live = played(missing=missing, direction=direction, storage=storage)
        assert any(record.early for record in records_of(live))
        assert live.replay().agrees, live.replay()
        if missing == "zero":
            assert live.recommend().name == "C"
        exported = read_export(live.export(tmp_path / "log.csv")).snapshot
        check_segments(exported, live.storage.snapshot(live.key, everything=True))


def test_without_any_reward_the_first_allocation_is_carried_on() -> None:
    live = played(rate=lambda name: 0.0)
    records = records_of(live)
    assert not any(record.early for record in records)
    for record in records:
        np.testing.assert_array_equal(record.segment.weights, records[0].segment.weights)
    assert live.replay().agrees
    assert live.status().observed == len(records)


@pytest.mark.parametrize("missing", ["zero", "drop"])
@pytest.mark.parametrize("policy", [sa.Steady(), sa.P1RAGE()], ids=lambda p: p.name)
def test_rewards_of_one_variant_alone_do_not_end_the_others(
    policy: sa.Policy[Any], missing: str
) -> None:
    live = played(4, lambda name: 0.6 * (name == "B"), 4, 300, policy=policy, missing=missing)
    early = [record for record in records_of(live) if record.early]
    assert early
    for record in early:
        assert record.segment.weights.min() > 0.09  # of 0.125, in whole blocks
    assert live.replay().agrees, live.replay()


@pytest.mark.parametrize("missing", ["zero", "drop"])
@pytest.mark.parametrize("ended", [False, True])
def test_corrections_of_early_rewards_are_replayed(missing: str, ended: bool) -> None:
    live = played(until=9 if ended else 3, missing=missing)
    used = {each.segment for record in records_of(live) for each in record.early or ()}
    rows = [row for row in live.storage.log(live.key) if row.reward and not row.excluded]
    rows = [row for row in rows if place_of(row.number)[0] in used]
    for row in rows[:6]:
        live.void(row.unit, reason="a test order")
    for row in rows[6:17]:
        live.exclude(unit=row.unit, reason="a bot")
    assert len(rows) > 12
    assert live.replay().agrees, live.replay()


@pytest.mark.parametrize("forgotten", [False, True])
def test_replay_finds_what_was_changed(forgotten: bool) -> None:
    live = played()
    early = [record for record in records_of(live) if record.early]
    chosen = [each.index for each in early if np.ptp(each.segment.weights) > 0.1]

    def change(record: SegmentRecord) -> SegmentRecord:
        first, *others = record.early or ()
        more = first._replace(sums=(first.sums[0] + 90.0, *first.sums[1:]))
        return replace(record, early=None if forgotten else (more, *others))

    tamper_with_segment(live, chosen[len(chosen) // 3], change)
    assert "differs in its" in str(live.replay())


@pytest.mark.parametrize("why", ["no propensities", "a large set", "too many numbers"])
def test_others_carry_on_their_allocation(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"policy": sa.Steady()}
    if why == "no propensities":
        settings["policy"] = sa.TopTwoThompson()
    elif why == "a large set":
        factors = {f"f{i}": ["0", "1"] for i in range(16)}
        settings["arms"] = sa.ArmSet.factorial(factors, interactions=1)
        assert settings["arms"].large
    else:
        monkeypatch.setattr(decisions, "MOST_EARLY", 11)
    live = played(until=3, rate=lambda name: 0.5, **settings)
    records = records_of(live)
    assert not any(record.early for record in records)
    assert any(record.carried_on for record in records)
    assert live.replay().agrees, live.replay()


def test_estimates_stay_unbiased_although_the_best_one_is_slow() -> None:
    """Shares follow what has come so far, in which the best looks worst; estimates do not."""
    policy, arms, trials = sa.Steady(order="iid"), arms_of(3), 4000
    rng, rounds, parts, wait = np.random.default_rng(8), 30, 20, 10
    drift = 0.3 * np.sin(np.arange(parts))
    rewards = np.stack([0.7 + drift, np.full(parts, 0.3), 0.31 - drift])
    state = policy.start(arms, rounds * parts, trials)
    played = list[tuple[Segment, SegmentStats]]()
    for part in range(parts):
        scratch = state
        for segment, stats in played[-wait:]:
            late = np.array([False, True, True])  # of the first they come when the segment is over
            sums = np.where(late, stats.sums, 0.0)
            known = SegmentStats(stats.counts, sums, sums)
            X = policy.features(arms)
            scratch = policy.observe(scratch, *rewards_so_far(X, segment, known, scratch.theta))
        planned = policy.next_segment(scratch)
        assert planned is not None
        segment = replace(planned.lasting(rounds), reference=state.theta)
        counts = rng.multinomial(rounds, segment.weights)
        stats = SegmentStats(counts, counts * rewards[:, part], counts * rewards[:, part] ** 2)
        played.append((segment, stats))
        if part >= wait:
            state = policy.observe(state, *played[part - wait])
    for segment, stats in played[parts - wait :]:
        state = policy.observe(state, segment, stats)
    assert np.mean([segment.weights[:, 0].mean() for segment, _ in played]) < 0.3
    assert (state.played == rounds * parts).all()
    estimates = policy.recommend(state).estimates
    error = estimates.std(axis=0, ddof=1) / trials**0.5
    assert (np.abs(estimates.mean(axis=0) - rewards.mean(axis=1)) < 4 * error).all()
    assert (error < 0.01).all()
