"""The charts of what people have at hand: an experiment, a scorecard, a session, an analysis.

`chart_for` finds what is to be drawn; `Drawings` has it drawn by a library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from steadyarm.analysis import Analysis
from steadyarm.errors import InvalidInputError
from steadyarm.inference import DriftReport
from steadyarm.inference.sequences import confidence_path
from steadyarm.live.effects import bundles_in, effects_of, has_effects
from steadyarm.live.experiment import Experiment
from steadyarm.live.scorecard import Course, Effects, Scorecard, Shares, Waiting
from steadyarm.live.scoring import course_of, scorecard_of, shares_of
from steadyarm.live.session import Session
from steadyarm.live.verdict import Verdict
from steadyarm.planning import Plan
from steadyarm.plot import charts
from steadyarm.plot.chart import Chart
from steadyarm.plot.charts.common import thinned
from steadyarm.segments import Direction
from steadyarm.simulation import Comparison, Results

Test = Experiment | Scorecard | Session | Analysis
Seen = Scorecard | Session | Analysis
Figure = TypeVar("Figure")

LOOKS = 60  # ends of pieces at which the estimates of a log are drawn


def chart_for(name: str, test: Test) -> Chart:
    """The chart of that name (one of `CHARTS`) of a test.

    Examples
    --------
    >>> import steadyarm as sa
    >>> session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), budget=500, seed=3)
    >>> for _ in range(500):
    ...     a = session.ask()
    ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
    >>> chart_for("leaderboard", session).table.rows[0][:2]
    (1, 'B')
    """
    seen = scorecard_of(test) if isinstance(test, Experiment) else test
    if not isinstance(seen, (Scorecard, Session, Analysis)):
        raise InvalidInputError(
            f"test is {type(test).__name__}; give an Experiment, a Session, an Analysis or a "
            "Scorecard."
        )
    return CHARTS[name](seen)


class Drawings(Generic[Figure]):
    """Every chart of a test, a plan or simulations, drawn by one library.

    draw : makes the library's figure of a chart
    """

    def __init__(self, draw: Callable[[Chart], Figure]) -> None:
        self._draw = draw

    def estimates(self, test: Test) -> Figure:
        """How the estimate of each variant settled, with the intervals of the leading ones.

        Parameters
        ----------
        test : what to draw: a `Session`, an `Experiment`, an `Analysis` or a `Scorecard`

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.estimates``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> session = sa.Session(sa.Steady(), arms, budget=200, seed=3)
        >>> for _ in range(200):
        ...     a = session.ask()
        ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
        >>> print(sa.plot.estimates(session).layout.title.text)
        Estimated reward of each variant, from the whole test so far
        """
        return self._draw(chart_for("estimates", test))

    def daily(self, test: Test) -> Figure:
        """Estimates of each day, or part of the test, by itself.

        Parameters
        ----------
        test : what to draw: a `Session`, an `Experiment`, an `Analysis` or a `Scorecard`

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.daily``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> session = sa.Session(sa.Steady(), arms, budget=200, seed=3)
        >>> for _ in range(200):
        ...     a = session.ask()
        ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
        >>> print(sa.plot.daily(session).layout.title.text)
        Estimated reward in each part of the test, by itself
        """
        return self._draw(chart_for("daily", test))

    def allocation(self, test: Test) -> Figure:
        """Which share of the visits each variant got, and where the policy changed its mind.

        Parameters
        ----------
        test : what to draw: a `Session`, an `Experiment`, an `Analysis` or a `Scorecard`

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.allocation``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> session = sa.Session(sa.Steady(), arms, budget=200, seed=3)
        >>> for _ in range(200):
        ...     a = session.ask()
        ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
        >>> print(sa.plot.allocation(session).layout.title.text)
        Which share of the visits each variant got
        """
        return self._draw(chart_for("allocation", test))

    def plausible(self, test: Test) -> Figure:
        """How many variants may be the best, and when the others were ruled out.

        Parameters
        ----------
        test : what to draw: a `Session`, an `Experiment`, an `Analysis` or a `Scorecard`

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.plausible``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> session = sa.Session(sa.Steady(), arms, budget=200, seed=3)
        >>> for _ in range(200):
        ...     a = session.ask()
        ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
        >>> print(sa.plot.plausible(session).layout.title.text)
        How many variants are not ruled out
        """
        return self._draw(chart_for("plausible", test))

    def leaderboard(self, test: Test) -> Figure:
        """Estimates and intervals of the variants, from best to worst.

        Parameters
        ----------
        test : what to draw: a `Session`, an `Experiment`, an `Analysis` or a `Scorecard`

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.leaderboard``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> session = sa.Session(sa.Steady(), arms, budget=200, seed=3)
        >>> for _ in range(200):
        ...     a = session.ask()
        ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
        >>> print(sa.plot.leaderboard(session).layout.title.text)
        Variants from best to worst
        """
        return self._draw(chart_for("leaderboard", test))

    def lifts(self, test: Test) -> Figure:
        """Difference of each variant from the control, for tests that have one.

        Parameters
        ----------
        test : what to draw: a `Session`, an `Experiment`, an `Analysis` or a `Scorecard`

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.lifts``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> session = sa.Session(sa.Steady(), arms, budget=200, seed=3, control="A")
        >>> for _ in range(200):
        ...     a = session.ask()
        ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
        >>> print(sa.plot.lifts(session).layout.title.text)
        Difference of each variant from A
        """
        return self._draw(chart_for("lifts", test))

    def drift(self, test: Test) -> Figure:
        """The lead over the nearest rivals and the level common to all variants over time.

        Parameters
        ----------
        test : what to draw: a `Session`, an `Experiment`, an `Analysis` or a `Scorecard`

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.drift``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> session = sa.Session(sa.Steady(), arms, budget=200, seed=3)
        >>> for _ in range(200):
        ...     a = session.ask()
        ...     session.tell(a, 0.9 if a.name == "B" else 0.4)
        >>> print(sa.plot.drift(session).layout.title.text)
        Did the lead change over time?
        """
        return self._draw(chart_for("drift", test))

    def effects(self, test: Test) -> Figure:
        """What each level of each factor adds, or what each item of bundles brings.

        Parameters
        ----------
        test : what to draw: a `Session`, an `Experiment`, an `Analysis` or a `Scorecard`

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.effects``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.factorial({"button": ["red", "blue"], "text": ["Buy", "Order"]})
        >>> session = sa.Session(sa.Steady(), arms, budget=200, seed=3)
        >>> for _ in range(200):
        ...     a = session.ask()
        ...     session.tell(a, 0.9 if "blue" in a.name else 0.4)
        >>> print(sa.plot.effects(session).layout.title.text)
        What each level adds, on average over all others
        """
        return self._draw(chart_for("effects", test))

    def interactions(self, test: Test) -> Figure:
        """Whether the effect of one factor depends on another, for factorial tests.

        Parameters
        ----------
        test : what to draw: a `Session`, an `Experiment`, an `Analysis` or a `Scorecard`

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.interactions``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.factorial({"button": ["red", "blue"], "text": ["Buy", "Order"]})
        >>> session = sa.Session(sa.Steady(), arms, budget=200, seed=3)
        >>> for _ in range(200):
        ...     a = session.ask()
        ...     session.tell(a, 0.9 if "blue" in a.name else 0.4)
        >>> print(sa.plot.interactions(session).layout.title.text)
        Does the effect of one factor depend on another?
        """
        return self._draw(chart_for("interactions", test))

    def waiting(self, test: Test) -> Figure:
        """How many rewards have come, and how long they took, for live experiments.

        Parameters
        ----------
        test : a live test: an `Experiment` or its `Scorecard`

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.waiting``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> rules = {"reward_range": (0, 1), "reward_window": "1d", "storage": "memory"}
        >>> test = sa.create_experiment("hero", arms, sa.Steady(), budget=100, **rules)
        >>> for visitor in range(50):
        ...     test.tell(test.ask(f"visitor {visitor}"), 1.0)
        >>> print(sa.plot.waiting(test).layout.title.text)
        Have the rewards come?
        """
        return self._draw(chart_for("waiting", test))

    def plan(self, plan: Plan) -> Figure:
        """How often each policy would be wrong, against the number of visits.

        Parameters
        ----------
        plan : what `sa.plan` returned

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.plan``

        Examples
        --------
        >>> import steadyarm as sa
        >>> found = sa.plan({
        ...     "traffic_per_day": 200,
        ...     "arms": {"one_hot": ["A", "B"]},
        ...     "effects": {"smallest_gap": 0.5},
        ...     "rewards": {"sd": 1.0},
        ...     "policies": ["a/b-test"],
        ... }, trials=300)
        >>> print(sa.plot.plan(found).layout.title.text)
        A/B-test: ... visits in 1 day for about 5 % wrong picks
        """
        if not isinstance(plan, Plan):
            raise InvalidInputError(f"plan is {type(plan).__name__}; give what sa.plan() returned.")
        return self._draw(charts.plan(plan))

    def results(self, found: Sequence[Results], title: str = "") -> Figure:
        """How often each policy was wrong, with exact intervals; found by `sa.simulate`.

        Parameters
        ----------
        found : results of simulations, from `sa.simulate`
        title : of the figure; by default what was simulated

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.results``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> world = sa.Environment.from_means(arms, [0.5, 0.3], budget=100)
        >>> found = [sa.simulate(policy, world, trials=100) for policy in (sa.GBAI(), sa.Uniform())]
        >>> print(sa.plot.results(found, title="Two policies").layout.title.text)
        Two policies
        """
        return self._draw(charts.results(found, title))

    def error_against_budget(self, found: Comparison, title: str = "") -> Figure:
        """Probability of error against the budget in each world; found by `sa.compare`.

        Parameters
        ----------
        found : what `sa.compare` returned
        title : of the figure; by default what was compared

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.error_against_budget``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> def still(budget):
        ...     return sa.Environment.from_means(arms, [0.5, 0.3], budget=budget)
        >>> policies = [sa.GBAI(), sa.Uniform()]
        >>> found = sa.compare(policies, {"still": still}, budgets=[50, 100], trials=100)
        >>> print(sa.plot.error_against_budget(found, title="Two policies").layout.title.text)
        Two policies
        """
        return self._draw(charts.error_against_budget(found, title))

    def regret(self, found: Comparison, title: str = "") -> Figure:
        """Simple regret of the recommendation against the budget in each world.

        Parameters
        ----------
        found : what `sa.compare` returned
        title : of the figure; by default what was compared

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.regret``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> def still(budget):
        ...     return sa.Environment.from_means(arms, [0.5, 0.3], budget=budget)
        >>> policies = [sa.GBAI(), sa.Uniform()]
        >>> found = sa.compare(policies, {"still": still}, budgets=[50, 100], trials=100)
        >>> print(sa.plot.regret(found, title="Two policies").layout.title.text)
        Two policies
        """
        return self._draw(charts.regret(found, title))

    def profile(self, found: Comparison, title: str = "") -> Figure:
        """In which share of worlds and budgets a policy errs at most a factor times the best.

        Parameters
        ----------
        found : what `sa.compare` returned
        title : of the figure; by default what was compared

        Returns
        -------
        a figure of Plotly; of matplotlib if called as ``sa.plot.matplotlib.profile``

        Examples
        --------
        >>> import steadyarm as sa
        >>> arms = sa.ArmSet.one_hot(["A", "B"])
        >>> def still(budget):
        ...     return sa.Environment.from_means(arms, [0.5, 0.3], budget=budget)
        >>> policies = [sa.GBAI(), sa.Uniform()]
        >>> found = sa.compare(policies, {"still": still}, budgets=[50, 100], trials=100)
        >>> print(sa.plot.profile(found, title="Two policies").layout.title.text)
        Two policies
        """
        return self._draw(charts.profile(found, title))


def has_rates(test: Seen) -> bool:
    """Whether rewards were declared to be yes or no (1 or 0): means are shown in per cent then.

    A log declares nothing.
    """
    return not isinstance(test, Analysis) and test.settings.reward_range == (0.0, 1.0)


def _allocation(test: Seen) -> Chart:
    shares = _shares(test)
    return charts.allocation(shares, _picked(test, shares.names))


def _daily(test: Seen) -> Chart:
    report = _drift_report(test)
    return charts.daily(report, _picked(test, report.names), has_rates(test))


def _picked(test: Seen, names: Sequence[str]) -> list[int] | None:
    """Those that the chart of estimates draws in colour, if the scorecard has one."""
    if not isinstance(test, Scorecard) or test.course is None:
        return None
    return charts.matched(charts.likely(test.course), test.course.names, names)


CHARTS: dict[str, Callable[[Seen], Chart]] = {
    "estimates": lambda test: charts.estimates(_course(test), rates=has_rates(test)),
    "daily": _daily,
    "allocation": _allocation,
    "plausible": lambda test: charts.plausible(_course(test)),
    "leaderboard": lambda test: charts.leaderboard(*_verdict(test), has_rates(test)),
    "lifts": lambda test: charts.lifts(*_verdict(test), has_rates(test)),
    "drift": lambda test: charts.drift(_drift_report(test), has_rates(test)),
    "effects": lambda test: charts.effects(_effects_of(test), has_rates(test)),
    "interactions": lambda test: charts.interactions(_effects_of(test), has_rates(test)),
    "waiting": lambda test: charts.waiting(_waiting(test)),
}


def _waiting(test: Seen) -> Waiting:
    if not isinstance(test, Scorecard):
        raise InvalidInputError(
            f"a {type(test).__name__} does not know when rewards came; give an Experiment."
        )
    waiting: Waiting = _part(test, "waiting", "rewards to wait for")
    return waiting


def _part(card: Scorecard, name: str, what: str) -> Any:
    """The part of that name of a scorecard; the error says why there is none."""
    if (found := getattr(card, name)) is None:
        policy = card.settings.policy.name
        why = card.obstacle or f"{policy} does not give them, or nothing came yet"
        raise InvalidInputError(f"test {card.name!r} has no {what} to draw: {why.rstrip('.')}.")
    return found


def _course(test: Seen) -> Course:
    if isinstance(test, Session):
        return course_of(test.results(), test.budget)
    if isinstance(test, Analysis):
        return _course_of_log(test)
    course: Course = _part(test, "course", "estimates over time")
    return course


def _course_of_log(found: Analysis) -> Course:
    """A log has no budget: intervals are tightest at its end."""
    evidence, level = found.evidence, found.intervals.level
    at = thinned(evidence.rounds.shape[1], LOOKS)
    path = confidence_path(evidence, int(evidence.played[0]), level, None, at)

    def stacked(name: str) -> Any:
        return np.array([getattr(intervals, name)[0] for intervals in path])

    return Course(
        names=path[0].arms.names,
        times=None,
        leaders=stacked("recommended"),
        level=level,
        size=found.arms.size if path[0].shown is not None else 0,
        **{name: stacked(name) for name in ("rounds", "estimates", "low", "high", "plausible")},
    )


def _shares(test: Seen) -> Shares:
    if isinstance(test, Analysis):
        raise InvalidInputError(
            "an Analysis keeps no counts of each segment; give an Experiment or a Session."
        )
    if isinstance(test, Scorecard):
        shares: Shares = _part(test, "shares", "assignments")
        return shares
    pieces = [piece for piece in test.results().pieces if piece.assigned.sum()]
    if not pieces:
        raise InvalidInputError("nothing was assigned yet; shares need at least one visit.")
    return shares_of(test.arms.names, pieces)


def _drift_report(test: Seen) -> DriftReport:
    if isinstance(test, Scorecard):
        report: DriftReport = _part(test, "drift", "periods to compare")
        return report
    return test.drift() if isinstance(test, Session) else test.drift


def _effects_of(test: Seen) -> Effects:
    arms = test.settings.arms if isinstance(test, Scorecard) else test.arms
    if has_effects(arms):
        if isinstance(test, Scorecard):
            found: Effects = _part(test, "effects", "effects")
            return found
        evidence = test.evidence() if isinstance(test, Session) else test.evidence
        bundle = _verdict(test)[0].arm if bundles_in(arms) is not None else None
        return effects_of(evidence, arm=bundle)
    raise InvalidInputError(
        "the test is neither factorial nor of bundles; effects are of tests with ArmSet.factorial "
        "or ArmSet.bundles only."
    )


def _verdict(test: Seen) -> tuple[Verdict, Sequence[str], Direction]:
    if isinstance(test, Scorecard):
        return _part(test, "verdict", "verdict"), test.names, test.settings.direction
    if isinstance(test, Session):
        return test.recommend(), test.arms.names, test.direction
    return test.verdict, test.arms.names, test.evidence.direction
