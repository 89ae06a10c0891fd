"""Is the planner right about the error of the budgets that it names?

Five questions, every policy, with and without drift. The plan comes from one seed and worlds in
pieces; the comparison from other seeds and `simulate`, round by round. For each the two-sided
Fisher test of the two counts, then whether all p-values together look uniform, and the seconds
that each plan took.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from scipy.stats import fisher_exact, kstest

import steadyarm as sa
from steadyarm.planning.worlds import CALM

QUESTIONS: dict[str, dict[str, Any]] = {
    "checkout, weekends": {
        "traffic_per_day": 2000,
        "arms": {"one_hot": ["A", "B", "C", "D"]},
        "effects": {"smallest_gap": 0.02},
        "rewards": {"rate": 0.05},
        "rhythm": {"kind": "weekend"},
    },
    "eight layouts, promotion": {
        "traffic_per_day": 1000,
        "arms": {"factorial": {f: ["old", "new"] for f in "abc"}, "interactions": 1},
        "effects": {"smallest_gap": 0.06},
        "rewards": {"rate": 0.4},
        "rhythm": {"kind": "promotion"},
    },
    "revenue, trend": {
        "traffic_per_day": 500,
        "arms": {"one_hot": ["A", "B", "C", "D", "E", "F"]},
        "effects": {"smallest_gap": 0.2},
        "rewards": {"sd": 1.0, "mean": 0.5},
        "rhythm": {"kind": "trend", "strength": 2.0, "lift": 0.5},
    },
    "unknown effects, own curve": {
        "traffic_per_day": 1000,
        "error": 0.1,
        "arms": {"one_hot": ["A", "B", "C"]},
        "effects": {"spread": 0.03, "indifference": 0.02},
        "rewards": {"rate": 0.2},
        "rhythm": {"curve": [2.0, 1.5, 0.5, 0.2]},
    },
    "last quarter's means": {
        "traffic_per_day": 500,
        "error": 0.02,
        "arms": {"one_hot": ["A", "B", "C", "D", "E"]},
        "effects": {"means": [2.0, 2.1, 2.3, 1.8, 2.0]},
        "rewards": {"sd": 1.0},
    },
}


def simulated(
    question: sa.Question, label: str, budget: int, rhythm: Any, trials: int
) -> tuple[int, int]:
    candidate = next(c for c in question.candidates if c.label == label)
    jobs = 1 if question.effects.drawn else None
    worlds, each = (trials // 4, 1) if question.effects.drawn else (10, trials // 10)
    errors = 0
    for seed in range(worlds):
        world = question.environment(budget, rhythm, seed=1_000_000 + seed)
        arms = candidate.arms(question.arms)
        seen = sa.Environment(arms, budget, world.table, world.noise)
        found = sa.simulate(candidate.policy, seen, each, seed=500_000 + seed, jobs=jobs)
        behind = world.average.max() - world.average[found.recommended]
        errors += int((behind > question.effects.indifference + 1e-9).sum())
    return errors, worlds * each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="of each comparison")
    trials: int = parser.parse_args().trials
    values = []
    print(f"{'':<28}{'policy':<20}{'world':<8}{'visits':>8}{'planned':>9}{'again':>9}{'p':>8}")
    for name, settings in QUESTIONS.items():
        question = sa.Question.from_settings(settings)
        started, used = time.perf_counter(), time.process_time()
        plan = sa.plan(question, seed=1)
        took, used = time.perf_counter() - started, time.process_time() - used
        for line in plan.lines:
            for rhythm, curve in ((CALM, line.calm), (question.rhythm, line.moving)):
                if curve is None:
                    continue
                check = curve.need.check
                errors, n = simulated(question, line.label, check.budget, rhythm, trials)
                table = [[errors, n - errors], [check.errors, check.trials - check.errors]]
                values.append(float(fisher_exact(np.array(table)).pvalue))
                print(
                    f"{name:<28}{line.label:<20}{'moves' if rhythm.moves else 'calm':<8}"
                    f"{check.budget:>8,}{check.rate:>9.4f}{errors / n:>9.4f}{values[-1]:>8.3f}"
                )
        print(f"{name:<28}planned in {took:.0f} s ({used:.0f} s of processor time)\n")
    worst = min(values) * len(values)
    uniform = kstest(values, "uniform", alternative="greater").pvalue
    print(f"{len(values)} comparisons: smallest p-value times their number {worst:.3f};")
    print(f"too many small ones? Kolmogorov-Smirnov p = {uniform:.3f}")
    print("verdict:", "agrees" if worst > 0.01 and uniform > 0.01 else "DOES NOT AGREE")


if __name__ == "__main__":
    main()
