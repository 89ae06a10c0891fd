"""Which airline at which airport of New York was most often on time in 2013? Real data.

The rewards are arrivals of 325,343 real flights of 24 pairs of airline and airport. A test of a
year asks 50,000 times, spread evenly over the days: how was a flight of this pair on this day?
The leader of the first months is not the winner of the year, which misleads whoever drops arms for
good. You will see who led when, one test, and how often each policy names the wrong winner.
Needs the extra `flights`: pip install 'steadyarm[plots,flights]'.
"""

import argparse
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

import steadyarm as sa
from steadyarm.paper import flights_world, load_flights
from steadyarm.plot import charts
from steadyarm.plot.chart import Axis, Panel, Series

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("steadyarm-examples"), metavar="DIR")
out = parser.parse_args().out

flights = load_flights()
print(f"Winner of the year: {flights.best_arm}, by {100 * flights.gap:.1f} points.")
print("Leaders of single months:", ", ".join(dict.fromkeys(flights.leaders)))

# One test. What the policy sees is whether a flight of that day, drawn at random, was on time.
world = flights_world(budget=50_000, flights=flights)
session = sa.Session(sa.Steady(), world.arms, world.budget, seed=1)
luck = np.random.default_rng(1).random(world.budget)
for question in range(world.budget):
    asked = session.ask()
    session.tell(asked, luck[question] < world.means[question, asked.arm])
print("Verdict:", session.recommend())

# The same year many times. Peace and OD-LinBAI drop arms for good; the others keep all of them.
policies = (sa.Steady(), sa.P1RAGE(), sa.Uniform(), sa.ODLinBAI(), sa.Peace())
found = [sa.simulate(policy, world, trials=400, seed=1) for policy in policies]
for one in found:
    print(f"  {one.policy}: {one.errors} of {one.trials} tests wrong")

# The picture: who was on time in the year so far, week by week, above how often policies are wrong.
days = np.arange(28, 366, 7)
so_far = np.cumsum(flights.shares, axis=0)[days - 1] / days[:, None]
dates = tuple(datetime(2013, 1, 1) + timedelta(days=day - 1) for day in days.tolist())
top = np.argsort(-flights.average)[:4].tolist()
lines = [
    Series(name, dates, so_far[:, k], color=top.index(k))
    if k in top
    else Series("20 others", dates, so_far[:, k], color=None)
    for k, name in enumerate(flights.arms.names)
]
on_time = Axis("on time, year so far", percent=True)
year = Panel(Axis("", "time"), on_time, tuple(lines), "Who led when", y_range=(0.35, 0.85))
chart = charts.results(found, "New York's flights of 2013, and tests of that year")
below = replace(chart.panels[0], title="How often each policy is wrong")
chart = replace(chart, panels=(year, below))

out.mkdir(parents=True, exist_ok=True)
sa.plot.matplotlib.draw(chart).savefig(out / "04_flights.png", dpi=100)
print(f"Picture: {out / '04_flights.png'}")
