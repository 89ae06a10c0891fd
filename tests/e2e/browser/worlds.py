"""Tests with traffic for the pages to show: made in seconds, the same every time.

Time is simulated and ends at a given moment, so that a service started then finds tests that
people have just been using. What variants earn depends on the time since the start only, and thus
not on the day on which this runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import steadyarm as sa
from steadyarm.storages import open_storage
from steadyarm.storages.storage import Storage
from tests.e2e.browser.names import HOSTILE_EXPERIMENT, HOSTILE_FACTORS, HOSTILE_NAMES, LONG_NAME
from tests.live.worlds import Clock
from tests.storages.filling import fill as store

__all__ = ["WORLDS", "World", "create_worlds", "fill"]

DAY, PERIOD = 86_400.0, 7200.0
Rate = Callable[[int, float], float]  # of a variant, by its index and the days since the start


@dataclass(frozen=True)
class World:
    """A test and the people who came.

    Attributes
    ----------
    visits : variants assigned
    rate : probability of a reward of 1, of a variant on a day
    reported : share of rewards that come, by variant; late: share of those that come too late
    after : what is done in the end
    quiet : days without visits in the end, in which windows for rewards close
    """

    name: str
    arms: sa.ArmSet
    budget: int
    visits: int = 0
    days: float = 3.0
    rate: Rate = lambda arm, day: 0.1
    policy: sa.Policy[Any] = field(default_factory=sa.Steady)
    settings: dict[str, Any] = field(default_factory=dict)
    reported: Callable[[int], float] = lambda arm: 0.98
    late: float = 0.01
    after: tuple[Literal["pause", "stop", "archive"], ...] = ()
    start: bool = True
    quiet: float = 0.0


def _named(*names: str) -> sa.ArmSet:
    return sa.ArmSet.one_hot(names)


def _layouts(arm: int, day: float) -> float:
    """Bits of the index are the levels of four factors; at weekends pictures please others."""
    headline, picture, button, columns = (arm >> 3) & 1, (arm >> 2) & 1, (arm >> 1) & 1, arm & 1
    weekend = day % 7 >= 5
    rate = 0.12 + 0.03 * (1 - headline) + 0.02 * button + 0.01 * columns
    rate += (-0.03 if weekend else 0.04) * (1 - picture) * (1 - headline)
    return rate + (0.06 if weekend else 0.0) + 0.004 * day


LAYOUTS = sa.ArmSet.factorial(
    {
        "headline": ["short", "long"],
        "picture": ["dog", "cat"],
        "button": ["buy now", "add to cart"],
        "columns": ["one", "two"],
    }
)
HUNDREDS = _named(*(f"headline {number:03}" for number in range(1, 201)))

WORLDS: tuple[World, ...] = (
    World(
        "landing-page",
        LAYOUTS,
        10_000,
        6200,
        14,
        _layouts,
        settings={"reward_window": "12h", "missing": "drop", "reward_range": (0.0, 1.0)},
    ),
    World("button-colour", _named("green", "blue"), 4000, 1400, 3, lambda a, d: 0.2 - 0.06 * a),
    World("headlines", HUNDREDS, 60_000, 6000, 5, lambda a, d: 0.02 + 0.12 * (a == 41)),
    World("not-started", _named("old", "new"), 5000, start=False),
    World("no-visitors-yet", _named("old", "new"), 5000),
    World("one-reward", _named("old", "new"), 5000, 1, reported=lambda arm: 1.0, late=0.0),
    World(
        "finished",
        _named("plain", "with photo", "with video"),
        3000,
        3000,
        6,
        lambda a, d: (0.10, 0.16, 0.25)[a],
        after=("stop",),
    ),
    World(
        "peace",
        _named("A", "B", "C", "D"),
        4000,
        2500,
        4,
        lambda a, d: 0.1 + 0.05 * a,
        policy=sa.Peace(),
        reported=lambda arm: 1.0,
    ),
    World(
        "broken-tracking",
        _named("old", "new"),
        4000,
        1200,
        2,
        lambda a, d: 0.3,
        settings={"reward_window": "2h", "missing": "drop"},
        reported=lambda arm: 0.97 if arm == 0 else 0.4,
        after=("pause",),
    ),
    World("hostile-names", _named(*HOSTILE_NAMES), 8000, 2000, 3, lambda a, d: 0.1 + 0.04 * a),
    World(
        "hostile-factors",
        sa.ArmSet.factorial(HOSTILE_FACTORS),
        4000,
        1000,
        2,
        lambda a, d: 0.2 + 0.1 * (a & 1),
    ),
    World(HOSTILE_EXPERIMENT, _named("old", "new"), 1000, 200, 1),
    World(LONG_NAME, _named("old", "new"), 1000, 100, 1, after=("stop", "archive")),
    World(
        "checkout",
        _named("today", "guest checkout", "one page", "long form"),
        6000,
        6000,
        7,
        lambda a, d: (0.10, 0.18, 0.11, 0.05)[a],
        settings={"control": "today", "reward_range": (0.0, 1.0)},
        reported=lambda arm: 1.0,
        late=0.0,
        quiet=2.0,
    ),
)


def create_worlds(url: str, end: float, wanted: Iterable[str] | None = None) -> None:
    """Make them all, or those of these names, in the storage at an address; they end at `end`."""
    names = {world.name for world in WORLDS} if wanted is None else set(wanted)
    with closing(open_storage(url)) as storage:
        for number, world in enumerate(WORLDS):
            if world.name in names:
                fill(world, storage, end, seed=number)


def fill(world: World, storage: Storage, end: float, seed: int) -> None:
    """Live through a test in memory, then take it into the storage under its name.

    The storage does not check names as `create_experiment` does: a hostile one gets in.
    """
    clock = Clock(end - world.days * DAY)
    given: dict[str, Any] = {"missing": "drop", "seed": seed, "clock": clock, "start": world.start}
    if not world.policy.waits:
        given["reward_window"] = "12h"  # without one nothing would be judged where some get lost
    live = sa.create_experiment(
        "test",
        world.arms,
        world.policy,
        world.budget,
        "memory",
        **(given | world.settings),
    )
    if world.visits:
        _visit(world, live, clock, np.random.default_rng([seed, 5]))
    clock.now = end
    for step in world.after:
        getattr(live, step)()
    snapshot = live.storage.snapshot(live.key, everything=True)
    store(storage, world.name, snapshot, [live.storage.log(live.key, most=1_000_000)])


def _visit(world: World, live: sa.Experiment, clock: Clock, rng: np.random.Generator) -> None:
    """People come in periods of two hours, more by day than by night; rewards a period later."""
    start, periods = clock.now, max(1, round((world.days - world.quiet) * DAY / PERIOD) - 1)
    rhythm = 1.2 + np.sin(2 * np.pi * np.arange(periods) * PERIOD / DAY)
    ends = np.round(world.visits * np.cumsum(rhythm) / rhythm.sum()).astype(int)
    due: list[tuple[float, str, float]] = []
    visitor = 0
    for period, until in enumerate(ends):
        while visitor < until:  # a policy that waits for rewards assigns less than a period's
            clock.now = start + period * PERIOD + 3600 * (visitor % 97) / 97
            due = _report(live, clock, due, everything=live.policy.waits)
            before, step = visitor, min(until - visitor, 300)
            for answer in live.ask_many([f"visitor {visitor + i}" for i in range(step)]):
                if isinstance(answer, sa.SteadyArmError):
                    break
                visitor += 1
                reward = float(rng.random() < world.rate(answer.arm, period * PERIOD / DAY))
                delay = rng.exponential(1800.0) if rng.random() >= world.late else 2 * DAY
                if rng.random() < world.reported(answer.arm):
                    due.append((clock.now + delay, answer.id, reward))
            assert visitor > before or due, f"{world.name}: nothing is assigned, nothing is due"
    clock.now = start + periods * PERIOD
    _report(live, clock, due, everything="stop" in world.after or world.visits == 1)


def _report(
    live: sa.Experiment, clock: Clock, due: list[tuple[float, str, float]], everything: bool
) -> list[tuple[float, str, float]]:
    """Report the rewards that are due; those that are too late are refused, as they should be."""
    now = [(id_, reward) for time, id_, reward in due if everything or time <= clock.now]
    if now:
        live.tell_many(now)
    return [] if everything else [one for one in due if one[0] > clock.now]
