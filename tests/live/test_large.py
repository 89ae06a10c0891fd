"""Live tests of large arm sets: few arms at a time, and the same as with a column for every arm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.live.decisions import load_state
from steadyarm.live.export import read_export
from steadyarm.live.results import compute_results
from steadyarm.storages.storage import segment_row
from tests.live.few import LARGE, Few, FewState, reward_of
from tests.live.worlds import Clock, create

SMALL = sa.ArmSet.from_features(
    np.random.default_rng(3).integers(-3, 4, (200, 5)) + np.eye(200, 5), names=None
)
SETS = {"small": SMALL, "large": LARGE}


def played(budget: int = 400, share: float = 0.75, **settings: Any) -> sa.Experiment:
    """A test in full swing: rewards come late and not all of them."""
    live = create(
        arms=LARGE, policy=settings.pop("policy", Few()), budget=budget, clock=Clock(), **settings
    )
    waiting = []
    for i in range(int(budget * share)):
        waiting.append(live.ask(f"u{i}"))
        if len(waiting) > 30:
            answer = waiting.pop(0)
            live.tell(answer, reward_of(answer.arm, i))
    return live


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
    found = []
    for few in (True, False):
        clock = Clock()
        live = create(
            arms=arms,
            policy=Few(few),
            budget=240,
            missing=missing,
            reward_window="1h",
            control={arms.names[4]: 0.2},
            min_share={arms.names[9]: 0.05},
            clock=clock,
        )
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
    states = [
        load_state(live.settings, pair.experiment.policy_state)
        for live, pair in zip(found, pairs, strict=True)
    ]
    moments = [state.moment for state in states if isinstance(state, FewState)]
    assert np.array_equal(moments[0], moments[1])
    said = [
        compute_results(live.settings, pair, (), live.now())
        for live, pair in zip(found, pairs, strict=True)
    ]
    assert [piece.recorded for piece in said[0].pieces] == [
        piece.recorded for piece in said[1].pieces
    ]
    assert [piece.zeros for piece in said[0].pieces] == [piece.zeros for piece in said[1].pieces]
    assert found[0].status() == found[1].status()
    assert found[0].status().total_assigned == 240


def test_what_is_stored_does_not_grow_with_the_arms(tmp_path: Path) -> None:
    live = played(missing="drop")
    snapshot = live.storage.snapshot(live.key, everything=True)
    assert len(json.dumps(snapshot.experiment.config)) < 2_000
    exported = read_export(live.export(tmp_path / "log.csv")).snapshot
    for (record, tally), (stored, counted) in zip(
        exported.segments, snapshot.segments, strict=True
    ):
        assert segment_row(1, record) == segment_row(1, stored)
        assert tally == counted
    assert {len(tally.sums) for _, tally in snapshot.segments} == {40}


def test_the_state_of_many_separate_variants_is_short() -> None:
    names = [f"v{i}" for i in range(2000)]
    live = sa.create_experiment("many", names, sa.Steady(), 100_000, "memory", missing="drop")
    live.tell(live.ask("visitor"), 1.0)
    stored = live.storage.find("many").policy_state
    assert len(json.dumps(stored)) < 1e6  # two matrices of 2,000 by 2,000 numbers, mostly zeros
    state = live.settings.policy.state_type.from_dict(stored["state"], live.arms)
    assert state.to_dict() == stored["state"]
