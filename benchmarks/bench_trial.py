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
from steadyarm.policies import POLICIES


def soare(budget: int, moving: bool) -> sa.Environment:
    """Soare's arms (d = 10); still, or with an oscillating last parameter."""
    omega = 0.5 if moving else 0.1
    tilted = np.zeros(10)
    tilted[:2] = np.cos(omega), np.sin(omega)
    arms = sa.ArmSet.from_features(np.vstack([np.eye(10), tilted]))
    if not moving:
        return sa.Environment.from_parameters(arms, 2.0 * np.eye(10)[0], budget=budget)
    thetas = np.tile(0.3 * np.eye(10)[0], (budget, 1))
    thetas[:, 9] = 0.5 - 3.0 * np.sin(2 * np.pi * np.arange(budget) / 200)
    return sa.Environment.from_parameters(arms, thetas)


def layouts(budget: int) -> sa.Environment:
    """Sixteen layouts (d = 11) whose effects oscillate."""
    arms = sa.ArmSet.factorial({f"slot {j}": ["-", "+"] for j in range(4)})
    rng = np.random.default_rng(0)
    theta = rng.uniform(-0.1, 0.1, arms.dimension)
    phases = rng.uniform(0, 2 * np.pi, arms.dimension)
    wave = np.sin(2 * np.pi * np.arange(budget)[:, None] / 900 + phases)
    return sa.Environment.from_parameters(arms, theta + 0.2 * wave, sa.GaussianNoise(0.3))


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
        "Soare still, T=5010": soare(5010, moving=False),
        "Soare moving, T=10000": soare(10_000, moving=True),
        "layouts moving, T=10000": layouts(10_000),
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
    world = soare(1000, moving=True)
    took = seconds(lambda: sa.simulate(sa.P1(), world, trials=1024, jobs=1)) / 1024
    print(f"P1 (a new allocation every round), T=1000: {took / floor(1000):.1f} floors")


if __name__ == "__main__":
    main()
