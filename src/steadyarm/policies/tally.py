"""What policies remember that estimate from plain sums per arm, unweighted.

For Sequential Halving, Adjacent-BAI, the Thompson policies and the planner's equal split.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.policies.base import State
from steadyarm.segments import Segment, SegmentStats

__all__ = ["TallyState", "empty_tally"]


@dataclass(frozen=True)
class TallyState(State):
    """Sums over the rounds played.

    Attributes
    ----------
    counts : (n, K) plays of each arm
    sums : (n, K) sum of its rewards
    squares : (n, K) sum of its squared rewards; None if squares were not recorded
    """

    counts: NDArray[np.int64]
    sums: NDArray[np.float64]
    squares: NDArray[np.float64] | None

    @property
    def tally(self) -> SegmentStats:
        """The sums as statistics."""
        return SegmentStats(self.counts, self.sums, self.squares)

    def after(self, segment: Segment, stats: SegmentStats) -> Self:
        """The state with a segment's sums added."""
        total = self.tally + stats
        return replace(
            self,
            played=self.played + segment.rounds,
            counts=total.counts,
            sums=total.sums,
            squares=total.squares,
        )


def empty_tally(trials: int, arms: int) -> dict[str, Any]:
    """Fields of `TallyState` before the first round."""
    shape = (trials, arms)
    return {
        "counts": np.zeros(shape, dtype=np.int64),
        "sums": np.zeros(shape),
        "squares": np.zeros(shape),
    }
