"""Six of thirty articles fit on the start page: which six are read most, of 593,775 bundles?

Nobody can try half a million bundles. But bundles are made of articles, and a visitor who sees six
of them says something about every bundle that has one of these. So the test shows a few hundred
bundles that tell articles apart, and judges all of them. It starts on a Saturday, and at weekends
people read other things. You will see the best bundle and what each article brings.
"""

import argparse
from pathlib import Path

import altair as alt
import numpy as np

import steadyarm as sa
from steadyarm.live.effects import compute_effects

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("steadyarm-examples"), metavar="DIR")
out = parser.parse_args().out

articles = [
    "budget", "cartoon", "chess", "climate", "concert", "cycling", "editorial", "election", "film",
    "football", "garden", "harbour", "health", "hiking", "hospital", "letters", "museum", "phones",
    "quiz", "recipes", "rents", "schools", "space", "startups", "stocks", "storm", "trains",
    "travel", "wages", "weddings",
]  # fmt: skip
bundles = sa.ArmSet.bundles(articles, size=6, interactions=1)

# What only an example can know: how often a visitor reads each article that is shown.
liked = {"election": 26, "storm": 24, "trains": 22, "rents": 21, "hospital": 20, "climate": 19}
leisure = ("concert", "cycling", "film", "football", "garden", "recipes")
weekday = np.array([liked.get(name, 4 + k % 7) for k, name in enumerate(articles)]) / 100
at_leisure = np.array([name in leisure for name in articles])
weekend = np.where(at_leisure, weekday + 0.18, 0.8 * weekday)
rates = np.array([weekend if day % 7 < 2 else weekday for day in range(14)])
visits_per_day = 2000

# The test. The reward of a visit is how many of the six were read. With so many bundles so near to
# each other one good allocation for all does better than one that turns to the leaders.
policy = sa.GBAI(order="blocks")
test = sa.Session(policy, bundles, budget=14 * visits_per_day, seed=1)
luck = np.random.default_rng(1)
number_of = {name: k for k, name in enumerate(articles)}
for visit in range(test.budget):
    shown = test.ask()
    six = [number_of[name] for name in shown.name.split(" + ")]
    test.tell(shown, (luck.random(6) < rates[visit // visits_per_day, six]).sum())

verdict = test.recommend()
chosen = verdict.name.split(" + ")
best = [articles[k] for k in np.argsort(-rates.mean(axis=0))[:6]]
print(f"Variants: {bundles.size:,} bundles of {len(articles)} articles")
print("Verdict:", verdict)
print(f"Truly best: {' + '.join(best)}; {len(set(chosen) & set(best))} of 6 were found")

# The picture: how much more is read if an article is among the six than if it is not.
brings = compute_effects(test.evidence(), arm=verdict.arm)
rate = rates.mean(axis=0)
truth = rate - (rate.sum() - rate) / 29  # another article has its place otherwise
true = [{"label": name, "truth": float(truth[k])} for k, name in enumerate(articles)]
ticks = alt.Chart({"values": true}).mark_tick(color="black", thickness=2)
ticks = ticks.encode(x="truth:Q", y=alt.Y("label:N", sort=None))
out.mkdir(parents=True, exist_ok=True)
(sa.plot.effects(test) + ticks).save(out / "03_best_six_of_thirty.png", ppi=100)
print(f"Picture: {out / '03_best_six_of_thirty.png'}")
