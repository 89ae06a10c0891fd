"""How does Steady do against all other policies, also in worlds on which it was not chosen?

`balanced`: 45 drifting worlds against the balanced design `GBAI(order="blocks")` and Top-Two
Thompson, 20 of them written after the rule was chosen. A mark says where Steady makes significantly
more than 1.2 times the errors of the balanced design.
`late`: worlds in which it loses, because the best arms come back late, rivals crash late, or the
common level swings within a block; with `robustness=0.9`, which costs less there.
`visits`: rounds for 5 % errors where nothing moves, relative to the balanced design.
`rivals`: eight worlds never seen while choosing, against all policies. A verdict says where Steady
is significantly worse than the better of G-BAI and P1-RAGE with independent draws (WORSE) or in
blocks (worse; Fisher, p < 0.001). `fixed` is Steady without adaptation, `iid` without blocks. Last:
geometric means, and how much of the gain needs no adaptation, or no blocks.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import fisher_exact, norm

import steadyarm as sa
from steadyarm.environments import (
    random_walk,
    repeating,
    shock,
    switching,
    trend,
    weekday_weekend,
)

Floats = NDArray[np.float64]
T = 6000
POLICIES: dict[str, sa.Policy[Any]] = {
    "Steady": sa.Steady(),
    "fixed": sa.Steady(robustness=1.0),
    "iid": sa.Steady(order="iid"),
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


WORLDS: tuple[Callable[[], sa.Environment], ...] = (
    crowd,
    wide,
    bundles,
    late,
    hourly,
    pairs,
    blinking,
    ladder,
)


# Drifting worlds against the balanced design that does not adapt
#
# Each is an arm set, its average parameter, and a move around it whose average over the test is
# zero, so that the right answer is known. The noise is set by the balanced design alone: a union
# bound on its error is 5 %. Directions are drawn with fixed seeds.

Moves = Callable[["Field"], Floats]
BALANCED: dict[str, sa.Policy[Any]] = {
    "balanced": sa.GBAI(order="blocks"),
    "Steady": sa.Steady(),
}
WITH_RIVAL = BALANCED | {"Top-Two": sa.TopTwoThompson()}
CAREFUL = BALANCED | {"robust .9": sa.Steady(robustness=0.9), "RAGE blk": sa.P1RAGE(order="blocks")}


@dataclass(frozen=True)
class Field:
    """Arms with an average parameter, and directions in which it may move."""

    arms: sa.ArmSet
    theta: Floats
    seed: int

    @property
    def order(self) -> NDArray[np.intp]:
        """The arms from best to worst."""
        return np.argsort(-self.arms.features @ self.theta, kind="stable")

    def all_arms(self, size: float, more: int = 0) -> Floats:
        """Every arm moves in its own way, with a standard deviation of `size`."""
        move = np.random.default_rng((self.seed, more)).normal(size=self.theta.size)
        if move.size == self.arms.size:  # drawn from the best to the worst, wherever they stand
            move[self.order] = move.copy()
        return np.asarray(move * size / float(np.std(self.arms.features @ move)))

    def best(self, size: float, count: int = 2, start: int = 0) -> Floats:
        """`count` arms from the `start`-th best move by `size`, others as they resemble them."""
        move = self.arms.features[self.order[start : start + count]].sum(axis=0)
        return np.asarray(move * size / float(np.abs(self.arms.features @ move).max()))

    def world(self, path: Floats, error: float = 0.05, level: float = 0.0) -> sa.Environment:
        """The path (T, d) around its own mean, added to the parameter.

        error : of the balanced design, to which the noise is set
        level : standard deviations of the noise by which a common level swings up and down, 50
            times in the test
        """
        X = self.arms.features
        values = X @ self.theta
        design = sa.g_optimal(self.arms)
        inverse = np.linalg.pinv(X.T @ (design.weights[:, None] * X))
        Y = X[self.order[0]] - np.delete(X, self.order[0], axis=0)
        gaps = values.max() - np.delete(values, self.order[0])
        errors = np.sqrt(np.einsum("ka,ab,kb->k", Y, inverse, Y) / len(path))
        noise = brentq(lambda s: float(norm.sf(gaps / (s * errors)).sum()) - error, 1e-3, 1e3)
        moved = self.theta + path - path.mean(axis=0)
        if level:
            means = (moved @ X.T) + level * noise * np.sqrt(2) * cosine(50)[:, None]
            return sa.Environment.from_means(self.arms, means, sa.GaussianNoise(noise))
        return sa.Environment.from_parameters(self.arms, moved, sa.GaussianNoise(noise))


def unordered(values: Floats, seed: int) -> Field:
    """Arms without features in a random order: where rounds do not divide, the first get more."""
    arms = sa.ArmSet.one_hot([str(k) for k in range(values.size)])
    return Field(arms, np.random.default_rng(seed).permutation(values), seed)


def plain(K: int) -> Field:
    """The best leads by 0.12, the others lie evenly over 0.36."""
    return unordered(np.r_[0.12, np.linspace(0, -0.36, K - 1)], K)


def close(K: int) -> Field:
    """The best leads by 0.1, all the others are alike."""
    return unordered(np.r_[0.1, np.zeros(K - 1)], 50 + K)


def linear(arms: sa.ArmSet, seed: int) -> Field:
    """A random parameter with a lead of 0.12 that is a tenth to a quarter of the range."""
    for more in range(1000):
        theta = np.random.default_rng((seed, more)).normal(size=arms.dimension)
        values = np.sort(arms.features @ theta)
        lead = values[-1] - values[-2]
        if 0.1 < lead / (values[-1] - values[0]) < 0.25:
            return Field(arms, theta * 0.12 / lead, seed)
    raise AssertionError("no parameter with such a lead")


def sphere(K: int, d: int, seed: int) -> Field:
    """Random unit vectors."""
    X = np.random.default_rng(seed).normal(size=(K, d))
    return linear(sa.ArmSet.from_features(X / np.linalg.norm(X, axis=1, keepdims=True)), seed)


CLOCK = (np.arange(T) + 0.5) / T


def along(profile: NDArray[Any], move: Floats) -> Floats:
    """(T, d) the move, as strong as the profile (T,) says."""
    return np.outer(profile.astype(np.float64), move)


def cosine(periods: float) -> Floats:
    return np.asarray(np.cos(2 * np.pi * periods * CLOCK))


def still(field: Field) -> Floats:
    """Nothing moves."""
    return np.zeros((T, field.theta.size))


def walking(field: Field, size: float, steps: int) -> Floats:
    """A random walk of some steps whose end is `size` away, in every direction."""
    moves = np.stack([field.all_arms(size / np.sqrt(steps), 10 + j) for j in range(steps)])
    return np.repeat(np.cumsum(moves, axis=0), -(-T // steps), axis=0)[:T]


TUNED_FIELDS = {
    "5 arms": lambda: plain(5),
    "10 arms": lambda: plain(10),
    "30 arms": lambda: plain(30),
    "16 layouts": lambda: linear(sa.environments.layouts(4), 3),
    "30 random": lambda: sphere(30, 6, 7),
}
TUNED_MOVES: dict[str, Moves] = {
    "best two rise": lambda f: along(2 * CLOCK - 1, f.best(0.6)),
    "best two bad for half": lambda f: along(CLOCK > 0.5, f.best(2.0)),
    "best two bad for 3/4": lambda f: along(CLOCK > 0.75, f.best(2.4)),
    "own trends": lambda f: along(2 * CLOCK - 1, f.all_arms(0.4)),
    "two weeks": lambda f: along(cosine(14), f.all_arms(0.4)),
}
TUNED = {
    f"{arms}, {name}": (field, move)
    for arms, field in TUNED_FIELDS.items()
    for name, move in TUNED_MOVES.items()
}
HELD_OUT: dict[str, tuple[Callable[[], Field], Moves]] = {
    "3 arms, best one rises": (
        lambda: plain(3),
        lambda f: along(2 * CLOCK - 1, f.best(0.5, count=1)),
    ),
    "3 alike, week": (lambda: close(3), lambda f: along(cosine(7), f.all_arms(0.5))),
    "4 arms, best one bad for a third": (
        lambda: plain(4),
        lambda f: along(CLOCK > 1 / 3, f.best(0.9, count=1)),
    ),
    "6 alike, own walks": (lambda: close(6), lambda f: walking(f, 0.6, 25)),
    "6 arms, rival fades": (
        lambda: plain(6),
        lambda f: along(-CLOCK, f.best(0.8, count=1, start=1)),
    ),
    "8 arms, places change at 0.6": (
        lambda: plain(8),
        lambda f: along(CLOCK > 0.6, f.all_arms(0.7)),
    ),
    "8 alike, novelty": (
        lambda: close(8),
        lambda f: along(np.exp(-CLOCK / 0.08), -f.best(0.8, count=1)),
    ),
    "12 arms, three steps": (
        lambda: plain(12),
        lambda f: (
            along(CLOCK > 0.2, f.all_arms(0.4))
            + along(CLOCK > 0.5, f.all_arms(0.4, 1))
            + along(CLOCK > 0.8, f.all_arms(0.4, 2))
        ),
    ),
    "12 arms, best three bad in the middle": (
        lambda: plain(12),
        lambda f: along((CLOCK < 0.3) | (CLOCK > 0.7), f.best(1.0, count=3)),
    ),
    "15 alike, slow wave": (lambda: close(15), lambda f: along(cosine(1.5), f.all_arms(0.3))),
    "20 arms, campaign for losers": (
        lambda: plain(20),
        lambda f: along((CLOCK > 0.4) & (CLOCK < 0.55), f.best(1.5, count=10, start=10)),
    ),
    "20 arms, best two rise from the middle": (
        lambda: plain(20),
        lambda f: along(np.maximum(CLOCK - 0.5, 0), f.best(2.5)),
    ),
    "40 arms, own trends and week": (
        lambda: plain(40),
        lambda f: along(CLOCK, f.all_arms(0.4)) + along(cosine(7), f.all_arms(0.2, 1)),
    ),
    "12 layouts, own walks": (
        lambda: linear(
            sa.ArmSet.factorial({"a": list("123"), "b": list("12"), "c": list("12")}), 11
        ),
        lambda f: walking(f, 0.6, 40),
    ),
    "27 layouts, shock": (
        lambda: linear(
            sa.ArmSet.factorial({"a": list("123"), "b": list("123"), "c": list("123")}), 12
        ),
        lambda f: along((CLOCK > 0.1) & (CLOCK < 0.25), f.all_arms(1.0)),
    ),
    "32 layouts, best two bad for 0.4": (
        lambda: linear(sa.environments.layouts(5), 13),
        lambda f: along(CLOCK > 0.4, f.best(1.5)),
    ),
    "20 random of 4, wave": (
        lambda: sphere(20, 4, 14),
        lambda f: along(cosine(1), f.all_arms(0.5)),
    ),
    "50 random of 8, switch at 0.3": (
        lambda: sphere(50, 8, 15),
        lambda f: along(CLOCK > 0.3, f.all_arms(0.6)),
    ),
    "40 random of 10, trends": (
        lambda: sphere(40, 10, 16),
        lambda f: along(CLOCK, f.all_arms(0.8)),
    ),
    "bundles, late campaign": (
        lambda: linear(sa.ArmSet.bundles([f"p{j}" for j in range(6)], size=2), 17),
        lambda f: along(CLOCK > 0.85, f.all_arms(1.2)),
    ),
}


LATE: dict[str, tuple[Callable[[], Field], Moves, dict[str, float]]] = {
    "10 arms, best two bad for 0.9": (
        lambda: plain(10),
        lambda f: along(CLOCK > 0.9, f.best(4.0)),
        {},
    ),
    "10 arms, best two bad for 0.9, rare errors": (
        lambda: plain(10),
        lambda f: along(CLOCK > 0.9, f.best(4.0)),
        {"error": 0.01},
    ),
    "30 arms, best two bad for 0.95": (
        lambda: plain(30),
        lambda f: along(CLOCK > 0.95, f.best(6.0)),
        {},
    ),
    "10 arms, two rivals crash at 0.9": (
        lambda: plain(10),
        lambda f: along(CLOCK > 0.9, -f.best(4.0, start=1)),
        {},
    ),
    "10 arms, two rivals crash at 0.95": (
        lambda: plain(10),
        lambda f: along(CLOCK > 0.95, -f.best(6.0, start=1)),
        {},
    ),
    "10 arms, level swings by 2 sd": (lambda: plain(10), still, {"level": 2.0}),
    "30 arms, level swings by 2 sd": (lambda: plain(30), still, {"level": 2.0}),
    "16 layouts, level swings by 2 sd": (
        lambda: linear(sa.environments.layouts(4), 3),
        still,
        {"level": 2.0},
    ),
}


def against_balanced(
    worlds: Mapping[str, tuple[Any, ...]],
    trials: int,
    policies: dict[str, sa.Policy[Any]],
) -> list[tuple[float, float]]:
    """One line per world: error rates, and Steady's as a multiple of the balanced design's.

    worlds : by name: a field, how it moves, and settings of `Field.world` if any

    Returns, for each world, the numbers of errors of Steady and of the balanced design.
    """
    print(f"{'world':<44}{''.join(f'{name:>10}' for name in policies)}{'ratio':>7}")
    counts, rival = [], []
    for title, (field, move, *settings) in worlds.items():
        here = field()
        world = here.world(move(here), **(settings[0] if settings else {}))
        assert world.best_arm == here.order[0]
        found = {
            name: sa.simulate(policy, world, trials=trials, seed=crc32(title.encode()))
            for name, policy in policies.items()
        }
        steady, balanced = max(found["Steady"].errors, 0.5), max(found["balanced"].errors, 0.5)
        counts.append((steady, balanced))
        if "Top-Two" in found:
            rival.append(steady / max(found["Top-Two"].errors, 0.5))
        # Variances of two counts of rare errors are about the counts themselves.
        excess = (steady - 1.2 * balanced) / np.sqrt(steady + 1.44 * balanced)
        mark = "  above 1.2, p < 0.001" if excess > norm.isf(1e-3) else ""
        rates = "".join(f"{result.error_rate:10.4f}" for result in found.values())
        print(f"{title:<44}{rates}{steady / balanced:7.2f}{mark}", flush=True)
    _sum_up(counts)
    if rival:
        mean, lower = np.exp(np.log(rival).mean()), sum(ratio < 1 for ratio in rival)
        print(f"Steady to Top-Two: geometric mean {mean:.2f}, fewer errors in {lower} worlds")
    return counts


# Visits that a test needs where nothing moves

STILL: dict[str, Callable[[], Field]] = {"3 arms": lambda: plain(3), **TUNED_FIELDS}
WANTED = 0.05  # share of errors


def visits(trials: int) -> None:
    """One line per field: visits of the balanced design, and those of others relative to it."""
    others = [name for name in WITH_RIVAL if name != "balanced"]
    print(f"{'field':<14}{'balanced':>10}{''.join(f'{name:>16}' for name in others)}")
    ratios: dict[str, list[float]] = {name: [] for name in others}
    for title, make in STILL.items():
        field = make()
        needs = {name: needed(policy, field, trials) for name, policy in WITH_RIVAL.items()}
        base, base_error = needs["balanced"]
        line = f"{title:<14}{base:>10,.0f}"
        for name in others:
            need, error = needs[name]
            ratios[name].append(need / base)
            line += f"{need / base:>9.2f} ({np.hypot(error, base_error) * need / base:.3f})"
        print(line, flush=True)
    means = {name: np.exp(np.log(values).mean()) for name, values in ratios.items()}
    print(f"{'mean':<24}{''.join(f'{mean:>9.2f}        ' for mean in means.values())}")


def needed(policy: sa.Policy[Any], field: Field, trials: int) -> tuple[float, float]:
    """Rounds for 5 % errors, and the relative standard error.

    Normal quantiles of the error at three budgets lie on a line in the root of the budget. Budgets
    are chosen by a fifth of the trials.
    """
    noise = field.world(still(field)).noise

    def fit(budgets: list[int], tests: int, seed: int) -> tuple[float, float]:
        worlds = [
            sa.Environment.from_parameters(field.arms, field.theta, noise, budget=budget)
            for budget in budgets
        ]
        results = [sa.simulate(policy, world, tests, seed + i) for i, world in enumerate(worlds)]
        rates = np.array([(result.errors + 0.5) / (tests + 1) for result in results])
        quantiles = norm.isf(rates)
        off = np.sqrt(rates * (1 - rates) / tests) / norm.pdf(quantiles)
        X = np.column_stack([np.ones(len(budgets)), np.sqrt(budgets)]) / off[:, None]
        covariance = np.linalg.inv(X.T @ X)
        a, b = covariance @ X.T @ (quantiles / off)
        root = (norm.isf(WANTED) - a) / b
        gradient = np.array([1.0, root]) / b
        return root**2, 2 * float(np.sqrt(gradient @ covariance @ gradient)) / root

    guess, _ = fit([T // 6, T // 3, 2 * T // 3], trials // 5, seed=1)
    return fit([round(guess * share) for share in (0.8, 1.0, 1.25)], trials, seed=11)


def _sum_up(counts: list[tuple[float, float]]) -> None:
    errors = np.array(counts)
    ratios = errors[:, 0] / errors[:, 1]
    mean = float(np.exp(np.log(ratios).mean()))
    off = mean * float(np.sqrt((1 / errors).sum())) / len(ratios)
    print(
        f"{len(ratios)} worlds: geometric mean {mean:.3f} (standard error {off:.3f}), "
        f"largest {ratios.max():.2f}, above 1.5: {(ratios > 1.5).sum()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="of each policy in each world")
    parts = ["balanced", "late", "visits", "rivals", "all"]
    parser.add_argument("--part", choices=parts, default="all", help="which worlds; default: all")
    parser.add_argument("--only", default="", help="pattern of names, of the 45 worlds")
    args = parser.parse_args()
    print(f"Error rates, {args.trials} trials, budget {T}.")
    if args.part in ("balanced", "all"):
        counts = []
        for title, worlds in (("tuned on", TUNED), ("written after the choice", HELD_OUT)):
            some = {name: world for name, world in worlds.items() if re.search(args.only, name)}
            if some:
                print(f"\nDrifting worlds {title}, against the balanced design:\n")
                counts += against_balanced(some, args.trials, WITH_RIVAL)
        print()
        _sum_up(counts)
    if args.part in ("late", "all"):
        print("\nWorlds in which Steady loses, against the balanced design:\n")
        against_balanced(LATE, args.trials, CAREFUL)
    if args.part in ("visits", "all"):
        print("\nVisits for 5 % errors if nothing moves, relative to the balanced design:\n")
        visits(args.trials)
    if args.part in ("rivals", "all"):
        print("\nWorlds never seen while choosing, against all policies:\n")
        compare(WORLDS, args.trials)


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
    for name in ("G-BAI blk", "fixed", "iid", "RAGE blk"):
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
