"""Many independent runs of a policy in an environment, and how often it was wrong."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm import __version__
from steadyarm.compiled import compiling, seconds_compiling
from steadyarm.covariates import Slopes, adjusted
from steadyarm.engines import LocalEngine
from steadyarm.environments import AdaptiveAdversary, RewardSource
from steadyarm.errors import InvalidInputError
from steadyarm.files import FrameLibrary, frame_of
from steadyarm.policies import Policy
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import check_fraction, not_negative, whole_number

AnyWorld = RewardSource | AdaptiveAdversary

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
    best_arm : the arm that should have been; (trials,) where the world reacts to each trial
    regrets : (trials,) by how much the time-averaged mean of the recommended arm falls short of the
        best one's (simple regret); nan if the world does not know its means
    plays : (K,) how often each arm was played in a trial, on average; None for very many arms
    seconds : processor time of the policy in a trial, without compiling and without the world
    settings : what to run again for the same results: policy, world, trials, seed, version

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> world = sa.Environment.from_means(arms, [0.5, 0.3], budget=100)
    >>> found = sa.simulate(sa.GBAI(), world, trials=1000, seed=1)
    >>> found.errors, found.error_rate
    (189, 0.189)
    >>> low, high = found.interval(0.95)
    >>> print(f"{low:.3f} to {high:.3f}, simple regret {found.regret:.3f}")
    0.165 to 0.215, simple regret 0.038
    """

    policy: str
    recommended: NDArray[np.int64]
    best_arm: int | NDArray[np.int64]
    regrets: NDArray[np.float64] | None = None
    plays: NDArray[np.float64] | None = None
    seconds: float = math.nan
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def trials(self) -> int:
        """Number of independent runs."""
        return len(self.recommended)

    @property
    def errors(self) -> int:
        """In how many of them an arm was recommended that is not as good as the best."""
        return int(self.wrong.sum())

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """(trials,) where the recommended arm is not the best, nor one with the same mean."""
        return _wrong(self.recommended, self.best_arm, self.regrets)

    @property
    def error_rate(self) -> float:
        """Share of wrong recommendations."""
        return self.errors / self.trials

    @property
    def regret(self) -> float:
        """Mean simple regret of the recommendation, under the time average."""
        return math.nan if self.regrets is None else float(self.regrets.mean())

    @property
    def regret_error(self) -> float:
        """Standard error of `regret`."""
        if self.regrets is None or self.trials < 2:
            return math.nan
        return float(self.regrets.std(ddof=1) / math.sqrt(self.trials))

    def good_rate(self, epsilon: float) -> float:
        """Share of trials in which the recommended arm is at most `epsilon` worse than the best.

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B", "C"])
        >>> world = sa.Environment.from_means(arms, [0.5, 0.45, 0.0], budget=300)
        >>> found = sa.simulate(sa.Steady(), world, trials=500, seed=1)
        >>> 1 - found.error_rate < found.good_rate(0.1) <= 1
        True
        """
        if self.regrets is None:
            raise InvalidInputError(
                "the world does not know its means, so that nothing is known of regret; give it a "
                "method regret(arms)."
            )
        return float((self.regrets <= not_negative(epsilon, "epsilon") * (1 + 1e-12)).mean())

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
        """A data frame with a row for each trial: recommended arm, whether it is wrong, regret.

        library : "pandas" or "polars"
        """
        known = self.regrets is not None
        return frame_of(
            {
                "trial": np.arange(self.trials),
                "policy": np.full(self.trials, self.policy),
                "recommended": self.recommended,
                "wrong": self.wrong,
                "regret": self.regrets if known else np.full(self.trials, np.nan),
            },
            library,
        )

    def __repr__(self) -> str:
        return f"Results({self.policy}: {self.errors} errors in {self.trials} trials)"


def _wrong(
    recommended: NDArray[np.int64],
    best: int | NDArray[np.int64],
    regrets: NDArray[np.float64] | None,
) -> NDArray[np.bool_]:
    """Which recommendations are errors: not those of an arm whose mean is the best one's, too."""
    another = np.asarray(recommended != best)
    return another if regrets is None else another & ~(regrets == 0)


# simulate: run a policy many times, a batch of trials at once, segment by segment.


CHUNK = 256  # trials with one random stream; part of what a seed means, so it never changes


def simulate(
    policy: Policy[Any],
    environment: AnyWorld,
    trials: int = 1000,
    seed: int = 0,
    jobs: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Results:
    """Run `policy` in `environment` many times and count the wrong recommendations.

    Parameters
    ----------
    policy : how arms are chosen; an instance, of your own class perhaps
    environment : where rewards come from
    trials : number of independent runs
    seed : the same seed gives the same result, whatever the number of jobs
    jobs : threads; by default one per core. The compiled kernels run in parallel.
    progress : called with the number of trials whenever some are done, from any of the threads

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
    """
    if not isinstance(policy, Policy):
        raise InvalidInputError.of("policy", policy, "an instance of a policy, such as P1RAGE()")
    check_world(environment)
    trials, seed = whole_number(trials, "trials", least=1), whole_number(seed, "seed")

    def run(chunk: int) -> Outcome:
        found = run_chunk(policy, environment, seed, chunk, chunk_size(trials, chunk))
        if progress is not None:
            progress(len(found.recommended))
        return found

    chunks = [(chunk,) for chunk in range(chunk_count(trials))]
    found = Outcome.joined(LocalEngine(jobs).map(run, chunks))
    reacts = hasattr(environment, "begin")
    return Results(
        policy.name,
        found.recommended,
        found.best if reacts else int(found.best[0]),
        None if np.isnan(found.regrets).all() else found.regrets,
        None if found.plays is None else found.plays / trials,
        found.seconds / trials,
        {
            "policy": policy.to_dict(),
            "world": getattr(environment, "fingerprint", None),
            "budget": environment.budget,
            "arms": environment.arms.size,
            "features": environment.arms.dimension,
            "trials": trials,
            "seed": seed,
            "version": __version__,
        },
    )


def check_world(environment: Any) -> None:
    """Refuse what is no world."""
    if not hasattr(environment, "play") and not hasattr(environment, "begin"):
        raise InvalidInputError.of(
            "environment",
            environment,
            "a world, such as Environment.from_means(arms, means, budget=1000)",
        )


@dataclass(frozen=True, eq=False)
class Outcome:
    """What some trials gave.

    Attributes
    ----------
    recommended, best : (n,) the recommended arm, and the one that should have been
    regrets : (n,) of the recommended arm; nan if the world does not know
    plays : (K,) how often each arm was played in all of them; None for very many arms
    seconds : processor time of the policy, without compiling
    """

    recommended: NDArray[np.int64]
    best: NDArray[np.int64]
    regrets: NDArray[np.float64]
    plays: NDArray[np.int64] | None
    seconds: float

    @property
    def errors(self) -> int:
        """How many recommendations were wrong."""
        return int(_wrong(self.recommended, self.best, self.regrets).sum())

    @classmethod
    def joined(cls, outcomes: Sequence[Outcome]) -> Outcome:
        """All of them as one, in their order."""
        columns = [(one.recommended, one.best, one.regrets) for one in outcomes]
        recommended, best, regrets = map(np.concatenate, zip(*columns, strict=True))
        plays = None
        for one in outcomes:
            if one.plays is not None:
                plays = one.plays if plays is None else plays + one.plays
        return cls(recommended, best, regrets, plays, sum(one.seconds for one in outcomes))


def chunk_count(trials: int) -> int:
    """Into how many random streams the trials are cut."""
    return -(-trials // CHUNK)


def chunk_size(trials: int, chunk: int) -> int:
    """How many trials one of them makes."""
    return min(CHUNK, trials - chunk * CHUNK)


def run_chunk(
    policy: Policy[Any], environment: AnyWorld, seed: int, chunk: int, trials: int
) -> Outcome:
    """What the trials of one chunk give: a pure function, wherever it runs, but for the time."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(chunk,)))
    one_at_a_time = policy.scales and environment.arms.large
    sizes = [1] * trials if one_at_a_time else [trials]
    with compiling():
        return Outcome.joined([_outcome(policy, environment, n, rng) for n in sizes])


def _outcome(
    policy: Policy[Any], environment: AnyWorld, trials: int, rng: np.random.Generator
) -> Outcome:
    clock, arms = Stopwatch(), environment.arms
    world: Any = environment.begin(trials) if hasattr(environment, "begin") else environment
    covariates = hasattr(world, "play_with_covariates")
    plays = None if arms.large else np.zeros(arms.size, dtype=np.int64)
    slopes: Slopes | None = None
    seed = int(rng.integers(2**63))
    with clock:
        state = policy.start(arms, environment.budget, trials, seed=seed)
        segment = policy.next_segment(state)
    while segment is not None:
        segment.checked(arms.size)
        if covariates:
            stats, slopes = _play_adjusted(world, segment, state.played, rng, slopes)
        else:
            stats = world.play(segment, state.played, rng)
            if environment.direction == "minimize":
                stats = stats.negated()
        if plays is not None:
            plays[slice(None) if segment.arms is None else segment.arms] += stats.counts.sum(axis=0)
        with clock:
            state = policy.observe(state, segment, stats)
            segment = policy.next_segment(state)
    with clock:
        recommended = policy.recommend(state).arm
    best = np.broadcast_to(np.asarray(world.best_arm), trials)
    known = hasattr(world, "regret")
    regrets = world.regret(recommended) if known else np.full(trials, np.nan)
    return Outcome(recommended, best, regrets, plays, clock.seconds)


class Stopwatch:
    """Processor time of this thread inside `with` blocks, without compiling."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._began = time.thread_time() - seconds_compiling()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.thread_time() - seconds_compiling() - self._began


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
            stats, moments = stats.negated(), moments.negated()
        if slopes is None:
            slopes = Slopes.none(segment.trials, moments.covariates)
        seen = adjusted(stats, moments, slopes.fitted(moments))
        slopes = slopes.after(stats, moments)
        total = seen if total is None else total + seen
    assert total is not None
    return total, slopes
