"""Deconfounded Thompson sampling: top-two sampling that compares arms within batches only.

    for every batch of a hundredth of the budget
        p_i = share of posterior draws in which arm i is the best
        play the batch from β p_i + (1 − β) p_i Σ_{j≠i} p_j / (1 − p_j)     top_two
        regression of all rewards on x and an effect of each batch          observe
        posterior of θ from it, whatever the effects of the batches         normal_equations
    recommend the arm with the highest posterior mean

Names on the right are functions of this file and of `thompson.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.estimators import RANK_TOLERANCE
from steadyarm.kernels import grams
from steadyarm.policies.base import Recommendations, State
from steadyarm.policies.thompson import ThompsonState, TopTwoPolicy
from steadyarm.segments import Segment, SegmentStats

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DeconfoundedState(ThompsonState):
    """The regression with an effect of each batch, which is taken out of it.

    Attributes
    ----------
    information : (n, r, r) sum over batches of the scatter of x around its mean in the batch
    response : (n, r) the same of x with the reward
    scatter : (n,) the same of the reward; None if squares were not recorded
    batches : (n,) number of batches
    """

    information: Floats
    response: Floats
    scatter: Floats | None
    batches: NDArray[np.int64]

    @classmethod
    def initial(cls, trials: int, arms: ArmSet) -> dict[str, Any]:
        """Nothing seen yet."""
        return super().initial(trials, arms) | {
            "information": np.zeros((trials, arms.rank, arms.rank)),
            "response": np.zeros((trials, arms.rank)),
            "scatter": np.zeros(trials),
            "batches": np.zeros(trials, dtype=np.int64),
        }


@dataclass(frozen=True)
class DeconfoundedThompson(TopTwoPolicy[DeconfoundedState]):
    """Top-two Thompson sampling from the posterior of a model with an effect of each batch.

    In the general algorithm rewards depend on arm and context, and an arm is the best if it is so
    for the population of contexts. Here the context is the batch, whose effect is the same for all
    arms and has a flat prior: a level that moves from batch to batch confounds nothing. Arms whose
    gaps drift mislead it as they do `TopTwoThompson`.

    Parameters
    ----------
    beta : share of the leader
    noise_sd, ridge, samples, batch : see `ThompsonPolicy`

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.DeconfoundedThompson(), world, trials=1000, seed=1)
    Results(Deconfounded-Thompson: 29 errors in 1000 trials)

    References
    ----------
    Qin, Russo: Adaptivity and confounding in multi-armed bandit experiments. arXiv 2202.09036,
    2022.
    """

    name: ClassVar[str] = "Deconfounded-Thompson"
    estimator: ClassVar[str] = "posterior of all rewards, compared within batches"
    state_type: ClassVar[type[State]] = DeconfoundedState

    def observe(
        self, state: DeconfoundedState, segment: Segment, stats: SegmentStats
    ) -> DeconfoundedState:
        """Add the scatter within the segment, a batch or a part of one."""
        X = state.arms.coordinates
        rounds = stats.counts.sum(axis=1)
        x, reward, size = stats.counts @ X, stats.sums.sum(axis=1), np.maximum(rounds, 1)
        squares = None
        if state.scatter is not None and stats.squares is not None:
            squares = state.scatter + stats.squares.sum(axis=1) - reward * reward / size
        within = grams(X, stats.counts.astype(np.float64))
        within = within - x[:, :, None] * x[:, None, :] / size[:, None, None]
        return replace(
            state.after(segment, stats),
            information=state.information + within,
            response=state.response + stats.sums @ X - x * (reward / size)[:, None],
            scatter=squares,
            batches=state.batches + (rounds > 0),
        )

    def normal_equations(self, state: DeconfoundedState) -> tuple[Floats, Floats]:
        """Those of the regression, without the effects of batches."""
        return state.information, state.response

    def noise_variance(self, state: DeconfoundedState) -> Floats | None:
        """(n,) scatter of rewards around arms and batches; nan if there are too few rewards."""
        if state.scatter is None:
            return None
        A, b = state.information, state.response
        explained = np.einsum("nr,nrs,ns->n", b, np.linalg.pinv(A, RANK_TOLERANCE, True), b)
        rank = np.linalg.matrix_rank(A, hermitian=True, rtol=RANK_TOLERANCE)
        freedom = state.counts.sum(axis=1) - state.batches - rank
        variance = np.maximum(state.scatter - explained, 0.0) / np.maximum(freedom, 1)
        return np.where(freedom > 0, variance, np.nan)

    def recommend(self, state: DeconfoundedState) -> Recommendations:
        """The arm with the highest posterior mean, at the level of all rewards."""
        found = super().recommend(state)
        rounds = np.maximum(state.counts.sum(axis=1), 1)
        fitted = (state.counts * found.estimates).sum(axis=1)
        level = (state.sums.sum(axis=1) - fitted) / rounds
        return replace(found, estimates=found.estimates + level[:, None])
