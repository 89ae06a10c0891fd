"""Shuffled segments in live tests: exact numbers of plays, cut, continued and counted by days."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.inference import Evidence
from steadyarm.planning.question import EqualSplit
from steadyarm.policies import Policy, Recommendations, State
from steadyarm.policies.base import TallyState, best_arm, empty_tally, start_values
from steadyarm.segments import Segment, SegmentStats
from tests.live.worlds import Clock, arms_of, create, play_both, records_of

AB = sa.ArmSet.one_hot(["A", "B"])


@dataclass(frozen=True)
class Batches(Policy[TallyState]):
    """Shuffled batches of 12, more of the leader in each; need not wait."""

    name: ClassVar[str] = "Batches"
    waits: ClassVar[bool] = False
    state_type: ClassVar[type[State]] = TallyState

    def start(self, arms: sa.ArmSet, budget: int, trials: int = 1, seed: int = 0) -> TallyState:
        values = start_values(arms, budget, trials, seed, "random")
        return TallyState(**values, **empty_tally(trials, arms.size))

    def next_segment(self, state: TallyState) -> Segment | None:
        if (state.budget - state.played < 12).all():
            return None
        counts = np.full(state.counts.shape, 3)
        leader = self.recommend(state).arm
        counts[np.arange(state.trials), leader] += 12 - 3 * state.arms.size
        return Segment.shuffled(counts)

    def observe(self, state: TallyState, segment: Segment, stats: SegmentStats) -> TallyState:
        return state.after(segment, stats)

    def recommend(self, state: TallyState) -> Recommendations:
        means = state.sums / np.maximum(state.counts, 1)
        return Recommendations(best_arm(means, state.ties), means, None)


def test_a_whole_plan_with_rewards_outstanding_says_what_it_waits_for() -> None:
    session, live, played, ended = play_both(EqualSplit(), AB, 101, delay=1000)
    assert ended is sa.RewardsPendingError
    assert np.bincount(played).tolist() == [50, 50]
    with pytest.raises(
        sa.RewardsPendingError, match=r"fixed number of times.*missing: 100 \(of assignment 0, 1, 2"
    ):
        session.ask()
    with pytest.raises(sa.RewardsPendingError, match="fixed number of times"):
        live.ask("one more")
    assert live.replay().agrees
    for number in session.pending:
        session.tell(number, 1.0)
    with pytest.raises(sa.BudgetSpentError, match="has ended after 100 of 101"):
        session.ask()


@pytest.mark.parametrize("delay", [0, 5, 12, 20, 40])
def test_batches_go_on_in_whole_repetitions(delay: int) -> None:
    session, live, played, ended = play_both(Batches(), arms_of(3), 120, delay)
    assert ended is sa.BudgetSpentError
    assert len(played) == 120
    for start in range(0, 120, 12):  # every batch, planned or repeated, has its exact numbers
        assert sorted(np.bincount(played[start : start + 12], minlength=3)) == [3, 3, 6]
    records = records_of(live)
    assert any(record.carried_on for record in records) == (delay > 0)
    for record in records:
        assert record.segment.order == ("blocks" if record.carried_on else "shuffled")
        assert record.rounds % 12 == 0
    assert live.replay().agrees
    again = sa.Session.from_json(session.to_json(), policy=Batches())
    assert again.to_json() == session.to_json()


def test_a_plan_beyond_the_budget_is_cut_alike() -> None:
    """Of 100 plays 6 bring no reward; one assignment is left for the plays to be made again."""
    for seed in range(3):
        session = sa.Session(EqualSplit(), AB, 101, seed=seed)
        clock = Clock()
        rules: dict[str, Any] = {"reward_window": 60, "reward_grace": 0, "clock": clock}
        live = create(arms=AB, policy=EqualSplit(), budget=101, seed=seed, **rules)
        for i in range(100):
            mine, stored = session.ask(), live.ask(f"u{i}")
            assert mine.arm == stored.arm
            if i % 17 == 3:
                session.forget(mine)
            else:
                session.tell(mine, 1.0)
                live.tell(stored, 1.0)
        clock.pass_(120)
        assert session.ask().arm == live.ask("last").arm
        with pytest.raises(sa.BudgetSpentError):
            session.ask()
        assert live.replay().agrees


def orders(counts: tuple[int, int]) -> Iterator[np.ndarray[Any, Any]]:
    """Every order of the plays of two arms, as arms by position."""
    n = sum(counts)
    for places in combinations(range(n), counts[1]):
        arms = np.zeros(n, dtype=np.int64)
        arms[list(places)] = 1
        yield arms


@pytest.mark.parametrize("drift", ["none", "turns", "grows"])
@pytest.mark.parametrize("cut", [1, 3, 4])
def test_days_of_a_shuffled_segment_never_claim_too_little_variance(drift: str, cut: int) -> None:
    """Exact, over all 70 orders: the variances of both days cover that of their sum."""
    n, counts = 8, (4, 4)
    t = np.arange(n)
    swing = {"none": 0 * t, "turns": np.where(t < cut, 1.0, -1.0), "grows": t / n}[drift]
    table = np.stack([0.3 + swing, 0.1 - swing], axis=1)
    plan = Segment.shuffled(np.array([counts]))
    sums, claimed = [], []
    for arms in orders(counts):
        pieces = []
        for day in (slice(0, cut), slice(cut, n)):
            played = np.bincount(arms[day], minlength=2)[None]
            rewards = table[t[day], arms[day]]
            total, squares = (
                np.bincount(arms[day], rewards**power, minlength=2)[None].astype(np.float64)
                for power in (1, 2)
            )
            piece = plan.lasting(int(played.sum()))
            pieces.append((piece, SegmentStats(played, total, squares)))
        evidence = Evidence.from_segments(AB, pieces)
        assert evidence.within is not None
        sums.append(evidence.scores[0].sum(axis=0))
        claimed.append(evidence.within[0].sum(axis=0))
    true, mean = np.cov(np.array(sums).T, bias=True), np.mean(claimed, axis=0)
    assert np.linalg.eigvalsh(mean - true).min() > -1e-12
