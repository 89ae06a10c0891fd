"""How far do XY designs scale? Time, gap and exactness beside one pass over the arms.

One pass is all leverages once, timed in the same run before and after each design; the least of
these times counts. Points on a sphere are the hard case for the proof: every point is as far out
as any other. Set OPENBLAS_NUM_THREADS=1 on a busy machine: threads that wait for each other make
small products many times slower.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

from steadyarm.designs.large_xy import LargeXYDesign, solve_xy
from steadyarm.designs.passes import leverages
from steadyarm.designs.rows import BundleRows, DenseRows, FactorialRows, Rows

KINDS = ("gaussian", "sphere", "factorial", "bundles")
SIZES = ((1_000, 10), (10_000, 10), (100_000, 10), (10_000, 50), (100_000, 50))


@dataclass(frozen=True)
class Measured:
    """One design: what it is of, how long it took, and what one pass takes."""

    kind: str
    shape: tuple[int, int]
    seconds: float
    one_pass: float
    design: LargeXYDesign

    def line(self) -> str:
        """The figures as a line under `TITLES`."""
        answer = self.design
        proof = "exact" if answer.exact else "bound"
        return (
            f"{self.kind:>10} {self.shape[0]:>10,} {self.shape[1]:>4} {self.seconds:>8.2f} s "
            f"{answer.passes:>8,.0f} {self.seconds / self.one_pass:>9,.0f} "
            f"{answer.gap:>9.1e} {answer.pair_gap:>9.1e} {proof:>6} {answer.indices.size:>9,} "
            f"{answer.rounds:>6}"
        )


TITLES = (
    f"{'arms':>10} {'K':>10} {'d':>4} {'time':>10} {'passes':>8} {'time/pass':>9} "
    f"{'gap':>9} {'of pair':>9} {'proof':>6} {'support':>9} {'rounds':>6}"
)


def arms_of(kind: str, K: int, d: int) -> Rows:
    """Arms of a kind; for factorial and bundles the numbers of slots or items follow from K."""
    if kind == "factorial":
        return FactorialRows([2] * round(np.log2(K)))
    if kind == "bundles":
        return BundleRows(items=d, size=3)
    X = np.random.default_rng(0).normal(size=(K, d))
    if kind == "sphere":
        X /= np.linalg.norm(X, axis=1)[:, None]
    return DenseRows(X)


def measure(kind: str, rows: Rows, tol: float = 1e-3, effort: float | None = None) -> Measured:
    """Solve once, and time passes before and after."""
    passes = [_pass(rows) for _ in range(3)]
    start = time.perf_counter()
    design = solve_xy(rows, tol, effort=effort)
    seconds = time.perf_counter() - start
    passes += [_pass(rows) for _ in range(3)]
    return Measured(kind, rows.shape, seconds, min(passes), design)


def _pass(rows: Rows) -> float:
    to = np.eye(rows.shape[1])
    start = time.perf_counter()
    leverages(rows, to)
    return time.perf_counter() - start


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="gaussian")
    parser.add_argument("--size", nargs=2, type=int, action="append", metavar=("K", "D"))
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--effort", type=float, default=None, help="passes for the last search")
    given = parser.parse_args()
    print(TITLES)
    for K, d in given.size or SIZES:
        rows = arms_of(given.kind, K, d)
        print(measure(given.kind, rows, given.tol, given.effort).line(), flush=True)


if __name__ == "__main__":
    main()
