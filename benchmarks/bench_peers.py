"""SteadyArm and other tools on the same drifting tests.

Six kinds of test with a known best variant and the same potential rewards for every tool. It prints
error probabilities with exact 95 % intervals, and processor times. `make compare` installs the
tools (benchmarks/peers.txt) in an environment of their own; tools that are not installed are
skipped. Adapters are in benchmarks/peers/, one file per library.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from pathlib import Path

from benchmarks.peers.contest import TOOLS, Cell, Contest, contest
from benchmarks.peers.worlds import WORLDS
from steadyarm.simulation import clopper_pearson

RESULTS = Path(__file__).parent / "results"
COLUMNS = (
    "tool", "version", "scenario", "trials", "errors", "low", "high", "rule", "sure", "sure_wrong",
    "microseconds_per_visit", "milliseconds_per_verdict",
)  # fmt: skip  # a table reads better so


def rows(plan: Contest, found: dict[tuple[str, str], Cell | str]) -> list[dict[str, object]]:
    """One row for each tool and scenario that was played."""
    table = []
    for (tool, world), cell in found.items():
        if isinstance(cell, str):
            print(f"{tool}, {world}: {cell}", file=sys.stderr)
            continue
        errors, rule = cell.errors(TOOLS[tool])
        low, high = clopper_pearson(errors, cell.trials)
        claims = (cell.sure, cell.sure_wrong) if cell.sure >= 0 else ("", "")
        times = 1e6 * cell.visit_seconds / cell.visits, 1e3 * cell.verdict_seconds / cell.trials
        values = (
            *(tool, TOOLS[tool].version, world, cell.trials, errors, f"{low:.4f}", f"{high:.4f}"),
            *(rule, *claims, *(f"{value:.3f}" for value in times)),
        )
        table.append(dict(zip(COLUMNS, values, strict=True)))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=300, help="of each scenario")
    parser.add_argument("--visits", type=int, default=200, help="a day")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.csv")
    args = parser.parse_args()
    plan = Contest(tuple(args.tools), tuple(WORLDS), args.trials, args.visits, seed=1)
    table = rows(plan, contest(plan, args.jobs))
    print(f"Wrong decisions in %, {args.trials} trials of 14 days, {args.visits} visits a day")
    print(f"{'':<20}{''.join(f'{world:>14}' for world in plan.worlds)}")
    for tool in dict.fromkeys(row["tool"] for row in table):
        own = {row["scenario"]: row for row in table if row["tool"] == tool}
        rates = [100 * int(str(r["errors"])) / int(str(r["trials"])) for r in own.values()]
        print(f"{tool:<20}{''.join(f'{rate:>14.1f}' for rate in rates)}")
    with args.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


if __name__ == "__main__":
    main()
