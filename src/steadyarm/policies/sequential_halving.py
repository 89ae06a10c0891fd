"""Sequential Halving: the K-armed standard for a world that stands still (Karnin et al. 2013)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.policies.base import (
    Policy,
    Recommendations,
    State,
    TallyState,
    Ties,
    best_arm,
    empty_tally,
    rank_arms,
    start_values,
)
from steadyarm.segments import Segment, SegmentStats


@dataclass(frozen=True)
class HalvingState(TallyState):
    """Who is left; the sums are those of the last round alone.

    Attributes
    ----------
    epoch : (n,) rounds of halving finished
    survivors : (n, K) mask of the arms that are left
    """

    epoch: NDArray[np.int64]
    survivors: NDArray[np.bool_]


@dataclass(frozen=True)
class SequentialHalving(Policy[HalvingState]):
    """In each of ⌈log2 K⌉ rounds play all survivors alike, then keep the better half of them.

    Every survivor is played ⌊T / (|S| ⌈log2 K⌉)⌋ times, in random order, and judged by its mean in
    that round; features are ignored. What the rounding leaves of the budget is not spent. A budget
    below K ⌈log2 K⌉ is too small for the first round: the rounds without a single play halve
    the arms at random, and if even two arms cannot be compared the recommendation is a random arm.

    Parameters
    ----------
    ties : which of arms with equal estimates counts as better: "random", "first" or "last"

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.SequentialHalving(), world, trials=1000, seed=1)
    Results(Sequential-Halving: 54 errors in 1000 trials)

    References
    ----------
    Karnin, Koren, Somekh: Almost optimal exploration in multi-armed bandits. ICML 2013,
    Algorithm 1.
    """

    name: ClassVar[str] = "Sequential-Halving"
    waits: ClassVar[bool] = True
    state_type: ClassVar[type[State]] = HalvingState

    ties: Ties = "random"

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> HalvingState:
        """Everybody is left, less the halves of rounds too short for a single play."""
        state = HalvingState(
            **start_values(arms, budget, trials, seed, self.ties),
            **empty_tally(trials, arms.size),
            epoch=np.zeros(trials, dtype=np.int64),
            survivors=np.ones((trials, arms.size), dtype=bool),
        )
        while state.epoch[0] < _halvings(arms) and not _plays(state).any():
            state = _halved(state, np.argsort(state.ties, axis=1, kind="stable"))
        return state

    def next_segment(self, state: HalvingState) -> Segment | None:
        """Every survivor alike, in random order."""
        ended = state.epoch >= _halvings(state.arms)
        plays = np.where(ended, 0, _plays(state))
        segment = Segment.shuffled(np.where(state.survivors, plays[:, None], 0))
        return segment if segment.rounds.any() else None

    def observe(self, state: HalvingState, segment: Segment, stats: SegmentStats) -> HalvingState:
        """Judge by this round alone and keep the better half."""
        active = segment.rounds > 0
        here = active[:, None]
        squares = None
        if state.squares is not None and stats.squares is not None:
            squares = np.where(here, stats.squares, state.squares)
        after = replace(
            state,
            played=state.played + segment.rounds,
            counts=np.where(here, stats.counts, state.counts),
            sums=np.where(here, stats.sums, state.sums),
            squares=squares,
        )
        halved = _halved(after, rank_arms(_means(after), state.ties))
        return replace(
            halved,
            epoch=np.where(active, halved.epoch, state.epoch),
            survivors=np.where(here, halved.survivors, state.survivors),
        )

    def recommend(self, state: HalvingState) -> Recommendations:
        """The survivor with the highest mean; nan for arms that the last round did not play."""
        means = _means(state)
        arm = best_arm(means, state.ties, state.survivors)
        estimates = np.where(state.counts > 0, means, np.nan)
        if state.squares is None:
            return Recommendations(arm, estimates, None)
        spread = np.maximum(state.squares - state.counts * means**2, 0.0)
        freedom = state.counts * (state.counts - 1.0)
        known = freedom > 0
        errors = np.where(known, np.sqrt(spread / np.where(known, freedom, 1.0)), np.nan)
        return Recommendations(arm, estimates, errors)


def _halvings(arms: ArmSet) -> int:
    return (arms.size - 1).bit_length()


def _plays(state: HalvingState) -> NDArray[np.int64]:
    """(n,) plays of each survivor in the next round."""
    return np.asarray(state.budget // (state.survivors.sum(axis=1) * _halvings(state.arms)))


def _means(state: HalvingState) -> NDArray[np.float64]:
    """(n, K) mean reward of every arm in the last round; below all others where there is none."""
    means = state.sums / np.maximum(state.counts, 1)
    unplayed = state.counts == 0
    lowest = np.where(unplayed, np.inf, means).min(axis=1, keepdims=True)
    return np.where(unplayed, np.where(np.isfinite(lowest), lowest - 1.0, 0.0), means)


def _halved(state: HalvingState, order: NDArray[np.int64]) -> HalvingState:
    """The first ⌈|S|/2⌉ survivors of all arms in `order` (n, K) are kept."""
    alive = np.take_along_axis(state.survivors, order, axis=1)
    most = (state.survivors.sum(axis=1) + 1) // 2
    kept = np.empty_like(alive)
    np.put_along_axis(kept, order, alive & (np.cumsum(alive, axis=1) <= most[:, None]), axis=1)
    return replace(state, epoch=state.epoch + 1, survivors=kept)
