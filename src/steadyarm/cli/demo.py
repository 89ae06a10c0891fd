"""`steadyarm demo`: a two-week test of 16 page layouts whose visitors change at weekends."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.cli.demo_live import NAME, Stored, run_stored, storage_url
from steadyarm.validation import whole_number

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "DAYS",
    "add_parser",
    "command_here",
    "daily_rates",
    "run",
    "run_in_memory",
    "weekly_world",
]

DAYS, VISITS_PER_DAY = 14, 1000
FACTORS = {
    "headline": ["short", "long"],
    "image": ["product", "people"],
    "button": ["green", "orange"],
    "price": ["hidden", "shown"],
}
RIVALS: tuple[sa.Policy[Any], ...] = (
    sa.Steady(),
    sa.P1RAGE(),
    sa.GBAI(),
    sa.P1Peace(),
    sa.MixedPeace(),
    sa.ODLinBAI(),
    sa.Peace(),
)


def add_parser(commands: Any) -> None:
    """Describe the command's options."""
    parser = commands.add_parser(
        "demo",
        help="find the best of 16 page layouts while visitors change at weekends",
        description="Runs a two-week test of 16 page layouts, live in an SQLite file, with "
        "Steady and visitors whose clicks come late, twice and out of order; then repeats it with "
        "every policy of the paper and counts who is right.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("steadyarm-demo"),
        metavar="DIR",
        help="where the picture and the experiment are written (default: %(default)s)",
    )
    parser.add_argument(
        "--trials",
        type=int,
        default=500,
        metavar="N",
        help="repetitions of the whole test per policy (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="S",
        help="another seed, other visitors (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def weekly_world() -> sa.Environment:
    """Clicks on 16 layouts, starting on a Saturday: at weekends other people come.

    Long headlines and pictures of people please on weekdays and displease at weekends, when
    everybody clicks more.
    """
    arms = sa.ArmSet.factorial(FACTORS)
    effects = {  # click rate on a weekday, and on a weekend day
        "(constant)": (0.14, 0.20),
        "headline=long": (0.025, -0.030),
        "image=people": (0.030, -0.040),
        "button=orange": (0.020, 0.005),
        "price=shown": (0.0175, 0.010),
        "headline=long:image=people": (0.015, 0.0),
        "button=orange:price=shown": (0.005, 0.0),
    }
    pairs = np.array([effects.get(name, (0.0, 0.0)) for name in arms.feature_names])
    weekend = np.repeat(np.arange(DAYS) % 7 < 2, VISITS_PER_DAY)
    thetas = np.where(weekend[:, None], pairs[:, 1], pairs[:, 0])
    return sa.Environment.from_parameters(arms, thetas, sa.BernoulliReward())


def run_in_memory(policy: sa.Policy[Any], world: sa.Environment, seed: int) -> sa.Verdict:
    """The verdict of another policy on the same visitors, each told at once."""
    session = sa.Session(policy, world.arms, world.budget, seed=seed)
    mood = np.random.default_rng(seed).random(world.budget)  # clicks if below the click rate
    for visit in range(world.budget):
        try:
            assignment = session.ask()
        except sa.BudgetSpentError:
            break  # Peace stops when one layout is left
        clicked = mood[visit] < world.means[visit, assignment.arm]
        session.tell(assignment, float(clicked))
    return session.recommend()


def run(args: argparse.Namespace) -> None:
    """Run the demo and print what it found."""
    try:
        from rich.console import Console
        from rich.progress import track

        from steadyarm.cli.demo_figure import draw
    except ImportError as error:
        raise sa.MissingExtraError(
            f"the demo needs {error.name}; install it with: pip install 'steadyarm[plots,live]'"
        ) from None
    args.out.mkdir(parents=True, exist_ok=True)
    whole_number(args.trials, "--trials", least=1)
    whole_number(args.seed, "--seed")
    console = Console()
    world = weekly_world()
    console.rule("SteadyArm: a two-week test in a world that moves")
    console.print(
        f"{world.arms.size} page layouts, {world.budget:,} visits, clicks as rewards. The test "
        "starts\non a Saturday; at weekends other people come, with another taste.\n"
    )
    with _bar(console) as bar:
        task = bar.add_task("Steady, live", total=world.budget)
        live = run_stored(world, args.seed, args.out, lambda n: bar.advance(task, n))
    peace = run_in_memory(sa.Peace(), world, args.seed)
    _print_stored(console, live)
    _print_verdict(console, world, live.verdict, peace)
    results = [
        sa.simulate(policy, world, trials=args.trials, seed=args.seed)
        for policy in track(RIVALS, f"The same test {args.trials} times", console=console)
    ]
    _print_table(console, results)
    path = draw(world, live.verdict, peace, results, args.out)
    console.print(f"\nA picture of all this: [bold]{path}[/]")
    _print_where(args.out)


def _print_stored(console: Console, live: Stored) -> None:
    console.print(
        f"\nRewards came in another order than visitors: {live.overtaken:,} after that of a later\n"
        f"one, most by minutes; {live.late:,} took hours, {live.repeated:,} were told twice. None\n"
        "was lost or counted twice; from the log,"
    )
    console.print(str(live.replay), highlight=False, soft_wrap=True)


def _print_where(folder: Path) -> None:
    command, storage = command_here(), f"--storage {shlex.quote(storage_url(folder))}"
    report = shlex.quote(str(folder / "demo.html"))
    print("\nThe test is still there; look at it:")
    print(f"  {command} serve {storage}")
    print(f"    and open http://127.0.0.1:8000/experiments/{NAME}")
    print(f"  {command} report {NAME} {storage} --out {report}")
    print(f"  {command} experiment show {NAME} {storage}")


def command_here() -> str:
    """How this command is typed: its name if it is found by that, else where it is."""
    script = Path(sys.executable).parent / "steadyarm"
    if not script.exists() or shutil.which("steadyarm") == str(script):
        return "steadyarm"
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def _bar(console: Console) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console
    )


def _print_verdict(
    console: Console, world: sa.Environment, verdict: sa.Verdict, peace: sa.Verdict
) -> None:
    from rich.table import Table

    truth, arm, other = world.average, verdict.arm, peace.arm
    console.print(f"\nVerdict: show the layout [bold]{_levels(verdict.name)}[/].", highlight=False)
    right = "the best there is" if arm == world.best_arm else "not the best there is"
    console.print(f"Over both weeks {truth[arm]:.1%} click on it, {right}.", highlight=False)
    table = Table(title="Click rates over both weeks, the five best by estimate")
    for factor in FACTORS:
        table.add_column(factor)
    for column in ("estimate", "95 %, all at once", "truth"):
        table.add_column(column, justify="right")
    for k in np.argsort(-verdict.estimates)[:5]:
        low, high = verdict.intervals[k]
        levels = _levels(world.arms.names[k]).split(" ")
        figures = f"{verdict.estimates[k]:.1%}", f"{low:.1%} to {high:.1%}", f"{truth[k]:.1%}"
        table.add_row(*levels, *figures, style="bold" if k == arm else None)
    console.print(table)
    if other == arm:
        console.print("Peace, which assumes that nothing moves, chose the same this time.\n")
        return
    console.print("Peace, which assumes that nothing moves, saw the same visitors and chose")
    console.print(
        f"[bold]{_levels(peace.name)}[/]: {truth[other]:.1%}, "
        f"{1 - truth[other] / truth[arm]:.0%} fewer clicks.\n",
        highlight=False,
    )


def _levels(name: str) -> str:
    """'long people orange shown' from 'headline=long, image=people, …'."""
    return " ".join(part.split("=")[1] for part in name.split(", "))


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


def daily_rates(world: sa.Environment) -> NDArray[np.float64]:
    """(days, K) true click rate of every layout on every day."""
    return np.asarray(world.means.reshape(DAYS, VISITS_PER_DAY, -1).mean(axis=1))
