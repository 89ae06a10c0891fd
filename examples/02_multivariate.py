"""Sixteen layouts of one page: which is best, and which of its parts make it so?

Headline, image, button and price have two versions each, which makes 16 layouts. A test that takes
them as 16 strangers learns of each from a sixteenth of the visits. A factorial test learns of every
part, and every pair of parts, from all of them. The test runs over two weeks that begin with a
weekend, when other people come. You will see the best layout, what each part adds, and how many
tests go wrong if the parts are forgotten, or if layouts are dropped early, as Peace does.
"""

import argparse
from pathlib import Path

import numpy as np

import steadyarm as sa
from steadyarm.environments import weekday_weekend

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("steadyarm-examples"), metavar="DIR")
out = parser.parse_args().out

layouts = sa.ArmSet.factorial(
    {
        "headline": ["short", "long"],
        "image": ["product", "people"],
        "button": ["green", "orange"],
        "price": ["hidden", "shown"],
    }
)

# What only an example can know: what parts and pairs add to the click rate, or take from it.
effects = {  # on a weekday, at the weekend
    "(constant)": (0.140, 0.200),
    "headline=long": (0.030, -0.030),
    "image=people": (0.035, -0.030),
    "button=orange": (0.020, 0.005),
    "price=shown": (-0.015, 0.000),
    "headline=long:image=people": (0.015, 0.000),
}
weekday, weekend = np.array([effects.get(name, (0, 0)) for name in layouts.feature_names]).T
noise = sa.BernoulliReward()
world = weekday_weekend(layouts, weekday, weekend, visits_per_day=2000, noise=noise)

# The test: one visitor after the other, 14 days from a Saturday on.
session = sa.Session(sa.Steady(), layouts, world.budget, seed=1)
luck = np.random.default_rng(1).random(world.budget)
for visit in range(world.budget):
    shown = session.ask()
    session.tell(shown, luck[visit] < world.means[visit, shown.arm])
print("Verdict:", session.recommend())
print("The best there is:", layouts.names[world.best_arm])

# The same visits again and again: knowing the parts, or taking layouts for 16 strangers.
strangers = sa.ArmSet.one_hot(list(layouts.names))
apart = sa.Environment.from_means(strangers, world.means, noise)
for policy in (sa.Steady(), sa.Uniform(), sa.Peace()):
    together = sa.simulate(policy, world, trials=500, seed=1)
    alone = sa.simulate(policy, apart, trials=500, seed=1)
    print(
        f"{policy.name}: of {together.trials} tests {together.errors} wrong knowing the parts, "
        f"{alone.errors} as {strangers.size} strangers"
    )

out.mkdir(parents=True, exist_ok=True)
sa.plot.effects(session).save(out / "02_multivariate.png", ppi=100)
print(f"Picture: {out / '02_multivariate.png'}")
