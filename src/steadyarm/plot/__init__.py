"""Pictures of a test: each function returns a figure of Plotly.

`test` is an experiment, its scorecard, a session or an analysis. Functions of the same names in
`steadyarm.plot.matplotlib` return figures of matplotlib, to print. Neither library is imported
before something is drawn. `steadyarm.plot.charts` finds what is drawn, as plain numbers.

Examples
--------
>>> import steadyarm as sa
>>> session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(["A", "B"]), budget=500, seed=3)
>>> for _ in range(500):
...     a = session.ask()
...     session.tell(a, 0.9 if a.name == "B" else 0.4)
>>> figure = sa.plot.leaderboard(session)
>>> figure.data[0].name, figure.layout.title.text
('leads', 'Variants from best to worst')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steadyarm.planning import Plan
from steadyarm.plot import charts, matplotlib
from steadyarm.plot.plotly import figure_of
from steadyarm.plot.sources import Test, chart_for, chart_of_plan
from steadyarm.simulation import Results

__all__ = [
    "allocation",
    "daily",
    "drift",
    "effects",
    "estimates",
    "interactions",
    "leaderboard",
    "matplotlib",
    "plan",
    "plausible",
    "results",
    "waiting",
]


def estimates(test: Test) -> Any:
    """How the estimate of each variant settled, with the intervals of the leading ones."""
    return figure_of(chart_for("estimates", test))


def daily(test: Test) -> Any:
    """Estimates of each day, or part of the test, by itself."""
    return figure_of(chart_for("daily", test))


def allocation(test: Test) -> Any:
    """Which share of the visits each variant got, and where the policy changed its mind."""
    return figure_of(chart_for("allocation", test))


def plausible(test: Test) -> Any:
    """How many variants can still win, and how long the others could."""
    return figure_of(chart_for("plausible", test))


def leaderboard(test: Test) -> Any:
    """Estimates and intervals of the variants, from best to worst."""
    return figure_of(chart_for("leaderboard", test))


def drift(test: Test) -> Any:
    """The lead over the nearest rivals and the level common to all, by day or part of the test."""
    return figure_of(chart_for("drift", test))


def effects(test: Test) -> Any:
    """What each level of each factor adds, or what each item of bundles brings."""
    return figure_of(chart_for("effects", test))


def interactions(test: Test) -> Any:
    """Whether the effect of one factor depends on another, for factorial tests."""
    return figure_of(chart_for("interactions", test))


def waiting(test: Test) -> Any:
    """How many rewards have come, and how long they took, for live experiments."""
    return figure_of(chart_for("waiting", test))


def plan(plan: Plan) -> Any:
    """How often each policy would be wrong, against the number of visits."""
    return figure_of(chart_of_plan(plan))


def results(found: Sequence[Results], title: str = "") -> Any:
    """How often each policy was wrong, with exact intervals, from what `sa.simulate` returned."""
    return figure_of(charts.results(found, title))
