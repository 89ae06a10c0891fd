"""How fast is a design, beside cvxpy and beside the paper's Frank-Wolfe?

Processor time and gap of each on the same problems, in the same run. Every gap is measured against
the lower bound that our solver proves. With --agreement it also solves the 200 random arm sets of
the tests, compares values with cvxpy wherever cvxpy can solve them in reasonable time, and prints
the worst figures.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import cvxpy
import numpy as np
from numpy.typing import NDArray

from steadyarm.arms import ArmSet
from steadyarm.designs import Design, frank_wolfe_g, frank_wolfe_xy, g_optimal, xy_optimal

cp: Any = cvxpy  # its own annotations are incomplete
PROBLEMS = ((8, 3), (16, 11), (20, 5), (40, 5), (200, 5), (200, 20), (2000, 10))
CVXPY_LIMIT = 20_000  # directions times rank squared, above which cvxpy takes minutes


def timed(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    answer = function()  # compiles, if it was not compiled before
    times = []
    for _ in range(repeats):
        start = time.process_time()
        answer = function()
        times.append(time.process_time() - start)
    return statistics.median(times), answer


def by_cvxpy(X: NDArray[np.float64], Y: NDArray[np.float64]) -> float:
    """The program as one would write it down: minimise the largest matrix fraction."""
    lam = cp.Variable(len(X), nonneg=True)
    A = X.T @ cp.diag(lam) @ X
    worst = cp.maximum(*[cp.matrix_frac(y, A) for y in Y])
    problem = cp.Problem(cp.Minimize(worst), [cp.sum(lam) == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=cp.CLARABEL)
    weights = np.maximum(lam.value, 0.0)
    P = np.linalg.inv((X.T * (weights / weights.sum())) @ X)
    value: float = np.einsum("ij,ij->i", Y @ P, Y).max()
    return value


def compare(repeats: int) -> None:
    titles = ("problem", "ours", "gap", "cvxpy", "gap", "ratio", "FW 999", "gap", "ratio")
    print("{:>16} {:>10} {:>8} {:>10} {:>8} {:>7} {:>10} {:>8} {:>7}".format(*titles))
    for kind in ("G", "XY"):
        for K, d in PROBLEMS:
            X = np.random.default_rng(0).normal(size=(K, d))
            arms = ArmSet.from_features(X)
            first, second = np.triu_indices(K, 1)
            exact, papers = (
                (g_optimal, frank_wolfe_g) if kind == "G" else (xy_optimal, frank_wolfe_xy)
            )
            ours, design = timed(partial(exact, arms), repeats)
            slow = repeats if K < 1000 else 1
            wolfe, theirs = timed(partial(papers, arms), slow)
            cells = f"{f'{kind} K={K} d={d}':>16} {ours * 1e3:>7.3f} ms {design.gap:>8.1e} "
            directions = K if kind == "G" else K * (K - 1) // 2
            if directions * d**2 > CVXPY_LIMIT:
                cells += f"{'-':>10} {'-':>8} {'-':>7} "
            else:
                Y = X if kind == "G" else X[first] - X[second]
                seconds, value = timed(partial(by_cvxpy, X, Y), 1)
                gap = value / design.lower_bound - 1
                cells += f"{seconds * 1e3:>7.0f} ms {gap:>8.1e} {seconds / ours:>6.0f}x "
            gap = theirs.value / design.lower_bound - 1
            cells += f"{wolfe * 1e3:>7.2f} ms {gap:>8.1e} {wolfe / ours:>6.1f}x"
            print(cells, flush=True)


def agreement() -> None:
    from tests.designs.armsets import COUNT, random_arm_set
    from tests.designs.reference import CannotSolveError, all_pairs, optimal_value

    gaps, seconds, differences, excess, unsolved = [], [], [], [], 0
    for seed in range(COUNT):
        kind, arms = random_arm_set(seed)
        X = arms.coordinates
        problems: list[tuple[Design, NDArray[np.float64]]] = []
        for solve, Y in ((g_optimal, X), (xy_optimal, all_pairs(X))):
            start = time.process_time()
            problems.append((solve(arms), Y))
            seconds.append(time.process_time() - start)
        for name, (design, Y) in zip(("G", "XY"), problems, strict=True):
            gaps.append(design.gap)
            try:
                if arms.rank > 10 or arms.size * arms.rank**2 > 5000:
                    raise CannotSolveError("would take minutes")
                truth = optimal_value(X, Y)
            except CannotSolveError:
                unsolved += 1
                continue
            differences.append(abs(design.value / truth - 1))
            excess.append(design.lower_bound / truth - 1)
            if differences[-1] > 1e-5:
                print(f"arm set {seed} ({kind}, {arms!r}), {name}: {design.value} and {truth}")
    print(f"designs solved: {len(gaps)} in {sum(seconds):.2f} s; worst gap {max(gaps):.2e}")
    print(f"compared with cvxpy: {len(differences)}; not attempted or not solved: {unsolved}")
    print(f"largest relative difference of values: {max(differences):.2e}")
    print(f"largest excess of a lower bound over cvxpy's optimum: {max(excess):.2e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="timings to take the median of")
    parser.add_argument("--agreement", action="store_true", help="compare 200 sets with cvxpy, too")
    options = parser.parse_args()
    compare(options.repeats)
    if options.agreement:
        print()
        agreement()


if __name__ == "__main__":
    main()
