"""How often are the intervals of `analyze` right for tests with an equal split?

Two weeks in which rewards drift. "plain": users, each once; "covariate": one that explains half
of the variance; "skewed": rewards are lognormal. "ratio": revenue per order, by linearization.
"stores": the variant is drawn for a store, whose users share a level of their own (standard
deviation 1, as the noise); "unequal": a few stores have most of the users. "switchback": drawn for
a store and day; "lasting": yesterday's noise of a store lives on, and clusters are stores. "by
row": what the same log says if nobody knows of stores. Intervals should be right in 95 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

import steadyarm as sa
from benchmarks.how_right_is_analyze import Log as Rows
from benchmarks.how_right_is_analyze import evidence_of, rate
from steadyarm.analysis import adjusting, allocations, splits
from steadyarm.inference.evidence import Evidence
from steadyarm.inference.intervals import fixed_budget
from steadyarm.live.measured import ratio_widening

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
DAYS, START = 14, datetime(2026, 3, 2)
ARMS = sa.ArmSet.one_hot(["A", "B"])
SPLIT = splits.checked_split("equal")


@dataclass(frozen=True)
class Log:
    """Rows: when, what was drawn, what came of it, and what else is known.

    gap : by how much B is better in truth
    z : (N,) a covariate, or what a ratio is divided by
    store : (N,) the cluster of each row
    """

    day: Integers
    arm: Integers
    reward: Floats
    gap: float
    z: Floats | None = None
    store: Integers | None = None


# Logs.


def users(rng: np.random.Generator, rows: int, skewed: bool, covariate: bool) -> Log:
    """Users who come once; the level moves from day to day."""
    day = np.sort(rng.integers(0, DAYS, rows))
    arm = rng.integers(0, 2, rows)
    z = rng.normal(size=rows)
    noise = rng.lognormal(size=rows) - np.exp(0.5) if skewed else rng.normal(size=rows)
    level = np.cumsum(rng.normal(0, 0.3, DAYS))
    reward = level[day] + 0.2 * arm + z + noise
    return Log(day, arm, reward, 0.2, z if covariate else None)


def orders(rng: np.random.Generator, rows: int) -> Log:
    """Revenue and number of orders of users; the ratio is 20 with A and 21 with B."""
    day = np.sort(rng.integers(0, DAYS, rows))
    arm = rng.integers(0, 2, rows)
    often = np.where(rng.random(rows) < 0.1, 4.0, 1.0)
    count = rng.poisson(often * np.where(arm == 1, 0.45, 0.4)).astype(np.float64)
    each = (20.0 + arm) * (1 + 0.2 * (often - 1)) * rng.lognormal(-0.125, 0.5, rows)
    per = (0.9 + 0.1 * 4 * 1.6) / (0.9 + 0.1 * 4)  # who orders often orders for more
    return Log(day, arm, count * each, per, z=count)


def stores(rng: np.random.Generator, count: int, unequal: bool, rows: int = 1200) -> Log:
    """The variant is drawn for each store; its users share a level, and come on all days."""
    size = rng.lognormal(0, 0.8, count) if unequal else np.ones(count)
    visits = np.maximum(1, size * rows / size.sum()).astype(np.int64)
    store = rng.permutation(np.repeat(np.arange(count), visits))
    level, drawn = rng.normal(size=count), rng.integers(0, 2, count)
    day = np.sort(rng.integers(0, DAYS, len(store)))
    arm = drawn[store]
    reward = level[store] + 0.05 * day + 0.3 * arm + rng.normal(size=len(store))
    return Log(day, arm, reward, 0.3, store=store)


def switchback(rng: np.random.Generator, count: int, lasting: bool) -> Log:
    """The variant is drawn for each store and day; levels of days are independent, or last."""
    each = 8
    level = rng.normal(size=(count, 1)) + rng.normal(size=(count, DAYS))
    if lasting:
        for today in range(1, DAYS):
            level[:, today] += 0.7 * (level[:, today - 1] - level[:, today])
    drawn = rng.integers(0, 2, (count, DAYS))
    shop, day = (values.repeat(each) for values in np.indices((count, DAYS)).reshape(2, -1))
    arm = drawn[shop, day]
    reward = level[shop, day] + 0.3 * arm + rng.normal(size=len(shop))
    return Log(day, arm, reward, 0.3, store=shop if lasting else shop * DAYS + day)


# What `analyze` makes of them, from the sums that a database would give.


def day_of(day: int) -> Any:
    """The bucket of a day."""
    return (START + timedelta(days=day)).date()


def split_evidence(log: Log, reward: Floats | None = None, covariate: bool = False) -> Evidence:
    """By `split="equal"`, from rows that are independent."""
    r = log.reward if reward is None else reward
    z0 = np.ones(len(r))
    z = [z0, log.z] if covariate and log.z is not None else []
    cell = 2 * log.day + log.arm

    def total(values: Floats) -> Floats:
        return np.bincount(cell, values, 2 * DAYS).astype(np.float64)

    n = np.bincount(cell, minlength=2 * DAYS)
    sums: dict[str, Any] = {"n": n, "m": n, "s": total(r), "ss": total(r * r)}
    for a, one in enumerate(z):
        sums |= {f"z{a}": total(one), f"zr{a}": total(one * r)}
        sums |= {f"zz{a}_{b}": total(one * z[b]) for b in range(a + 1)}
    rows = [
        {"bucket": day_of(i // 2), "arm": ARMS.names[i % 2], "probabilities": "split 0"}
        | {"first": START + timedelta(days=i // 2)}
        | {name: values[i] for name, values in sums.items()}
        for i in np.flatnonzero(n).tolist()
    ]
    assert SPLIT is not None
    pieces, _ = allocations.allocation_pieces(rows, ARMS, False, SPLIT.allocations(ARMS))
    if z:
        pieces = adjusting.adjusted_pieces(pieces, ARMS, False)
    strata = splits.strata(pieces, ARMS)
    adjusted = any(piece.level for piece in pieces)
    return allocations.allocation_evidence(ARMS, strata, "maximize", True, adjusted=adjusted)[0]


def ratio_evidence(log: Log) -> Evidence:
    """Of reward over z, linearized as two tables do."""
    assert log.z is not None
    above, below = split_evidence(log), split_evidence(log, log.z)
    ratio, per = above.estimates[0] / below.estimates[0], below.estimates[0]
    sums, squares = (np.bincount(log.arm, log.z**power, 2).astype(float) for power in (1, 2))
    wider = ratio_widening("ratio", "orders", sums, squares)
    off = log.reward - ratio[log.arm] * log.z
    return split_evidence(log, ratio[log.arm] + off * (wider / per)[log.arm])


def cluster_evidence(log: Log) -> Evidence:
    """By `split="equal"` and the cluster of each row."""
    assert log.store is not None
    _, unit = np.unique(log.store, return_inverse=True)
    return evidence_of(Rows(unit, log.day, log.arm, np.full(len(unit), 0.5), log.reward))


def covering(found: Sequence[Evidence], gap: float) -> int:
    """In how many of these tests the interval of B less A has the truth in it."""
    groups: dict[Any, list[Evidence]] = {}
    for one in found:
        shape = one.rounds.shape, one.block, one.within is None, one.weights is None
        groups.setdefault(shape, []).append(one)
    right = 0
    for group in groups.values():  # as one batch, which takes a hundredth of the time
        arrays: dict[str, Any] = {
            each.name: np.concatenate([getattr(one, each.name) for one in group])
            for each in fields(Evidence)
            if isinstance(getattr(group[0], each.name), np.ndarray)
        }
        batch = replace(group[0], **arrays)
        limits = fixed_budget(batch, recommended=np.ones(len(group), dtype=np.int64))
        right += int(((limits.gap_low[:, 0] <= gap) & (gap <= limits.gap_high[:, 0])).sum())
    return right


Make = Callable[[np.random.Generator], Log]
Analyse = Callable[[Log], Evidence]


def with_covariate(log: Log) -> Evidence:
    """By `covariates=["z"]`."""
    return split_evidence(log, covariate=True)


CELLS: dict[str, tuple[Make, Analyse]] = {
    "plain": (lambda rng: users(rng, 1500, False, False), split_evidence),
    "covariate": (lambda rng: users(rng, 1500, False, True), with_covariate),
    "covariate, few rows": (lambda rng: users(rng, 300, False, True), with_covariate),
    "covariate, skewed": (lambda rng: users(rng, 1500, True, True), with_covariate),
    "ratio": (lambda rng: orders(rng, 1500), ratio_evidence),
    "ratio, few rows": (lambda rng: orders(rng, 300), ratio_evidence),
    "10 stores": (lambda rng: stores(rng, 10, False), cluster_evidence),
    "20 stores": (lambda rng: stores(rng, 20, False), cluster_evidence),
    "20 unequal stores": (lambda rng: stores(rng, 20, True), cluster_evidence),
    "50 unequal stores": (lambda rng: stores(rng, 50, True), cluster_evidence),
    "200 stores": (lambda rng: stores(rng, 200, False), cluster_evidence),
    "switchback, 12 stores": (lambda rng: switchback(rng, 12, False), cluster_evidence),
    "lasting, 12 stores": (lambda rng: switchback(rng, 12, True), cluster_evidence),
    "lasting, 24 stores": (lambda rng: switchback(rng, 24, True), cluster_evidence),
}


def main() -> None:
    """Simulate logs and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=2000, help="simulated logs of each kind")
    args = parser.parse_args()
    print(f"{args.tests} logs of each kind; p: of as few right intervals, if 94 % were right\n")
    print(f"{'log':<24}{'right':<24}{'p':<10}by row")
    for name, (make, analyse) in CELLS.items():
        logs = [make(np.random.default_rng([7, i])) for i in range(args.tests)]
        right = covering([analyse(log) for log in logs], logs[0].gap)
        p = binomtest(right, args.tests, 0.94, "less").pvalue
        rows = ""
        if analyse is cluster_evidence:
            by_row = covering([split_evidence(log) for log in logs], logs[0].gap)
            rows = rate(by_row, args.tests)
        print(f"{name:<24}{rate(right, args.tests):<24}{p:<10.3g}{rows}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
