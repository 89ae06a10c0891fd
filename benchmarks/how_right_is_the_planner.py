"""Is the planner right about the errors and the clear answers of the budgets that it names?

Six questions, every policy, with and without drift. The plan comes from one seed and worlds in
pieces; the comparison from other seeds and worlds round by round, with covariates whose slopes are
fitted, and from the intervals and lifts of a single analysis. For each the two-sided Fisher test of
the two counts, then whether all p-values together look uniform, and the seconds of each plan.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from scipy.stats import fisher_exact, kstest

import steadyarm as sa
from benchmarks.how_many_visits import Adjusting
from steadyarm.compiled import compiling
from steadyarm.inference import fixed_budget, lifts
from steadyarm.planning.candidates import AB_TEST, Candidate
from steadyarm.planning.runs import evidence_of, run
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
    "money, a covariate, a control": {
        "traffic_per_day": 500,
        "control": "A",
        "arms": {"one_hot": ["A", "B", "C", "D"]},
        "effects": {"smallest_gap": 0.1},
        "rewards": {"sd": 1.0, "correlation": 0.7},
        "rhythm": {"kind": "weekend", "strength": 2.0},
        "policies": ["steady", "p1-rage"],  # an A/B test adjusts at its end, which is not played
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
        found = sa.simulate(
            candidate.policy, seen_by(candidate, question, world), each, 500_000 + seed, jobs
        )
        errors += round(each * (1 - found.good_rate(question.effects.indifference + 1e-9)))
    return errors, worlds * each


def seen_by(candidate: Candidate, question: sa.Question, world: sa.Environment) -> Any:
    """The world as a policy sees it, with a covariate if there is one."""
    arms = candidate.arms(question.arms)
    seen = sa.Environment(arms, world.budget, world.table, world.noise)
    return seen.with_covariate(question.correlation) if question.correlation else seen


def clear_answers(
    question: sa.Question, candidate: Candidate, budget: int, rhythm: Any, trials: int
) -> tuple[int, int]:
    """Tests with a clear and right answer, by the intervals and lifts of a single analysis."""
    worlds, each, clear = trials // 8, 8, 0  # which arm leads, and so what is to be shown, differs
    level = 0.96 if candidate.policy.unbiased else 0.95
    control = None if question.control is None else question.arms.index(question.control)
    for seed in range(worlds):
        world = question.environment(budget, rhythm, seed=2_000_000 + seed)
        best, rng = int(world.average.argmax()), np.random.default_rng(seed)
        seen: Any = seen_by(candidate, question, world)
        with compiling():
            played: Any = Adjusting(seen) if question.correlation else seen
            done = run(candidate.policy, played, each, rng, squares=True)
        for rows, evidence in evidence_of(candidate.arms(question.arms), done.played):
            picked = done.found.arm[rows]
            intervals = fixed_budget(evidence, level, picked)
            decided = (picked == best) & intervals.winner
            if control is not None:
                compared = lifts(evidence, control, level)
                better = (compared.low[:, best] > 0) & (picked == best)
                keep = (compared.high <= 0).all(axis=1)
                decided |= keep if best == control else better
            clear += int(decided.sum())
    return clear, worlds * each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="of each comparison")
    trials: int = parser.parse_args().trials
    values = []
    print(f"{'':<30}{'policy':<20}{'world':<8}{'visits':>8}{'planned':>9}{'again':>9}{'p':>8}")
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
                    f"{name:<30}{line.label:<20}{'moves' if rhythm.moves else 'calm':<8}"
                    f"{check.budget:>8,}{check.rate:>9.4f}{errors / n:>9.4f}{values[-1]:>8.3f}"
                )
            clear = line.clear
            candidate = next(c for c in question.candidates if c.label == line.label)
            judged = candidate.policy.unbiased or line.label == AB_TEST
            if clear is None or not judged or question.effects.drawn:
                continue
            sure = clear.check
            found, n = clear_answers(question, candidate, sure.budget, question.rhythm, trials)
            table = [[found, n - found], [sure.clear, sure.trials - sure.clear]]
            values.append(float(fisher_exact(np.array(table)).pvalue))
            print(
                f"{name:<30}{line.label:<20}{'clear':<8}"
                f"{sure.budget:>8,}{sure.rate:>9.4f}{found / n:>9.4f}{values[-1]:>8.3f}"
            )
        print(f"{name:<30}planned in {took:.0f} s ({used:.0f} s of processor time)\n")
    worst = min(values) * len(values)
    uniform = kstest(values, "uniform", alternative="greater").pvalue
    print(f"{len(values)} comparisons: smallest p-value times their number {worst:.3f};")
    print(f"too many small ones? Kolmogorov-Smirnov p = {uniform:.3f}")
    print("verdict:", "agrees" if worst > 0.01 and uniform > 0.01 else "DOES NOT AGREE")


if __name__ == "__main__":
    main()
