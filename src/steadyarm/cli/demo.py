"""`steadyarm demo`: a two-week test of 16 page layouts whose visitors change at weekends."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import steadyarm as sa
from steadyarm.cli.common import Progress, command, extra

if TYPE_CHECKING:
    from rich.console import Console

    from steadyarm.cli.demo_world import Stored

NAME = "demo"  # of the experiment
FACTORS = {
    "headline": ["short", "long"],
    "image": ["product", "people"],
    "button": ["green", "orange"],
    "price": ["hidden", "shown"],
}


@command(
    "demo",
    ("--out DIR = steadyarm-demo", "where the picture and the experiment are written"),
    ("--trials N = 500", "repetitions of the whole test per policy"),
    ("--seed N = 1", "seed of the visitors"),
)
def demo(args: argparse.Namespace) -> None:
    """Find the best of 16 page layouts while visitors change at weekends.

    Runs a two-week test of them, live in an SQLite file, with Steady and visitors whose clicks come
    late, twice and out of order; then repeats it with every policy of the paper and counts who is
    right.
    """
    with extra("the demo needs", "plots,live"):
        from rich.console import Console
        from rich.progress import track

        from steadyarm.cli import demo_world
    from steadyarm.validation import whole_number

    args.out.mkdir(parents=True, exist_ok=True)
    whole_number(args.trials, "--trials", least=1)
    whole_number(args.seed, "--seed")
    console = Console()
    world = demo_world.weekly_world()
    console.rule("SteadyArm: a two-week test in a world that moves")
    console.print(
        f"{world.arms.size} page layouts, {world.budget:,} visits, clicks as rewards. The test "
        "starts\non a Saturday; at weekends other people come, with another taste.\n"
    )
    with Progress() as bar:
        live = demo_world.run_stored(
            world, args.seed, args.out, lambda n: bar.show(n, world.budget, "Steady, live")
        )
    peace = demo_world.run_in_memory(sa.Peace(), world, args.seed)
    _print_stored(console, live)
    _print_verdict(console, world, live.verdict, peace)
    results = [
        sa.simulate(policy, world, trials=args.trials, seed=args.seed)
        for policy in track(
            demo_world.RIVALS, f"The same test {args.trials} times", console=console
        )
    ]
    _print_table(console, results)
    chart = demo_world.chart_of(world, live.verdict, peace, results)
    path = sa.plot.matplotlib.save(chart, args.out / "demo.png")
    console.print(f"\nA picture of all this: [bold]{path}[/]")
    _print_where(args.out)


def storage_url(folder: Path) -> str:
    """Where the demo keeps its experiment."""
    return f"sqlite:///{folder / 'demo.db'}"


def levels_of(name: str) -> str:
    """'long people orange shown' from 'headline=long, image=people, …'."""
    return " ".join(part.split("=")[1] for part in name.split(", "))


def _print_stored(console: Console, live: Stored) -> None:
    console.print(
        f"\nRewards came in another order than visitors: {live.overtaken:,} after that of a later\n"
        f"one, most by minutes; {live.late:,} took hours, {live.repeated:,} came twice. None was\n"
        "lost or counted twice; from the log,"
    )
    console.print(str(live.replay), highlight=False, soft_wrap=True)


def _print_where(folder: Path) -> None:
    here, storage = command_here(), f"--storage {shlex.quote(storage_url(folder))}"
    report = shlex.quote(str(folder / "demo.html"))
    print("\nThe test is stored; see it with:")
    print(f"  {here} serve {storage}")
    print(f"    and open http://127.0.0.1:8000/experiments/{NAME}")
    print(f"  {here} report {NAME} {storage} --out {report}")
    print(f"  {here} experiment show {NAME} {storage}")


def command_here() -> str:
    """How this command is typed: its name if it is found by that, else where it is."""
    script = Path(sys.executable).parent / "steadyarm"
    if not script.exists() or shutil.which("steadyarm") == str(script):
        return "steadyarm"
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def _print_verdict(
    console: Console, world: sa.Environment, verdict: sa.Verdict, peace: sa.Verdict
) -> None:
    from rich.table import Table

    truth, arm, other = world.average, verdict.arm, peace.arm
    console.print(
        f"\nVerdict: show the layout [bold]{levels_of(verdict.name)}[/].", highlight=False
    )
    right = "the best there is" if arm == world.best_arm else "not the best there is"
    console.print(f"Over both weeks {truth[arm]:.1%} click on it, {right}.", highlight=False)
    table = Table(title="Click rates over both weeks, the five best by estimate")
    for factor in FACTORS:
        table.add_column(factor)
    for column in ("estimate", "95 %, all at once", "truth"):
        table.add_column(column, justify="right")
    for k in (-verdict.estimates).argsort()[:5]:
        low, high = verdict.intervals[k]
        levels = levels_of(world.arms.names[k]).split(" ")
        figures = f"{verdict.estimates[k]:.1%}", f"{low:.1%} to {high:.1%}", f"{truth[k]:.1%}"
        table.add_row(*levels, *figures, style="bold" if k == arm else None)
    console.print(table)
    if other == arm:
        console.print("Peace, which assumes that nothing moves, chose the same this time.\n")
        return
    console.print("Peace, which assumes that nothing moves, saw the same visitors and chose")
    console.print(
        f"[bold]{levels_of(peace.name)}[/]: {truth[other]:.1%}, "
        f"{1 - truth[other] / truth[arm]:.0%} fewer clicks.\n",
        highlight=False,
    )


def _print_table(console: Console, results: list[sa.Results]) -> None:
    from rich.table import Table

    table = Table(title=f"How often the best layout was found, in {results[0].trials} tests")
    table.add_column("policy")
    table.add_column("right", justify="right")
    table.add_column("wrong", justify="right")
    table.add_column("95 % interval of wrong", justify="right")
    for result in results:
        low, high = result.interval()
        table.add_row(
            result.policy,
            f"{1 - result.error_rate:.1%}",
            f"{result.error_rate:.1%}",
            f"{low:.1%} to {high:.1%}",
        )
    console.print(table)
