"""Principal components and daily regressions, against what the whole data would give."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
from scipy.stats import chi2

import steadyarm as sa
from steadyarm.paper import YahooDay
from steadyarm.paper.yahoo import fit_days, principal_components
from steadyarm.paper.yahoo_log import Moments, outer_products
from tests.paper.conftest import Week


def everything(days: list[YahooDay]) -> list[Moments]:
    return [day.moments for day in days]


def test_components_are_those_of_the_data_themselves() -> None:
    rng = np.random.default_rng(1)
    X = 3 + rng.normal(size=(400, 36)) @ rng.normal(size=(36, 36))
    halves = Moments.of(X[:150], np.zeros(150)) + Moments.of(X[150:], np.zeros(250))
    basis = principal_components(halves)
    _, singular, rows = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(basis.variances, singular[:24] ** 2 / 400, rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(basis.directions.T * rows[:24], axis=1)), 1, rtol=1e-9)
    assert (
        np.take_along_axis(basis.directions, np.abs(basis.directions).argmax(axis=0)[None], axis=0)
        > 0
    ).all()


def test_memberships_leave_24_dimensions_and_no_more(week: Week) -> None:
    together = reduce(add, everything(week.log))
    mean = together.x / together.count
    values = np.linalg.eigvalsh(together.xx / together.count - np.outer(mean, mean))[::-1]
    assert values[23] > 1e-5 * values[0]
    assert values[24] < 1e-9 * values[0]


def test_too_little_variety_is_an_error() -> None:
    X = np.random.default_rng(0).normal(size=(20, 36))
    with pytest.raises(sa.InvalidInputError, match="20 visits vary in 19 dimensions only"):
        principal_components(Moments.of(X, np.zeros(20)))
    with pytest.raises(sa.InvalidInputError, match="in 0 dimensions only"):
        principal_components(Moments.of(np.ones((50, 36)), np.zeros(50)))


@pytest.mark.parametrize("per_day", [False, True])
def test_the_ridge_regression_solves_its_normal_equations(per_day: bool) -> None:
    rng = np.random.default_rng(2)
    X = [rng.normal(size=(90 + t, 36)) + t for t in range(3)]
    y = [rng.integers(2, size=len(rows)).astype(float) for rows in X]
    bases, thetas, intercepts = fit_days(
        [Moments.of(rows, clicks) for rows, clicks in zip(X, y, strict=True)], 0.5, per_day
    )
    assert len(bases) == (3 if per_day else 1)
    for t in range(3):
        Z = bases[t if per_day else 0].coordinates(X[t])
        left = y[t] - intercepts[t] - Z @ thetas[t]
        np.testing.assert_allclose(Z.T @ left, 0.5 * thetas[t], atol=1e-8)
        assert abs(left.sum()) < 1e-8


def test_the_daily_parameters_predict_what_users_did(week: Week) -> None:
    (basis,), thetas, intercepts = fit_days(everything(week.log))
    share_of_expected = []
    for t, day in enumerate(week.log):
        pairs = day.sample.vectors  # 4,000 distinct visits: all of the day
        assert len(pairs) == day.visits
        users, articles = pairs[:, :6], pairs[:, 6:]
        found = intercepts[t] + basis.coordinates(outer_products(users, articles)) @ thetas[t]
        rates = np.einsum("ni,tij,nj->tn", users, week.truth.tastes, articles)
        errors = ((found - rates) ** 2).sum(axis=1)
        assert errors.argmin() == t  # no other day's taste is nearer
        variance = (rates[t] * (1 - rates[t])).mean()
        share_of_expected.append(errors[t] / (25 * variance))  # 24 parameters and an intercept
    low, high = (float(chi2.ppf(q, 7 * 25)) / (7 * 25) for q in (1e-5, 1 - 1e-5))
    assert low < np.mean(share_of_expected) < high


def test_a_ridge_of_nothing_is_refused(week: Week) -> None:
    with pytest.raises(sa.InvalidInputError, match="ridge is 0"):
        fit_days(everything(week.log), ridge=0)
