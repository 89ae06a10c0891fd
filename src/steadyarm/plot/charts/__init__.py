"""The data step: what each chart shows, as plain numbers; no drawing library is needed."""

from steadyarm.plot.charts.allocation import allocation
from steadyarm.plot.charts.daily import daily
from steadyarm.plot.charts.drift import drift
from steadyarm.plot.charts.effects import effects
from steadyarm.plot.charts.estimates import estimates, likely
from steadyarm.plot.charts.interactions import interactions
from steadyarm.plot.charts.leaderboard import leaderboard
from steadyarm.plot.charts.picks import matched
from steadyarm.plot.charts.plan import plan
from steadyarm.plot.charts.plausible import plausible
from steadyarm.plot.charts.results import results
from steadyarm.plot.charts.waiting import waiting

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
