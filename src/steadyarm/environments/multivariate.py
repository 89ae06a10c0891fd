"""The paper's multivariate test: layouts of two-level slots, still or oscillating."""

from __future__ import annotations

import json
from importlib import resources
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.compiled import sines
from steadyarm.environments.environment import Environment
from steadyarm.environments.noise import GaussianNoise, Noise
from steadyarm.environments.soare import check_period
from steadyarm.errors import InvalidInputError
from steadyarm.validation import check_choice, finite_number, whole_number

__all__ = ["layouts", "multivariate", "published_multivariate"]

MOST_DRAWS = 10_000  # of phases, until the oscillation leaves the best arm what it was


def layouts(slots: int = 4) -> ArmSet:
    """Every layout of a page with `slots` two-level slots; main effects and pairs.

    Examples
    --------
    >>> layouts(4)
    ArmSet(16 arms, 11 features)
    """
    whole_number(slots, "slots", least=2)
    return ArmSet.factorial({f"slot {j + 1}": ["-", "+"] for j in range(slots)}, interactions=2)


def multivariate(
    slots: int = 4,
    scale: float = 0.0,
    period: float = 900,
    budget: int = 10_000,
    alpha_1: float = 1.0,
    alpha_2: float = 0.5,
    noise: Noise | None = None,
    seed: int = 0,
) -> Environment:
    """A random instance as in the paper's text; scale 0 stands still.

    Every weight of θ* is uniform on [-0.1, 0.1], times α₁ for slots and α₂ for pairs. Each
    weight either keeps still or swings by scale · max|θ*| with its own phase, with equal chance;
    phases are drawn again until the best arm on average is that of θ*.

    Examples
    --------
    >>> still, moving = multivariate(seed=3), multivariate(seed=3, scale=4)
    >>> still.best_arm == moving.best_arm
    True
    """
    check_period(period)
    scale, budget = finite_number(scale, "scale"), whole_number(budget, "budget", least=1)
    arms = layouts(slots)
    rng = np.random.default_rng(whole_number(seed, "seed"))
    alpha = np.full(arms.dimension, alpha_2)
    alpha[0], alpha[1 : 1 + slots] = 1.0, alpha_1
    theta = rng.uniform(-0.1, 0.1, arms.dimension)
    noise = GaussianNoise(0.3) if noise is None else noise
    still = Environment.from_parameters(arms, alpha * theta, noise, budget)
    if scale == 0:
        return still
    for _ in range(MOST_DRAWS):
        swings = rng.integers(2, size=arms.dimension)
        phases = rng.uniform(0, 2 * np.pi, arms.dimension)
        wave = _wave(budget, period, phases) * swings
        thetas = alpha * (theta + scale * np.abs(theta).max() * wave)
        moving = Environment.from_parameters(arms, thetas, noise)
        if moving.best_arm == still.best_arm:
            return moving
    raise InvalidInputError(
        f"with scale {scale} and period {period}, none of {MOST_DRAWS} random oscillations left "
        "the best arm what it was; take a smaller scale, another period or another seed."
    )


def published_multivariate(
    series: Literal["scale", "period"] = "scale", value: float = 0
) -> Environment:
    """The very instance behind the paper's figures, at one value of its series.

    Series "scale" has scales 0, 1, …, 9 at period 900; series "period" has periods 300, 600, …,
    3000 at scale 2.

    Examples
    --------
    >>> world = published_multivariate("scale", 3)
    >>> world.best_arm, round(world.gap, 4)
    (11, 0.0364)
    """
    check_choice(series, "series", ("scale", "period"))
    file = resources.files("steadyarm.environments") / "published_multivariate_instance.json"
    instance = json.loads(file.read_text())
    settings = {setting[series]: setting for setting in instance[f"{series}_series"]}
    if value not in settings:
        raise InvalidInputError(
            f"{series} is {value}; the published values are {', '.join(map(str, settings))}."
        )
    setting = settings[value]
    theta = np.array(instance["theta_star"])
    wave = _wave(instance["budget"], setting["period"], np.array(setting["phases"]))
    thetas = theta + setting["scale"] * np.abs(theta).max() * wave
    return Environment.from_parameters(layouts(4), thetas, GaussianNoise(instance["noise_sd"]))


def _wave(budget: int, period: float, phases: NDArray[np.float64]) -> NDArray[np.float64]:
    """(T, d) unit oscillations, rounds counted from 0."""
    t = np.arange(budget)[:, None]
    return sines(2 * np.pi * t / period + phases)
