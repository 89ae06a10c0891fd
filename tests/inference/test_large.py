"""Large arm sets: scores do not depend on K, short lists, and statements over all arms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy

from steadyarm.errors import InvalidInputError
from steadyarm.inference import (
    Evidence,
    confidence_path,
    confidence_sequence,
    drift_report,
    fixed_budget,
)
from steadyarm.inference.evidence import score_scatter, shortlist, spread_of
from steadyarm.inference.intervals import critical_values, error_and_skew, in_passes, skewed_limits
from steadyarm.inference.sequences import ConfidenceSequence
from steadyarm.segments import Direction, Order
from tests.inference.large import LARGE, SMALL, dense, effects, played


@pytest.mark.parametrize("order", ["iid", "blocks"])
@pytest.mark.parametrize("reference", [True, False])
def test_pieces_of_few_arms_give_the_evidence_of_all_arms(order: Order, reference: bool) -> None:
    log = played(SMALL, order=order, reference=reference)
    few, every = (Evidence.from_segments(SMALL, one) for one in (log, dense(SMALL, log)))
    np.testing.assert_allclose(few.scores, every.scores, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(few.squares, every.squares, rtol=1e-8, atol=1e-8)
    assert (few.within is None) == (every.within is None) == (order == "iid")
    if few.within is not None and every.within is not None:
        np.testing.assert_allclose(few.within, every.within, rtol=1e-8, atol=1e-8)
    assert few.columns is not None
    assert every.columns is None
    assert every.weights is not None
    np.testing.assert_array_equal(few.weights, every.weights[:, :, few.columns])
    for found, truth in (
        (fixed_budget(few), fixed_budget(every)),
        (confidence_sequence(few, 3000), confidence_sequence(every, 3000)),
        (
            confidence_sequence(few, 3000, reward_range=(0, 1)),
            confidence_sequence(every, 3000, reward_range=(0, 1)),
        ),
    ):
        for name in ("low", "high", "gap_low", "gap_high", "standard_errors"):
            np.testing.assert_allclose(getattr(found, name), getattr(truth, name), rtol=1e-6)
    one, two = drift_report(few), drift_report(every)
    assert one.gap_p_value == pytest.approx(two.gap_p_value, rel=1e-6)
    assert one.averages == pytest.approx(two.averages)


@pytest.mark.parametrize("order", ["iid", "blocks"])
@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_short_list_says_no_more_than_the_whole(order: Order, direction: Direction) -> None:
    log = played(SMALL, pieces=30, order=order, blocks=12)
    evidence = replace(Evidence.from_segments(SMALL, log), direction=direction)
    view, best = shortlist(evidence, most=10)
    shown = view.shown
    assert shown is not None
    assert 10 <= shown.size < SMALL.size
    for whole, few in (
        (fixed_budget(evidence), fixed_budget(view, recommended=best)),
        (confidence_sequence(evidence, 9000), confidence_sequence(view, 9000, recommended=best)),
    ):
        assert shown[few.recommended[0]] == whole.recommended[0]
        assert np.isfinite(few.low).all()
        slack = 1e-9
        assert (few.low[0] <= whole.low[0, shown] + slack).all()
        assert (few.high[0] >= whole.high[0, shown] - slack).all()
        assert (few.gap_low[0] <= whole.gap_low[0, shown] + slack).all()
        assert (few.gap_high[0] >= whole.gap_high[0, shown] - slack).all()
        assert (few.plausible[0] >= whole.plausible[0, shown]).all()
        assert few.plausible.sum() + few.others >= whole.plausible.sum()
        np.testing.assert_allclose(few.estimates[0], whole.estimates[0, shown])


def test_bounds_of_a_family_are_those_of_bonferroni_and_scheffe() -> None:
    freedom = np.array([np.inf, 12.0])
    X, covariance = SMALL.coordinates[:5], np.tile(np.eye(22), (2, 1, 1))
    values, pairs, best = critical_values(X, covariance, freedom, 0.05, family=64)
    tails: list[Any] = [scipy.stats.norm, scipy.stats.t(12)]
    for i, tail in enumerate(tails):
        assert values[i] == pytest.approx(tail.isf(0.05 / 128))
        assert best[i] == pytest.approx(np.full(5, tail.isf(0.05 / 63)))
    assert pairs[0] == pytest.approx(scipy.stats.norm.isf(0.05 / (64 * 63)))
    many, _, _ = critical_values(X[:, :2], np.eye(2)[None], freedom[:1], 0.05, family=10**9)
    assert many[0] == pytest.approx(np.sqrt(scipy.stats.chi2.isf(0.05, 2)))
    # with all arms there is nothing to bound
    whole = critical_values(SMALL.coordinates, covariance, freedom, 0.05)
    same = critical_values(SMALL.coordinates, covariance, freedom, 0.05, family=64)
    assert all(np.array_equal(one, two) for one, two in zip(whole, same, strict=True))
    assert (values >= whole[0]).all()


@pytest.mark.parametrize("order", ["iid", "blocks"])
@pytest.mark.parametrize("rounds", [3, 40])
def test_who_is_plausible_in_passes_is_who_is_so_directly(order: Order, rounds: int) -> None:
    log = played(LARGE, pieces=8, columns=150, order=order, blocks=rounds)
    view, best = shortlist(Evidence.from_segments(LARGE, log))
    scatter, X = score_scatter(view), LARGE.coordinates
    first = view.arms.coordinates[best[0]]
    D = (first - X)[None]
    gaps = D @ view.theta[0] * view.played[0]
    for z in (1.0, 3.0, 4.5):
        error, skew = error_and_skew(D, view, scatter)
        low, _ = skewed_limits(gaps, error, skew, np.full((1, 1), z))
        plain = gaps - z * error
        passed = in_passes(view, scatter, first, z)
        np.testing.assert_array_equal(passed, low[0] <= 0)
        assert passed.sum() >= (plain[0] <= 0).sum()
    assert 1 <= in_passes(view, scatter, first, 1.0).sum() < LARGE.size


@pytest.mark.parametrize("order", ["iid", "blocks"])
def test_confidence_sequences_count_all_arms(order: Order) -> None:
    log = played(LARGE, pieces=12, columns=150, order=order, blocks=60)
    evidence = Evidence.from_segments(LARGE, log)
    found = confidence_sequence(evidence, 40_000, 0.95)
    view, best = shortlist(evidence)
    truth = ConfidenceSequence(view, 40_000, None).possible(11, 0.05 / LARGE.size, best)
    assert found.shown is not None
    np.testing.assert_array_equal(found.plausible[0], truth[found.shown])
    assert found.plausible.sum() + found.others == truth.sum()
    # a view of others gives the same for them
    others = np.setdiff1d(np.random.default_rng(2).integers(0, 8192, 50), found.shown)
    recommended = found.shown[found.recommended[0]]
    shown = np.unique([*others, recommended])
    row = int(np.searchsorted(shown, recommended))
    more = confidence_sequence(evidence.view(shown), 40_000, 0.95, recommended=[row])
    np.testing.assert_array_equal(more.plausible[0], truth[shown])


def test_short_lists_have_the_best_and_who_led() -> None:
    evidence = Evidence.from_segments(LARGE, played(LARGE, pieces=20, columns=150, blocks=2))
    view, best = shortlist(evidence, np.array([77]))
    shown = view.shown
    assert shown is not None
    assert shown[best[0]] == 77
    assert (np.diff(shown) > 0).all()
    values = LARGE.values(evidence.theta[0])
    assert set(np.argsort(-values)[:100]) <= set(shown.tolist())
    scores, rounds = np.cumsum(evidence.scores[0], axis=0), np.cumsum(evidence.rounds[0])
    path = confidence_path(evidence, 20_000, at=[0, 19])
    for look, j in zip(path, (0, 19), strict=True):
        assert look.shown is not None
        leader = LARGE.values(scores[j] / rounds[j]).argmax()
        assert look.shown[look.recommended[0]] == leader
    assert view.arms.names[best[0]] == LARGE.names[77]
    with pytest.raises(InvalidInputError, match="one test at a time"):
        shortlist(replace(evidence, rounds=np.tile(evidence.rounds, (2, 1))))


def test_drift_of_large_sets_is_seen_in_the_parameters() -> None:
    mean, basis = spread_of(LARGE)
    np.testing.assert_allclose(mean, LARGE.coordinates.mean(axis=0), atol=1e-12)
    assert len(basis) == LARGE.rank - 1
    quiet = drift_report(Evidence.from_segments(LARGE, played(LARGE, columns=150, blocks=30)))
    assert quiet.gap_p_value > 0.01
    loud = drift_report(
        Evidence.from_segments(LARGE, played(LARGE, columns=150, blocks=30, move=0.05))
    )
    assert loud.gaps_move
    assert loud.others == LARGE.size - len(loud.names)
    assert 100 <= len(loud.names) <= 110
    assert loud.best in loud.names
    assert set(loud.leaders) <= set(loud.names)
    assert "changed over time" in str(loud)
    assert len(str(loud).splitlines()[0]) < 500
    # the average over all arms is the constant effect
    assert loud.averages == pytest.approx(effects(LARGE)[0], abs=0.1)
