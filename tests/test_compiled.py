"""Strict kernels, and elementary functions against C's and SciPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from steadyarm import compiled
from steadyarm.compiled import (
    compiling,
    cosines,
    exp,
    exponentials,
    kernel,
    log,
    log1p,
    log2,
    log_upper_tail,
    normal,
    sines,
)

UNIT = np.finfo(np.float64).eps


@pytest.fixture(autouse=True)
def whole_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the start of a process, for ever."""
    monkeypatch.setattr(compiled._patience, "seconds", np.inf)


@kernel
def _total(values: np.ndarray) -> float:
    found = 0.0
    for value in values:
        found += value
    return found


@kernel
def _product_and_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    for i in range(out.size):
        out[i] = a[i] * b[i] + c[i]


def test_a_kernel_adds_in_the_order_written() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=1001) * 10.0 ** rng.integers(0, 12, 1001)
    expected = 0.0
    for value in values.tolist():
        expected += value
    assert _total(values) == expected
    with compiling():
        assert _total(values) == expected


def test_a_kernel_does_not_fuse_products_with_sums() -> None:
    a = 1.0 + UNIT * np.arange(1.0, 100.0)
    out = np.empty(99)
    with compiling():
        _product_and_sum(a, a, -a * a, out)
    assert not out.any()  # fused, the rounding error of the product would be left


@kernel
def _quotients(values: np.ndarray, by: float, out: np.ndarray) -> tuple[int, float, bool]:
    for i in range(out.size):
        out[i] = values[i] / by
    return out.size, _total(out), by == 0.0


def test_interpreted_and_compiled_calls_return_the_same() -> None:
    values, out = np.array([1.0, -2.0, 0.0]), np.empty((2, 3))
    with compiling():
        expected = _quotients(values, 3.0, out[0]), _quotients(values, 0.0, out[0])
    for by, answer in zip((3.0, 0.0), expected, strict=True):
        compiled._patience.seconds = np.inf
        found = _quotients(values, by, out[1])
        assert repr(found) == repr(answer)  # of Python's own types
    np.testing.assert_array_equal(*out)


@kernel
def _says_how_it_runs(values: np.ndarray, runs: list[str]) -> None:
    runs.append("interpreted")


def test_a_process_interprets_small_calls_until_its_patience_is_at_an_end() -> None:
    _says_how_it_runs.__dict__["compiled"] = lambda values, runs: runs.append("compiled")
    few, many = np.zeros(10), np.zeros(10_000)

    def runs(*calls: object) -> list[str]:
        found: list[str] = []
        for given in calls:
            _says_how_it_runs(given, found)  # type: ignore[arg-type]
        return found

    assert runs(few, many, few) == ["interpreted", "compiled", "interpreted"]
    with compiling():
        assert runs(few) == ["compiled"]
    assert runs(few) == ["compiled"]
    for last in (few.astype(np.float32), np.random.default_rng(0)):
        compiled._patience.seconds = np.inf
        assert runs(few, last, few) == ["interpreted", "compiled", "compiled"]
    compiled._patience.seconds = 1e-9
    assert runs(few, few) == ["interpreted", "compiled"]


def test_exponentials() -> None:
    x = np.random.default_rng(1).uniform(-700, 700, 20_000)
    expected = np.array([math.exp(value) for value in x.tolist()])
    assert (np.abs(exponentials(x) - expected) <= 1.01 * np.spacing(expected)).all()
    assert [exp(v) for v in (0.0, -800.0, 800.0)] == [1.0, 0.0, np.inf]
    assert math.isnan(exp(math.nan))
    assert exp(-740.0) == pytest.approx(math.exp(-740.0), rel=1e-2)  # subnormal


def test_logarithms() -> None:
    for x in np.exp(np.random.default_rng(2).uniform(-600, 600, 5_000)).tolist():
        assert log(x) == pytest.approx(math.log(x), rel=2 * UNIT, abs=2 * UNIT)
        assert log2(x) == pytest.approx(math.log2(x), rel=3 * UNIT, abs=3 * UNIT)
    for x in (-(np.random.default_rng(3).random(2_000) ** 5)).tolist():
        assert log1p(x) == pytest.approx(math.log1p(x), rel=4 * UNIT)
    assert [log2(2.0**k) for k in range(-30, 30)] == list(range(-30, 30))
    assert (log(0.0), log(np.inf)) == (-np.inf, np.inf)
    assert math.isnan(log(-1.0))
    assert log(5e-324) == math.log(5e-324)


@pytest.mark.parametrize("most", [1.0, 1e3, 1e6, 1e9])
def test_sines_and_cosines(most: float) -> None:
    x = np.random.default_rng(4).uniform(-most, most, 5_000)
    expected = np.array([(math.sin(v), math.cos(v)) for v in x.tolist()])
    np.testing.assert_allclose(sines(x), expected[:, 0], atol=2 * UNIT, rtol=0)
    np.testing.assert_allclose(cosines(x), expected[:, 1], atol=2 * UNIT, rtol=0)


def test_the_tail_of_the_normal_distribution() -> None:
    for x in np.linspace(-12, 60, 500).tolist():
        expected = float(scipy.stats.norm.logsf(x))
        assert log_upper_tail(x) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_normal_numbers_are_those_of_numpy_but_for_the_last_bit_in_the_tail() -> None:
    found = normal(np.random.default_rng(5), (1000, 200))
    expected = np.random.default_rng(5).standard_normal((1000, 200))
    tail = np.abs(expected) > 3.6541528853610088
    assert 20 < tail.sum() < 100  # 200,000 times 0.00026
    assert np.array_equal(found[~tail], expected[~tail])
    np.testing.assert_allclose(found[tail], expected[tail], rtol=4 * UNIT)
