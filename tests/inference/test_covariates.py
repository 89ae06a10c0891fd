"""Intervals of adjusted rewards: right for values, too, which covariates move all at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import steadyarm as sa
from benchmarks.coverage_covariates import evidence_of, worlds
from steadyarm.inference import Evidence, fixed_budget
from steadyarm.inference.intervals import variance_kept
from steadyarm.segments import Segment, SegmentStats

TESTS = 300


@pytest.mark.parametrize("name", ["still", "trends"])
def test_values_and_gaps_are_covered_with_a_covariate(name: str) -> None:
    world = worlds(300)[name]
    evidence, raw = evidence_of(sa.Steady(), world.with_covariate(0.8), TESTS, seed=2)
    found, truth = fixed_budget(evidence), world.average
    least = binom.isf(0.999, TESTS, 0.945)
    assert ((found.low <= truth) & (truth <= found.high)).all(axis=1).sum() > least
    gap = truth[found.recommended][:, None] - truth
    assert ((found.gap_low <= gap) & (gap <= found.gap_high)).all(axis=1).sum() > least
    other = fixed_budget(raw)
    width, before = (np.median((i.gap_high - i.gap_low).max(axis=1)) for i in (found, other))
    assert width < 0.75 * before  # 0.6 with known slopes


def test_what_arms_share_widens_values_and_no_gap() -> None:
    arms = sa.ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.9, 0.5]])
    flat = sa.ArmSet.one_hot(["A", "B", "C"])
    rng = np.random.default_rng(1)
    segment = Segment(np.array([[0.5, 0.25, 0.25]]), np.array([80]), "blocks", block=8)
    counts, sums = np.array([[40, 20, 20]]), rng.normal(size=(1, 3))
    stats = SegmentStats(counts, sums, counts + sums**2)
    for variants in (arms, flat):
        plain = Evidence.from_segments(variants, [(segment, stats)])
        wide = Evidence.from_segments(variants, [(segment, stats)], levels=[np.array([50.0])])
        assert np.array_equal(plain.scores, wide.scores)
        assert plain.within is not None
        assert wide.within is not None
        more = (wide.within - plain.within)[0, 0]
        assert np.allclose(more, (wide.squares - plain.squares)[0, 0])
        assert np.linalg.matrix_rank(more) == 1
    assert np.allclose(more, 50.0)  # arms that share nothing: the same for each
    one, other = (fixed_budget(each) for each in (plain, wide))
    assert np.allclose(one.gap_high - one.gap_low, other.gap_high - other.gap_low, rtol=0.01)
    assert (other.standard_errors > one.standard_errors).all()


def test_the_share_of_the_variance_that_is_kept() -> None:
    segment = Segment(np.array([[0.5, 0.5]]), np.array([80]), "blocks", block=8)
    counts, zero = np.array([[40, 40]]), np.zeros((1, 2))
    arms = sa.ArmSet.one_hot(["A", "B"])
    raw, half = (
        Evidence.from_segments(arms, [(segment, SegmentStats(counts, zero, size * counts))])
        for size in (2.0, 1.0)
    )
    assert variance_kept(half, raw) == pytest.approx(0.5)
    assert variance_kept(raw, raw) == 1.0
    assert variance_kept(half, replace(raw, squares=0 * raw.squares, within=None)) is None
