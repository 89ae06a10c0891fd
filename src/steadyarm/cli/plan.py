"""`steadyarm plan` and `simulate`: how long a test must be, and how often a policy is wrong."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import steadyarm as sa
from steadyarm.cli.common import (
    FORMAT,
    JOBS,
    REPORT,
    SEED,
    Option,
    command,
    read_toml,
    show,
)
from steadyarm.errors import InvalidInputError
from steadyarm.progress import Progress

if TYPE_CHECKING:
    from steadyarm.environments.covariate import CovariateEnvironment
    from steadyarm.planning import Question

LONG = 60  # seconds from which on a wait is announced
POLICIES = (
    "steady, uniform, g-bai, p1-rage, p1-peace, mixed-peace, peace, od-linbai, p1, adjacent-bai, "
    "sequential-halving, linear-thompson, top-two-thompson"
)
WORLDS = (
    "soare_stationary, soare_oscillating, malicious_switch, multivariate, published_multivariate, "
    "trend, random_walk, switching, shock, repeating, weekday_weekend, table"
)
RUNNING = {"trials": "--trials", "seed": "--seed", "jobs": "--jobs"}
QUESTION: tuple[Option, ...] = (
    ("--arms N", "number of variants"),
    ("--gap X", "smallest effect that matters"),
    ("--rate X", "conversion rate; this or --sd"),
    ("--sd X", "standard deviation of a reward; this or --rate"),
    ("--traffic N", "visits a day"),
    ("--rhythm KIND", "none, weekend, promotion or trend"),
    ("--error X", "wanted probability of a wrong pick (default: 0.05)"),
    ("--clear X", "wanted chance of a clear answer; 0 not to ask (default: 0.8)"),
    ("--control NAME", "variant that others are compared with; they are called A, B, …"),
    ("--correlation X", "of rewards with a covariate of the visitor (default: 0)"),
    ("--delay X", "days until a reward is known: its window and grace (default: 0)"),
    ("--stop", "let the test end at a look when its answer is clear"),
    ("--looks LOOKS", "with --stop: how many looks, or daily or weekly"),
    ("--policies A,B", "comma-separated policies to compare"),
)
OPTIONS = RUNNING | {  # by the settings that they stand for
    "effects.smallest_gap": "--gap",
    "rewards.rate": "--rate",
    "rewards.sd": "--sd",
    "rhythm.kind": "--rhythm",
    "traffic_per_day": "--traffic",
    "error": "--error",
    "clear": "--clear",
    "control": "--control",
    "rewards.correlation": "--correlation",
    "rewards.delay": "--delay",
    "looks": "--looks",
    "policies": "--policies",
}


@command(
    "plan",
    ("file [FILE.toml]", "the question, see below"),
    {"the question, without a file": QUESTION},
    (
        "--trials N",
        "simulated tests behind each error (default: 2000, fewer for slow policies)",
    ),
    SEED,
    JOBS,
    FORMAT,
    ("--plot FILE.png", "draw the plan (png, pdf, svg, html)"),
    REPORT,
)
def plan(args: argparse.Namespace) -> None:
    """Say how many visits and days a test needs.

    Simulates the test you describe with several policies and budgets, and says how many visits and
    days each policy needs to pick the best variant with the wanted error, and to give a clear
    answer with the wanted chance; what robustness to drift costs if nothing drifts, and what it
    saves if something does.

    A usual question fits in a few options:

      steadyarm plan --arms 4 --rate 0.05 --gap 0.01 --traffic 5000 --rhythm weekend

    A TOML file says more:

      error = 0.05                     # wanted probability of a wrong pick
      clear = 0.8                      # wanted chance of a clear answer, or false
      control = "headline=short, image=cat"
      stop = "when sure"               # the test may end at a look
      looks = "weekly"                 # or daily, or a number
      traffic_per_day = 5000
      most_days = 60
      policies = ["steady", "a/b-test", "od-linbai", { name = "steady", robustness = 0.9 }]
      [arms]                           # as for simulate: one_hot, factorial, bundles or features
      factorial = { headline = ["short", "long"], image = ["cat", "dog", "none"] }
      interactions = 1
      [effects]                        # or means
      smallest_gap = 0.02
      [rewards]                        # or sd = 1.0
      rate = 0.10
      correlation = 0.5                # with a covariate of the visitor
      delay = 3                        # days until a reward is known: its window and grace
      [rhythm]                         # none, weekend, promotion or trend
      kind = "promotion"
      strength = 3.0
    """
    with _naming(OPTIONS if args.file is None else RUNNING):
        question = _question(args)
        if args.plot is not None:
            sa.plot.check_path(args.plot)
        if args.report is not None:
            sa.reports.check_path(args.report)
        _announce(question, args)
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
    given = {option: getattr(args, option[2:]) for option in options}
    given = {o: value for o, value in given.items() if value is not None and value is not False}
    if args.file is not None:
        if given:
            raise InvalidInputError(
                f"{next(iter(given))} is given beside {args.file}; say it there, or leave the file "
                "out."
            )
        return sa.Question.from_file(args.file)
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
    if args.rhythm is not None:
        settings["rhythm"] = {"kind": args.rhythm}
    settings |= {
        key: value for key in ("error", "control") if (value := getattr(args, key)) is not None
    }
    for key in ("correlation", "delay"):
        if (value := getattr(args, key)) is not None:
            settings["rewards"][key] = value
    if args.clear is not None:
        settings["clear"] = args.clear or False
    if args.stop:
        settings["stop"] = "when sure"
    if args.looks is not None:
        settings["looks"] = int(args.looks) if args.looks.isdecimal() else args.looks
    if args.policies is not None:
        settings["policies"] = [name.strip() for name in args.policies.split(",")]
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


def _announce(question: Question, args: argparse.Namespace) -> None:
    """Say that an answer takes long, and what would be quicker."""
    from steadyarm.planning.planner import seconds_for

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


@command(
    "simulate",
    ("file [FILE.toml]", "policy and world, see below"),
    ("--policy NAME", f"one of: {POLICIES}; or your own as module:Class (default: steady)"),
    ("--published", "as in the paper's published runs"),
    ("--world NAME", f"one of: {WORLDS}"),
    (
        "--set KEY=VALUE ...",
        "a parameter of the world, such as scale=3; correlation=0.7 for a covariate of every "
        "visitor; may be repeated",
    ),
    ("--trials N", "simulated tests (default: 1000)"),
    ("--seed N", "seed of all random draws (default: 0)"),
    JOBS,
    FORMAT,
)
def simulate(args: argparse.Namespace) -> None:
    """Run one policy in one world many times.

    Counts the wrong recommendations.

    A TOML file has the tables [policy], [world] and, where the world needs them, [arms]:

      trials = 2000
      [policy]
      name = "P1-RAGE"
      [arms]
      factorial = { headline = ["short", "long"], image = ["cat", "dog", "none"] }
      interactions = 1
      [world]
      name = "trend"
      first = [0.30, 0.05, 0.00, 0.02]
      last = [0.30, -0.02, 0.00, 0.06]
      budget = 5000
      noise = { kind = "gaussian", sd = 0.4 }
      correlation = 0.7                # of a covariate with the noise of rewards, if there is one
    """
    settings = _read(args.file) if args.file else {}
    world = _world(args, settings)
    policy = _policy(args, settings)
    trials = args.trials if args.trials is not None else settings.get("trials", 1000)
    seed = args.seed if args.seed is not None else settings.get("seed", 0)
    results = sa.simulate(policy, world, trials=trials, seed=seed, jobs=args.jobs)
    low, high = results.interval()
    best = world.arms.names[world.best_arm]
    facts = {
        "policy": policy.to_dict(),
        "budget": world.budget,
        "best_arm": best,
        "gap": world.gap,
        "trials": results.trials,
        "errors": results.errors,
        "error_rate": results.error_rate,
        "interval": [low, high],
        "seed": seed,
    }
    text = (
        f"{policy.name} on {world.arms.size} arms, budget {world.budget:,}\n"
        f"best on average: {best}, by {world.gap:.4g}\n"
        f"wrong in {results.errors} of {results.trials} trials: {results.error_rate:.4g} "
        f"(95 % interval {low:.4g} to {high:.4g})"
    )
    show(args, facts, text)


def _read(path: Path) -> dict[str, Any]:
    settings = read_toml(path)
    known = {"trials": int, "seed": int, "policy": dict, "world": dict, "arms": dict}
    for key, value in settings.items():
        if key not in known or not isinstance(value, known[key]):
            raise InvalidInputError(
                f"{path}: {key} = {value!r} is not understood; expected trials and seed as whole "
                "numbers and the tables [policy], [world] and [arms]."
            )
    return settings


def _world(
    args: argparse.Namespace, settings: Mapping[str, Any]
) -> sa.Environment | CovariateEnvironment:
    world = dict(settings.get("world", {}))
    if args.world is not None:
        world["name"] = args.world
    for text in args.set:
        key, equals, value = text.partition("=")
        if not equals:
            raise InvalidInputError(f"--set {text!r} is not of the form KEY=VALUE.")
        world[key] = _value(value)
    if not world:
        raise InvalidInputError(
            "no world is given; name one with --world or in a table [world] of a TOML file."
        )
    from steadyarm.environments.families import world_from_settings

    return world_from_settings(world, settings.get("arms"))


def _value(text: str) -> Any:
    """A number, list or boolean as TOML writes it; anything else is a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _policy(args: argparse.Namespace, settings: Mapping[str, Any]) -> sa.Policy[Any]:
    from steadyarm.policies import policy_from

    described = {"name": "Steady"} | dict(settings.get("policy", {}))
    if args.policy:
        described["name"] = args.policy
    return policy_from({"name": described["name"]} if args.published else described, args.published)
