"""GSE, generalized successive elimination: play the survivors' G-optimal design, keep the best.

    S = all arms
    for each of ⌈log_η K⌉ stages
        play the G-optimal design of S in its own span, in random order     planned_counts
        θ̂ = least squares on this stage alone
        S = the best ⌈|S| / η⌉ arms of S                                    keep
    recommend the arm that is left

Names on the right are methods of this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.optimal import designs_for
from steadyarm.designs.rounding import round_designs
from steadyarm.policies.phased import PhasedPolicy, PhasedState, keep_best
from steadyarm.validation import whole_number


@dataclass(frozen=True)
class GSE(PhasedPolicy):
    """In each of ⌈log_η K⌉ stages play the survivors' G-optimal design, then keep one in η of them.

    Linear, for a world that stands still. Each stage has ⌊T / ⌈log_η K⌉⌋ rounds, and estimates use
    this stage alone. Where arms share nothing and the budget divides, it is Sequential Halving.

    Parameters
    ----------
    eta : η, by which the number of survivors is divided

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.GSE(), world, trials=1000, seed=1)
    Results(GSE: 54 errors in 1000 trials)

    References
    ----------
    Azizi, Kveton, Ghavamzadeh: Fixed-budget best-arm identification in structured bandits.
    IJCAI 2022, Algorithm 1 with the linear model and G-optimal exploration.
    """

    name: ClassVar[str] = "GSE"

    eta: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.eta, "eta", least=2)

    def stages(self, arms: int) -> int:
        """⌈log_η K⌉: how often the number of arms is divided until one is left.

        Parameters
        ----------
        arms : K
        """
        stages = 0
        while arms > 1:
            arms, stages = -(-arms // self.eta), stages + 1
        return stages

    def planned_counts(self, state: PhasedState) -> NDArray[np.int64]:
        """The survivors' G-optimal design, efficiently rounded to the stage's length."""
        stages = self.stages(state.arms.size)
        rounds = np.where(state.epoch < stages, state.budget // stages, 0)
        designs = designs_for(state.arms, state.survivors, kind="g", solver=self.solver)
        return round_designs(designs.allocation().everywhere(state.arms.size), rounds)

    def keep(self, state: PhasedState, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The best ⌈|S| / η⌉ of the survivors."""
        return keep_best(state.survivors, order, -(-state.survivors.sum(axis=1) // self.eta))
