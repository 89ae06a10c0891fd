"""Segments of very many arms: checks notice where a storage forgets which arms they play."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.errors import InvalidInputError
from steadyarm.live.export import segment_from, segment_to
from steadyarm.segments import Segment
from steadyarm.storages import open_storage
from steadyarm.storages.records import SegmentRecord
from tests.live.few import LARGE, Few, reward_of
from tests.live.worlds import Clock
from tests.storages.bench import Open, shape_of
from tests.storages.test_rewards import (
    FIRST,
)


@pytest.mark.parametrize("arms", [None, FIRST[:3]])
def test_segments_come_back_from_json(arms: Any) -> None:
    segment = Segment(np.array([[0.1, 0.2, 0.7]]), np.array([9]), "blocks", 4, arms=arms)
    record = SegmentRecord(2, segment, True, False, 1, opened=5, handed=3)
    written = segment_to(record)
    read = segment_from(written).segment
    assert (read.arms is None) == (arms is None)
    assert read.arms is None or np.array_equal(read.arms, arms)
    assert np.array_equal(read.weights, segment.weights)
    with pytest.raises(InvalidInputError, match="rising"):
        segment_from(written | {"arms": [3, 2, 5]})
    with pytest.raises(InvalidInputError, match="expected shape"):
        segment_from(written | {"arms": [2, 5]})


def test_a_whole_test_is_the_same_in_every_storage(open_fresh: Open) -> None:
    """Few of 8,192 arms, with late rewards: as in memory."""
    ended = []
    for storage in (open_storage("memory"), open_fresh()):
        clock = Clock()
        live = sa.create_experiment(
            "page",
            LARGE,
            Few(most=60),
            300,
            storage,
            seed=7,
            clock=clock,
            reward_window="1h",
            missing="zero",
        )
        waiting = []
        for i in range(300):
            waiting.append(live.ask(f"u{i}"))
            if len(waiting) > 25:
                given = waiting.pop(0)
                live.tell(given, reward_of(given.arm, i) / 3)
            clock.pass_(60)
        ended.append(live)
    here, there = (live.storage.snapshot(live.key, everything=True) for live in ended)
    assert ended[0].storage.log(ended[0].key) == ended[1].storage.log(ended[1].key)
    assert here.experiment.policy_state == there.experiment.policy_state
    for (one, tally), (other, counted) in zip(here.segments, there.segments, strict=True):
        assert shape_of(one) == shape_of(other)
        assert tally == counted
    assert len(here.segments) > 4
    assert {record.segment.columns for record, _ in there.segments} == {60}
    assert ended[0].status() == ended[1].status()
    assert ended[1].replay().agrees
