"""The paper's own design solver, Frank-Wolfe with step 1 / (2(i + 2)), as a named alternative.

The published figures were made with it. It starts from uniform weights, finds the worst direction
y, and moves to the arm with the largest (x'A^-1 y)²; after the usual 999 steps 4.75 % of the mass
is still on the uniform start, so its value ends some percent above the optimum.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from steadyarm.arms import ArmSet
from steadyarm.designs.design import Design, Status, check_among
from steadyarm.designs.solvers import Matrix, own_span, value_on_range, whiten_arms
from steadyarm.errors import InvalidInputError
from steadyarm.kernels import gram, inverse_root, kernel, row_dots

PUBLISHED_STEPS = 999
TIE = 1.0 + 1e-9  # a number that is larger by less is equal up to rounding: the first one counts


@kernel
def frank_wolfe_steps(
    X: Matrix,
    B: Matrix,
    pairs: bool,
    steps: int,
    weights: Matrix,
    W: Matrix,
) -> float:
    """From uniform weights (K,), step i = 1..steps of size 1 / (2(i + 2)) to one arm.

    Arms X (K, r) whitened; directions are the rows of B (m, r) or their differences. W (r, r)
    gathers the worst directions with the steps as weights, for the lower bound. Returns the
    largest variance before the last step.
    """
    K, r = X.shape
    m = B.shape[0]
    weights[:] = 1.0 / K
    W[:] = 0.0
    P = np.eye(r)
    y, Py, Px = np.empty(r), np.empty(r), np.empty(r)
    u = np.empty(m)
    variance = np.empty((m, m) if pairs else (1, m))
    largest, row, column = 0.0, 0, 0
    for i in range(m):
        if pairs:
            for j in range(i):
                t = 0.0
                for k in range(r):
                    apart = B[i, k] - B[j, k]
                    t += apart * apart
                variance[i, j] = t
                if t > largest * TIE:
                    largest, row, column = t, i, j
        else:
            t = 0.0
            for k in range(r):
                t += B[i, k] * B[i, k]
            variance[0, i] = t
            if t > largest * TIE:
                largest, row = t, i
    for step in range(1, steps + 1):
        previous = largest
        size = 1.0 / (2.0 * (step + 2))
        for k in range(r):
            y[k] = B[row, k] - (B[column, k] if pairs else 0.0)
        for k in range(r):
            t = 0.0
            for n in range(r):
                t += P[k, n] * y[n]
            Py[k] = t
        best, arm = 0.0, 0
        for i in range(K):
            t = 0.0
            for k in range(r):
                t += X[i, k] * Py[k]
            if t * t > best * TIE:
                best, arm = t * t, i
        keep = 1.0 - size
        for i in range(K):
            weights[i] *= keep
        weights[arm] += size
        for k in range(r):
            t = size * y[k]
            for n in range(r):
                W[k, n] = keep * W[k, n] + t * y[n]
        leverage = 0.0
        for k in range(r):
            t = 0.0
            for n in range(r):
                t += P[k, n] * X[arm, n]
            Px[k] = t
            leverage += t * X[arm, k]
        shrink = size / (keep + size * leverage)
        grow = 1.0 / keep
        for k in range(r):
            t = shrink * Px[k]
            for n in range(r):
                P[k, n] = (P[k, n] - t * Px[n]) * grow
        for i in range(m):
            t = 0.0
            for k in range(r):
                t += B[i, k] * Px[k]
            u[i] = t
        largest = 0.0
        if pairs:
            for i in range(1, m):
                top = 0.0
                for j in range(i):
                    t = u[i] - u[j]
                    t = (variance[i, j] - shrink * t * t) * grow
                    variance[i, j] = t
                    top = max(top, t)
                if top > largest * TIE:
                    largest, row = top, i
            for j in range(row):
                if variance[row, j] * TIE >= largest:
                    column = j
                    break
        else:
            for i in range(m):
                t = (variance[0, i] - shrink * u[i] * u[i]) * grow
                variance[0, i] = t
                if t > largest * TIE:
                    largest, row = t, i
    return previous


def frank_wolfe_xy(
    arms: ArmSet, among: ArrayLike | None = None, steps: int = PUBLISHED_STEPS
) -> Design:
    """XY design by Frank-Wolfe; the exact solver is `xy_optimal`.

    The design's ``previous_value`` is the value that the published runs read.

    Parameters
    ----------
    arms : the arm set
    among : indices of the arms to compare, all by default
    steps : number of steps; the default is that of the paper's published runs

    Returns
    -------
    Design : weights, value and a lower bound that proves how good they are

    Examples
    --------
    >>> arms = ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    >>> design = frank_wolfe_xy(arms)
    >>> print(f"{design.value:.3f} {design.previous_value:.3f}")
    4.062 4.062
    """
    chosen = check_among(arms, among)
    X, Z = whiten_arms(arms)
    return frank_wolfe(X, Z[chosen], True, steps)


def frank_wolfe_g(
    arms: ArmSet, among: ArrayLike | None = None, steps: int = PUBLISHED_STEPS
) -> Design:
    """G design by Frank-Wolfe, of `among` alone in their own span; see `g_optimal`.

    Parameters
    ----------
    arms : the arm set
    among : indices of the arms whose design it is, all by default
    steps : number of steps; the default is that of the paper's published runs

    Returns
    -------
    Design : weights, value and a lower bound that proves how good they are

    Examples
    --------
    >>> arms = ArmSet.from_features([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    >>> print(f"{frank_wolfe_g(arms).value:.3f}")
    2.017
    """
    chosen = check_among(arms, among)
    X, Z = whiten_arms(arms)
    if arms.targets is not None:
        return frank_wolfe(X, Z[chosen], False, steps)
    X = own_span(X[chosen])
    alone = frank_wolfe(X, X, False, steps)
    bound = float(X.shape[1])
    return replace(alone, size=arms.size, support=chosen[alone.support], lower_bound=bound)


def frank_wolfe(
    X: Matrix, B: Matrix, pairs: bool, steps: int = PUBLISHED_STEPS, prove: bool = True
) -> Design:
    """The design on whitened arms X (K, r) for the rows of B (m, r) or their differences.

    Without proof, the value is that of the iterate before the last, and the lower bound is 0.
    """
    if steps < 1:
        raise InvalidInputError(f"steps is {steps}; expected at least 1 (the paper makes 999).")
    K, r = X.shape
    if not (np.ptp(B, axis=0) if pairs else B).any():
        return Design.of_weights(np.full(K, 1 / K), 0.0, 0.0, Status.OPTIMAL, 0, 0.0)
    weights, W = np.empty(K), np.empty((r, r))
    previous = frank_wolfe_steps(X, B, pairs, steps, weights, W)
    if not prove:
        return Design.of_weights(weights, previous, 0.0, Status.STEPS_DONE, steps, previous)
    value = value_on_range(X, weights, B, pairs)
    P = gram(inverse_root(gram(X, weights)).T)
    Q = P @ W @ P
    mass = 1.0 - np.prod(1.0 - 0.5 / np.arange(3, steps + 3))  # total weight of what W gathered
    bound = (W * P).sum() ** 2 / (mass * row_dots(X @ Q, X).max())
    return Design.of_weights(weights, value, float(bound), Status.STEPS_DONE, steps, previous)
