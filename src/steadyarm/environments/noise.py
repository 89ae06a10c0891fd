"""How a reward scatters around its mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steadyarm.environments import kernels
from steadyarm.errors import InvalidInputError
from steadyarm.validation import finite_number


@dataclass(frozen=True)
class GaussianNoise:
    """Reward = mean + normal noise of standard deviation `sd`; the paper's experiments."""

    sd: float = 1.0
    kind: ClassVar[int] = kernels.GAUSSIAN

    def __post_init__(self) -> None:
        if not finite_number(self.sd, "sd") >= 0:
            raise InvalidInputError(f"sd is {self.sd}; expected a number of at least 0.")

    @property
    def scale(self) -> float:
        """What the compiled kernels need to know."""
        return self.sd


@dataclass(frozen=True)
class BoundedNoise:
    """Reward = mean + noise uniform on [-bound, bound]; with bound 1 the paper's assumption."""

    bound: float = 1.0
    kind: ClassVar[int] = kernels.BOUNDED

    def __post_init__(self) -> None:
        if not finite_number(self.bound, "bound") >= 0:
            raise InvalidInputError(f"bound is {self.bound}; expected a number of at least 0.")

    @property
    def scale(self) -> float:
        """What the compiled kernels need to know."""
        return self.bound


@dataclass(frozen=True)
class BernoulliReward:
    """Reward 1 with probability equal to the mean, else 0: clicks and conversions."""

    kind: ClassVar[int] = kernels.BERNOULLI
    scale: ClassVar[float] = 1.0


Noise = GaussianNoise | BoundedNoise | BernoulliReward


def check_noise(noise: Noise) -> None:
    """Refuse what is none of the three."""
    if not isinstance(noise, Noise):
        raise InvalidInputError(
            f"noise is {noise!r}; expected GaussianNoise(…), BoundedNoise(…) or BernoulliReward()."
        )
