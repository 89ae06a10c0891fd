"""`steadyarm data`: reads logged data sets into worlds that need the data no more."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.paper import YahooDay, YahooInstance, read_yahoo, yahoo_instance, yahoo_world

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    data = commands.add_parser(
        "data",
        help="read a logged data set into a world",
        description="Reads a logged data set once and writes what simulations need of it.",
    )
    sets = data.add_subparsers(title="data sets", metavar="SET", required=True)
    yahoo = sets.add_parser(
        "yahoo",
        help="the Yahoo! R6A click log",
        description="Reads the files of Yahoo! R6A (ydata-fp-td-clicks-v1_0.20090501.gz to "
        "…07.gz) in one pass, fits the paper's daily parameters, chooses its 24 arms and writes "
        "both into a small file.",
    )
    yahoo.add_argument("folder", type=Path, metavar="DIR", help="where the log's files are")
    yahoo.add_argument(
        "--out",
        type=Path,
        default=Path("yahoo.npz"),
        metavar="FILE",
        help="where the instance is written (default: %(default)s)",
    )
    yahoo.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="S",
        help="another seed, other candidates and arms (default: %(default)s)",
    )
    yahoo.add_argument(
        "--days",
        type=_days,
        default=tuple(range(1, 8)),
        metavar="LIST",
        help="days of May 2009, such as 1,2,5 (default: 1,2,3,4,5,6,7)",
    )
    yahoo.add_argument(
        "--visits-per-day",
        type=int,
        default=1000,
        metavar="L",
        help="rounds for which each day's parameter lasts (default: %(default)s)",
    )
    yahoo.add_argument(
        "--per-day-basis",
        action="store_true",
        help="principal components of each day by itself, as in the paper's published runs",
    )
    yahoo.add_argument(
        "--max-malformed",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="share of a file's lines that may be malformed (default: %(default)s)",
    )
    yahoo.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Read the log, write the instance, and print what was found."""
    if args.out.is_dir():
        raise InvalidInputError(f"{args.out} is a folder; give --out the name of a file.")
    log = read_yahoo(
        args.folder,
        args.days,
        seed=args.seed,
        max_malformed=args.max_malformed,
        progress=_Progress() if sys.stderr.isatty() else None,
    )
    _print_log(log)
    instance = yahoo_instance(
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


def _days(text: str) -> tuple[int, ...]:
    return tuple(int(day) for day in text.split(","))


class _Progress:
    """One line on the terminal, rewritten a few times a second."""

    def __init__(self) -> None:
        self.start = self.last = time.monotonic()

    def __call__(self, file: str, lines: int, share: float) -> None:
        now = time.monotonic()
        if now - self.last < 0.2 and share < 1:
            return
        self.last = now
        left = (now - self.start) * (1 - share) / share if share else 0.0
        text = f"{share:4.0%}  {file}: {lines:,} lines, {left:.0f} s left"
        print(f"\r{text:<79}", end="\n" if share >= 1 else "", file=sys.stderr, flush=True)


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
    world = yahoo_world(instance, budget=week)
    ahead = sum(day.argmax() == world.best_arm for day in instance.thetas @ instance.features.T)
    print(
        f"\n{world.arms.size} arms in {world.arms.rank} dimensions. The best on average leads by "
        f"{world.gap:.4f}\nand is ahead on {ahead} of {len(instance.days)} days. Written to {path}."
    )
