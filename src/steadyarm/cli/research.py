"""`steadyarm reproduce` and `simulate`: the paper's experiments, and those of your own."""

from __future__ import annotations

import argparse
import shlex
import time
import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import steadyarm as sa
from steadyarm.cli.main import FORMAT, JOBS, SEED, command, show
from steadyarm.errors import InvalidInputError
from steadyarm.wording import Progress, read_toml

if TYPE_CHECKING:
    from steadyarm.environments.covariate import CovariateEnvironment
    from steadyarm.paper import Figure
    from steadyarm.paper.specification import Point
    from steadyarm.simulation.compare import Work

BEYOND = "beyond_paper"
FIGURES = (
    "soare_stationary, multivariate_scale, multivariate_period, soare_scale, soare_period, "
    f"malicious, multivariate_stationary, flights, yahoo, {BEYOND}"
)
POLICIES = (
    "steady, uniform, g-bai, p1-rage, p1-peace, mixed-peace, peace, od-linbai, p1, adjacent-bai, "
    "sequential-halving, gse, linear-thompson, top-two-thompson, deconfounded-thompson"
)
WORLDS = (
    "soare_stationary, soare_oscillating, malicious_switch, multivariate, published_multivariate, "
    "trend, random_walk, switching, shock, repeating, weekday_weekend, table"
)


@command(
    "reproduce",
    (
        "figures FIGURE",
        f"one or more of: {FIGURES} (default: all figures of the paper except yahoo)",
        {"nargs": "*"},
    ),
    (
        "--policies A,B",
        f"comma-separated, or your own as module:Class (default: those of the paper; for {BEYOND} "
        "Steady and variants, always beside P1-RAGE)",
    ),
    ("--out DIR = steadyarm-results", "where results, pictures and report are written"),
    SEED,
    ("--jobs N", "number of workers (default: one per core)"),
    (
        "--resume",
        "take finished cells from an earlier run in DIR (default: yes); --no-resume computes the "
        "cells of this command anew",
        {"action": argparse.BooleanOptionalAction, "default": True},
    ),
    ("--workers threads|processes = threads", "use processes for policies without compiled code"),
    [
        ("--trials N", "trials per cell (default: 1000)"),
        ("--published-trials", "as many trials as the paper: about 1.1 million in all"),
    ],
)
def reproduce(args: argparse.Namespace) -> None:
    """Run the paper's experiments and draw its figures.

    Runs them with the configurations of the published runs, draws every figure with the published
    points in it, and writes results.csv, pictures and a report. A run that was stopped goes on
    where it was.
    """
    from steadyarm.paper.report import write_report, write_results
    from steadyarm.paper.specification import beyond_of, beyond_policies
    from steadyarm.simulation.compare import run_tasks
    from steadyarm.simulation.journal import Journal

    sa.plot.check_path(args.out / "figure.png")  # drawn at the end
    figures = _figures(args)
    tasks = sa.paper.tasks_of(_points(figures, args), args.seed)
    journal = Journal(args.out / "cells.jsonl")
    if not args.resume:
        journal.drop([task.key for task in tasks])
    started = time.perf_counter()
    with Progress() as bar:

        def show_work(work: Work) -> None:
            doing = f"{work.all_cells} cells, {work.all_rounds:.1e} rounds"
            bar.show(work.rounds, work.all_rounds, doing, work.text)

        results = run_tasks(tasks, journal, args.jobs, args.workers, show_work)
    took = time.perf_counter() - started
    beyond = beyond_of(results, beyond_policies(_policies(args))) if _beyond(args) else None
    write_results(results, args.out / "results.csv")
    settings = {"seed": args.seed, "version": sa.__version__}
    typed = shlex.join(["steadyarm", *args.typed])
    summary = write_report(figures, results, args.out, typed, settings, seconds=took, beyond=beyond)
    print(summary)
    if beyond is not None:
        print(*beyond.lines(), sep="\n")
    print(f"Report, pictures and results.csv are in {args.out} ({took:.0f} s).")


def _beyond(args: argparse.Namespace) -> bool:
    return any(name.replace("-", "_") == BEYOND for name in args.figures)


def _figures(args: argparse.Namespace) -> list[Figure]:
    if not args.figures:
        return [figure for figure in sa.paper.FIGURES.values() if figure.by_default]
    names = [name for name in args.figures if name.replace("-", "_") != BEYOND]
    return list(dict.fromkeys(map(sa.paper.figure_named, names)))


def _points(figures: list[Figure], args: argparse.Namespace) -> list[Point]:
    """Every figure, value and policy to run, and in how many trials."""
    from steadyarm.paper.specification import beyond_points, beyond_policies
    from steadyarm.validation import whole_number

    whole_number(args.seed, "--seed")
    if args.trials is not None:
        whole_number(args.trials, "--trials", least=1)
    policies = _policies(args)
    cells = [(f, *c) for f in figures for c in f.points(policies or sa.paper.PAPER_POLICIES)]
    if _beyond(args):
        cells += beyond_points(beyond_policies(policies))
    published, points = sa.paper.published_counts(), []
    for figure, value, policy in cells:
        trials = args.trials or figure.trials
        if args.published_trials:  # a policy that the paper does not have runs as P1-RAGE does
            names = ((figure.name, value, name) for name in (policy, "P1-RAGE"))
            trials = next((published[n].trials for n in names if n in published), figure.trials)
        points.append((figure, value, policy, int(trials)))
    return points


def _policies(args: argparse.Namespace) -> tuple[str, ...] | None:
    """The policies asked for, by their proper names; None if none were."""
    if args.policies is None:
        return None
    from steadyarm.policies import policy_from, policy_name

    given = args.policies.split(",")
    names = (name if ":" in name else policy_name(policy_from(name)) for name in given)
    return tuple(dict.fromkeys(names))


@command(
    "simulate",
    ("file [FILE.toml]", "policy and environment (see below)"),
    ("--policy NAME", f"one of: {POLICIES}; or your own as module:Class (default: steady)"),
    ("--published", "use the parameters of the paper's published runs"),
    ("--world NAME", f"one of: {WORLDS}"),
    ("--set KEY=VALUE ...", "parameter of the environment, such as scale=3"),
    ("--trials N", "simulated tests (default: 1000)"),
    ("--seed N", "seed of all random draws (default: 0)"),
    JOBS,
    FORMAT,
)
def simulate(args: argparse.Namespace) -> None:
    """Run one policy in one environment many times.

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
    settings = read_toml(args.file) if args.file else {}
    known = {"trials": int, "seed": int, "policy": dict, "world": dict, "arms": dict}
    for key, value in settings.items():
        if key not in known or not isinstance(value, known[key]):
            raise InvalidInputError(
                f"{args.file}: {key} = {value!r} is not valid; expected trials and seed as whole "
                "numbers and the tables [policy], [world] and [arms]."
            )
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


def _world(
    args: argparse.Namespace, settings: Mapping[str, Any]
) -> sa.Environment | CovariateEnvironment:
    from steadyarm.environments.families import world_from_settings

    world = dict(settings.get("world", {}))
    if args.world is not None:
        world["name"] = args.world
    for text in args.set:
        key, equals, value = text.partition("=")
        if not equals:
            raise InvalidInputError(f"--set {text!r} must have the form KEY=VALUE.")
        try:
            world[key] = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            world[key] = value  # a text without quotation marks
    if not world:
        raise InvalidInputError(
            "Name an environment with --world, or in a table [world] of a TOML file."
        )
    return world_from_settings(world, settings.get("arms"))


def _policy(args: argparse.Namespace, settings: Mapping[str, Any]) -> sa.Policy[Any]:
    from steadyarm.policies import policy_from

    described = {"name": "Steady"} | settings.get("policy", {})
    if args.policy:
        described["name"] = args.policy
    return policy_from({"name": described["name"]} if args.published else described, args.published)
