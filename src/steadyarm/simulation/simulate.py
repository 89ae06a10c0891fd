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

__all__ = ["simulate"]

CHUNK = 1024  # trials with one random stream; part of what a seed means, so it never changes


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
    progress : called with the number of trials whenever some are done

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.3, 0.2, 0.0], budget=300)
    >>> sa.simulate(sa.GBAI(), world, trials=1000, seed=1)
    Results(G-BAI: 254 errors in 1000 trials)
    """
    if trials < 1:
        raise InvalidInputError(f"trials is {trials}; expected at least 1.")
    if jobs is not None and jobs < 1:
        raise InvalidInputError(f"jobs is {jobs}; expected at least 1, or None for all cores.")
    sizes = [min(CHUNK, trials - first) for first in range(0, trials, CHUNK)]

    def run(chunk: int) -> NDArray[np.int64]:
        stream = np.random.SeedSequence(seed, spawn_key=(chunk,))
        arms = _run_batch(policy, environment, sizes[chunk], stream)
        if progress is not None:
            progress(len(arms))
        return arms

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        recommended = np.concatenate(list(pool.map(run, range(len(sizes)))))
    return Results(policy.name, recommended, environment.best_arm)


def _run_batch(
    policy: Policy[Any],
    environment: RewardSource,
    trials: int,
    stream: np.random.SeedSequence,
) -> NDArray[np.int64]:
    rng = np.random.default_rng(stream)
    state = policy.start(
        environment.arms, environment.budget, trials, seed=int(rng.integers(2**63))
    )
    while (segment := policy.next_segment(state)) is not None:
        stats = environment.play(segment, state.played, rng)
        if environment.direction == "minimize":
            stats = stats.negated()
        state = policy.observe(state, segment, stats)
    return policy.recommend(state).arm
