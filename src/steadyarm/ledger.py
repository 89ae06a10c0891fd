"""OpenSegment: the book of one live segment: positions handed out, sums of the rewards told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from steadyarm.policies import Policy
from steadyarm.segments import Order, Segment, SegmentStats, columns_between
from steadyarm.validation import check_choice, whole_number

__all__ = ["OpenSegment", "part_of", "why_it_waits"]

BUFFER = 1024  # positions drawn ahead at a time
PIECES, LEAST_PART = 60, 10  # a live segment is cut into parts this short, to see drift


@dataclass(eq=False)
class OpenSegment:
    """A live segment: what was handed out, and what has come of it.

    Numbers by arm have the segment's columns, m of them.

    Attributes
    ----------
    index : of the segment in its test
    carried_on : with an old allocation, until the rewards that it waits for have come
    superseded : carried on, and they have come; it only finishes its block
    observed : its sums were handed to the policy
    handed : the next position to hand out
    assigned : (m,) how often each arm was handed out
    forgotten : (m,) of these, whose reward will never come
    excluded : (m,) assignments that were excluded and are counted nowhere here, not in `assigned`
    zeros : rewards among the counted ones that never came, since what is missing counts as zero
    last : time of the last assignment, in microseconds since 1970; None without a clock
    ahead : columns of the positions drawn ahead
    """

    index: int
    segment: Segment
    stats: SegmentStats
    carried_on: bool = False
    superseded: bool = False
    observed: bool = False
    handed: int = 0
    assigned: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    forgotten: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    excluded: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    zeros: int = 0
    last: int | None = None
    ahead: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        columns = self.stats.counts.shape[1]
        if not len(self.assigned):
            self.assigned = np.zeros(columns, dtype=np.int64)
        if not len(self.forgotten):
            self.forgotten = np.zeros(columns, dtype=np.int64)
        if not len(self.excluded):
            self.excluded = np.zeros(columns, dtype=np.int64)

    @property
    def told(self) -> int:
        """Rewards told."""
        return int(self.stats.counts.sum())

    @property
    def missing(self) -> NDArray[np.int64]:
        """(m,) assignments without a reward: given up, or it may still come."""
        without: NDArray[np.int64] = self.assigned - self.stats.counts[0]
        return without

    @property
    def waiting(self) -> int:
        """Assignments whose reward may still come."""
        return int((self.missing - self.forgotten).sum())

    @property
    def exhausted(self) -> bool:
        """Whether every position has been handed out."""
        return self.handed >= int(self.segment.rounds[0])

    @property
    def complete(self) -> bool:
        """Whether every position was assigned, and every reward is in or given up."""
        return self.exhausted and not self.waiting

    def next_arm(self, seed: int) -> tuple[int, float]:
        """Hand out the next position: its arm and probability."""
        rounds = int(self.segment.rounds[0])
        buffer = rounds if self.segment.order == "shuffled" else BUFFER
        position = self.handed % buffer
        if position == 0 or not len(self.ahead):
            first = self.handed - position
            last = min(first + buffer, rounds)
            self.ahead = columns_between(self.segment, seed, self.index, first, last)
        column = int(self.ahead[position])
        self.handed += 1
        self.assigned[column] += 1
        return self.segment.arm_at(column), float(self.segment.weights[0, column])

    def add(self, arm: int, reward: float) -> None:
        """Count a reward."""
        assert self.stats.squares is not None
        column = self.segment.column_of(arm)
        self.stats.counts[0, column] += 1
        self.stats.sums[0, column] += reward
        self.stats.squares[0, column] += reward * reward

    def supersede(self) -> None:
        """Make way for a new allocation at the end of the block."""
        block = self.segment.block if self.segment.order == "blocks" else 1
        end = -(-max(self.handed, 1) // block) * block
        self.segment = self.segment.lasting(min(int(self.segment.rounds[0]), end))
        self.superseded = True

    def forget(self, arm: int) -> None:
        """Count a reward that will never come."""
        self.forgotten[self.segment.column_of(arm)] += 1

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists only."""
        assert self.stats.squares is not None
        reference, arms = self.segment.reference, self.segment.arms
        return {
            "index": self.index,
            "arms": None if arms is None else arms.tolist(),
            "weights": self.segment.weights[0].tolist(),
            "rounds": int(self.segment.rounds[0]),
            "order": self.segment.order,
            "block": self.segment.block,
            "reference": None if reference is None else reference.tolist(),
            "carried_on": self.carried_on,
            "superseded": self.superseded,
            "handed": self.handed,
            "assigned": self.assigned.tolist(),
            "forgotten": self.forgotten.tolist(),
            "counts": self.stats.counts[0].tolist(),
            "sums": self.stats.sums[0].tolist(),
            "squares": self.stats.squares[0].tolist(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], observed: bool = False) -> Self:
        """The segment that `to_dict` wrote; whether it was observed is for its keeper to know."""
        check_choice(data["order"], "order", get_args(Order))
        index, rounds, handed = (
            whole_number(data[name], name) for name in ("index", "rounds", "handed")
        )
        reference, arms = data["reference"], data.get("arms")
        segment = Segment(
            np.array([data["weights"]]),
            np.array([rounds]),
            data["order"],
            whole_number(data["block"], "block", least=1),
            None if reference is None else np.array(reference, dtype=np.float64),
            None
            if arms is None
            else np.array([whole_number(arm, "an arm") for arm in arms], dtype=np.int64),
        )
        stats = SegmentStats(
            np.array([data["counts"]], dtype=np.int64),
            np.array([data["sums"]], dtype=np.float64),
            np.array([data["squares"]], dtype=np.float64),
        )
        return cls(
            index,
            segment,
            stats,
            carried_on=bool(data["carried_on"]),
            superseded=bool(data["superseded"]),
            observed=observed,
            handed=handed,
            assigned=np.array(data["assigned"], dtype=np.int64),
            forgotten=np.array(data["forgotten"], dtype=np.int64),
        )


def part_of(segment: Segment, budget: int) -> Segment:
    """The first of equal parts of a long segment, in whole blocks: their sums show drift.

    A shuffled segment stays whole, since its parts would not have its exact numbers of plays.
    """
    if segment.order == "shuffled":
        return segment
    block = segment.block if segment.order == "blocks" else 1
    most = max(1, round(max(LEAST_PART, budget / PIECES) / block))
    blocks = -(-int(segment.rounds[0]) // block)
    parts = -(-blocks // most)
    return segment.lasting(min(-(-blocks // parts) * block, int(segment.rounds[0])))


def why_it_waits(policy: Policy[Any]) -> str:
    """Why no further arm can be assigned before the missing rewards are known."""
    if policy.waits:
        return f"{policy.name} decides only when all rewards of an epoch are known"
    return (
        f"{policy.name} plays each variant a fixed number of times, and its plan has been assigned "
        "as a whole; whether anything follows depends on its rewards"
    )
