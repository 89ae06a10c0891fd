"""Simulated tests, a batch at a time: what is picked, whether the answer is clear, when it stops.

A test is played as a live one is: long segments in parts, so that their sums show drift, and
rewards that arrive late. What is decided from it is what the verdict of a live test decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from steadyarm.arms import ArmSet
from steadyarm.environments import RewardSource
from steadyarm.inference import Evidence, Looks, stopping_of
from steadyarm.inference.intervals import SingleAnalysis, pairwise_value
from steadyarm.inference.lift import simultaneous_value
from steadyarm.inference.stopping import UNDECIDED, decided_for
from steadyarm.live.results import ON_THE_WAY
from steadyarm.live.verdict import arms_judged
from steadyarm.policies import Policy
from steadyarm.policies.base import Recommendations
from steadyarm.policies.fixed import ShuffledPlan
from steadyarm.segments import Segment, SegmentStats

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Played = tuple[Segment, SegmentStats]

LEVEL = 0.95  # of verdicts, unless somebody asks for another
PARTS = 30  # into which whole tests are cut: half as many as live ones, and as good for a plan
TABLES = 4_000_000  # numbers in the tables of scores that are held at a time


@dataclass(frozen=True, eq=False)
class Run:
    """A batch of n simulated tests.

    Attributes
    ----------
    found : what the policy recommends
    played : segments in the order they were played; those of an unbiased policy are short parts
    segments : how many allocations a policy waited for the rewards of
    """

    found: Recommendations
    played: list[Played]
    segments: int


def run(
    policy: Policy[Any],
    world: RewardSource,
    trials: int,
    rng: np.random.Generator,
    lag: int = 0,
    squares: bool = False,
) -> Run:
    """Play a batch of tests to the end of their budget.

    Parameters
    ----------
    lag : rounds that are played before a reward arrives. Meanwhile the allocation stays. A live
        test moves it by early rewards, which are left out here: plans are a little pessimistic. A
        policy that must wait for rewards waits, which takes days and no rounds
    squares : whether sums of squared rewards are needed, for intervals
    """
    arms, budget = world.arms, world.budget
    state = policy.start(arms, budget, trials, seed=int(rng.integers(2**63)))
    at = np.zeros(trials, dtype=np.int64)
    late: deque[tuple[int, Segment, SegmentStats]] = deque()  # round in which rewards are there
    played: list[Played] = []
    segment, learned, segments = None, True, 0
    while True:
        while late and (policy.waits or late[0][0] <= at.max() or at.min() == budget):
            _, old, stats = late.popleft()
            state, learned = policy.observe(state, old, stats), True
        if learned or segment is None:
            segment = policy.next_segment(state)
        else:
            segment = segment.in_blocks()
            segment = replace(segment, rounds=np.full(trials, _whole(segment, late[0][0] - at)))
        if segment is None:
            break
        segment = replace(segment, rounds=np.minimum(segment.rounds, budget - at))
        if not segment.rounds.any():
            break
        stats = SegmentStats.empty(trials, segment.columns)
        whole = segment.checked(arms.size)
        cut = policy.unbiased and squares
        for part in whole.parts(budget, PARTS) if cut else (whole,):
            seen = world.play(part, at, rng, squares)
            played.append((part, seen))
            at, stats = at + part.rounds, stats + seen
        if not squares or policy.unbiased:  # it needs none, and would keep a table of them
            stats = replace(stats, squares=None)
        late.append((int(at.max()) + lag, segment, stats))
        learned, segments = False, segments + 1
    return Run(policy.recommend(state), played, segments)


def _whole(segment: Segment, rounds: Integers) -> int:
    """The rounds until something is learned, in whole blocks."""
    block = segment.block if segment.order == "blocks" else 1
    return max(1, ceil(int(rounds.max()) / block)) * block


@dataclass(frozen=True, eq=False)
class Decided:
    """What each of n tests ends with.

    Attributes
    ----------
    decided : (n,) the arm that the test decides for; -1 without a clear answer
    rounds : (n,) rounds after which the decision was made, or the budget
    """

    decided: Integers
    rounds: Integers


def decided(
    policy: Policy[Any],
    arms: ArmSet,
    budget: int,
    done: Run,
    control: int | None,
    looks: Looks | None = None,
    futility: float | None = None,
) -> Decided:
    """What the verdicts of live tests would decide.

    Without a control a test decides for a declared winner, that is, if all others are ruled out;
    with one, for the recommended arm if it is shown to beat the control, and for the control if
    every other arm is shown not to be better. Limits hold with probability 0.95, of whose error a
    live test spends a fifth before its end; with looks, as these spend it, and with futility tests
    also end when no difference of that size can be shown any more.
    """
    picked = done.found.arm
    out, rounds = np.empty(len(picked), dtype=np.int64), np.full(len(picked), budget)
    if not policy.unbiased and not isinstance(policy, ShuffledPlan):
        return Decided(_by_own_errors(done.found, control), rounds)
    level = 1 - (1 - ON_THE_WAY) * (1 - LEVEL) if policy.unbiased else LEVEL
    for rows, evidence in evidence_of(arms_judged(policy, arms), done.played):
        if looks is None:
            out[rows] = _at_end(evidence, level, picked[rows], control)
            continue
        stopped = stopping_of(evidence, budget, looks, LEVEL, control, futility=futility)
        out[rows], rounds[rows] = stopped.variant, stopped.rounds
    return Decided(out, rounds)


def evidence_of(arms: ArmSet, played: list[Played]) -> Iterator[tuple[slice, Evidence]]:
    """The evidence of a batch, so many tests at a time as memory allows."""
    trials = len(played[0][0].rounds)
    size = max(1, TABLES // (len(played) * arms.rank**2))
    for first in range(0, trials, size):
        rows = slice(first, first + size)
        pieces = ((_some(segment, rows), _stats(stats, rows)) for segment, stats in played)
        yield rows, Evidence.from_segments(arms, pieces)


def _some(segment: Segment, rows: slice) -> Segment:
    reference = None if segment.reference is None else segment.reference[rows]
    weights, rounds = segment.weights[rows], segment.rounds[rows]
    return replace(segment, weights=weights, rounds=rounds, reference=reference)


def _stats(stats: SegmentStats, rows: slice) -> SegmentStats:
    squares = None if stats.squares is None else stats.squares[rows]
    return SegmentStats(stats.counts[rows], stats.sums[rows], squares)


def _at_end(evidence: Evidence, level: float, picked: Integers, control: int | None) -> Integers:
    """(n,) the arm that each test decides for, by a single analysis at its end."""
    analysis, rows, alpha = SingleAnalysis(evidence), np.arange(len(picked)), 1 - level
    z = pairwise_value(analysis.freedom, alpha)[:, None]
    low, _ = analysis.gaps_from(picked).limits(z)
    low[rows, picked] = np.inf
    winner = np.asarray((low > 0).all(axis=1))
    if control is None:
        return np.where(winner, picked, UNDECIDED)
    z = simultaneous_value(analysis, control, alpha)[:, None]
    # gaps from the control are by how much the control is better
    low, high = analysis.gaps_from(np.full(len(picked), control)).limits(z)
    return decided_for(picked, winner, -high, -low, control)


def _by_own_errors(found: Recommendations, control: int | None) -> Integers:
    """(n,) as a live test decides by a policy's own standard errors, if nothing moves.

    Errors of two arms add up at worst, with Bonferroni over the arms; an arm that was dropped has
    no error, so nothing is shown of it.
    """
    picked, estimates = found.arm, found.estimates
    if found.standard_errors is None:
        return np.full(len(picked), UNDECIDED)
    rows, K = np.arange(len(picked)), estimates.shape[1]
    errors, values = np.nan_to_num(found.standard_errors, nan=np.inf), np.nan_to_num(estimates)
    z = -ndtri((1 - LEVEL) / (2 * max(K - 1, 1)))
    low = values[rows, picked][:, None] - values - z * (errors + errors[rows, picked][:, None])
    low[rows, picked] = np.inf
    winner = np.asarray((low > 0).all(axis=1))
    if control is None:
        return np.where(winner, picked, UNDECIDED)
    lift, reach = values - values[:, [control]], z * (errors + errors[:, [control]])
    return decided_for(picked, winner, lift - reach, lift + reach, control)
