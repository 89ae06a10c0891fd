"""How much does a sweep cost beside the simulations in it?

Cells of about a second each, by `sa.compare` with its journal, against the same simulations one
after the other: extra processor time as a share. Then thousands of tiny cells on threads, processes
and a Dask cluster of processes: processor time of all processes for each cell, their start
included, less that of the same cells by `sa.simulate`; and how long one waits for it, which other
work on the machine prolongs. Then a world from a function, and the adaptive adversary, against a
table. At last positions of a live test in blocks against independent draws.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import steadyarm as sa
from steadyarm.segments import Order, Segment, arms_between
from steadyarm.sweeps import stream_of

ARMS = sa.ArmSet.one_hot(list("ABCDE"))
MEANS = np.array([0.5, 0.4, 0.3, 0.2, 0.1])


def still(budget: int) -> sa.Environment:
    return sa.Environment.from_means(ARMS, MEANS, budget=budget)


def moving(budget: int) -> sa.Environment:
    """A table over time, as long as the test."""
    wave = 0.1 * np.sin(np.arange(budget) / 50)[:, None]
    return sa.Environment.from_means(ARMS, MEANS + wave, sa.GaussianNoise(0.5))


def called(budget: int) -> Any:
    table = moving(budget).means

    def reward(arms: Any, rounds: Any, rng: np.random.Generator) -> Any:
        return table[rounds, arms] + 0.5 * rng.standard_normal(len(arms))

    return sa.Environment.from_callable(ARMS, reward, budget, table.mean(axis=0))


def adversary(budget: int) -> sa.AdaptiveAdversary:
    table = moving(budget).means
    return sa.AdaptiveAdversary(ARMS, lambda rounds, plays: table[rounds], budget)


def seconds(run: Any) -> tuple[float, float]:
    """Waiting time, and processor time with that of processes which were started and have ended."""

    def worked() -> float:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + ended.ru_utime + ended.ru_stime

    started, before = time.perf_counter(), worked()
    run()
    return time.perf_counter() - started, worked() - before


def large_cells(trials: int, repeats: int) -> None:
    policies: dict[str, Any] = {"Steady": sa.Steady(), "P1-RAGE": sa.P1RAGE()}
    budgets = [2000, 4000]

    def bare() -> None:
        for budget in budgets:
            for name, policy in policies.items():
                world, stream = moving(budget), stream_of(0, "moving", budget, name)
                sa.simulate(policy, world, trials, stream, jobs=1)

    def sweep() -> None:
        with tempfile.TemporaryDirectory() as folder:
            journal = Path(folder) / "sweep.jsonl"
            sa.compare(policies, {"moving": moving}, budgets, trials, jobs=1, journal=journal)

    bare()  # compiled now
    sweep()
    ratios = []
    for _ in range(repeats):
        base = seconds(bare)[1]
        ratios.append(seconds(sweep)[1] / base - 1)
        each = base / len(budgets) / len(policies)
    print(
        f"cells of {each:.2f} s: the sweep costs {100 * np.median(ratios):+.1f} % of processor "
        f"time (median of {repeats}; {100 * min(ratios):+.1f} to {100 * max(ratios):+.1f} %; aim 5)"
    )


def tiny_cells(cells: int, engines: list[str]) -> None:
    budgets = list(range(20, 20 + cells // 2))
    policies = [sa.Uniform(), sa.GBAI()]
    few = budgets[:: max(1, len(budgets) // 200)]

    def bare() -> None:
        for budget in few:
            for policy in policies:
                sa.simulate(policy, still(budget), 8, budget, jobs=1)

    bare()
    base = seconds(bare)[1] / len(few) / 2
    print(f"tiny cells, 8 trials of 20 to {budgets[-1]} rounds: {1000 * base:.2f} ms by simulate")
    for engine in engines:
        sa.compare(policies, {"still": still}, budgets[:2], 8, engine=engine)  # compiled now
        with tempfile.TemporaryDirectory() as folder:
            journal = Path(folder) / "sweep.jsonl"

            def sweep(engine: str = engine, journal: Path = journal) -> None:
                found = sa.compare(
                    policies, {"still": still}, budgets, 8, engine=engine, journal=journal
                )
                assert len(found.cells) == 2 * len(budgets)

            waited, worked = (1000 * x / 2 / len(budgets) for x in seconds(sweep))
        print(
            f"  {2 * len(budgets):,} cells on {engine}: {worked:.2f} ms each, "
            f"{worked - 1000 * base:+.2f}; {waited:.2f} ms of waiting"
        )
    print("  (aim: at most 3 ms over the bare cell)")


def worlds(trials: int, budget: int) -> None:
    times = {}
    for name, make in {"table": moving, "function": called, "adversary": adversary}.items():
        world: Any = make(budget)
        sa.simulate(sa.Steady(), world, 50, jobs=1)
        times[name] = min(
            seconds(lambda world=world: sa.simulate(sa.Steady(), world, trials, jobs=1))[1]
            for _ in range(3)
        )
    for name in ("function", "adversary"):
        ratio = times[name] / times["table"]
        print(f"a world from {name}: {ratio:.2f} times a table (T = {budget}, {trials} trials)")


def draws(positions: int) -> None:
    weights, rounds = np.full((1, 12), 1 / 12), np.array([positions])
    times: dict[Order, float] = {}
    orders: tuple[Order, ...] = ("blocks", "iid")
    for order in orders:
        segment = Segment(weights, rounds, order, block=12 if order == "blocks" else 1)
        times[order] = min(
            seconds(lambda segment=segment: arms_between(segment, 7, 3, 0, positions))[0]
            for _ in range(20)
        )
    print(
        f"{positions:,} positions in blocks of 12: {1000 * times['blocks']:.2f} ms, "
        f"{times['blocks'] / times['iid']:.1f} times independent draws"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=4000, help="of the cells of a second")
    parser.add_argument("--cells", type=int, default=10_000, help="tiny ones")
    parser.add_argument("--repeats", type=int, default=5, help="of the comparison of large cells")
    engines = ["threads", "processes", "dask"]
    parser.add_argument("--engines", nargs="+", default=engines, help="on which tiny cells run")
    args = parser.parse_args()
    large_cells(args.trials, args.repeats)
    tiny_cells(args.cells, args.engines)
    worlds(2000, 2000)
    draws(10_000)


if __name__ == "__main__":
    main()
