"""How honest are the lifts: how often do intervals of differences from a control hold?

Three kinds of reward (clicks, normal, money of which 95 % is nothing) in worlds that stand still,
have a weekly rhythm or a trend that differs from variant to variant, and in live sessions whose
rewards come late. Absolute and relative lifts of all variants must be right at once: at the end
in a single analysis, and at twenty interim analyses together. Coverage is printed with Wilson's
95 % interval; MISS where it lies below 94 %. Relative lifts that are not defined count as right.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import binomtest

import steadyarm as sa
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.lift import Lifts, lift_path, lifts

LEVEL, LEAST = 0.95, 0.94
PIECES, LOOKS, CHUNK = 40, 20, 250
DAYS = 28
NAMES = ("today", "equal", "better", "worse")
LIFT = np.array([1.0, 1.0, 1.08, 0.92])
VISITS = {"clicks": 8000, "normal": 4000, "money": 16000}
LATE, LATE_VISITS, LATE_LOOKS = "late", 2000, 4
Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Batch = Callable[[int], dict[str, Floats]]


def courses() -> dict[str, Floats]:
    """(days, K) what each variant brings on each day, in units of today's average."""
    days = np.arange(DAYS)
    week = np.array([1.1, 1.2, 1.2, 1.1, 1.0, 0.7, 0.7])[days % 7, None]
    weekend = (days % 7 >= 5)[:, None] * np.array([0.0, 0.3, -0.2, 0.1])
    rise = np.linspace(-1, 1, DAYS)[:, None] * np.array([0.2, 0.0, 0.4, -0.2])
    return {
        "stationary": np.tile(LIFT, (DAYS, 1)),
        "rhythm": week * (LIFT + weekend),
        "trend": LIFT + rise,
    }


def world_of(kind: str, course: Floats, visits: int) -> sa.Environment | sa.Replay:
    """A world whose rewards have the means of a course."""
    arms = sa.ArmSet.one_hot(list(NAMES))
    day = np.arange(visits) * DAYS // visits
    if kind == "clicks":
        return sa.Environment.from_means(arms, 0.08 * course[day], sa.BernoulliReward())
    if kind == "normal":
        return sa.Environment.from_means(arms, course[day], sa.GaussianNoise(1.0))
    buyers, sigma = 250, 1.2  # of 5,000 visitors a day, for lognormal amounts of mean 1
    amounts = np.exp(sigma * ndtri((np.arange(buyers) + 0.5) / buyers) - sigma**2 / 2)
    rewards = np.zeros((DAYS, len(NAMES), 5000))
    rewards[:, :, :buyers] = course[:, :, None] * amounts
    period, arm = np.indices(rewards.shape)[:2].reshape(2, -1)
    return sa.Replay.from_log(arms, period, arm, rewards.ravel(), visits)


def evidence_of(
    policy: sa.Policy[Any], world: sa.Environment | sa.Replay, trials: int, seed: int
) -> Evidence:
    """A batch of tests, in pieces of whole blocks of at most 1/40 of the budget."""
    rng, pieces = np.random.default_rng(seed), []
    state = policy.start(world.arms, world.budget, trials, seed=seed)
    while (segment := policy.next_segment(state)) is not None:
        unit = segment.block if segment.order == "blocks" else 1
        most = max(1, world.budget // PIECES // unit) * unit
        segment = replace(segment, rounds=np.minimum(segment.rounds, most))
        stats = world.play(segment, state.played, rng, squares=True)
        pieces.append((segment, stats))
        state = policy.observe(state, segment, stats)
    return Evidence.from_segments(world.arms, pieces)


def right(found: Lifts, truth: Floats) -> Booleans:
    """(n, 2) whether all absolute lifts are right, and all relative ones; truth (n, K) values."""
    slack, today = 1e-9, truth[:, [found.control]]
    apart = truth - today
    absolute = (found.low <= apart + slack) & (apart - slack <= found.high)
    share = apart / today
    inside = (found.relative_low <= share + slack) & (share - slack <= found.relative_high)
    relative = inside | np.isnan(found.relative)
    return np.stack([absolute.all(axis=1), relative.all(axis=1)], axis=1)


def measured(kind: str, course: str, policy: sa.Policy[Any], seed: int) -> dict[str, Floats]:
    """Per test of a batch: what was right at the end and at all interim analyses, and widths."""
    world = world_of(kind, courses()[course], VISITS[kind])
    evidence = evidence_of(policy, world, CHUNK, seed)
    rounds = np.cumsum(evidence.rounds, axis=1)
    sums = np.vstack([0 * world.means[:1], world.means.cumsum(axis=0)])

    def truth(j: int) -> Floats:
        return np.asarray(sums[rounds[:, j]] / np.maximum(rounds[:, [j]], 1))

    at = np.unique(np.linspace(1, rounds.shape[1] - 1, LOOKS).astype(int)).tolist()
    once = lifts(evidence, 0, LEVEL)
    path = lift_path(evidence, world.budget, 0, LEVEL, at=at)
    watched = np.all([right(look, truth(j)) for look, j in zip(path, at, strict=True)], axis=0)
    return {
        "once": right(once, truth(-1)).astype(float),
        "watched": watched.astype(float),
        "once width": _width(once),
        "watched width": _width(path[-1]),
    }


def _width(found: Lifts) -> Floats:
    """(n, 2) mean width of absolute and relative intervals; nan where one is not known."""
    absolute, relative = found.high - found.low, found.relative_high - found.relative_low
    both = np.stack([absolute[:, 1:], relative[:, 1:]], axis=2).mean(axis=1)
    return np.where(np.isfinite(both), both, np.nan)


def late_session(kind: str, seed: int) -> tuple[Booleans, Booleans, Floats]:
    """One live session with a weekly rhythm, whose rewards come late: large ones last."""
    rng = np.random.default_rng([7, seed])
    arms = sa.ArmSet.one_hot(list(NAMES))
    visits = LATE_VISITS * (2 if kind == "money" else 1)
    course = courses()["rhythm"][np.arange(visits) * DAYS // visits]
    session = sa.Session(sa.Steady(), arms, visits, seed=seed, control="today")
    sums = np.vstack([np.zeros(len(NAMES)), course.cumsum(axis=0)])
    scale = {"clicks": 0.16, "normal": 1.0, "money": 0.05}[kind]
    waiting: list[tuple[int, int, float]] = []
    watched = np.ones(2, dtype=bool)

    def judged(verdict: sa.Verdict) -> Booleans:
        truth = scale * sums[[verdict.judged]] / verdict.judged
        return np.asarray(right(_lifts_in(verdict), truth)[0])

    for t in range(visits):
        shown = session.ask()
        reward = float(_rewards(kind, scale * course[t, shown.arm], rng))
        delay = rng.exponential(visits / 40) * (2 if reward > 0 else 1)
        heapq.heappush(waiting, (t + int(delay), shown.number, reward))
        while waiting and waiting[0][0] <= t:
            _, number, value = heapq.heappop(waiting)
            session.tell(number, value)
        if t and t % (visits // (LATE_LOOKS + 1)) == 0:
            try:
                watched &= judged(session.recommend(LEVEL, anytime=True))
            except sa.RewardsPendingError:
                continue
    for _, number, value in waiting:
        session.tell(number, value)
    end = session.recommend(LEVEL, anytime=False)
    found = _lifts_in(end)
    return judged(end), watched, _width(found)[0]


def _rewards(kind: str, mean: float, rng: np.random.Generator) -> float:
    if kind == "clicks":
        return rng.random() < mean
    if kind == "normal":
        return mean + rng.normal()
    sigma = 1.2
    return (rng.random() < 0.05) * mean / 0.05 * rng.lognormal(-(sigma**2) / 2, sigma)


def _lifts_in(verdict: sa.Verdict) -> Lifts:
    """The lifts of a verdict, as a batch of one."""
    assert verdict.lifts is not None
    assert verdict.lift_intervals is not None
    assert verdict.relative is not None
    assert verdict.relative_intervals is not None
    low, high = verdict.lift_intervals.T
    relative_low, relative_high = verdict.relative_intervals.T
    return Lifts(
        control=0,
        differences=verdict.lifts[None],
        low=low[None],
        high=high[None],
        relative=verdict.relative[None],
        relative_low=relative_low[None],
        relative_high=relative_high[None],
        standard_errors=np.zeros((1, len(NAMES))),
        level=LEVEL,
        method=verdict.method,
        assumption=verdict.assumption,
    )


def late_batch(kind: str, seed: int) -> dict[str, Floats]:
    """Some live sessions, as `measured` gives a batch."""
    runs = [late_session(kind, CHUNK * seed + i) for i in range(CHUNK)]
    once, watched, wide = (np.array(part, dtype=float) for part in zip(*runs, strict=True))
    return {"once": once, "watched": watched, "once width": wide, "watched width": wide * np.nan}


def cells(kinds: list[str], worlds: list[str]) -> Iterator[tuple[tuple[str, str, str], Batch]]:
    """Name of each cell, and what plays a batch of it."""
    policies: tuple[sa.Policy[Any], ...] = (sa.Steady(), sa.P1RAGE())
    for kind in kinds:
        for world in worlds:
            if world == LATE:
                yield (kind, world, "Steady"), partial(late_batch, kind)
                continue
            for policy in policies:
                yield (kind, world, policy.name), partial(measured, kind, world, policy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="a multiple of 250")
    parser.add_argument(
        "--kinds", nargs="*", choices=list(VISITS), default=list(VISITS), help="default: all"
    )
    worlds = [*courses(), LATE]
    parser.add_argument("--worlds", nargs="*", choices=worlds, default=worlds, help="default: all")
    parser.add_argument("--processes", type=int, default=2, help="that play tests side by side")
    options = parser.parse_args()
    if options.trials < CHUNK or options.trials % CHUNK:
        parser.error(
            f"--trials is {options.trials}, no multiple of {CHUNK}: tests are played in such lots"
        )
    begin, missed = perf_counter(), 0
    print(f"{options.trials} tests each, all lifts right at once, in %; level {LEVEL:.0%}.\n")
    head = f"{'rewards':<9}{'world':<12}{'policy':<9}{'analyses':<10}"
    print(f"{head}{'absolute':>22}{'relative':>24}{'width':>12}{'relative':>10}{'unknown':>9}")
    with ProcessPoolExecutor(options.processes) as pool:
        for name, play in cells(options.kinds, options.worlds):
            runs = list(pool.map(play, range(options.trials // CHUNK)))
            found = {key: np.concatenate([run[key] for run in runs]) for key in runs[0]}
            for analyses in ("once", "watched"):
                said = ""
                for column in found[analyses].T:
                    text, low = coverage(int(column.sum()), len(column))
                    said, missed = said + text, missed + low
                wide = found[f"{analyses} width"]
                lost = np.isnan(wide[:, 1])
                unknown = "" if lost.all() else f"{100 * lost.mean():8.1f}%"
                widths = "".join(
                    f"{np.nanmean(column):{size}.3f}" if np.isfinite(column).any() else " " * size
                    for column, size in zip(wide.T, (10, 10), strict=True)
                )
                shown = "".join(f"{part:<{n}}" for part, n in zip(name, (9, 12, 9), strict=True))
                print(f"{shown}{analyses:<10}{said}{widths}{unknown}".rstrip(), flush=True)
    result = "PASS" if not missed else f"MISS in {missed} places"
    print(f"\n{result}, {perf_counter() - begin:.0f} s")


def coverage(rights: int, trials: int) -> tuple[str, bool]:
    """The share with Wilson's interval, and whether it is surely below 94 %."""
    bound = binomtest(rights, trials).proportion_ci(0.95, method="wilson")
    low = bool(bound.high < LEAST)
    text = f"{100 * rights / trials:6.2f} ({100 * bound.low:.1f}-{100 * bound.high:.1f})"
    return f"{text:>19}{' MISS' if low else '     '}", low


if __name__ == "__main__":
    main()
