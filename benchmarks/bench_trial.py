"""How long does one simulated trial take, in units of its own random numbers?

The floor is one `Generator.random` and one `Generator.standard_normal` per round, drawn in bulk
and timed in the same run, both in processor time. A ratio of 1 means: as quick as merely drawing a
uniform and a normal number for every round.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import steadyarm as sa
from steadyarm.designs import forget_designs
from steadyarm.environments import (
    published_multivariate,
    soare_oscillating,
    soare_stationary,
)
from steadyarm.policies import POLICIES


def floor(rounds: int) -> float:
    """Seconds to draw a uniform and a normal number for every round, best of five."""
    rng = np.random.default_rng(0)
    draws = 2_000_000

    def draw() -> None:
        rng.random(draws)
        rng.standard_normal(draws)

    return min(seconds(draw) for _ in range(5)) * rounds / draws


def seconds(work: Callable[[], Any]) -> float:
    """Processor time, which other programs disturb less."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=4096, help="of each policy")
    trials: int = parser.parse_args().trials
    worlds = {
        "Soare still, T=5010": soare_stationary(5010),
        "Soare moving, T=10000": soare_oscillating(scale=3, period=200),
        "layouts moving, T=10000": published_multivariate("period", 900),
    }
    alone = {"P1", "Linear-Thompson", "Top-Two-Thompson"}  # many more decisions: timed apart
    names = [name for name in POLICIES if name not in alone]
    print(f"Time of one trial in random-number floors: {trials} trials, one thread.")
    print("'cold' includes every design, solved for the first time; 'warm' has them remembered.\n")
    print(f"{'world':<26}{'policy':<14}{'floor µs':>9}{'cold':>9}{'warm':>9}")
    ratios = []
    for label, world in worlds.items():
        base = floor(world.budget)
        for name in names:
            policy = POLICIES[name]()
            sa.simulate(policy, world, trials=2, jobs=1)  # compile
            forget_designs()

            def run(policy: sa.Policy[Any] = policy, world: sa.Environment = world) -> None:
                sa.simulate(policy, world, trials=trials, seed=1, jobs=1)

            cold, warm = seconds(run) / trials, seconds(run) / trials
            ratios.append(cold / base)
            print(f"{label:<26}{name:<14}{base * 1e6:9.1f}{cold / base:9.2f}{warm / base:9.2f}")
    print(f"\nmean of 'cold' over all rows: {np.mean(ratios):.2f} floors")
    world = soare_oscillating(scale=3, period=200, budget=1000)
    took = seconds(lambda: sa.simulate(sa.P1(), world, trials=1024, jobs=1)) / 1024
    print(f"P1 (a new allocation every round), T=1000: {took / floor(1000):.1f} floors")


if __name__ == "__main__":
    main()
