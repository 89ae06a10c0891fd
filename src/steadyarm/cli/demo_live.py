"""The demo's live test: two weeks of visitors in an SQLite file, in a few seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heappop, heappush
from pathlib import Path

import numpy as np

import steadyarm as sa
from steadyarm.replay import Replay
from steadyarm.storages import Storage, open_storage

__all__ = ["NAME", "Stored", "run_stored", "storage_url"]

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
    repeated : that were told twice
    overtaken : that came after the reward of a later visitor
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
    """Ask for every visitor, tell what they did, now or hours later; then judge and replay.

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
        progress(len(visits))
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
        """Tell what has come by now."""
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
