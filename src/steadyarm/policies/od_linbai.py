"""OD-LinBAI: G-optimal halving for a world that stands still (Yang and Tan 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.cache import designs_for
from steadyarm.policies.base import Ties
from steadyarm.policies.phased import PhasedPolicy, PhasedState


@dataclass(frozen=True)
class ODLinBAI(PhasedPolicy):
    """In round r play the survivors' G-optimal design, then keep the best ⌈d / 2^r⌉ arms.

    There are ⌈log2 d⌉ rounds (one if d = 1) of ⌈π_i m⌉ plays per arm, where m leaves room for
    the rounding up. If the budget is so small that m ≤ 0, nothing is played and the
    recommendation is a random arm.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.ODLinBAI(), world, trials=1000, seed=1)
    Results(OD-LinBAI: 55 errors in 1000 trials)

    References
    ----------
    Yang, Tan: Minimax optimal fixed-budget best arm identification in linear bandits.
    NeurIPS 2022, Algorithm 1.
    """

    name: ClassVar[str] = "OD-LinBAI"

    @classmethod
    def published(cls) -> Self:
        """Frank-Wolfe designs, ties to the higher index."""
        return cls(solver="frank-wolfe", ties="last")

    def tie_rule(self, arms: ArmSet, budget: int) -> Ties:
        """At random also where nothing is played, so that any arm may be recommended."""
        return self.ties if _plays_per_round(arms, budget) > 0 else "random"

    def planned_counts(self, state: PhasedState) -> NDArray[np.int64]:
        """⌈π_i m⌉ plays of each survivor i."""
        m = _plays_per_round(state.arms, state.budget)
        if m <= 0:
            return np.zeros((state.trials, state.arms.size), dtype=np.int64)
        designs = designs_for(state.arms, state.survivors, kind="g", solver=self.solver)
        # 1e-9: a product that is whole up to rounding errors is not rounded up to the next number.
        weights = designs.allocation().everywhere(state.arms.size)
        counts: NDArray[np.int64] = np.ceil(weights * m - 1e-9).astype(np.int64)
        ended = state.epoch >= _halvings(state.arms.rank)
        counts[ended | (state.survivors.sum(axis=1) == 1)] = 0
        return counts

    def keep(self, state: PhasedState, order: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The best ⌈d / 2^r⌉ of the survivors."""
        alive = np.take_along_axis(state.survivors, order, axis=1)
        most = -(-state.arms.rank // (np.int64(1) << (state.epoch + 1)))
        chosen = alive & (np.cumsum(alive, axis=1) <= most[:, None])
        kept = np.empty_like(chosen)
        np.put_along_axis(kept, order, chosen, axis=1)
        return kept


def _halvings(d: int) -> int:
    return max(1, (d - 1).bit_length())


def _plays_per_round(arms: ArmSet, budget: int) -> float:
    """The m of the algorithm: an equal share of the budget less the room for rounding up."""
    K, d = arms.size, arms.rank
    halvings = _halvings(d)
    spare = sum(ceil(d / 2**r) for r in range(1, halvings))
    return float(budget - min(K, d * (d + 1) // 2) - spare) / halvings
