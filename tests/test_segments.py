"""Segments: draws by position, blocks, and statistics that add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

import steadyarm as sa
from steadyarm.segments import Order, Segment, SegmentStats, arms_between


@given(
    st.sampled_from(["iid", "shuffled", "blocks"]),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 2**70),
)
def test_any_range_of_positions_can_be_drawn_alone(
    order: Order, start: int, length: int, seed: int
) -> None:
    segment = Segment(np.array([[0.1, 0.5, 0.0, 0.4]]), np.array([100]), order, block=7)
    whole = arms_between(segment, seed, 3, 0, 100)
    assert np.array_equal(
        arms_between(segment, seed, 3, start, start + length), whole[start : start + length]
    )


def test_independent_draws_follow_the_weights() -> None:
    weights = np.array([0.1, 0.5, 0.0, 0.4])
    segment = Segment(weights[None], np.array([40_000]))
    arms = arms_between(segment, seed=1, index=0, start=0, stop=40_000)
    counts = np.bincount(arms, minlength=4)
    assert counts[2] == 0
    assert chisquare(counts[[0, 1, 3]], 40_000 * weights[[0, 1, 3]]).pvalue > 1e-3


def test_a_shuffled_segment_plays_exact_counts_in_random_order() -> None:
    counts = np.array([[3, 0, 5]])
    segment = Segment.shuffled(counts)
    first = [arms_between(segment, seed, 0, 0, 1)[0] for seed in range(4000)]
    assert chisquare(np.bincount(first, minlength=3)[[0, 2]], [1500, 2500]).pvalue > 1e-3
    arms = arms_between(segment, seed=5, index=1, start=0, stop=8)
    assert np.array_equal(np.bincount(arms, minlength=3), counts[0])


def test_other_seeds_and_other_segments_give_other_draws() -> None:
    segment = Segment(np.full((1, 2), 0.5), np.array([64]))
    draws = {arms_between(segment, s, i, 0, 64).tobytes() for s in range(5) for i in range(5)}
    assert len(draws) == 25


def test_only_a_batch_of_one_is_live() -> None:
    with pytest.raises(sa.InvalidInputError, match="batch of 2"):
        arms_between(Segment(np.full((2, 2), 0.5), np.array([1, 1])), 0, 0, 0, 1)


def test_statistics_add_up() -> None:
    a = SegmentStats(np.array([[1, 2]]), np.array([[0.5, 1.0]]), np.array([[0.25, 0.6]]))
    b = SegmentStats.empty(1, 2)
    assert np.array_equal((a + b).sums, a.sums)
    assert np.array_equal((a + a).counts, [[2, 4]])
    assert (a + SegmentStats(a.counts, a.sums)).squares is None
    assert np.array_equal(a.negate().sums, [[-0.5, -1.0]])


def test_blocks_play_every_arm_its_share_rounded_up_or_down() -> None:
    weights = np.array([0.13, 0.0, 0.5, 0.37])
    segment = Segment(weights[None], np.array([8 * 500]), "blocks", block=8)
    arms = arms_between(segment, seed=3, index=1, start=0, stop=4000).reshape(500, 8)
    counts = np.array([np.bincount(row, minlength=4) for row in arms])
    assert (np.abs(counts - 8 * weights) < 1).all()
    # every position has the weights as its marginal
    for position in range(8):
        seen = np.bincount(arms[:, position], minlength=4)[[0, 2, 3]]
        assert chisquare(seen, 500 * weights[[0, 2, 3]]).pvalue > 1e-3
