"""What `steadyarm demo` runs and draws: a drifting world, a live test in it, and a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import steadyarm as sa
from steadyarm.cli.demo import FACTORS, NAME, levels_of, storage_url
from steadyarm.live.replay import Replay
from steadyarm.plot import standings
from steadyarm.plot.spec import ACCENT, BAD, QUIET, WIDTH, Rows, Spec, chart, color, field, number
from steadyarm.storages import Storage, open_storage

STARTS = datetime(2026, 1, 3, tzinfo=UTC).timestamp()  # a Saturday
DAY = 86400.0
DAYS, VISITS_PER_DAY = 14, 1000
BATCH = 50  # visitors in one request
SOON = 600.0  # seconds after which most visitors have clicked or left, on average
LATE, AGAIN = 0.05, 0.02  # shares of rewards that come hours later, and that come twice
RIVALS: dict[str, sa.Policy[Any]] = {  # with what balance and adaptation bring by themselves
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


def daily_rates(world: sa.Environment) -> NDArray[np.float64]:
    """(days, K) true click rate of every layout on every day."""
    return np.asarray(world.means.reshape(DAYS, VISITS_PER_DAY, -1).mean(axis=1))


def chart_of(
    world: sa.Environment, chosen: sa.Verdict, rival: sa.Verdict, results: list[sa.Results]
) -> Spec:
    """The demo's picture: what visitors wanted day by day, and who found the best layout."""
    rates = daily_rates(world)
    names = {chosen.arm: f"Steady chose {levels_of(chosen.name)}"}
    names |= {rival.arm: f"Peace chose {levels_of(rival.name)}"} if rival.arm != chosen.arm else {}
    rest = "other layouts"
    rows: Rows = [
        {"day": day + 1, "arm": world.arms.names[k], "layout": names.get(k, rest), "rate": rate}
        for (day, k), rate in np.ndenumerate(rates)
    ]
    errors = standings.results(results, f"Wrong picks in {results[0].trials:,} tests")
    weekends = [{"from": first - 0.5, "to": first + 1.5} for first in range(1, DAYS + 1, 7)]
    shade = {
        "data": {"values": weekends},
        "mark": {"type": "rect", "color": QUIET, "opacity": 0.15},
        "encoding": {"x": field("from"), "x2": {"field": "to"}},
    }
    tint = color("layout", [*names.values(), rest], [*(ACCENT, BAD)[: len(names)], QUIET])
    tint["legend"]["columns"] = 1
    few = {"field": "layout", "equal": rest}
    lines = {
        "mark": {"type": "line"},
        "encoding": {
            "x": field("day", title="day of the test (shaded: weekends)"),
            "y": number("rate", "true click rate", True, scale={"domainMin": 0}),
            "color": tint,
            "detail": {"field": "arm"},
            "opacity": {"condition": {"test": few, "value": 0.35}, "value": 1},
            "size": {"condition": {"test": few, "value": 1}, "value": 3},
        },
    }
    wrong = {key: errors[key] for key in ("data", "height", "layer")}
    wrong["title"] = {"text": errors["title"]["text"], "fontSize": 13}
    return chart(
        "demo",
        "A two-week test in a world that moves",
        rows,
        summary=errors["description"],
        vconcat=[
            {"layer": [shade, lines], "width": WIDTH, "height": 260},
            wrong | {"width": WIDTH},
        ],
        resolve={"scale": {"color": "independent"}},
    )
