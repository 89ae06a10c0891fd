"""What LinearThompson and TopTwoThompson share: a Gaussian posterior, drawn from in batches.

The draws for a segment are a pure function of (the trial's seed, rounds played), so that a state
read back goes on identically and a trial does the same in any batch.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import arm_values, least_squares
from steadyarm.policies.base import Policy, Recommendations, State, Ties, best_arm, start_values
from steadyarm.policies.tally import TallyState, empty_tally
from steadyarm.policies.thompson_kernels import best_shares, posterior
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import finite_number, whole_number

__all__ = ["Floats", "ThompsonPolicy", "ThompsonState"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class ThompsonState(TallyState):
    """Sums over all rounds played, and where the draws come from.

    Attributes
    ----------
    seeds : (n,) of each trial's posterior draws
    """

    seeds: Integers


@dataclass(frozen=True)
class ThompsonPolicy(Policy[ThompsonState]):
    """Batched sampling from the posterior N(θ̂, v² (X'NX + ridge I)⁻¹), in `arms.coordinates`.

    Textbook versions draw one θ and play its best arm each round. Here the posterior is updated
    every `batch` rounds, and a batch is drawn independently from the share of posterior samples
    in which each arm is best, which is the same distribution up to the number of samples.

    Parameters
    ----------
    noise_sd : the v of the posterior, the noise's standard deviation as far as you know it
    ridge : of the prior N(0, v²/ridge I)
    samples : posterior draws that estimate an allocation
    batch : rounds between updates; by default a hundredth of the budget, rounded up
    ties : which of arms with equal estimates counts as better: "random", "first" or "last"
    """

    waits: ClassVar[bool] = False
    state_type: ClassVar[type[State]] = ThompsonState

    noise_sd: float = 1.0
    ridge: float = 1.0
    samples: int = 128
    batch: int | None = None
    ties: Ties = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        for what in ("noise_sd", "ridge"):
            if not finite_number(getattr(self, what), what) > 0:
                raise InvalidInputError(
                    f"{what} is {getattr(self, what)!r}; expected a number above 0."
                )
        whole_number(self.samples, "samples", least=1)
        if self.batch is not None:
            whole_number(self.batch, "batch", least=1)

    @abstractmethod
    def allocation(self, state: ThompsonState, values: Floats, shares: Floats) -> Floats:
        """(n, K) probabilities, from the posterior means and shares of samples won, (n, K)."""

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> ThompsonState:
        """Nothing but the prior is known."""
        values = start_values(arms, budget, trials, seed, self.ties)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        seeds = rng.integers(2**63, size=trials)
        return ThompsonState(**values, **empty_tally(trials, arms.size), seeds=seeds)

    def next_segment(self, state: ThompsonState) -> Segment | None:
        """The allocation that follows from the present posterior, up to the next update."""
        batch = ceil(state.budget / 100) if self.batch is None else self.batch
        end = np.minimum((state.played // batch + 1) * batch, state.budget)
        rounds = end - state.played
        if not rounds.any():
            return None
        shape = (state.trials, state.arms.size)
        values, shares = np.empty(shape), np.empty(shape)
        best_shares(
            state.arms.coordinates,
            state.counts.astype(np.float64),
            state.sums,
            self.ridge,
            self.noise_sd,
            state.seeds.astype(np.uint64),
            state.played.astype(np.uint64),
            self.samples,
            values,
            shares,
        )
        return Segment(self.allocation(state, values, shares), rounds)

    def observe(self, state: ThompsonState, segment: Segment, stats: SegmentStats) -> ThompsonState:
        """Add the sums."""
        return state.after(segment, stats)

    def recommend(self, state: ThompsonState) -> Recommendations:
        """The arm with the highest posterior mean.

        Standard errors are posterior ones with the noise's variance estimated from the rewards
        instead of `noise_sd`; they assume that nothing drifts.
        """
        X = state.arms.coordinates
        theta, roots = posterior(X, state.counts, state.sums, self.ridge)
        estimates = arm_values(X, theta)
        _, variance = least_squares(X, state.tally)
        errors = None
        if variance is not None:
            errors = np.sqrt(variance[:, None] * np.square(roots).sum(axis=2))
        return Recommendations(best_arm(estimates, state.ties), estimates, errors)
