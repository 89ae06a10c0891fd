"""Uniform: every arm with the same probability, the plain A/B/n test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.policies.ips import IPSPolicy, IPSState


@dataclass(frozen=True)
class Uniform(IPSPolicy[IPSState]):
    """Draw every arm with probability 1/K throughout.

    The estimate still uses the features. Robust to drift, but blind both to the shape of the
    arm set and to the rewards.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C", "D"])
    >>> policy = sa.Uniform()
    >>> policy.next_segment(policy.start(arms, budget=100)).weights
    array([[0.25, 0.25, 0.25, 0.25]])
    """

    name: ClassVar[str] = "Uniform"

    def allocation(self, state: IPSState) -> NDArray[np.float64]:
        """1/K for every arm."""
        return np.full((state.trials, state.arms.size), 1.0 / state.arms.size)

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        """The whole budget is one segment."""
        return np.full(state.trials, state.budget)
