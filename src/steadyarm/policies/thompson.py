"""Thompson sampling, linear and top-two, in batches: a Gaussian posterior and draws from it.

The draws for a segment are a pure function of (the trial's seed, rounds played), so that a state
read back goes on identically and a trial does the same in any batch.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import least_squares
from steadyarm.kernels import grams
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

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEAST_NOISE = 1e-4  # of the mean squared reward: least variance that is taken for noise


def posterior(X: Floats, A: Floats, b: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Mean θ̂ (n, r) and U (n, K, r): the arms' values have covariance v² U U' for each trial.

    A, b : (n, r, r) and (n, r), the normal equations A θ = b of least squares

    Examples
    --------
    >>> A, b = np.diag([3.0, 0.0])[None], np.array([[6.0, 0.0]])
    >>> mean, U = posterior(np.eye(2), A, b, ridge=1.0)
    >>> mean, np.square(U).sum(axis=2)
    (array([[1.5, 0. ]]), array([[0.25, 1.  ]]))
    """
    A = A + ridge * np.eye(X.shape[1])
    theta = np.linalg.solve(A, b[..., None])[..., 0]
    roots = np.linalg.solve(np.linalg.cholesky(A), X.T).swapaxes(1, 2)
    return np.asarray(theta, dtype=np.float64), np.asarray(roots)


def best_shares(values: Floats, roots: Floats, keys: Integers, samples: int) -> Floats:
    """(n, K) how often each arm is the best among samples of values (n, K) + roots (n, K, r) z.

    keys : (n, 2) of the random stream of each trial
    """
    shares = np.empty(values.shape)
    for mean, root, key, share in zip(values, roots, keys.astype(np.uint64), shares, strict=True):
        z = np.random.Generator(np.random.Philox(key=key)).standard_normal((samples, root.shape[1]))
        share[:] = np.bincount((mean + z @ root.T).argmax(axis=1), minlength=mean.size) / samples
    return shares


def top_two(values: Floats, roots: Floats, shares: Floats, beta: float) -> Floats:
    """Top-two allocation (n, K): β p_i + (1 - β) p_i Σ_{j≠i} p_j/(1 - p_j), p = shares.

    Where one arm won every sample, the others challenge in proportion to the posterior
    probability of each to beat it, which is what is left to sample as that arm's share nears one.
    """
    odds = shares / np.where(shares < 1.0, 1.0 - shares, 1.0)
    out = shares * (beta + (1.0 - beta) * (odds.sum(axis=1, keepdims=True) - odds))
    for i, leader in np.argwhere(shares == 1.0):
        spread = np.sqrt(np.square(roots[i] - roots[i, leader]).sum(axis=1))
        spread[leader] = 1.0
        chance = log_ndtr((values[i] - values[i, leader]) / spread)
        chance[leader] = -np.inf
        chance = np.exp(chance - chance.max())
        out[i] = (1.0 - beta) * chance / chance.sum()
        out[i, leader] = beta
    return np.asarray(out)


@dataclass(frozen=True)
class ThompsonState(TallyState):
    """Sums over all rounds played, and where the draws come from.

    Attributes
    ----------
    seeds : (n,) of each trial's posterior draws
    """

    seeds: Integers

    @classmethod
    def initial(cls, trials: int, arms: ArmSet) -> dict[str, Any]:
        """What is known of the rewards before the first round, by the names of the fields."""
        return empty_tally(trials, arms.size)


ThompsonStateT = TypeVar("ThompsonStateT", bound=ThompsonState)


@dataclass(frozen=True)
class ThompsonPolicy(Policy[ThompsonStateT]):
    """Batched sampling from the posterior N(θ̂, v² (X'NX + ridge I)⁻¹), in `arms.coordinates`.

    Textbook versions draw one θ and play its best arm each round. Here the posterior is updated
    every `batch` rounds, and a batch is drawn independently from the share of posterior samples
    in which each arm is best, which is the same distribution up to the number of samples.

    Parameters
    ----------
    noise_sd : the v of the posterior, the noise's standard deviation; estimated by least squares
        from the rewards so far if it is None
    ridge : the ridge of the prior N(0, v²/ridge I)
    samples : posterior draws that estimate an allocation
    batch : rounds between updates; by default a hundredth of the budget, rounded up
    ties : which of arms with equal estimates counts as better: "random", "first" or "last"
    """

    waits: ClassVar[bool] = False
    needs_squares: ClassVar[bool] = True
    estimator: ClassVar[str] = "posterior of all rewards"
    state_type: ClassVar[type[State]] = ThompsonState

    noise_sd: float | None = None
    ridge: float = 1.0
    samples: int = 128
    batch: int | None = None
    ties: Ties = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        for what in ("noise_sd", "ridge"):
            given = getattr(self, what)
            if (given is not None or what == "ridge") and not finite_number(given, what) > 0:
                raise InvalidInputError(f"{what} is {given!r}; expected a number above 0.")
        whole_number(self.samples, "samples", least=1)
        if self.batch is not None:
            whole_number(self.batch, "batch", least=1)

    @abstractmethod
    def allocation(self, values: Floats, roots: Floats, shares: Floats) -> Floats:
        """(n, K) probabilities.

        Parameters
        ----------
        values : (n, K) posterior means
        roots : (n, K, r) roots of the posterior covariance of these values
        shares : (n, K) share of posterior samples in which each arm is the best
        """

    def normal_equations(self, state: ThompsonStateT) -> tuple[Floats, Floats]:
        """A (n, r, r) and b (n, r): least squares of the rewards so far is A θ = b.

        Parameters
        ----------
        state : of n trials
        """
        X = state.arms.coordinates
        return grams(X, state.counts.astype(np.float64)), state.sums @ X

    def noise_variance(self, state: ThompsonStateT) -> Floats | None:
        """(n,) by least squares, nan if there are too few rewards; None if squares are unknown.

        Parameters
        ----------
        state : of n trials
        """
        return least_squares(state.arms.coordinates, state.tally)[1]

    def start(self, arms: ArmSet, budget: int, trials: int = 1, seed: int = 0) -> ThompsonStateT:
        """Nothing but the prior is known."""
        values = start_values(arms, budget, trials, seed, self.ties)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        seeds = rng.integers(2**63, size=trials)
        kind: Any = self.state_type
        state: ThompsonStateT = kind(**values, **kind.initial(trials, arms), seeds=seeds)
        return state

    def next_segment(self, state: ThompsonStateT) -> Segment | None:
        """The allocation that follows from the present posterior, up to the next update."""
        batch = ceil(state.budget / 100) if self.batch is None else self.batch
        end = np.minimum((state.played // batch + 1) * batch, state.budget)
        rounds = end - state.played
        if not rounds.any():
            return None
        X = state.arms.coordinates
        theta, roots = posterior(X, *self.normal_equations(state), self.ridge)
        values, roots = theta @ X.T, self._noise(state)[:, None, None] * roots
        keys = np.column_stack([state.seeds, state.played])
        shares = best_shares(values, roots, keys, self.samples)
        return Segment(self.allocation(values, roots, shares), rounds)

    def _noise(self, state: ThompsonStateT) -> Floats:
        """(n,) standard deviation of the noise, as given or estimated.

        That of all rewards as long as there are too few to tell.
        """
        if self.noise_sd is not None:
            return np.full(state.trials, self.noise_sd)
        variance = self.noise_variance(state)
        if variance is None or state.squares is None:
            raise InvalidInputError(
                "the noise is estimated from squared rewards, which were not recorded; give "
                "noise_sd, or play segments with squares=True."
            )
        square = state.squares.sum(axis=1) / np.maximum(state.played, 1)
        variance = np.where(np.isnan(variance), square, np.maximum(variance, LEAST_NOISE * square))
        return np.sqrt(np.where(variance > 0, variance, 1.0))

    def observe(
        self, state: ThompsonStateT, segment: Segment, stats: SegmentStats
    ) -> ThompsonStateT:
        """Add the sums."""
        return state.after(segment, stats)

    def recommend(self, state: ThompsonStateT) -> Recommendations:
        """The arm with the highest posterior mean.

        Standard errors are posterior ones with the noise's variance estimated from the rewards;
        they assume that nothing drifts.
        """
        X = state.arms.coordinates
        theta, roots = posterior(X, *self.normal_equations(state), self.ridge)
        estimates = theta @ X.T
        variance = self.noise_variance(state)
        errors = None
        if variance is not None:
            errors = np.sqrt(variance[:, None] * np.square(roots).sum(axis=2))
        return Recommendations(best_arm(estimates, state.ties), estimates, errors)


# Linear Thompson sampling, in batches: play each arm as often as it may be the best.


@dataclass(frozen=True)
class LinearThompson(ThompsonPolicy[ThompsonState]):
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
    Results(Linear-Thompson: 33 errors in 1000 trials)

    References
    ----------
    Agrawal, Goyal: Thompson sampling for contextual bandits with linear payoffs. ICML 2013,
    Algorithm 1, with a constant v.
    """

    name: ClassVar[str] = "Linear-Thompson"

    def allocation(self, values: Floats, roots: Floats, shares: Floats) -> Floats:
        """The shares themselves."""
        return shares


# Top-two Thompson sampling, linear, in batches: leader against challenger (Russo 2016).


@dataclass(frozen=True)
class TopTwoPolicy(ThompsonPolicy[ThompsonStateT]):
    """The allocation that top-two policies share.

    Parameters
    ----------
    beta : share of the leader
    """

    beta: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(self.beta, "beta")

    def allocation(self, values: Floats, roots: Floats, shares: Floats) -> Floats:
        """β p_i + (1 - β) p_i Σ_{j≠i} p_j/(1 - p_j), see `top_two`."""
        return top_two(values, roots, shares, self.beta)


@dataclass(frozen=True)
class TopTwoThompson(TopTwoPolicy[ThompsonState]):
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
    Results(Top-Two-Thompson: 20 errors in 1000 trials)

    References
    ----------
    Russo: Simple Bayesian algorithms for best arm identification. COLT 2016,
    top-two Thompson sampling.
    """

    name: ClassVar[str] = "Top-Two-Thompson"
