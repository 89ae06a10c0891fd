"""Compiled draws of whole segments. Blind: the caller validates, seeds and allocates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel, standard_normal

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
        return mean + scale * standard_normal(rng)
    if kind == BOUNDED:
        return mean + scale * (2.0 * rng.random() - 1.0)
    if kind == BERNOULLI:
        return 1.0 if rng.random() < mean else 0.0
    return mean


@kernel
def scratch_for(planned: Integers, K: int) -> tuple[NDArray[np.int32], Floats, Integers]:
    """Memory for `draw_arms`: arms of the longest segment, and an alias table of K arms."""
    longest = 0
    for i in range(planned.shape[0]):
        longest = max(longest, planned[i].sum())
    return np.empty(longest, dtype=np.int32), np.empty(K), np.empty((2, K), dtype=np.int64)


@kernel
def draw_arms(
    weights: Floats,
    planned: Integers,
    block: int,
    rng: np.random.Generator,
    scratch: NDArray[np.int32],
    accept: Floats,
    alias: Integers,
) -> NDArray[np.int32]:
    """Arms of one trial's segment, in order of play; a view of `scratch`."""
    arms = scratch[: planned.sum()]
    if block == 0:
        _fill_planned(planned, arms)
        _shuffle(arms, rng)
    elif block == 1:
        _fill_iid(weights, rng, accept, alias, arms)
    else:
        _fill_blocks(weights, block, rng, arms)
    return arms


@kernel
def _fill_blocks(
    weights: Floats, block: int, rng: np.random.Generator, arms: NDArray[np.int32]
) -> None:
    """Blocks by systematic sampling with one random start each, in random order."""
    total = weights.sum()
    whole = np.empty(block, dtype=np.int32)
    last = weights.shape[0] - 1
    while weights[last] == 0.0:
        last -= 1
    for start in range(0, arms.shape[0], block):
        tick = rng.random()
        arm, end = 0, weights[0] * block / total
        for p in range(block):
            while tick + p >= end and arm < last:
                arm += 1
                end += weights[arm] * block / total
            whole[p] = arm
        _shuffle(whole, rng)
        for p in range(min(block, arms.shape[0] - start)):
            arms[start + p] = whole[p]


@kernel
def _fill_iid(
    weights: Floats,
    rng: np.random.Generator,
    accept: Floats,
    alias: Integers,
    arms: NDArray[np.int32],
) -> None:
    K = weights.shape[0]
    _alias_table(weights, accept, alias[0], alias[1])
    for p in range(arms.shape[0]):
        u = rng.random() * K
        arm = int(u)
        if u - arm >= accept[arm]:
            arm = alias[0, arm]
        arms[p] = arm


@kernel
def _fill_planned(planned: Integers, arms: NDArray[np.int32]) -> None:
    p = 0
    for k in range(planned.shape[0]):
        for _ in range(planned[k]):
            arms[p] = k
            p += 1


@kernel
def _shuffle(arms: NDArray[np.int32], rng: np.random.Generator) -> None:
    """Fisher and Yates' shuffle."""
    for p in range(arms.shape[0] - 1, 0, -1):
        other = int(rng.random() * (p + 1))
        arms[p], arms[other] = arms[other], arms[p]


@kernel
def _alias_table(weights: Floats, accept: Floats, alias: Integers, stack: Integers) -> None:
    """Walker's alias table of one allocation (K,), by Vose's method.

    accept, alias : (K,) filled; stack : (K,) scratch, small ones from the left, large ones
    from the right
    """
    K = weights.shape[0]
    total = weights.sum()
    small, large = 0, K
    for k in range(K):
        accept[k] = weights[k] * K / total
        alias[k] = k
        if accept[k] < 1.0:
            stack[small] = k
            small += 1
        else:
            large -= 1
            stack[large] = k
    while small > 0 and large < K:
        small -= 1
        poor, rich = stack[small], stack[large]
        alias[poor] = rich
        accept[rich] -= 1.0 - accept[poor]
        if accept[rich] < 1.0:
            large += 1
            stack[small] = rich
            small += 1
    # What is left differs from one by rounding only.
    for i in range(small):
        if weights[stack[i]] > 0.0:
            accept[stack[i]] = 1.0
    for i in range(large, K):
        accept[stack[i]] = 1.0
