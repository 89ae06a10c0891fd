"""Linear Thompson sampling, in batches: play each arm as often as it may be the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from steadyarm.policies.thompson import Floats, ThompsonPolicy, ThompsonState

__all__ = ["LinearThompson"]


@dataclass(frozen=True)
class LinearThompson(ThompsonPolicy):
    """Play each arm with the posterior probability that it is best.

    Made to earn rewards while testing, for a world that stands still: as one arm leads, the others
    are hardly played any more, and drift misleads it. It stands here because people test with it.
    This is batched Thompson sampling: `ThompsonPolicy` says how, and what the fields are.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.LinearThompson(), world, trials=1000, seed=1)
    Results(Linear-Thompson: 34 errors in 1000 trials)

    References
    ----------
    Agrawal, Goyal: Thompson sampling for contextual bandits with linear payoffs. ICML 2013,
    Algorithm 1, with a constant v.
    """

    name: ClassVar[str] = "Linear-Thompson"

    def allocation(self, state: ThompsonState, values: Floats, shares: Floats) -> Floats:
        """The shares themselves."""
        return shares
