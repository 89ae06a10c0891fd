"""OpenSegment: the book of one live segment: positions handed out, sums of the rewards told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from steadyarm.segments import Order, Segment, SegmentStats, arms_between
from steadyarm.validation import check_choice, whole_number

__all__ = ["OpenSegment"]

BUFFER = 1024  # positions drawn ahead at a time


@dataclass(eq=False)
class OpenSegment:
    """A live segment of which rewards are still to come.

    Attributes
    ----------
    index : of the segment in its test
    carried_on : with an old allocation, until the rewards that it waits for have come
    superseded : carried on, and they have come; it only finishes its block
    handed : positions handed out
    waiting : of these, without a reward yet
    forgotten : (K,) of these, whose reward will never come
    ahead : arms of the positions drawn ahead
    """

    index: int
    segment: Segment
    stats: SegmentStats
    carried_on: bool = False
    superseded: bool = False
    handed: int = 0
    waiting: int = 0
    forgotten: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    ahead: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not len(self.forgotten):
            self.forgotten = np.zeros(self.stats.counts.shape[1], dtype=np.int64)

    @property
    def told(self) -> int:
        """Rewards told."""
        return int(self.stats.counts.sum())

    @property
    def exhausted(self) -> bool:
        """Whether every position has been handed out."""
        return self.handed >= int(self.segment.rounds[0])

    def next_arm(self, seed: int) -> int:
        """Hand out the next position."""
        rounds = int(self.segment.rounds[0])
        buffer = rounds if self.segment.order == "shuffled" else BUFFER
        position = self.handed % buffer
        if position == 0 or not len(self.ahead):
            first = self.handed - position
            last = min(first + buffer, rounds)
            self.ahead = arms_between(self.segment, seed, self.index, first, last)
        self.handed += 1
        self.waiting += 1
        return int(self.ahead[position])

    def add(self, arm: int, reward: float) -> None:
        """Count a reward."""
        assert self.stats.squares is not None
        self.stats.counts[0, arm] += 1
        self.stats.sums[0, arm] += reward
        self.stats.squares[0, arm] += reward * reward
        self.waiting -= 1

    def supersede(self) -> None:
        """Make way for a new allocation at the end of the block."""
        block = self.segment.block if self.segment.order == "blocks" else 1
        self.segment = self.segment.lasting(-(-self.handed // block) * block)
        self.superseded = True

    def forget(self, arm: int) -> None:
        """Count a reward that will never come."""
        self.forgotten[arm] += 1
        self.waiting -= 1

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists only."""
        assert self.stats.squares is not None
        reference = self.segment.reference
        return {
            "index": self.index,
            "weights": self.segment.weights[0].tolist(),
            "rounds": int(self.segment.rounds[0]),
            "order": self.segment.order,
            "block": self.segment.block,
            "reference": None if reference is None else reference.tolist(),
            "carried_on": self.carried_on,
            "superseded": self.superseded,
            "handed": self.handed,
            "waiting": self.waiting,
            "forgotten": self.forgotten.tolist(),
            "counts": self.stats.counts[0].tolist(),
            "sums": self.stats.sums[0].tolist(),
            "squares": self.stats.squares[0].tolist(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The segment that `to_dict` wrote."""
        check_choice(data["order"], "order", get_args(Order))
        index, rounds, handed, waiting = (
            whole_number(data[name], name) for name in ("index", "rounds", "handed", "waiting")
        )
        reference = data["reference"]
        segment = Segment(
            np.array([data["weights"]]),
            np.array([rounds]),
            data["order"],
            whole_number(data["block"], "block", least=1),
            None if reference is None else np.array(reference, dtype=np.float64),
        )
        stats = SegmentStats(
            np.array([data["counts"]], dtype=np.int64),
            np.array([data["sums"]], dtype=np.float64),
            np.array([data["squares"]], dtype=np.float64),
        )
        forgotten = np.array(data["forgotten"], dtype=np.int64)
        carried_on, superseded = bool(data["carried_on"]), bool(data["superseded"])
        return cls(index, segment, stats, carried_on, superseded, handed, waiting, forgotten)
