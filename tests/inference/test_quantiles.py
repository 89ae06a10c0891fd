"""Quantiles of our own agree with SciPy's, and limits rest on nothing that a processor chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy

from steadyarm.compiled import compiling, exp
from steadyarm.inference.quantiles import (
    length_quantile,
    length_table,
    log_length_tail,
    normal_quantiles,
    student_reach,
    student_reaches,
)

FREEDOMS = (1.0, 2 / 3, 2.0, 3.3, 10.0, 57.0, 999.0, 5000.0, 99_999.0, 100_001.0, 3e7)
LENGTHS = (1, 2, 3, 4, 7, 16, 31, 101, 800)


def test_normal_quantiles() -> None:
    p = np.concatenate([np.logspace(-300, -1, 900), np.linspace(0.1, 0.9999, 300), [1 - 1e-12]])
    np.testing.assert_allclose(normal_quantiles(p), scipy.stats.norm.isf(p), rtol=2e-15, atol=1e-15)
    assert normal_quantiles([0.0, 1.0]).tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_student_exceeds_as_often_as_normal(freedom: float) -> None:
    z = np.array([-3.0, -0.2, 0.01, 0.3, 1.0, 1.7, 1.96, 2.5, 3.0, 5.0, 8.0])
    expected = scipy.stats.t.isf(scipy.stats.norm.sf(z), freedom)
    np.testing.assert_allclose(student_reaches(z, freedom), expected, rtol=1e-11)


def test_one_number_for_all_and_arrays_that_are_left_alone() -> None:
    z = np.array([1.0, 2.0, 3.0])
    with compiling():  # compiled kernels are particular about whose arrays they get
        alike = student_reaches(z, 9.0)
        each = student_reaches(z[:, None], np.array([[9.0, np.inf]]))
    assert np.array_equal(alike, each[:, 0])
    assert np.array_equal(each[:, 1], z)
    assert z.flags.writeable


def test_student_at_the_ends() -> None:
    assert student_reaches([0.0, 2.0, 37.0], np.inf).tolist() == [0.0, 2.0, 37.0]
    assert student_reaches([37.0, np.inf], 1.0).tolist() == [1e50, 1e50]
    # the tail of 37 standard errors is beyond most tables; at 300 degrees it is still finite
    far = student_reach(37.0, 300.0)
    assert 37.0 < far < 1e3
    assert np.isclose(log_length_tail(far, 1, 300.0)[0], np.log(2) + scipy.stats.norm.logsf(37.0))
    rising = student_reaches(np.linspace(0.1, 36.0, 300), 50.0)
    assert (np.diff(rising) > 0).all()


def _squared(r: int, freedom: float) -> Any:
    return scipy.stats.chi2(r) if freedom == np.inf else scipy.stats.f(r, freedom, scale=r)


@pytest.mark.parametrize("freedom", [2.0, 5.5, 30.0, 500.0, np.inf])
@pytest.mark.parametrize("r", LENGTHS)
def test_lengths(r: int, freedom: float) -> None:
    squared = _squared(r, freedom)
    for alpha in (0.9, 0.5, 0.05, 1e-6):
        expected = np.sqrt(squared.isf(alpha))
        assert np.isclose(length_quantile(r, freedom, alpha), expected, rtol=1e-9)
    table, step = length_table(r, freedom, 0.05)
    at = step * np.arange(table.size)
    np.testing.assert_allclose(table, squared.cdf(at**2), atol=2e-8)
    assert table[0] == 0.0
    assert (np.diff(table) >= 0).all()


def test_slopes_are_those_of_the_tails() -> None:
    for r, freedom in ((1, 7.0), (3, 12.0), (6, np.inf), (9, 2.5)):
        for c in (0.7, 2.0, 6.0):
            tail, slope = log_length_tail(c, r, freedom)
            further = log_length_tail(c * (1 + 1e-6), r, freedom)[0]
            assert np.isclose((tail - further) / 1e-6, slope, rtol=1e-4)
            assert 0 < exp(tail) < 1
