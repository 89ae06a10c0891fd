"""Streams that are made together have the bits of NumPy's generators, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyarm.segments import SHORT, Segment, arms_between
from steadyarm.streams import (
    numbers_to_shuffle,
    one_stream,
    raw_numbers,
    shuffle_each,
    uniform,
)

seeds = st.integers(0, 2**130) | st.integers(0, 2**32)
places = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)
firsts = st.integers(0, 2**32 - 8) | st.integers(0, 100)


@given(seeds, places, firsts, st.integers(1, 8), st.integers(1, 13))
def test_numbers_are_those_of_numpy(
    seed: int, place: tuple[int, ...], first: int, streams: int, count: int
) -> None:
    made = raw_numbers(seed, place, first, first + streams, count)
    for i in range(streams):
        alone = one_stream(seed, *place, first + i)
        assert made[:count, i].tolist() == alone.bit_generator.random_raw(count).tolist()
        assert uniform(made[:1, i]) == one_stream(seed, *place, first + i).random()


@given(seeds, firsts, st.integers(1, 40), st.sampled_from([np.uint8, np.uint16, np.int64]))
def test_shuffles_are_those_of_numpy(seed: int, first: int, m: int, kind: type) -> None:
    n = 8
    rows: Any = np.repeat(np.arange(m, dtype=kind)[:, None], n, axis=1)
    missing = shuffle_each(rows, raw_numbers(seed, (1,), first, first + n, numbers_to_shuffle(m)))
    for i in np.flatnonzero(~missing):
        expected: Any = np.arange(m, dtype=kind)
        one_stream(seed, 1, first + int(i)).shuffle(expected)
        assert rows[:, i].tolist() == expected.tolist()


def test_numbers_that_do_not_suffice_are_reported() -> None:
    m, n = 12, 400
    enough = shuffle_each(np.zeros((m, n)), raw_numbers(3, (), 0, n, 4 * m))
    assert not enough.any()
    usual = shuffle_each(np.zeros((m, n)), raw_numbers(3, (), 0, n, numbers_to_shuffle(m))[:9])
    few = np.repeat(np.arange(m)[:, None], n, axis=1)
    missing = shuffle_each(few, raw_numbers(3, (), 0, n, 8)[:7])
    assert usual.sum() < missing.sum() < n
    for i in np.flatnonzero(~missing):
        expected = np.arange(m)
        one_stream(3, int(i)).shuffle(expected)
        assert few[:, i].tolist() == expected.tolist()


def block_alone(weights: np.ndarray, length: int, seed: int, index: int, block: int) -> list[int]:
    """One block as it is defined: ticks in shares, then NumPy's shuffle."""
    stream = one_stream(seed, index, block)
    ticks = (np.arange(length) + stream.random()) / length
    ends = np.cumsum(weights)
    arms = np.searchsorted(ends / ends[-1], ticks, side="right")
    drawn = np.minimum(arms, np.flatnonzero(weights)[-1])
    stream.shuffle(drawn)
    return [int(arm) for arm in drawn]


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any),
    st.integers(1, SHORT + 20),
    st.integers(0, 2**63 - 1),
    st.integers(0, 5000) | st.just(2**32 - 30),
)
def test_blocks_drawn_together_are_blocks_drawn_alone(
    shares: list[int], length: int, seed: int, first: int
) -> None:
    weights = np.array(shares, dtype=float) / sum(shares)
    segment = Segment(weights[None], np.array([2**53]), "blocks", block=length)
    drawn = arms_between(segment, seed, 4, first * length, (first + 60) * length).reshape(60, -1)
    for i in range(60):
        assert drawn[i].tolist() == block_alone(weights, length, seed, 4, first + i)
