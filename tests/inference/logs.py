"""Small logs that the tests of health share."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from steadyarm.inference.sampling_variance import LoggedSegment
from steadyarm.segments import Order, Segment

ABC = ("A", "B", "C")


def logged(
    weights: list[float],
    counts: list[int],
    order: Order = "iid",
    block: int = 1,
    rounds: int | None = None,
    positions: int | None = None,
) -> LoggedSegment:
    rounds = sum(counts) if rounds is None else rounds
    segment = Segment(np.array([weights]), np.array([rounds]), order, block)
    given = None if positions is None else np.array([positions])
    return LoggedSegment(segment, np.array([counts]), given)


def most_alarms(level: float, tests: int) -> int:
    """Exceeded with a probability of one in ten thousand if alarms come at their level."""
    return int(binom.isf(1e-4, tests, level))
