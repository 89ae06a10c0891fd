"""Playing: every tool decides the same tests, on the same potential rewards.

A trial is a table of what each variant would bring at each visit (`potential_rewards`); a tool sees
the entries of the variants that it shows. Time is that of the processor, not of the clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache, reduce
from operator import add

import numpy as np

import steadyarm as sa
from benchmarks.peers import equal_split, growthbook, own, river_bandits
from benchmarks.peers.interface import Task, Tool, highest
from benchmarks.peers.worlds import WORLDS, potential_rewards, seeds
from steadyarm.simulation.simulate import run_in_parallel

TOOLS: dict[str, Tool] = {
    tool.key: tool
    for adapter in (own, equal_split, growthbook, river_bandits)
    for tool in adapter.TOOLS
}
RULES = ("own", "best mean", "most shown")
CHUNK = 25  # trials that a process plays in one go
WARMING = 10  # visits a day of a test that warms up


@dataclass(frozen=True)
class Cell:
    """What one tool did in the trials of one world; cells of other trials can be added.

    Attributes
    ----------
    trials, visits : how many were played, in all
    wrong : errors by each of `RULES`; tools that name a winner are judged by the first
    sure, sure_wrong : trials in which it claimed a winner, and claimed a wrong one; -1 for tools
        that claim nothing
    visit_seconds, verdict_seconds : time of the processor for all visits, and for all verdicts
    """

    trials: int
    visits: int
    wrong: tuple[int, ...]
    sure: int
    sure_wrong: int
    visit_seconds: float
    verdict_seconds: float

    def __add__(self, other: Cell) -> Cell:
        claims = self.sure >= 0
        return Cell(
            trials=self.trials + other.trials,
            visits=self.visits + other.visits,
            wrong=tuple(a + b for a, b in zip(self.wrong, other.wrong, strict=True)),
            sure=self.sure + other.sure if claims else -1,
            sure_wrong=self.sure_wrong + other.sure_wrong if claims else -1,
            visit_seconds=self.visit_seconds + other.visit_seconds,
            verdict_seconds=self.verdict_seconds + other.verdict_seconds,
        )

    def errors(self, tool: Tool) -> tuple[int, str]:
        """Wrong decisions, and by which rule: the best one for tools that name no winner."""
        if tool.own_rule:
            return self.wrong[0], RULES[0]
        least = min(self.wrong)
        return least, RULES[self.wrong.index(least)]


@dataclass(frozen=True)
class Contest:
    """What is played: tools, worlds, trials, visits a day, seed."""

    tools: tuple[str, ...]
    worlds: tuple[str, ...]
    trials: int
    visits_per_day: int
    seed: int


@cache
def environment_of(world: str, visits_per_day: int) -> sa.Environment:
    """The environment of a world, built once in each process."""
    return WORLDS[world](visits_per_day)


def play(tool: Tool, world: str, trial: int, visits_per_day: int, seed: int) -> Cell:
    """One test, decided by one tool."""
    environment = environment_of(world, visits_per_day)
    rewards = potential_rewards(world, environment, seed, trial)
    T, K = rewards.shape
    own_seed = seeds(world, seed, trial)
    player = tool.make(Task(environment.arms, T, visits_per_day, own_seed))
    table: list[list[float]] = rewards.tolist()
    shown = [0] * T
    began = time.process_time()
    for t, row in enumerate(table):
        arm = player.choose(t)
        player.learn(arm, row[arm])
        shown[t] = arm
    ended = time.process_time()
    decided = player.decide()
    after = time.process_time()
    counts = np.bincount(shown, minlength=K)
    sums = np.bincount(shown, weights=rewards[np.arange(T), shown], minlength=K)
    ties = np.random.default_rng(own_seed)
    with np.errstate(invalid="ignore"):
        means = sums / counts
    choices = (decided, highest(means, ties), highest(counts.astype(np.float64), ties))
    best = environment.best_arm
    sure = player.sure()
    return Cell(
        trials=1,
        visits=T,
        wrong=tuple(int(choice != best) for choice in choices),
        sure=-1 if sure is None else int(sure),
        sure_wrong=-1 if sure is None else int(sure and decided != best),
        visit_seconds=ended - began,
        verdict_seconds=after - ended,
    )


def contest(plan: Contest, jobs: int) -> dict[tuple[str, str], Cell | str]:
    """Play all; by tool and world a cell, or the reason why there is none."""
    calls = [
        ((tool, world), plan, tool, world, range(first, min(plan.trials, first + CHUNK)))
        for tool in plan.tools
        for world in plan.worlds
        for first in range(0, plan.trials, CHUNK)
    ]
    total: dict[tuple[str, str], Cell | str] = {}
    for key, cell in run_in_parallel(_play_part, calls, jobs, "processes"):
        before = total.get(key)
        if isinstance(before, Cell) and isinstance(cell, Cell):
            total[key] = before + cell
        elif not isinstance(before, str):
            total[key] = cell
    return total


@cache
def _warm(tool: str, world: str) -> None:
    """A small test that does not count: libraries are imported, numerical code is loaded."""
    play(TOOLS[tool], world, 0, WARMING, 0)


def _play_part(plan: Contest, tool: str, world: str, trials: range) -> Cell | str:
    """The cell of some trials, or the reason why there is none."""
    if not TOOLS[tool].installed:
        return "not installed"
    try:
        _warm(tool, world)
        cells = (play(TOOLS[tool], world, t, plan.visits_per_day, plan.seed) for t in trials)
        return reduce(add, cells)
    except Exception as error:  # a library that breaks must not take the others' results along
        return f"failed: {type(error).__name__}: {str(error)[:200]}"
