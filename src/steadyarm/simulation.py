"""Many independent runs of a policy in an environment, and how often it was wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from steadyarm.compiled import compiling
from steadyarm.covariates import Slopes, adjusted
from steadyarm.environments import RewardSource
from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.policies import Policy
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import check_fraction, whole_number

# Results: how often a policy was wrong, with exact intervals.


def clopper_pearson(errors: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval for a probability of which `errors` of `trials` were seen.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 1000)
    >>> round(low, 4), round(high, 4)
    (0.0, 0.0037)
    """
    check_fraction(level, "level")
    if not 0 <= errors <= trials or trials < 1:
        raise InvalidInputError(
            f"there are {errors} errors in {trials} trials; expected 0 <= errors <= trials."
        )
    from scipy.stats import beta

    tail, right = (1 - level) / 2, trials - errors
    low = 0.0 if errors == 0 else float(beta.ppf(tail, errors, right + 1))
    high = 1.0 if right == 0 else float(beta.ppf(1 - tail, errors + 1, right))
    return low, high


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """What `simulate` found.

    Attributes
    ----------
    policy : name of the policy
    recommended : (trials,) arm recommended in each trial
    best_arm : the arm that should have been
    """

    policy: str
    recommended: NDArray[np.int64]
    best_arm: int

    @property
    def trials(self) -> int:
        """Number of independent runs."""
        return len(self.recommended)

    @property
    def errors(self) -> int:
        """In how many of them another arm was recommended."""
        return int((self.recommended != self.best_arm).sum())

    @property
    def error_rate(self) -> float:
        """Share of wrong recommendations."""
        return self.errors / self.trials

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Clopper-Pearson interval for the probability of error; holds for any sample size."""
        return clopper_pearson(self.errors, self.trials, level)

    def __repr__(self) -> str:
        return f"Results({self.policy}: {self.errors} errors in {self.trials} trials)"


# Where many small simulations run: threads of this machine, or a Dask cluster.


WINDOW = 32  # calls submitted at a time; waiting takes as many locks


class Engine(Protocol):
    """Something that runs calls."""

    def run(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """(position in calls, result) of every call, in the order they finish."""


@dataclass(frozen=True)
class LocalEngine:
    """Threads; the compiled kernels run in parallel. None is one thread per core."""

    jobs: int | None = None

    def __post_init__(self) -> None:
        if self.jobs is not None:
            whole_number(self.jobs, "jobs", least=1)

    def run(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """(position in calls, result) of every call, in the order they finish."""
        pool = ThreadPoolExecutor(self.jobs or os.cpu_count() or 1)
        places: dict[Future[Any], int] = {}
        try:
            for i, call in enumerate(calls):
                places[pool.submit(function, *call)] = i
                if len(places) >= WINDOW:  # a long list of calls is not held all at once
                    yield from self._finished(places)
            while places:
                yield from self._finished(places)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def map(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The results in the order of the calls."""
        found = dict(self.run(function, calls))
        return [found[i] for i in range(len(calls))]

    @staticmethod
    def _finished(places: dict[Future[Any], int]) -> Iterator[tuple[int, Any]]:
        for future in wait(places, return_when=FIRST_COMPLETED).done:
            yield places.pop(future), future.result()


@dataclass(frozen=True)
class DaskEngine:
    """Workers of a Dask cluster; a call whose worker is lost is tried again elsewhere.

    Attributes
    ----------
    scheduler : its address, such as tcp://host:8786; None starts a cluster of processes here
    jobs : how many processes that cluster has; one per core by default
    retries : how often a call is tried again
    timeout : seconds to wait for the scheduler to answer
    """

    scheduler: str | None = None
    jobs: int | None = None
    retries: int = 5
    timeout: float = 10

    def run(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """(position in calls, result) of every call, in the order they finish."""
        try:
            from distributed import Client, as_completed
        except ImportError:
            raise MissingExtraError(
                "the Dask engine needs dask and distributed; "
                "install them with: pip install 'steadyarm[cluster]'"
            ) from None
        try:
            if self.scheduler is None:
                workers = {"n_workers": self.jobs or os.cpu_count(), "threads_per_worker": 1}
                client = Client(**workers, dashboard_address=None, timeout=self.timeout)
            else:
                client = Client(self.scheduler, timeout=self.timeout)
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"no Dask scheduler answers at {self.scheduler} ({error}); start one with "
                "'dask scheduler' or leave the address out to start a local cluster."
            ) from None
        with client:
            futures = [
                client.submit(function, *call, pure=False, retries=self.retries) for call in calls
            ]
            places = {future.key: i for i, future in enumerate(futures)}
            for future, result in as_completed(futures, with_results=True):
                yield places[future.key], result


# simulate: run a policy many times, a batch of trials at once, segment by segment.


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
        raise InvalidInputError.of("policy", policy, "an instance of a policy, such as P1RAGE()")
    if not hasattr(environment, "play"):
        raise InvalidInputError.of(
            "environment",
            environment,
            "a world, such as Environment.from_means(arms, means, budget=1000)",
        )
    trials, seed = whole_number(trials, "trials", least=1), whole_number(seed, "seed")

    def run(chunk: int) -> NDArray[np.int64]:
        arms = run_chunk(policy, environment, seed, chunk, chunk_size(trials, chunk))
        if progress is not None:
            progress(len(arms))
        return arms

    chunks = [(chunk,) for chunk in range(chunk_count(trials))]
    recommended = np.concatenate(LocalEngine(jobs).map(run, chunks))
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
    one_at_a_time = policy.scales and environment.arms.large
    sizes = [1] * trials if one_at_a_time else [trials]
    with compiling():
        return np.concatenate([_recommended(policy, environment, n, rng) for n in sizes])


def _recommended(
    policy: Policy[Any], environment: RewardSource, trials: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    state = policy.start(
        environment.arms, environment.budget, trials, seed=int(rng.integers(2**63))
    )
    slopes: Slopes | None = None
    while (segment := policy.next_segment(state)) is not None:
        segment.checked(environment.arms.size)
        if hasattr(environment, "play_with_covariates"):
            stats, slopes = _play_adjusted(environment, segment, state.played, rng, slopes)
        else:
            stats = environment.play(segment, state.played, rng)
            if environment.direction == "minimize":
                stats = stats.negated()
        state = policy.observe(state, segment, stats)
    return policy.recommend(state).arm


def _play_adjusted(
    environment: Any,
    segment: Segment,
    start: NDArray[np.int64],
    rng: np.random.Generator,
    slopes: Slopes | None,
) -> tuple[SegmentStats, Slopes | None]:
    """Statistics of a segment with rewards adjusted for covariates, and slopes for the next.

    As in a live test a segment is played in parts, each adjusted with slopes from those before it.
    Any policy may observe adjusted sums: given slopes, they are sums of rewards with less noise.
    """
    total = None
    for part, begin in _parts(segment, start, environment.budget):
        stats, moments = environment.play_with_covariates(part, begin, rng)
        if environment.direction == "minimize":
            stats, moments = stats.negated(), moments.negated()
        if slopes is None:
            slopes = Slopes.none(segment.trials, moments.covariates)
        seen = adjusted(stats, moments, slopes.fitted(moments))
        slopes = slopes.after(stats, moments)
        total = seen if total is None else total + seen
    assert total is not None
    return total, slopes


PARTS, LEAST_PART = 60, 10  # as `decisions` cuts the segments of a live test


def _parts(
    segment: Segment, start: NDArray[np.int64], budget: int
) -> Iterator[tuple[Segment, NDArray[np.int64]]]:
    """A segment cut after whole blocks, with the first round of each part; shuffled it is whole."""
    if segment.order == "shuffled":
        yield segment, start
        return
    block = segment.block if segment.order == "blocks" else 1
    length = block * max(1, round(max(LEAST_PART, budget / PARTS) / block))
    for first in range(0, int(segment.rounds.max()), length):
        rounds = np.clip(segment.rounds - first, 0, length)
        yield replace(segment, rounds=rounds), start + first
