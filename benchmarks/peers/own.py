"""SteadyArm, as its users run it: `ask` and `tell` of a `Session`, visit by visit."""

from __future__ import annotations

from functools import partial
from typing import Any

import steadyarm as sa
from benchmarks.peers.interface import Player, Task, Tool

__all__ = ["TOOLS"]


class SessionPlayer(Player):
    """A session of one of SteadyArm's policies."""

    def __init__(self, policy: sa.Policy[Any], task: Task) -> None:
        self._session = sa.Session(policy, task.arms, task.budget, seed=task.seed)
        self._shown: sa.Assignment | None = None
        self._verdict: sa.Verdict | None = None

    def choose(self, t: int) -> int:
        self._shown = self._session.ask()
        return self._shown.arm

    def learn(self, arm: int, reward: float) -> None:
        assert self._shown is not None
        self._session.tell(self._shown, reward)

    def decide(self) -> int:
        self._verdict = self._session.recommend()
        return self._verdict.arm

    def sure(self) -> bool:
        assert self._verdict is not None
        return self._verdict.sure


TOOLS = tuple(
    Tool(key, partial(SessionPlayer, policy))
    for key, policy in (("steady", sa.Steady()), ("p1-rage", sa.P1RAGE()), ("g-bai", sa.GBAI()))
)
