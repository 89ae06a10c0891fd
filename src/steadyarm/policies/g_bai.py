"""G-BAI: the G-optimal design throughout, the paper's Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.exact_design import Allocation
from steadyarm.policies.ips import IPSPolicy, IPSState


@dataclass(frozen=True)
class GBAI(IPSPolicy[IPSState]):
    """Draw from the G-optimal design λ* and recommend the largest inverse-propensity estimate.

    Minimax optimal when the world may move arbitrarily: error at most
    K exp(-T Δ²/(12 d)) (Theorem 1) for rewards of at most 1 in size. It learns nothing on the way.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.from_features([[1, 0], [0, 1], [0.5, 0.5]])
    >>> policy = sa.GBAI()
    >>> policy.next_segment(policy.start(arms, budget=100)).weights.round(3)
    array([[0.5, 0.5, 0. ]])
    """

    name: ClassVar[str] = "G-BAI"
    scales: ClassVar[bool] = True

    @classmethod
    def published(cls) -> Self:
        """Frank-Wolfe designs, ties to the higher index."""
        return cls(solver="frank-wolfe", ties="last")

    def allocation(self, state: IPSState) -> Allocation:
        """λ* for every trial."""
        return self.g_optimal(state.arms)

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        """The whole budget is one segment."""
        return np.full(state.trials, state.budget)
