"""plan: answer a question by simulation, with many searches at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from steadyarm.environments import BernoulliReward
from steadyarm.errors import InvalidInputError
from steadyarm.planning.answer import Answers, Clear, Curve, Line, Need, Plan, Point, Theory
from steadyarm.planning.candidates import SEEN, Candidate
from steadyarm.planning.question import Question
from steadyarm.planning.search import (
    CHECKING,
    SEARCHING,
    Search,
    first_guess,
    least_budget,
    measure,
    measure_answers,
    tidy,
)
from steadyarm.planning.worlds import CALM, Rhythm
from steadyarm.policies import GBAI, P1RAGE, Steady
from steadyarm.policies.thompson import ThompsonPolicy
from steadyarm.simulation.simulate import run_in_parallel
from steadyarm.theory import g_bai_error_bound, p1_rage_drift_error_bound, rho_star_of_means
from steadyarm.validation import whole_number

# Theory beside the simulation: what an oracle needs, and what theorems promise.


MOST = 2**60


def theory_of(question: Question, budgets: tuple[int, ...]) -> Theory:
    """The oracle's floor at these budgets."""
    spent = _oracle_rounds(question)
    if spent is None:
        return Theory(None, None)
    wanted = max(-float(ndtri(question.error)), 0.0)
    floor = tuple(float(ndtr(-math.sqrt(budget / spent))) for budget in budgets)
    return Theory(math.ceil(spent * wanted**2), floor)


def guarantee(question: Question, candidate: Candidate) -> int | None:
    """The least budget for which a theorem promises the wanted error; None if none does."""
    bound = _bound(question, candidate)
    if bound is None:
        return None
    high = 1
    while bound(high) > question.error:
        high *= 2
        if high > MOST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bound(middle) > question.error else (low, middle)
    return high


def _bound(question: Question, candidate: Candidate) -> Callable[[int], float] | None:
    """Theorem 1 for G-BAI and Theorem 2 for P1-RAGE: known effects, rewards of 0 or 1."""
    policy = candidate.policy
    if not isinstance(question.noise, BernoulliReward):
        return None
    if not isinstance(policy, (GBAI, P1RAGE)) or policy.order != "iid":
        return None
    function = g_bai_error_bound if isinstance(policy, GBAI) else p1_rage_drift_error_bound
    means = question.level + question.shapes[0]  # the bounds see the smallest gap alone
    theta = np.linalg.lstsq(question.arms.features, means, rcond=None)[0]
    try:
        function(question.arms, theta, 1)
    except InvalidInputError:  # two best arms: no theorem
        return None
    return lambda budget: function(question.arms, theta, budget)


def _oracle_rounds(question: Question) -> float | None:
    """σ² ρ*: the oracle errs with probability Φ(-√(T / (σ² ρ*))) against its hardest rival."""
    try:
        return question.scatter**2 * max(
            rho_star_of_means(question.arms, shape) for shape in question.shapes
        )
    except InvalidInputError:
        return None


LEAST_TRIALS = 100
GRID = 7  # budgets at which all policies are compared
EFFORT = 6.0  # simulated tests of a policy in one kind of world, per one behind its printed error
CLEAR_EFFORT = 5.0  # the same for clear answers
Key = tuple[str, bool]  # a candidate's label, and whether the world moves


class Progress(NamedTuple):
    """How far a plan is: steps done, steps in all (about), and what is being done."""

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
    """How many rounds and days a test needs, with each candidate policy.

    Parameters
    ----------
    question : a `Question`, its settings as a dictionary, or a TOML file; see docs/run/plan.md
    trials : simulated tests behind each reported error; by default 2000, up to 8000 for errors
        below 0.02, down to 300 for policies that take long to simulate. At least five of them
        have to be expected to go wrong
    seed : the same seed gives the same plan, whatever the number of jobs
    jobs : threads; by default one per core
    progress : called with what is done, whenever that is more

    Returns
    -------
    Plan : budget and days of each policy, with intervals; ``print`` shows it

    Examples
    --------
    >>> import steadyarm as sa
    >>> found = sa.plan({
    ...     "traffic_per_day": 200,
    ...     "arms": {"one_hot": ["A", "B"]},
    ...     "effects": {"smallest_gap": 0.5},
    ...     "rewards": {"sd": 1.0},
    ...     "policies": ["a/b-test"],
    ... }, trials=500)
    >>> 30 < found.budget < 60, found.days  # in closed form 44 rounds: Φ(-0.25 √44) = 0.05
    (True, 1)
    """
    if isinstance(question, (str, Path)):
        question = Question.from_file(Path(question))
    elif not isinstance(question, Question):
        question = Question.from_settings(question)
    if trials is not None:
        trials = whole_number(trials, "trials", least=LEAST_TRIALS)
    _check_measurable(question, trials)
    seed = whole_number(seed, "seed")
    work = _Work(question, trials, seed, jobs, progress)
    needs = work.searches()
    clear = work.clear_searches(needs) if question.clear is not None else {}
    found = [*needs.values(), *(need for need, _ in clear.values())]
    budgets = _grid(question, [need.budget for need in found if need.budget is not None])
    points, answers = work.compare(needs, budgets)
    return Plan(
        question=question.to_dict(),
        summary=question.describe(),
        error=question.error,
        most_days=question.most_days,
        most_rounds=question.most_rounds,
        budgets=budgets,
        lines=tuple(
            replace(_line(question, c, needs, points, budgets), clear=_clear(c, clear, answers))
            for c in question.candidates
        ),
        theory=theory_of(question, budgets),
        trials=trials,
        seed=seed,
        clear=question.clear,
    )


def _clear(
    candidate: Candidate,
    searched: Mapping[str, tuple[Need, Answers]],
    answers: Mapping[str, tuple[Answers | None, tuple[Answers, ...]]],
) -> Clear | None:
    """The clear answers of one candidate; None if nobody asked."""
    if candidate.label not in searched:
        return None
    need, check = searched[candidate.label]
    picked, points = answers[candidate.label]
    return Clear(need, check, picked, points)


def seconds_for(question: Question, trials: int | None = None) -> float:
    """Processor time that the answer takes, about; give or take a factor of two."""
    worlds, arms = 2 if question.rhythm.moves else 1, question.arms
    total = 0.0
    for candidate, n in zip(question.candidates, _trials(question, trials), strict=True):
        time = candidate.milliseconds(arms)
        total += n * time * worlds * EFFORT
        if question.clear is not None:
            judged = candidate.judged(arms, n)
            total += judged * (time + candidate.judging(arms)) * CLEAR_EFFORT
    return total / 1000


def _trials(question: Question, trials: int | None) -> list[int]:
    """Simulated tests behind each error, for each candidate."""
    return [trials or c.trials(question.arms, question.error) for c in question.candidates]


def _check_measurable(question: Question, trials: int | None) -> None:
    """Refuse an error so small that hardly any simulated test would go wrong."""
    fewest = min(_trials(question, trials))
    expected = fewest * question.error
    if expected < SEEN * (1 - 1e-9):
        needed = math.ceil(SEEN / question.error * (1 - 1e-9))
        raise InvalidInputError(
            f"error is {question.error:g}, but {fewest:,} simulated tests would have only about "
            f"{expected:.2g} wrong picks, too few to measure their share; expected trials of "
            f"at least {needed}, or a larger error.",
            field="error",
        )


class _Work:
    """The simulations of one plan, and how far they are."""

    def __init__(
        self,
        question: Question,
        trials: int | None,
        seed: int,
        jobs: int | None,
        progress: Callable[[Progress], object] | None,
    ) -> None:
        self.question, self.trials, self.seed, self.jobs = question, trials, seed, jobs
        self.rhythms = (CALM, question.rhythm) if question.rhythm.moves else (CALM,)
        # slow ones first, so that they do not run alone at the end
        self.candidates = sorted(question.candidates, key=_haste)
        self.progress, self.done = progress, 0
        worlds = len(self.rhythms) + (question.clear is not None)
        self.left = len(self.candidates) * worlds * (1 + GRID)  # about, until budgets are known

    def run(
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

    def trials_of(self, candidate: Candidate) -> int:
        """Simulated tests behind each error."""
        return self.trials or candidate.trials(self.question.arms, self.question.error)

    def judged(self, candidate: Candidate) -> int:
        """Simulated tests behind each share of clear answers."""
        return candidate.judged(self.question.arms, self.trials_of(candidate))

    def searches(self) -> dict[Key, Need]:
        """What every candidate needs in every kind of world."""
        calls = {(c.label, r.moves): (c, r) for c in self.candidates for r in self.rhythms}
        return self.run("searching the budget", self._search, calls)

    def _search(self, candidate: Candidate, rhythm: Rhythm) -> Need:
        world = self.question, candidate, rhythm

        def count(budget: int, trials: int, stream: int) -> Point:
            return measure(*world, budget, trials, self.seed, stream)

        search = Search(*world, self.question.error, count, self.trials_of(candidate))
        return search.run(first_guess(self.question))

    def clear_searches(self, needs: Mapping[Key, Need]) -> dict[str, tuple[Need, Answers]]:
        """What every candidate needs for clear answers in the world that was asked about."""
        moves = self.question.rhythm.moves
        calls = {c.label: (c, needs[c.label, moves].budget) for c in self.candidates}
        return self.run("searching clear answers", self._search_clear, calls)

    def _search_clear(self, candidate: Candidate, enough: int | None) -> tuple[Need, Answers]:
        world = self.question, candidate, self.question.rhythm
        checks: dict[int, Answers] = {}

        def count(budget: int, trials: int, stream: int) -> Point:
            found = measure_answers(*world, budget, trials, self.seed, stream)
            if stream == CHECKING:
                checks[budget] = found
            return Point(budget, trials - found.clear, trials)

        search = Search(*world, 1 - (self.question.clear or 0.0), count, self.judged(candidate))
        guess = 2 * (enough or first_guess(self.question))
        need = search.run(min(guess, self.question.most_rounds))
        return need, checks[need.check.budget]

    def compare(
        self, needs: Mapping[Key, Need], budgets: tuple[int, ...]
    ) -> tuple[dict[tuple[Key, int], Point], dict[str, tuple[Answers | None, tuple[Answers, ...]]]]:
        """Errors at the common budgets, and of the calm world's budgets in the moving one; and
        clear answers at the common budgets and with the budget that is enough to pick the best.
        """
        rhythm, asked = self.question.rhythm, self.question.clear is not None
        errors: dict[tuple[Key, int], tuple[Any, ...]] = {}
        answers: dict[tuple[str, int | None], tuple[Any, ...]] = {}
        for candidate in self.candidates:
            few, more = (max(self.trials_of(candidate) // n, LEAST_TRIALS) for n in (4, 2))
            judged, label = self.judged(candidate), candidate.label
            for world in self.rhythms[:-1] if asked else self.rhythms:
                for budget in budgets:
                    errors[(label, world.moves), budget] = candidate, world, budget, few
            calm = needs[label, False].budget
            if rhythm.moves and calm is not None:
                errors[(label, True), calm] = candidate, rhythm, calm, more
            if asked:
                for budget in budgets:
                    answers[label, budget] = candidate, budget, min(few, judged), SEARCHING
                enough = needs[label, rhythm.moves].budget
                if enough is not None:
                    answers[label, None] = candidate, enough, judged, CHECKING
        self.left = len(errors) + len(answers)
        points: dict[tuple[Key, int], Point] = {}
        if errors:
            points = self.run("comparing errors", self._errors, errors)
        if not asked:
            return points, {}
        found = self.run("comparing answers", self._answers, answers)
        points |= {
            ((label, rhythm.moves), budget): Point(one.budget, one.errors, one.trials)
            for (label, budget), one in found.items()
            if budget is not None and ((label, rhythm.moves), budget) not in points
        }
        return points, {
            c.label: (found.get((c.label, None)), tuple(found[c.label, b] for b in budgets))
            for c in self.candidates
        }

    def _errors(self, candidate: Candidate, rhythm: Rhythm, budget: int, trials: int) -> Point:
        return measure(self.question, candidate, rhythm, budget, trials, self.seed)

    def _answers(self, candidate: Candidate, budget: int, trials: int, stream: int) -> Answers:
        world = self.question, candidate, self.question.rhythm
        return measure_answers(*world, budget, trials, self.seed, stream)


def _haste(candidate: Candidate) -> int:
    if isinstance(candidate.policy, ThompsonPolicy):
        return 0
    return 1 if isinstance(candidate.policy, Steady) else 2


def _grid(question: Question, found: list[int]) -> tuple[int, ...]:
    """Budgets around those that were found, at equal ratios."""
    guess = first_guess(question)
    least, most = least_budget(question), question.most_rounds
    low = max(min(found, default=guess) / 4, least)
    high = min(max(found, default=guess) * 1.3, most)
    budgets = [min(tidy(b, 2), most) for b in np.geomspace(min(low, high), high, GRID)]
    return tuple(sorted(set(budgets)))


def _line(
    question: Question,
    candidate: Candidate,
    needs: Mapping[Key, Need],
    points: Mapping[tuple[Key, int], Point],
    budgets: tuple[int, ...],
) -> Line:
    def curve(moves: bool) -> Curve:
        key = candidate.label, moves
        return Curve(needs[key], tuple(points[key, budget] for budget in budgets))

    moving = question.rhythm.moves
    calm = needs[candidate.label, False].budget
    surprised = points[(candidate.label, True), calm] if moving and calm is not None else None
    return Line(
        label=candidate.label,
        robust=candidate.robust,
        calm=curve(False),
        moving=curve(True) if moving else None,
        surprised=surprised,
        guarantee=guarantee(question, candidate),
    )
