"""The paper's worlds have its numbers, and drifting families the course that is told."""

from __future__ import annotations

import json
import sys
from importlib import resources
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.environments import (
    malicious_switch,
    multivariate,
    published_multivariate,
    random_walk,
    repeating,
    shock,
    soare_arms,
    soare_oscillating,
    soare_stationary,
    switching,
    trend,
    weekday_weekend,
)
from steadyarm.paper import published_counts

TWO = sa.ArmSet.one_hot(["A", "B"])


def test_soares_arms_and_its_tiny_gap() -> None:
    arms = soare_arms(d=5, omega=0.2)
    assert np.allclose(np.linalg.norm(arms.features, axis=1), 1)
    assert np.isclose(arms.features[0] @ arms.features[-1], np.cos(0.2))
    world = soare_stationary(100, d=5, omega=0.2)
    assert world.is_stationary
    assert np.isclose(world.gap, 2 * (1 - np.cos(0.2)))


@pytest.mark.parametrize("value", range(10))
def test_published_multivariate_instance_is_exact(value: int) -> None:
    file = resources.files("steadyarm.environments") / "published_multivariate_instance.json"
    instance = json.loads(file.read_text())
    for series, given in (("scale", value), ("period", 300 * (value + 1))):
        world = published_multivariate(series, given)  # type: ignore[arg-type]  # a literal
        setting = instance[f"{series}_series"][value]
        assert world.best_arm == instance["best_arm"]
        assert np.isclose(world.gap, setting["min_gap"], rtol=0, atol=1e-13)


def test_gaps_equal_the_published_ones_in_every_figure() -> None:
    from steadyarm.paper import FIGURES

    told = {
        (figure, value): cell.gap
        for (figure, value, _), cell in published_counts().items()
        if cell.gap is not None and figure != "yahoo"
    }
    assert len(told) == 46  # all settings but those of malicious and multivariate_stationary
    for (figure, value), gap in told.items():
        assert np.isclose(FIGURES[figure].world(value).gap, gap, rtol=0, atol=1e-8)


def test_oscillations_swing_as_told() -> None:
    world = soare_oscillating(scale=3, period=40, budget=400)
    last = world.means[:, 9]
    assert np.isclose(last.mean(), 0.5)
    assert np.isclose(last[10], 0.5 - 3)
    assert np.allclose(last[:40], last[40:80])
    assert np.allclose(world.means[:, 0], 0.3)


def test_the_malicious_switch_turns_after_a_third() -> None:
    text, runs = malicious_switch(), malicious_switch(published=True)
    assert np.array_equal(text.means[3332, :3], [0, 1, 1])
    assert np.array_equal(text.means[3333, :3], [2, 0, 0])
    assert np.array_equal(runs.means[3333], np.zeros(11))
    assert np.array_equal(np.delete(text.means, 3333, axis=0), np.delete(runs.means, 3333, axis=0))
    assert text.best_arm == runs.best_arm == 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scale", [0.0, 1.0, 6.0])
def test_random_multivariate_instances_keep_their_best_arm(seed: int, scale: float) -> None:
    still = multivariate(slots=3, seed=seed, budget=500)
    moving = multivariate(slots=3, scale=scale, seed=seed, budget=500)
    assert moving.best_arm == still.best_arm
    again = multivariate(slots=3, scale=scale, seed=seed, budget=500)
    assert np.array_equal(moving.table, again.table)
    other = multivariate(slots=3, scale=scale, seed=seed + 100, budget=500)
    assert not np.array_equal(moving.table[0], other.table[0])


def test_oscillations_that_never_keep_the_best_arm_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules["steadyarm.environments.families"]
    monkeypatch.setattr(module, "MOST_DRAWS", 1)
    refused = 0
    for seed in range(20):
        try:
            multivariate(scale=50.0, seed=seed, budget=50)
        except sa.InvalidInputError as error:
            assert "take a smaller scale" in str(error)  # noqa: PT017  # some seeds do succeed
            refused += 1
    assert refused > 10


def test_drifting_families_have_the_told_course() -> None:
    line = trend(TWO, [0, 1], [1, 0], budget=11)
    assert np.allclose(line.means[:, 0], np.linspace(0, 1, 11))
    walk = random_walk(TWO, [0.5, 0.2], step=0.1, budget=5000, seed=2)
    steps = np.diff(walk.means, axis=0)
    assert np.isclose(steps.std(), 0.1, rtol=0.05)
    parts = switching(TWO, [[1, 0], [0, 1], [1, 1]], budget=10, shares=[2, 1, 2])
    assert parts.means[:, 0].tolist() == [1] * 4 + [0] * 2 + [1] * 4
    hit = shock(TWO, [0, 0], during=[1, 2], budget=100, start=0.5, length=0.2)
    assert np.flatnonzero(hit.means[:, 1]).tolist() == list(range(50, 70))
    turns = repeating(TWO, [[1, 0], [0, 1], [5, 5]], each=2, budget=13)
    assert turns.means[:, 0].tolist() == [1, 1, 0, 0, 5, 5, 1, 1, 0, 0, 5, 5, 1]
    week = weekday_weekend(TWO, [1, 0], [0, 1], visits_per_day=1, days=9, first_day=4)
    assert week.means[:, 0].tolist() == [1, 0, 0, 1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: soare_arms(d=1), "d is 1"),
        (lambda: soare_stationary(d=2.5), "d is 2.5"),  # type: ignore[arg-type]  # the point of the test
        (lambda: random_walk(TWO, [0, 0], "a", 10), "step is 'a'"),  # type: ignore[arg-type]  # the point of the test
        (lambda: random_walk(TWO, [0, 0], 0.1, 10, seed=-1), "seed is -1"),
        (lambda: switching(TWO, [[0, 0], [1, 1]], 10, shares=[np.inf, 1]), "positive numbers"),
        (lambda: trend(TWO, ["a", "b"], [1, 1], 10), "first is not a table of numbers"),
        (lambda: trend(TWO, [0, 0], [1, 1], 2.5), "budget is 2.5"),  # type: ignore[arg-type]  # the point of the test
        (lambda: soare_oscillating(period=0), "period is 0"),
        (lambda: multivariate(slots=1), "slots is 1"),
        (lambda: multivariate(period=-1), "period is -1"),
        (lambda: published_multivariate("scale", 10), "scale is 10; the published values are 0.0"),
        (lambda: trend(TWO, [0], [1, 1], 10), r"first has shape \(1,\)"),
        (lambda: trend(TWO, [0, 0], [1, 1], 0), "budget is 0"),
        (lambda: random_walk(TWO, [0, 0], -1, 10), "step is -1"),
        (lambda: switching(TWO, [[0, 0]], 10, shares=[1, 2]), "expected 1 positive"),
        (lambda: switching(TWO, [0, 0], 10), "thetas is one row"),
        (lambda: shock(TWO, [0, 0], [1, 1], 10, start=2), "start is 2"),
        (lambda: repeating(TWO, [[0, 0]], 0, 10), "each is 0"),
        (lambda: weekday_weekend(TWO, [0, 0], [1, 1], 5, first_day=7), "first_day is 7"),
    ],
)
def test_bad_families_are_refused_with_a_reason(build: Any, message: str) -> None:
    with pytest.raises(sa.InvalidInputError, match=message):
        build()
