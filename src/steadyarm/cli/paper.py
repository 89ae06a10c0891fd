"""`steadyarm reproduce` and `steadyarm data`: the paper's experiments, and the data they need."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import steadyarm as sa
from steadyarm.cli.common import SEED, command, group
from steadyarm.errors import InvalidInputError
from steadyarm.progress import Progress
from steadyarm.wording import counted

if TYPE_CHECKING:
    from steadyarm.paper import Figure, YahooDay, YahooInstance
    from steadyarm.paper.run import Point
    from steadyarm.simulation.compare import Work

BEYOND = "beyond_paper"
FIGURES = (
    "soare_stationary, multivariate_scale, multivariate_period, soare_scale, soare_period, "
    f"malicious, multivariate_stationary, flights, yahoo, {BEYOND}"
)
POLICIES = "g-bai,p1-rage,p1-peace,mixed-peace,peace,od-linbai"
BEYOND_POLICIES = "p1-rage,g-bai-blocks,p1-rage-blocks,steady-fixed,steady-iid,steady"


@command(
    "reproduce",
    (
        "figures FIGURE",
        f"all of the paper's but yahoo by default; one or more of: {FIGURES}",
        {"nargs": "*"},
    ),
    (
        "--policies A,B",
        f"comma-separated (default: {POLICIES}; {BEYOND}: {BEYOND_POLICIES}, the first of them "
        "always); your own as module:Class",
    ),
    ("--out DIR = steadyarm-results", "where results, pictures and report are written"),
    SEED,
    ("--jobs N", "number of workers (default: one per core)"),
    (
        "--resume",
        "take finished cells from an earlier run in DIR (default: yes); --no-resume "
        "computes the cells of this command anew and leaves others alone",
        {"action": argparse.BooleanOptionalAction, "default": True},
    ),
    ("--workers threads|processes = threads", "what computes; processes for policies in Python"),
    [
        ("--trials N", "trials per cell (default: 1000)"),
        (
            "--published-trials",
            "as many trials per cell as the paper made: about 1.1 million in all",
        ),
    ],
)
def reproduce(args: argparse.Namespace) -> None:
    """Run the paper's experiments and draw its figures.

    Runs them with the configurations of the published runs, draws every figure with the published
    points in it, and writes results.csv, pictures and a report. A run that was stopped goes on
    where it was.
    """
    from steadyarm.paper.published import beyond_of, beyond_policies
    from steadyarm.paper.report import write_report
    from steadyarm.paper.run import write_results
    from steadyarm.simulation.compare import run_tasks
    from steadyarm.simulation.journal import Journal

    sa.plot.check_path(args.out / "figure.png")  # drawn at the end
    named = [sa.paper.figure_named(name) for name in args.figures if not _is_beyond(name)]
    figures = list(dict.fromkeys(named))
    if not args.figures:
        figures = [figure for figure in sa.paper.FIGURES.values() if figure.by_default]
    tasks = sa.paper.tasks_of(_points(figures, args), args.seed)
    journal = Journal(args.out / "cells.jsonl")
    if not args.resume:
        journal.drop([task.key for task in tasks])
    started = time.perf_counter()
    with Progress() as bar:

        def show(work: Work) -> None:
            doing = f"{work.all_cells} cells, {work.all_rounds:.1e} rounds"
            bar.show(work.rounds, work.all_rounds, doing, work.text)

        results = run_tasks(tasks, journal, args.jobs, args.workers, show)
    took = time.perf_counter() - started
    beyond = None
    if any(map(_is_beyond, args.figures)):
        beyond = beyond_of(results, beyond_policies(_policies(args)))
    write_results(results, args.out / "results.csv")
    settings = {"seed": args.seed, "version": sa.__version__}
    typed = shlex.join(["steadyarm", *args.typed])
    summary = write_report(figures, results, args.out, typed, settings, seconds=took, beyond=beyond)
    print(summary)
    if beyond is not None:
        print(*beyond.lines(), sep="\n")
    print(f"Report, pictures and results.csv are in {args.out} ({took:.0f} s).")


def _points(figures: list[Figure], args: argparse.Namespace) -> list[Point]:
    from steadyarm.paper.published import beyond_points, beyond_policies
    from steadyarm.validation import whole_number

    whole_number(args.seed, "--seed")
    if args.trials is not None:
        whole_number(args.trials, "--trials", least=1)
    asked = _policies(args)
    points = [(f, *point) for f in figures for point in f.points(asked or sa.paper.PAPER_POLICIES)]
    if any(map(_is_beyond, args.figures)):
        points += beyond_points(beyond_policies(asked))
    published = sa.paper.published_counts()

    def trials(figure: Figure, value: Any, policy: str) -> int:
        if args.published_trials:
            known = published.get((figure.name, value, policy))
            # a policy that the paper does not have is run as often as P1-RAGE
            known = known or published.get((figure.name, value, "P1-RAGE"))
            return known.trials if known else figure.trials
        return int(args.trials or figure.trials)

    return [(*point, trials(*point)) for point in points]


def _policies(args: argparse.Namespace) -> tuple[str, ...] | None:
    """The policies asked for, by their proper names; None if none were."""
    if args.policies is None:
        return None
    from steadyarm.policies import policy_named

    return tuple(dict.fromkeys(policy_named(name) for name in args.policies.split(",")))


def _is_beyond(name: str) -> bool:
    return name.replace("-", "_") == BEYOND


def _days(text: str) -> tuple[int, ...]:
    return tuple(int(day) for day in text.split(","))


group("data", "Read a logged data set once, and write what simulations need of it.")


@command(
    "data yahoo",
    ("folder DIR", "where the log's files are"),
    ("--out FILE = yahoo.npz", "where the instance is written"),
    ("--seed N = 0", "of candidates and arms"),
    (
        "--days",
        "days of May 2009, such as 1,2,5 (default: 1,2,3,4,5,6,7)",
        {"type": _days, "default": tuple(range(1, 8)), "metavar": "LIST"},
    ),
    ("--visits-per-day N = 1000", "rounds for which each day's parameter lasts"),
    (
        "--per-day-basis",
        "principal components of each day by itself, as in the paper's published runs",
    ),
    ("--max-malformed X = 0.01", "share of a file's lines that may be malformed"),
)
def yahoo(args: argparse.Namespace) -> None:
    """Read the Yahoo! R6A click log.

    Reads its files (ydata-fp-td-clicks-v1_0.20090501.gz to …07.gz) in one pass, fits the paper's
    daily parameters, chooses its 24 arms and writes both into a small file.
    """
    if args.out.is_dir():
        raise InvalidInputError(f"{args.out} is a folder; give --out the name of a file.")
    with Progress() as bar:
        log = sa.paper.read_yahoo(
            args.folder,
            args.days,
            seed=args.seed,
            max_malformed=args.max_malformed,
            progress=lambda file, lines, share: bar.show(share, 1, file),
        )
    _print_log(log)
    instance = sa.paper.yahoo_instance(
        log,
        seed=args.seed,
        per_day_basis=args.per_day_basis,
        visits_per_day=args.visits_per_day,
    )
    try:
        instance.save(args.out)
    except OSError as error:
        raise InvalidInputError(
            f"{args.out} cannot be written ({error}); give another --out."
        ) from None
    _print_instance(instance, args.out)


def _print_log(log: list[YahooDay]) -> None:
    line = "{:<6} {:>12} {:>11} {:>11} {:>10}"
    print(line.format("day", "lines", "clicks", "click rate", "malformed"))
    rows = [(f"May {day.day}", day.lines, day.clicks, day.visits, day.malformed) for day in log]
    numbers = (sum(column) for column in list(zip(*rows, strict=True))[1:])
    for name, lines, clicks, visits, malformed in [*rows, ("all", *numbers)]:
        rate = f"{clicks / visits:.2%}"
        print(line.format(name, f"{lines:,}", f"{clicks:,}", rate, f"{malformed:,}"))
    for reason in (reason for day in log for reason in day.named):
        print(f"  malformed: {reason}")


def _print_instance(instance: YahooInstance, path: Path) -> None:
    week = len(instance.days) * instance.visits_per_day
    world = sa.paper.yahoo_world(instance, budget=week)
    ahead = sum(day.argmax() == world.best_arm for day in instance.thetas @ instance.features.T)
    print(
        f"\n{world.arms.size} arms in {world.arms.rank} dimensions. The best on average leads by "
        f"{world.gap:.4f}\nand is ahead on {ahead} of {counted(len(instance.days), 'day')}. "
        f"Written to {path}."
    )
