"""Samples of distinct vectors: uniform, whatever the order and the repetitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import steadyarm as sa
from steadyarm.paper.yahoo_log import DistinctSample


def test_order_repetition_and_splitting_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    stream = rng.normal(size=(300, 3)).round(1)
    empty = DistinctSample.empty(columns=3, size=40, seed=9)
    whole = empty.add(stream)
    again = empty
    for part in np.array_split(rng.permutation(np.repeat(stream, 3, axis=0)), 17):
        again = again.add(part)
    merged = empty.add(stream[:100]).merge(empty.add(stream[100:]))
    for other in (again, merged):
        np.testing.assert_array_equal(other.vectors, whole.vectors)
    assert len(np.unique(whole.vectors, axis=0)) == 40


def test_every_distinct_vector_has_the_same_chance() -> None:
    # vector k comes k + 1 times; a sample of lines would favour late ones
    stream = np.repeat(np.arange(20.0), np.arange(1, 21)).reshape(-1, 1)
    seen = np.zeros(20)
    for seed in range(600):
        kept = DistinctSample.empty(columns=1, size=5, seed=seed).add(stream).vectors
        seen[kept.astype(np.int64).ravel()] += 1
    assert seen.sum() == 600 * 5
    statistic = ((seen - 150) ** 2 / (150 * 0.75)).sum() * 19 / 20
    assert statistic < stats.chi2.ppf(0.9999, 19)


def test_zero_has_one_sign_and_short_streams_are_kept_whole() -> None:
    sample = DistinctSample.empty(columns=2, size=10, seed=0)
    assert len(sample.add(np.array([[0.0, 1.0], [-0.0, 1.0]])).vectors) == 1


def test_errors() -> None:
    with pytest.raises(sa.InvalidInputError, match="size of the sample is 0"):
        DistinctSample.empty(columns=1, size=0, seed=0)
    with pytest.raises(sa.InvalidInputError, match="same size and seed"):
        DistinctSample.empty(1, 5, 0).merge(DistinctSample.empty(1, 5, 1))
