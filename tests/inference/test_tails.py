"""Tails are those of scipy.stats, and a small log is analysed without importing that package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from steadyarm.inference import intervals, tails

X = np.array([-np.inf, -7.5, -1.0, -1e-300, 0.0, 1e-9, 0.3, 1.0, 5.5, 40.0, 1e200, np.inf, np.nan])
TAILS = np.array([1e-300, 1e-9, 0.025, 0.3, 0.5, 0.9, 1.0])
FREEDOMS = [-1.0, 0.0, 0.5, 1.0, 3.3, 50.0, 1e6]


def same(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=2e-12, atol=0.0)


def test_normal() -> None:
    same(tails.above_normal(X), scipy.stats.norm.sf(X))
    same(tails.normal_reach(TAILS), scipy.stats.norm.isf(TAILS))


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_student_and_chi_squared(freedom: float) -> None:
    same(tails.above_t(X, freedom), scipy.stats.t.sf(X, freedom))
    same(tails.above_chi2(X, freedom), scipy.stats.chi2.sf(X, freedom))
    if freedom >= 1:
        same(tails.t_reach(TAILS, freedom), scipy.stats.t.isf(TAILS, freedom))


@pytest.mark.parametrize("second", FREEDOMS[2:])
@pytest.mark.parametrize("first", FREEDOMS[2:])
def test_f(first: float, second: float) -> None:
    same(tails.above_f(X, first, second), scipy.stats.f.sf(X, first, second))


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("draws", [0, 1, 5, 1000, 100_000_000])
def test_binomial(draws: int, p: float) -> None:
    k = np.array([-3.0, -1.0, 0.0, 1.0, 2.0, 5.0, 180.0, 999.0, 1000.0, 2e7, 1e8, 1e9])
    same(tails.up_to_binomial(k, draws, p), scipy.stats.binom.cdf(k, draws, p))
    same(tails.above_binomial(k, draws, p), scipy.stats.binom.sf(k, draws, p))


@pytest.mark.parametrize("rank", range(1, 10))
def test_directions_are_those_of_a_scrambled_sobol_sequence(rank: int) -> None:
    points = scipy.stats.qmc.Sobol(rank, rng=20).random(intervals.DIRECTIONS)
    assert np.array_equal(intervals.sobol_points(rank), points)


def test_a_small_log_needs_neither_pandas_nor_scipy_stats_nor_numba(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    rows = [f"2026-03-{1 + i // 50:02},{i},{'ABC'[i % 3]},0.25,{i % 7}" for i in range(500)]
    log.write_text("\n".join(["timestamp,unit,arm,probability,reward", *rows]))
    code = (
        "import sys; from steadyarm.cli.main import main\n"
        f"assert main(['analyze', {str(log)!r}]) == 0\n"
        "print(sorted({'pandas', 'scipy.stats', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout
