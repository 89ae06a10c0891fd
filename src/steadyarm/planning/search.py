"""Search: the smallest budget that gives the wanted error, from as few simulated tests as will do.

Errors of a policy fall with the budget about like Φ(-c √T). The search brackets the wanted error
with short measurements, fits Φ⁻¹(error) as a line in √T to those nearby, and measures where the
line says, each time more precisely. What is reported is measured anew, so that the choice of the
best among noisy measurements does not flatter the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from steadyarm.inference.stopping import UNDECIDED
from steadyarm.planning.answer import Answers, Need, Point
from steadyarm.planning.candidates import Candidate
from steadyarm.planning.question import Question
from steadyarm.planning.runs import Run, decided, run
from steadyarm.planning.worlds import CALM, BatchWorld, Rhythm
from steadyarm.simulation import clopper_pearson
from steadyarm.simulation.simulate import CHUNK

STEPS = 9  # measurements of a search, about: what a progress bar counts
MOST_STEPS = 16  # of bracketing
CHECKS = 8  # budgets that are checked before the best of them is taken as it is
CLOSE = 1.03  # ratio of budgets that count as equal
WIDTH = math.log(1.7)  # how near in log T a measurement is to count in the fit
SLOPE = 0.4  # relative standard deviation of the slope before anything is measured
NEWTON = 6  # steps
SEARCHING, CHECKING = range(2)  # random streams that share nothing


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
    for world, done in _runs(question, candidate, rhythm, budget, trials, seed, stream, False):
        errors += int((~_right(question, world, done.found.arm)).sum())
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
    lag, right, clear, visits = question.lag(budget, rhythm), 0, 0, 0
    for world, done in _runs(question, candidate, rhythm, budget, trials, seed, stream, True):
        found = decided(policy, arms, budget, done, control, looks, question.futility)
        right += int(_right(question, world, done.found.arm).sum())
        named = found.decided != UNDECIDED
        clear += int((named & _right(question, world, found.decided)).sum())
        visits += int(np.minimum(found.rounds + lag, budget).sum())
    mean = None if looks is None else visits / trials
    return Answers(budget, clear, trials - right, trials, mean)


def _runs(
    question: Question,
    candidate: Candidate,
    rhythm: Rhythm,
    budget: int,
    trials: int,
    seed: int,
    stream: int,
    squares: bool,
) -> Iterator[tuple[BatchWorld, Run]]:
    """Batches of simulated tests with random streams of their own."""
    key = np.random.SeedSequence(seed, spawn_key=(stream, budget))
    own = int(key.generate_state(1, np.uint64)[0])
    lag, arms = question.lag(budget, rhythm), candidate.arms(question.arms)
    for chunk, first in enumerate(range(0, trials, CHUNK)):
        n = min(CHUNK, trials - first)
        rng = np.random.default_rng(np.random.SeedSequence(own, spawn_key=(chunk, 1)))
        world = question.world(budget, rhythm, rng, n)
        rng = np.random.default_rng(np.random.SeedSequence(own, spawn_key=(chunk,)))
        yield world, run(candidate.policy, replace(world, arms=arms), n, rng, lag, squares)


def _right(question: Question, world: BatchWorld, arms: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,) whether these arms are the best, or as good as that."""
    behind = world.effects.max(axis=1) - world.effects[np.arange(len(arms)), arms]
    slack = 1e-9 * np.abs(world.effects).max(axis=1)
    return np.asarray(behind <= question.effects.indifference + slack)


def waits_of(question: Question, candidate: Candidate, budget: int) -> int:
    """How often a policy waits for rewards before it goes on, in a test with delayed rewards."""
    if not question.delay or not candidate.policy.waits:
        return 0
    _, done = next(_runs(question, candidate, CALM, budget, 1, 0, SEARCHING, False))
    return done.segments - 1


def first_guess(question: Question) -> int:
    """Budget of an equal split over as many arms as there are dimensions, by Bonferroni."""
    arms = question.arms
    z = ndtri(1 - question.error / max(arms.size - 1, 1) / (1 + (question.error > 0.4)))
    rounds = 2 * arms.rank * (max(z, 0.5) * question.scatter / question.effects.reference_gap) ** 2
    return round(min(max(float(rounds), least_budget(question)), question.most_rounds))


def least_budget(question: Question) -> int:
    """Below this no test is planned."""
    return min(max(2 * question.arms.size, 16), question.most_rounds)


@dataclass
class Search:
    """The smallest budget with which one policy fails as rarely as wanted, in one kind of world.

    To fail is to pick a wrong variant, or to give no clear answer. What `run` returns is a pure
    function of all but `step`, which is called after each measurement.

    Attributes
    ----------
    wanted : the share of tests that may fail
    count : simulates tests with a budget, so many, from a random stream, and counts the failures
    """

    question: Question
    candidate: Candidate
    rhythm: Rhythm
    wanted: float
    count: Callable[[int, int, int], Point]
    trials: int
    step: Callable[[], object]
    points: dict[int, Point] = field(default_factory=dict)

    def run(self, guess: int) -> Need:
        """Bracket, refine, check."""
        first = max(80, self.trials // 8)
        if not self._bracket(guess, first):
            return _not_enough(self._fresh(self.question.most_rounds))
        for trials in (first, self.trials // 4, self.trials // 2, self.trials):
            self._measure(self._proposal(), max(trials, first))
        return self._checked()

    def _checked(self) -> Need:
        """Measure proposals anew until one is neither too small nor too large.

        Errors jump where a test becomes a week longer; then the smallest budget that is enough is
        found by halving, since no budget has just the wanted error.
        """
        wanted, most = self.wanted, self.question.most_rounds
        least = least_budget(self.question)
        low, high, best = least / CLOSE, float(most) * CLOSE, None
        for _ in range(CHECKS):
            budget = self._proposal()
            if not low * CLOSE <= budget <= high / CLOSE:
                budget = round(math.sqrt(low * high))
            budget = min(tidy(budget), most)
            check = self._fresh(budget)
            if check.interval()[0] > wanted:
                if budget == most:
                    return _not_enough(check)
                low = max(low, budget)
            elif check.interval()[1] < wanted:
                if budget <= high:
                    high, best = float(budget), check
            else:
                return self._need(budget, check)
            self._remember(check)
            if high / low < CLOSE**2:
                break
        if best is not None:  # at a jump: more than what is too few, no more than what is enough
            need = self._need(best.budget, best)
            known = least <= low < best.budget
            return replace(need, low=round(low), high=best.budget) if known else need
        check = self._fresh(most)
        return _not_enough(check) if check.interval()[0] > wanted else self._need(most, check)

    def _bracket(self, guess: int, trials: int) -> bool:
        """Measure until budgets on both sides are known; False if even the largest is too small."""
        least, most = least_budget(self.question), self.question.most_rounds
        budget = guess
        for _ in range(MOST_STEPS):
            point = self._measure(budget, trials)
            low, high = clopper_pearson(point.errors, point.trials, 0.99)
            if budget == most and low > self.wanted:
                return False
            if budget == least and high < self.wanted:
                return True
            above, below = self._sides()
            if above and below:
                return True
            if (below and budget == least) or (above and budget == most):
                return True
            growth = min(max(self._factor(point), 1.5), 8.0)
            budget = round(budget * growth) if above else round(budget / growth)
            budget = min(max(budget, least), most)
        return True

    def _sides(self) -> tuple[list[int], list[int]]:
        """Budgets with errors above the wanted one, and below."""
        above = [p.budget for p in self.points.values() if p.rate > self.wanted]
        return above, [b for b in self.points if b not in above]

    def _factor(self, point: Point) -> float:
        """By how much the budget is off if errors fall like Φ(-c √T); at least one."""
        rate = (point.errors + 0.5) / (point.trials + 1)
        wanted, seen = ndtri(self.wanted / 2), ndtri(min(rate, 0.98) / 2)
        ratio = (wanted / seen) ** 2
        return 1.2 * float(max(ratio, 1 / ratio))

    def _proposal(self) -> int:
        """Where the fitted line meets the wanted error, kept near what was measured."""
        above, below = self._sides()
        low = max(above, default=min(self.points)) if above else least_budget(self.question)
        high = min(below, default=max(self.points))
        centre = math.sqrt(low * high)
        for _ in range(6):
            line = self._fit(centre)
            if line is None:
                break
            centre = min(max(line[0] ** 2, centre / 2), centre * 2)
        least, most = least_budget(self.question), self.question.most_rounds
        centre = min(max(centre, min(self.points) / 2), max(self.points) * 2)
        return round(min(max(centre, least), most))

    def _fit(self, centre: float) -> tuple[float, float] | None:
        """√T at the wanted error and its standard error; None if errors do not fall there.

        Local probit regression by Newton's method. Measurements close together say little of the
        slope, so it has a prior: that of K - 1 rivals alike, give or take a part of it.
        """
        points = list(self.points.values())
        n = np.array([p.trials for p in points], dtype=float)
        seen = np.array([p.errors for p in points]) / n
        x0 = math.sqrt(centre)
        X = np.column_stack([np.ones(len(points)), np.sqrt([p.budget for p in points]) - x0])
        away = (np.log([p.budget / centre for p in points]) / WIDTH) ** 2
        near = np.exp((away.min() - away) / 2)  # the nearest counts in full, however far
        wanted = float(ndtri(self.wanted))
        slope = self._usual_slope() / x0
        beta = np.array([wanted, slope])
        prior = np.diag([0.0, (SLOPE * slope) ** -2])
        for _ in range(NEWTON):
            eta = np.clip(X @ beta, -4.0, 4.0)
            p = ndtr(eta)
            density = np.exp(-(eta**2) / 2) / math.sqrt(2 * math.pi)
            weight = near * n * density**2 / (p * (1 - p))
            inverse = np.linalg.inv(X.T @ (weight[:, None] * X) + prior)
            target = X.T @ (weight * (eta + (seen - p) / density)) + prior @ [0.0, slope]
            beta = inverse @ target
        if not beta[1] < 0 or not np.isfinite(beta).all():
            return None
        step = (wanted - beta[0]) / beta[1]
        if not x0 + step > 0:
            return None
        at = np.array([1.0, step])
        spread = inverse @ (X.T @ ((weight * near)[:, None] * X) + prior) @ inverse
        return float(x0 + step), float(math.sqrt(at @ spread @ at) / -beta[1])

    def _usual_slope(self) -> float:
        """√T dy/d√T at the wanted error for error (K - 1) Φ(-c √T), y = Φ⁻¹(error)."""
        rivals = self.question.arms.rank - 1 or 1
        error = min(self.wanted, 0.3)
        z, y = ndtri(error / rivals), ndtri(error)
        return float(rivals * z * math.exp((y**2 - z**2) / 2))

    def _need(self, budget: int, check: Point) -> Need:
        line = self._fit(float(budget))
        low = high = None
        if line is not None:
            root, error = math.sqrt(budget), 1.96 * line[1]
            low, high = math.floor(max(root - error, 1.0) ** 2), math.ceil((root + error) ** 2)
        waits = waits_of(self.question, self.candidate, budget)
        return Need(budget, low, high, self.question.days(budget, self.rhythm, waits), check)

    def _measure(self, budget: int, trials: int) -> Point:
        known = self.points.get(budget)
        if known is None or known.trials < trials:
            self.points[budget] = self._simulate(budget, trials, SEARCHING)
        else:
            self.step()
        return self.points[budget]

    def _fresh(self, budget: int) -> Point:
        return self._simulate(budget, self.trials, CHECKING)

    def _simulate(self, budget: int, trials: int, stream: int) -> Point:
        point = self.count(budget, trials, stream)
        self.step()
        return point

    def _remember(self, point: Point) -> None:
        known = self.points.get(point.budget, Point(point.budget, 0, 0))
        self.points[point.budget] = Point(
            point.budget, known.errors + point.errors, known.trials + point.trials
        )


def _not_enough(check: Point) -> Need:
    return Need(None, None, None, None, check)


def tidy(budget: float, digits: int = 3) -> int:
    """Rounded up to so many digits.

    Examples
    --------
    >>> tidy(17_641), tidy(98)
    (17700, 98)
    """
    unit: int = 10 ** max(0, len(str(math.ceil(budget))) - digits)
    return math.ceil(budget / unit) * unit
