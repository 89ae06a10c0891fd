"""`steadyarm reproduce`: every experiment of the paper, with the published numbers beside ours."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import Any

from steadyarm import __version__
from steadyarm.cli.options import add_seed
from steadyarm.errors import InvalidInputError, MissingExtraError
from steadyarm.paper import FIGURES, PAPER_POLICIES, Cell, Figure, Journal, figure_named
from steadyarm.paper.beyond import beyond_of, beyond_points, beyond_policies
from steadyarm.paper.published import published_counts
from steadyarm.paper.report import write_report
from steadyarm.paper.run import key_of, run_cells, work_of, write_results
from steadyarm.paper.specification import BEYOND_PAPER, entrant_named
from steadyarm.simulation import DaskEngine, Engine, LocalEngine
from steadyarm.validation import whole_number

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    parser = commands.add_parser(
        "reproduce",
        help="run the paper's experiments and draw its figures",
        description="Runs the paper's experiments with the configurations of its published runs, "
        "draws every figure with the published points in it, and writes results.csv, pictures "
        "and a report. A run that was stopped goes on where it was.",
    )
    parser.add_argument(
        "figures",
        nargs="*",
        metavar="FIGURE",
        help="all of the paper's but yahoo by default; one or more of: "
        + ", ".join([*FIGURES, BEYOND_PAPER]),
    )
    trials = parser.add_mutually_exclusive_group()
    trials.add_argument("--trials", type=int, metavar="N", help="trials per cell (default: 1000)")
    trials.add_argument(
        "--published-trials",
        action="store_true",
        help="as many trials per cell as the paper made: about 1.1 million in all",
    )
    parser.add_argument(
        "--policies",
        metavar="A,B",
        help=f"comma-separated (default: {','.join(PAPER_POLICIES).lower()}; {BEYOND_PAPER}: "
        f"{','.join(beyond_policies()).lower().replace(' ', '-')}, the first of them always)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("steadyarm-results"),
        metavar="DIR",
        help="where results, pictures and report are written (default: %(default)s)",
    )
    add_seed(parser)
    parser.add_argument(
        "--jobs", type=int, metavar="J", help="threads, or workers of a new Dask cluster here"
    )
    parser.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="take finished cells from an earlier run in DIR (default: yes); --no-resume "
        "computes the cells of this command anew and leaves others alone",
    )
    parser.add_argument(
        "--engine",
        choices=["local", "dask"],
        default="local",
        help="threads of this process, or Dask (default: %(default)s)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="of a running Dask cluster; without it --engine dask starts one here",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Run the cells, then draw and report."""
    try:
        import matplotlib  # noqa: F401  # drawn at the end; missed at the beginning
        from rich.console import Console
    except ImportError as error:
        raise MissingExtraError(
            f"reproducing needs {error.name}; install it with: pip install 'steadyarm[plots]'"
        ) from None
    console = Console()
    named = [figure_named(name) for name in args.figures if not _is_beyond(name)]
    figures = list(dict.fromkeys(named))
    if not args.figures:
        figures = [figure for figure in FIGURES.values() if figure.by_default]
    cells = _cells(figures, args)
    engine = _engine(args)
    journal = Journal(args.out / "cells.jsonl")
    if not args.resume:
        journal.drop([key_of(cell) for cell in cells])
    started = time.perf_counter()
    results = _run_with_bar(console, cells, engine, journal)
    took = time.perf_counter() - started
    beyond = None
    if any(map(_is_beyond, args.figures)):
        beyond = beyond_of(results, beyond_policies(_policies(args)))
    write_results(results, args.out / "results.csv")
    settings = {"seed": args.seed, "engine": args.engine, "version": __version__}
    command = shlex.join(["steadyarm", *args.typed])
    summary = write_report(
        figures, results, args.out, command, settings, seconds=took, beyond=beyond
    )
    console.print(summary, highlight=False)
    if beyond is not None:
        console.print(*beyond.lines(), sep="\n", highlight=False)
    console.print(f"Report, pictures and results.csv are in [bold]{args.out}[/] ({took:.0f} s).")


def _engine(args: argparse.Namespace) -> Engine:
    if args.engine == "dask":
        return DaskEngine(args.scheduler, args.jobs)
    if args.scheduler is not None:
        raise InvalidInputError(
            f"--scheduler {args.scheduler} is for --engine dask; add it, or leave the address out."
        )
    return LocalEngine(args.jobs)


def _cells(figures: list[Figure], args: argparse.Namespace) -> list[Cell]:
    whole_number(args.seed, "--seed")
    if args.trials is not None:
        whole_number(args.trials, "--trials", least=1)
    asked = _policies(args)
    points = [(f, *point) for f in figures for point in f.points(asked or PAPER_POLICIES)]
    if any(map(_is_beyond, args.figures)):
        points += beyond_points(beyond_policies(asked))
    published = published_counts()

    def trials(figure: Figure, value: Any, policy: str) -> int:
        if args.published_trials:
            known = published.get((figure.name, value, policy))
            # a policy that the paper does not have is run as often as P1-RAGE
            known = known or published.get((figure.name, value, "P1-RAGE"))
            return known.trials if known else figure.trials
        return int(args.trials or figure.trials)

    cells = (
        Cell(figure.name, value, policy, trials(figure, value, policy), args.seed)
        for figure, value, policy in points
    )
    return list(dict.fromkeys(cells))


def _policies(args: argparse.Namespace) -> tuple[str, ...] | None:
    """The policies asked for, by their proper names; None if none were."""
    if args.policies is None:
        return None
    return tuple(dict.fromkeys(entrant_named(name) for name in args.policies.split(",")))


def _is_beyond(name: str) -> bool:
    return name.replace("-", "_") == BEYOND_PAPER


def _run_with_bar(console: Any, cells: list[Cell], engine: Engine, journal: Journal) -> Any:
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    total, done = work_of(cells, journal)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(f"{len(cells)} cells, {total:.1e} rounds", total=total, completed=done)
        return run_cells(cells, engine, journal, lambda rounds: bar.advance(task, rounds))
