"""How does Steady do against all other policies, also in worlds on which it was not chosen?

Ten worlds that were looked at while Steady's rules were chosen and eight that were not, apart. For
each: error rates of all policies in the same run, and whether Steady is significantly worse
(two-sided Fisher, p < 0.001) than the better of G-BAI and P1-RAGE with independent draws (WORSE),
or than the better of both in blocks (worse). `fixed` is Steady with robustness=1: its balanced
blocks without any adaptation. The last lines are the geometric mean of Steady's errors to those of
each, and how much of its gain over P1-RAGE, in logarithms, needs no adaptation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import fisher_exact

import steadyarm as sa
from steadyarm.environments import (
    random_walk,
    repeating,
    shock,
    switching,
    trend,
    weekday_weekend,
)

T = 6000
POLICIES: dict[str, sa.Policy[Any]] = {
    "Steady": sa.Steady(),
    "fixed": sa.Steady(robustness=1.0),
    "G-BAI blk": sa.GBAI(order="blocks"),
    "RAGE blk": sa.P1RAGE(order="blocks"),
    "G-BAI": sa.GBAI(),
    "P1-RAGE": sa.P1RAGE(),
    "P1-Peace": sa.P1Peace(),
    "Adjacent": sa.AdjacentBAI(),
    "Peace": sa.Peace(),
    "OD-LinBAI": sa.ODLinBAI(),
    "Halving": sa.SequentialHalving(),
    "Top-Two": sa.TopTwoThompson(),
}


def random_arms(seed: int, K: int = 20, d: int = 5) -> tuple[sa.ArmSet, np.ndarray[Any, Any]]:
    """Gaussian arms and a parameter whose best two arms differ by 0.15."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(K, d))
    theta = rng.normal(size=d)
    values = np.sort(X @ theta)
    return sa.ArmSet.from_features(X), theta * 0.15 / (values[-1] - values[-2])


def walk() -> sa.Environment:
    arms, theta = random_arms(1)
    return random_walk(arms, theta, step=0.01, budget=T, seed=4)


def still() -> sa.Environment:
    arms, theta = random_arms(2)
    return sa.Environment.from_parameters(arms, theta, sa.GaussianNoise(2.0), budget=T)


def shocked() -> sa.Environment:
    arms, theta = random_arms(3)
    rng = np.random.default_rng(3)
    return shock(arms, theta, theta + 2 * rng.normal(size=5), T, start=0.1, length=0.05)


def switches() -> sa.Environment:
    arms, theta = random_arms(4)
    rng = np.random.default_rng(4)
    moves = rng.normal(size=(5, 5))
    return switching(arms, theta + moves - moves.mean(axis=0), T, noise=sa.GaussianNoise(1.5))


def rising() -> sa.Environment:
    arms, theta = random_arms(5)
    move = np.random.default_rng(5).normal(size=5)
    return trend(arms, theta - move, theta + move, T, sa.GaussianNoise(1.5))


def week() -> sa.Environment:
    arms = sa.ArmSet.one_hot(list("ABCDEF"))
    weekday, weekend = [0.5, 0.4, 0.3, 0.2, 0.1, 0.0], [0.0, 0.2, 0.4, 0.6, 0.8, 0.6]
    return weekday_weekend(arms, weekday, weekend, T // 14, noise=sa.GaussianNoise(0.6))


def pattern() -> sa.Environment:
    """Two parameters in turn, with exactly the period of Steady's blocks."""
    arms, theta = random_arms(6)
    move = np.random.default_rng(6).normal(size=5)
    return repeating(arms, [theta + move, theta - move], 15 // 2 + 1, T)


def clicks() -> sa.Environment:
    arms = sa.ArmSet.one_hot([str(k) for k in range(8)])
    rates = 0.05 + np.array([0.035, 0.01, 0.01, 0.0, 0.0, -0.01, -0.01, -0.02])
    return sa.Environment.from_means(arms, rates, sa.BernoulliReward(), budget=T)


def layouts() -> sa.Environment:
    arms = sa.ArmSet.factorial({"a": list("123"), "b": list("123"), "c": list("12")})
    rng = np.random.default_rng(8)
    base = rng.uniform(-0.03, 0.03, arms.dimension)
    swing = rng.uniform(-0.04, 0.04, arms.dimension)
    base[0], swing[0] = 0.4, 0.1
    return weekday_weekend(arms, base, base + swing, T // 14, noise=sa.BernoulliReward())


def offset() -> sa.Environment:
    """All rewards shifted by three, as money or ratings are."""
    arms = sa.ArmSet.one_hot(list("ABCDE"))
    means = 3.0 + np.array([0.2, 0.05, 0.0, -0.1, -0.2])
    return sa.Environment.from_means(arms, means, sa.GaussianNoise(1.0), budget=T)


def crowd() -> sa.Environment:
    """Fifty arms, nothing in common, click rates that rise at different speeds."""
    arms = sa.ArmSet.one_hot([str(k) for k in range(50)])
    rng = np.random.default_rng(21)
    first, last = rng.uniform(0.05, 0.25, 50), rng.uniform(0.05, 0.25, 50)
    first[7], last[7] = 0.22, 0.40
    return trend(arms, first, last, T, sa.BernoulliReward())


def wide() -> sa.Environment:
    """Sixty arms with twelve features, two parameters in turn, 200 rounds each."""
    arms, theta = random_arms(22, K=60, d=12)
    move = np.random.default_rng(22).normal(size=12)
    return repeating(arms, [theta + move, theta - move], 200, T, noise=sa.GaussianNoise(1.5))


def bundles() -> sa.Environment:
    """All pairs of six products, a slow walk of what each is worth."""
    arms = sa.ArmSet.bundles([f"p{j}" for j in range(6)], size=2)
    theta = np.zeros(arms.dimension)
    theta[-6:] = 0.25, 0.2, 0.1, 0.0, 0.0, -0.1
    return random_walk(arms, theta, step=0.005, budget=T, noise=sa.GaussianNoise(1.0), seed=23)


def late() -> sa.Environment:
    """A shock in the last tenth, when most policies have made up their minds."""
    arms, theta = random_arms(44)
    after = theta + 2 * np.random.default_rng(44).normal(size=5)
    return shock(arms, theta, after, T, start=0.9, length=0.08, noise=sa.GaussianNoise(1.5))


def hourly() -> sa.Environment:
    """Twelve layouts, morning and evening people, 40 visits each."""
    arms = sa.ArmSet.factorial({"a": list("123"), "b": list("12"), "c": list("12")})
    rng = np.random.default_rng(34)
    base, swing = rng.uniform(-0.03, 0.03, (2, arms.dimension))
    base[0], swing[0] = 0.3, 0.1
    return repeating(arms, [base + swing, base - swing], 40, T, noise=sa.BernoulliReward())


def pairs() -> sa.Environment:
    """A plain A/B test of clicks whose level moves for both alike."""
    arms = sa.ArmSet.one_hot(["A", "B"])
    return weekday_weekend(arms, [0.10, 0.115], [0.30, 0.315], T // 14, noise=sa.BernoulliReward())


def blinking() -> sa.Environment:
    """Six arms that change places every four rounds: faster than any block."""
    arms = sa.ArmSet.one_hot(list("ABCDEF"))
    first, second = np.array([0.2, 1, 0, 1, 0, 1]), np.array([0.1, -1, 0, -1, 0, -1])
    return repeating(arms, [first, second], 4, T, noise=sa.GaussianNoise(1.0))


def ladder() -> sa.Environment:
    """Seven abrupt steps, each with another leader; arms are points on a curve."""
    grid = np.linspace(-1, 1, 7)
    arms = sa.ArmSet.from_features(np.column_stack([np.ones(7), grid, grid**2, grid**3]))
    rng = np.random.default_rng(33)
    moves = rng.normal(scale=0.8, size=(7, 4))
    base = np.array([0.0, 1.2, -1.5, 0.3])
    return switching(arms, base + moves - moves.mean(axis=0), T, noise=sa.GaussianNoise(2.0))


# Looked at while the rules of Steady were chosen, and not: reported apart.
SEEN: tuple[Callable[[], sa.Environment], ...] = (
    still,
    walk,
    rising,
    shocked,
    switches,
    pattern,
    week,
    clicks,
    layouts,
    offset,
)
UNSEEN: tuple[Callable[[], sa.Environment], ...] = (
    crowd,
    wide,
    bundles,
    late,
    hourly,
    pairs,
    blinking,
    ladder,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="of each policy in each world")
    trials: int = parser.parse_args().trials
    print(f"Error rates, {trials} trials, budget {T}.")
    for title, families in (("seen while choosing", SEEN), ("never seen", UNSEEN)):
        print(f"\nWorlds {title}:\n")
        compare(families, trials)


def compare(families: tuple[Callable[[], sa.Environment], ...], trials: int) -> None:
    """One line per world; the last ones are means of Steady's errors relative to each."""
    print(f"{'world':<9}{'gap':>6}{''.join(f'{name:>10}' for name in POLICIES)}  verdict")
    ratios: dict[str, list[float]] = {name: [] for name in POLICIES}
    for family in families:
        world = family()
        found = {
            name: sa.simulate(policy, world, trials=trials, seed=11)
            for name, policy in POLICIES.items()
        }
        verdict = "fine"
        if beaten(found, "G-BAI", "P1-RAGE"):
            verdict = "WORSE"
        elif beaten(found, "G-BAI blk", "RAGE blk"):
            verdict = "worse"
        steady = max(found["Steady"].errors, 0.5)
        for name, result in found.items():
            ratios[name].append(steady / max(result.errors, 0.5))
        rates = "".join(f"{result.error_rate:10.4f}" for result in found.values())
        print(f"{family.__name__:<9}{world.gap:6.3f}{rates}  {verdict}")
    means = {name: float(np.exp(np.mean(np.log(values)))) for name, values in ratios.items()}
    line = "".join(f"{mean:10.3f}" for mean in means.values())
    print(f"{'ratio':<15}{line}  (geometric mean of Steady's errors to each)")
    gain = np.log(means["P1-RAGE"])
    for name in ("G-BAI blk", "fixed", "RAGE blk"):
        share = 1 - np.log(means[name]) / gain
        print(f"{name} alone reaches {share:.0%} of Steady's gain over P1-RAGE, in logarithms.")


def beaten(found: dict[str, sa.Results], *rivals: str) -> bool:
    """Whether Steady is significantly worse than the better of two rivals."""
    steady = found["Steady"]
    better = min((found[name] for name in rivals), key=lambda result: result.errors)
    counts = np.array([[r.errors, r.trials - r.errors] for r in (steady, better)])
    return bool(steady.errors > better.errors and fisher_exact(counts).pvalue < 1e-3)


if __name__ == "__main__":
    main()
