"""Top-two Thompson sampling, linear, in batches: leader against challenger (Russo 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from steadyarm.policies.thompson import Floats, ThompsonPolicy, ThompsonState
from steadyarm.policies.thompson_kernels import top_two
from steadyarm.validation import check_fraction

__all__ = ["TopTwoThompson"]


@dataclass(frozen=True)
class TopTwoThompson(ThompsonPolicy):
    """With probability β play the best arm of a posterior draw, else that of a draw that disagrees.

    The second keeps the leader from taking all rounds, so that the test learns faster which arm is
    best than with Thompson sampling; drift misleads it all the same. Where one arm wins all
    samples, the challenger is drawn from the probabilities of each arm to beat it.

    Parameters
    ----------
    beta : share of the leader
    noise_sd, ridge, samples, batch : see `ThompsonPolicy`

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.TopTwoThompson(), world, trials=1000, seed=1)
    Results(Top-Two-Thompson: 17 errors in 1000 trials)

    References
    ----------
    Russo: Simple Bayesian algorithms for best arm identification. COLT 2016,
    top-two Thompson sampling.
    """

    name: ClassVar[str] = "Top-Two-Thompson"

    beta: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(self.beta, "beta")

    def allocation(self, state: ThompsonState, values: Floats, shares: Floats) -> Floats:
        """β p_i + (1 - β) p_i Σ_{j≠i} p_j/(1 - p_j)."""
        weights = np.empty(shares.shape)
        top_two(
            state.arms.coordinates,
            state.counts.astype(np.float64),
            self.ridge,
            self.noise_sd,
            self.beta,
            values,
            shares,
            weights,
        )
        return weights
