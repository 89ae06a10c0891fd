"""River's bandits, updated after every visit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.peers.interface import Player, Task, Tool

__all__ = ["TOOLS"]


class Bandit(Player):
    """One of `river.bandit`'s policies."""

    def __init__(self, build: Callable[[Any, int], Any], task: Task) -> None:
        self._policy = build(import_module("river.bandit"), task.seed)
        self._arms = list(range(task.arms.size))

    def choose(self, t: int) -> int:
        return int(self._policy.pull(self._arms))

    def learn(self, arm: int, reward: float) -> None:
        self._policy.update(arm, reward)

    def decide(self) -> int:
        return int(self._policy.ranking[0])


def _thompson(bandit: Any, seed: int) -> Any:
    return bandit.ThompsonSampling(import_module("river.proba").Beta(), seed=seed)


BUILDERS: dict[str, Callable[[Any, int], Any]] = {
    "thompson": _thompson,
    "ucb1": lambda bandit, seed: bandit.UCB(delta=1, seed=seed),
    "exp3": lambda bandit, seed: bandit.Exp3(gamma=0.1, seed=seed),
    "epsilon-greedy": lambda bandit, seed: bandit.EpsilonGreedy(epsilon=0.1, burn_in=1, seed=seed),
}
TOOLS = tuple(
    Tool(f"river-{key}", partial(Bandit, build), module="river", package="river", own_rule=False)
    for key, build in BUILDERS.items()
)
