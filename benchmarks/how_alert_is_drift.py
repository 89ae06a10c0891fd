"""How often does the drift report see drift where there is none, and how soon where there is?

For each policy, world and budget: the rate of p-values below 5 % and 1 % of the test for moving
gaps and of the test for a shift common to all arms. In the worlds that move, the first arm loses
0.2 or all arms gain 0.2 in the second half. PASS if no rate of a test for something that does
not move is above its level (exact 99.9 % intervals).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

import steadyarm as sa
from steadyarm.inference.drift import drift_p_values
from steadyarm.inference.evidence import Evidence

FIVE = sa.ArmSet.one_hot(list("ABCDE"))
LAYOUTS = sa.ArmSet.factorial({name: ["off", "on"] for name in "abcd"})
POLICIES: tuple[sa.Policy[Any], ...] = (sa.P1RAGE(), sa.Steady())
LEVELS = (0.05, 0.01)


def world(kind: str, budget: int) -> sa.Environment:
    """Five numbers, five rare clicks or sixteen layouts, which may move at half time."""
    if kind == "clicks":
        rates = [0.05, 0.04, 0.04, 0.03, 0.02]
        return sa.Environment.from_means(FIVE, rates, sa.BernoulliReward(), budget=budget)
    if kind == "layouts":
        theta = np.random.default_rng(0).uniform(-0.2, 0.2, LAYOUTS.dimension)
        return sa.Environment.from_parameters(LAYOUTS, theta, sa.GaussianNoise(0.5), budget=budget)
    base = np.array([0.5, 0.4, 0.3, 0.2, 0.1])
    shift = {"numbers": 0.0, "all gain": 0.2, "A loses": np.array([-0.2, 0, 0, 0, 0])}[kind]
    means = np.repeat([base, base + shift], [budget // 2, budget - budget // 2], axis=0)
    return sa.Environment.from_means(FIVE, means, sa.GaussianNoise(0.5))


def p_values(
    policy: sa.Policy[Any], where: sa.Environment, tests: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of the gaps and of the common shift, in four periods."""
    rng, log = np.random.default_rng(1), []
    state = policy.start(where.arms, where.budget, tests, seed=1)
    while (segment := policy.next_segment(state)) is not None:
        stats = where.play(segment, state.played, rng, squares=True)
        state = policy.observe(state, segment, stats)
        log.append((segment, stats))
    return drift_p_values(Evidence.from_segments(where.arms, log), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=2000, help="in each row")
    tests: int = parser.parse_args().tests
    print(f"Rates of p-values below a level in {tests} tests, four periods.\n")
    heads = "".join(
        f"{f'{what} {level:.0%}':>10}" for what in ("gaps", "common") for level in LEVELS
    )
    print(f"{'world':<10}{'policy':<10}{'rounds':>8}{heads}")
    passed = True
    for kind in ("numbers", "clicks", "layouts", "all gain", "A loses"):
        for budget in (600, 4200):
            for policy in POLICIES:
                gaps, common = p_values(policy, world(kind, budget), tests)
                rates = []
                for p, moves in (
                    (gaps, kind == "A loses"),
                    (common, kind in ("all gain", "A loses")),
                ):
                    for level in LEVELS:
                        hits = int((p < level).sum())
                        rates.append(hits / tests)
                        low = binomtest(hits, tests).proportion_ci(0.999).low
                        passed &= bool(moves or low <= level)
                cells = "".join(f"{rate:10.4f}" for rate in rates)
                print(f"{kind:<10}{policy.name:<10}{budget:>8}{cells}", flush=True)
    print(f"\nno false alarm above its level: {'PASS' if passed else 'MISS'}")


if __name__ == "__main__":
    main()
