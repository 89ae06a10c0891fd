"""The Yahoo! log: sums in one pass, regressions against their equations, arms as in the paper."""

from __future__ import annotations

import gzip
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

import steadyarm as sa
from steadyarm.paper import load_yahoo_instance, read_yahoo, yahoo_instance, yahoo_world
from steadyarm.paper.datasets import (
    Moments,
    YahooInstance,
    fit_days,
    outer_products,
    parse_line,
    principal_components,
)
from tests.paper.clicks import format_features
from tests.paper.conftest import Week

FIRST = "ydata-fp-td-clicks-v1_0.20090501"
USER = format_features([1, 0.2, 0.1, 0.3, 0.4, 0])
LINE = f"1241160900 7 1 |user {USER} |7 {USER} |8 {USER}"


@pytest.fixture
def lines(week: Week) -> list[bytes]:
    with gzip.open(week.folder / f"{FIRST}.gz") as file:
        return file.read().splitlines()


@pytest.fixture(scope="module")
def instance(week: Week) -> YahooInstance:
    return yahoo_instance(week.log, seed=3)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" 7 1 ", " 9 1 "),  # an article that is not in the pool
        (" 7 1 ", " 7 2 "),
        (" 7 1 ", " 7 "),
        ("1241160900", "noon"),
        ("|8 ", "|7 "),
        ("|user ", "|visitor "),
        ("2:0.200000", "2:nan"),
        ("2:0.200000", "2:much"),
        ("2:0.200000", "3:0.200000"),
        (" 1:1.000000", ""),
        (f" |7 {USER} |8 {USER}", ""),
    ],
)
def test_malformed_lines(old: str, new: str) -> None:
    user = (1.0, 0.2, 0.1, 0.3, 0.4, 0.0)
    assert parse_line(LINE.encode()) == (user, user, 1.0)
    assert old in LINE
    with pytest.raises(ValueError):  # noqa: PT011  # it is counted, and nobody reads its message
        parse_line(LINE.replace(old, new).encode())


def test_the_sums_are_those_of_all_visits(week: Week, lines: list[bytes], tmp_path: Path) -> None:
    visits = [parse_line(line) for line in lines]
    pairs, y = np.array([u + a for u, a, _ in visits]), np.array([click for *_, click in visits])
    X, moments = outer_products(pairs), week.log.moments[0]
    assert (week.log.lines[0], moments.count, week.log.malformed[0]) == (4000, 4000, 0)
    for ours, theirs in ((moments.x, X.sum(axis=0)), (moments.xx, X.T @ X), (moments.xy, X.T @ y)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    (tmp_path / FIRST).write_bytes(b"\n".join(lines))  # not compressed, no end of line
    np.testing.assert_allclose(read_yahoo(tmp_path, (1,)).moments[0].xx, moments.xx, rtol=1e-12)


def test_malformed_lines_are_counted_up_to_a_share(lines: list[bytes], tmp_path: Path) -> None:
    (tmp_path / FIRST).write_bytes(b"\n".join([*lines[:90], *[b"broken"] * 10]))
    with pytest.raises(sa.InvalidInputError, match=r"10 of the first 100 .* first in line 91"):
        read_yahoo(tmp_path, days=(1,))
    assert read_yahoo(tmp_path, days=(1,), max_malformed=0.1).malformed == (10,)
    with pytest.raises(sa.InvalidInputError, match="max_malformed is 2"):
        read_yahoo(tmp_path, days=(1,), max_malformed=2)


def test_wrong_files_and_days(week: Week, tmp_path: Path) -> None:
    whole = (week.folder / f"{FIRST}.gz").read_bytes()
    for content, message in (
        (gzip.compress(b"id,price\n" * 1_000_000, 1), r"of the first 10,000 lines"),
        (whole[: len(whole) // 2], "cannot be read to its end"),
        (b"1241160900 109513 0 |user", "cannot be read to its end"),
        (gzip.compress(b"x" * 10_000_000, 1), "malformed"),
        (gzip.compress(b""), "holds no visit"),
        (b"", "holds no visit"),
    ):
        (tmp_path / f"{FIRST}.gz").write_bytes(content)
        with pytest.raises(sa.InvalidInputError, match=message):
            read_yahoo(tmp_path, days=(1,))
    with pytest.raises(sa.InvalidInputError, match=r"lacks .*20090508\.gz"):
        read_yahoo(week.folder, days=(7, 8))
    with pytest.raises(sa.InvalidInputError, match="none repeated"):
        read_yahoo(week.folder, days=(1, 1))


def test_components_are_those_of_the_data_themselves() -> None:
    rng = np.random.default_rng(1)
    X = 3 + rng.normal(size=(400, 36)) @ rng.normal(size=(36, 36))
    halves = Moments.of(X[:150], np.zeros(150)) + Moments.of(X[150:], np.zeros(250))
    basis = principal_components(halves)
    _, singular, rows = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(basis.variances, singular[:24] ** 2 / 400, rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(basis.directions.T * rows[:24], axis=1)), 1, rtol=1e-9)
    with pytest.raises(sa.InvalidInputError, match="20 visits vary in 19 dimensions only"):
        principal_components(Moments.of(X[:20], np.zeros(20)))


def test_the_ridge_regression_solves_its_normal_equations() -> None:
    rng = np.random.default_rng(2)
    X = [rng.normal(size=(90 + t, 36)) + t for t in range(3)]
    y = [rng.integers(2, size=len(rows)).astype(float) for rows in X]
    moments = [Moments.of(rows, clicks) for rows, clicks in zip(X, y, strict=True)]
    basis = principal_components(reduce(add, moments))
    for rows, clicks, theta in zip(X, y, fit_days(moments, basis, 0.5), strict=True):
        Z = basis.coordinates(rows)
        left = clicks - clicks.mean() - (Z - Z.mean(axis=0)) @ theta
        np.testing.assert_allclose(Z.T @ left, 0.5 * theta, atol=1e-8)


def test_the_daily_parameters_predict_what_users_did(week: Week) -> None:
    basis = principal_components(reduce(add, week.log.moments))
    thetas, shares = fit_days(week.log.moments, basis), []
    for t in range(7):
        log = read_yahoo(week.folder, days=(t + 1,))  # 4,000 distinct visits: all of the day
        pairs, moments = log.sample, log.moments[0]
        assert len(pairs) == moments.count
        Z = basis.coordinates(outer_products(pairs))
        expected = moments.y / moments.count + (Z - Z.mean(axis=0)) @ thetas[t]
        rates = np.einsum("ni,tij,nj->tn", pairs[:, :6], week.tastes, pairs[:, 6:])
        errors = ((expected - rates) ** 2).sum(axis=1)
        assert errors.argmin() == t  # no other day's taste is nearer
        shares.append(errors[t] / (25 * (rates[t] * (1 - rates[t])).mean()))  # 25 parameters
    low, high = (float(chi2.ppf(q, 7 * 25)) / (7 * 25) for q in (1e-5, 1 - 1e-5))
    assert low < np.mean(shares) < high


def test_arms_span_all_dimensions_and_the_best_leads(week: Week, instance: YahooInstance) -> None:
    assert instance.arms.rank == instance.arms.size == 24
    values = instance.features @ instance.thetas.mean(axis=0)
    assert (values[0] - values[1:] >= 0.05).all()
    basis = principal_components(reduce(add, week.log.moments))
    candidates = basis.coordinates(outer_products(week.log.sample))
    assert np.isclose((candidates @ instance.thetas.mean(axis=0)).max(), values[0])
    same, other = (yahoo_instance(week.log, seed=seed) for seed in (3, 4))
    np.testing.assert_array_equal(same.features, instance.features)
    assert not np.array_equal(other.features[1:], instance.features[1:])
    with pytest.raises(sa.InvalidInputError, match=r"of 5,000 candidates 0 are at least 9 below"):
        yahoo_instance(week.log, gap=9)
    with pytest.raises(sa.InvalidInputError, match="ridge is 0"):
        yahoo_instance(week.log, ridge=0)


def test_the_world_repeats_each_day_week_after_week(instance: YahooInstance) -> None:
    world = yahoo_world(instance, repeat=100)
    assert (world.budget, world.noise, world.best_arm) == (21_000, sa.GaussianNoise(1.0), 0)
    daily = instance.thetas @ instance.features.T
    for t in (0, 99, 100, 650, 700, 20_999):
        np.testing.assert_allclose(world.means[t], daily[t // 100 % 7])
    assert world.gap >= 0.05


def test_an_instance_survives_its_file(tmp_path: Path, instance: YahooInstance) -> None:
    good, bad = tmp_path / "deep" / "good.npz", tmp_path / "bad.npz"
    instance.save(good)
    assert [path.name for path in good.parent.iterdir()] == ["good.npz"]
    for name, value in vars(load_yahoo_instance(good)).items():
        np.testing.assert_array_equal(vars(instance)[name], value)
        assert type(vars(instance)[name]) is type(value)
    for content in (b"", b"text", good.read_bytes()[:5000]):
        bad.write_bytes(content)
        with pytest.raises(sa.InvalidInputError, match="cannot be read as a Yahoo! instance"):
            load_yahoo_instance(bad)
    np.savez(bad, a=np.ones(3))
    with pytest.raises(sa.InvalidInputError, match="cannot be read"):
        load_yahoo_instance(bad)
    with pytest.raises(sa.InvalidInputError, match="cannot be read"):
        load_yahoo_instance(tmp_path / "nowhere.npz")
