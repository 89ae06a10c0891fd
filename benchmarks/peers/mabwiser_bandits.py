"""MABWiser's bandits, told every reward before the next visit (`partial_fit`)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.peers.interface import Player, Task, Tool

__all__ = ["TOOLS"]


class Bandit(Player):
    """`MAB` with one of its learning policies."""

    def __init__(self, policy: str, task: Task) -> None:
        library = import_module("mabwiser.mab")
        learning = getattr(library.LearningPolicy, policy)()
        self._arms = list(range(task.arms.size))
        self._mab: Any = library.MAB(self._arms, learning, seed=task.seed)
        self._fitted = False

    def choose(self, t: int) -> int:
        # It must have seen something before it predicts, so the first visits are one of each.
        return int(self._mab.predict()) if t >= len(self._arms) else self._arms[t]

    def learn(self, arm: int, reward: float) -> None:
        if self._fitted:
            self._mab.partial_fit([arm], [reward])
        else:
            self._mab.fit([arm], [reward])
            self._fitted = True

    def decide(self) -> int:
        expected: dict[int, float] = self._mab.predict_expectations()
        return max(expected, key=expected.__getitem__)


def _tool(policy: str, title: str, settings: str) -> Tool:
    def make(task: Task) -> Player:
        return Bandit(policy, task)

    return Tool(
        f"mabwiser-{title.lower()}",
        f"MABWiser, {title}",
        f"`LearningPolicy.{settings}; one visit of each variant first; `partial_fit` after every "
        "visit",
        make,
        module="mabwiser",
        package="mabwiser",
        share=1 / 3,
        own_rule=False,
    )


TOOLS = (
    _tool("ThompsonSampling", "Thompson", "ThompsonSampling()`, clicks as they are"),
    _tool("UCB1", "UCB1", "UCB1(alpha=1)`, the default"),
    _tool("EpsilonGreedy", "epsilon-greedy", "EpsilonGreedy(epsilon=0.1)`, the default"),
)
