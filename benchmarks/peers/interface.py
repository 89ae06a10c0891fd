"""What every tool of the comparison has to do: choose a variant, learn its reward, decide.

An adapter is a `Player`, made anew for every test, and a `Tool` that says how to make one.
Adapters import their library only when a player is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata, util

import numpy as np
from numpy.typing import NDArray

import steadyarm as sa


@dataclass(frozen=True, eq=False)
class Task:
    """What a tool is told before a test: the variants, how many visits, how many of them a day."""

    arms: sa.ArmSet
    budget: int
    visits_per_day: int
    seed: int


class Player(ABC):
    """One test, decided by one tool."""

    @abstractmethod
    def choose(self, t: int) -> int:
        """The variant that visit t is shown."""

    @abstractmethod
    def learn(self, arm: int, reward: float) -> None:
        """What came of it; always told before the next visit."""

    @abstractmethod
    def decide(self) -> int:
        """The variant that is best, after the last visit."""

    def sure(self) -> bool | None:
        """Whether it claims that this one is better than all others; None if it never claims."""
        return None


@dataclass(frozen=True)
class Tool:
    """A way to run tests.

    Attributes
    ----------
    key : on the command line
    make : a new player for a task
    module, package : what is imported, and the name it is installed by; None for what is here
    own_rule : False if the library names no winner: it is then judged by the best of three rules,
        what it ranks first, the highest mean and the variant shown most
    """

    key: str
    make: Callable[[Task], Player]
    module: str | None = None
    package: str | None = None
    own_rule: bool = True

    @property
    def installed(self) -> bool:
        """Whether it can run here."""
        return self.module is None or util.find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """Of the library, as installed."""
        if not self.installed:
            return "not installed"
        return "" if self.package is None else metadata.version(self.package)


def highest(values: Sequence[float] | NDArray[np.float64], rng: np.random.Generator) -> int:
    """The index of the largest value, ties broken at random; nan is the least of all.

    Examples
    --------
    >>> highest([0.1, float("nan"), 0.3], np.random.default_rng(0))
    2
    """
    found = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=-np.inf)
    return int(rng.choice(np.flatnonzero(found == found.max())))
