"""Compiled draws of whole segments. Blind: the caller validates, seeds and allocates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel
from steadyarm.sampling import draw_arms, scratch_for

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

EXACT, GAUSSIAN, BOUNDED, BERNOULLI = range(4)  # EXACT: the mean itself, no noise


@kernel
def play_table(
    means: Floats,
    kind: int,
    scale: float,
    weights: Floats,
    planned: Integers,
    block: int,
    start: Integers,
    rng: np.random.Generator,
    counts: Integers,
    sums: Floats,
    squares: Floats,
) -> None:
    """Play every trial's segment against a table of means.

    means : (T, K), or (1, K) if nothing moves; kind, scale : the noise
    weights : (n, K); planned : (n, K) plays of each arm if shuffled, else (n, 1) rounds
    block : 0 if shuffled, 1 for independent draws, else the length of a block
    start : (n,) first round
    counts, sums, squares : (n, K), zero on entry; squares may be empty
    """
    moving, with_squares = means.shape[0] > 1, squares.size > 0
    scratch, accept, alias = scratch_for(planned, means.shape[1])
    for i in range(weights.shape[0]):
        arms = draw_arms(weights[i], planned[i], block, rng, scratch, accept, alias)
        for p in range(arms.shape[0]):
            arm = arms[p]
            mean = means[start[i] + p if moving else 0, arm]
            reward = _reward(mean, kind, scale, rng)
            counts[i, arm] += 1
            sums[i, arm] += reward
            if with_squares:
                squares[i, arm] += reward * reward


@kernel
def play_pools(
    rewards: Floats,
    offsets: Integers,
    pools: Integers,
    weights: Floats,
    planned: Integers,
    block: int,
    start: Integers,
    rng: np.random.Generator,
    counts: Integers,
    sums: Floats,
    squares: Floats,
) -> None:
    """Play every trial's segment, drawing each reward with replacement from a pool.

    rewards : all pools, one after the other; offsets : where each begins, and the end
    pools : (T,) the first of each round's K pools, one per arm; otherwise as `play_table`
    """
    with_squares = squares.size > 0
    scratch, accept, alias = scratch_for(planned, weights.shape[1])
    for i in range(weights.shape[0]):
        arms = draw_arms(weights[i], planned[i], block, rng, scratch, accept, alias)
        for p in range(arms.shape[0]):
            arm = arms[p]
            pool = pools[start[i] + p] + arm
            size = offsets[pool + 1] - offsets[pool]
            reward = rewards[offsets[pool] + int(rng.random() * size)]
            counts[i, arm] += 1
            sums[i, arm] += reward
            if with_squares:
                squares[i, arm] += reward * reward


@kernel
def draw_columns(
    weights: Floats,
    planned: Integers,
    block: int,
    rng: np.random.Generator,
    columns: NDArray[np.int32],
) -> None:
    """Columns of the arms that every trial's segment plays, in order.

    weights, planned, block : as for `play_table`
    columns : (N,) filled, one trial after the other; N is the number of rounds of all trials
    """
    scratch, accept, alias = scratch_for(planned, weights.shape[1])
    place = 0
    for i in range(weights.shape[0]):
        arms = draw_arms(weights[i], planned[i], block, rng, scratch, accept, alias)
        for p in range(arms.shape[0]):
            columns[place] = arms[p]
            place += 1


@kernel
def add_rewards(
    columns: NDArray[np.int32],
    rewards: Floats,
    rounds: Integers,
    counts: Integers,
    sums: Floats,
    squares: Floats,
) -> None:
    """Add each reward to the sums of its trial and column.

    columns, rewards : (N,) one trial after the other; rounds : (n,) of each trial
    counts, sums, squares : (n, K); squares may be empty
    """
    place, with_squares = 0, squares.size > 0
    for i in range(rounds.shape[0]):
        for _ in range(rounds[i]):
            arm, reward = columns[place], rewards[place]
            counts[i, arm] += 1
            sums[i, arm] += reward
            if with_squares:
                squares[i, arm] += reward * reward
            place += 1


@kernel
def _reward(mean: float, kind: int, scale: float, rng: np.random.Generator) -> float:
    if kind == GAUSSIAN:
        return mean + scale * rng.standard_normal()
    if kind == BOUNDED:
        return mean + scale * (2.0 * rng.random() - 1.0)
    if kind == BERNOULLI:
        return 1.0 if rng.random() < mean else 0.0
    return mean
