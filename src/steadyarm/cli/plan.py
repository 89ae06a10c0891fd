"""`steadyarm plan`: how long a test must be, from a TOML file or a few options."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from steadyarm import plot
from steadyarm.cli.common import (
    FORMAT,
    JOBS,
    REPORT,
    SEED,
    Progress,
    add_command,
    add_options,
    show,
)
from steadyarm.errors import InvalidInputError
from steadyarm.planning import Question, plan
from steadyarm.planning.planner import seconds_for
from steadyarm.planning.worlds import KINDS, check_word
from steadyarm.reports import format_of, plan_report, write_report

LONG = 60  # seconds from which on a wait is announced
RHYTHMS = tuple(kind for kind in KINDS if kind != "curve")  # a curve needs a file
RUNNING = {"trials": "--trials", "seed": "--seed", "jobs": "--jobs"}
QUESTION = (
    ("--arms N", "number of variants"),
    ("--gap X", "smallest effect that matters"),
    ("--rate X", "conversion rate; this or --sd"),
    ("--sd X", "standard deviation of a reward; this or --rate"),
    ("--traffic N", "visits a day"),
    ("--rhythm KIND", "none, weekend, promotion or trend"),
    ("--error X", "wanted probability of a wrong answer (default: 0.05)"),
    ("--policies A,B", "comma-separated policies to compare"),
)
OPTIONS = RUNNING | {  # by the settings that they stand for
    "effects.smallest_gap": "--gap",
    "rewards.rate": "--rate",
    "rewards.sd": "--sd",
    "rhythm.kind": "--rhythm",
    "traffic_per_day": "--traffic",
    "error": "--error",
    "policies": "--policies",
}


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    file = ("file [FILE.toml]", "the question, see below")
    parser = add_command(commands, "plan", run, [file])
    add_options(parser.add_argument_group("the question, without a file"), QUESTION)
    trials = "simulated tests behind each error (default: 2000, fewer for slow policies)"
    plot = ("--plot FILE.png", "draw the plan (png, pdf, svg)")
    add_options(parser, [("--trials N", trials), SEED, JOBS, FORMAT, plot, REPORT])


def run(args: argparse.Namespace) -> None:
    """Say how many visits and days a test needs.

    Simulates the test you describe with several policies and budgets, and says how many visits and
    days each policy needs for the wanted error, what robustness to drift costs if nothing drifts,
    and what it saves if something does.

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
    with _naming(OPTIONS if args.file is None else RUNNING):
        question = _question(args)
        _check_plot(args.plot)
        if args.report is not None:
            format_of(args.report)
        _announce(question, args)
        with Progress() as bar:
            found = plan(
                question,
                args.trials,
                args.seed,
                args.jobs,
                progress=lambda progress: bar.show(*progress),
            )
    # first, so that a picture or report that cannot be written does not cost the answer
    show(args, found.to_dict(), found)
    written = []
    if args.plot is not None:
        plot.matplotlib.save(plot.charts.plan(found), args.plot)
        written.append(f"The picture is in {args.plot}.")
    if args.report is not None:
        command = shlex.join(["steadyarm", *args.typed])
        write_report(plan_report(found, command), args.report)
        written.append(f"The report is in {args.report}.")
    if args.format == "text":
        print("".join(f"\n{line}\n" for line in written), end="")


def _question(args: argparse.Namespace) -> Question:
    options = [typed.partition(" ")[0] for typed, _ in QUESTION]
    given = {option: getattr(args, option[2:]) for option in options}
    given = {option: value for option, value in given.items() if value is not None}
    if args.file is not None:
        if given:
            raise InvalidInputError(
                f"{next(iter(given))} is given beside {args.file}; say it there, or leave the file "
                "out."
            )
        return Question.from_file(args.file)
    for option in ("--arms", "--gap", "--traffic"):
        if option not in given:
            raise InvalidInputError(
                f"{option} is missing; without a file give at least --arms, --gap, --traffic and "
                "--rate or --sd."
            )
    if args.arms < 2:
        raise InvalidInputError.of("--arms", args.arms, "at least 2")
    if ("--rate" in given) == ("--sd" in given):
        both = "are both given" if "--sd" in given else "are both missing"
        raise InvalidInputError(
            f"--rate and --sd {both}; expected one of them: --rate for conversions at that rate, "
            "--sd for rewards with that standard deviation."
        )
    letters = args.arms <= 26
    names = [chr(ord("A") + k) if letters else f"arm {k}" for k in range(args.arms)]
    settings: dict[str, Any] = {
        "traffic_per_day": args.traffic,
        "arms": {"one_hot": names},
        "effects": {"smallest_gap": args.gap},
        "rewards": {"sd": args.sd} if args.rate is None else {"rate": args.rate},
    }
    if args.rhythm == "curve":
        raise InvalidInputError(
            "--rhythm is 'curve'; a curve of your own needs a file, with [rhythm] and "
            f"curve = [1.5, 1.2, 0.3]. Without one expected {', '.join(RHYTHMS)}."
        )
    if args.rhythm is not None:
        check_word(args.rhythm, "--rhythm", RHYTHMS)
        settings["rhythm"] = {"kind": args.rhythm}
    if args.error is not None:
        settings["error"] = args.error
    if args.policies is not None:
        settings["policies"] = [name.strip() for name in args.policies.split(",")]
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
    seconds = seconds_for(question, args.trials) / max(min(args.jobs or cores, cores), 1)
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


def _check_plot(path: Path | None) -> None:
    """Refuse what cannot be drawn before hours of simulation are lost."""
    if path is None:
        return
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise InvalidInputError(f"--plot is {path}; expected a name ending in .png, .pdf or .svg.")
    _ = plot.matplotlib  # says which extra is missing, if it is
