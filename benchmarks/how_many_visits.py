"""How many visits does a test need, for a right pick and for a clear answer?

Visits for 5 % wrong picks, and for 80 % clear answers at 95 % confidence, in six settings when
nothing moves and under a weekly rhythm, a trend and a shock. All numbers are ratios to the visits
of the balanced, non-adaptive design with regression (G-BAI in blocks, without a covariate) in the
same run: Steady alone, with a covariate of correlation 0.7 to the noise, with five looks at which a
test may stop (mean visits), with both; the balanced design with the same covariate, Top-Two
Thompson, and an oracle that knows all means and plays the best fixed design for them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import scipy
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.special import ndtr

import steadyarm as sa
from steadyarm.compiled import compiling
from steadyarm.covariates import Slopes, adjusted
from steadyarm.designs.exact_design import Allocation, exact_allocation
from steadyarm.designs.optimal import transductive
from steadyarm.inference import Looks
from steadyarm.planning import Point
from steadyarm.planning.candidates import Candidate
from steadyarm.planning.runs import decided, run
from steadyarm.planning.search import CHECKING, Search, tidy
from steadyarm.planning.worlds import CALM, Pieces, Rhythm
from steadyarm.policies.steady import SteadyState
from steadyarm.segments import Segment, SegmentStats
from steadyarm.simulation.simulate import CHUNK

Floats = NDArray[np.float64]

RHO, LOOKS, ERROR, CLEAR = 0.7, 5, 0.05, 0.8
DAYS = 28  # of a test under a weekly rhythm


def plain(K: int, gap: float) -> tuple[sa.ArmSet, Floats]:
    """The best, one that is `gap` behind, others up to two and a half times as far.

    In a random order: where rounds do not divide, the first arms get more of them.
    """
    behind = np.random.default_rng(K).permutation(np.minimum(np.sqrt(np.arange(K)), 2.5))
    return sa.ArmSet.one_hot([str(k) for k in range(K)]), -gap * behind


def layouts(gap: float) -> tuple[sa.ArmSet, Floats]:
    """Four factors of two levels, whose effects are from `gap` to twice of it."""
    arms = sa.ArmSet.factorial({name: ["old", "new"] for name in "abcd"})
    levels = np.array([[f"{name}=new" in arm for name in "abcd"] for arm in arms.names])
    return arms, levels @ (gap * np.array([1.0, 1.3, 1.6, 2.0]))


def random_arms(gap: float) -> tuple[sa.ArmSet, Floats]:
    """Thirty Gaussian arms in six dimensions, of which the best leads by `gap`."""
    rng = np.random.default_rng(3)
    X, theta = rng.normal(size=(30, 6)), rng.normal(size=6)
    values = np.sort(X @ theta)
    return sa.ArmSet.from_features(X), X @ theta * gap / (values[-1] - values[-2])


SETTINGS: dict[str, Callable[[], tuple[sa.ArmSet, Floats]]] = {
    "3 plain": lambda: plain(3, 0.12),
    "5 plain": lambda: plain(5, 0.12),
    "10 plain": lambda: plain(10, 0.12),
    "30 plain": lambda: plain(30, 0.15),
    "16 layouts": lambda: layouts(0.12),
    "30 in 6 dim": lambda: random_arms(0.12),
}


def calm(budget: int) -> Pieces:
    """Nothing moves."""
    return CALM.pieces(budget, 1)


def weekly(budget: int) -> Pieces:
    """Four weeks; at weekends the order of the arms turns around, and all rewards are higher."""
    return Rhythm("weekend", 3.0, lift=0.3).pieces(budget, DAYS)


def trend(budget: int) -> Pieces:
    """Leads grow from minus a half to two and a half times their average, rewards fall."""
    return Rhythm("trend", 3.0, lift=0.3).pieces(budget, 1)


def shock(budget: int) -> Pieces:
    """From a tenth to a fifth of the test the order of the arms is turned around, four times."""
    ends = np.array([budget // 10, budget // 5, budget])
    high = np.array([0.0, 1.0, 0.0]) - np.diff(ends, prepend=0)[1] / budget
    return Pieces(ends, 1.0 - 6.0 * high, 0.3 * high)


WORLDS = {"nothing moves": calm, "weekly": weekly, "trend": trend, "shock": shock}


@dataclass(frozen=True)
class Oracle(sa.Steady):
    """Play the fixed design that picks the best arm soonest, which takes all means to know.

    Parameters
    ----------
    shares : of the arms
    """

    shares: tuple[float, ...] = ()

    def allocation(self, state: SteadyState) -> Allocation:
        """The same for every trial, in whole blocks."""
        chosen = Allocation(np.tile(self.shares, (state.trials, 1)))
        block = self.block_length(state.arms, state.budget)
        return exact_allocation(state.arms.coordinates, chosen, block)

    @classmethod
    def knowing(cls, arms: sa.ArmSet, means: Floats) -> Oracle:
        """The design with the least sum of the chances that each other arm looks better.

        At as many visits as make that sum 5 %; it starts from the design of least ρ*, which is the
        best one for very small errors.
        """
        best, others = int(means.argmax()), np.arange(arms.size) != means.argmax()
        X, gaps = arms.coordinates, (means.max() - means)[others]
        D = X[best] - X[others]
        design = transductive(arms, (arms.features[best] - arms.features[others]) / gaps[:, None])

        def ratios(logs: Floats) -> Floats:
            shares = np.exp(logs) / np.exp(logs).sum() * 0.98 + 0.02 / arms.size
            A = (X.T * shares) @ X
            return np.asarray(gaps / np.sqrt((D * np.linalg.solve(A, D.T).T).sum(axis=1)))

        def chances(logs: Floats, T: float) -> float:
            return float(np.log(max(ndtr(-np.sqrt(T) * ratios(logs)).sum(), 1e-300)))

        logs, visits = np.log(design.weights + 0.2 / arms.size), 1000.0
        for _ in range(4):
            found: Any = scipy.optimize.minimize(chances, logs, (visits,), method="L-BFGS-B")
            logs = np.asarray(found.x)
            reached = [chances(logs, T) <= np.log(ERROR) for T in np.geomspace(50, 10**6, 200)]
            visits = float(np.geomspace(50, 10**6, 200)[int(np.argmax(reached))])
        shares = np.exp(logs) / np.exp(logs).sum() * 0.98 + 0.02 / arms.size
        return cls(block=8 * arms.size, shares=tuple((shares / shares.sum()).tolist()))


class Adjusting:
    """A world whose rewards come adjusted for its covariate, with slopes from what was played."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.slopes: Slopes | None = None
        self.arms, self.budget, self.direction = world.arms, world.budget, world.direction

    def play(
        self, segment: Segment, start: Any, rng: np.random.Generator, squares: bool = False
    ) -> SegmentStats:
        """Play each trial's segment; the sums are those of adjusted rewards."""
        stats, moments = self.world.play_with_covariates(segment, start, rng)
        slopes = self.slopes or Slopes.none(segment.trials, moments.covariates)
        self.slopes = slopes.after(stats, moments)
        return adjusted(stats, moments, slopes.fitted(moments))


@dataclass(frozen=True)
class Method:
    """A column of the table.

    Attributes
    ----------
    policy : made for the arms and their means
    correlation : of a covariate with the noise; None without one
    stops : whether a test may stop at its looks
    slow : fewer tests are simulated
    """

    policy: Callable[[sa.ArmSet, Floats], sa.Policy[Any]]
    correlation: float | None = None
    stops: bool = False
    slow: bool = False


def balanced(arms: sa.ArmSet, means: Floats) -> sa.Policy[Any]:
    """The non-adaptive design."""
    return sa.GBAI(order="blocks")


def steady(arms: sa.ArmSet, means: Floats) -> sa.Policy[Any]:
    """As it is by default."""
    return sa.Steady()


METHODS = {
    "balanced": Method(balanced),
    "Steady": Method(steady),
    "+covariate": Method(steady, RHO),
    "+stopping": Method(steady, None, stops=True),
    "+both": Method(steady, RHO, stops=True),
    "bal.+cov.": Method(balanced, RHO),
    "Top-Two": Method(lambda arms, means: sa.TopTwoThompson(), slow=True),
    "oracle": Method(Oracle.knowing),
}
IN_ALL_WORLDS = ("balanced", "Steady", "+covariate", "+stopping", "+both")


@dataclass(frozen=True)
class Cell:
    """One search: a method in a setting and a world, for right picks or for clear answers."""

    setting: str
    world: str
    method: str
    clear: bool
    trials: int

    def failures(self, budget: int, trials: int, stream: int) -> tuple[int, float]:
        """How many of the simulated tests failed, and the mean number of visits."""
        arms, means, policy = prepared(self.setting, self.method)
        method, failed, visits = METHODS[self.method], 0, 0.0
        pieces = WORLDS[self.world](budget)
        table = pieces.swing[:, None] * means
        if not self.setting.endswith("dim"):  # these features cannot say a common level
            table = table + pieces.level[:, None]
        world: Any = sa.Environment.from_means(arms, table[0], sa.GaussianNoise(1.0), budget)
        if len(table) > 1:
            rows = np.repeat(table, np.diff(pieces.ends, prepend=0), axis=0)
            world = sa.Environment.from_means(arms, rows, sa.GaussianNoise(1.0))
        if method.correlation is not None:
            world = world.with_covariate(method.correlation)
        looks = Looks.equally(LOOKS) if method.stops else None
        best = int(means.argmax())
        for chunk, first in enumerate(range(0, trials, CHUNK)):
            n = min(CHUNK, trials - first)
            rng = np.random.default_rng([stream, budget, chunk])
            played: Any = world if method.correlation is None else Adjusting(world)
            with compiling():
                done = run(policy, played, n, rng, squares=self.clear or played is not world)
                if not self.clear:
                    failed += int((done.found.arm != best).sum())
                    continue
                found = decided(policy, arms, budget, done, None, looks)
            failed += int((found.decided != best).sum())
            visits += float(found.rounds.sum())
        return failed, visits / trials

    def visits(self) -> tuple[float, float]:
        """The visits for the wanted share of successes, and their standard error.

        Of tests that may stop the mean number of visits, at that budget.
        """
        arms, means, policy = prepared(self.setting, self.method)
        mean: dict[int, float] = {}

        def count(budget: int, trials: int, stream: int) -> Point:
            failed, visits = self.failures(budget, trials, stream)
            if stream == CHECKING:
                mean[budget] = visits
            return Point(budget, failed, trials)

        wanted = 1 - CLEAR if self.clear else ERROR
        question = sa.Question(
            arms=arms,
            effects=asked(self.setting).effects,
            noise=sa.GaussianNoise(1.0),
            level=0.0,
            traffic_per_day=1000,
            most_days=200,
            candidates=(Candidate(self.method, policy),),
        )
        search = Search(
            question, question.candidates[0], CALM, wanted, count, self.trials, lambda: None
        )
        gap = float(np.diff(np.sort(means))[-1])
        guess = tidy(2 * arms.rank * ((2.8 if self.clear else 1.6) / gap) ** 2)
        need = search.run(min(guess, 20_000))
        if need.budget is None or need.low is None or need.high is None:
            return float("nan"), float("nan")
        error = (need.high - need.low) / (2 * 1.96)
        if METHODS[self.method].stops:
            share = mean[need.check.budget] / need.budget
            return share * need.budget, share * error
        return float(need.budget), error


@cache
def prepared(setting: str, method: str) -> tuple[sa.ArmSet, Floats, sa.Policy[Any]]:
    """Arms, means and policy."""
    arms, means = SETTINGS[setting]()
    return arms, means, METHODS[method].policy(arms, means)


@cache
def asked(setting: str) -> sa.Question:
    """What the search needs to know of a setting."""
    arms, means = SETTINGS[setting]()
    effects = {"means": (means - np.sort(means)[-2]).tolist()}
    settings = {"traffic_per_day": 1000, "effects": effects, "rewards": {"sd": 1.0}}
    return sa.Question.from_settings(settings | {"arms": arms.to_dict(), "policies": ["g-bai"]})


def useless(trials: int) -> None:
    """By how much a covariate without any correlation widens intervals, on the same draws.

    The squared width is the number of visits that the same precision takes.
    """
    print("\nA useless covariate, more visits for the same precision (same draws), in %:")
    for setting in SETTINGS:
        arms, means, policy = prepared(setting, "balanced")
        budget = 2000
        table = sa.Environment.from_means(arms, means, sa.GaussianNoise(1.0), budget)
        world = table.with_covariate(0.0)
        raw, kept = [], []
        for chunk in range(max(1, trials // CHUNK)):
            rng = np.random.default_rng([7, chunk])
            state = policy.start(arms, budget, CHUNK, seed=chunk)
            segment = policy.next_segment(state)
            assert segment is not None
            parts, slopes = 40, None
            sums = np.zeros((2, CHUNK, arms.rank))
            for part in range(parts):
                rounds = np.full(CHUNK, budget // parts)
                piece = replace(segment, rounds=rounds)
                stats, moments = world.play_with_covariates(piece, part * rounds, rng)
                slopes = slopes or Slopes.none(CHUNK, moments.covariates)
                after = adjusted(stats, moments, slopes.fitted(moments))
                slopes = slopes.after(stats, moments)
                for i, one in enumerate((stats, after)):
                    sums[i] += sa.estimators.ips(arms.coordinates, piece, one)
            values = sums / budget @ arms.coordinates.T - means
            raw.append(values[0])
            kept.append(values[1])
        ratio = np.concatenate(kept).var(axis=0).mean() / np.concatenate(raw).var(axis=0).mean()
        print(f"{setting:<13}{100 * (ratio - 1):6.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=600, help="behind each number of visits")
    parser.add_argument("--quick", action="store_true", help="100 trials, when nothing moves")
    parser.add_argument("--jobs", type=int, default=None, help="threads (default: one per core)")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="some of the settings")
    args = parser.parse_args()
    trials: int = 100 if args.quick else args.trials
    settings = [name for name in SETTINGS if name in args.settings.split(",")]
    worlds = ["nothing moves"] if args.quick else list(WORLDS)
    began = time.perf_counter()
    for world in worlds:
        methods = [name for name in METHODS if world == "nothing moves" or name in IN_ALL_WORLDS]
        cells = [
            Cell(setting, world, name, clear, trials // 4 if METHODS[name].slow else trials)
            for setting in settings
            for name in methods
            for clear in (False, True)
            if clear or not METHODS[name].stops
        ]
        found = Parallel(args.jobs, prefer="threads")(delayed(cell.visits)() for cell in cells)
        results = {(c.setting, c.method, c.clear): one for c, one in zip(cells, found, strict=True)}
        for clear in (False, True):
            what = f"{CLEAR:.0%} clear answers" if clear else f"{ERROR:.0%} wrong picks"
            print(f"\nVisits for {what}, {world}; ratios to the balanced design (standard error)")
            show(settings, [m for m in methods if clear or not METHODS[m].stops], results, clear)
    if not args.quick:
        useless(4096)
    print(f"\n{trials} simulated tests behind each number; {time.perf_counter() - began:.0f} s")


def show(
    settings: list[str],
    methods: list[str],
    results: dict[tuple[str, str, bool], tuple[float, float]],
    clear: bool,
) -> None:
    """One line per setting; the last has geometric means."""
    print(f"{'':<13}{'visits':>8}" + "".join(f"{name:>13}" for name in methods[1:]))
    logs = []
    for setting in settings:
        base, off = results[setting, "balanced", clear]
        line, mine = f"{setting:<13}{base:8,.0f}", []
        for name in methods[1:]:
            visits, error = results[setting, name, clear]
            ratio = visits / base
            mine.append(np.log(ratio))
            line += f"{ratio:7.2f} ({ratio * np.hypot(error / visits, off / base):.2f})"
        logs.append(mine)
        print(line)
    means = np.exp(np.mean(logs, axis=0))
    print(f"{'mean':<21}" + "".join(f"{mean:7.2f}      " for mean in means), flush=True)


if __name__ == "__main__":
    main()
