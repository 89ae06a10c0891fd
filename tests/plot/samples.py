"""Parts of a look to draw: estimates that settle, shares that narrow down, a world that drifts."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import cache

import numpy as np

import steadyarm as sa
from steadyarm.inference import DriftReport, Evidence, drift_report
from steadyarm.live.effects import effects_of
from steadyarm.live.scorecard import Course, Effects, Shares, Waiting
from steadyarm.live.verdict import Verdict
from steadyarm.plot import charts
from steadyarm.plot.chart import Chart
from steadyarm.segments import Segment

START = datetime(2026, 11, 2, 8, 30, tzinfo=UTC)
HOSTILE = '<b onclick="x()">$a$ & </b><a href="javascript:1">%{x}</a>_{^$'


def names(K: int) -> tuple[str, ...]:
    return tuple(f"variant {k + 1}" for k in range(K))


def moments(J: int) -> tuple[datetime, ...]:
    return tuple(START + timedelta(hours=5.5 * (j + 1)) for j in range(J))


def course(K: int, J: int = 60, clock: bool = True, named: tuple[str, ...] | None = None) -> Course:
    rng = np.random.default_rng([K, J])
    truth = 0.1 - 0.05 * (np.arange(K) / K) ** 0.5
    truth[K // 3] += 0.01
    rounds = np.arange(1, J + 1) * 200
    noise = np.cumsum(rng.normal(0, 0.02, (J, K)), axis=0) / np.arange(1, J + 1)[:, None]
    estimates = truth + noise
    reach = np.repeat(1.2 / np.sqrt(rounds)[:, None], K, axis=1)
    reach[rounds < 600] = np.inf
    leaders = estimates.argmax(axis=1)
    best = estimates.max(axis=1, keepdims=True)
    plausible = best - estimates <= np.maximum(reach, 0.012)
    low, high = estimates - reach, estimates + reach
    times = moments(J) if clock else None
    return Course(named or names(K), times, rounds, estimates, low, high, leaders, plausible, 0.95)


def shares(K: int, J: int = 60, clock: bool = True, named: tuple[str, ...] | None = None) -> Shares:
    rng = np.random.default_rng([K, J, 1])
    planned = np.full((J, K), 1 / K)
    left = np.arange(K)
    for cut in (J // 3, J // 2, 3 * J // 4):
        left = left[: max(len(left) // 2, 2)]
        planned[cut:] = 0.2 / K
        planned[cut:, left] += 0.8 / len(left)
    given = np.array([rng.multinomial(200, row) for row in planned])
    turns = np.append(False, np.abs(np.diff(planned, axis=0)).sum(axis=1) > 0.01)
    ends = moments(J) if clock else None
    starts = None if ends is None else (START, *ends[:-1])
    rounds = given.sum(axis=1)
    return Shares(named or names(K), starts, ends, rounds, planned, given, turns)


def evidence(arms: sa.ArmSet, means: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Evidence:
    """Of a test that is split evenly, a piece of 400 rounds for each row of means."""
    P, K = means.shape
    world = sa.Environment.from_means(arms, np.repeat(means, 400, axis=0), sa.BernoulliReward())
    rng, fair = np.random.default_rng(P * K), Segment(np.full((1, K), 1 / K), np.array([400]))
    log = [(fair, world.play(fair, np.array([400 * p]), rng, squares=True)) for p in range(P)]
    return Evidence.from_segments(arms, log)


def drift(K: int, P: int = 10, named: tuple[str, ...] | None = None) -> DriftReport:
    wave = 0.06 * np.sin(np.arange(P) / 1.5)[:, None]
    means = 0.4 - 0.2 * np.arange(K) / K + wave
    means[:, 0] -= 2 * wave[:, 0]
    days = [f"{date(2026, 11, 2) + timedelta(days=p)}" for p in range(P)]
    arms = sa.ArmSet.one_hot(named or names(K))
    return drift_report(evidence(arms, means), days)


def verdict(K: int, named: tuple[str, ...] | None = None) -> Verdict:
    found, who = course(K), named or names(K)
    last, k = found.estimates[-1], int(found.leaders[-1])
    gaps = last[k] - last
    return Verdict(
        arm=k,
        name=who[k],
        estimates=last,
        standard_errors=np.full(K, 0.004),
        intervals=np.column_stack([found.low[-1], found.high[-1]]),
        gaps=gaps,
        gap_intervals=np.column_stack([gaps - 0.01, gaps + 0.01]),
        plausible=tuple(who[i] for i in np.flatnonzero(found.plausible[-1])),
        level=0.95,
        anytime=True,
        method="made up",
        assumption="made up",
        rewards=int(found.rounds[-1]),
        names=who,
    )


def factors(named: str = "headline") -> dict[str, list[str]]:
    return {named: ["short", "long"], "image": ["cat", "dog", "none"], "button": ["red", "blue"]}


def effects(named: str = "headline") -> Effects:
    levels = factors(named)
    arms = sa.ArmSet.factorial(levels, interactions=2)
    means = np.full((10, 12), 0.3)
    means[:, :6] += 0.1
    means[:, [2, 3, 8, 9]] += 0.15
    means[:, [0, 1]] += 0.2
    return effects_of(evidence(arms, means), {f: tuple(v) for f, v in levels.items()})


def items(n: int = 7, first: str = "item 1") -> Effects:
    """Of bundles of two of n items: the first is best, and items from the third on are alike."""
    named = (first, *(f"item {k + 1}" for k in range(1, n)))
    arms = sa.ArmSet.bundles(named, size=2, interactions=1)
    worth = np.where(np.arange(n) == 0, 0.3, np.where(np.arange(n) == 1, 0.2, 0.1))
    means = arms.features[:, 1:] @ worth
    return effects_of(evidence(arms, np.tile(means, (10, 1))), arm=0)


def waiting(D: int = 14) -> Waiting:
    rng = np.random.default_rng(D)
    assigned = rng.integers(800, 1200, D)
    told = (assigned * np.linspace(0.99, 0.4 if D > 1 else 0.99, D) ** 2).astype(np.int64)
    hours = np.where(told > 0, 5 + rng.random(D) * 8, np.nan)
    days = tuple(date(2026, 11, 2) + timedelta(days=d) for d in range(D))
    return Waiting(days, assigned, told, rng.integers(0, 40, D), hours)


def charts_of(
    K: int, J: int = 60, P: int = 10, named: tuple[str, ...] | None = None
) -> dict[str, Chart]:
    """All charts of a test with K variants, without those of factors and plans."""
    found = [
        charts.estimates(course(K, J, named=named)),
        charts.daily(drift(K, P, named)),
        charts.allocation(shares(K, J, named=named)),
        charts.plausible(course(K, J, named=named)),
        charts.leaderboard(verdict(K, named), named or names(K), "maximize"),
        charts.drift(drift(K, P, named)),
        charts.waiting(waiting(P)),
    ]
    return {chart.name: chart for chart in found}


def other_chart(kind: str) -> Chart:
    """A chart of factors, items or a plan, made by the test: all processes import this."""
    if kind == "effects":
        return charts.effects(effects())
    if kind == "interactions":
        return charts.interactions(effects())
    if kind == "hostile effects":
        return charts.effects(effects(HOSTILE))
    if kind == "items":
        return charts.effects(items())
    if kind == "many items":
        return charts.effects(items(45, HOSTILE))
    if kind == "plan":
        return charts.plan(plan())
    raise ValueError(kind)


@cache
def plan() -> sa.Plan:
    question = {
        "traffic_per_day": 100,
        "arms": {"one_hot": ["A", "B", "C"]},
        "effects": {"smallest_gap": 0.5},
        "rewards": {"sd": 1.0},
        "rhythm": {"kind": "weekend"},
        "policies": ["g-bai", "sequential-halving"],
    }
    return sa.plan(question, trials=100)
