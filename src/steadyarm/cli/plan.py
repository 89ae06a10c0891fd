"""`steadyarm plan`: how long a test must be, from a TOML file or a few options."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from steadyarm.cli.options import add_format, add_jobs, add_report, add_seed
from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.planning import Progress, Question, plan
from steadyarm.planning.planner import seconds_for
from steadyarm.planning.rhythm import KINDS, check_word
from steadyarm.plot import charts
from steadyarm.plot.matplotlib import save
from steadyarm.reports import format_of, plan_report, write_report

__all__ = ["add_parser", "run"]

LONG = 60  # seconds from which on a wait is announced
SILENT = 20  # seconds after which a step is told although nothing new begins
RHYTHMS = tuple(kind for kind in KINDS if kind != "curve")  # a curve needs a file
OPTIONS = {  # what settings are called here
    "effects.smallest_gap": "--gap",
    "rewards.rate": "--rate",
    "rewards.sd": "--sd",
    "rhythm.kind": "--rhythm",
    "traffic_per_day": "--traffic",
    "error": "--error",
    "policies": "--policies",
}
RUNNING = {"trials": "--trials", "seed": "--seed", "jobs": "--jobs"}

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
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE.toml", help="the question, see below"
    )
    asked = parser.add_argument_group("the question, without a file")
    asked.add_argument("--arms", type=int, metavar="K", help="number of variants")
    asked.add_argument("--gap", type=float, metavar="G", help="smallest effect that matters")
    asked.add_argument("--rate", type=float, metavar="P", help="conversion rate; this or --sd")
    asked.add_argument(
        "--sd", type=float, metavar="S", help="standard deviation of a reward; this or --rate"
    )
    asked.add_argument("--traffic", type=int, metavar="N", help="visits a day")
    asked.add_argument("--rhythm", metavar="KIND", help="none, weekend, promotion or trend")
    asked.add_argument(
        "--error",
        type=float,
        metavar="E",
        help="wanted probability of a wrong answer (default: 0.05)",
    )
    asked.add_argument("--policies", metavar="A,B", help="comma-separated policies to compare")
    parser.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help="simulated tests behind each error (default: 2000, fewer for slow policies)",
    )
    add_seed(parser)
    add_jobs(parser)
    add_format(parser)
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="draw the plan (png, pdf, svg)"
    )
    add_report(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Answer the question and print the plan."""
    question = _question(args)
    _check_plot(args.plot)
    if args.report is not None:
        format_of(args.report)
    _announce(question, args)
    names = RUNNING if args.file is not None else RUNNING | OPTIONS
    with _naming(names), _Bar() as bar:
        found = plan(question, args.trials, args.seed, args.jobs, progress=bar.show)
    # first, so that a picture or report that cannot be written does not cost the answer
    print(json.dumps(found.to_dict()) if args.format == "json" else found, flush=True)
    if args.plot is not None:
        save(charts.plan(found), args.plot)
        _say(f"The picture is in {args.plot}.", args.format)
    if args.report is not None:
        command = shlex.join(["steadyarm", *args.typed])
        write_report(plan_report(found, command), args.report)
        _say(f"The report is in {args.report}.", args.format)


def _say(text: str, kind: str) -> None:
    if kind == "text":
        print(f"\n{text}")


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
    names = _names(args.arms)
    if (args.rate is None) == (args.sd is None):
        both = "are both given" if args.sd is not None else "are both missing"
        raise InvalidInputError(
            f"--rate and --sd {both}; expected one of them: --rate for conversions at that rate, "
            "--sd for rewards with that standard deviation."
        )
    settings: dict[str, Any] = {
        "traffic_per_day": args.traffic,
        "arms": {"one_hot": names},
        "effects": {"smallest_gap": args.gap},
        "rewards": {k: v for k, v in (("rate", args.rate), ("sd", args.sd)) if v is not None},
    }
    if args.rhythm is not None:
        if args.rhythm == "curve":
            raise InvalidInputError(
                "--rhythm is 'curve'; a curve of your own needs a file, with [rhythm] and "
                f"curve = [1.5, 1.2, 0.3]. Without one expected {', '.join(RHYTHMS)}."
            )
        check_word(args.rhythm, "--rhythm", RHYTHMS)
        settings["rhythm"] = {"kind": args.rhythm}
    if args.error is not None:
        settings["error"] = args.error
    if args.policies is not None:
        settings["policies"] = [name.strip() for name in args.policies.split(",")]
    with _naming(OPTIONS):
        return Question.from_settings(settings)


@contextmanager
def _naming(names: dict[str, str]) -> Iterator[None]:
    """Have errors name the options that were typed, not the settings they stand for."""
    try:
        yield
    except InvalidInputError as error:
        if error.field not in names:
            raise
        raise error.called(names[error.field]) from None


def _announce(question: Question, args: argparse.Namespace) -> None:
    """Say that an answer takes long, and what would be quicker."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = os.cpu_count() or 1
    workers = min(args.jobs or cores, cores)
    seconds = seconds_for(question, args.trials) / max(workers, 1)
    if seconds < LONG:
        return
    arms, error = question.arms, question.error
    slowest = max(
        question.candidates,
        key=lambda c: (args.trials or c.trials(arms, error)) * c.milliseconds(arms),
    )
    print(
        f"This takes about {seconds / 60:.1f} minutes, most of it for {slowest.label}; quicker "
        "with fewer --trials, or without some of the policies.",
        file=sys.stderr,
    )


def _names(count: int) -> list[str]:
    if count < 2:
        raise InvalidInputError(f"--arms is {count}; expected at least 2.")
    return [chr(ord("A") + k) if count <= 26 else f"arm {k}" for k in range(count)]


def _check_plot(path: Path | None) -> None:
    """Refuse what cannot be drawn before hours of simulation are lost."""
    if path is None:
        return
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise InvalidInputError(f"--plot is {path}; expected a name ending in .png, .pdf or .svg.")
    if find_spec("matplotlib") is None:
        raise MissingExtraError(
            "drawing needs matplotlib; install it with: pip install 'steadyarm[plots]'"
        )


class _Bar:
    """A bar on a terminal's standard error, if rich is there; else lines."""

    def __enter__(self) -> _Bar:
        self.bar: Any = None
        self.said: set[str] = set()
        self.last = time.monotonic()
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
        """Move the bar, or say what begins."""
        done, total, doing = progress
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total, description=doing)
        elif doing not in self.said or time.monotonic() - self.last > SILENT:
            self.said.add(doing)
            self.last = time.monotonic()
            print(f"{100 * done // total:3d} %: {doing}", file=sys.stderr, flush=True)
