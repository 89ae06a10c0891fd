"""River's bandits, updated after every visit."""

from __future__ import annotations

from collections.abc import Callable
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


def _ucb(bandit: Any, seed: int) -> Any:
    return bandit.UCB(delta=1, seed=seed)


def _exp3(bandit: Any, seed: int) -> Any:
    return bandit.Exp3(gamma=0.1, seed=seed)


def _greedy(bandit: Any, seed: int) -> Any:
    return bandit.EpsilonGreedy(epsilon=0.1, burn_in=1, seed=seed)


def _tool(key: str, title: str, settings: str, build: Callable[[Any, int], Any]) -> Tool:
    def make(task: Task) -> Player:
        return Bandit(build, task)

    return Tool(
        f"river-{key}",
        f"river, {title}",
        settings,
        make,
        module="river",
        package="river",
        own_rule=False,
    )


TOOLS = (
    _tool("thompson", "Thompson", "`ThompsonSampling(Beta())`: a uniform prior", _thompson),
    _tool("ucb1", "UCB1", "`UCB(delta=1)`: UCB1, as its documentation says", _ucb),
    _tool("exp3", "EXP3", "`Exp3(gamma=0.1)`: it has no default", _exp3),
    _tool(
        "epsilon-greedy",
        "epsilon-greedy",
        "`EpsilonGreedy(epsilon=0.1, burn_in=1)`: it has no default",
        _greedy,
    ),
)
