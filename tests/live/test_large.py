"""Live tests of large arm sets: few arms at a time, and the same as with a column for every arm."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.live.export import read_export
from steadyarm.live.results import compute_results
from steadyarm.policies import Policy, Recommendations, State
from steadyarm.segments import Segment, SegmentStats
from tests.live.worlds import Clock, check_segments, create

LARGE = sa.ArmSet.factorial({f"s{i}": ["off", "on"] for i in range(13)})  # 8,192 arms
SMALL = sa.ArmSet.from_features(
    np.random.default_rng(3).integers(-3, 4, (200, 5)) + np.eye(200, 5), names=None
)
SETS = {"small": SMALL, "large": LARGE}


@dataclass(frozen=True)
class FewState(State):
    """`moment` is the sum of coordinates times rewards: all that the policy remembers."""

    moment: NDArray[np.float64]


@dataclass(frozen=True)
class Few(Policy[FewState]):
    """Which arms are played, and how often, depends on what was told.

    few : False for dense segments with zeros, which must be the same in all that follows
    most : arms of a segment
    """

    few: bool = True
    most: int = 40

    name: ClassVar[str] = "Few"
    waits: ClassVar[bool] = False
    state_type: ClassVar[type[State]] = FewState

    def start(self, arms: sa.ArmSet, budget: int, trials: int = 1, seed: int = 0) -> FewState:
        none = np.zeros(1, dtype=np.int64)
        return FewState(arms, budget, none, none[None].copy(), np.zeros((1, arms.rank)))

    def next_segment(self, state: FewState) -> Segment | None:
        played, K = int(state.played[0]), state.arms.size
        if played >= state.budget:
            return None
        told = int(np.abs(state.moment).sum() * 64) % 97  # exact: rewards are multiples of 1/64
        arms = np.unique((np.arange(self.most) * 7919 + 131 * told) % K).astype(np.int64)
        weights = np.arange(1.0, arms.size + 1)[None]
        weights /= weights.sum()
        rounds = np.array([min(state.budget // 4, state.budget - played)])
        if self.few:
            return Segment(weights, rounds, "blocks", 16, arms=arms)
        dense = np.zeros((1, K))
        dense[:, arms] = weights
        return Segment(dense, rounds, "blocks", 16)

    def observe(self, state: FewState, segment: Segment, stats: SegmentStats) -> FewState:
        moment = stats.sums @ state.arms.coordinates_of(segment.arms)
        return replace(state, played=state.played + segment.rounds, moment=state.moment + moment)

    def recommend(self, state: FewState) -> Recommendations:
        estimates = state.arms.values(state.moment[0] / max(int(state.played[0]), 1))[None]
        return Recommendations(estimates.argmax(axis=1), estimates, np.ones_like(estimates))


def reward_of(arm: int, number: int) -> float:
    """Multiples of 1/64, so that sums are exact in any order."""
    return ((arm * 37 + number * 11) % 64) / 64


def shown(live: sa.Experiment) -> list[tuple[Any, ...]]:
    return [
        (row.number, row.unit, row.arm, row.probability, row.reward)
        for page in live.storage.pages(live.key)
        for row in page
    ]


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("missing", ["zero", "drop"])
def test_few_columns_give_the_same_test_as_all(kind: str, missing: Any) -> None:
    arms = SETS[kind]
    found, pieces = [], list[Any]()
    for few in (True, False):
        clock = Clock()
        rules: dict[str, Any] = {"missing": missing, "reward_window": "1h", "clock": clock}
        shares = {"control": {arms.names[4]: 0.2}, "min_share": {arms.names[9]: 0.05}}
        live = create(arms=arms, policy=Few(few), budget=240, **rules | shares)
        for i in range(240):
            answer = live.ask(f"u{i}")
            assert answer.name == arms.names[answer.arm]
            if i % 7:
                live.tell(answer, reward_of(answer.arm, i))
            clock.pass_(30)
        clock.pass_(7200)
        live.refresh()
        assert live.replay().agrees
        found.append(live)
    assert shown(found[0]) == shown(found[1])
    pairs = [live.storage.snapshot(live.key, everything=True) for live in found]
    assert pairs[0].experiment.policy_state == pairs[1].experiment.policy_state
    for (one, tally), (other, whole) in zip(pairs[0].segments, pairs[1].segments, strict=True):
        columns = one.segment.arms
        assert columns is not None
        assert other.segment.arms is None
        assert 40 <= one.segment.columns <= 42
        for name in ("assigned", "rewarded", "sums", "squares"):
            wide = np.zeros(arms.size, dtype=object)
            wide[columns] = getattr(tally, name)
            assert tuple(wide) == getattr(whole, name)
    for live, pair in zip(found, pairs, strict=True):
        pieces.append(compute_results(live.settings, pair, (), live.now()).pieces)
    for one, other in zip(*pieces, strict=True):
        assert (one.recorded, one.zeros) == (other.recorded, other.zeros)
    assert found[0].status() == found[1].status()
    assert found[0].status().total_assigned == 240


def test_what_is_stored_does_not_grow_with_the_arms(tmp_path: Path) -> None:
    live = create(arms=LARGE, policy=Few(), budget=400)
    answers = [live.ask(f"u{i}") for i in range(300)]
    live.tell_many((answer, reward_of(answer.arm, 1)) for answer in answers[:270])
    snapshot = live.storage.snapshot(live.key, everything=True)
    assert len(json.dumps(snapshot.experiment.config)) < 2_000
    exported = read_export(live.export(tmp_path / "log.csv")).snapshot
    check_segments(exported, snapshot)
    assert {len(tally.sums) for _, tally in snapshot.segments} == {40}


def test_the_state_of_many_separate_variants_is_short() -> None:
    names = [f"v{i}" for i in range(2000)]
    live = sa.create_experiment("many", names, sa.Steady(), 100_000, "memory", missing="drop")
    live.tell(live.ask("visitor"), 1.0)
    stored = live.storage.find("many").policy_state
    assert len(json.dumps(stored)) < 1e6  # two matrices of 2,000 by 2,000 numbers, mostly zeros
    state = live.settings.policy.state_type.from_dict(stored["state"], live.arms)
    assert state.to_dict() == stored["state"]
