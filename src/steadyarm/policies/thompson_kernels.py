"""Compiled draws from Gaussian posteriors, trial by trial. Blind: the caller validates.

Called by `thompson` and `top_two_thompson`.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import exp, kernel, log, log_upper_tail
from steadyarm.designs.dense_kernels import cholesky, cholesky_solve, information, whiten_rows

__all__ = ["best_shares", "fill_normal", "posterior", "top_two"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STEP = np.uint64(0x9E3779B97F4A7C15)  # of SplitMix64 (Steele, Lea, Flood 2014), with its mixers
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S11, S27, S30, S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
LAYER = np.uint64(127)


def _ziggurat() -> tuple[Floats, Floats]:
    """Right edges (129,) of the layers from the lowest up, and the share surely under the curve."""
    # As plain Python, so that nothing has to be compiled when the package is imported.
    plain_exp, plain_log = (getattr(function, "py_func", function) for function in (exp, log))
    last, area = 3.442619855899, 9.91256303526217e-3
    edge = [area * plain_exp(0.5 * last * last), last]
    while len(edge) < 128:
        height = area / edge[-1] + plain_exp(-0.5 * edge[-1] * edge[-1])
        edge.append(sqrt(-2.0 * plain_log(height)))
    edges = np.array([*edge, 0.0])
    return edges, edges[1:] / edges[:-1]


EDGE, CORE = _ziggurat()


def posterior(X: Floats, counts: Integers, sums: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Mean θ̂ (n, r) and U (n, K, r): the arms' values have covariance v² U U' for each trial.

    Examples
    --------
    >>> mean, U = posterior(np.eye(2), np.array([[3, 0]]), np.array([[6.0, 0.0]]), ridge=1.0)
    >>> mean, np.square(U).sum(axis=2)
    (array([[1.5, 0. ]]), array([[0.25, 1.  ]]))
    """
    n, (K, r) = len(counts), X.shape
    theta, U = np.empty((n, r)), np.empty((n, K, r))
    _posterior_kernel(X, counts.astype(np.float64), sums, ridge, theta, U)
    return theta, U


@kernel
def _posterior(
    X: Floats, counts: Floats, sums: Floats, ridge: float, A: Floats, theta: Floats, U: Floats
) -> None:
    """One trial: θ̂ into theta (r,), rows L⁻¹x of X'NX + ridge I = LL' into U (K, r)."""
    information(X, counts, A)
    theta[:] = 0.0
    for a in range(X.shape[1]):
        A[a, a] += ridge
        for k in range(X.shape[0]):
            theta[a] += sums[k] * X[k, a]
    cholesky(A, 1e60)
    cholesky_solve(A, theta)
    whiten_rows(A, X, U)


@kernel
def _posterior_kernel(
    X: Floats, counts: Floats, sums: Floats, ridge: float, theta: Floats, U: Floats
) -> None:
    A = np.empty((X.shape[1], X.shape[1]))
    for i in range(theta.shape[0]):
        _posterior(X, counts[i], sums[i], ridge, A, theta[i], U[i])


@kernel
def _mixed(bits: np.uint64) -> np.uint64:
    """Scramble 64 bits (the finaliser of SplitMix64)."""
    bits = (bits ^ (bits >> S30)) * MIX_1
    bits = (bits ^ (bits >> S27)) * MIX_2
    return bits ^ (bits >> S31)


@kernel
def fill_normal(state: np.uint64, z: Floats) -> np.uint64:
    """Independent standard normal numbers into z; the new state of the stream (SplitMix64).

    By the ziggurat of Doornik (2005): 128 layers of equal area, of which one and a place in it
    are drawn; nearly always the place lies under the curve for certain.
    """
    for a in range(z.size):
        while True:
            state += STEP
            bits = _mixed(state)
            layer = bits & LAYER
            place = (bits >> S11) * 2.0**-52 - 1.0
            if abs(place) < CORE[layer]:
                z[a] = place * EDGE[layer]
                break
            state += STEP
            uniform = ((_mixed(state) >> S11) + 1.0) * 2.0**-53  # in (0, 1]: log is finite
            if layer == 0:  # the tail beyond the last edge, by rejection from an exponential
                state += STEP
                other = ((_mixed(state) >> S11) + 1.0) * 2.0**-53
                beyond = -log(uniform) / EDGE[1]
                if -2.0 * log(other) >= beyond * beyond:
                    z[a] = np.copysign(EDGE[1] + beyond, place)
                    break
            else:
                x = place * EDGE[layer]
                high = exp(0.5 * (x * x - EDGE[layer] ** 2))
                low = exp(0.5 * (x * x - EDGE[layer + 1] ** 2))
                if low + uniform * (high - low) < 1.0:
                    z[a] = x
                    break
    return state


@kernel
def best_shares(
    X: Floats,
    counts: Floats,
    sums: Floats,
    ridge: float,
    sd: float,
    seeds: NDArray[np.uint64],
    played: NDArray[np.uint64],
    samples: int,
    values: Floats,
    shares: Floats,
) -> None:
    """Posterior means into values (n, K); how often each arm was best into shares (n, K)."""
    K, r = X.shape
    A, U, theta = np.empty((r, r)), np.empty((K, r)), np.empty(r)
    z = np.empty(r)
    for i in range(shares.shape[0]):
        _posterior(X, counts[i], sums[i], ridge, A, theta, U)
        for k in range(K):
            total = 0.0
            for a in range(r):
                total += X[k, a] * theta[a]
            values[i, k] = total
        shares[i] = 0.0
        stream = _mixed(seeds[i] ^ _mixed(played[i] + STEP))
        for _ in range(samples):
            stream = fill_normal(stream, z)
            best, highest = 0, -np.inf
            for k in range(K):
                total = 0.0
                for a in range(r):
                    total += U[k, a] * z[a]
                total = values[i, k] + sd * total
                if total > highest:
                    best, highest = k, total
            shares[i, best] += 1.0
        for k in range(K):
            shares[i, k] /= samples


@kernel
def top_two(
    X: Floats,
    counts: Floats,
    ridge: float,
    sd: float,
    beta: float,
    values: Floats,
    shares: Floats,
    out: Floats,
) -> None:
    """Top-two allocation β p_i + (1 - β) p_i Σ_{j≠i} p_j/(1 - p_j) into out (n, K), p = shares.

    Where one arm won every sample, the others challenge in proportion to the posterior
    probability of each to beat it, which is what is left to sample as that arm's share nears one.
    """
    K, r = X.shape
    A, U, theta = np.empty((r, r)), np.empty((K, r)), np.empty(r)
    nothing = np.zeros(K)
    for i in range(shares.shape[0]):
        odds, leader = 0.0, -1
        for k in range(K):
            if shares[i, k] < 1.0:
                odds += shares[i, k] / (1.0 - shares[i, k])
            else:
                leader = k
        if leader < 0:
            for k in range(K):
                p = shares[i, k]
                out[i, k] = p * (beta + (1.0 - beta) * (odds - p / (1.0 - p)))
            continue
        _posterior(X, counts[i], nothing, ridge, A, theta, U)
        largest = -np.inf
        for k in range(K):
            out[i, k] = -np.inf
            if k != leader:
                spread = 0.0
                for a in range(r):
                    spread += (U[leader, a] - U[k, a]) ** 2
                gap = (values[i, leader] - values[i, k]) / (sd * np.sqrt(spread))
                out[i, k] = log_upper_tail(gap)
                largest = max(largest, out[i, k])
        total = 0.0
        for k in range(K):
            out[i, k] = exp(out[i, k] - largest)
            total += out[i, k]
        for k in range(K):
            out[i, k] *= (1.0 - beta) / total
        out[i, leader] = beta
