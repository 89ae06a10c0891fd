"""Steady: our own policy. Permuted blocks of whole numbers, cuts down to the noise.

    λ* ← the G-optimal design; play it for two segments
    for each of `updates` equal parts of the budget:
        θ̂ ← mean of the unbiased scores of all rounds
        v ← value of every arm at the end, if recent changes last         _extrapolate
        λ̄ ← mean XY design of the arms within 2⁻ⁱ of the best in v        noise_elimination
        s ← share of λ*, which falls during the test                      balanced_share
        play s λ* + (1 - s) λ̄, in whole numbers of plays over a block     allocation
    recommend the arm with the largest x'θ̂

Names on the right are functions of this file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.arms.generated import forms
from steadyarm.arms.rows import DenseRows
from steadyarm.designs.optimal import Solver
from steadyarm.designs.rounding import Allocation, exact_allocation, mix
from steadyarm.errors import InvalidInputError
from steadyarm.kernels import first_largest, quadratic_forms
from steadyarm.policies.base import State
from steadyarm.policies.ips import (
    ROUNDING,
    IPSPolicy,
    IPSState,
    average_design,
    gaps_to_leader,
)
from steadyarm.validation import finite_number, whole_number

Floats = NDArray[np.float64]

MEMORY = 0.05  # of the budget, after which a score counts by a factor of e less as recent
CLEAR = 1.5  # standard errors from which on a recent change is taken to be more than noise
FIRST = 0.25  # adaptive share at the start, of its mean
GROWTH = 1.5  # power of the time with which it rises
LEAST_BALANCED = 0.25  # of the mean share of the G-optimal design, which no allocation goes below
MOST_CUTS = 12  # halvings of the largest gap in virtual elimination
TINY = 1e-300


@dataclass(frozen=True)
class SteadyState(IPSState):
    """Also the noise of scores of past segments, and the latest scores.

    Attributes
    ----------
    noise : (n, r, r) sum over neighbouring segments of the squared difference of their mean
        scores, scaled to estimate the variance of the score of one round; slow drift adds little
    pieces : (n,) number of segments
    last : (n, r) mean score of the last segment
    last_rounds : (n,) its rounds
    recent : (n, r) sum of scores, each weighted by its age
    recent_weights : (n, 2) sum of these weights over all rounds, and sum of their squares
    """

    noise: NDArray[np.float64]
    pieces: NDArray[np.int64]
    last: NDArray[np.float64]
    last_rounds: NDArray[np.int64]
    recent: NDArray[np.float64]
    recent_weights: NDArray[np.float64]

    @classmethod
    def initial(cls, trials: int, arms: ArmSet, parameters: int) -> dict[str, Any]:
        """Nothing seen yet."""
        return super().initial(trials, arms, parameters) | {
            "noise": np.zeros((trials, parameters, parameters)),
            "pieces": np.zeros(trials, dtype=np.int64),
            "last": np.zeros((trials, parameters)),
            "last_rounds": np.zeros(trials, dtype=np.int64),
            "recent": np.zeros((trials, parameters)),
            "recent_weights": np.zeros((trials, 2)),
        }


@dataclass(frozen=True)
class Steady(IPSPolicy[SteadyState]):
    """Permuted blocks that hold every arm a whole number of times, and a share where it counts.

    Every round still has the allocation's probabilities, so estimates stay unbiased however the
    world moves, as long as it does not react to the assignments (else take order="iid"). Blocks
    are all alike while an allocation is in force, so that drift slower than a block adds nothing
    to the error. One share of the allocation is always G-optimal; the other is what virtual
    elimination would sample, with cuts that start at the largest estimated gap and end where noise
    hides the gaps. The G-optimal share falls during the test, from nine tenths to three twentieths,
    because an arm that gets few rounds early may come back, and late it hardly can. Where an arm's
    latest rewards differ clearly from earlier ones, the allocation expects them to last. Rewards
    are compared with the estimate so far, which matters only where a block is cut short or rewards
    are missing. docs/research/steady.md has the argument.

    Parameters
    ----------
    robustness : mean share of the G-optimal design over the test, above 0 and at most 1
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
    takes_targets: ClassVar[bool] = True
    scales: ClassVar[bool] = True
    state_type: ClassVar[type[State]] = SteadyState
    centred: ClassVar[bool] = True
    pieces: ClassVar[int] = 48

    order: Literal["iid", "blocks"] = "blocks"
    robustness: float = 0.6
    updates: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.updates, "updates", least=1)
        if not 0 < finite_number(self.robustness, "robustness") <= 1:
            raise InvalidInputError(
                f"robustness is {self.robustness}; expected a share above 0 and at most 1."
            )

    def advance(self, before: SteadyState, after: SteadyState) -> SteadyState:
        """Note by how much the segment's scores differ from the last ones; forget older ones."""
        rounds = after.played - before.played
        played = rounds > 0
        score = after.scores - before.scores
        mean = score / np.maximum(rounds, 1)[:, None]
        step, last = mean - before.last, before.last_rounds
        weight = rounds * last / np.maximum(rounds + last, 1)  # 1 over the variance of a difference
        keep = np.exp(-rounds / (MEMORY * before.budget))
        older = before.recent_weights * np.column_stack([keep, keep * keep])
        return replace(
            after,
            noise=before.noise + weight[:, None, None] * step[:, :, None] * step[:, None, :],
            pieces=before.pieces + played,
            last=np.where(played[:, None], mean, before.last),
            last_rounds=np.where(played, rounds, last),
            recent=before.recent * keep[:, None] + score,
            recent_weights=older + rounds[:, None],
        )

    def allocation(self, state: SteadyState) -> Allocation:
        """λ* at first, then mixed with what virtual elimination would sample; in whole blocks."""
        g = self.g_optimal(state.arms)
        chosen = Allocation(np.tile(g.weights, (state.trials, 1)), g.arms)
        known = state.pieces >= 2
        if self.robustness < 1 and known.any():
            expected, errors = self._extrapolate(state)
            virtual = noise_elimination(state.arms, expected, errors, self.solver)
            share = np.where(known, self.balanced_share(state), 1.0)[:, None]
            chosen = mix([(share, g), (1 - share, virtual)])
        if self.order == "iid":
            return chosen
        block = self.block_length(state.arms, state.budget)
        return exact_allocation(state.arms.coordinates_of(chosen.arms), chosen, block)

    def balanced_share(self, state: SteadyState) -> Floats:
        """(n,) of the G-optimal design: falls during the test, with mean `robustness`.

        What is learned early may be undone by drift, so that the adaptive share starts at a quarter
        of its mean and rises with the power 3/2 of the time t, from 0 to 1. Both were tuned on the
        first worlds of `bench_steady`. The mean is kept because ∫ (p + 1) tᵖ dt = 1.

        Parameters
        ----------
        state : the state of n trials
        """
        time = state.played / state.budget
        rise = FIRST + (1 - FIRST) * (GROWTH + 1) * time**GROWTH  # with mean 1 over the test
        adaptive = (1 - self.robustness) * rise
        return np.maximum(1 - adaptive, LEAST_BALANCED * self.robustness)

    def _extrapolate(self, state: SteadyState) -> tuple[Floats, Floats]:
        """(n, K) values of arms at the end if recent changes last, and errors of gaps to the best.

        Arms are compared with the leader of the whole test so far: by how much an arm has gained on
        it of late beyond what it had before counts for the rounds that are left, shrunk to nothing
        where noise explains it.
        """
        estimates = self.estimates(state)
        weights = np.maximum(state.recent_weights, 1.0)
        gained = self.values(state, state.recent / weights[:, :1]) - estimates
        leader = first_largest(estimates)[:, None]
        gained -= np.take_along_axis(gained, leader, axis=1)
        # The recent mean x̃ weighs rounds by w and the mean x̂ of all T rounds alike, so that
        # Var(x̃ - x̂) = Var(x̃) - Var(x̂) = Var(x̂) (T Σw² / (Σw)² - 1).
        excess = state.played * weights[:, 1] / (weights[:, 0] * weights[:, 0]) - 1.0
        covariance = self._covariance(state)
        errors = gap_errors(state.arms, estimates, covariance)
        explained = CLEAR * CLEAR * np.maximum(excess, 0.0)[:, None] * (errors * errors)
        squared = np.maximum(gained * gained, TINY)
        left = (1.0 - state.played / state.budget)[:, None]
        expected = estimates + left * gained * np.maximum(1.0 - explained / squared, 0.0)
        other = first_largest(expected) != leader[:, 0]
        if other.any():  # errors depend on who leads
            errors[other] = gap_errors(state.arms, expected[other], covariance[other])
        return expected, errors

    def segment_end(self, state: SteadyState) -> NDArray[np.int64]:
        """The next of `updates` equal parts of the budget, rounded to whole blocks."""
        block = self.block_length(state.arms, state.budget)
        part = max(1, round(state.budget / self.updates / block)) * block
        return (state.played // part + 1) * part

    def _covariance(self, state: SteadyState) -> NDArray[np.float64]:
        """(n, r, r) of the estimated parameter, from differences of neighbouring segments."""
        pairs = np.maximum(state.pieces - 1, 1)
        covariance: Floats = state.noise / (pairs * np.maximum(state.played, 1))[:, None, None]
        return covariance


def noise_elimination(
    arms: ArmSet, estimates: Floats, errors: Floats, solver: Solver
) -> Allocation:
    """Average design λ̄ over cuts from half the largest gap down to the noise.

    Phase 0 has all arms; phase i keeps those within 2^-i of the largest estimated gap. Cuts end
    where they fall below a quarter of the smallest standard error of a gap: the arms then left
    cannot be told apart yet. Phase i counts i + 1 times. The scale of the rewards does not matter,
    and arms that stay together over many halvings count as often, so that a lone close rival gets
    most of the rounds.

    Parameters
    ----------
    errors : (n, K) standard errors of the gaps to the leader; zero for the leader itself
    """
    gaps = gaps_to_leader(estimates)
    rivals = np.where(gaps > 0, errors, np.inf)
    noise = rivals.min(axis=1, keepdims=True) / 4
    cuts = np.ldexp(gaps.max(axis=1, keepdims=True), -np.arange(1, MOST_CUTS + 1))
    used = cuts >= noise * (1 - ROUNDING)
    used[:, 0] = True
    kept = (gaps[:, None, :] <= cuts[:, :, None] * (1 + ROUNDING)) & used[:, :, None]
    phases = np.concatenate([np.ones_like(gaps, dtype=bool)[:, None], kept], axis=1)
    return average_design(arms, phases, solver, rising=True)


def gap_errors(arms: ArmSet, estimates: Floats, covariance: Floats) -> Floats:
    """(n, K) standard errors of each arm's gap to the leader, the first with the highest estimate.

    covariance : (n, r, r) of each trial's estimated parameter
    """
    best = first_largest(estimates)
    if isinstance(arms.rows, DenseRows):
        X = arms.target_coordinates
        return np.sqrt(quadratic_forms(X[best][:, None, :] - X, covariance))
    errors = np.empty(estimates.shape)
    for x, C, row in zip(arms.rows.take(best), covariance, errors, strict=True):
        pull = C @ x
        row[:] = np.sqrt(np.maximum(forms(arms.rows, C, -2 * pull) + x @ pull, 0.0))
    return errors
