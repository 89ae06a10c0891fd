"""`steadyarm plan`: how many visits and days a test needs."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import steadyarm as sa
from steadyarm.cli.main import FORMAT, JOBS, REPORT, SEED, Option, command, show
from steadyarm.errors import InvalidInputError
from steadyarm.wording import Progress

if TYPE_CHECKING:
    from steadyarm.planning import Question

RUNNING = {"trials": "--trials", "seed": "--seed", "jobs": "--jobs"}
QUESTION: tuple[Option, ...] = (
    ("--arms N", "number of variants"),
    ("--gap X", "smallest effect that matters"),
    ("--rate X", "conversion rate; give --rate or --sd"),
    ("--sd X", "standard deviation of a reward"),
    ("--traffic N", "visits per day"),
    ("--rhythm KIND", "drift of the rewards: none, weekend or trend"),
    ("--error X", "wanted probability of a wrong pick (default: 0.05)"),
    ("--clear X", "wanted probability of a clear answer; 0 to ignore it (default: 0.8)"),
    ("--control NAME", "control variant; variants are called A, B, …"),
    ("--policies A,B", "comma-separated policies to compare"),
)
OPTIONS = {  # by the settings that they stand for
    "effects.smallest_gap": "--gap",
    "rewards.rate": "--rate",
    "rewards.sd": "--sd",
    "rhythm.kind": "--rhythm",
    "traffic_per_day": "--traffic",
    "error": "--error",
    "clear": "--clear",
    "control": "--control",
    "policies": "--policies",
}


@command(
    "plan",
    ("file [FILE.toml]", "description of the test (see below)"),
    {"the test, without a file": QUESTION},
    ("--trials N", "simulated tests behind each error (default: 2000, fewer for slow policies)"),
    SEED,
    JOBS,
    FORMAT,
    ("--plot FILE.png", "draw the plan (png, pdf, svg, html)"),
    REPORT,
)
def plan(args: argparse.Namespace) -> None:
    """Compute how many visits and days a test needs.

    Simulates the test with several policies and budgets. Prints how many visits and days each
    policy needs to pick the best variant with the wanted error, and to give a clear answer with
    the wanted probability. Also prints what robustness to drift costs without drift, and what it
    saves with drift.

    A simple test needs only options:

      steadyarm plan --arms 4 --rate 0.05 --gap 0.01 --traffic 5000 --rhythm weekend

    A TOML file describes the test in detail:

      error = 0.05                     # wanted probability of a wrong pick
      clear = 0.8                      # wanted probability of a clear answer, or false
      control = "headline=short, image=cat"
      stop = "when sure"               # the test may end at an interim analysis
      looks = "weekly"                 # or daily, or a number
      traffic_per_day = 5000
      most_days = 60
      policies = ["steady", "a/b-test", "od-linbai", { name = "steady", robustness = 0.9 }]
      [arms]                           # as for simulate: one_hot, factorial, bundles or features
      factorial = { headline = ["short", "long"], image = ["cat", "dog", "none"] }
      interactions = 1
      [effects]
      smallest_gap = 0.02
      [rewards]                        # or sd = 1.0
      rate = 0.10
      correlation = 0.5                # with a covariate of the visitor
      delay = 3                        # days until a reward is known: its window and grace
      [rhythm]                         # none, weekend or trend
      kind = "weekend"
      strength = 3.0
    """
    with _naming(RUNNING if args.file else RUNNING | OPTIONS):
        question = _question(args)
        if args.plot is not None:
            sa.plot.check_path(args.plot)
        if args.report is not None:
            sa.reports.check_path(args.report)
        with Progress() as bar:
            found = sa.plan(
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
        from steadyarm.plot import sweeps

        sa.plot.save(sweeps.plan(found), args.plot)
        written.append(f"The picture is in {args.plot}.")
    if args.report is not None:
        typed = shlex.join(["steadyarm", *args.typed])
        sa.reports.write_report(sa.reports.plan_report(found, typed), args.report)
        written.append(f"The report is in {args.report}.")
    if args.format == "text":
        print("".join(f"\n{line}\n" for line in written), end="")


def _question(args: argparse.Namespace) -> Question:
    options = [typed.partition(" ")[0] for typed, *_ in QUESTION]
    values = {option: getattr(args, option[2:]) for option in options}
    values = {option: value for option, value in values.items() if value is not None}
    if args.file is not None:
        if values:
            raise InvalidInputError(
                f"{next(iter(values))} cannot be used with a file. Set it in {args.file}."
            )
        return sa.Question.from_file(args.file)
    for option in ("--arms", "--gap", "--traffic"):
        if option not in values:
            raise InvalidInputError(
                f"{option} is required. Without a file, give --arms, --gap, --traffic and --rate "
                "or --sd."
            )
    if args.arms < 2:
        raise InvalidInputError.of("--arms", args.arms, "at least 2")
    if ("--rate" in values) == ("--sd" in values):
        raise InvalidInputError(
            "Give either --rate, for conversions, or --sd, the standard deviation of rewards."
        )
    if args.clear is not None:
        values["--clear"] = args.clear or False
    if args.policies is not None:
        values["--policies"] = [name.strip() for name in args.policies.split(",")]
    few = args.arms <= 26
    names = [chr(ord("A") + k) if few else f"arm {k}" for k in range(args.arms)]
    settings: dict[str, Any] = {"arms": {"one_hot": names}}
    for setting, option in OPTIONS.items():
        if option in values:
            table, _, key = setting.rpartition(".")
            (settings.setdefault(table, {}) if table else settings)[key] = values[option]
    return sa.Question.from_settings(settings)


@contextmanager
def _naming(names: dict[str, str]) -> Iterator[None]:
    """Have errors name the options that were typed, not the settings they stand for."""
    try:
        yield
    except InvalidInputError as error:
        if error.field not in names:
            raise
        raise error.called(names[error.field]) from None
