"""`steadyarm demo`: a two-week test of 16 page layouts whose visitors change at weekends."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import steadyarm as sa
from steadyarm.cli.common import WIDTH, command, table
from steadyarm.progress import Progress

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
    from steadyarm.cli import demo_world
    from steadyarm.validation import whole_number

    sa.plot.check_path(args.out / "demo.png")
    whole_number(args.trials, "--trials", least=1)
    whole_number(args.seed, "--seed")
    args.out.mkdir(parents=True, exist_ok=True)
    world = demo_world.weekly_world()
    print("SteadyArm: a two-week test in a world that moves".center(WIDTH, "─"))
    print(
        f"{world.arms.size} page layouts, {world.budget:,} visits, clicks as rewards. The test "
        "starts\non a Saturday; at weekends other people come, with another taste."
    )
    with Progress() as bar:
        live = demo_world.run_stored(
            world, args.seed, args.out, lambda n: bar.show(n, world.budget, "Steady, live")
        )
    peace = demo_world.run_in_memory(sa.Peace(), world, args.seed)
    print(
        f"\nRewards came in another order than visitors: {live.overtaken:,} after that of a later\n"
        f"one, most by minutes; {live.late:,} took hours, {live.repeated:,} came twice. None was\n"
        f"lost or counted twice; from the log,\n{live.replay}"
    )
    _print_verdict(world, live.verdict, peace)
    results = []
    with Progress() as bar:
        for done, (name, policy) in enumerate(demo_world.RIVALS.items()):
            bar.show(done, len(demo_world.RIVALS), f"the same test {args.trials} times", name)
            found = sa.simulate(policy, world, trials=args.trials, seed=args.seed)
            results.append(replace(found, policy=name))
    print(f"How often the best layout was found, in {results[0].trials} tests\n")
    rows = [
        (
            result.policy,
            f"{1 - result.error_rate:.1%}",
            f"{result.error_rate:.1%}",
            "{:.1%} to {:.1%}".format(*result.interval()),
        )
        for result in results
    ]
    print(table(("policy", "right", "wrong", "95 % interval of wrong"), rows, "<>>>"))
    chart = demo_world.chart_of(world, live.verdict, peace, results)
    print(f"\nA picture of all this: {sa.plot.save(chart, args.out / 'demo.png')}")
    _print_where(args.out)


def storage_url(folder: Path) -> str:
    """Where the demo keeps its experiment."""
    return f"sqlite:///{folder / 'demo.db'}"


def levels_of(name: str) -> str:
    """'long people orange shown' from 'headline=long, image=people, …'."""
    return " ".join(part.split("=")[1] for part in name.split(", "))


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


def _print_verdict(world: sa.Environment, verdict: sa.Verdict, peace: sa.Verdict) -> None:
    truth, arm, other = world.average, verdict.arm, peace.arm
    right = "the best there is" if arm == world.best_arm else "not the best there is"
    print(
        f"\nVerdict: show the layout {levels_of(verdict.name)}.\n"
        f"Over both weeks {truth[arm]:.1%} click on it, {right}.\n\n"
        "Click rates over both weeks, the five best by estimate\n"
    )
    rows = [
        (
            *levels_of(world.arms.names[k]).split(" "),
            f"{verdict.estimates[k]:.1%}",
            "{:.1%} to {:.1%}".format(*verdict.intervals[k]),
            f"{truth[k]:.1%}",
        )
        for k in (-verdict.estimates).argsort()[:5]
    ]
    print(table((*FACTORS, "estimate", "95 %, all at once", "truth"), rows, "<<<<>>>"))
    print("\nPeace, which assumes that nothing moves, ", end="")
    if other == arm:
        print("chose the same this time.\n")
    else:
        fewer = 1 - truth[other] / truth[arm]
        print(
            f"saw the same visitors and chose\n{levels_of(peace.name)}: {truth[other]:.1%}, "
            f"{fewer:.0%} fewer clicks.\n"
        )
