"""Pictures of a test: each function returns a figure of Plotly.

`test` is an experiment, its scorecard, a session or an analysis. Functions of the same names in
`steadyarm.plot.matplotlib` return figures of matplotlib, to print. Neither library is imported
before it is needed. `steadyarm.plot.charts` finds what is drawn, as plain numbers.

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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from steadyarm.plot import charts as charts
from steadyarm.plot.plotly import figure_of
from steadyarm.plot.sources import Drawings

if TYPE_CHECKING:
    from steadyarm.plot import matplotlib

__all__ = [
    "allocation", "daily", "drift", "effects", "error_against_budget", "estimates", "interactions",
    "leaderboard", "lifts", "matplotlib", "plan", "plausible", "profile", "regret", "results",
    "waiting",
]  # fmt: skip  # a table reads better so

_DRAWINGS = Drawings(figure_of)
estimates, daily, allocation = _DRAWINGS.estimates, _DRAWINGS.daily, _DRAWINGS.allocation
plausible, leaderboard, drift = _DRAWINGS.plausible, _DRAWINGS.leaderboard, _DRAWINGS.drift
effects, interactions, waiting = _DRAWINGS.effects, _DRAWINGS.interactions, _DRAWINGS.waiting
lifts, plan, results = _DRAWINGS.lifts, _DRAWINGS.plan, _DRAWINGS.results
error_against_budget, profile = _DRAWINGS.error_against_budget, _DRAWINGS.profile
regret = _DRAWINGS.regret


def __getattr__(name: str) -> Any:
    """`steadyarm.plot.matplotlib`, imported when it is asked for: it takes its time."""
    if name != "matplotlib":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("steadyarm.plot.matplotlib")
