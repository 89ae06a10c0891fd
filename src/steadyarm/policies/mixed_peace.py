"""Mixed-Peace: Peace's epochs mixed with the G-optimal design, the paper's Algorithm 6."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.cache import designs_for
from steadyarm.policies.base import State, rank_arms
from steadyarm.policies.elimination import halve
from steadyarm.policies.ips import EpochLength, IPSPolicy, IPSState, epoch_count


@dataclass(frozen=True)
class MixedPeaceState(IPSState):
    """The arms, (n, K), that have survived the epochs so far."""

    survivors: NDArray[np.bool_]


@dataclass(frozen=True)
class MixedPeace(IPSPolicy[MixedPeaceState]):
    """In each epoch draw from the average of the survivors' XY design and the G-optimal one.

    Eliminations are as in Peace, on the estimate from all rounds so far. An eliminated arm can
    still be recommended, since every arm's estimate stays unbiased.

    Parameters
    ----------
    epochs : with R = ⌈log2 ρ⌉ and N = ⌊T / R⌋, "text" runs epochs 0..R of N rounds, the last of
        them what remains of the budget; "published" runs R epochs, the last takes the remainder
    alone : what is mixed with the G-optimal design once a single arm is left, where the paper is
        silent: "g" goes on with the G-optimal design alone, "uniform" mixes in the uniform one

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.MixedPeace(), world, trials=1000, seed=1)
    Results(Mixed-Peace: 50 errors in 1000 trials)
    """

    name: ClassVar[str] = "Mixed-Peace"
    state_type: ClassVar[type[State]] = MixedPeaceState

    epochs: EpochLength = "text"
    alone: Literal["g", "uniform"] = "g"

    @classmethod
    def published(cls) -> Self:
        """R epochs, uniform when one arm is left, Frank-Wolfe, ties to the higher index."""
        return cls(solver="frank-wolfe", ties="last", epochs="published", alone="uniform")

    def extra(self, arms: ArmSet, trials: int) -> dict[str, Any]:
        """All arms survive."""
        return {"survivors": np.ones((trials, arms.size), dtype=bool)}

    def allocation(self, state: MixedPeaceState) -> NDArray[np.float64]:
        """Mean of the survivors' XY-optimal design and λ*."""
        K = state.arms.size
        g = self.g_optimal(state.arms).everywhere(K)
        designs = designs_for(state.arms, state.survivors, kind="xy", solver=self.solver)
        inner = designs.allocation().everywhere(K)
        single = state.survivors.sum(axis=1) == 1
        inner[single] = g if self.alone == "g" else 1.0 / K
        return (inner + g) / 2

    def segment_end(self, state: MixedPeaceState) -> NDArray[np.int64]:
        """End of the epoch."""
        R = epoch_count(state.arms, self.solver)
        N = max(1, state.budget // R)
        end = (state.played // N + 1) * N
        if self.epochs == "published":
            return np.where(end >= R * N, max(state.budget, R * N), end)
        return end

    def advance(self, before: MixedPeaceState, after: MixedPeaceState) -> MixedPeaceState:
        """Where an epoch has ended, halve the survivors."""
        ended = (after.played >= self.segment_end(before)) & (after.played < after.budget)
        if not ended.any():
            return after
        order = rank_arms(self.estimates(after), after.ties)
        halved = halve(after.arms, after.survivors, order, self.solver)
        return replace(after, survivors=np.where(ended[:, None], halved, after.survivors))
