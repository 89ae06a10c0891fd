"""Thompson sampling, linear and top-two, in batches: a Gaussian posterior and draws from it.

The draws for a segment are a pure function of (the trial's seed, rounds played), so that a state
read back goes on identically and a trial does the same in any batch.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.compiled import exp, kernel, log, log_upper_tail
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import arm_values, least_squares
from steadyarm.linalg import cholesky, cholesky_solve, information, whiten_rows
from steadyarm.policies.base import (
    Policy,
    Recommendations,
    State,
    TallyState,
    Ties,
    best_arm,
    empty_tally,
    start_values,
)
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import check_fraction, finite_number, whole_number

# Compiled draws from Gaussian posteriors, trial by trial. Blind: the caller validates.


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STEP = np.uint64(0x9E3779B97F4A7C15)  # of SplitMix64 (Steele, Lea, Flood 2014), with its mixers
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S11, S27, S30, S31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
LAYER = np.uint64(127)


def _ziggurat() -> tuple[Floats, Floats]:
    """Right edges (129,) of the layers from the lowest up, and the share surely under the curve."""
    last, area = 3.442619855899, 9.91256303526217e-3
    edge = [area * exp(0.5 * last * last), last]
    while len(edge) < 128:
        height = area / edge[-1] + exp(-0.5 * edge[-1] * edge[-1])
        edge.append(sqrt(-2.0 * log(height)))
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
                high = exp(0.5 * (x * x - EDGE[layer] * EDGE[layer]))
                low = exp(0.5 * (x * x - EDGE[layer + 1] * EDGE[layer + 1]))
                if low + uniform * (high - low) < 1.0:
                    z[a] = x
                    break
    return state


@kernel(small=0)
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
                    apart = U[leader, a] - U[k, a]
                    spread += apart * apart
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


@dataclass(frozen=True)
class ThompsonState(TallyState):
    """Sums over all rounds played, and where the draws come from.

    Attributes
    ----------
    seeds : (n,) of each trial's posterior draws
    """

    seeds: Integers


@dataclass(frozen=True)
class ThompsonPolicy(Policy[ThompsonState]):
    """Batched sampling from the posterior N(θ̂, v² (X'NX + ridge I)⁻¹), in `arms.coordinates`.

    Textbook versions draw one θ and play its best arm each round. Here the posterior is updated
    every `batch` rounds, and a batch is drawn independently from the share of posterior samples
    in which each arm is best, which is the same distribution up to the number of samples.

    Parameters
    ----------
    noise_sd : the v of the posterior, the noise's standard deviation as far as you know it
    ridge : of the prior N(0, v²/ridge I)
    samples : posterior draws that estimate an allocation
    batch : rounds between updates; by default a hundredth of the budget, rounded up
    ties : which of arms with equal estimates counts as better: "random", "first" or "last"
    """

    waits: ClassVar[bool] = False
    estimator: ClassVar[str] = "posterior of all rewards"
    state_type: ClassVar[type[State]] = ThompsonState

    noise_sd: float = 1.0
    ridge: float = 1.0
    samples: int = 128
    batch: int | None = None
    ties: Ties = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        for what in ("noise_sd", "ridge"):
            if not finite_number(getattr(self, what), what) > 0:
                raise InvalidInputError(
                    f"{what} is {getattr(self, what)!r}; expected a number above 0."
                )
        whole_number(self.samples, "samples", least=1)
        if self.batch is not None:
            whole_number(self.batch, "batch", least=1)

    @abstractmethod
    def allocation(self, state: ThompsonState, values: Floats, shares: Floats) -> Floats:
        """(n, K) probabilities, from the posterior means and shares of samples won, (n, K)."""

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> ThompsonState:
        """Nothing but the prior is known."""
        values = start_values(arms, budget, trials, seed, self.ties)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        seeds = rng.integers(2**63, size=trials)
        return ThompsonState(**values, **empty_tally(trials, arms.size), seeds=seeds)

    def next_segment(self, state: ThompsonState) -> Segment | None:
        """The allocation that follows from the present posterior, up to the next update."""
        batch = ceil(state.budget / 100) if self.batch is None else self.batch
        end = np.minimum((state.played // batch + 1) * batch, state.budget)
        rounds = end - state.played
        if not rounds.any():
            return None
        shape = (state.trials, state.arms.size)
        values, shares = np.empty(shape), np.empty(shape)
        best_shares(
            state.arms.coordinates,
            state.counts.astype(np.float64),
            state.sums,
            self.ridge,
            self.noise_sd,
            state.seeds.astype(np.uint64),
            state.played.astype(np.uint64),
            self.samples,
            values,
            shares,
        )
        return Segment(self.allocation(state, values, shares), rounds)

    def observe(self, state: ThompsonState, segment: Segment, stats: SegmentStats) -> ThompsonState:
        """Add the sums."""
        return state.after(segment, stats)

    def recommend(self, state: ThompsonState) -> Recommendations:
        """The arm with the highest posterior mean.

        Standard errors are posterior ones with the noise's variance estimated from the rewards
        instead of `noise_sd`; they assume that nothing drifts.
        """
        X = state.arms.coordinates
        theta, roots = posterior(X, state.counts, state.sums, self.ridge)
        estimates = arm_values(X, theta)
        _, variance = least_squares(X, state.tally)
        errors = None
        if variance is not None:
            errors = np.sqrt(variance[:, None] * np.square(roots).sum(axis=2))
        return Recommendations(best_arm(estimates, state.ties), estimates, errors)


# Linear Thompson sampling, in batches: play each arm as often as it may be the best.


@dataclass(frozen=True)
class LinearThompson(ThompsonPolicy):
    """Play each arm with the posterior probability that it is best.

    Made to earn rewards while testing, for a stationary world: as one arm leads, the others
    are hardly played any more, and drift misleads it. It is included because many tests use it.
    This is batched Thompson sampling; `ThompsonPolicy` describes it and its fields.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.LinearThompson(), world, trials=1000, seed=1)
    Results(Linear-Thompson: 34 errors in 1000 trials)

    References
    ----------
    Agrawal, Goyal: Thompson sampling for contextual bandits with linear payoffs. ICML 2013,
    Algorithm 1, with a constant v.
    """

    name: ClassVar[str] = "Linear-Thompson"

    def allocation(self, state: ThompsonState, values: Floats, shares: Floats) -> Floats:
        """The shares themselves.

        Parameters
        ----------
        state : of n trials
        values : (n, K) posterior means
        shares : (n, K) probability that each arm is the best

        Returns
        -------
        (n, K) probabilities
        """
        return shares


# Top-two Thompson sampling, linear, in batches: leader against challenger (Russo 2016).


@dataclass(frozen=True)
class TopTwoThompson(ThompsonPolicy):
    """With probability β play the best arm of a posterior draw, else that of a draw that disagrees.

    The second keeps the leader from taking all rounds, so that the test learns faster which arm is
    best than with Thompson sampling; drift misleads it all the same. Where one arm wins all
    samples, the challenger is drawn from the probabilities of each arm to beat it.

    Parameters
    ----------
    beta : share of the leader
    noise_sd, ridge, samples, batch : see `ThompsonPolicy`

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.5, 0.3, 0.0], budget=500)
    >>> sa.simulate(sa.TopTwoThompson(), world, trials=1000, seed=1)
    Results(Top-Two-Thompson: 17 errors in 1000 trials)

    References
    ----------
    Russo: Simple Bayesian algorithms for best arm identification. COLT 2016,
    top-two Thompson sampling.
    """

    name: ClassVar[str] = "Top-Two-Thompson"

    beta: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(self.beta, "beta")

    def allocation(self, state: ThompsonState, values: Floats, shares: Floats) -> Floats:
        """β p_i + (1 - β) p_i Σ_{j≠i} p_j/(1 - p_j).

        Parameters
        ----------
        state : of n trials
        values : (n, K) posterior means
        shares : (n, K) p, the probability that each arm is the best

        Returns
        -------
        (n, K) probabilities
        """
        weights = np.empty(shares.shape)
        top_two(
            state.arms.coordinates,
            state.counts.astype(np.float64),
            self.ridge,
            self.noise_sd,
            self.beta,
            values,
            shares,
            weights,
        )
        return weights
