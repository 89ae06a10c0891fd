"""Steady: our own policy. Permuted blocks of whole numbers, cuts down to the noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.generated import forms
from steadyarm.arms.rows import DenseRows
from steadyarm.compiled import kernel
from steadyarm.designs.exact_design import Allocation, exact_allocation, mixed
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import matmul
from steadyarm.policies.base import State
from steadyarm.policies.elimination import noise_elimination
from steadyarm.policies.ips import BLOCKS_PER_FIT, IPSPolicy, IPSState
from steadyarm.validation import finite_number, whole_number

Floats = NDArray[np.float64]

SEGMENTS = 48  # in a test, about: their differences measure the noise


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
    end where noise hides the gaps. Rewards are compared with the estimate so far, which matters
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

    def allocation(self, state: SteadyState) -> Allocation:
        """λ* at first, then mixed with what virtual elimination would sample; in whole blocks."""
        g = self.g_optimal(state.arms)
        chosen = Allocation(np.tile(g.weights, (state.trials, 1)), g.arms)
        known = state.pieces >= 2
        if self.robustness < 1 and known.any():
            estimates = self.estimates(state)
            errors = gap_errors(state.arms, estimates, self._covariance(state))
            virtual = noise_elimination(state.arms, estimates, errors, self.solver)
            share = np.where(known, self.robustness, 1.0)[:, None]
            chosen = mixed([(share, g), (1 - share, virtual)])
        if self.order == "iid":
            return chosen
        block = self.block_length(state.arms, state.budget)
        return exact_allocation(state.arms.coordinates_of(chosen.arms), chosen, block)

    def segment_end(self, state: SteadyState) -> NDArray[np.int64]:
        """The next of `updates` equal parts of the budget, rounded to whole blocks."""
        block = self.block_length(state.arms, state.budget)
        part = max(1, round(state.budget / self.updates / block)) * block
        return (state.played // part + 1) * part

    def rounds_between_sums(self, state: SteadyState) -> int:
        """Whole blocks, some 48 times in a test."""
        block = self.block_length(state.arms, state.budget)
        most = max(1, round(state.budget / SEGMENTS / block))
        return block * (min(most, BLOCKS_PER_FIT) if self.control_variate else most)

    def reference(self, state: SteadyState) -> NDArray[np.float64] | None:
        """The estimate so far, unless references are fitted."""
        fitted = super().reference(state)
        return state.theta if fitted is None else fitted

    def _covariance(self, state: SteadyState) -> NDArray[np.float64]:
        """(n, r, r) of the estimated parameter, from the spread of segments."""
        T = np.maximum(state.played, 1)[:, None, None]
        mean = state.theta[:, :, None]
        covariance: NDArray[np.float64] = T * mean * mean.swapaxes(1, 2)
        np.subtract(state.spread, covariance, out=covariance)  # in place: large arrays cost time
        covariance /= np.maximum(state.pieces - 1, 1)[:, None, None]
        covariance /= T
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


def gap_errors(arms: ArmSet, estimates: Floats, covariance: Floats) -> Floats:
    """(n, K) standard errors of each arm's gap to the leader, the first with the highest estimate.

    covariance : (n, r, r) of each trial's estimated parameter
    """
    best, errors = estimates.argmax(axis=1), np.empty(estimates.shape)
    if isinstance(arms.rows, DenseRows):
        X = arms.coordinates
        _gap_errors(X, X[best], covariance, errors)
        return errors
    for x, C, row in zip(arms.rows.take(best), covariance, errors, strict=True):
        pull = matmul(C, x)
        variances = forms(arms.rows, C, -2 * pull) + matmul(x, pull)
        row[:] = np.sqrt(np.maximum(variances, 0.0))
    return errors


@kernel
def _gap_errors(X: Floats, leaders: Floats, covariance: Floats, errors: Floats) -> None:
    """Standard errors (n, K) of x_k'θ against the leaders (n, r), from covariances (n, r, r)."""
    K, r = X.shape
    y = np.empty(r)
    for i in range(leaders.shape[0]):
        for k in range(K):
            variance = 0.0
            for a in range(r):
                y[a] = leaders[i, a] - X[k, a]
                row = 0.5 * covariance[i, a, a] * y[a]
                for b in range(a):
                    row += covariance[i, a, b] * y[b]
                variance += 2.0 * y[a] * row
            errors[i, k] = np.sqrt(max(variance, 0.0))
