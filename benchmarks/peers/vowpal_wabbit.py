"""Vowpal Wabbit's contextual bandits; a layout is described by its parts and pairs of them."""

from __future__ import annotations

from bisect import bisect_right
from importlib import import_module
from itertools import accumulate
from typing import Any

import numpy as np

from benchmarks.peers.interface import Player, Task, Tool

__all__ = ["TOOLS"]


class ContextualBandit(Player):
    """`--cb_explore_adf`: it gives probabilities, we draw, it learns the cost."""

    def __init__(self, options: str, task: Task) -> None:
        self._actions = [f"|f {name.replace(',', '')}" for name in task.arms.names]
        pairs = " -q ff" if " " in self._actions[0][3:] else ""
        workspace = import_module("vowpalwabbit").Workspace
        self._vw: Any = workspace(f"--cb_explore_adf{options}{pairs} --quiet")
        self._draws = np.random.default_rng(task.seed).random(task.budget).tolist()
        self._probability = 1.0

    def choose(self, t: int) -> int:
        shares: list[float] = self._vw.predict(self._actions)
        reached = list(accumulate(shares))
        arm = bisect_right(reached, self._draws[t] * reached[-1])
        self._probability = shares[arm]
        return arm

    def learn(self, arm: int, reward: float) -> None:
        shown = list(self._actions)
        shown[arm] = f"{arm}:{-reward}:{self._probability} {shown[arm]}"
        self._vw.learn(shown)

    def decide(self) -> int:
        shares: list[float] = self._vw.predict(self._actions)
        self._vw.finish()
        return int(np.argmax(shares))


def _tool(key: str, title: str, options: str) -> Tool:
    def make(task: Task) -> Player:
        return ContextualBandit(options, task)

    return Tool(
        key,
        f"Vowpal Wabbit, {title}",
        f"`--cb_explore_adf{options}`, defaults; the cost is minus the click; layouts are "
        "described by their parts, with `-q ff`",
        make,
        module="vowpalwabbit",
        package="vowpalwabbit",
        share=1 / 3,
        own_rule=False,
    )


TOOLS = (
    _tool("vw-epsilon-greedy", "epsilon-greedy", ""),
    _tool("vw-squarecb", "SquareCB", " --squarecb"),
)
