"""`steadyarm demo`: a two-week test of 16 page layouts whose visitors change at weekends."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.cli.common import Progress, add_command, extra
from steadyarm.live.replay import Replay
from steadyarm.plot import charts
from steadyarm.plot.chart import Axis, Chart, Mark, Panel, Series
from steadyarm.plot.charts.common import others, split
from steadyarm.policies import POLICIES
from steadyarm.storages import Storage, open_storage
from steadyarm.validation import whole_number

if TYPE_CHECKING:
    from rich.console import Console

# The demo's live test: two weeks of visitors in an SQLite file, in a few seconds.


NAME = "demo"
STARTS = datetime(2026, 1, 3, tzinfo=UTC).timestamp()  # a Saturday
DAY = 86400.0
BATCH = 50  # visitors in one request
SOON = 600.0  # seconds after which most visitors have clicked or left, on average
LATE, AGAIN = 0.05, 0.02  # shares of rewards that come hours later, and that come twice


@dataclass(frozen=True)
class Stored:
    """What the live test came to.

    Attributes
    ----------
    late : rewards that came hours after their visitor
    repeated : that were reported twice
    overtaken : rewards that came after the reward of a later visitor
    """

    verdict: sa.Verdict
    replay: Replay
    late: int
    repeated: int
    overtaken: int


def storage_url(folder: Path) -> str:
    """Where the demo keeps its experiment."""
    return f"sqlite:///{folder / 'demo.db'}"


def run_stored(
    world: sa.Environment,
    seed: int,
    folder: Path,
    progress: Callable[[int], None] = lambda visitors: None,
    visits_per_day: int = 1000,
) -> Stored:
    """Assign every visitor, report their rewards at once or hours later, then judge and replay.

    The demo of an earlier run in the folder is replaced.
    """
    for end in ("", "-wal", "-shm"):
        (folder / f"demo.db{end}").unlink(missing_ok=True)
    storage = open_storage(storage_url(folder))
    try:
        return _run(storage, world, seed, progress, visits_per_day)
    finally:
        storage.close()


def _run(
    storage: Storage,
    world: sa.Environment,
    seed: int,
    progress: Callable[[int], None],
    visits_per_day: int,
) -> Stored:
    now = STARTS
    experiment = sa.create_experiment(
        NAME,
        world.arms,
        sa.Steady(),
        world.budget,
        storage,
        seed=seed,
        reward_range=(0, 1),
        reward_window="1d",
        clock=lambda: now,
    )
    mood = np.random.default_rng(seed).random(world.budget)  # clicks if below the click rate
    post = _Post(experiment, seed)
    for first in range(0, world.budget, BATCH):
        visits = range(first, min(first + BATCH, world.budget))
        now = STARTS + visits[-1] / visits_per_day * DAY
        post.deliver(now)
        for visit, answer in zip(
            visits, experiment.ask_many([f"visitor-{visit}" for visit in visits]), strict=True
        ):
            if isinstance(answer, sa.SteadyArmError):
                raise answer
            clicked = mood[visit] < world.means[visit, answer.arm]
            post.add(now, visit, answer.id, float(clicked))
        progress(visits[-1] + 1)
    experiment.stop()
    now = post.last
    post.deliver(now)
    return Stored(
        experiment.recommend(), experiment.replay(), post.late, post.repeated, post.overtaken
    )


class _Post:
    """Rewards on their way: most come soon, some hours later, some twice."""

    def __init__(self, experiment: sa.Experiment, seed: int) -> None:
        self.experiment = experiment
        self.rng = np.random.default_rng([seed, 1])
        self.coming: list[tuple[float, int, str, float]] = []  # when, of which visitor, id, reward
        self.late = self.repeated = self.overtaken = 0
        self.newest = -1

    @property
    def last(self) -> float:
        """When the last one comes."""
        return max(due for due, *_ in self.coming)

    def add(self, now: float, visit: int, assignment: str, reward: float) -> None:
        """Send a reward off."""
        due = now + self.rng.exponential(SOON)
        if self.rng.random() < LATE:
            due += self.rng.uniform(2, 12) * 3600
            self.late += 1
        heappush(self.coming, (due, visit, assignment, reward))
        if self.rng.random() < AGAIN:
            heappush(self.coming, (due + 1800, visit, assignment, reward))

    def deliver(self, now: float) -> None:
        """Report the rewards that have come by now."""
        here = []
        while self.coming and self.coming[0][0] <= now:
            here.append(heappop(self.coming))
        outcomes = self.experiment.tell_many((name, reward) for _, _, name, reward in here)
        for (_, visit, _, _), outcome in zip(here, outcomes, strict=True):
            if isinstance(outcome, sa.SteadyArmError):
                raise outcome
            self.repeated += outcome == "repeated"
            self.overtaken += outcome == "stored" and visit < self.newest
            self.newest = max(self.newest, visit)


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
    add_command(
        commands,
        "demo",
        run,
        [
            (
                "--out DIR = steadyarm-demo",
                "where the picture and the experiment are written",
            ),
            ("--trials N = 500", "repetitions of the whole test per policy"),
            ("--seed N = 1", "seed of the visitors"),
        ],
    )


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
    """The verdict of another policy on the same visitors, each reward reported at once."""
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
    """Find the best of 16 page layouts while visitors change at weekends.

    Runs a two-week test of them, live in an SQLite file, with Steady and visitors whose clicks come
    late, twice and out of order; then repeats it with every policy of the paper and counts who is
    right.
    """
    with extra("the demo needs", "plots,live"):
        from rich.console import Console
        from rich.progress import track
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
    with Progress() as bar:
        live = run_stored(
            world, args.seed, args.out, lambda n: bar.show(n, world.budget, "Steady, live")
        )
    peace = run_in_memory(sa.Peace(), world, args.seed)
    _print_stored(console, live)
    _print_verdict(console, world, live.verdict, peace)
    results = [
        sa.simulate(policy, world, trials=args.trials, seed=args.seed)
        for policy in track(RIVALS, f"The same test {args.trials} times", console=console)
    ]
    _print_table(console, results)
    chart = chart_of(world, live.verdict, peace, results)
    path = sa.plot.matplotlib.save(chart, args.out / "demo.png")
    console.print(f"\nA picture of all this: [bold]{path}[/]")
    _print_where(args.out)


def _print_stored(console: Console, live: Stored) -> None:
    console.print(
        f"\nRewards came in another order than visitors: {live.overtaken:,} after that of a later\n"
        f"one, most by minutes; {live.late:,} took hours, {live.repeated:,} came twice. None was\n"
        "lost or counted twice; from the log,"
    )
    console.print(str(live.replay), highlight=False, soft_wrap=True)


def _print_where(folder: Path) -> None:
    command, storage = command_here(), f"--storage {shlex.quote(storage_url(folder))}"
    report = shlex.quote(str(folder / "demo.html"))
    print("\nThe test is stored; see it with:")
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


def chart_of(
    world: sa.Environment, chosen: sa.Verdict, rival: sa.Verdict, results: list[sa.Results]
) -> Chart:
    """The demo's picture: what visitors wanted day by day, and who found the best layout."""
    rates, days = daily_rates(world), tuple(range(1, DAYS + 1))
    rest = [k for k in range(world.arms.size) if k not in (chosen.arm, rival.arm)]
    lines = [
        Series(f"{policy} chose {_levels(verdict.name)}", days, rates[:, verdict.arm], color=color)
        for color, policy, verdict in ((0, "Steady", chosen), (1, "Peace", rival))
    ]
    layouts = Panel(
        Axis("day of the test"),
        Axis("true click rate", percent=True),
        (*others(days, rates, rest, "other layouts", np.zeros(DAYS, bool)), *lines),
        "What visitors wanted, layout by layout",
        tuple(Mark(first - 0.5, "weekend", until=first + 1.5) for first in days[::7]),
        y_range=(0.0, 1.05 * float(rates.max())),
        height=1.4,
    )
    errors = charts.results(results)
    waits = np.array([POLICIES[result.policy].waits for result in results])
    assumes = {"assumes nothing": (~waits, 0), "assumes that nothing moves": (waits, 1)}
    wrong = replace(
        errors.panels[0],
        series=split(errors.panels[0].series[0], assumes),
        title=f"How often each policy is wrong ({results[0].trials:,} tests)",
    )
    title = "A two-week test in a world that moves"
    return Chart("demo", title, errors.summary, (layouts, wrong), errors.table)
