"""P1 and the paper's policies that redesign: P1-RAGE, P1-Peace and Mixed-Peace.

All of them keep a share of every round for all arms, so that each estimate stays unbiased however
the world moves, and bring the other rounds to the arms that seem to matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs.optimal import Solver, designs_for
from steadyarm.designs.rounding import Allocation, mix
from steadyarm.errors import InvalidInputError
from steadyarm.policies.base import State, rank_arms
from steadyarm.policies.ips import (
    ROUNDING,
    EpochLength,
    IPSPolicy,
    IPSState,
    average_design,
    epoch_count,
    epoch_end,
    gaps_to_leader,
    halve,
)
from steadyarm.validation import finite_number, whole_number

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class P1(IPSPolicy[IPSState]):
    """Each round, play the arm of rank k with probability proportional to 1/k.

    Arms are ranked by their inverse-propensity estimates. P1 takes every arm by itself and
    ignores the features, whatever the arm set.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> policy = sa.P1(ties="first")
    >>> policy.next_segment(policy.start(arms, budget=100)).weights.round(3)
    array([[0.667, 0.333]])

    References
    ----------
    Abbasi-Yadkori, Bartlett, Gabillon, Malek, Valko: Best of both worlds: stochastic and
    adversarial best-arm identification. COLT 2018, Algorithm 1.
    """

    name: ClassVar[str] = "P1"

    shares_features: ClassVar[bool] = False

    def allocation(self, state: IPSState) -> NDArray[np.float64]:
        """1/(k H_K) for the arm of rank k."""
        order = rank_arms(self.estimates(state), state.ties)
        share = 1.0 / np.arange(1, state.arms.size + 1)
        weights = np.empty(order.shape)
        np.put_along_axis(weights, order, (share / share.sum())[None, :], axis=1)
        return weights

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        """A new ranking after every round."""
        return state.played + 1


def rage_elimination(
    arms: ArmSet, estimates: Floats, max_phases: int, first_cut: float, solver: Solver
) -> Allocation:
    """Average design λ̄ over the virtual phases of RAGE-Elimination.

    Phase 0 has all arms; phase i keeps those within first_cut · 2^(1-i) of the leader. Phases
    end after `max_phases` or with a single arm left.
    """
    gaps = gaps_to_leader(estimates)
    cuts = np.ldexp(first_cut, -np.arange(max_phases - 1))
    kept = gaps[:, None, :] <= cuts[None, :, None] * (1 + ROUNDING)
    phases = np.concatenate([np.ones_like(gaps, dtype=bool)[:, None], kept], axis=1)
    return average_design(arms, phases, solver)


@dataclass(frozen=True)
class P1RAGE(IPSPolicy[IPSState]):
    """Half G-optimal, half what RAGE would sample in a full run if the estimate were right.

    The first half keeps every estimate unbiased with bounded variance however the world moves;
    the second half brings the rounds to the arms that matter (Theorem 2).

    Parameters
    ----------
    max_phases : most virtual phases averaged. Algorithm 3 averages up to m + 1; the paper runs
        with m = 15, so 16 phases.
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
    takes_targets: ClassVar[bool] = True
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
        return mix([(0.5, virtual), (0.5, g)])

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        """The next round of redesign."""
        if self.updates == "rounds":
            return state.played + 1
        return epoch_end(state, self.solver, self.epoch_length)


def peace_elimination(
    arms: ArmSet, estimates: Floats, ties: NDArray[np.int64], solver: Solver
) -> Allocation:
    """Average design λ̄ over the virtual phases of Peace-Elimination.

    Each phase keeps the longest prefix, by estimate, whose optimal ρ is at most half of the
    last; phases end with a single arm left.
    """
    order = rank_arms(estimates, ties)
    survivors = np.ones_like(order, dtype=bool)
    phases = []
    while (survivors.sum(axis=1) > 1).any():
        phases.append(survivors)
        survivors = halve(arms, survivors, order, solver)
    return average_design(arms, np.stack(phases, axis=1), solver)


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
    Results(P1-Peace: 39 errors in 1000 trials)
    """

    name: ClassVar[str] = "P1-Peace"

    solver: Solver = "frank-wolfe"
    epoch_length: EpochLength = "text"

    @classmethod
    def published(cls) -> Self:
        """⌈log2 ρ⌉ epochs, ties to the higher index."""
        return cls(ties="last", epoch_length="published")

    def allocation(self, state: IPSState) -> Allocation:
        """λ* at first, then (λ̄ + λ*)/2."""
        g = self.g_optimal(state.arms)
        if not state.played.any():
            return g
        virtual = peace_elimination(state.arms, self.estimates(state), state.ties, self.solver)
        return mix([(0.5, virtual), (0.5, g)])

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        """The next round of redesign."""
        return epoch_end(state, self.solver, self.epoch_length)


@dataclass(frozen=True)
class MixedPeaceState(IPSState):
    """The arms, (n, K), that have survived the epochs so far."""

    survivors: NDArray[np.bool_]

    @classmethod
    def initial(cls, trials: int, arms: ArmSet, parameters: int) -> dict[str, Any]:
        """All arms survive."""
        everything = np.ones((trials, arms.size), dtype=bool)
        return super().initial(trials, arms, parameters) | {"survivors": everything}


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
    Results(Mixed-Peace: 47 errors in 1000 trials)
    """

    name: ClassVar[str] = "Mixed-Peace"
    state_type: ClassVar[type[State]] = MixedPeaceState

    solver: Solver = "frank-wolfe"
    epochs: EpochLength = "text"
    alone: Literal["g", "uniform"] = "g"

    @classmethod
    def published(cls) -> Self:
        """R epochs, uniform when one arm is left, ties to the higher index."""
        return cls(ties="last", epochs="published", alone="uniform")

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
        """Halve the survivors where an epoch has ended."""
        ended = (after.played >= self.segment_end(before)) & (after.played < after.budget)
        if not ended.any():
            return after
        order = rank_arms(self.estimates(after), after.ties)
        halved = halve(after.arms, after.survivors, order, self.solver)
        return replace(after, survivors=np.where(ended[:, None], halved, after.survivors))
