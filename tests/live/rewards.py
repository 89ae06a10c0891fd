"""Variants and rewards that the tests of sessions share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import steadyarm as sa

ARMS = sa.ArmSet.factorial({"headline": ["short", "long"], "image": ["cat", "dog", "none"]})
VALUES = np.linspace(0.2, 0.7, ARMS.size)


def reward(a: Any) -> float:
    """A deterministic, jagged reward that depends on the assignment alone."""
    return float(VALUES[a.arm] + 0.3 * math.sin(7 * a.number))
