"""Where rewards come from in a simulation."""

from steadyarm.environments.environment import Environment, RewardSource
from steadyarm.environments.noise import BernoulliReward, BoundedNoise, GaussianNoise, Noise

__all__ = [
    "BernoulliReward",
    "BoundedNoise",
    "Environment",
    "GaussianNoise",
    "Noise",
    "RewardSource",
]
