"""Peace: fixed-budget elimination for a world that stands still (Katz-Samuels et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.cache import designs_for
from steadyarm.designs.exact_design import round_designs
from steadyarm.policies.elimination import halve
from steadyarm.policies.ips import epoch_count
from steadyarm.policies.phased import PhasedPolicy, PhasedState


@dataclass(frozen=True)
class Peace(PhasedPolicy):
    """In each of ⌈log2 ρ⌉ epochs play the survivors' XY design, then halve their difficulty.

    As in the paper's experiments the optimal ρ stands for the Gaussian width of the original,
    each epoch is played in random order, and the last epoch takes the remainder of the budget.
    It stops early when one arm is left.

    Parameters
    ----------
    rounding_ties : which arm gets a round first where there are fewer rounds than arms, where
        the paper is silent: the "heavier" in the design, or the "first"

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.Peace(), world, trials=1000, seed=1)
    Results(Peace: 164 errors in 1000 trials)

    References
    ----------
    Katz-Samuels, Jain, Karnin, Jamieson: An empirical process approach to the union bound:
    practical algorithms for combinatorial and linear bandits. NeurIPS 2020.
    """

    name: ClassVar[str] = "Peace"

    rounding_ties: Literal["heavier", "first"] = "heavier"

    @classmethod
    def published(cls) -> Self:
        """Frank-Wolfe designs, ties to the higher index; in rounding to the lower."""
        return cls(solver="frank-wolfe", ties="last", rounding_ties="first")

    def planned_counts(self, state: PhasedState) -> NDArray[np.int64]:
        """The survivors' XY design, efficiently rounded to the epoch's length."""
        epochs = epoch_count(state.arms, self.solver)
        left = state.budget - state.played
        length = np.where(state.epoch + 1 < epochs, max(1, state.budget // epochs), left)
        ended = (state.epoch >= epochs) | (state.survivors.sum(axis=1) == 1)
        rounds = np.where(ended, 0, np.minimum(length, left))
        designs = designs_for(state.arms, state.survivors, kind="xy", solver=self.solver)
        weights = designs.allocation().everywhere(state.arms.size)
        return round_designs(weights, rounds, self.rounding_ties)

    def keep(self, state: PhasedState, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The longest prefix whose optimal ρ is at most half."""
        return halve(state.arms, state.survivors, order, self.solver)
