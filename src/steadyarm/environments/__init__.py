"""Where rewards come from in a simulation: tables over time, named families, logged data."""

from steadyarm.environments.covariate import CovariateEnvironment
from steadyarm.environments.environment import (
    BernoulliReward,
    BoundedNoise,
    Environment,
    GaussianNoise,
    Noise,
    ParametricEnvironment,
    RewardSource,
)
from steadyarm.environments.families import (
    layouts,
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
from steadyarm.environments.sources import CallableEnvironment, Replay

__all__ = [
    "BernoulliReward",
    "BoundedNoise",
    "CallableEnvironment",
    "CovariateEnvironment",
    "Environment",
    "GaussianNoise",
    "Noise",
    "ParametricEnvironment",
    "Replay",
    "RewardSource",
    "layouts",
    "malicious_switch",
    "multivariate",
    "published_multivariate",
    "random_walk",
    "repeating",
    "shock",
    "soare_arms",
    "soare_oscillating",
    "soare_stationary",
    "switching",
    "trend",
    "weekday_weekend",
]
