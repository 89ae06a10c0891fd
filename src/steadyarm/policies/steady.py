"""Steady: our own policy. Permuted blocks of whole numbers, cuts down to the noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.compiled import kernel
from steadyarm.designs.cache import large_g
from steadyarm.designs.design import FewArms, mixed
from steadyarm.designs.exact_design import whole_list_of_many, whole_lists
from steadyarm.errors import InvalidInputError
from steadyarm.policies.base import State, best_of_many
from steadyarm.policies.elimination import (
    least_gap_error,
    noise_elimination,
    noise_elimination_of_many,
)
from steadyarm.policies.ips import IPSPolicy, IPSState, g_weights
from steadyarm.policies.reference import LOOK
from steadyarm.validation import finite_number, whole_number

__all__ = ["Steady"]

LOOKS = 48  # segments in a test, about: their differences tell the noise


@dataclass(frozen=True)
class SteadyState(IPSState):
    """How much the scores of past segments differ.

    Attributes
    ----------
    spread : (n, r, r) sum over segments of score score' / rounds, score the sum in the segment
    pieces : (n,) number of segments
    """

    spread: NDArray[np.float64]
    pieces: NDArray[np.int64]


@dataclass(frozen=True)
class Steady(IPSPolicy[SteadyState]):
    """Permuted blocks that hold every arm a whole number of times, and a share where it counts.

    Every round still has the allocation's probabilities, so estimates stay unbiased however the
    world moves, as long as it does not react to the assignments (else take order="iid"). Blocks
    are all alike while an allocation is in force, so that drift slower than a block adds nothing
    to the error. One share of the allocation, `robustness`, is always G-optimal; the other is
    what virtual elimination would sample, with cuts that start at the largest estimated gap and
    end where gaps drown in noise. Rewards are compared with the estimate so far, which matters
    only where a block is cut short or rewards are missing. docs/steady.md has the argument.

    Parameters
    ----------
    robustness : share of the G-optimal design, above 0 and at most 1
    updates : how often the allocation is chosen anew, at equal distances

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.Steady(), world, trials=1000, seed=1)
    Results(Steady: 35 errors in 1000 trials)
    """

    name: ClassVar[str] = "Steady"
    scales: ClassVar[bool] = True
    state_type: ClassVar[type[State]] = SteadyState

    order: Literal["iid", "blocks"] = "blocks"
    robustness: float = 0.5
    updates: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.updates, "updates", least=1)
        if not 0 < finite_number(self.robustness, "robustness") <= 1:
            raise InvalidInputError(
                f"robustness is {self.robustness}; expected a share above 0 and at most 1."
            )

    def extra(self, arms: ArmSet, trials: int) -> dict[str, Any]:
        """Nothing seen yet."""
        r = self.parameters(arms)
        return {"spread": np.zeros((trials, r, r)), "pieces": np.zeros(trials, dtype=np.int64)}

    def advance(self, before: SteadyState, after: SteadyState) -> SteadyState:
        """Note by how much the segment's scores differ from others."""
        rounds = np.maximum(after.played - before.played, 1)
        spread = before.spread.copy()
        _add_squares(after.scores - before.scores, 1.0 / rounds, spread)
        return replace(after, spread=spread, pieces=before.pieces + (after.played > before.played))

    def allocation(self, state: SteadyState) -> NDArray[np.float64]:
        """λ* at first, then mixed with what virtual elimination would sample; in whole blocks."""
        weights = np.tile(g_weights(state.arms, self.solver), (state.trials, 1))
        known = state.pieces >= 2
        if self.robustness < 1 and known.any():
            virtual = noise_elimination(
                state.arms, self.estimates(state), self._gap_errors(state), self.solver
            )
            mixed = self.robustness * weights + (1 - self.robustness) * virtual
            weights = np.where(known[:, None], mixed, weights)
        if self.order == "iid":
            return weights
        block = self.block_length(state.arms, state.budget)
        counts, good = whole_lists(self.features(state.arms), weights, block)
        return np.where(good[:, None], counts / block, weights)

    def few_arms(self, state: SteadyState) -> FewArms:
        """The same for a large set."""
        design = large_g(state.arms)
        if self.robustness < 1 and state.pieces[0] >= 2:
            values = self.estimates(state)[0]
            best = best_of_many(values, int(state.ties[0, 0]))
            noise = least_gap_error(state.arms, values, best, self._covariance(state)[0])
            virtual = noise_elimination_of_many(state.arms, values, noise)
            design = mixed([(self.robustness, design), (1 - self.robustness, virtual)])
        if self.order == "iid":
            return design
        block = self.block_length(state.arms, state.budget)
        return whole_list_of_many(state.arms.coordinates_of(design.arms), design, block)

    def segment_end(self, state: SteadyState) -> NDArray[np.int64]:
        """The next of `updates` equal parts of the budget, rounded to whole blocks."""
        block = self.block_length(state.arms, state.budget)
        part = max(1, round(state.budget / self.updates / block)) * block
        return (state.played // part + 1) * part

    def look(self, state: SteadyState) -> int:
        """Whole blocks, some 48 times in a test."""
        block = self.block_length(state.arms, state.budget)
        most = max(1, round(state.budget / LOOKS / block))
        return block * (min(most, LOOK) if self.control_variate else most)

    def reference(self, state: SteadyState) -> NDArray[np.float64] | None:
        """The estimate so far, unless references are fitted."""
        fitted = super().reference(state)
        return state.theta if fitted is None else fitted

    def _gap_errors(self, state: SteadyState) -> NDArray[np.float64]:
        """(n, K) standard errors of each arm's gap to the leader, from the spread of segments."""
        X = self.features(state.arms)
        errors = np.empty((state.trials, len(X)))
        _gap_errors_kernel(X, state.theta, self._covariance(state), errors)
        return errors

    def _covariance(self, state: SteadyState) -> NDArray[np.float64]:
        """(n, r, r) of the estimated parameter, from the spread of segments."""
        T = np.maximum(state.played, 1)[:, None, None]
        mean = state.theta[:, :, None]
        scatter = state.spread - T * mean * mean.swapaxes(1, 2)
        covariance: NDArray[np.float64] = (
            scatter / np.maximum(state.pieces - 1, 1)[:, None, None] / T
        )
        return covariance


@kernel
def _add_squares(
    score: NDArray[np.float64], weight: NDArray[np.float64], spread: NDArray[np.float64]
) -> None:
    """Add weight_i score_i score_i' to each spread_i (r, r)."""
    n, r = score.shape
    for i in range(n):
        for a in range(r):
            scaled = weight[i] * score[i, a]
            for b in range(r):
                spread[i, a, b] += scaled * score[i, b]


@kernel
def _gap_errors_kernel(
    X: NDArray[np.float64],
    theta: NDArray[np.float64],
    covariance: NDArray[np.float64],
    errors: NDArray[np.float64],
) -> None:
    """Standard errors (n, K) of x_k'θ against the largest x'θ, from covariances (n, r, r)."""
    K, r = X.shape
    y = np.empty(r)
    for i in range(theta.shape[0]):
        best, most = 0, -np.inf
        for k in range(K):
            value = 0.0
            for a in range(r):
                value += X[k, a] * theta[i, a]
            if value > most:
                best, most = k, value
        for k in range(K):
            variance = 0.0
            for a in range(r):
                y[a] = X[best, a] - X[k, a]
                row = 0.5 * covariance[i, a, a] * y[a]
                for b in range(a):
                    row += covariance[i, a, b] * y[b]
                variance += 2.0 * y[a] * row
            errors[i, k] = np.sqrt(max(variance, 0.0))
