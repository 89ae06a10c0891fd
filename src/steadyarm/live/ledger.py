"""SegmentLedger: how one segment of a live test was assigned, and which rewards it brought.

Decisions, verdicts and pages all read ledgers. A `Session` keeps its own and adds to them; those of
an `Experiment` are made by `ledger_of` from the sums that its storage keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from steadyarm.live.settings import Settings
from steadyarm.segments import Segment, SegmentStats, columns_between
from steadyarm.storages.records import SegmentRecord, Tally
from steadyarm.validation import whole_number

BUFFER = 1024  # positions drawn ahead at a time

Counts = NDArray[np.int64]


@dataclass(eq=False)
class SegmentLedger:
    """One segment of a live test: its assignments and the sums of its rewards.

    Numbers by arm have the segment's columns, m of them.

    Attributes
    ----------
    index : of the segment in its test
    stats : sums of the recorded rewards, as the policy maximizes them
    carried_on : opened with an old allocation, because rewards of earlier segments were missing
    superseded : carried on, and they have come; it ends with its block
    observed : the policy has observed its sums
    used : positions assigned so far
    assigned : (m,) how often each arm was assigned
    forgotten : (m,) of these, how many rewards will never come
    excluded : (m,) excluded assignments, which no other number counts
    zeros : recorded rewards that never came: with missing="zero" each of these counts as a zero
    last : time of the last assignment, in microseconds since 1970; None without a clock
    """

    index: int
    segment: Segment
    stats: SegmentStats
    carried_on: bool = False
    superseded: bool = False
    observed: bool = False
    used: int = 0
    assigned: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    forgotten: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    excluded: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    zeros: int = 0
    last: int | None = None
    _ahead: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)

    def __post_init__(self) -> None:
        for name in ("assigned", "forgotten", "excluded"):
            if not len(getattr(self, name)):
                setattr(self, name, np.zeros(self.stats.counts.shape[1], dtype=np.int64))

    @property
    def rounds(self) -> int:
        """Positions of the segment."""
        return int(self.segment.rounds[0])

    @property
    def recorded(self) -> int:
        """Rewards recorded."""
        return int(self.stats.counts.sum())

    @property
    def missing(self) -> Counts:
        """(m,) assignments without a reward, whether it may still come or not."""
        without: Counts = self.assigned - self.stats.counts[0]
        return without

    @property
    def waiting(self) -> int:
        """Assignments whose reward may still come."""
        return int((self.missing - self.forgotten).sum())

    @property
    def exhausted(self) -> bool:
        """Whether every position was assigned."""
        return self.used >= self.rounds

    @property
    def complete(self) -> bool:
        """Whether every position was assigned, and no reward may come any more."""
        return self.exhausted and not self.waiting

    def assign(self, seed: int) -> tuple[int, float]:
        """Assign the next position: its arm, and the probability with which it was drawn."""
        buffer = self.rounds if self.segment.order == "shuffled" else BUFFER
        position = self.used % buffer
        if position == 0 or not len(self._ahead):
            first = self.used - position
            last = min(first + buffer, self.rounds)
            self._ahead = columns_between(self.segment, seed, self.index, first, last)
        column = int(self._ahead[position])
        self.used += 1
        self.assigned[column] += 1
        return self.segment.arm_at(column), float(self.segment.weights[0, column])

    def record(self, arm: int, reward: float) -> None:
        """Count a reward."""
        assert self.stats.squares is not None
        column = self.segment.column_of(arm)
        self.stats.counts[0, column] += 1
        self.stats.sums[0, column] += reward
        self.stats.squares[0, column] += reward * reward

    def forget(self, arm: int) -> None:
        """Count a reward that will never come."""
        self.forgotten[self.segment.column_of(arm)] += 1

    def supersede(self) -> None:
        """Let the segment end with its block, so that a new allocation can follow."""
        self.segment = self.segment.cut_after(self.used)
        self.superseded = True

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists only."""
        assert self.stats.squares is not None
        return {
            "index": self.index,
            **self.segment.to_dict(),
            "carried_on": self.carried_on,
            "superseded": self.superseded,
            "handed": self.used,
            "assigned": self.assigned.tolist(),
            "forgotten": self.forgotten.tolist(),
            "counts": self.stats.counts[0].tolist(),
            "sums": self.stats.sums[0].tolist(),
            "squares": self.stats.squares[0].tolist(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], arms: int, observed: bool = False) -> Self:
        """The ledger that `to_dict` wrote of a test with so many arms.

        ValueError if its numbers have the wrong shape, or if no rewards can have these sums.
        """
        counts, assigned, forgotten = (
            np.array(data[name], dtype=np.int64) for name in ("counts", "assigned", "forgotten")
        )
        sums, squares = (np.array(data[name], dtype=np.float64) for name in ("sums", "squares"))
        index, used = whole_number(data["index"], "index"), whole_number(data["handed"], "handed")
        segment = Segment.from_dict(data).checked(arms)
        numbers = (counts, assigned, forgotten, sums, squares)
        with np.errstate(over="ignore", invalid="ignore"):
            most = counts * squares  # Cauchy and Schwarz
            if (
                any(each.shape != (segment.columns,) for each in numbers)
                or not (np.isfinite(sums) & np.isfinite(most)).all()
                or not (sums**2 <= most * (1 + 1e-6)).all()
                or min(counts.min(), forgotten.min()) < 0
                or int(assigned.sum()) != used
            ):
                raise ValueError(f"the sums of segment {index} do not fit its assignments")
        return cls(
            index,
            segment,
            SegmentStats(counts[None], sums[None], squares[None]),
            carried_on=bool(data["carried_on"]),
            superseded=bool(data["superseded"]),
            observed=observed,
            used=used,
            assigned=assigned,
            forgotten=forgotten,
        )


def ledger_of(
    settings: Settings, record: SegmentRecord, tally: Tally, given_up: bool
) -> SegmentLedger:
    """The ledger of a stored segment.

    No reward is expected of excluded assignments, and none is filled in for them.

    given_up : no reward may come any more, so that missing ones count as `Settings.missing` says
    """
    stats = tally.stats()
    assigned = np.array(tally.assigned, dtype=np.int64)
    forgotten, zeros = np.array(tally.excluded, dtype=np.int64), 0
    if given_up and settings.missing == "zero":
        stats = replace(stats, counts=(assigned - forgotten)[None])
        zeros = tally.waiting
    elif given_up:
        forgotten = assigned - stats.counts[0]
    return SegmentLedger(
        index=record.index,
        segment=record.segment,
        stats=stats if settings.direction == "maximize" else stats.negated(),
        carried_on=record.carried_on,
        superseded=record.superseded,
        observed=record.closed is not None,
        used=tally.total_assigned,
        assigned=assigned,
        forgotten=forgotten,
        zeros=zeros,
        last=tally.last,
    )
