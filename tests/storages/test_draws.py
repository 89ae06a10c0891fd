"""What is drawn is kept within a bound, in arrays of its own, and is right whoever comes when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm import segments
from steadyarm.segments import Draws, Segment, arms_between
from steadyarm.storages import open_storage

WEIGHTS = np.array([[0.5, 0.3, 0.2]])
SEGMENTS = [
    Segment(WEIGHTS, np.array([20_000]), "iid"),
    Segment(WEIGHTS, np.array([20_000]), "blocks", 7),
    Segment(WEIGHTS, np.array([20_000]), "blocks", 3000),
    Segment.shuffled(np.array([[9000, 5000, 6000]])),
]


@pytest.mark.parametrize("kept", [1, 5000, segments.CACHED])
def test_memory_is_bounded_and_changes_nothing(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "CACHED", kept)
    monkeypatch.setattr(segments, "LENGTHS", 2)  # of four
    kept_draws, rng = Draws(), np.random.default_rng(1)
    whole = [arms_between(part, 9, i, 0, 20_000) for i, part in enumerate(SEGMENTS)]
    for _ in range(60):
        index, start = int(rng.integers(4)), int(rng.integers(19_900))
        places = [(index, position) for position in range(start, start + 100)]
        found = kept_draws.at(1, 9, places, SEGMENTS.__getitem__)
        assert [arm for arm, _ in found] == whole[index][start : start + 100].tolist()
        chunks = list(kept_draws._chunks.values())
        assert all(chunk.columns.base is None for chunk in chunks)  # no view keeps more alive
        assert kept_draws.kept == sum(chunk.size for chunk in chunks)
        assert kept_draws.kept <= kept or len(chunks) == 1


@pytest.mark.parametrize(
    ("policy", "budget", "told"),
    [
        (sa.Uniform(), 2**32 + 1, "expected at most 4,294,967,296"),
        (sa.SequentialHalving(), 10**9, "expected at most 67,108,864"),
        (sa.Steady(block=10**8), 10**9, "shorter blocks"),
    ],
)
def test_a_budget_that_cannot_be_served_is_refused(
    policy: sa.Policy[Any], budget: int, told: str
) -> None:
    memory = open_storage("memory")
    with pytest.raises(sa.InvalidInputError, match=told):
        sa.create_experiment("large", ["A", "B"], policy, budget, memory, missing="drop")
    assert not memory.summaries()
    sa.create_experiment("fits", ["A", "B"], policy, 10**5, memory, missing="drop").ask("u")
