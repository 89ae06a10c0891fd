"""How honest are the intervals: how often are they right, and how wide are they?

Ten worlds, three policies. Intervals must cover all values, all gaps and the best arm in at least
94 % of tests, sequences must not fail at any look, nor wrong winners be declared, in more than 5 %:
MISS is said where the exact 99 % interval lies wholly on the wrong side. Widths are compared with
an oracle's (least squares of the same plays, course and noise known), refused limits left out and
counted. --winners: how often one of equal arms is declared the winner, at the end and at any of 20
looks, and how often the best of several, if it is better by 3.6 standard errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binomtest

import steadyarm as sa
from steadyarm.environments import repeating, shock, switching, trend
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.intervals import Intervals, critical_values, fixed_budget
from steadyarm.inference.sequences import confidence_path
from steadyarm.segments import Segment, SegmentStats

T = 6000
PIECES = 40  # into which the segments of policies with few are cut
LEVEL = 0.95
CHUNK = 250
Floats = NDArray[np.float64]
World = tuple[
    sa.Environment | sa.Replay, float, tuple[float, float] | None
]  # noise variance, range


def random_arms(seed: int, K: int, d: int) -> tuple[sa.ArmSet, Floats]:
    """Gaussian arms and a parameter whose best two arms differ by 0.1."""
    rng = np.random.default_rng(seed)
    X, theta = rng.normal(size=(K, d)), rng.normal(size=d)
    values = np.sort(X @ theta)
    return sa.ArmSet.from_features(X), theta * 0.1 / (values[-1] - values[-2])


def bounded(world: sa.Environment, bound: float) -> World:
    low, high = float(world.table.min()) - bound, float(world.table.max()) + bound
    return replace(world, noise=sa.BoundedNoise(bound)), bound**2 / 3, (low, high)


def stationary() -> World:
    arms, theta = random_arms(1, 12, 4)
    return sa.Environment.from_parameters(arms, theta, sa.GaussianNoise(1.0), T), 1.0, None


def oscillating() -> World:
    arms, theta = random_arms(2, 10, 4)
    wave = np.sin(2 * np.pi * np.arange(T) / 500)[:, None]
    move = np.random.default_rng(2).normal(size=4)
    return bounded(sa.Environment.from_parameters(arms, theta + wave * move), 1.0)


def shocked() -> World:
    arms, theta = random_arms(3, 10, 4)
    during = theta + 2 * np.random.default_rng(3).normal(size=4)
    return bounded(shock(arms, theta, during, T, start=0.3, length=0.05), 1.0)


def rising() -> World:
    arms, theta = random_arms(4, 10, 4)
    move = np.random.default_rng(4).normal(size=4)
    return trend(arms, theta - move, theta + move, T, sa.GaussianNoise(1.0)), 1.0, None


def switches() -> World:
    arms = sa.ArmSet.one_hot(list("ABCDE"))
    first, second = [0.5, 0.4, 0.3, 0.2, 0.1], [0.0, 0.2, 0.4, 0.5, 0.6]
    return bounded(switching(arms, [first, second], T, [0.4, 0.6]), 0.5)


def clicks() -> World:
    arms = sa.ArmSet.one_hot(list("ABCDE"))
    rates = np.array([0.03, 0.025, 0.02, 0.015, 0.01])
    world = sa.Environment.from_means(arms, rates, sa.BernoulliReward(), 2 * T)
    return world, float((rates * (1 - rates)).mean()), (0.0, 1.0)


def rare_clicks() -> World:
    arms = sa.ArmSet.one_hot([str(k) for k in range(20)])
    rates = np.linspace(0.005, 0.0035, 20)
    world = sa.Environment.from_means(arms, rates, sa.BernoulliReward(), 5 * T)
    return world, float((rates * (1 - rates)).mean()), (0.0, 1.0)


def revenue() -> World:
    """Of 20 visitors one buys, for a lognormal amount of mean 1 and σ = 1.2."""
    K, size, buyers, sigma = 5, 100_000, 5000, 1.2
    amounts = np.exp(sigma * ndtri((np.arange(buyers) + 0.5) / buyers) - sigma**2 / 2)
    rewards = np.zeros((K, size))
    rewards[:, :buyers] = np.linspace(1.0, 0.9, K)[:, None] * amounts
    arm = np.repeat(np.arange(K), size)
    arms = sa.ArmSet.one_hot(list("ABCDE"))
    world = sa.Replay.from_log(arms, np.zeros(arm.size, int), arm, rewards.ravel(), 2 * T)
    return world, float(rewards.var(axis=1).mean()), None


def heavy() -> World:
    """Noise of Student's t with 3 degrees of freedom, in two periods of different means."""
    arms = sa.ArmSet.one_hot(list("ABCDE"))
    noise = np.random.default_rng(6).standard_t(3, size=20_000)
    noise -= noise.mean()
    means = np.array([[0.4, 0.3, 0.2, 0.1, 0.0], [0.2, 0.3, 0.2, 0.1, 0.0]])
    period, arm, which = np.indices((2, 5, len(noise))).reshape(3, -1)
    rewards = means[period, arm] + noise[which]
    return sa.Replay.from_log(arms, period, arm, rewards, T), float(noise.var()), None


def fifty() -> World:
    arms, theta = random_arms(7, 50, 8)
    weekly = np.random.default_rng(7).normal(size=(7, 8))
    weekly -= weekly.mean(axis=0)
    return repeating(arms, theta + 0.5 * weekly, T // 14, T, sa.GaussianNoise(1.0)), 1.0, None


WORLDS: dict[str, Callable[[], World]] = {
    "stationary": stationary,
    "oscillating": oscillating,
    "shock": shocked,
    "trend": rising,
    "switch": switches,
    "clicks 2 %": clicks,
    "clicks .5 %": rare_clicks,
    "revenue": revenue,
    "heavy tails": heavy,
    "50 arms": fifty,
}
POLICIES: tuple[sa.Policy[Any], ...] = (sa.GBAI(), sa.P1RAGE(), sa.Steady())


def played(
    policy: sa.Policy[Any], world: sa.Environment | sa.Replay, trials: int, seed: int
) -> list[tuple[Segment, SegmentStats]]:
    """One batch of tests, in pieces of whole blocks of at most 1/40 of the budget."""
    rng = np.random.default_rng(seed)
    state = policy.start(world.arms, world.budget, trials, seed=seed)
    pieces = []
    while (segment := policy.next_segment(state)) is not None:
        unit = segment.block if segment.order == "blocks" else 1
        most = max(1, world.budget // PIECES // unit) * unit
        segment = replace(segment, rounds=np.minimum(segment.rounds, most))
        stats = world.play(segment, state.played, rng, squares=True)
        pieces.append((segment, stats))
        state = policy.observe(state, segment, stats)
    return pieces


def right(found: Intervals, truth: Floats) -> NDArray[np.bool_]:
    """(n, 4) whether values, gaps, plausible set and winner are right; truth (n, K) or (K,)."""
    truth = np.broadcast_to(truth, found.estimates.shape)
    rows, slack = np.arange(len(truth)), 1e-9
    gaps = truth[rows, found.recommended][:, None] - truth
    values = ((found.low <= truth + slack) & (truth - slack <= found.high)).all(axis=1)
    apart = ((found.gap_low <= gaps + slack) & (gaps - slack <= found.gap_high)).all(axis=1)
    best = truth.argmax(axis=1)
    winner = ~found.winner | (found.recommended == best)
    return np.stack([values, apart, found.plausible[rows, best], winner], axis=1)


def never_wrong(path: list[Intervals], sums: Floats) -> NDArray[np.bool_]:
    """(n, 4) whether no look was wrong; sums (T + 1, K) of the means of all rounds before."""
    looks = [right(look, sums[look.rounds] / look.rounds[:, None]) for look in path]
    return np.asarray(np.all(looks, axis=0))


def oracle_width(X: Floats, counts: NDArray[np.int64], variance: float) -> Floats:
    """(n, K) width of the oracle's intervals for the values."""
    covariance = variance * np.linalg.inv(np.einsum("nk,kr,ks->nrs", counts, X, X))
    z, _, _ = critical_values(X, covariance, np.full(len(counts), np.inf), 1 - LEVEL)
    return np.asarray(2 * z[:, None] * np.sqrt(np.einsum("nrs,kr,ks->nk", covariance, X, X)))


def measure(policy: sa.Policy[Any], made: World, trials: int, seed: int) -> dict[str, Floats]:
    """Per test: what was right, and mean widths over arms relative to the oracle's."""
    world, variance, reward_range = made
    X, sums = world.arms.coordinates, np.vstack([0 * world.means[:1], world.means.cumsum(axis=0)])
    pieces = played(policy, world, trials, seed)
    evidence = Evidence.from_segments(world.arms, pieces)
    oracle = oracle_width(X, np.sum([stats.counts for _, stats in pieces], axis=0), variance)
    paths = {"fixed": [fixed_budget(evidence, LEVEL)]}
    paths["asymptotic"] = confidence_path(evidence, world.budget, LEVEL)
    if reward_range is not None:
        paths["bernstein"] = confidence_path(evidence, world.budget, LEVEL, reward_range)
    out: dict[str, Floats] = {}
    for name, path in paths.items():
        out[name] = never_wrong(path, sums).astype(float)
        wide = path[-1].high - path[-1].low
        out[f"{name} width"] = np.where(np.isfinite(wide), wide, np.nan)
        out[f"{name} oracle"] = np.where(np.isfinite(wide), oracle, np.nan)
        out[f"{name} plausible"] = path[-1].plausible.sum(axis=1).astype(float)
    return out


def winners(K: int, kind: str, trials: int) -> None:
    """Print how often a winner is declared: of equal arms, of two tied ones, of one better arm."""
    means, budget = np.zeros(K), 2000
    means[2:] -= 0.6 * (kind == "two tied")
    means[0] += 3.6 * (2 * K / budget) ** 0.5 * (kind == "one better")
    arms = sa.ArmSet.one_hot([str(k) for k in range(K)])
    world = sa.Environment.from_means(arms, means, sa.GaussianNoise(1.0), budget)
    end, ever = [], []
    for seed in range(trials // CHUNK):
        pieces = played(sa.GBAI(order="blocks"), world, CHUNK, seed)
        evidence = Evidence.from_segments(arms, pieces)
        at = np.unique(np.linspace(1, len(pieces) - 1, 20).astype(int))
        path = confidence_path(evidence, budget, LEVEL, at=at.tolist())
        end.append(fixed_budget(evidence, LEVEL).winner)
        ever.append(np.any([look.winner for look in path], axis=0))
    print(f"{K:>5} arms, {kind:<12}{100 * np.mean(end):8.2f} %{100 * np.mean(ever):14.2f} %")


def verdict(rights: int, trials: int, least: float) -> str:
    """OK, or MISS if the share is significantly below `least`; * if significantly above it."""
    bound = binomtest(rights, trials).proportion_ci(0.99, method="exact")
    return "MISS" if bound.high < least else "*" if bound.low >= least else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="a multiple of 250")
    parser.add_argument(
        "--worlds", nargs="*", choices=list(WORLDS), default=list(WORLDS), help="default: all"
    )
    parser.add_argument("--winners", action="store_true", help="how often one is declared")
    options = parser.parse_args()
    if options.trials < CHUNK or options.trials % CHUNK:
        parser.error(
            f"--trials is {options.trials}, no multiple of {CHUNK}: tests are played in such lots"
        )
    if options.winners:
        print(
            f"a winner is declared, {options.trials} tests each:   at the end    at any of 20 looks"
        )
        for kind in ("equal", "two tied", "one better"):
            for K in (2, 3, 5, 10):
                winners(K, kind, options.trials)
        return
    begin, missed = perf_counter(), 0
    print(f"{options.trials} tests each; shares right in %: values, gaps, plausible set, winner.")
    print("* surely at least 94 (fixed) or 95 (sequences); MISS surely less (99 %, exact).\n")
    print(f"{'world':<12}{'policy':<9}{'interval':<11}{'values':>9}{'gaps':>10}{'set':>10}", end="")
    print(f"{'winner':>11}{'width':>9}{'/ oracle':>10}{'refused':>9}{'plausible':>11}")
    for name in options.worlds:
        made = WORLDS[name]()
        for policy in POLICIES:
            sizes = [CHUNK] * (options.trials // CHUNK)
            with ThreadPoolExecutor(2) as pool:
                runs = list(pool.map(lambda i: measure(policy, made, CHUNK, i), range(len(sizes))))  # noqa: B023  # used up in the loop
            found = {key: np.concatenate([run[key] for run in runs]) for key in runs[0]}
            for kind, least in (("fixed", 0.94), ("asymptotic", 0.95), ("bernstein", 0.95)):
                if kind not in found:
                    continue
                shares = ""
                for column in found[kind].T:
                    said = verdict(int(column.sum()), len(column), least)
                    missed += said == "MISS"
                    shares += f"{100 * column.mean():6.2f}{said:<4}"
                wide = found[f"{kind} width"]
                width, oracle = np.nanmean(wide), np.nanmean(found[f"{kind} oracle"])
                left = found[f"{kind} plausible"].mean()
                head = f"{name:<12}{policy.name:<9}{kind:<11}{shares}{width:9.3f}"
                refused = 100 * np.isnan(wide).mean()
                print(f"{head}{width / oracle:10.2f}{refused:8.1f}%{left:11.2f}", flush=True)
    print(
        f"\n{'PASS' if not missed else f'MISS in {missed} places'}, {perf_counter() - begin:.0f} s"
    )


if __name__ == "__main__":
    main()
