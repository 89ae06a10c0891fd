"""What tests of live experiments and sessions share."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import steadyarm as sa
from steadyarm.storages import open_storage
from steadyarm.storages.records import SegmentRecord, Snapshot
from steadyarm.storages.storage import segment_row

START = 1_780_000_000.0
DAY = 86_400.0
ARMS = sa.ArmSet.factorial({"headline": ["short", "long"], "image": ["cat", "dog", "none"]})
VALUES = np.linspace(0.2, 0.7, ARMS.size)


class Clock:
    """Seconds since 1970 that pass when they are told to."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def arms_of(count: int) -> sa.ArmSet:
    return sa.ArmSet.one_hot([f"arm {k}" for k in range(count)])


def create(**settings: Any) -> sa.Experiment:
    """An experiment of three variants in memory, if nothing else is said."""
    given: dict[str, Any] = {
        "name": "test",
        "arms": ["A", "B", "C"],
        "policy": sa.Steady(),
        "budget": 100,
        "seed": 5,
        "missing": "drop",
    } | settings
    storage = given.pop("storage", None) or open_storage("memory")
    return sa.create_experiment(storage=storage, **given)


def records_of(live: sa.Experiment) -> list[SegmentRecord]:
    return [record for record, _ in live.storage.snapshot(live.key, everything=True).segments]


def check_segments(one: Snapshot, other: Snapshot) -> None:
    """Both have the same segments with the same sums."""
    for (record, tally), (stored, counted) in zip(one.segments, other.segments, strict=True):
        assert segment_row(1, record) == segment_row(1, stored)
        assert tally == counted


Report = Callable[[sa.LiveAssignment], float | dict[str, float] | None]
"""What is reported of a visit; None for nothing."""


class Shop:
    """A test with a control, and visitors that come in groups while its clock passes."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        usual = {"name": "shop", "control": "A", "seed": 1, "clock": self.clock}
        self.test = create(**usual | settings)
        self.visits = 0
        self.shown: list[str] = []
        self._coming: list[tuple[float, sa.LiveAssignment]] = []

    def visit(
        self,
        visits: int,
        report: Report = lambda _: None,
        every: float = 60.0,
        group: int = 10,
        known: Callable[[int], dict[str, str] | None] = lambda _: None,
    ) -> int:
        """Visits with their reports until the test ends; how many there were.

        every : seconds between two visits; known : attributes of a visitor, by number
        """
        before = self.visits
        for first in range(0, visits, group):
            self._pass(group * every)
            numbers = range(self.visits, self.visits + min(group, visits - first))
            units = [f"visitor {i}" for i in numbers]
            answers: Any = self.test.ask_many(units, [known(i) for i in numbers])
            inside = [shown for shown in answers if shown.in_test]
            self.visits += len(inside)
            self.shown += [shown.name for shown in inside]
            reports = [(shown, report(shown)) for shown in inside]
            told = self.test.tell_many([pair for pair in reports if pair[1] is not None])
            assert set(told) <= {"stored"}
            if len(inside) < len(units):
                break
        return self.visits - before

    def later(self, shown: sa.LiveAssignment, seconds: float) -> None:
        """A reward of 1 that comes so many seconds after now."""
        self._coming.append((self.clock.now + seconds, shown))

    def wait(self, days: float) -> None:
        """Let time pass; what comes by then is told at last."""
        self._pass(days * DAY)
        self.test.refresh()

    def _pass(self, seconds: float) -> None:
        self.clock.pass_(seconds)
        if due := [shown for when, shown in self._coming if when <= self.clock.now]:
            self.test.tell_many([(shown, 1.0) for shown in due])
            self._coming = [each for each in self._coming if each[0] > self.clock.now]


def reward(a: Any) -> float:
    """A deterministic, jagged reward that depends on the assignment alone."""
    return float(VALUES[a.arm] + 0.3 * math.sin(7 * a.number))


def play(
    session: sa.Session, reward: Callable[[Any], float] = reward, rounds: int = 10**9
) -> sa.Session:
    """The session, played to its end with immediate rewards, or for so many rounds."""
    with suppress(sa.BudgetSpentError):
        for _ in range(rounds):
            a = session.ask()
            session.tell(a, reward(a))
    return session


def play_both(
    policy: Any, arms: sa.ArmSet, budget: int, delay: int, mixed: bool = False, **more: Any
) -> tuple[sa.Session, sa.Experiment, list[int], type[Exception] | None]:
    """The same test as a session and stored, each reward `delay` assignments late.

    mixed : rewards come in any order
    Also the arms that both assigned, and the error with which both ended.
    """
    session = sa.Session(policy, arms, budget, seed=3, **more)
    live = create(arms=arms, policy=policy, budget=budget, seed=3, after="refuse", **more)
    late, played, ended = [], list[int](), None
    rng = np.random.default_rng(0)
    for i in range(budget + 1):
        try:
            mine = session.ask()
        except sa.SteadyArmError as error:
            ended = type(error)
            with pytest.raises(ended):
                live.ask(f"u{i}")
            break
        stored = live.ask(f"u{i}")
        assert (stored.arm, stored.probability) == (mine.arm, mine.probability)
        played.append(mine.arm)
        late.append((mine, stored))
        if len(late) > delay:
            first, second = late.pop(int(rng.integers(len(late))) if mixed else 0)
            gain = float(rng.random() < 0.2 + 0.1 * first.arm)
            session.tell(first, gain)
            live.tell(second, gain)
    return session, live, played, ended
