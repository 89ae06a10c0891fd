"""Covariates: sums, slopes and adjusted rewards, against row by row computation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from steadyarm.covariates import (
    KEPT,
    Moments,
    Slopes,
    adjust_stats,
    covariate_row,
    validate_covariates,
)
from steadyarm.errors import InvalidInputError
from steadyarm.segments import SegmentStats

Floats = NDArray[np.float64]
Rows = tuple[NDArray[np.int64], Floats, Floats]  # columns, covariates with "known", rewards


def make_rows(
    seed: int,
    units: int = 60,
    arms: int = 3,
    beta: Sequence[float] = (0.8, -0.5),
    known: float = 1.0,
    noise: float = 1.0,
) -> Rows:
    """One segment; units that are not known have zeros, and rewards about a level of their own."""
    rng = np.random.default_rng(seed)
    z = np.column_stack([np.ones(units), rng.normal(3.0, 2.0, (units, len(beta)))])
    z[rng.random(units) >= known] = 0.0
    columns = rng.integers(0, arms, units)
    rewards = columns + z @ [1.0, *beta] + noise * rng.normal(size=units)
    return columns, z, rewards


def sums_of(rows: Rows, arms: int = 3) -> tuple[SegmentStats, Moments]:
    """Statistics of the rows; rewards that are nan are missing."""
    columns, z, rewards = rows
    there = np.isfinite(rewards)
    at, given = columns[there], rewards[there]
    counts = np.bincount(at, minlength=arms).astype(np.int64)
    sums, squares = np.zeros((2, arms))
    np.add.at(sums, at, given)
    np.add.at(squares, at, given**2)
    stats = SegmentStats(counts[None], sums[None], squares[None])
    return stats, Moments.of_rows(columns, z, rewards, arms)


def memory_of(segments: Sequence[Rows], arms: int = 3) -> Slopes:
    slopes = Slopes.none(1, segments[0][1].shape[1])
    for rows in segments:
        slopes = slopes.after(*sums_of(rows, arms))
    return slopes


def centred(segments: Sequence[Rows]) -> tuple[Floats, Floats]:
    """Covariates without "known" and rewards, around the mean of the same segment and arm."""
    z, r = [], []
    for columns, table, rewards in segments:
        for arm in np.unique(columns):
            own = columns == arm
            z.append(table[own, 1:] - table[own, 1:].mean(axis=0))
            r.append(rewards[own] - rewards[own].mean())
    return np.concatenate(z), np.concatenate(r)


def least_squares(segments: Sequence[Rows]) -> tuple[Floats, float]:
    """Slopes of the centred data, and how far they are shrunk."""
    z, r = centred(segments)
    beta: Floats = np.linalg.lstsq(z, r, rcond=None)[0].astype(np.float64)
    explained = float(((z @ beta) ** 2).sum())
    freedom = len(r) - sum(len(np.unique(columns)) for columns, _, _ in segments)
    variance = float(((r - z @ beta) ** 2).sum()) / (freedom - z.shape[1])
    return beta, max(0.0, 1 - z.shape[1] * variance / explained)


# Adjusted rewards


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_adjusted_sums_are_those_of_adjusted_rewards(missing: float) -> None:
    columns, z, rewards = make_rows(1)
    rewards[np.random.default_rng(2).random(len(rewards)) < missing] = np.nan
    beta = np.array([0.2, 0.7, -0.4])
    stats, moments = sums_of((columns, z, rewards))
    found = adjust_stats(stats, moments, beta[None])
    expected, _ = sums_of((columns, z, rewards - (z - z.mean(axis=0)) @ beta))
    assert np.array_equal(found.counts, expected.counts)
    assert np.allclose(found.sums, expected.sums, rtol=1e-12)
    assert np.allclose(found.squares, expected.squares, rtol=1e-11)  # type: ignore[arg-type]


def test_slopes_of_zero_leave_the_bits() -> None:
    stats, moments = sums_of(make_rows(3))
    found = adjust_stats(stats, moments, np.zeros((1, 3)))
    assert np.array_equal(found.sums, stats.sums)
    assert np.array_equal(found.squares, stats.squares)  # type: ignore[arg-type]


def test_squares_are_needed() -> None:
    stats, moments = sums_of(make_rows(3))
    bare = SegmentStats(stats.counts, stats.sums)
    with pytest.raises(InvalidInputError, match="squares=True"):
        adjust_stats(bare, moments, np.zeros((1, 3)))
    with pytest.raises(InvalidInputError, match="squares=True"):
        Slopes.none(1, 3).after(bare, moments)


# Slopes


def test_slopes_are_least_squares_inside_segments_and_arms() -> None:
    segments = [make_rows(seed, units=40) for seed in range(7)]
    beta, factor = least_squares(segments)
    found = memory_of(segments).fit()[0]
    assert found[0] == 0.0  # all are known, so that "known" is constant
    assert np.allclose(found[1:], factor * beta, rtol=1e-10)
    assert 0.99 < factor < 1


def test_where_arms_have_few_rewards_deviations_are_from_the_mean_of_the_segment() -> None:
    segments = [make_rows(seed, units=10, arms=40) for seed in range(20)]
    z = np.concatenate([rows[1][:, 1:] - rows[1][:, 1:].mean(axis=0) for rows in segments])
    r = np.concatenate([rows[2] - rows[2].mean() for rows in segments])
    beta = np.linalg.lstsq(z, r, rcond=None)[0]
    explained = ((z @ beta) ** 2).sum()
    variance = ((r - z @ beta) ** 2).sum() / (20 * 9 - 2)
    found = memory_of(segments, arms=40).fit()[0, 1:]
    assert np.allclose(found, (1 - 2 * variance / explained) * beta, rtol=1e-10)


def test_many_segments_are_merged_without_loss() -> None:
    segments = [make_rows(seed, units=20) for seed in range(3 * KEPT + 5)]
    beta, factor = least_squares(segments)
    slopes = memory_of(segments)
    assert slopes.freedom.shape[1] <= KEPT
    assert np.allclose(slopes.fit()[0, 1:], factor * beta, rtol=1e-10)


@pytest.mark.parametrize("known", [1.0, 0.7])
def test_scale_and_shift_of_covariates_change_nothing(known: float) -> None:
    segments = [make_rows(seed, known=known) for seed in range(6)]
    scale, shift = np.array([1e4, 1e-3]), np.array([-70.0, 0.5])
    moved = []
    for columns, z, rewards in segments:
        other = z.copy()
        given = z[:, 0] == 1
        other[given, 1:] = shift + scale * z[given, 1:]
        moved.append((columns, other, rewards))
    found = []
    for version in (segments, moved):
        stats, moments = sums_of(version[-1])
        found.append(adjust_stats(stats, moments, memory_of(version[:-1]).fit(moments)))
    raw, _ = sums_of(segments[-1])
    assert np.abs(found[0].sums - raw.sums).min() > 0.1
    assert np.allclose(found[0].sums, found[1].sums, rtol=1e-7)
    assert np.allclose(found[0].squares, found[1].squares, rtol=1e-7)  # type: ignore[arg-type]


def test_units_without_covariates_are_told_apart_by_known() -> None:
    segments = [make_rows(seed, known=0.6, noise=0.01, units=200) for seed in range(5)]
    assert np.allclose(memory_of(segments).fit()[0], [1.0, 0.8, -0.5], atol=0.01)


def test_nobody_known_means_no_slopes() -> None:
    segments = [make_rows(seed, known=0.0) for seed in range(5)]
    assert not memory_of(segments).fit().any()


def test_constant_and_collinear_covariates_explain_nothing_more() -> None:
    segments = []
    for seed in range(5):
        columns, z, rewards = make_rows(seed)
        more = [np.full(len(z), 1e6), z[:, 1] + 2 * z[:, 2] - 4, np.zeros(len(z))]
        segments.append((columns, np.column_stack([z, *more]), rewards))
    found = memory_of(segments).fit()[0]
    plain = memory_of([(columns, z[:, :3], r) for columns, z, r in segments]).fit()[0]
    assert found[[0, 3, 5]] == pytest.approx(np.zeros(3), abs=1e-9)
    assert found[1:3] + found[4] * np.array([1.0, 2.0]) == pytest.approx(plain[1:3], rel=1e-9)


def test_slopes_wait_for_ten_rewards_a_covariate() -> None:
    assert not memory_of([make_rows(1, units=22)]).fit().any()  # 19 free of 22
    assert memory_of([make_rows(1, units=24)]).fit()[0, 1:].all()


# Wild covariates


@pytest.mark.parametrize("where", [0, 3, 7])
@pytest.mark.parametrize("size", [1e3, 1e12, 1e50])
def test_an_outlier_keeps_its_segment_out_of_the_fit(where: int, size: float) -> None:
    segments = [make_rows(seed) for seed in range(8)]
    columns, z, rewards = segments[where]
    wild = z.copy()
    wild[11, 1] = size
    spoiled = [*segments[:where], (columns, wild, rewards), *segments[where + 1 :]]
    others = [*segments[:where], *segments[where + 1 :]]
    assert np.allclose(memory_of(spoiled).fit(), memory_of(others).fit(), rtol=1e-12)


@pytest.mark.parametrize("size", [1e3, 1e12, 1e50])
def test_an_outlier_changes_its_own_segment_little(size: float) -> None:
    slopes = memory_of([make_rows(seed) for seed in range(8)])
    columns, z, rewards = make_rows(9)
    z[11, 1] = size
    stats, moments = sums_of((columns, z, rewards))
    found = adjust_stats(stats, moments, slopes.fit(moments))
    change = np.abs(found.sums - stats.sums).sum() / np.sqrt(len(z))
    assert change < 3 * slopes.fit()[0, 1] * 2.0  # times the usual deviation of a covariate
    around = [s.squares[0] - s.sums[0] ** 2 / s.counts[0] for s in (found, stats)]  # type: ignore[index]
    assert around[0].sum() < 1.5 * around[1].sum()


def test_how_far_slopes_shrink_in_a_wild_segment_depends_on_covariates_alone() -> None:
    slopes = memory_of([make_rows(seed) for seed in range(8)])
    columns, z, rewards = make_rows(9)
    z[11, 1] = 400.0
    rng = np.random.default_rng(5)
    lost = np.where(rng.random(len(z)) < 0.5, np.nan, rewards)
    found = [
        slopes.fit(sums_of(rows)[1])
        for rows in ((columns, z, rewards), (rng.permutation(columns), z, lost))
    ]
    assert np.allclose(found[0], found[1], rtol=1e-12)
    assert 0 < found[0][0, 1] < 0.1 * slopes.fit()[0, 1]


def test_useless_covariates_cost_less_than_a_hundredth() -> None:
    """Variance of adjusted rewards, on average over many small tests with noise for covariates."""
    trials, units, parts, c = 400, 60, 6, 3
    rng = np.random.default_rng(11)
    z = rng.normal(size=(parts, trials, units, c))
    z[..., 0] = 1.0
    rewards = rng.normal(size=(parts, trials, units))
    slopes, before, after = Slopes.none(trials, c), 0.0, 0.0
    for part in range(parts):
        r = rewards[part]
        squares = np.einsum("nuc,nud->ncd", z[part], z[part])[:, None]
        totals, products = z[part].sum(axis=1)[:, None], np.einsum("nuc,nu->nc", z[part], r)
        moments = Moments(
            np.full((trials, 1), units), totals, totals, squares, products[:, None], squares
        )
        stats = SegmentStats(
            np.full((trials, 1), units), r.sum(axis=1)[:, None], (r**2).sum(axis=1)[:, None]
        )
        beta = slopes.fit(moments)
        slopes = slopes.after(stats, moments)
        # Given the slopes an adjusted reward has variance 1 + |β|²: exact, so no noise in here.
        before += trials
        after += trials + float((beta[:, 1:] ** 2).sum())
    assert 1.0 < after / before < 1.01


# Batches, JSON, names


def test_each_trial_of_a_batch_has_the_bits_it_has_alone() -> None:
    trials = [[make_rows(10 * i + seed, known=0.8) for seed in range(5)] for i in range(4)]
    alone = [memory_of(segments) for segments in trials]
    pairs = [[sums_of(rows) for rows in segments] for segments in trials]

    def stacked(parts: Sequence[Any], kind: type) -> Any:
        return kind(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(kind)))

    together = Slopes.none(4, 3)
    for s in range(5):
        stats = stacked([pair[s][0] for pair in pairs], SegmentStats)
        moments = stacked([pair[s][1] for pair in pairs], Moments)
        found = adjust_stats(stats, moments, together.fit(moments))
        together = together.after(stats, moments)
    for i, own in enumerate(alone):
        assert np.array_equal(together.fit(moments)[i], own.fit(moments.trial(i))[0])
        before = memory_of(trials[i][:-1])
        single = adjust_stats(*pairs[i][-1], before.fit(pairs[i][-1][1]))
        assert np.array_equal(found.sums[i], single.sums[0])
        assert np.array_equal(found.squares[i], single.squares[0])  # type: ignore[index]


def test_moments_add_and_turn() -> None:
    columns, z, rewards = make_rows(4)
    stats, whole = sums_of((columns, z, rewards))
    half = slice(0, 25), slice(25, None)
    parts = [Moments.of_rows(columns[h], z[h], rewards[h], 3) for h in half]
    total = parts[0] + parts[1]
    for f in fields(Moments):
        assert np.allclose(getattr(total, f.name), getattr(whole, f.name), rtol=1e-12)
    turned = Slopes.none(1, 3).after(stats.negate(), whole.negate())
    assert np.array_equal(turned.fit(), -Slopes.none(1, 3).after(stats, whole).fit())


def test_json_keeps_the_bits() -> None:
    segments = [make_rows(seed) for seed in range(3)]
    _, moments = sums_of(segments[0])
    again = Moments.from_dict(json.loads(json.dumps(moments.to_dict())), arms=3, covariates=3)
    for f in fields(Moments):
        assert np.array_equal(getattr(again, f.name), getattr(moments, f.name))
    for slopes in (Slopes.none(1, 3), memory_of(segments)):
        back = Slopes.from_dict(json.loads(json.dumps(slopes.to_dict())), covariates=3)
        for f in fields(Slopes):
            assert np.array_equal(getattr(back, f.name), getattr(slopes, f.name))


def test_damaged_json_is_refused() -> None:
    _, moments = sums_of(make_rows(0))
    with pytest.raises(ValueError, match="fit"):
        Moments.from_dict(moments.to_dict(), arms=2, covariates=3)
    with pytest.raises(ValueError, match="fit"):
        Moments.from_dict(moments.to_dict() | {"seen": [[np.nan] * 3] * 3}, arms=3, covariates=3)
    with pytest.raises(ValueError, match="fit"):
        Slopes.from_dict(memory_of([make_rows(0)]).to_dict(), covariates=2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("spend", "covariates is 'spend'; expected a list of names"),
        ([1], "expected a list of names"),
        (["a", "b", "c", "d", "e", "f"], "there are 6 covariates; expected at most 5"),
        (["a", "a"], "the covariate 'a' is declared twice"),
    ],
)
def test_declarations_that_cannot_be_kept(given: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        validate_covariates(given)
    assert error.value.field == "covariates"


@pytest.mark.parametrize(
    ("given", "expected", "message"),
    [
        ({"spent": 1.0}, None, "'spent' is no covariate of this test; declared are spend"),
        ({"spend": "much"}, None, "the covariate 'spend' is 'much'; expected a finite number"),
        ({"spend": float("nan")}, None, "expected a finite number"),
        ({"spend": 1e80}, None, "expected a number from -1e"),
        ([1.0], None, "covariates is .* by covariate"),
        ({"expected": 1.0}, 2.0, "given twice"),
    ],
)
def test_covariates_of_a_unit_that_are_refused(given: Any, expected: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        covariate_row(("spend", "expected"), given, expected)


def test_one_number_may_be_given_as_expected() -> None:
    assert covariate_row(("spend", "expected"), {"spend": None}, 3).tolist() == [1.0, 0.0, 3.0]
    with pytest.raises(InvalidInputError, match="declared are spend") as error:
        covariate_row(("spend",), expected=2.0)
    assert error.value.field == "expected"
