"""Small logs that the tests of health share."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from steadyarm.inference.health import LoggedSegment
from steadyarm.segments import Segment

ABC = ("A", "B", "C")


def logged(
    weights: list[float], counts: list[int], drawn: list[int] | None = None
) -> LoggedSegment:
    segment = Segment(np.array([weights]), np.array([sum(drawn or counts)]))
    return LoggedSegment(
        segment, np.array([counts]), drawn=None if drawn is None else np.array([drawn])
    )


def most_alarms(level: float, tests: int) -> int:
    """Exceeded with a probability of one in ten thousand if alarms come at their level."""
    return int(binom.isf(1e-4, tests, level))
