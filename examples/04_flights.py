"""Which airline at which airport of New York was most often on time in 2013? Real data.

The rewards are arrivals of 325,343 real flights of 24 pairs of airline and airport. A test of a
year asks 50,000 times, spread evenly over the days: how was a flight of this pair on this day?
The leader of the first months is not the winner of the year, which misleads whoever drops arms for
good. You will see who led when, one test, and how often each policy names the wrong winner.
Needs the extra `flights`: pip install 'steadyarm[plots,flights]'.
"""

import argparse
from datetime import datetime, timedelta
from pathlib import Path

import altair as alt
import numpy as np

import steadyarm as sa
from steadyarm.paper import flights_world, load_flights

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
dates = [datetime(2013, 1, 1) + timedelta(days=day - 1) for day in days.tolist()]
top = np.argsort(-flights.average)[:4].tolist()
rows = [
    {
        "date": date.isoformat(),
        "arm": name,
        "on time": share[k],
        "who": name if k in top else "20 others",
    }
    for date, share in zip(dates, so_far.tolist(), strict=True)
    for k, name in enumerate(flights.arms.names)
]
order = [flights.arms.names[k] for k in top] + ["20 others"]
colors = alt.Scale(domain=order, range=["#1F7FC4", "#D9620A", "#0A9470", "#BD5C95", "#dddddd"])
year = alt.Chart({"values": rows}, width=640, title="Who led when").mark_line()
year = year.encode(
    x=alt.X("date:T", title=None),
    y=alt.Y("on time:Q", title="on time, year so far", scale=alt.Scale(zero=False)),
    color=alt.Color("who:N", scale=colors, legend=alt.Legend(orient="bottom", title=None)),
    detail="arm:N",
)
chart = alt.vconcat(year, sa.plot.results(found)).resolve_scale(color="independent")

out.mkdir(parents=True, exist_ok=True)
chart.save(out / "04_flights.png", ppi=100)
print(f"Picture: {out / '04_flights.png'}")
