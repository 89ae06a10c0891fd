"""`steadyarm plan`: how long a test must be, from a TOML file or a few options."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.planning import Progress, Question, plan

__all__ = ["add_parser", "run"]

EPILOG = """\
A usual question fits in a few options:

  steadyarm plan --arms 4 --rate 0.05 --gap 0.01 --traffic 5000 --rhythm weekend

A TOML file says more:

  error = 0.05                     # wanted probability of a wrong verdict
  traffic_per_day = 5000
  most_days = 60
  policies = ["steady", "a/b-test", "od-linbai", { name = "steady", robustness = 0.9 }]
  [arms]                           # as for simulate: one_hot, factorial, bundles or features
  factorial = { headline = ["short", "long"], image = ["cat", "dog", "none"] }
  interactions = 1
  [effects]                        # or spread, range, means, or log = "last-quarter.csv"
  smallest_gap = 0.02
  [rewards]                        # or sd = 1.0
  rate = 0.10
  [rhythm]                         # none, weekend, promotion, trend or curve
  kind = "promotion"
  strength = 3.0
"""


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    parser = commands.add_parser(
        "plan",
        help="how many visits and days a test needs",
        description="Simulates the test you describe with several policies and budgets, and says "
        "how many visits and days each policy needs for the wanted error, what robustness to "
        "drift costs if nothing drifts, and what it saves if something does.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE.toml", help="see below")
    asked = parser.add_argument_group("the question, without a file")
    asked.add_argument("--arms", type=int, metavar="K", help="number of variants")
    asked.add_argument("--gap", type=float, metavar="G", help="smallest effect that matters")
    asked.add_argument("--rate", type=float, metavar="P", help="conversion rate, or")
    asked.add_argument("--sd", type=float, metavar="S", help="standard deviation of a reward")
    asked.add_argument("--traffic", type=int, metavar="N", help="visits a day")
    asked.add_argument("--rhythm", metavar="KIND", help="none, weekend, promotion or trend")
    asked.add_argument("--error", type=float, metavar="E", help="wanted error (default: 0.05)")
    asked.add_argument("--policies", metavar="A,B", help="comma-separated policies to compare")
    parser.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help="simulated tests behind each error (default: 2000, fewer for slow policies)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="default: %(default)s")
    parser.add_argument("--jobs", type=int, metavar="J", help="threads (default: one per core)")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="draw the plan (png, pdf, svg)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Answer the question and print the plan."""
    question = _question(args)
    draw = _drawing(args.plot)
    with _Bar() as bar:
        found = plan(question, args.trials, args.seed, args.jobs, progress=bar.show)
    if draw is not None:
        draw(found, args.plot)
    if args.format == "json":
        print(json.dumps(found.to_dict()))
        return
    print(found)
    if args.plot is not None:
        print(f"\nThe picture is in {args.plot}.")


def _question(args: argparse.Namespace) -> Question:
    short = {
        "--arms": args.arms,
        "--gap": args.gap,
        "--rate": args.rate,
        "--sd": args.sd,
        "--traffic": args.traffic,
        "--rhythm": args.rhythm,
        "--error": args.error,
        "--policies": args.policies,
    }
    given = [option for option, value in short.items() if value is not None]
    if args.file is not None:
        if given:
            raise InvalidInputError(
                f"{given[0]} is given beside {args.file}; say it there, or leave the file out."
            )
        return Question.from_file(args.file)
    for option in ("--arms", "--gap", "--traffic"):
        if short[option] is None:
            raise InvalidInputError(
                f"{option} is missing; without a file say at least --arms, --gap, --traffic and "
                "--rate or --sd."
            )
    settings: dict[str, Any] = {
        "traffic_per_day": args.traffic,
        "arms": {"one_hot": _names(args.arms)},
        "effects": {"smallest_gap": args.gap},
        "rewards": {k: v for k, v in (("rate", args.rate), ("sd", args.sd)) if v is not None},
    }
    if args.rhythm is not None:
        settings["rhythm"] = {"kind": args.rhythm}
    if args.error is not None:
        settings["error"] = args.error
    if args.policies is not None:
        settings["policies"] = args.policies.split(",")
    return Question.from_settings(settings)


def _names(count: int) -> list[str]:
    if count < 2:
        raise InvalidInputError(f"--arms is {count}; expected at least 2.")
    return [chr(ord("A") + k) if count <= 26 else f"arm {k}" for k in range(count)]


def _drawing(path: Path | None) -> Any:
    """The drawing function, if a picture is wanted; found before hours of simulation are lost."""
    if path is None:
        return None
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise InvalidInputError(f"--plot is {path}; expected a name ending in .png, .pdf or .svg.")
    try:
        from steadyarm.planning.draw import draw_plan
    except ImportError as error:
        raise MissingExtraError(
            f"drawing needs {error.name}; install it with: pip install 'steadyarm[plots]'"
        ) from None
    return draw_plan


class _Bar:
    """A bar on a terminal's standard error, if rich is there; else nothing."""

    def __enter__(self) -> _Bar:
        self.bar: Any = None
        self.context: AbstractContextManager[Any] = nullcontext()
        if sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import (
                    BarColumn,
                    TaskProgressColumn,
                    TextColumn,
                    TimeRemainingColumn,
                )
                from rich.progress import Progress as RichProgress
            except ImportError:
                return self
            self.bar = self.context = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self.task = self.bar.add_task("starting", total=None)
        self.context.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        self.context.__exit__(*problem)

    def show(self, progress: Progress) -> None:
        """Move the bar."""
        if self.bar is not None:
            done, total, doing = progress
            self.bar.update(self.task, completed=done, total=total, description=doing)
