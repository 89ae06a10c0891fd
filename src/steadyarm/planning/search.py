"""plan: find the budget of a test by simulation.

The share of failures falls with the budget T about as Φ(a - b √T). A search brackets the wanted
share with short measurements, measures a few budgets in between, fits the curve, and checks the
resulting budget in fresh simulated tests. Searches run in parallel.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeWarning, curve_fit
from scipy.special import ndtr, ndtri

from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.inference import Evidence, Looks, stopping_of
from steadyarm.inference.intervals import SingleAnalysis, pairwise_value
from steadyarm.inference.lift import simultaneous_value
from steadyarm.inference.sequences import NO_ARM, decide_for
from steadyarm.live.results import ON_THE_WAY
from steadyarm.live.verdict import arms_judged
from steadyarm.planning.answer import Line, Need, Plan, Point, Share
from steadyarm.planning.question import CALM, LEAST_WRONG, Candidate, PlannedWorld, Question, Rhythm
from steadyarm.policies import Policy
from steadyarm.policies.fixed import ShuffledPlan
from steadyarm.simulation.simulate import CHUNK, PARTS, Batch, play, run_in_parallel
from steadyarm.theory import rho_star_of_means
from steadyarm.validation import whole_number

LEVEL = 0.95  # the default level of verdicts
TABLES = 4_000_000  # numbers in the tables of scores that are in memory at a time, about
BETWEEN = 4  # budgets that are measured inside the bracket
REWEIGHTED = 4  # fits, each with the variances of the one before
CHECKS = 3  # budgets that are checked at most
LEAST_TRIALS = 100
GRID = 7  # budgets at which all policies are compared
SEARCHING, CHECKING = range(2)  # independent random streams
Integers = NDArray[np.int64]


class Progress(NamedTuple):
    """The progress of a plan: steps done, steps in all (about), and the present step."""

    done: int
    total: int
    doing: str


def plan(
    question: Question | Mapping[str, Any] | str | Path,
    trials: int | None = None,
    seed: int = 0,
    jobs: int | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Plan:
    """Plan how many rounds and days a test needs with each candidate policy.

    Parameters
    ----------
    question : a `Question`, its settings as a dictionary, or a TOML file; see docs/run/plan.md
    trials : simulated tests behind each reported error. The default is 2000, up to 8000 for errors
        below 0.02, and down to 300 for policies that take long to simulate. At least five wrong
        picks must be expected
    seed : the same seed gives the same plan for any number of jobs
    jobs : threads; by default one per core
    progress : called with the progress after each step

    Returns
    -------
    Plan : budget and days of each policy, with intervals; ``print`` shows it

    Examples
    --------
    >>> import steadyarm as sa
    >>> answer = sa.plan({
    ...     "traffic_per_day": 200,
    ...     "arms": {"one_hot": ["A", "B"]},
    ...     "effects": {"smallest_gap": 0.5},
    ...     "rewards": {"sd": 1.0},
    ...     "policies": ["a/b-test"],
    ... }, trials=500)
    >>> 30 < answer.budget < 60, answer.days  # in closed form 44 rounds: Φ(-0.25 √44) = 0.05
    (True, 1)
    """
    if isinstance(question, (str, Path)):
        question = Question.from_file(Path(question))
    elif not isinstance(question, Question):
        question = Question.from_settings(question)
    if trials is not None:
        trials = whole_number(trials, "trials", least=LEAST_TRIALS)
    _check_measurable(question, trials)
    work = _Work(question, trials, whole_number(seed, "seed"), jobs, progress)
    budgets, lines = work.lines()
    return Plan(
        question=question,
        budgets=budgets,
        lines=lines,
        oracle=oracle_budget(question),
        trials=trials,
        seed=seed,
    )


def oracle_budget(question: Question) -> int | None:
    """The budget of the best fixed design for known means without drift; None if there is none.

    With σ² ρ* for its hardest rival it errs with probability Φ(-√(T / (σ² ρ*))).
    """
    try:
        hardest = max(rho_star_of_means(question.arms, shape) for shape in question.shapes)
    except InvalidInputError:
        return None
    wanted = max(-float(ndtri(question.error)), 0.0)
    return math.ceil(question.scatter**2 * hardest * wanted**2)


def _trials(question: Question, candidate: Candidate, trials: int | None) -> int:
    """Simulated tests behind each error."""
    return trials or candidate.trials(question.arms, question.error)


def _check_measurable(question: Question, trials: int | None) -> None:
    """Refuse an error that is too small to measure by simulation."""
    fewest = min(_trials(question, candidate, trials) for candidate in question.candidates)
    expected = fewest * question.error
    if expected < LEAST_WRONG * (1 - 1e-9):
        needed = math.ceil(LEAST_WRONG / question.error * (1 - 1e-9))
        raise InvalidInputError(
            f"error is {question.error:g}, and {fewest:,} simulated tests would have only about "
            f"{expected:.2g} wrong picks, too few to measure their share. Use at least {needed} "
            "trials or a larger error.",
            field="error",
        )


class _Work:
    """The simulations of one plan and their progress."""

    def __init__(
        self,
        question: Question,
        trials: int | None,
        seed: int,
        jobs: int | None,
        progress: Callable[[Progress], object] | None,
    ) -> None:
        self.question, self.trials, self.seed, self.jobs = question, trials, seed, jobs
        # Slow ones come first, so that they do not run alone at the end.
        self.candidates = sorted(question.candidates, key=lambda c: -c.size(question.arms))
        self.progress, self.done = progress, 0
        kinds = 1 + question.rhythm.moves + (question.clear is not None)
        self.left = len(self.candidates) * kinds * (1 + GRID)  # about, until budgets are known

    def lines(self) -> tuple[tuple[int, ...], tuple[Line, ...]]:
        """The budgets at which policies are compared, and the answer for each policy."""
        question, moves = self.question, self.question.rhythm.moves
        rhythms = (CALM, question.rhythm) if moves else (CALM,)
        calls = {(c.label, r.moves): (c, r, False) for c in self.candidates for r in rhythms}
        needs: dict[tuple[str, bool], Need] = self._run("searching the budget", self._search, calls)
        clear: dict[str, Need] = {}
        if question.clear is not None:
            again = {
                c.label: (c, question.rhythm, True, needs[c.label, moves].budget)
                for c in self.candidates
            }
            clear = self._run("searching clear answers", self._search, again)
        budgets = _grid(question, [*needs.values(), *clear.values()])
        points = self._compare(budgets, needs)
        lines = []
        for candidate in question.candidates:
            label = candidate.label
            line = Line(
                label=label,
                robust=candidate.robust,
                calm=needs[label, False],
                moving=needs[label, True] if moves else None,
                points=tuple(points[label, budget] for budget in budgets),
                clear=clear.get(label),
                picked=points.get((label, "picked")),
            )
            lines.append(line)
        return budgets, tuple(lines)

    def _compare(
        self, budgets: tuple[int, ...], needs: Mapping[tuple[str, bool], Need]
    ) -> dict[tuple[str, Any], Point]:
        """Simulate all policies at the common budgets and at the budget that suffices to pick."""
        rhythm, asked = self.question.rhythm, self.question.clear is not None
        calls: dict[tuple[str, Any], tuple[Any, ...]] = {}
        for candidate in self.candidates:
            label, trials = candidate.label, _trials(self.question, candidate, self.trials)
            few = max(trials // 4, LEAST_TRIALS)
            judged = candidate.count_judged(self.question.arms, trials)
            for budget in budgets:
                tests = min(few, judged) if asked else few
                calls[label, budget] = candidate, rhythm, budget, tests, SEARCHING, asked
            enough = needs[label, rhythm.moves].budget
            if asked and enough is not None:
                calls[label, "picked"] = candidate, rhythm, enough, judged, CHECKING, True
        self.left = len(calls)
        doing = "comparing answers" if asked else "comparing errors"
        points: dict[tuple[str, Any], Point]
        points = self._run(doing, partial(measure, self.question, self.seed), calls)
        return points

    def _run(
        self, doing: str, function: Callable[..., Any], calls: Mapping[Any, tuple[Any, ...]]
    ) -> dict[Any, Any]:
        """Call a function in parallel, by key; the first argument is a candidate."""
        results = {}
        self._tell(f"{doing} of {next(iter(calls.values()))[0].label}")
        numbered = ((key, *call) for key, call in calls.items())
        for key, result in run_in_parallel(function, numbered, self.jobs):
            results[key] = result
            self.done, self.left = self.done + 1, self.left - 1
            self._tell(f"{doing} of {calls[key][0].label}")
        return {key: results[key] for key in calls}

    def _tell(self, doing: str) -> None:
        if self.progress is not None:
            self.progress(Progress(self.done, self.done + self.left, doing))

    def _search(
        self, candidate: Candidate, rhythm: Rhythm, clear: bool, enough: int | None = None
    ) -> Need:
        """Find a candidate's budget for right picks or, if `clear`, for clear answers.

        enough : the budget for right picks, from which the search for clear answers starts
        """
        question = self.question
        trials, guess = _trials(question, candidate, self.trials), first_guess(question)
        wanted = question.error
        if clear:
            trials, wanted = (
                candidate.count_judged(question.arms, trials),
                1 - (question.clear or 0.0),
            )
            guess = min(2 * (enough or guess), question.most_rounds)

        def count(budget: int, trials: int, stream: int) -> Point:
            return measure(question, self.seed, candidate, rhythm, budget, trials, stream, clear)

        need = Search(question, wanted, count, trials).run(guess)
        if need.budget is None:
            return need
        waits = waits_of(question, candidate, need.budget)
        return replace(need, days=question.days(need.budget, rhythm, waits))


def _grid(question: Question, needs: list[Need]) -> tuple[int, ...]:
    """Budgets around those that suffice, at equal ratios."""
    enough = [need.budget for need in needs if need.budget is not None] or [first_guess(question)]
    least, most = least_budget(question), question.most_rounds
    low, high = max(min(enough) / 4, least), min(max(enough) * 1.3, most)
    budgets = [min(tidy(b, 2), most) for b in np.geomspace(min(low, high), high, GRID)]
    return tuple(sorted(set(budgets)))


# Simulated tests with one budget.


def measure(
    question: Question,
    seed: int,
    candidate: Candidate,
    rhythm: Rhythm,
    budget: int,
    trials: int,
    stream: int,
    judge: bool,
) -> Point:
    """Simulate tests with one budget. This is a pure function.

    Parameters
    ----------
    judge : whether to count the tests with a clear answer, which decide for the best variant, and
        the visits of tests that may stop
    """
    control = None if question.control is None else question.arms.names.index(question.control)
    policy, arms, looks = candidate.policy, candidate.arms(question.arms), None
    if judge and question.stop is not None and policy.unbiased:
        looks = question.planned_looks(budget)
    lag, wrong, clear, visits = question.lag(budget, rhythm), 0, 0, 0
    for world, batch in _batches(question, seed, candidate, rhythm, budget, trials, stream, judge):
        wrong += int((world.regret(batch.recommendations.arm) > 0).sum())
        if judge:
            variant, rounds = decide(policy, arms, budget, batch, control, looks)
            right = world.regret(np.maximum(variant, 0)) == 0
            clear += int(((variant != NO_ARM) & right).sum())
            visits += int(np.minimum(rounds + lag, budget).sum())
    return Point(
        budget,
        Share.of(wrong, trials),
        Share.of(clear, trials) if judge else None,
        None if looks is None else visits / trials,
    )


def _batches(
    question: Question,
    seed: int,
    candidate: Candidate,
    rhythm: Rhythm,
    budget: int,
    trials: int,
    stream: int,
    record: bool,
) -> Iterator[tuple[PlannedWorld, Batch]]:
    """Batches of simulated tests, the same number in each world of the question."""
    lag, arms = question.lag(budget, rhythm), candidate.arms(question.arms)
    worlds = len(question.shapes)
    most = max(1, TABLES // (PARTS * arms.rank**2)) if record else CHUNK
    for leader in range(worlds):
        left = trials * (leader + 1) // worlds - trials * leader // worlds
        world = replace(question.environment(budget, rhythm, leader), arms=arms)
        key = np.random.SeedSequence(seed, spawn_key=(stream, budget, leader))
        rng = np.random.default_rng(key)
        while left > 0:
            size = min(CHUNK, most, left)
            left -= size
            yield world, play(candidate.policy, world, size, rng, lag, record)


def decide(
    policy: Policy[Any],
    arms: ArmSet,
    budget: int,
    batch: Batch,
    control: int | None,
    looks: Looks | None = None,
) -> tuple[Integers, Integers]:
    """(n,) the arm that a live test would decide for, -1 for none, and the rounds until then.

    Without a control, a test decides for a declared winner: all other arms are ruled out. With a
    control, it decides for the recommended arm if that is shown to beat the control, and for the
    control if every other arm is shown not to be better. Limits hold with probability 0.95. A live
    test spends a fifth of the error before its end, or as its interim analyses spend it.
    """
    picked = batch.recommendations.arm
    rounds = np.full(len(picked), budget)
    if not policy.unbiased and not isinstance(policy, ShuffledPlan):
        return _by_own_errors(batch, control), rounds
    evidence = Evidence.from_segments(arms_judged(policy, arms), batch.played)
    if looks is not None:
        stopped = stopping_of(evidence, budget, looks, LEVEL, control)
        return stopped.variant, stopped.rounds
    level = 1 - (1 - ON_THE_WAY) * (1 - LEVEL) if policy.unbiased else LEVEL
    return _at_end(evidence, level, picked, control), rounds


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
    # A gap is the value of the control minus that of the other arm.
    low, high = analysis.gaps_from(np.full(len(picked), control)).limits(z)
    return decide_for(picked, winner, -high, -low, control)


def _by_own_errors(batch: Batch, control: int | None) -> Integers:
    """(n,) the decisions of live tests that use a policy's own standard errors, without drift.

    At worst the errors of two arms add up; Bonferroni covers all arms. An arm that was dropped has
    no error, so no statement about it is possible.
    """
    picked, estimates = batch.recommendations.arm, batch.recommendations.estimates
    errors = batch.recommendations.standard_errors
    if errors is None:
        return np.full(len(picked), NO_ARM)
    rows, K = np.arange(len(picked)), estimates.shape[1]
    errors, values = np.nan_to_num(errors, nan=np.inf), np.nan_to_num(estimates)
    z = -float(ndtri((1 - LEVEL) / (2 * max(K - 1, 1))))
    low = values[rows, picked][:, None] - values - z * (errors + errors[rows, picked][:, None])
    low[rows, picked] = np.inf
    winner = np.asarray((low > 0).all(axis=1))
    if control is None:
        return np.where(winner, picked, NO_ARM)
    lift, reach = values - values[:, [control]], z * (errors + errors[:, [control]])
    return decide_for(picked, winner, lift - reach, lift + reach, control)


def waits_of(question: Question, candidate: Candidate, budget: int) -> int:
    """The number of times that a policy waits for delayed rewards."""
    if not question.delay or not candidate.policy.waits:
        return 0
    batches = _batches(question, 0, candidate, CALM, budget, 1, SEARCHING, False)
    return next(batches)[1].segments - 1


# The search.


def first_guess(question: Question) -> int:
    """Budget of an equal split over as many arms as there are dimensions, by Bonferroni."""
    arms = question.arms
    z = ndtri(1 - question.error / max(arms.size - 1, 1) / (1 + (question.error > 0.4)))
    rounds = 2 * arms.rank * (max(z, 0.5) * question.scatter / question.smallest_gap) ** 2
    return round(min(max(float(rounds), least_budget(question)), question.most_rounds))


def least_budget(question: Question) -> int:
    """The smallest budget that is planned."""
    return min(max(2 * question.arms.size, 16), question.most_rounds)


class Search:
    """Search for the smallest budget with which a policy fails as rarely as wanted.

    A test fails if it picks a wrong variant or, if clear answers are asked for, gives none.

    Attributes
    ----------
    wanted : the share of tests that may fail
    count : simulates tests, given the budget, the number of tests and a random stream
    trials : tests behind the reported share
    failures : the measured shares by budget
    """

    def __init__(
        self,
        question: Question,
        wanted: float,
        count: Callable[[int, int, int], Point],
        trials: int,
    ) -> None:
        self.wanted, self.count, self.trials = wanted, count, trials
        self.least, self.most = least_budget(question), question.most_rounds
        self.failures: dict[int, Share] = {}

    def run(self, guess: int) -> Need:
        """Bracket, measure between, fit, check."""
        low, high = self._bracket(guess, max(100, self.trials // 4))
        if high is None:
            check, failed = self._check(self.most)
            if failed.low > self.wanted:
                return Need(None, None, None, None, check)
            high = self.most
        for between in np.geomspace(low, high, BETWEEN + 2)[1:-1]:
            self._measure(round(between), max(100, self.trials // 2))
        enough = None
        for _ in range(CHECKS):
            budget, _ = self._fit(low, high)
            check, failed = self._check(min(tidy(budget), self.most))
            if failed.low > self.wanted:
                low = max(low, round(1.02 * check.budget))
            else:
                enough = check
                if failed.high >= self.wanted:
                    break
                high = min(high, check.budget)
            if high <= 1.02 * low:
                break
        while enough is None:  # the tests of the bracket were luckier than fresh ones
            check, failed = self._check(high)
            if failed.low <= self.wanted:
                enough = check
            elif high == self.most:
                return Need(None, None, None, None, check)
            high = min(round(1.1 * high), self.most)
        return self._need(enough)

    def _need(self, check: Point) -> Need:
        """The need with this budget and its interval.

        The curve is an approximation. The interval includes its misfit and is extended to contain
        the stated budget, which fresh tests support.
        """
        budget = check.budget
        fitted, error = self._fit(budget // 2, 2 * budget)
        if math.isinf(error):
            return Need(budget, None, None, None, check)
        root = math.sqrt(fitted)
        low, high = max(root - 1.96 * error, 1.0) ** 2, (root + 1.96 * error) ** 2
        return Need(budget, min(tidy(low, up=False), budget), max(tidy(high), budget), None, check)

    def _bracket(self, guess: int, trials: int) -> tuple[int, int | None]:
        """A budget that fails too often and one that does not; None if the largest fails."""
        low, high, budget = self.least, None, guess
        while True:
            if self._measure(budget, trials) > self.wanted:
                low, following = budget, min(2 * budget, self.most)
            else:
                high, following = budget, max(budget // 2, self.least)
            if following in self.failures:
                return low, high
            budget = following

    def _fit(self, low: int, high: int) -> tuple[float, float]:
        """The budget where the fitted curve has the wanted share, and the error of its root.

        A probit curve over √T is fitted to the measurements near these budgets. If they deviate
        from it by more than chance, the error grows in proportion.
        """
        near = {T: share for T, share in self.failures.items() if low / 2 <= T <= 2 * high}
        if len(near) < BETWEEN:
            return float(high), math.inf
        scale = (low * high) ** 0.25
        x = np.sqrt(list(near)) / scale - 1
        trials = np.array([share.trials for share in near.values()])
        rates = np.array([share.rate for share in near.values()])
        wanted = float(ndtri(self.wanted))
        level, slope = wanted, -1.0
        with warnings.catch_warnings():
            warnings.simplefilter("error", OptimizeWarning)
            try:
                for _ in range(REWEIGHTED):  # by the variances of the curve
                    fitted = np.clip(_probit(x, level, slope), 0.5 / trials, 1 - 0.5 / trials)
                    (level, slope), covariance = curve_fit(
                        _probit, x, rates, (level, slope), np.sqrt(fitted * (1 - fitted) / trials),
                        absolute_sigma=True,
                    )  # fmt: skip
            except (RuntimeError, OptimizeWarning):  # no convergence
                return math.sqrt(low * high), math.inf
        step = (wanted - level) / slope if slope < 0 else 0.0
        budget = (scale * max(1 + step, 0.0)) ** 2
        if not low <= budget <= high:
            return min(max(budget, low), high), math.inf
        fitted = np.clip(_probit(x, level, slope), 0.5 / trials, 1 - 0.5 / trials)
        misfit = ((rates - fitted) ** 2 * trials / (fitted * (1 - fitted))).sum() / (len(x) - 2)
        gradient = np.array([1.0, step])
        variance = gradient @ covariance @ gradient * max(misfit, 1.0)
        return budget, scale * math.sqrt(variance) / -slope

    def _measure(self, budget: int, trials: int) -> float:
        """Measure the share of failures; the largest sample of each budget is kept."""
        failed = _failures(self.count(budget, trials, SEARCHING))
        if budget not in self.failures or trials > self.failures[budget].trials:
            self.failures[budget] = failed
        return failed.rate

    def _check(self, budget: int) -> tuple[Point, Share]:
        """Simulate fresh tests, add them to earlier ones, and return the result of the fresh."""
        point = self.count(budget, self.trials, CHECKING)
        failed = _failures(point)
        known = self.failures.get(budget)
        count, trials = (0, 0) if known is None else (known.count, known.trials)
        self.failures[budget] = Share.of(failed.count + count, failed.trials + trials)
        return point, failed


def _failures(point: Point) -> Share:
    return point.wrong if point.clear is None else point.clear.rest


def _probit(x: Any, level: float, slope: float) -> Any:
    return ndtr(level + slope * x)


def tidy(budget: float, digits: int = 3, up: bool = True) -> int:
    """Round to this number of significant digits, up or down.

    Examples
    --------
    >>> tidy(17_641), tidy(17_641, up=False), tidy(98)
    (17700, 17600, 98)
    """
    unit: int = 10 ** max(0, len(str(math.ceil(budget))) - digits)
    return (math.ceil if up else math.floor)(budget / unit) * unit
