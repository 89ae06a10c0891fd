"""How do SteadyArm and what people use instead decide the same drifting tests?

Six kinds of test with a known best variant, the same potential rewards for every tool, error
probabilities and times side by side. Tools that are not installed are listed as such; `make
compare` installs them (benchmarks/peers.txt) in an environment of their own. Adapters are in
benchmarks/peers/, one file per library. With --tools only some play again; rows of the others stay
in the tables as long as the tests are the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.contest import TOOLS, Contest, contest
from benchmarks.peers.report import write
from benchmarks.peers.worlds import WORLDS

RESULTS = Path(__file__).parent / "results"
TRIALS, VISITS = 300, 200
QUICK_TRIALS, QUICK_VISITS = 4, 20


def main(words: Sequence[str] | None = None) -> None:
    args = _parser().parse_args(words)
    trials, visits = (QUICK_TRIALS, QUICK_VISITS) if args.quick else (TRIALS, VISITS)
    plan = Contest(
        tools=tuple(args.tools or TOOLS),
        worlds=tuple(args.scenarios or WORLDS),
        trials=args.trials or trials,
        visits_per_day=visits,
        seed=args.seed,
    )
    missing = [tool for tool in plan.tools if not TOOLS[tool].installed]
    if missing:
        print(f"not installed: {', '.join(missing)} (make compare installs them)", file=sys.stderr)
    for tool in plan.tools:  # each is written when it is done, and other tools' rows stay
        began = time.monotonic()
        alone = replace(plan, tools=(tool,))
        found = contest(alone, args.jobs, None if args.quiet else _tell)
        page, table = write(args.out, alone, found, _command(args), time.monotonic() - began)
    print(page.read_text(encoding="utf-8"))
    print(f"Written to {page} and {table}.", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.against_what_people_use",
        description=(__doc__ or "").split("\n\n")[0],
        epilog=f"Tools: {', '.join(TOOLS)}. Scenarios: {', '.join(WORLDS)}.",
    )
    parser.add_argument(
        "--trials",
        type=_positive,
        metavar="N",
        help=f"of each scenario; tools that take long play a third (default: {TRIALS})",
    )
    parser.add_argument("--tools", nargs="+", choices=TOOLS, metavar="TOOL", help="default: all")
    parser.add_argument(
        "--scenarios", nargs="+", choices=WORLDS, metavar="SCENARIO", help="default: all"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="for the tables")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default: 1")
    parser.add_argument(
        "--jobs",
        type=_positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes (default: one per core)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_TRIALS} trials of {QUICK_VISITS} visits a day, to see that it runs",
    )
    parser.add_argument("--quiet", action="store_true", help="no lines of progress")
    return parser


def _command(args: argparse.Namespace) -> str:
    """The command line that gives these numbers again, wherever they are written to."""
    words = ["--quick"] * args.quick
    for name in ("tools", "scenarios", "trials", "seed"):
        value = getattr(args, name)
        if value is not None:
            words += [f"--{name}", *(value if isinstance(value, list) else [str(value)])]
    return " ".join(["python -m benchmarks.against_what_people_use", *words])


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _tell(line: str) -> None:
    print(line, end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
