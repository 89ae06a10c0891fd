"""How often does the SRM test cry wolf, and how soon does it see that rows of one arm get lost?

False alarms: the rate of p-values below 5 %, 1 % and 0.1 % in drifting tests in which nothing is
wrong, with exact 99.9 % intervals. Power: how often a loss of 2 % of one arm's rows is seen.
"rows" knows only the rows; "drawn" also which arm each lost row had, as SteadyArm's own tests do.
For G-BAI the measured power is held against that of the noncentral chi-squared distribution.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, chi2, ncx2

import steadyarm as sa
from steadyarm.environments import weekday_weekend
from steadyarm.inference.health import (
    LoggedSegment,
    assignment_balance,
    impossible_counts,
    surprise,
    total_of,
)
from steadyarm.segments import Segment

LEVELS = (0.05, 0.01, 0.001)
LOSS = 0.02
BATCH = 2500
POLICIES: tuple[sa.Policy[Any], ...] = (
    sa.P1RAGE(),
    sa.Steady(),
    sa.GBAI(),
    sa.Steady(order="iid"),
    sa.GBAI(order="blocks", block=11),
)


def shops(budget: int) -> sa.Environment:
    """Five variants, another best one at weekends."""
    arms = sa.ArmSet.one_hot(list("ABCDE"))
    weekday, weekend = [0.5, 0.4, 0.3, 0.2, 0.1], [0.0, 0.2, 0.4, 0.6, 0.5]
    return weekday_weekend(arms, weekday, weekend, budget // 14, noise=sa.GaussianNoise(0.5))


def layouts(budget: int) -> sa.Environment:
    """Sixteen layouts of four switches."""
    arms = sa.ArmSet.factorial({name: ["off", "on"] for name in "abcd"})
    rng = np.random.default_rng(8)
    base = rng.uniform(-0.1, 0.1, arms.dimension)
    swing = rng.uniform(-0.2, 0.2, arms.dimension)
    return weekday_weekend(arms, base, base + swing, budget // 14, noise=sa.GaussianNoise(0.5))


Log = list[tuple[Segment, NDArray[np.int64]]]


def logs(policy: sa.Policy[Any], world: sa.Environment, tests: int, seed: int) -> Iterator[Log]:
    """Segments and rows per arm of `tests` tests, in batches."""
    for first in range(0, tests, BATCH):
        n = min(BATCH, tests - first)
        rng = np.random.default_rng([seed, first])
        state = policy.start(world.arms, world.budget, n, seed=seed + first)
        log: Log = []
        while (segment := policy.next_segment(state)) is not None:
            stats = world.play(segment, state.played, rng)
            state = policy.observe(state, segment, stats)
            log.append((segment, stats.counts))
        yield log


def srm_p_values(pieces: Iterable[LoggedSegment]) -> NDArray[np.float64]:
    """(n,) p-values of `srm_test` for a batch of n tests, to measure how often it is wrong."""
    log = list(pieces)
    impossible = np.any([impossible_counts(piece).any(axis=1) for piece in log], axis=0)
    balance = total_of(assignment_balance(piece) for piece in log)
    return np.where(impossible, 0.0, surprise(balance)[0])


def p_values(full: Log, log: Log | None = None) -> NDArray[np.float64]:
    """Of all tests in a batch; with what is left of the log, of that part of what was drawn."""
    if log is None:
        return srm_p_values(LoggedSegment(s, c) for s, c in full)
    pairs = zip(full, log, strict=True)
    return srm_p_values(LoggedSegment(s, left, drawn=c) for (s, c), (_, left) in pairs)


def lossy(log: Log, losses: Any, rng: np.random.Generator) -> Log:
    """The log after rows were lost at random; `losses` is one share or one for each arm."""
    return [(segment, rng.binomial(counts, 1 - losses)) for segment, counts in log]


def predicted_power(share: float, arms: int, budget: int, level: float) -> float:
    """Of the chi-squared test for one constant allocation in equal shares."""
    rows = budget * (1 - LOSS * share)
    after = np.full(arms, share) / (1 - LOSS * share)
    after[0] *= 1 - LOSS
    noncentral = rows * ((after - share) ** 2 / share).sum()
    return float(ncx2.sf(chi2.isf(level, arms - 1), arms - 1, noncentral))


def false_alarms(tests: int) -> bool:
    print(f"False alarms in {tests} tests of 4,200 rounds; no arm is treated differently.")
    print("Lost: share of all rows that went missing, in all arms alike.")
    print("Third mark: the 99.9 % interval is above (>), below (<) or around (=) the level.\n")
    heads = "".join(f"{f'below {a:.1%}':>27}" for a in LEVELS)
    print(f"{'policy':<15}{'arms':>5}{'lost':>6}{heads}")
    passed = True
    cases = [
        (world, policy, loss)
        for world in (shops(4200), layouts(4200))
        for policy in POLICIES
        for loss in (0.0, 0.03)
        if not loss or getattr(policy, "order", "") == "blocks"
    ]
    for world, policy, loss in cases:
        rng = np.random.default_rng(7)
        p = np.concatenate(
            [
                p_values(log, lossy(log, loss, rng) if loss else None)
                for log in logs(policy, world, tests, seed=5)
            ]
        )
        cells = []
        for level in LEVELS:
            hits = int((p < level).sum())
            ends = binomtest(hits, tests).proportion_ci(0.999)
            passed &= bool(ends.low <= level)
            said = ">" if ends.low > level else "<" if ends.high < level else "="
            cells.append(f"{hits / tests:.4f} [{ends.low:.4f}, {ends.high:.4f}] {said}")
        label = f"{policy.name} {getattr(policy, 'order', '')}"
        print(f"{label:<15}{world.arms.size:>5}{loss:>6.0%}" + "".join(f"{c:>27}" for c in cells))
    return passed


def power(tests: int) -> bool:
    print(
        f"\nPower at the 1 % level, {LOSS:.0%} of one arm's rows lost, five arms, {tests} tests.\n"
    )
    budgets = (1400, 4200, 14_000, 42_000, 140_000)
    print(f"{'policy':<18}{'knows':<11}" + "".join(f"{b:>10,}" for b in budgets))
    passed = True
    for policy in POLICIES[:3]:
        found: dict[str, list[int]] = {"rows": [], "drawn": []}
        for budget in budgets:
            (log,) = logs(policy, shops(budget), tests, seed=6)
            damaged = lossy(log, LOSS * np.eye(5)[0], np.random.default_rng(budget))
            found["rows"].append(int((p_values(damaged) < 0.01).sum()))
            found["drawn"].append(int((p_values(log, damaged) < 0.01).sum()))
        passed &= found["drawn"][1] > 0.99 * tests
        if policy.name == "G-BAI":
            for budget, hits in zip(budgets, found["rows"], strict=True):
                ends = binomtest(hits, tests).proportion_ci(0.999)
                passed &= bool(ends.low <= predicted_power(0.2, 5, budget, 0.01) <= ends.high)
        for known, counts in found.items():
            rates = "".join(f"{count / tests:10.3f}" for count in counts)
            print(f"{policy.name:<18}{known:<11}{rates}")
    rates = "".join(f"{predicted_power(0.2, 5, budget, 0.01):10.3f}" for budget in budgets)
    print(f"{'G-BAI, computed':<18}{'rows':<11}{rates}")
    return passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=10_000, help="for false alarms")
    parser.add_argument("--power-tests", type=int, default=500, help="for power")
    options = parser.parse_args()
    level = false_alarms(options.tests)
    print(f"\nno rate above its level: {'PASS' if level else 'MISS'}")
    alert = power(options.power_tests)
    print(
        "\nG-BAI as computed, and all above 99 % from 4,200 rounds on if what was drawn is known: "
        f"{'PASS' if alert else 'MISS'}"
    )


if __name__ == "__main__":
    main()
