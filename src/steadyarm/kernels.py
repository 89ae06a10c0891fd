"""Numerical kernels: compilation, matrix products, and draws of whole segments.

Kernels are blind: the caller validates, seeds and allocates.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Numbers = NDArray[Any]  # double or single precision

EXACT, GAUSSIAN, BOUNDED, BERNOULLI = range(4)  # EXACT: the mean itself, no noise


class kernel:  # noqa: N801 - used as a decorator
    """Compile a function for numba's `nopython` mode when it is first called.

    Compiled code is kept on disk and runs without the GIL; a division by zero is infinite or nan,
    as in NumPy. numba takes longer to import than everything else, and compiling takes seconds.
    Only simulations, the paper's own solver and sequential boundaries are therefore compiled: the
    first decision of a live test needs none of them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.py_func = function

    @cached_property
    def compiled(self) -> Any:
        """Numba's dispatcher."""
        from numba import njit

        return njit(cache=True, nogil=True, error_model="numpy")(self.py_func)

    def __call__(self, *args: Any) -> Any:
        """Run the compiled code."""
        return self.compiled(*args)

    @property
    def _numba_type_(self) -> Any:  # which numba reads of a kernel that another kernel calls
        return self.compiled._numba_type_


# Matrix products and factors that NumPy and SciPy have no short name for


def row_dots(A: Numbers, B: Numbers) -> Floats:
    """Products of each row of A (m, r) with the same row of B: (m,).

    Examples
    --------
    >>> row_dots(np.array([[1.0, 2.0], [3.0, 4.0]]), np.eye(2))
    array([1., 4.])
    """
    return np.asarray(np.einsum("ij,ij->i", A, B))


def gram(X: Numbers, weights: Floats | None = None) -> Floats:
    """Sum of weights_i x_i x_i' over the rows of X (m, r); weights are one by default.

    Examples
    --------
    >>> gram(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([2.0, 1.0])).tolist()
    [[2.0, 4.0], [4.0, 9.0]]
    """
    return np.asarray(X.T @ X if weights is None else (X.T * weights) @ X)


def grams(X: Floats, weights: Floats) -> Floats:
    """`gram` for each row of weights (n, m): (n, r, r)."""
    return np.asarray((X.T * weights[:, None, :]) @ X)


def quadratic_forms(D: Floats, M: Floats) -> Floats:
    """D'Md, at least 0, for directions D (n, K, r), or (K, r) for all, and M (n, ..., r, r).

    Returns
    -------
    (n, ..., K)

    Examples
    --------
    >>> quadratic_forms(np.array([[1.0, -1.0], [0.0, 2.0]]), np.array([np.eye(2)])).tolist()
    [[2.0, 4.0]]
    """
    directions = D if D.ndim == 2 else D.reshape(len(D), *[1] * (M.ndim - 3), *D.shape[1:])
    with np.errstate(invalid="ignore", over="ignore"):  # unknown variances may be infinite
        forms = np.einsum("...ka,...ka->...k", directions @ M, directions)
    return np.asarray(np.maximum(forms, 0.0))


def solve_lower(L: Floats, B: Floats) -> Floats:
    """L⁻¹b for every row b of B (m, r), as rows.

    Examples
    --------
    >>> solve_lower(np.array([[2.0, 0.0], [1.0, 2.0]]), np.array([[2.0, 5.0]])).tolist()
    [[1.0, 2.0]]
    """
    from scipy.linalg import solve_triangular

    return np.ascontiguousarray(solve_triangular(L, B.T, lower=True, check_finite=False).T)


def inverse_root(A: Floats) -> Floats:
    """R = L⁻ᵀ with RR' the inverse of A = LL': x @ R are coordinates where A is the identity.

    Examples
    --------
    >>> inverse_root(np.array([[4.0, 0.0], [0.0, 1.0]])).tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """
    return solve_lower(np.asarray(np.linalg.cholesky(A), dtype=np.float64), np.eye(len(A)))


def first_largest(values: Floats) -> NDArray[np.intp]:
    """Index of the first number along the last axis that is the largest, up to rounding.

    Numbers within 1e-7 of the largest are equal: which of them is larger may depend on the
    processor.

    Examples
    --------
    >>> int(first_largest(np.array([0.3, 0.1 + 0.2, 0.0])))
    0
    """
    best = values.max(axis=-1, keepdims=True)
    return np.asarray((values >= best - 1e-7 * np.abs(best)).argmax(axis=-1))


# How arms are drawn within a segment: independently, exact numbers in random order, in blocks


def block_plays(weights: Floats, length: int, begin: Floats) -> Integers:
    """Draw the plays of each arm in each block, by systematic sampling with random starts.

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


# Whole segments of many trials, played


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
