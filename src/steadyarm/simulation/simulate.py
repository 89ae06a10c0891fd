"""simulate: independent trials of a policy in an environment, and its error rate."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from steadyarm import __version__
from steadyarm.arms import ArmSet
from steadyarm.covariates import Slopes, adjust_stats
from steadyarm.environments.environment import RewardSource, noise_text
from steadyarm.errors import InvalidInputError
from steadyarm.policies import Policy
from steadyarm.policies.base import Recommendations
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import check_choice, check_fraction, not_negative, whole_number
from steadyarm.wording import FrameLibrary, frame_of

Workers = Literal["threads", "processes"]
DrawWorld = Callable[[np.random.Generator], RewardSource]
PARTS = 30  # into which whole tests are cut when they are recorded
CHUNK = 256  # trials with one random stream; part of what a seed means, so it never changes


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


@dataclass(frozen=True, repr=False)
class Results:
    """The number of recommendations of each arm by a policy in one environment.

    Attributes
    ----------
    policy : name of the policy
    recommended : number of trials by recommended arm
    regrets : simple regret of each of these arms: how far its time-averaged mean is below the best
        one; None if the environment does not know its means
    best_arm : the arm that should have been recommended
    seconds : processor time of the policy in all trials, without the environment
    world : name of the environment in a comparison, or of the figure in the paper's runs
    parameter, value : the setting of the environment, such as "budget" and 1000
    budget, arms, features, gap, noise : of the environment; noise in words
    plays : (K,) mean number of rounds per trial for each arm; None for very many arms, in
        comparisons, and in worlds that are drawn anew
    cumulative_regret : mean over trials of the sum over rounds of how far the arm played is below
        the best one, each by its time-averaged mean; None if not known, or if arms have targets
    settings : what to run again for the same results; empty in comparisons, which have their own

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> world = sa.Environment.from_means(arms, [0.5, 0.3], budget=100)
    >>> results = sa.simulate(sa.GBAI(), world, trials=1000, seed=1)
    >>> results.errors, results.error_rate, results.recommended
    (189, 0.189, {0: 811, 1: 189})
    >>> low, high = results.interval(0.95)
    >>> print(f"{low:.3f} to {high:.3f}, simple regret {results.regret:.3f}")
    0.165 to 0.215, simple regret 0.038
    """

    policy: str
    recommended: Mapping[int, int] = field(hash=False)
    regrets: Mapping[int, float] | None = field(hash=False)
    best_arm: int
    seconds: float = math.nan
    world: str = ""
    parameter: str = ""
    value: float | int | None = None
    budget: int = 0
    arms: int = 0
    features: int = 0
    gap: float | None = None
    noise: str = ""
    cumulative_regret: float | None = None
    plays: NDArray[np.float64] | None = field(default=None, compare=False)
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def trials(self) -> int:
        """Number of independent runs."""
        return sum(self.recommended.values())

    @property
    def errors(self) -> int:
        """The number of trials that recommended an arm that is not as good as the best."""
        return sum(count for arm, count in self.recommended.items() if self._is_wrong(arm))

    @property
    def error_rate(self) -> float:
        """Share of wrong recommendations."""
        return self.errors / self.trials

    @property
    def regret(self) -> float | None:
        """Mean simple regret of the recommendation, under the time average; None if not known."""
        if self.regrets is None:
            return None
        total = math.fsum(self.regrets[arm] * count for arm, count in self.recommended.items())
        return total / self.trials

    @property
    def regret_error(self) -> float | None:
        """Standard error of `regret`; None if not known."""
        mean = self.regret
        if self.regrets is None or mean is None or self.trials < 2:
            return None
        squares = math.fsum(
            (self.regrets[arm] - mean) ** 2 * count for arm, count in self.recommended.items()
        )
        return math.sqrt(squares / (self.trials - 1) / self.trials)

    def good_rate(self, epsilon: float) -> float:
        """Share of trials in which the recommended arm is at most `epsilon` worse than the best.

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
        >>> world = sa.Environment.from_means(arms, [0.5, 0.45, 0.0], budget=300)
        >>> results = sa.simulate(sa.Steady(), world, trials=500, seed=1)
        >>> 1 - results.error_rate < results.good_rate(0.1) <= 1
        True
        """
        if self.regrets is None:
            raise InvalidInputError(
                "the environment does not know its means, so regrets are unknown; give it a method "
                "regret(arms)."
            )
        limit = not_negative(epsilon, "epsilon") * (1 + 1e-12)
        good = sum(n for arm, n in self.recommended.items() if self.regrets[arm] <= limit)
        return good / self.trials

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Clopper-Pearson interval for the probability of error; holds for any sample size.

        Parameters
        ----------
        level : confidence level, between 0 and 1

        Returns
        -------
        lower and upper end
        """
        return clopper_pearson(self.errors, self.trials, level)

    def to_frame(self, library: FrameLibrary = "pandas") -> Any:
        """A data frame with a row for each recommended arm: trials, whether it is wrong, regret.

        library : "pandas" or "polars"
        """
        arms = list(self.recommended)
        known = self.regrets
        return frame_of(
            {
                "policy": [self.policy] * len(arms),
                "arm": arms,
                "trials": [self.recommended[arm] for arm in arms],
                "wrong": [self._is_wrong(arm) for arm in arms],
                "regret": [math.nan if known is None else known[arm] for arm in arms],
            },
            library,
        )

    def _is_wrong(self, arm: int) -> bool:
        """Whether an arm is not the best, nor one with the same mean."""
        return arm != self.best_arm and (self.regrets is None or self.regrets[arm] != 0)

    def __repr__(self) -> str:
        return f"Results({self.policy}: {self.errors} errors in {self.trials} trials)"


def simulate(
    policy: Policy[Any],
    environment: RewardSource | DrawWorld,
    trials: int = 1000,
    seed: int = 0,
    jobs: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Results:
    """Run `policy` in `environment` many times and count the wrong recommendations.

    Parameters
    ----------
    policy : how arms are chosen; an instance, of your own class perhaps
    environment : where rewards come from; or a function of a random generator, which draws a new
        one for each trial. In its results arm 0 stands for the best arm of each trial, and every
        other number for one trial with a wrong recommendation
    trials : number of independent runs
    seed : the same seed gives the same result, whatever the number of jobs
    jobs : threads; by default one per core. The compiled kernels run in parallel.
    progress : called with the number of trials whenever some are done

    Returns
    -------
    Results : recommendations, errors with exact intervals, regret, plays, time

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
    >>> world = sa.Environment.from_parameters(arms, [0.3, 0.2, 0.0], budget=300)
    >>> sa.simulate(sa.GBAI(), world, trials=1000, seed=1)
    Results(G-BAI: 246 errors in 1000 trials)

    The mean over random worlds:

    >>> def world(rng):
    ...     return sa.Environment.from_parameters(arms, rng.normal(size=3), budget=300)
    >>> sa.simulate(sa.GBAI(), world, trials=100, seed=1)
    Results(G-BAI: 3 errors in 100 trials)
    """
    if not isinstance(policy, Policy):
        raise InvalidInputError.of("policy", policy, "an instance of a policy, such as P1RAGE()")
    trials, seed = whole_number(trials, "trials", least=1), whole_number(seed, "seed")
    source: Any = environment
    if callable(environment) and not hasattr(environment, "play"):
        source = DrawnWorlds(environment, seed)
    else:
        check_environment(source)
    calls = ((size, policy, source, seed, n, size) for n, size in chunks_of(trials))
    chunks = []
    for size, chunk in run_in_parallel(run_chunk, calls, jobs):
        chunks.append(chunk)
        if progress is not None:
            progress(size)
    settings = {
        "policy": policy.to_dict(),
        "world": getattr(source, "fingerprint", None),
        "budget": source.budget,
        "arms": source.arms.size,
        "features": source.arms.dimension,
        "trials": trials,
        "seed": seed,
        "version": __version__,
    }
    return replace(results_of(policy.name, source, chunks), settings=settings)


def check_environment(environment: Any) -> None:
    """Refuse what is no environment."""
    if not hasattr(environment, "play"):
        raise InvalidInputError.of(
            "environment",
            environment,
            "an environment, such as Environment.from_means(arms, means, budget=1000)",
        )


def run_in_parallel(
    function: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    jobs: int | None = None,
    workers: Workers = "threads",
) -> Iterator[tuple[Any, Any]]:
    """Yield (label, result) of every call as it finishes, on joblib's workers.

    A backend that the user chose with `joblib.parallel_config` is used instead of `workers`.

    Parameters
    ----------
    function : called as ``function(*rest)`` for each call ``(label, *rest)``
    jobs : number of workers; by default that of `joblib.parallel_config`, or one per core
    workers : "threads", or "processes" for functions in plain Python
    """
    from joblib import Parallel, delayed, effective_n_jobs

    check_choice(workers, "workers", ("threads", "processes"))
    if jobs is None:
        jobs = -1 if effective_n_jobs(None) == 1 else None
    else:
        whole_number(jobs, "jobs", least=1)
    run = Parallel(n_jobs=jobs, prefer=workers, return_as="generator_unordered")
    yield from run(delayed(_call)(function, *call) for call in calls)


def _call(function: Callable[..., Any], label: Any, *rest: Any) -> tuple[Any, Any]:
    return label, function(*rest)


@dataclass(frozen=True, eq=False)
class DrawnWorlds:
    """Worlds that are drawn anew in each trial, the same for every policy.

    Attributes
    ----------
    draw : makes a world of a random generator; all have the same budget
    seed : trial i has the i-th world of this seed
    """

    draw: DrawWorld
    seed: int
    best_arm: ClassVar[int] = 0

    def world(self, trial: int) -> Any:
        """The world of one trial."""
        seed = np.random.SeedSequence(self.seed, spawn_key=(trial, 1))
        world = self.draw(np.random.default_rng(seed))
        check_environment(world)
        if getattr(world, "regret", None) is None:
            raise InvalidInputError(
                "a world that is drawn anew must have a method regret(arms), by which "
                "recommendations are judged."
            )
        return world

    @cached_property
    def first(self) -> Any:
        """The world of the first trial."""
        return self.world(0)

    @property
    def arms(self) -> ArmSet:
        """Those of the first trial."""
        arms: ArmSet = self.first.arms
        return arms

    @property
    def budget(self) -> int:
        """Rounds of every trial."""
        return int(self.first.budget)

    @property
    def fingerprint(self) -> list[Any]:
        """The fingerprint of these worlds: a hash of those of the first three trials."""
        worlds = [self.first, self.world(1), self.world(2)]
        return [getattr(world, "fingerprint", type(world).__qualname__) for world in worlds]

    def run(self, policy: Policy[Any], rng: np.random.Generator, trials: Iterable[int]) -> Chunk:
        """Run each trial in its own world."""
        wrong, lost, seconds = [], [], 0.0
        for trial in trials:
            world = self.world(trial)
            if world.budget != self.budget:
                raise InvalidInputError(
                    f"trial {trial} has a world with a budget of {world.budget}, the first one of "
                    f"{self.budget}; give all the same budget."
                )
            batch = play(policy, world, 1, rng)
            wrong.append(world.regret(batch.recommendations.arm)[0])
            if batch.plays is not None and world.arms.targets is None:
                lost.append(batch.plays @ world.regret(np.arange(world.arms.size)))
            seconds += batch.seconds
        total = float(sum(lost)) if len(lost) == len(wrong) else None
        return Chunk(np.zeros(0, dtype=np.int64), None, seconds, np.array(wrong), total)


@dataclass(frozen=True, eq=False)
class Chunk:
    """The results of some trials.

    Attributes
    ----------
    recommended : (n,) arms
    plays : (K,) how often each arm was played in all of them; None for very many arms
    seconds : processor time of the policy
    regrets, lost : of worlds drawn anew: (n,) simple regrets, and the sum of cumulative ones
    """

    recommended: NDArray[np.int64]
    plays: NDArray[np.int64] | None
    seconds: float
    regrets: NDArray[np.float64] | None = None
    lost: float | None = None


def chunks_of(trials: int) -> Iterator[tuple[int, int]]:
    """Numbers and sizes of the chunks that trials are cut into, each with a random stream."""
    for chunk in range(-(-trials // CHUNK)):
        yield chunk, min(CHUNK, trials - chunk * CHUNK)


def results_of(
    name: str, environment: RewardSource | DrawnWorlds, chunks: Sequence[Chunk]
) -> Results:
    """Count the recommendations of all chunks; their order does not matter."""
    known, plays, lost = getattr(environment, "regret", None), None, None
    if isinstance(environment, DrawnWorlds):
        every = np.concatenate([chunk.regrets for chunk in chunks if chunk.regrets is not None])
        wrong = np.sort(every[every > 0]).tolist()
        recommended = {0: len(every) - len(wrong)} | dict.fromkeys(range(1, len(wrong) + 1), 1)
        regrets = {0: 0.0} | dict(enumerate(wrong, 1))
        if all(chunk.lost is not None for chunk in chunks):
            lost = math.fsum(chunk.lost or 0.0 for chunk in chunks) / len(every)
    else:
        picks = np.concatenate([chunk.recommended for chunk in chunks])
        found, counts = np.unique(picks, return_counts=True)
        recommended = dict(zip(found.tolist(), counts.tolist(), strict=True))
        regrets = None
        if known is not None:
            regrets = dict(zip(found.tolist(), known(found).tolist(), strict=True))
        if not environment.arms.large:
            played = [chunk.plays for chunk in chunks if chunk.plays is not None]
            plays = np.sum(played, axis=0) / len(picks)
            if known is not None and environment.arms.targets is None:
                lost = float(plays @ known(np.arange(environment.arms.size)))
    return Results(
        name,
        recommended,
        regrets,
        int(environment.best_arm),
        math.fsum(chunk.seconds for chunk in chunks),
        budget=environment.budget,
        arms=environment.arms.size,
        features=environment.arms.dimension,
        gap=getattr(environment, "gap", None),
        noise=noise_text(getattr(environment, "noise", None))
        or getattr(environment, "scatter", ""),
        cumulative_regret=lost,
        plays=plays,
    )


def run_chunk(
    policy: Policy[Any], environment: RewardSource | DrawnWorlds, seed: int, chunk: int, trials: int
) -> Chunk:
    """Run the trials of one chunk: a pure function, except for the time."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(chunk,)))
    if isinstance(environment, DrawnWorlds):
        return environment.run(policy, rng, range(chunk * CHUNK, chunk * CHUNK + trials))
    one_at_a_time = policy.scales and environment.arms.large
    sizes = [1] * trials if one_at_a_time else [trials]
    batches = [play(policy, environment, size, rng) for size in sizes]
    return Chunk(
        np.concatenate([batch.recommendations.arm for batch in batches]),
        batches[0].plays,
        sum(batch.seconds for batch in batches),
    )


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of n trials that was played to its end.

    Attributes
    ----------
    recommendations : the recommendations of the policy
    played : the segments with their statistics, if they were recorded
    segments : how many there were
    plays : (K,) how often each arm was played in all trials; None for very many arms
    seconds : processor time of the policy, without compiling
    """

    recommendations: Recommendations
    played: list[tuple[Segment, SegmentStats]]
    segments: int
    plays: NDArray[np.int64] | None
    seconds: float


def play(
    policy: Policy[Any],
    environment: RewardSource,
    trials: int,
    rng: np.random.Generator,
    lag: int = 0,
    record: bool = False,
) -> Batch:
    """Play a batch of trials, segment by segment.

    Parameters
    ----------
    lag : rounds that are played before a reward arrives; meanwhile the allocation stays. A policy
        that must wait for rewards waits, which takes no rounds
    record : whether to keep segments and statistics with squares, those of unbiased policies cut
        into parts, so that intervals can be computed
    """
    clock, arms, budget = Stopwatch(), environment.arms, environment.budget
    plays = None if arms.large else np.zeros(arms.size, dtype=np.int64)
    slopes: Slopes | None = None
    seed = int(rng.integers(2**63))
    at, segments = np.zeros(trials, dtype=np.int64), 0
    late: deque[tuple[int, Segment, SegmentStats]] = deque()  # by the round of their arrival
    played: list[tuple[Segment, SegmentStats]] = []
    with clock:
        state = policy.start(arms, budget, trials, seed=seed)
        segment = policy.next_segment(state)
    while segment is not None:
        segment.check(arms.size)
        cut = record and policy.unbiased
        total = SegmentStats.empty(trials, segment.columns)
        for part in segment.parts(budget, PARTS) if cut else (segment,):
            if hasattr(environment, "play_with_covariates"):
                stats, slopes = _play_adjusted(environment, part, at, rng, slopes)
            else:
                stats = environment.play(part, at, rng, squares=record or policy.needs_squares)
                if environment.direction == "minimize":
                    stats = stats.negate()
            if record:
                played.append((part, stats))
            at, total = at + part.rounds, total + stats if cut else stats
        if plays is not None:
            plays[slice(None) if segment.arms is None else segment.arms] += total.counts.sum(axis=0)
        late.append((int(at.max()) + lag, segment, total))
        segments += 1
        learned = False
        with clock:
            while late and (policy.waits or late[0][0] <= at.max() or at.min() >= budget):
                _, old, seen = late.popleft()
                state, learned = policy.observe(state, old, seen), True
            if learned:
                segment = policy.next_segment(state)
            else:
                segment = _extend(segment, int((late[0][0] - at).max()))
        if lag and segment is not None:
            segment = replace(segment, rounds=np.minimum(segment.rounds, budget - at))
            segment = segment if segment.rounds.any() else None
    with clock:
        recommendations = policy.recommend(state)
    return Batch(recommendations, played, segments, plays, clock.seconds)


def _extend(segment: Segment, rounds: int) -> Segment:
    """The same allocation for so many rounds, rounded up to whole blocks."""
    segment = segment.in_blocks()
    block = segment.block if segment.order == "blocks" else 1
    length = max(1, -(-rounds // block)) * block
    return replace(segment, rounds=np.full(segment.trials, length))


class Stopwatch:
    """Processor time of this thread inside `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.thread_time() - self._began


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
    for part in segment.parts(environment.budget):
        stats, moments = environment.play_with_covariates(part, start, rng)
        start = start + part.rounds
        if environment.direction == "minimize":
            stats, moments = stats.negate(), moments.negate()
        if slopes is None:
            slopes = Slopes.none(segment.trials, moments.covariates)
        seen = adjust_stats(stats, moments, slopes.fit(moments))
        slopes = slopes.after(stats, moments)
        total = seen if total is None else total + seen
    assert total is not None
    return total, slopes
