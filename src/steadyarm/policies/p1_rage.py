"""P1-RAGE: robust allocation by virtual elimination, the paper's Algorithms 2 and 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.designs.exact_design import Allocation, mixed
from steadyarm.errors import InvalidInputError
from steadyarm.policies.elimination import rage_elimination
from steadyarm.policies.ips import EpochLength, IPSPolicy, IPSState, epoch_end
from steadyarm.validation import finite_number, whole_number


@dataclass(frozen=True)
class P1RAGE(IPSPolicy[IPSState]):
    """Half G-optimal, half what RAGE would sample in a full run if the estimate were right.

    The first half keeps every estimate unbiased with bounded variance however the world moves;
    the second half brings the rounds to the arms that matter (Theorem 2).

    Parameters
    ----------
    max_phases : most virtual phases averaged. Algorithm 3 averages up to m + 1; the paper runs
        with m = 15, hence 16.
    first_cut : gap allowed at the first cut, halved at every further one; 2⁰ in Algorithm 3
    updates : "epochs" redesigns after rounds 1, 1 + R, 1 + 2R, … as the paper's experiments do;
        "rounds" redesigns after every round, Algorithm 2 to the letter
    epoch_length : R = ⌊T / log2 ρ⌋ as in the "text", or ⌊T / ⌈log2 ρ⌉⌋ as in the "published" runs

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.P1RAGE(), world, trials=1000, seed=1)
    Results(P1-RAGE: 44 errors in 1000 trials)
    """

    name: ClassVar[str] = "P1-RAGE"
    scales: ClassVar[bool] = True

    max_phases: int = 16
    first_cut: float = 1.0
    updates: Literal["epochs", "rounds"] = "epochs"
    epoch_length: EpochLength = "text"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.max_phases, "max_phases", least=1)
        if not finite_number(self.first_cut, "first_cut") > 0:
            raise InvalidInputError(f"first_cut is {self.first_cut}; expected a positive gap.")

    @classmethod
    def published(cls) -> Self:
        """First cut at 1/2, 15 phases, ⌈log2 ρ⌉ epochs, Frank-Wolfe, ties to the higher index."""
        return cls(
            solver="frank-wolfe",
            ties="last",
            max_phases=15,
            first_cut=0.5,
            epoch_length="published",
        )

    def allocation(self, state: IPSState) -> Allocation:
        """λ* at first, then (λ̄ + λ*)/2."""
        g = self.g_optimal(state.arms)
        if not state.played.any():
            return g
        virtual = rage_elimination(
            state.arms, self.estimates(state), self.max_phases, self.first_cut, self.solver
        )
        return mixed([(0.5, virtual), (0.5, g)])

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        """The next round of redesign."""
        if self.updates == "rounds":
            return state.played + 1
        return epoch_end(state, self.solver, self.epoch_length)
