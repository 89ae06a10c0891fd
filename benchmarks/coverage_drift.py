"""How often does the drift report see drift where there is none, and how soon where there is?

The share of tests in which anything is called moving at the 5 % level: tested once, at the end,
and at the milestones of a test that is looked at after every piece. Where something moves (at half
time one variant loses, one effect or the average of all grows): how often the gaps are called
moving. PASS if no rate of false alarms is above 5 % (exact 99.9 % intervals).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

import steadyarm as sa
from steadyarm.inference.drift import drift_p_values
from steadyarm.inference.evidence import Evidence
from steadyarm.segments import Segment, SegmentStats

Floats = NDArray[np.float64]
PIECES = 40  # into which the single segment of G-BAI is cut
SWITCHES = {name: ["off", "on"] for name in "abcd"}
SETS = {
    "2 arms": sa.ArmSet.one_hot(list("AB")),
    "5 arms": sa.ArmSet.one_hot(list("ABCDE")),
    "20 arms": sa.ArmSet.one_hot([f"arm {k}" for k in range(20)]),
    "16 layouts": sa.ArmSet.factorial(SWITCHES, interactions=1),
    "with pairs": sa.ArmSet.factorial(SWITCHES),
}
POLICIES: dict[str, sa.Policy[Any]] = {
    "Steady": sa.Steady(),
    "P1-RAGE": sa.P1RAGE(),
    "G-BAI": sa.GBAI(),
    "G-BAI, blocks of 11": sa.GBAI(order="blocks", block=11),
}


def base_of(arms: sa.ArmSet) -> Floats:
    """Values from 0 to 1 that follow the model."""
    values = arms.coordinates @ np.random.default_rng(3).uniform(-0.5, 0.5, arms.rank)
    return np.asarray((values - values.min()) / np.ptp(values))


def world(arms: sa.ArmSet, rewards: str, budget: int, change: Floats | float = 0) -> sa.Environment:
    """Numbers from 0.1 to 0.5 with noise 0.5, or clicks of 2 to 6 %; a change at half time."""
    numbers = rewards == "numbers"
    means = 0.1 + 0.4 * base_of(arms) if numbers else 0.02 + 0.04 * base_of(arms)
    course = np.repeat([means, means + change], [budget // 2, budget - budget // 2], axis=0)
    noise = sa.GaussianNoise(0.5) if numbers else sa.BernoulliReward()
    return sa.Environment.from_means(arms, course, noise)


def play(
    policy: sa.Policy[Any], where: sa.Environment, tests: int, seed: int = 1
) -> list[tuple[Segment, SegmentStats]]:
    """The pieces of a batch of tests; a segment of more than a fifth of the test is cut."""
    rng, log = np.random.default_rng(seed), []
    state = policy.start(where.arms, where.budget, tests, seed=seed)
    while (segment := policy.next_segment(state)) is not None:
        rounds, total = int(segment.rounds.max()), SegmentStats.empty(tests, where.arms.size)
        length = rounds
        if rounds > where.budget // 2:
            length = max(rounds // PIECES // segment.block, 1) * segment.block
        for start in range(0, rounds, length):
            piece = replace(segment, rounds=np.clip(segment.rounds - start, 0, length))
            stats = where.play(piece, state.played + start, rng, squares=True)
            log.append((piece, stats))
            total = total + stats
        state = policy.observe(state, segment, total)
    return log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=2000, help="in each row")
    parser.add_argument("--level", type=float, default=0.05, help="error probability of an alarm")
    asked = parser.parse_args()
    tests, level = asked.tests, asked.level
    passed, worst = True, 0.0

    def rate(hits: int, promised: bool = True) -> str:
        nonlocal passed, worst
        interval = binomtest(hits, tests).proportion_ci(0.999)
        passed &= not promised or interval.low <= level
        worst = max(worst, hits / tests if promised else 0.0)
        return f"{hits / tests:8.4f} [{interval.low:.4f}, {interval.high:.4f}]"

    print(f"Nothing moves: share of {tests:,} tests with an alarm at {level:.0%}.\n")
    print(f"{'world':<22}{'policy':<21}{'rounds':>6}{'once, at the end':>25}{'at all looks':>25}")
    for name, arms in SETS.items():
        for rewards in ("numbers", "clicks"):
            for budget in (600, 4200):
                for label, policy in POLICIES.items():
                    log = play(policy, world(arms, rewards, budget), tests)
                    evidence = Evidence.from_segments(arms, log)
                    once = np.minimum(*drift_p_values(evidence)) < level
                    looks = np.minimum(*drift_p_values(evidence, budget=budget)) < level
                    cells = f"{rate(int(once.sum())):>25}{rate(int(looks.sum())):>25}"
                    print(f"{f'{name}, {rewards}':<22}{label:<21}{budget:>6}{cells}", flush=True)
    print("\nSomething moves: share of tests in which the gaps are called moving.\n")
    print(f"{'change':<22}{'policy':<21}{'rounds':>6}{'once':>9}{'looks':>9}")
    on = np.array(["a=on" in arm for arm in SETS["with pairs"].names], dtype=np.float64)
    for what, name, change in (
        ("1 of 5 loses 0.2", "5 arms", -0.2 * np.eye(5)[0]),
        ("1 of 20 loses 0.4", "20 arms", -0.4 * np.eye(20)[0]),
        ("layouts: a gains 0.15", "16 layouts", 0.15 * on),
        ("pairs: a gains 0.15", "with pairs", 0.15 * on),
        ("all of 5 gain 0.2", "5 arms", 0.2),
    ):
        for budget in (600, 4200):
            for label, policy in POLICIES.items():
                arms = SETS[name]
                few = max(tests // 4, 1)
                evidence = Evidence.from_segments(
                    arms, play(policy, world(arms, "numbers", budget, change), few)
                )
                rates = [
                    float((drift_p_values(evidence, budget=planned)[0] < level).mean())
                    for planned in (None, budget)
                ]
                cells = "".join(f"{found:>9.3f}" for found in rates)
                print(f"{what:<22}{label:<21}{budget:>6}{cells}", flush=True)
    print(f"\nhighest rate of false alarms: {worst:.4f}")
    print(f"no rate of false alarms above {level:.0%}: {'PASS' if passed else 'MISS'}")


if __name__ == "__main__":
    main()
