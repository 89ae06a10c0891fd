"""Every environment satisfies the checks, and the checks notice when one does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.environments import RewardSource, families
from steadyarm.segments import Segment, SegmentStats
from steadyarm.testing.environments import CHECKS
from tests.environments.test_replay import world as replayed

ARMS = sa.ArmSet.factorial({"a": ["-", "+"], "b": ["x", "y", "z"]})
MANY = sa.ArmSet.factorial({f"slot {i}": ["off", "on"] for i in range(13)})
THETAS = np.random.default_rng(1).normal(size=(60, ARMS.dimension))
MEANS = np.random.default_rng(2).uniform(0.1, 0.9, size=(60, 6))


WORLDS: dict[str, RewardSource] = {
    "gaussian": sa.Environment.from_parameters(ARMS, THETAS),
    "minimized": sa.Environment.from_parameters(ARMS, THETAS, direction="minimize"),
    "bounded": sa.Environment.from_means(ARMS, MEANS, noise=sa.BoundedNoise(0.3)),
    "bernoulli": sa.Environment.from_means(ARMS, MEANS, noise=sa.BernoulliReward()),
    "covariate": sa.Environment.from_means(ARMS, MEANS).with_covariate(0.5),
    "one round": sa.Environment.from_means(ARMS, MEANS[0], budget=1),
    "soare": families.soare_oscillating(budget=50),
    "parametric": sa.ParametricEnvironment(ARMS, THETAS),
    "many arms": sa.ParametricEnvironment(MANY, np.zeros(MANY.dimension), budget=50),
    "replayed": replayed(),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_environment_satisfies(check: Callable[[Any], None], world: RewardSource) -> None:
    check(world)


class Broken:
    """An environment with one fault."""

    def __init__(self, world: sa.Environment) -> None:
        self.world = world
        self.arms, self.budget = world.arms, world.budget
        self.direction, self.best_arm = world.direction, world.best_arm

    def play(
        self, segment: Segment, start: Any, rng: np.random.Generator, squares: bool = False
    ) -> SegmentStats:
        return self.world.play(segment, start, rng, squares)


class SecondBest(Broken):
    def __init__(self, world: sa.Environment) -> None:
        super().__init__(world)
        self.best_arm = int(np.argsort(world.average)[-2])


class ForgetsARound(Broken):
    def play(self, segment: Segment, *rest: Any, **more: Any) -> SegmentStats:
        fewer = replace(segment, rounds=np.maximum(segment.rounds - 1, 0))
        return self.world.play(fewer, *rest, **more)


class DrawsForItself(Broken):
    def play(self, segment: Segment, start: Any, rng: Any, squares: bool = False) -> SegmentStats:
        return self.world.play(segment, start, np.random.default_rng(), squares)


class NoSquares(Broken):
    def play(self, segment: Segment, start: Any, rng: Any, squares: bool = False) -> SegmentStats:
        return self.world.play(segment, start, rng)


@pytest.mark.parametrize("broken", [SecondBest, ForgetsARound, DrawsForItself, NoSquares])
def test_checks_notice(broken: type[Broken]) -> None:
    def run() -> None:
        means = np.linspace(0.1, 0.6, 6)
        noise = sa.GaussianNoise(0.2)
        for check in CHECKS:
            check(broken(sa.Environment.from_means(ARMS, means, noise=noise, budget=40)))

    with pytest.raises(AssertionError):
        run()
