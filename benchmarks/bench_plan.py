"""Visits that a test needs, by policy, kind of reward and rhythm, as the planner says.

For each of four questions: the visits for 5 % wrong picks and for 80 % clear answers, if nothing
moves and with weekends.

    python -m benchmarks.bench_plan --trials 1000
"""

from __future__ import annotations

import argparse
from typing import Any

import steadyarm as sa

QUESTIONS: dict[str, dict[str, Any]] = {
    "8 variants, clicks of 5 %, +1": {
        "arms": {"one_hot": list("ABCDEFGH")},
        "effects": {"smallest_gap": 0.01},
        "rewards": {"rate": 0.05},
    },
    "4 variants, gap of 0.1 sd": {
        "arms": {"one_hot": list("ABCD")},
        "effects": {"smallest_gap": 0.1},
        "rewards": {"sd": 1.0},
    },
    "4 variants, covariate of 0.7": {
        "arms": {"one_hot": list("ABCD")},
        "effects": {"smallest_gap": 0.1},
        "rewards": {"sd": 1.0, "correlation": 0.7},
    },
    "8 layouts of 3 factors": {
        "arms": {"factorial": {f: ["old", "new"] for f in "abc"}, "interactions": 1},
        "effects": {"smallest_gap": 0.06},
        "rewards": {"rate": 0.4},
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=1000, help="simulated tests per error")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"{'question':<32}{'policy':<22}{'calm':>10}{'weekends':>10}{'80 % clear':>12}")
    for name, settings in QUESTIONS.items():
        question = settings | {"traffic_per_day": 2000, "rhythm": {"kind": "weekend"}}
        plan = sa.plan(question, trials=args.trials, seed=args.seed)
        for line in plan.lines:
            clear = None if line.clear is None else line.clear.budget
            needs = line.calm.budget, line.asked.budget, clear
            texts = [f"{need:,}" if need is not None else "too many" for need in needs]
            print(f"{name:<32}{line.name:<22}{texts[0]:>10}{texts[1]:>10}{texts[2]:>12}")


if __name__ == "__main__":
    main()
