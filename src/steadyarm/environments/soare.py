"""Soare's arm set and the paper's worlds on it: still, oscillating, malicious."""

from __future__ import annotations

import numpy as np

from steadyarm.arms import ArmSet
from steadyarm.compiled import cos, sin, sines
from steadyarm.environments.environment import Environment
from steadyarm.environments.noise import GaussianNoise, Noise
from steadyarm.errors import InvalidInputError
from steadyarm.validation import finite_number, whole_number

__all__ = [
    "check_period",
    "malicious_switch",
    "soare_arms",
    "soare_oscillating",
    "soare_stationary",
]


def soare_arms(d: int = 10, omega: float = 0.1) -> ArmSet:
    """The d basis vectors and one arm at angle `omega` from the first (Soare et al. 2014).

    Examples
    --------
    >>> soare_arms(d=3, omega=0.5).features[3].round(3).tolist()
    [0.878, 0.479, 0.0]
    """
    whole_number(d, "d", least=2)
    finite_number(omega, "omega")
    tilted = np.zeros(d)
    tilted[:2] = cos(float(omega)), sin(float(omega))
    names = [f"e{j + 1}" for j in range(d)]
    return ArmSet.from_features(np.vstack([np.eye(d), tilted]), names=[*names, "tilted"])


def soare_stationary(
    budget: int = 5010, d: int = 10, omega: float = 0.1, noise: Noise | None = None
) -> Environment:
    """The classic hard case: θ = 2e₁, and an arm at angle ω that is nearly as good as e₁.

    Examples
    --------
    >>> world = soare_stationary()
    >>> world.best_arm, round(world.gap, 4)
    (0, 0.01)
    """
    theta = 2.0 * np.eye(whole_number(d, "d", least=2))[0]
    return Environment.from_parameters(soare_arms(d, omega), theta, noise, budget)


def soare_oscillating(
    scale: float = 1.0,
    period: float = 200,
    budget: int = 10_000,
    d: int = 10,
    omega: float = 0.5,
    noise: Noise | None = None,
) -> Environment:
    """θ_t = (0.3, 0, …, 0, 0.5 - s sin(2πt/L)): the last arm is best on average, and swings.

    Examples
    --------
    >>> world = soare_oscillating(scale=3)
    >>> world.best_arm, round(world.gap, 4)
    (9, 0.2)
    """
    check_period(period)
    scale, budget = finite_number(scale, "scale"), whole_number(budget, "budget", least=1)
    thetas = np.zeros((budget, whole_number(d, "d", least=2)))
    thetas[:, 0] = 0.3
    thetas[:, -1] += 0.5 - scale * sines(2 * np.pi * np.arange(budget) / period)
    return Environment.from_parameters(soare_arms(d, omega), thetas, noise)


def malicious_switch(
    budget: int = 10_000,
    d: int = 10,
    omega: float = 0.5,
    noise: Noise | None = None,
    published: bool = False,
) -> Environment:
    """θ = (0, 1, …, 1) in the first third, then 2e₁: whoever drops e₁ early is wrong.

    With `published` the one round at the switch has θ = 0, as in the paper's published runs.

    Examples
    --------
    >>> world = malicious_switch()
    >>> world.best_arm, round(world.gap, 4)
    (0, 0.0034)
    """
    budget = whole_number(budget, "budget", least=3)
    thetas = np.tile(2.0 * np.eye(whole_number(d, "d", least=2))[0], (budget, 1))
    switch = budget // 3
    thetas[:switch] = 1.0
    thetas[:switch, 0] = 0.0
    if published:
        thetas[switch] = 0.0
    return Environment.from_parameters(soare_arms(d, omega), thetas, noise or GaussianNoise())


def check_period(period: float) -> None:
    """Refuse a period that is not a positive number of rounds."""
    if not finite_number(period, "period") > 0:
        raise InvalidInputError(f"period is {period}; expected a positive number of rounds.")
