"""How arms are drawn within a segment: independently, exact numbers in random order, in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import kernel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def block_plays(weights: Floats, length: int, begin: Floats) -> Integers:
    """How often each block plays each arm, by systematic sampling with random starts.

    Tick i of a block lies at (i + its start) / length; an arm is played as often as ticks lie in
    its share, so that its expected number of plays is exact.

    Parameters
    ----------
    weights : (n, m) allocation of each block, or (1, m) of all of them
    length : rounds of a block
    begin : (n, 1) uniform numbers, where the ticks begin

    Returns
    -------
    (n, m) whole numbers, which sum to `length` in each row

    Examples
    --------
    >>> block_plays(np.array([[0.5, 0.25, 0.25]]), 6, np.array([[0.2], [0.7]])).tolist()
    [[3, 2, 1], [3, 1, 2]]
    """
    ends = np.cumsum(weights, axis=1)
    # Shares that are whole numbers are so up to rounding, which must not move a tick.
    below = np.ceil(np.round(ends / ends[:, -1:] * length, 9) - begin)
    return np.diff(np.clip(below, 0, length), axis=1, prepend=0).astype(np.int64)


# Whole segments of many trials, compiled: the caller validates, seeds and allocates


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
