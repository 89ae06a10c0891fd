"""The data step: what each chart shows, as plain numbers; no drawing library is needed."""

from steadyarm.plot.charts.common import matched
from steadyarm.plot.charts.comparisons import effects, interactions, plan, results
from steadyarm.plot.charts.days import daily, drift, waiting
from steadyarm.plot.charts.progress import allocation, estimates, likely, plausible
from steadyarm.plot.charts.standings import leaderboard, lifts
from steadyarm.plot.charts.sweeps import error_against_budget, profile, regret

__all__ = [
    "allocation",
    "daily",
    "drift",
    "effects",
    "error_against_budget",
    "estimates",
    "interactions",
    "leaderboard",
    "lifts",
    "likely",
    "matched",
    "plan",
    "plausible",
    "profile",
    "regret",
    "results",
    "waiting",
]
