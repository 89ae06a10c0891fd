"""You have an idea for a policy. How little must you write, and is it any good?

The idea here: a share of the visitors sees the two variants that lead, the rest sees all alike, and
who leads is decided twenty times in a test. A policy that weighs rewards by inverse propensities
says two things, which allocation comes next and when it ends; estimates that stay unbiased,
intervals, live tests and simulations come with it. You will see it pass the checks that every
policy must pass, and then how much the leaders may get in a world that misleads the hasty.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.environments import switching
from steadyarm.policies.base import rank_arms
from steadyarm.policies.ips import IPSPolicy, IPSState
from steadyarm.testing.policies import CHECKS

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path("steadyarm-examples"), metavar="DIR")
out = parser.parse_args().out


@dataclass(frozen=True)
class TwoLeaders(IPSPolicy[IPSState]):
    """A share of the rounds for the two arms that lead, the rest for all arms alike."""

    name: ClassVar[str] = "Two-Leaders"

    share: float = 0.5
    looks: int = 20

    def allocation(self, state: IPSState) -> NDArray[np.float64]:
        """(n, K) probabilities: one row for each of n tests that are simulated together."""
        leaders = rank_arms(self.estimates(state), state.ties)[:, :2]
        weights = np.full((state.trials, state.arms.size), (1 - self.share) / state.arms.size)
        weights[np.arange(state.trials)[:, None], leaders] += self.share / 2
        return weights

    def segment_end(self, state: IPSState) -> NDArray[np.int64]:
        """(n,) the last round with this allocation."""
        length = max(state.budget // self.looks, 1)
        return np.asarray((state.played // length + 1) * length)


for check in CHECKS:
    check(TwoLeaders())
print(f"{TwoLeaders.name} passes every check.")

# Eight variants; in the first third of the test people want other things than later.
early, late = [0.2, 0.6, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1], [0.7, 0.3, 0.4, 0.3, 0.3, 0.3, 0.2, 0.1]
world = switching(sa.ArmSet.one_hot(list("ABCDEFGH")), [early, late], budget=6000, shares=[1, 2])
print(f"Best over the whole test: {world.arms.names[world.best_arm]}, by {world.gap:.3f}")

# Every policy of this kind can also draw in permuted blocks, which takes away luck.
named: dict[str, sa.Policy[Any]] = {
    "leaders get 3/4": TwoLeaders(share=0.75),
    "leaders get 1/2": TwoLeaders(share=0.5),
    "leaders get 1/4": TwoLeaders(share=0.25),
    "1/4, in blocks": TwoLeaders(share=0.25, order="blocks"),
    "Uniform": sa.Uniform(),
    "Steady": sa.Steady(),
}
found = [
    replace(sa.simulate(policy, world, trials=2000, seed=1), policy=name)
    for name, policy in named.items()
]
for one in found:
    print(f"  {one.policy}: {one.errors} of {one.trials} tests wrong")

out.mkdir(parents=True, exist_ok=True)
sa.plot.results(found).save(out / "05_own_policy.png", ppi=100)
print(f"Picture: {out / '05_own_policy.png'}")
