"""How often does the lack-of-fit test doubt a model that is right, and one that is wrong?

Twelve combinations of two, three and two choices and sixteen layouts, whose effects add up: the
share of tests with a p-value below 5, 1 (a warning) and 0.1 % (a failure), where nothing moves
and where level and effects move; the share with a warning at any of ten looks; and the share of
failures where one pair of choices brings 0.2 more than it should. PASS if no rate of false
alarms is above its level (exact 99.9 % intervals), and that over ten looks not above 5 %.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

import steadyarm as sa
from benchmarks.how_alert_is_drift import POLICIES, play
from steadyarm.inference import lack_of_fit_p_values
from steadyarm.segments import Segment, SegmentStats

Floats = NDArray[np.float64]
LEVELS = (0.05, 0.01, 0.001)
LOOKS = 10
SETS = {
    "12 combinations": {"a": ["0", "1"], "b": ["0", "1", "2"], "c": ["0", "1"]},
    "16 layouts": {name: ["0", "1"] for name in "abcd"},
}


def world(arms: sa.ArmSet, course: str, budget: int, pair: float = 0.0) -> sa.Environment:
    """Effects that add up but for a pair; constant, or with a wave and a shock."""
    on = np.array([[1, "a=1" in arm, "b=1" in arm, "c=1" in arm] for arm in arms.names], float)
    base = on @ [0.3, 0.1, -0.05, 0.2] + pair * on[:, 1] * on[:, 2]
    t = np.arange(budget) / budget
    moves = np.stack([0.3 * np.sin(20 * t), 0.4 * np.sin(9 * t), -0.6 * (t > 0.6), 0.5 * t], axis=1)
    means = base + (moves @ on.T if course == "moves" else np.zeros((budget, 1)))
    return sa.Environment.from_means(arms, means, sa.GaussianNoise(0.5))


def at_looks(arms: sa.ArmSet, log: list[tuple[Segment, SegmentStats]]) -> NDArray[np.bool_]:
    """(n,) whether there is a warning at any look."""
    cried = np.zeros(log[0][0].trials, dtype=bool)
    for look in range(1, LOOKS + 1):
        cried |= lack_of_fit_p_values(arms, log[: max(len(log) * look // LOOKS, 1)]) < LEVELS[1]
    return cried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=2000, help="in each row")
    tests: int = parser.parse_args().tests
    passed = True

    def rate(found: NDArray[np.bool_], level: float) -> str:
        nonlocal passed
        hits = int(found.sum())
        passed &= bool(binomtest(hits, tests).proportion_ci(0.999).low <= level)
        return f"{hits / tests:>9.4f}"

    heads = "".join(f"{f'< {level:g}':>9}" for level in LEVELS)
    print(f"Share of {tests:,} tests.\n")
    print(
        f"{'set':<17}{'world':<8}{'policy':<21}{'rounds':>6}{heads}{'ten looks':>11}{'a pair':>8}"
    )
    for name, factors in SETS.items():
        arms = sa.ArmSet.factorial(factors, interactions=1)
        for budget in (600, 4200):
            for course in ("still", "moves"):
                for label, policy in POLICIES.items():
                    log = play(policy, world(arms, course, budget), tests)
                    p = lack_of_fit_p_values(arms, log)
                    cells = "".join(rate(p < level, level) for level in LEVELS)
                    cells += f"{rate(at_looks(arms, log), 0.05):>11}"
                    few = play(policy, world(arms, course, budget, 0.2), max(tests // 4, 1))
                    power = (lack_of_fit_p_values(arms, few) < LEVELS[-1]).mean()
                    row = f"{name:<17}{course:<8}{label:<21}{budget:>6}{cells}{power:>8.3f}"
                    print(row, flush=True)
    print(f"\nno rate of false alarms above its level: {'PASS' if passed else 'MISS'}")


if __name__ == "__main__":
    main()
