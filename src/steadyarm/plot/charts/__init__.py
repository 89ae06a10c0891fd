"""The data step: what each chart shows, as plain numbers; no drawing library is needed."""

from steadyarm.plot.charts.common import matched
from steadyarm.plot.charts.comparisons import effects, interactions, leaderboard, plan, results
from steadyarm.plot.charts.days import daily, drift, waiting
from steadyarm.plot.charts.progress import allocation, estimates, likely, plausible

__all__ = [
    "allocation",
    "daily",
    "drift",
    "effects",
    "estimates",
    "interactions",
    "leaderboard",
    "likely",
    "matched",
    "plan",
    "plausible",
    "results",
    "waiting",
]
