"""Boundaries: published tables, Brownian motion, and every edge of a schedule."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from steadyarm.errors import InvalidInputError
from steadyarm.inference.boundaries import SPENDING, Looks, Spending, boundaries, spent

FIFTHS = (0.2, 0.4, 0.6, 0.8, 1.0)


@pytest.mark.parametrize(
    ("shares", "alpha", "kind", "published"),
    [
        # Two-sided 5 %, five looks: Lan and DeMets (1983), as ldbounds and gsDesign print them.
        (FIFTHS, 0.025, "obrien-fleming", (4.877, 3.357, 2.680, 2.290, 2.031)),
        (FIFTHS, 0.025, "pocock", (2.438, 2.427, 2.410, 2.397, 2.386)),
        # One-sided 5 %, four looks: the README of PharmCat/SeqBounds.jl.
        ((0.25, 0.5, 0.75, 1.0), 0.05, "obrien-fleming", (3.74955, 2.53993, 2.01604, 1.72014)),
    ],
)
def test_boundaries_are_those_of_published_tables(
    shares: tuple[float, ...], alpha: float, kind: Spending, published: tuple[float, ...]
) -> None:
    np.testing.assert_allclose(boundaries(shares, alpha, kind), published, atol=6e-4)


@pytest.mark.parametrize("kind", SPENDING)
@pytest.mark.parametrize("shares", [FIFTHS, (0.11, 0.13, 0.5, 0.52, 0.9, 1.0), (0.3, 0.6)])
def test_a_brownian_motion_crosses_as_often_as_is_spent(
    kind: Spending, shares: tuple[float, ...]
) -> None:
    alpha, paths = 0.1, 400_000
    rng = np.random.default_rng(5)
    steps = np.diff([0.0, *shares])
    motion = np.cumsum(rng.normal(size=(paths, len(shares))) * np.sqrt(steps), axis=1)
    crossed = motion / np.sqrt(shares) > boundaries(shares, alpha, kind)
    upto = np.logical_or.accumulate(crossed, axis=1).mean(axis=0)
    wanted = np.array([spent(share, alpha, kind) for share in shares])
    slack = 4.5 * np.sqrt(wanted * (1 - wanted) / paths)
    assert (np.abs(upto - wanted) <= slack).all()


def test_one_look_at_the_end_is_a_single_test() -> None:
    for alpha in (0.5, 0.05, 1e-4, 1e-9, 1e-17):
        for kind in SPENDING:
            assert boundaries((1.0,), alpha, kind)[0] == pytest.approx(norm.isf(alpha), abs=1e-8)


def test_a_look_before_the_end_spends_only_what_is_due() -> None:
    (bound,) = boundaries((0.6,), 0.05)
    assert norm.sf(bound) == pytest.approx(spent(0.6, 0.05), rel=1e-6)


def test_earlier_boundaries_do_not_depend_on_later_looks() -> None:
    few, many = boundaries((0.2, 0.45), 0.025), boundaries((0.2, 0.45, 0.5, 1.0), 0.025)
    assert many[:2] == few


def test_looks_that_are_very_early_or_add_nothing() -> None:
    found = boundaries((1e-4, 0.5, 0.5, 0.50001, 1.0), 0.025)
    assert found[0] == found[2] == inf
    assert found[1] == pytest.approx(boundaries((0.5,), 0.025)[0], abs=1e-6)
    fresh = spent(0.50001, 0.025) - spent(0.5, 0.025)
    assert found[3] == pytest.approx(norm.isf(fresh), abs=1e-5)  # Bonferroni
    assert found[4] == pytest.approx(boundaries((0.5, 1.0), 0.025)[1], abs=1e-5)


@pytest.mark.parametrize(
    ("shares", "information"),
    [
        ((0.25, 0.5, 0.75, 1.0), (0.05, 0.1, 0.2, 1.0)),
        ((0.06, 0.11, 0.3, 0.6, 0.9, 1.0), (0.51, 0.5107, 0.515, 0.56, 0.59, 1.0)),  # heavy sales
    ],
)
def test_boundaries_follow_the_information_collected(
    shares: tuple[float, ...], information: tuple[float, ...]
) -> None:
    found = boundaries(shares, 0.025, information=information)
    steps = np.sqrt(np.diff(information, prepend=0.0))
    moves = np.random.default_rng(1).normal(size=(200_000, len(steps)))
    paths = np.cumsum(moves * steps, axis=1)
    crossed = (paths / np.sqrt(information) > np.array(found)).any(axis=1).sum()
    assert binomtest(int(crossed), 200_000, 0.025).pvalue > 1e-3
    assert found[-1] > boundaries(shares, 0.025)[-1]  # later looks are less correlated


def test_boundaries_are_found_where_a_look_brings_hardly_any_information() -> None:
    shares, information = (0.06, 0.108, 0.156, 1.0), (0.5106, 0.51134, 0.51208, 1.0)
    found = boundaries(shares, 0.0125, information=information)
    assert norm.sf(found[1]) == pytest.approx(spent(0.108, 0.0125), rel=0.1)


@pytest.mark.parametrize(
    ("shares", "alpha", "field"),
    [
        ((0.5, 0.4), 0.05, "shares"),
        ((0.0,), 0.05, "shares"),
        ((1.2,), 0.05, "shares"),
        ((1.0,), 0.0, "alpha"),
        ((1.0,), 0.7, "alpha"),
    ],
)
def test_what_makes_no_sense_is_refused(
    shares: tuple[float, ...], alpha: float, field: str
) -> None:
    with pytest.raises(InvalidInputError) as error:
        boundaries(shares, alpha)
    assert error.value.field == field
    with pytest.raises(InvalidInputError, match="'pocock'"):
        boundaries((1.0,), 0.05, "linear")  # type: ignore[arg-type]


def test_looks_are_taken_at_the_first_piece_that_reaches_a_share() -> None:
    rounds = np.array([[10, 30, 55, 80, 100], [3, 60, 60, 60, 60]])
    which, shares = Looks((0.02, 0.25, 0.5, 1.0)).taken(rounds, 100)
    assert which.tolist() == [[0, 1, 2, -1, 3], [-1, 0, 0, 0, 0]]
    assert shares == [(0.1, 0.3, 0.55, 1.0), (0.6,)]


def test_the_end_of_a_test_that_fell_short_is_its_last_look() -> None:
    which, shares = Looks((0.5, 1.0), over=True).taken(np.array([[30, 55, 90]]), 100)
    assert which.tolist() == [[-1, 0, 1]]
    assert shares == [(0.55, 1.0)]


def test_a_piece_without_a_look_has_no_limits() -> None:
    looks = Looks.equally(2)
    which, shares = looks.taken(np.array([[40, 50]]), 100)
    assert looks.factors(which[:, 0], shares, shares, 0.025).tolist() == [inf]
    assert np.isfinite(looks.factors(which[:, 1], shares, shares, 0.025)).all()
