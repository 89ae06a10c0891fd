"""Simulated tests with one budget, and the smallest budget that is enough.

Shares of failures fall with the budget T about like Φ(a - b √T). The search brackets the wanted
share with short measurements, measures a few budgets between, fits the curve to them, and checks
the budget that it names in fresh tests.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeWarning, curve_fit
from scipy.special import ndtr, ndtri

from steadyarm.arms import ArmSet
from steadyarm.inference import Evidence, Looks, stopping_of
from steadyarm.inference.intervals import SingleAnalysis, pairwise_value
from steadyarm.inference.lift import simultaneous_value
from steadyarm.inference.sequences import NO_ARM, decided_for
from steadyarm.live.results import ON_THE_WAY
from steadyarm.live.verdict import arms_judged
from steadyarm.planning.answer import Answers, Need, Point
from steadyarm.planning.candidates import Candidate
from steadyarm.planning.question import Question
from steadyarm.planning.worlds import CALM, PlannedWorld, Rhythm
from steadyarm.policies import Policy
from steadyarm.policies.fixed import ShuffledPlan
from steadyarm.segments import Segment, SegmentStats
from steadyarm.simulation.simulate import CHUNK, Batch, play

LEVEL = 0.95  # of verdicts, unless somebody asks for another
TABLES = 4_000_000  # numbers in the tables of scores that are held at a time
BETWEEN = 4  # budgets that are measured between those that bracket the wanted share
REWEIGHTED = 4  # fits
CHECKS = 3  # budgets that are checked before the last one is taken as it is
SEARCHING, CHECKING = range(2)  # random streams that share nothing
Integers = NDArray[np.int64]


def measure(
    question: Question,
    candidate: Candidate,
    rhythm: Rhythm,
    budget: int,
    trials: int,
    seed: int,
    stream: int = SEARCHING,
) -> Point:
    """Simulate tests with one budget and count the wrong picks: a pure function."""
    errors = 0
    for world, done in _batches(question, candidate, rhythm, budget, trials, seed, stream, False):
        errors += int((world.regret(done.recommendations.arm) > 0).sum())
    return Point(budget, errors, trials)


def measure_answers(
    question: Question,
    candidate: Candidate,
    rhythm: Rhythm,
    budget: int,
    trials: int,
    seed: int,
    stream: int = SEARCHING,
) -> Answers:
    """Simulate tests with one budget and count those with a clear answer: a pure function.

    An answer is clear if the test decides, and for the best variant. Wrong picks are those at the
    end of the budget. Of tests that may stop it also counts the visits.
    """
    control = None if question.control is None else question.arms.names.index(question.control)
    policy, arms = candidate.policy, candidate.arms(question.arms)
    looks = None
    if question.stop is not None and policy.unbiased:
        looks = question.planned_looks(budget, rhythm)
    lag, errors, clear, visits = question.lag(budget, rhythm), 0, 0, 0
    for world, done in _batches(question, candidate, rhythm, budget, trials, seed, stream, True):
        variant, rounds = decide(policy, arms, budget, done, control, looks)
        errors += int((world.regret(done.recommendations.arm) > 0).sum())
        right = world.regret(np.maximum(variant, 0)) == 0
        clear += int(((variant != NO_ARM) & right).sum())
        visits += int(np.minimum(rounds + lag, budget).sum())
    return Answers(budget, clear, errors, trials, None if looks is None else visits / trials)


def _batches(
    question: Question,
    candidate: Candidate,
    rhythm: Rhythm,
    budget: int,
    trials: int,
    seed: int,
    stream: int,
    record: bool,
) -> Iterator[tuple[PlannedWorld, Batch]]:
    """Batches of simulated tests, the same number in each world of the question."""
    lag, arms = question.lag(budget, rhythm), candidate.arms(question.arms)
    worlds = len(question.shapes)
    for leader in range(worlds):
        left = trials * (leader + 1) // worlds - trials * leader // worlds
        world = replace(question.environment(budget, rhythm, leader), arms=arms)
        key = np.random.SeedSequence(seed, spawn_key=(stream, budget, leader))
        rng = np.random.default_rng(key)
        while left > 0:
            size = min(CHUNK, left)
            left -= size
            yield world, play(candidate.policy, world, size, rng, lag, record)


def decide(
    policy: Policy[Any],
    arms: ArmSet,
    budget: int,
    done: Batch,
    control: int | None,
    looks: Looks | None = None,
) -> tuple[Integers, Integers]:
    """(n,) what the verdicts of live tests would decide, -1 if nothing, and after which rounds.

    Without a control a test decides for a declared winner, that is, if all others are ruled out;
    with one, for the recommended arm if it is shown to beat the control, and for the control if
    every other arm is shown not to be better. Limits hold with probability 0.95, of whose error a
    live test spends a fifth before its end, or with looks as these spend it.
    """
    picked = done.recommendations.arm
    variant, rounds = np.empty(len(picked), dtype=np.int64), np.full(len(picked), budget)
    if not policy.unbiased and not isinstance(policy, ShuffledPlan):
        return _by_own_errors(done, control), rounds
    level = 1 - (1 - ON_THE_WAY) * (1 - LEVEL) if policy.unbiased else LEVEL
    for rows, evidence in evidence_of(arms_judged(policy, arms), done.played):
        if looks is None:
            variant[rows] = _at_end(evidence, level, picked[rows], control)
        else:
            stopped = stopping_of(evidence, budget, looks, LEVEL, control)
            variant[rows], rounds[rows] = stopped.variant, stopped.rounds
    return variant, rounds


def evidence_of(
    arms: ArmSet, played: list[tuple[Segment, SegmentStats]]
) -> Iterator[tuple[slice, Evidence]]:
    """The evidence of a batch, so many tests at a time as memory allows."""
    trials = len(played[0][0].rounds)
    size = max(1, TABLES // (len(played) * arms.rank**2))
    for first in range(0, trials, size):
        rows = slice(first, first + size)
        pieces = ((_some(segment, rows), _stats(stats, rows)) for segment, stats in played)
        yield rows, Evidence.from_segments(arms, pieces)


def _some(segment: Segment, rows: slice) -> Segment:
    reference = None if segment.reference is None else segment.reference[rows]
    weights, rounds = segment.weights[rows], segment.rounds[rows]
    return replace(segment, weights=weights, rounds=rounds, reference=reference)


def _stats(stats: SegmentStats, rows: slice) -> SegmentStats:
    squares = None if stats.squares is None else stats.squares[rows]
    return SegmentStats(stats.counts[rows], stats.sums[rows], squares)


def _at_end(evidence: Evidence, level: float, picked: Integers, control: int | None) -> Integers:
    """(n,) the arm that each test decides for, by a single analysis at its end."""
    analysis, rows, alpha = SingleAnalysis(evidence), np.arange(len(picked)), 1 - level
    z = pairwise_value(analysis.freedom, alpha)[:, None]
    low, _ = analysis.gaps_from(picked).limits(z)
    low[rows, picked] = np.inf
    winner = np.asarray((low > 0).all(axis=1))
    if control is None:
        return np.where(winner, picked, NO_ARM)
    z = simultaneous_value(analysis, control, alpha)[:, None]
    # gaps from the control are by how much the control is better
    low, high = analysis.gaps_from(np.full(len(picked), control)).limits(z)
    return decided_for(picked, winner, -high, -low, control)


def _by_own_errors(done: Batch, control: int | None) -> Integers:
    """(n,) as a live test decides by a policy's own standard errors, if nothing moves.

    Errors of two arms add up at worst, with Bonferroni over the arms; an arm that was dropped has
    no error, so nothing is shown of it.
    """
    found = done.recommendations
    picked, estimates = found.arm, found.estimates
    if found.standard_errors is None:
        return np.full(len(picked), NO_ARM)
    rows, K = np.arange(len(picked)), estimates.shape[1]
    errors, values = np.nan_to_num(found.standard_errors, nan=np.inf), np.nan_to_num(estimates)
    z = -float(ndtri((1 - LEVEL) / (2 * max(K - 1, 1))))
    low = values[rows, picked][:, None] - values - z * (errors + errors[rows, picked][:, None])
    low[rows, picked] = np.inf
    winner = np.asarray((low > 0).all(axis=1))
    if control is None:
        return np.where(winner, picked, NO_ARM)
    lift, reach = values - values[:, [control]], z * (errors + errors[:, [control]])
    return decided_for(picked, winner, lift - reach, lift + reach, control)


def waits_of(question: Question, candidate: Candidate, budget: int) -> int:
    """How often a policy waits for rewards before it goes on, in a test with delayed rewards."""
    if not question.delay or not candidate.policy.waits:
        return 0
    batches = _batches(question, candidate, CALM, budget, 1, 0, SEARCHING, False)
    return next(batches)[1].segments - 1


def first_guess(question: Question) -> int:
    """Budget of an equal split over as many arms as there are dimensions, by Bonferroni."""
    arms = question.arms
    z = ndtri(1 - question.error / max(arms.size - 1, 1) / (1 + (question.error > 0.4)))
    rounds = 2 * arms.rank * (max(z, 0.5) * question.scatter / question.gap) ** 2
    return round(min(max(float(rounds), least_budget(question)), question.most_rounds))


def least_budget(question: Question) -> int:
    """Below this no test is planned."""
    return min(max(2 * question.arms.size, 16), question.most_rounds)


@dataclass
class Search:
    """The smallest budget with which one policy fails as rarely as wanted, in one kind of world.

    To fail is to pick a wrong variant, or to give no clear answer.

    Attributes
    ----------
    wanted : the share of tests that may fail
    count : simulates tests with a budget, so many, from a random stream, and counts the failures
    points : what was measured, by budget
    """

    question: Question
    candidate: Candidate
    rhythm: Rhythm
    wanted: float
    count: Callable[[int, int, int], Point]
    trials: int
    points: dict[int, Point] = field(default_factory=dict)

    def run(self, guess: int) -> Need:
        """Bracket, measure between, fit, check."""
        most = self.question.most_rounds
        low, high = self._bracket(guess, max(100, self.trials // 4))
        if high is None:
            check = self._measure(most, self.trials, CHECKING)
            if check.interval()[0] > self.wanted:
                return Need(None, None, None, None, check)
            high = most
        for between in np.geomspace(low, high, BETWEEN + 2)[1:-1]:
            self._measure(round(between), max(100, self.trials // 2))
        enough = None
        for _ in range(CHECKS):
            budget, _ = self._fit(low, high)
            check = self._measure(min(tidy(budget), most), self.trials, CHECKING)
            few, many = check.interval()
            if few > self.wanted:
                low = max(low, round(1.02 * check.budget))
            else:
                enough = check
                if many >= self.wanted:
                    break
                high = min(high, check.budget)
            if high <= 1.02 * low:
                break
        if enough is None:
            enough = self._measure(high, self.trials, CHECKING)
        if enough.budget == most and enough.interval()[0] > self.wanted:
            return Need(None, None, None, None, enough)
        return self._need(enough)

    def _need(self, check: Point) -> Need:
        """The need with this budget; its interval is that of the fitted curve nearby."""
        budget, low, high = check.budget, None, None
        fitted, error = self._fit(budget // 2, 2 * budget)
        if math.isfinite(error):
            root = math.sqrt(fitted)
            low = math.floor(max(root - 1.96 * error, 1.0) ** 2)
            high = math.ceil((root + 1.96 * error) ** 2)
        waits = waits_of(self.question, self.candidate, budget)
        return Need(budget, low, high, self.question.days(budget, self.rhythm, waits), check)

    def _bracket(self, guess: int, trials: int) -> tuple[int, int | None]:
        """Budgets that fail too often and rarely enough; None if the largest fails too often."""
        least, most = least_budget(self.question), self.question.most_rounds
        low, high, budget = least, None, guess
        while True:
            if self._measure(budget, trials).rate > self.wanted:
                low, following = budget, min(2 * budget, most)
            else:
                high, following = budget, max(budget // 2, least)
            if following in self.points:
                return low, high
            budget = following

    def _fit(self, low: int, high: int) -> tuple[float, float]:
        """The budget at which the fitted curve fails as often as wanted, and the error of its root.

        A probit curve over √T, fitted to what was measured near these budgets.
        """
        points = [p for p in self.points.values() if low / 2 <= p.budget <= 2 * high]
        if len(points) < BETWEEN:
            return float(high), math.inf
        scale = (low * high) ** 0.25
        x = np.sqrt([p.budget for p in points]) / scale - 1
        trials = np.array([p.trials for p in points])
        rates = np.array([p.rate for p in points])
        wanted = float(ndtri(self.wanted))
        level, slope = wanted, -1.0
        with warnings.catch_warnings():
            warnings.simplefilter("error", OptimizeWarning)
            try:
                for _ in range(REWEIGHTED):  # by the variances that the curve says
                    fitted = np.clip(_probit(x, level, slope), 0.5 / trials, 1 - 0.5 / trials)
                    (level, slope), covariance = curve_fit(
                        _probit, x, rates, (level, slope), np.sqrt(fitted * (1 - fitted) / trials),
                        absolute_sigma=True,
                    )  # fmt: skip  # a table reads better so
            except (RuntimeError, OptimizeWarning):  # no convergence
                return math.sqrt(low * high), math.inf
        step = (wanted - level) / slope if slope < 0 else 0.0
        budget = (scale * max(1 + step, 0.0)) ** 2
        if not low <= budget <= high:
            return min(max(budget, low), high), math.inf
        gradient = np.array([1.0, step])
        return budget, scale * math.sqrt(gradient @ covariance @ gradient) / -slope

    def _measure(self, budget: int, trials: int, stream: int = SEARCHING) -> Point:
        point = self.count(budget, trials, stream)
        known = self.points.get(budget, Point(budget, 0, 0))
        if stream == CHECKING or point.trials > known.trials:
            errors, more = (known.errors, known.trials) if stream == CHECKING else (0, 0)
            self.points[budget] = Point(budget, point.errors + errors, point.trials + more)
        return point


def _probit(x: Any, level: float, slope: float) -> Any:
    return ndtr(level + slope * x)


def tidy(budget: float, digits: int = 3) -> int:
    """Rounded up to so many digits.

    Examples
    --------
    >>> tidy(17_641), tidy(98)
    (17700, 98)
    """
    unit: int = 10 ** max(0, len(str(math.ceil(budget))) - digits)
    return math.ceil(budget / unit) * unit
