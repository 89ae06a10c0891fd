"""Which of four shop pages sells most, if a promotion in week two changes who comes?

The shop runs a promotion every other week, so an ordinary week and one with a promotion make a
fair test. Ordinary visitors like photos. The promotion brings people who look for the price, and
buy more whatever they see. You will see the verdict over both weeks, whether the log is sound and
what moved, and how often each way of testing is wrong.
"""

import argparse
import random
from pathlib import Path

import numpy as np

import steadyarm as sa

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("steadyarm-examples"), metavar="DIR")
out = parser.parse_args().out

# What only an example can know: the share of visitors who buy, page by page.
ordinary = {"standard": 0.070, "photos": 0.125, "reviews": 0.085, "price first": 0.040}
promotion = {"standard": 0.140, "photos": 0.165, "reviews": 0.175, "price first": 0.220}
week = 14_000  # visitors

# The test: ask which page to show, show it, tell whether the visitor bought. The zeros count too.
session = sa.Session(sa.Steady(), sa.ArmSet.one_hot(list(ordinary)), budget=2 * week, seed=1)
visitors = random.Random(1)
for visit in range(2 * week):
    shown = session.ask()
    shares = ordinary if visit < week else promotion
    session.tell(shown, visitors.random() < shares[shown.name])

print("Verdict:", session.recommend())
print("Drift:", session.drift(periods=2).verdict)
print(session.health())

# Luck? The same test a thousand times: with Steady, with an equal split, with the better half of
# the pages kept for week two, and with Thompson sampling, which follows whoever sells now.
means = np.repeat([list(ordinary.values()), list(promotion.values())], week, axis=0)
world = sa.Environment.from_means(session.arms, means, sa.BernoulliReward())
print(f"Best over both weeks is {world.arms.names[world.best_arm]}. Wrong verdicts:")
for policy in (sa.Steady(), sa.Uniform(), sa.SequentialHalving(), sa.TopTwoThompson()):
    found = sa.simulate(policy, world, trials=1000, seed=1)
    print(f"  {found.policy}: {found.errors} of {found.trials}")

out.mkdir(parents=True, exist_ok=True)
sa.plot.drift(session).save(out / "01_ab_test.png", ppi=100)
print(f"Picture: {out / '01_ab_test.png'}")
