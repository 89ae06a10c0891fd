"""`steadyarm demo`: a two-week test of 16 page layouts whose visitors change at weekends."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from random import Random
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING, Any

import steadyarm as sa
from steadyarm.cli.main import WIDTH, command, extra, table

if TYPE_CHECKING:
    import numpy as np

    from steadyarm.live.replay import Replay
    from steadyarm.plot.spec import Spec

NAME = "demo"  # of the experiment
RUNNING = "checkout"  # the test of --serve, and how often visitors buy
PURCHASES = {"classic": 0.10, "one page": 0.13, "guest": 0.11}
FACTORS = {
    "headline": ["short", "long"],
    "image": ["product", "people"],
    "button": ["green", "orange"],
    "price": ["hidden", "shown"],
}
STARTS = datetime(2026, 1, 3, tzinfo=UTC).timestamp()  # a Saturday
DAY = 86400.0
DAYS, VISITS_PER_DAY = 14, 1000
BATCH = 50  # visitors in one request
SOON = 600.0  # seconds after which most visitors have clicked or left, on average
LATE, AGAIN = 0.05, 0.02  # shares of rewards that come hours later, and that come twice


@command(
    "demo",
    ("--out DIR = steadyarm-demo", "where the picture and the experiment are written"),
    ("--trials N = 500", "repetitions of the whole test per policy"),
    ("--seed N = 1", "seed of the visitors"),
    ("--serve", "then open the dashboard, with this test and a running one"),
)
def demo(args: argparse.Namespace) -> None:
    """Find the best of 16 page layouts while visitors change at weekends.

    Runs a two-week live test with Steady in an SQLite file. Clicks arrive late, twice and out of
    order. The demo then repeats the test with every policy of the paper and counts how often each
    finds the best layout. With --serve the dashboard shows this test and a running one, whose
    simulated visitors use the API of the service. STEADYARM_PORT sets the port.
    """
    from steadyarm.validation import whole_number
    from steadyarm.wording import Progress

    sa.plot.check_path(args.out / "demo.png")
    whole_number(args.trials, "--trials", least=1)
    whole_number(args.seed, "--seed")
    args.out.mkdir(parents=True, exist_ok=True)
    world = weekly_world()
    print("SteadyArm: a two-week test under drift".center(WIDTH, "─"))
    print(
        f"{world.arms.size} page layouts, {world.budget:,} visits, clicks as rewards. The test "
        "starts\non a Saturday. Visitors at weekends prefer other layouts."
    )
    with Progress() as bar:
        verdict, replay, post = run_stored(
            world, args.seed, args.out, lambda n: bar.show(n, world.budget, "Steady, live")
        )
    peace = run_in_memory(sa.Peace(), world, args.seed)
    print(
        f"\n{post.overtaken:,} rewards arrived after that of a later visitor, {post.late:,} took "
        f"hours and\n{post.repeated:,} arrived twice. None was lost or counted twice. Replay of "
        f"the log:\n{replay}"
    )
    _print_verdict(world, verdict, peace)
    policies = _policies()
    results = []
    with Progress() as bar:
        for done, (name, policy) in enumerate(policies.items()):
            bar.show(done, len(policies), f"the same test {args.trials} times", name)
            result = sa.simulate(policy, world, trials=args.trials, seed=args.seed)
            results.append(replace(result, policy=name))
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
    chart = _chart(world, verdict, peace, results)
    print(f"\nA picture of all this: {sa.plot.save(chart, args.out / 'demo.png')}")
    if args.serve:
        serve(storage_url(args.out), args.seed)
        return
    here, storage = command_here(), f"--storage {shlex.quote(storage_url(args.out))}"
    print("\nThe test is stored; see it with:")
    print(f"  {here} serve {storage}")
    print(f"    and open http://127.0.0.1:8000/experiments/{NAME}")
    print(f"  {here} report {NAME} {storage} --out {shlex.quote(str(args.out / 'demo.html'))}")
    print(f"  {here} experiment show {NAME} {storage}")


def serve(storage: str, seed: int) -> None:
    """Serve the finished test and a running one, until it is interrupted."""
    from steadyarm.cli.service import DASHBOARD

    with extra("the dashboard needs", "service"):
        from steadyarm.service import process
        from steadyarm.service.settings import ServiceSettings
    settings = ServiceSettings.from_environment(os.environ, storage=storage, access_log=False)
    keyed: dict[str, Any] = {"several": "sum", "window": "20s", "event": "purchase"}
    purchase = sa.Metric(
        "purchase rate", role="primary", kind="yes/no", window="20s", event="purchase"
    )
    sa.create_experiment(
        RUNNING,
        list(PURCHASES),
        sa.Steady(),
        6000,
        storage,
        seed=seed,
        control="classic",
        metrics=[
            purchase,
            sa.Metric("revenue", kind="money", unit="€", cap=300, **keyed),
            sa.Metric("orders", kind="count", **keyed),
        ],
        stop="recommend",
    ).close()
    print("\nVisitors use the test 'checkout' now, 20 a second. Stop with Ctrl+C.", flush=True)
    url = f"http://127.0.0.1:{settings.port}"
    Thread(target=send_traffic, args=(url, seed), daemon=True).start()
    process.serve(settings, DASHBOARD)


def send_traffic(url: str, seed: int, pause: float = 0.05) -> None:
    """Let visitors use the running test over HTTP, until the service ends.

    pause : seconds between two visitors
    """
    rng = Random(seed)
    with sa.Client(url, cooldown=0.1) as client:
        checkout = client.experiment(RUNNING)
        for visitor in count():
            sleep(pause)
            unit = f"visitor {visitor}"
            try:
                shown = checkout.ask(unit)
                if rng.random() < PURCHASES[shown.arm]:
                    worth = rng.lognormvariate(3, 0.6)
                    client.track("purchase", unit, worth, id=f"order {visitor}")
            except sa.SteadyArmError:  # the service starts or ends
                continue


def storage_url(folder: Path) -> str:
    """The address of the demo's storage."""
    return f"sqlite:///{folder / 'demo.db'}"


def levels_of(name: str) -> str:
    """'long people orange shown' from 'headline=long, image=people, …'."""
    return " ".join(part.split("=")[1] for part in name.split(", "))


def command_here() -> str:
    """The command as people type it: its name if it is on the path, else its location."""
    script = Path(sys.executable).parent / "steadyarm"
    if not script.exists() or shutil.which("steadyarm") == str(script):
        return "steadyarm"
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def _print_verdict(world: sa.Environment, verdict: sa.Verdict, peace: sa.Verdict) -> None:
    truth, arm, other = world.average, verdict.arm, peace.arm
    right = "the best layout" if arm == world.best_arm else "not the best layout"
    print(
        f"\nVerdict: show the layout {levels_of(verdict.name)}.\n"
        f"{truth[arm]:.1%} of all visitors click on it; it is {right}.\n\n"
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
    print("\nPeace, which assumes constant rewards, ", end="")
    if other == arm:
        print("chose the same layout this time.\n")
    else:
        fewer = 1 - truth[other] / truth[arm]
        print(
            f"had the same visitors and chose\n{levels_of(peace.name)}: {truth[other]:.1%}, "
            f"{fewer:.0%} fewer clicks.\n"
        )


# The world, and tests in it


def weekly_world() -> sa.Environment:
    """Clicks on 16 layouts, starting on a Saturday: at weekends other people come.

    Long headlines and pictures of people please on weekdays and displease at weekends, when
    everybody clicks more.
    """
    import numpy as np

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


def _policies() -> dict[str, sa.Policy[Any]]:
    """Those of the paper, and what balance and adaptation bring by themselves."""
    return {
        "Steady": sa.Steady(),
        "Steady without blocks": sa.Steady(order="iid"),
        "Steady without adaptation": sa.Steady(robustness=1.0),
        "P1-RAGE in blocks": sa.P1RAGE(order="blocks"),
        "G-BAI in blocks": sa.GBAI(order="blocks"),
        "P1-RAGE": sa.P1RAGE(),
        "G-BAI": sa.GBAI(),
        "P1-Peace": sa.P1Peace(),
        "Mixed-Peace": sa.MixedPeace(),
        "OD-LinBAI": sa.ODLinBAI(),
        "Peace": sa.Peace(),
    }


def run_stored(
    world: sa.Environment,
    seed: int,
    folder: Path,
    progress: Callable[[int], None] = lambda visitors: None,
) -> tuple[sa.Verdict, Replay, Deliveries]:
    """Assign every visitor, report their rewards at once or hours later, then judge and replay.

    The demo of an earlier run in the folder is replaced.
    """
    import numpy as np

    for end in ("", "-wal", "-shm"):
        (folder / f"demo.db{end}").unlink(missing_ok=True)
    now = STARTS
    with sa.create_experiment(
        NAME,
        world.arms,
        sa.Steady(),
        world.budget,
        storage_url(folder),
        seed=seed,
        reward_range=(0, 1),
        reward_window="1d",
        clock=lambda: now,
    ) as experiment:
        clicks = np.random.default_rng(seed).random(world.budget)  # clicks if below the click rate
        post = Deliveries(experiment, np.random.default_rng([seed, 1]))
        for first in range(0, world.budget, BATCH):
            visits = range(first, min(first + BATCH, world.budget))
            now = STARTS + visits[-1] / VISITS_PER_DAY * DAY
            post.deliver(now)
            answers = experiment.ask_many([f"visitor-{visit}" for visit in visits])
            for visit, answer in zip(visits, answers, strict=True):
                if isinstance(answer, sa.SteadyArmError):
                    raise answer
                clicked = clicks[visit] < world.means[visit, answer.arm]
                post.add(now, visit, answer.id, float(clicked))
            progress(visits[-1] + 1)
        experiment.stop()
        now = max(due for due, *_ in post.coming)
        post.deliver(now)
        return experiment.recommend(), experiment.replay(), post


class Deliveries:
    """Rewards on their way: most come soon, some hours later, some twice.

    Attributes
    ----------
    late : rewards that came hours after their visitor
    repeated : that were reported twice
    overtaken : rewards that came after the reward of a later visitor
    """

    def __init__(self, experiment: sa.Experiment, rng: np.random.Generator) -> None:
        self.experiment, self.rng = experiment, rng
        self.coming: list[tuple[float, int, str, float]] = []  # when, of which visitor, id, reward
        self.late = self.repeated = self.overtaken = 0
        self.newest = -1

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


def run_in_memory(policy: sa.Policy[Any], world: sa.Environment, seed: int) -> sa.Verdict:
    """The verdict of another policy on the same visitors, each reward reported at once."""
    import numpy as np

    session = sa.Session(policy, world.arms, world.budget, seed=seed)
    clicks = np.random.default_rng(seed).random(world.budget)  # clicks if below the click rate
    for visit in range(world.budget):
        try:
            assignment = session.ask()
        except sa.BudgetSpentError:
            break  # Peace stops when one layout is left
        session.tell(assignment, float(clicks[visit] < world.means[visit, assignment.arm]))
    return session.recommend()


def _chart(
    world: sa.Environment, verdict: sa.Verdict, rival: sa.Verdict, results: list[sa.Results]
) -> Spec:
    """The demo's picture: what visitors wanted day by day, and who found the best layout."""
    from steadyarm.plot import spec, standings

    rates = world.means.reshape(DAYS, VISITS_PER_DAY, -1).mean(axis=1)
    names = {verdict.arm: f"Steady chose {levels_of(verdict.name)}"}
    names.setdefault(rival.arm, f"Peace chose {levels_of(rival.name)}")
    rest = "other layouts"
    rows: spec.Rows = [
        {"day": day, "arm": name, "layout": names.get(k, rest), "rate": rates[day - 1, k]}
        for day in range(1, DAYS + 1)
        for k, name in enumerate(world.arms.names)
    ]
    label = "day of the test (shaded: weekends)"
    weekends = [{"from": first - 0.5, "to": first + 1.5} for first in range(1, DAYS + 1, 7)]
    shade = {
        "data": {"values": weekends},
        "mark": {"type": "rect", "color": spec.QUIET, "opacity": 0.15},
        "encoding": {"x": spec.field("from", title=label), "x2": {"field": "to"}},
    }
    colors = [*(spec.ACCENT, spec.BAD)[: len(names)], spec.QUIET]
    tint = spec.color("layout", [*names.values(), rest], colors)
    tint["legend"]["columns"] = 1
    few = {"field": "layout", "equal": rest}
    lines = {
        "mark": {"type": "line"},
        "encoding": {
            "x": spec.field("day", title=label),
            "y": spec.number("rate", "true click rate", True, scale={"domainMin": 0}),
            "color": tint,
            "detail": {"field": "arm"},
            "opacity": {"condition": {"test": few, "value": 0.35}, "value": 1},
            "size": {"condition": {"test": few, "value": 1}, "value": 3},
        },
    }
    errors = standings.results(results, f"Wrong picks in {results[0].trials:,} tests")
    wrong = {key: errors[key] for key in ("data", "height", "layer")}
    wrong |= {"title": {"text": errors["title"]["text"], "fontSize": 13}, "width": spec.WIDTH}
    return spec.chart(
        "demo",
        "A two-week test under drift",
        rows,
        summary=errors["description"],
        vconcat=[{"layer": [shade, lines], "width": spec.WIDTH, "height": 260}, wrong],
        resolve={"scale": {"color": "independent"}},
    )
