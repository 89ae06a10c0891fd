"""How much does it bring to choose allocations from the rewards that have come so far?

Purchases come within a window of 0, 10 or 50 % of the test, and none counts as zero. Shares of
wrong picks of Steady in the same worlds: with prompt rewards; with late ones, when it learns from
what has come so far (early); and when it carries on its allocation until windows have ended
(waiting). Beside them the balanced design, Steady(robustness=1). "slow best": the best variant's
buyers take three times as long as the others'. "decoy": the worst variant's buyers come at once,
the others' late. Ratios are to the balanced design; the last lines are geometric means over worlds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binomtest

import steadyarm as sa
from steadyarm.estimators import rewards_so_far
from steadyarm.live.decisions import FEWEST, early_segment
from steadyarm.policies.ips import IPSPolicy, IPSState
from steadyarm.segments import Segment, SegmentStats

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Mode = Literal["early", "waiting"]

T = 4800
BINS = 40  # of the window, in which purchases are counted
QUICK, USUAL, LATE = (1.0, 20.0), (1.0, 3.0), (6.0, 2.0)  # Beta distributions of the delay
CHUNK = 500


@dataclass(frozen=True, eq=False)
class World:
    """What visitors buy, and when.

    Attributes
    ----------
    means : (T, K) probability of a purchase at each visit
    delays : (K, 2) Beta distribution of each variant's delays, as shares of the window
    """

    means: Floats
    delays: Floats

    @property
    def lags(self) -> Floats:
        """(K, BINS) probability that a purchase comes in each part of the window."""
        edges = np.linspace(0.0, 1.0, BINS + 1)
        return np.diff(np.array([beta.cdf(edges, *each) for each in self.delays]), axis=1)


def world(
    arms: int,
    gap: float,
    moving: Callable[[Floats, Floats], Floats] = lambda means, time: means,
    best: tuple[float, float] = USUAL,
    worst: tuple[float, float] = USUAL,
    rest: tuple[float, float] = USUAL,
) -> World:
    """The first variant is best by `gap`, the last is worst.

    moving : changes means (T, K) by the time (T, 1)
    """
    start = np.array([0.1 + gap, *np.linspace(0.1, 0.1 - gap / 2, arms - 1)])
    time = (np.arange(T) + 0.5)[:, None] / T
    means = moving(np.tile(start, (T, 1)), time)
    return World(means, np.array([best, *[rest] * (arms - 2), worst]))


def rising(means: Floats, time: Floats) -> Floats:
    """All variants sell twice as much at the end as at the begin."""
    return means * (2 / 3 + 2 / 3 * time)


def weekly(means: Floats, time: Floats) -> Floats:
    """Four weeks with good and bad days, better for the second half of the variants."""
    wave = np.sin(2 * np.pi * 4 * time)
    late = np.arange(means.shape[1]) >= means.shape[1] / 2
    moved: Floats = means + wave * np.where(late, 0.03, -0.02)
    return moved


def awakening(means: Floats, time: Floats) -> Floats:
    """The best one begins as a bad one, and makes up for it."""
    gap = means[0, 0] - means[0, 1]
    change = np.zeros_like(means)
    change[:, 0] = np.where(time[:, 0] < 0.3, -1.2 * gap, 1.2 * gap * 0.3 / 0.7)
    return means + change


def fading(means: Floats, time: Floats) -> Floats:
    """The second best begins as the best: a novelty."""
    change = np.zeros_like(means)
    change[:, 1] = np.where(time[:, 0] < 0.2, 0.06, -0.015)
    return means + change


WORLDS = {
    "still, 3 variants": partial(world, 3, 0.018),
    "still, 5 variants": partial(world, 5, 0.025),
    "still, 10 variants": partial(world, 10, 0.033),
    "rising, 5": partial(world, 5, 0.025, rising),
    "weekly, 5": partial(world, 5, 0.025, weekly),
    "awakening, 5": partial(world, 5, 0.025, awakening),
    "fading novelty, 5": partial(world, 5, 0.025, fading),
    "slow best, 3": partial(world, 3, 0.018, best=LATE),
    "slow best, 5": partial(world, 5, 0.025, best=LATE),
    "slow best, 10": partial(world, 10, 0.033, best=LATE),
    "decoy, 5": partial(world, 5, 0.025, best=LATE, rest=LATE, worst=QUICK),
}


@dataclass(eq=False)
class Part:
    """A segment of all tests at once: its assignments, and the purchases by part of the window."""

    segment: Segment
    start: int
    counts: Counts
    bought: Counts
    superseded: bool = False

    @property
    def end(self) -> int:
        """The first visit after it."""
        return self.start + int(self.segment.rounds[0])

    def stats(self, bins: int = BINS) -> SegmentStats:
        """Sums with the purchases of the first parts of the window."""
        sums = self.bought[:, :, :bins].sum(axis=2).astype(np.float64)
        return SegmentStats(self.counts, sums, sums)


def tested(
    policy: IPSPolicy[Any], given: World, window: int, mode: Mode, trials: int, seed: int
) -> Counts:
    """(n,) the picks of tests whose purchases come within `window` visits.

    The clock counts visits; decisions are those of `live.decisions.transition` with
    ``missing="zero"``, made for all tests at once.
    """
    K = given.means.shape[1]
    arms, rng = sa.ArmSet.one_hot([str(k) for k in range(K)]), np.random.default_rng(seed)
    state, lags = policy.start(arms, T, trials=trials, seed=seed), given.lags
    waiting: list[Part] = []
    now = 0
    while now < T:
        over = [part for part in waiting if part.end + window <= now]
        waiting = [part for part in waiting if part.end + window > now]
        for part in over:
            state = policy.observe(state, part.segment, part.stats())
        segment, superseded = _next(policy, state, waiting, now, window, mode)
        rounds = min(int(segment.rounds[0]), T - now)
        segment = segment.lasting(rounds)
        counts = np.rint(segment.weights * rounds).astype(np.int64)
        assert (counts.sum(axis=1) == rounds).all(), "a segment is not made of whole blocks"
        means = given.means[now : now + rounds].mean(axis=0)
        bought = rng.multinomial(rng.binomial(counts, means), lags)
        waiting.append(Part(segment, now, counts, bought, superseded))
        now += rounds
    for part in waiting:
        state = policy.observe(state, part.segment, part.stats())
    return policy.recommend(state).arm


def _next(
    policy: IPSPolicy[Any],
    state: IPSState,
    waiting: list[Part],
    now: int,
    window: int,
    mode: Mode,
) -> tuple[Segment, bool]:
    """The segment that opens, and whether it is cut short because others end meanwhile."""
    planned = policy.next_segment(state)
    assert planned is not None
    planned = next(planned.parts(T))
    if not waiting or (mode == "waiting" and waiting[-1].superseded):
        return planned, False
    length = planned.part_length(T)
    last = waiting[-1].segment
    if mode == "waiting":
        first = waiting[0].end + window - now  # when the next one is over
        if first < length:
            block = planned.block if planned.order == "blocks" else 1
            return last.lasting(-(-max(first, 1) // block) * block), True
        return last.lasting(length), False
    scratch, rewards = state, np.zeros(state.trials)
    for part in waiting:
        age = now - (part.start + part.end) / 2
        stats = part.stats(int(min(age / window, 1.0) * BINS))
        rewards += stats.sums.sum(axis=1)
        X = policy.features(state.arms)
        scratch = policy.observe(scratch, *rewards_so_far(X, part.segment, stats, scratch.theta))
    enough = (rewards >= FEWEST * state.arms.size)[:, None]
    found = early_segment(policy, state, scratch, planned)
    weights = np.where(enough, found.weights, last.weights)
    return replace(planned.lasting(length), weights=weights), False


def errors(
    policy: IPSPolicy[Any], given: World, window: float, mode: Mode, tests: int, seed: int
) -> int:
    """How many of the tests pick another variant than the best on average."""
    best, found = int(given.means.mean(axis=0).argmax()), 0
    assert best == 0
    for start in range(0, tests, CHUNK):
        n = min(CHUNK, tests - start)
        picks = tested(policy, given, round(window * T), mode, n, seed + start)
        found += int((picks != best).sum())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tests", type=int, default=4000, help="tests of each cell")
    parser.add_argument("--windows", type=float, nargs="+", default=[0.1, 0.5], help="of the test")
    parser.add_argument("--only", default="", help="worlds whose names begin with this")
    parser.add_argument("--seed", type=int, default=1, help="of all draws")
    given = parser.parse_args()
    began, seed = perf_counter(), given.seed
    columns = ["balanced", "prompt"]
    columns += [f"{mode} {w:.0%}" for w in given.windows for mode in ("early", "waiting")]
    print(f"{given.tests} tests of {T} visits a cell: errors [95 % interval], ratio to balanced")
    ratios: dict[str, list[Floats]] = {}
    for name, make in WORLDS.items():
        if not name.startswith(given.only):
            continue
        this = make()
        run = partial(errors, tests=given.tests, seed=seed)
        found = [
            run(sa.Steady(robustness=1.0), this, 0.0, "waiting"),
            run(sa.Steady(), this, 0.0, "waiting"),
        ]
        for window in given.windows:
            found += [run(sa.Steady(), this, window, mode) for mode in ("early", "waiting")]
        print(name)
        for column, count in zip(columns, found, strict=True):
            low, high = binomtest(count, given.tests).proportion_ci(method="wilson")
            ratio = max(count, 0.5) / max(found[0], 0.5)
            print(f"  {column:12} {count / given.tests:.4f} [{low:.4f}, {high:.4f}]  {ratio:.2f}")
        kind = "slow best" if "slow" in name or "decoy" in name else "the others"
        logs = np.log(np.maximum(found, 0.5) / max(found[0], 0.5))
        ratios.setdefault(kind, []).append(logs)
    for kind, rows in ratios.items():
        means = np.exp(np.mean(rows, axis=0))
        shown = "  ".join(f"{c} {m:.2f}" for c, m in zip(columns, means, strict=True))
        print(f"geometric mean, {kind}: {shown}")
    print(f"{perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
