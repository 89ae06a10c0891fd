"""simulate: run a policy many times, a batch of trials at once, segment by segment."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.environments import RewardSource
from steadyarm.errors import InvalidInputError
from steadyarm.policies import Policy
from steadyarm.simulation.results import Results
from steadyarm.validation import whole_number

__all__ = ["CHUNK", "chunk_count", "chunk_size", "run_chunk", "simulate"]

CHUNK = 256  # trials with one random stream; part of what a seed means, so it never changes


def simulate(
    policy: Policy[Any],
    environment: RewardSource,
    trials: int = 1000,
    seed: int = 0,
    jobs: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Results:
    """Run `policy` in `environment` many times and count the wrong recommendations.

    Parameters
    ----------
    trials : number of independent runs
    seed : the same seed gives the same result, whatever the number of jobs
    jobs : threads; by default one per core. The compiled kernels run in parallel.
    progress : called with the number of trials whenever some are done, from any of the threads

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.3, 0.2, 0.0], budget=300)
    >>> sa.simulate(sa.GBAI(), world, trials=1000, seed=1)
    Results(G-BAI: 246 errors in 1000 trials)
    """
    if not isinstance(policy, Policy):
        raise InvalidInputError(
            f"policy is {policy!r}; expected an instance of a policy, such as P1RAGE()."
        )
    if not hasattr(environment, "play"):
        raise InvalidInputError(
            f"environment is {environment!r}; expected a world, such as "
            "Environment.from_means(arms, means, budget=1000)."
        )
    trials, seed = whole_number(trials, "trials", least=1), whole_number(seed, "seed")
    jobs = None if jobs is None else whole_number(jobs, "jobs", least=1)

    def run(chunk: int) -> NDArray[np.int64]:
        arms = run_chunk(policy, environment, seed, chunk, chunk_size(trials, chunk))
        if progress is not None:
            progress(len(arms))
        return arms

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        recommended = np.concatenate(list(pool.map(run, range(chunk_count(trials)))))
    return Results(policy.name, recommended, environment.best_arm)


def chunk_count(trials: int) -> int:
    """Into how many random streams the trials are cut."""
    return -(-trials // CHUNK)


def chunk_size(trials: int, chunk: int) -> int:
    """How many trials one of them makes."""
    return min(CHUNK, trials - chunk * CHUNK)


def run_chunk(
    policy: Policy[Any], environment: RewardSource, seed: int, chunk: int, trials: int
) -> NDArray[np.int64]:
    """(trials,) arms recommended in one chunk: a pure function, wherever it runs."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(chunk,)))
    if policy.scales and environment.arms.large:  # one at a time
        runs = [_recommended(policy, environment, 1, rng) for _ in range(trials)]
        return np.concatenate(runs)
    return _recommended(policy, environment, trials, rng)


def _recommended(
    policy: Policy[Any], environment: RewardSource, trials: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    state = policy.start(
        environment.arms, environment.budget, trials, seed=int(rng.integers(2**63))
    )
    while (segment := policy.next_segment(state)) is not None:
        stats = environment.play(segment.checked(environment.arms.size), state.played, rng)
        if environment.direction == "minimize":
            stats = stats.negated()
        state = policy.observe(state, segment, stats)
    return policy.recommend(state).arm
