"""How far do designs scale: time, memory, support and proven gap, up to a million arms?

Every cell, a set of arms and a kind of design, runs in a process of its own. Time is given in
seconds and as a multiple of one pass, the computation of all leverage scores once, timed before
and after in the same process; memory as a multiple of the arms' own size, where these are stored.
A cell that takes longer than the limit is stopped and said to be. On a busy machine set
OPENBLAS_NUM_THREADS=1: threads that wait for each other make small products many times slower.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.generated import BundleRows, FactorialRows
from steadyarm.arms.rows import DenseRows, Rows
from steadyarm.designs import Design, g_optimal
from steadyarm.designs.optimal import large_xy
from steadyarm.designs.passes import leverages, span_of
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.matplotlib import png

ARMS = (1_000, 10_000, 100_000, 1_000_000)
FEATURES = (10, 50, 200)
DENSE = ("gaussian", "sphere", "binary")
IMPLICIT = ("factorial", "bundles", "front")
TOLERANCES = {"G": 1e-4, "XY": 0.1}
FRONT, FRONT_TOLERANCE = 1000, 0.1
ROOM = 20 * 2**30  # bytes of arms above which a cell is left out
MEGABYTE = 2**20
LEGEND = """\
passes': time as a multiple of one pass; made: sweeps or rounds of the solver
memory: peak above what the process had before the arms were made; of own: of the arms' own size
front: XY designs to compare the best 1,000 of 2^16 layouts, to a gap of 0.1
"""
LONG = 2.0  # seconds of passes after which no further one is timed


@dataclass(frozen=True)
class Cell:
    """One problem: which arms, which design, how close."""

    arms: str
    size: int
    features: int
    design: str
    tol: float


@dataclass(frozen=True)
class Measured:
    """What came of it; memory in bytes, `stored` is the arms' own."""

    size: int
    rank: int
    seconds: float
    one_pass: float
    memory: int
    stored: int
    support: int
    gap: float
    iterations: int


def dense(kind: str, K: int, d: int) -> DenseRows:
    rng = np.random.default_rng(0)
    X: NDArray[np.float64] = np.empty((K, d))
    for start in range(0, K, 10_000):
        block = X[start : start + 10_000]
        block[:] = rng.standard_normal(block.shape)
        if kind == "sphere":
            block /= np.linalg.norm(block, axis=1)[:, None]
        if kind == "binary":
            block[:] = block > 0.0
    return DenseRows(X)


def rows_of(cell: Cell) -> Rows:
    """Arms of a cell; factorial and bundle sets have sizes of their own."""
    if cell.arms == "factorial":
        return FactorialRows([2] * 20)
    if cell.arms == "bundles":
        return BundleRows(30, 6)
    if cell.arms == "front":
        return FactorialRows([2] * 16)
    return dense(cell.arms, cell.size, cell.features)


def solve_in_g(rows: Rows, cell: Cell) -> Design:
    """The G-optimal design."""
    return g_optimal(rows, cell.tol)


def solve_in_xy(rows: Rows, cell: Cell) -> Design:
    """The XY-optimal design."""
    K, columns = rows.shape
    among = np.arange(K)
    if cell.arms == "front":
        means = rows.block(0, K) @ np.random.default_rng(0).normal(size=columns)
        among = np.sort(np.argsort(-means)[:FRONT])
    return large_xy(rows, among, cell.tol)


SOLVERS: dict[str, Callable[[Rows, Cell], Design]] = {"G": solve_in_g, "XY": solve_in_xy}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(cell: Cell) -> Measured:
    solve = SOLVERS[cell.design]
    small = Cell("gaussian", 200, 3, cell.design, cell.tol)
    solve(dense("gaussian", 200, 3), small)  # compiles
    solve(FactorialRows([2] * 4), small)
    large_xy(FactorialRows([2] * 4), np.array([0, 5, 9]), 0.5)
    BundleRows(3, 2).block(0, 3)
    before = peak()
    rows = rows_of(cell)
    K, columns = rows.shape
    to = span_of(rows)
    passes = timed_passes(rows, to)
    start = time.perf_counter()
    design = solve(rows, cell)
    seconds = time.perf_counter() - start
    memory = peak() - before
    passes += timed_passes(rows, to)
    return Measured(
        size=K,
        rank=to.shape[1],
        seconds=seconds,
        one_pass=statistics.median(passes),
        memory=memory,
        stored=8 * K * columns if isinstance(rows, DenseRows) else 0,
        support=design.support.size,
        gap=design.gap,
        iterations=design.iterations,
    )


def timed_passes(rows: Rows, to: NDArray[np.float64]) -> list[float]:
    """Seconds of three passes, or of fewer where they are long."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < LONG:
        start = time.perf_counter()
        leverages(rows, to)
        times.append(time.perf_counter() - start)
    return times


def in_own_process(cell: Cell, limit: float) -> Measured | None:
    """What came of the cell, or None if it took longer than the limit in seconds."""
    command = [sys.executable, "-m", "benchmarks.how_far_does_it_scale", "--cell"]
    try:
        answer = subprocess.run(
            [*command, json.dumps(asdict(cell))],
            capture_output=True,
            text=True,
            check=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return None
    return Measured(**json.loads(answer.stdout))


def row(cell: Cell, found: Measured) -> str:
    own = f"{found.memory / found.stored:>6.2f}x" if found.stored else f"{'-':>7}"
    return (
        f"{cell.design:>3} {cell.arms:>10} {found.size:>10,} {found.rank:>5} "
        f"{found.seconds:>9.3f} s {found.one_pass * 1e3:>9.2f} ms "
        f"{found.seconds / found.one_pass:>8.1f}x {found.iterations:>6} "
        f"{found.memory / MEGABYTE:>8.0f} MB {own} {found.support:>9,} {max(found.gap, 0):>9.1e}"
    )


def slopes(found: Sequence[tuple[Cell, Measured]]) -> list[str]:
    """Growth of the cost of a pass with the number of arms: slopes on logarithmic axes."""
    lines = []
    measured = [m for cell, m in found if cell.arms in DENSE]
    for d in sorted({m.rank for m in measured}):
        sizes, seconds = zip(*((m.size, m.one_pass) for m in measured if m.rank == d), strict=True)
        if len(set(sizes)) > 1:
            slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
            lines.append(f"one pass, d = {d}: grows with K to the power of {slope:.2f}")
    return lines


def draw(found: Sequence[tuple[Cell, Measured]], path: Path) -> None:
    """Seconds of one pass against the number of arms, on logarithmic axes."""
    dense_cells = [measured for cell, measured in found if cell.arms in DENSE]
    series = []
    for colour, d in enumerate(sorted({measured.rank for measured in dense_cells})):
        points = sorted((m.size, m.one_pass) for m in dense_cells if m.rank == d)
        sizes, seconds = zip(*points, strict=True)
        series.append(Series(f"d = {d}", sizes, np.array(seconds), color=colour))
    panel = Panel(Axis("arms", "log"), Axis("seconds of one pass", "log"), tuple(series))
    table = Table(
        ("arms", "rank", "seconds of one pass"),
        tuple((m.size, m.rank, m.one_pass) for m in dense_cells),
    )
    title = "One pass over the arms"
    summary = f"Seconds to score every arm once, in {len(dense_cells)} sets of arms."
    path.write_bytes(png(Chart("passes", title, summary, (panel,), table)))


def cells(options: argparse.Namespace) -> list[Cell]:
    chosen = []
    for design in options.designs:
        for arms in options.sets:
            tol = options.tol or TOLERANCES[design]
            if arms == "front":
                chosen += [Cell(arms, 0, 0, design, FRONT_TOLERANCE)] if design == "XY" else []
                continue
            if arms in IMPLICIT:
                chosen.append(Cell(arms, 0, 0, design, tol))
                continue
            chosen += [
                Cell(arms, K, d, design, tol)
                for d in options.features
                for K in options.arms
                if 8 * K * d <= ROOM and d < K
            ]
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, nargs="+", default=ARMS, help="numbers of arms")
    parser.add_argument("--features", type=int, nargs="+", default=FEATURES, help="of an arm")
    parser.add_argument(
        "--sets",
        nargs="+",
        choices=(*DENSE, *IMPLICIT),
        default=("gaussian", *IMPLICIT),
        help="kinds of arms",
    )
    parser.add_argument(
        "--designs", nargs="+", choices=tuple(SOLVERS), default=tuple(SOLVERS), help="default: both"
    )
    parser.add_argument("--tol", type=float, help="relative gap to reach; G 1e-4, XY 0.1")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for a cell")
    parser.add_argument("--plot", type=Path, help="where to draw the cost of a pass")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(asdict(measure(Cell(**json.loads(options.cell))))))
        return
    titles = ("", "arms", "K", "rank", "time", "one pass", "passes'", "made", "memory", "of own")
    layout = "{:>3} {:>10} {:>10} {:>5} {:>11} {:>12} {:>9} {:>6} {:>11} {:>7} {:>9} {:>9}"
    print(LEGEND)
    print(layout.format(*titles, "support", "gap"))
    found = []
    for cell in cells(options):
        measured = in_own_process(cell, options.limit)
        if measured is None:
            size = f"{cell.size:>10,} {cell.features:>5}"
            said = f"stopped after {options.limit:.0f} s"
            print(f"{cell.design:>3} {cell.arms:>10} {size} {said}", flush=True)
            continue
        found.append((cell, measured))
        print(row(cell, measured), flush=True)
    print(*slopes(found), sep="\n")
    if options.plot:
        draw(found, options.plot)


if __name__ == "__main__":
    main()
