"""The Yahoo! instance: arms, daily parameters, and files that are what was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.paper import (
    YahooInstance,
    load_yahoo_instance,
    read_yahoo,
    yahoo_instance,
    yahoo_world,
)
from steadyarm.paper.yahoo_log import outer_products
from tests.paper.conftest import Week


@pytest.fixture(scope="module")
def instance(week: Week) -> YahooInstance:
    return yahoo_instance(week.log, seed=3)


def test_arms_span_all_dimensions_and_the_first_leads_by_the_gap(instance: YahooInstance) -> None:
    assert instance.arms.rank == instance.arms.size == 24
    values = instance.features @ instance.thetas.mean(axis=0)
    assert (values[0] - values[1:] >= 0.05).all()
    products = outer_products(instance.users, instance.articles)
    np.testing.assert_allclose(
        (products - instance.centres[0]) @ instance.directions[0], instance.features, atol=1e-12
    )


def test_the_first_arm_is_the_best_of_all_candidates(week: Week, instance: YahooInstance) -> None:
    sample = np.vstack([day.sample.vectors for day in week.log])
    products = outer_products(sample[:, :6], sample[:, 6:])
    values = (
        (products - instance.centres[0]) @ instance.directions[0] @ instance.thetas.mean(axis=0)
    )
    hashes = np.concatenate([day.sample.hashes for day in week.log])
    kept = np.argsort(hashes)[:5000]
    assert np.isclose(values[kept].max(), (instance.features @ instance.thetas.mean(axis=0))[0])


def test_the_world_repeats_each_day_week_after_week(instance: YahooInstance) -> None:
    world = yahoo_world(instance, repeat=100)
    assert (world.budget, world.noise, world.best_arm) == (21_000, sa.GaussianNoise(1.0), 0)
    daily = instance.thetas @ instance.features.T
    for t in (0, 99, 100, 650, 700, 20_999):
        np.testing.assert_allclose(world.means[t], daily[t // 100 % 7])
    assert world.gap >= 0.05
    shorter = yahoo_world(instance, budget=7000)
    np.testing.assert_allclose(shorter.means[1000], daily[1])


@pytest.mark.parametrize("per_day", [False, True])
def test_an_instance_survives_the_file(week: Week, tmp_path: Path, per_day: bool) -> None:
    instance = yahoo_instance(week.log, per_day_basis=per_day, visits_per_day=500)
    for name in ("a.npz", "b.npz"):
        instance.save(tmp_path / "deep" / name)
    a, b = (tmp_path / "deep" / name for name in ("a.npz", "b.npz"))
    assert a.read_bytes() == b.read_bytes()
    assert {path.name for path in a.parent.iterdir()} == {"a.npz", "b.npz"}
    again = load_yahoo_instance(a)
    for name, value in vars(instance).items():
        np.testing.assert_array_equal(vars(again)[name], value)
        assert type(vars(again)[name]) is type(value)
    np.testing.assert_array_equal(yahoo_world(again).means, yahoo_world(instance).means)
    assert len(again.directions) == (7 if per_day else 1)


def test_the_same_seed_gives_the_same_arms_and_another_others(week: Week) -> None:
    one, same, other = (yahoo_instance(week.log, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.features, same.features)
    np.testing.assert_array_equal(one.features[0], other.features[0])
    assert not np.array_equal(one.features[1:], other.features[1:])
    reread = yahoo_instance(read_yahoo(week.folder, seed=9), seed=3)
    assert not np.array_equal(one.features[1:], reread.features[1:])


def test_a_policy_runs_on_it(instance: YahooInstance) -> None:
    results = sa.simulate(sa.GBAI(), yahoo_world(instance), trials=200, seed=0)
    assert results.error_rate < 0.5


def test_what_cannot_be_chosen(week: Week) -> None:
    with pytest.raises(sa.InvalidInputError, match=r"of 5,000 candidates 0 are at least 9 below"):
        yahoo_instance(week.log, gap=9)
    with pytest.raises(sa.InvalidInputError, match="no days"):
        yahoo_instance([])
    with pytest.raises(sa.InvalidInputError, match="visits_per_day is 0"):
        yahoo_instance(week.log, visits_per_day=0)


def test_foreign_and_broken_files(tmp_path: Path, instance: YahooInstance) -> None:
    good = tmp_path / "good.npz"
    instance.save(good)
    bad = tmp_path / "bad.npz"
    for content in (b"", b"text", good.read_bytes()[:5000]):
        bad.write_bytes(content)
        with pytest.raises(sa.InvalidInputError, match="cannot be read as a Yahoo! instance"):
            load_yahoo_instance(bad)
    with pytest.raises(sa.InvalidInputError, match="cannot be read"):
        load_yahoo_instance(tmp_path / "nowhere.npz")
    np.savez(bad, a=np.ones(3))
    with pytest.raises(sa.InvalidInputError, match=r"version 1 \(it holds a\)"):
        load_yahoo_instance(bad)
    np.save(tmp_path / "array.npy", np.ones(3))
    with pytest.raises(sa.InvalidInputError, match="cannot be read"):
        load_yahoo_instance(tmp_path / "array.npy")
