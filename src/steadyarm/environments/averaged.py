"""Averaged: what the worlds here share. The best arm is that of the time-averaged means.

Base of `Environment`, `ParametricEnvironment` and `Replay`; it draws nothing.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from steadyarm.segments import Direction

__all__ = ["Averaged", "hash_of"]


class Averaged(ABC):
    """A world whose arms are compared by their means over all rounds."""

    direction: Direction

    @property
    @abstractmethod
    def average(self) -> NDArray[np.float64]:
        """(K,) time-averaged mean of every arm: what a test is to compare."""

    @cached_property
    def _best(self) -> tuple[int, float]:
        values = self.average if self.direction == "maximize" else -self.average
        second, first = np.sort(values)[-2:]
        return int(values.argmax()), float(first - second)

    @property
    def best_arm(self) -> int:
        """The arm with the best time-averaged mean."""
        return self._best[0]

    @property
    def gap(self) -> float:
        """By how much the best arm beats the second best, on average over time."""
        return self._best[1]


def hash_of(text: str, *tables: NDArray[np.float64] | NDArray[np.int64]) -> str:
    """Of all that makes a world: its settings as text, then its tables."""
    digest = hashlib.sha256(text.encode())
    for table in tables:
        digest.update(table.tobytes())
    return digest.hexdigest()
