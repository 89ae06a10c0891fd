"""P1-Peace: P1-RAGE with Peace's elimination instead, the paper's Algorithms 4 and 5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.exact_design import Allocation, mixed
from steadyarm.policies.elimination import peace_elimination
from steadyarm.policies.ips import EpochLength, IPSPolicy, IPSState, epoch_end


@dataclass(frozen=True)
class P1Peace(IPSPolicy[IPSState]):
    """Half G-optimal, half what Peace would sample in a full run if the estimate were right.

    Virtual phases halve the difficulty ρ of the remaining arms instead of the allowed gap, so no
    number of phases has to be chosen.

    Parameters
    ----------
    epoch_length : R = ⌊T / log2 ρ⌋ as in the "text", or ⌊T / ⌈log2 ρ⌉⌋ as in the "published" runs

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.P1Peace(), world, trials=1000, seed=1)
    Results(P1-Peace: 46 errors in 1000 trials)
    """

    name: ClassVar[str] = "P1-Peace"

    epoch_length: EpochLength = "text"

    @classmethod
    def published(cls) -> Self:
        """⌈log2 ρ⌉ epochs, Frank-Wolfe designs, ties to the higher index."""
        return cls(solver="frank-wolfe", ties="last", epoch_length="published")

    def allocation(self, state: IPSState) -> Allocation:
        """λ* at first, then (λ̄ + λ*)/2."""
        g = self.g_optimal(state.arms)
        if not state.played.any():
            return g
        virtual = peace_elimination(state.arms, self.estimates(state), state.ties, self.solver)
        return mixed([(0.5, virtual), (0.5, g)])

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        """The next round of redesign."""
        return epoch_end(state, self.solver, self.epoch_length)
