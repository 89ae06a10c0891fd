"""Assignments, leases of positions, and the status of an experiment: what programs work with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Self

from steadyarm.segments import Segment, columns_between
from steadyarm.storages.records import ExperimentState, Lease, id_of, number_of, to_datetime


@dataclass(frozen=True)
class LiveAssignment:
    """One variant that an experiment has assigned.

    Attributes
    ----------
    id : give it back with the reward
    unit : who got it
    arm, name : the variant
    probability : with which it was drawn
    created : when it was assigned first
    new : False if the unit had it already
    """

    id: str
    unit: str
    arm: int
    name: str
    probability: float
    created: datetime
    new: bool


class AssignmentId(str):
    """The id of an assignment, where a text alone might also be a unit."""

    __slots__ = ()


# When something happened: a time, microseconds since 1970, or how long ago; None for just now.
At = datetime | int | timedelta | None

# The reward of an assignment, of its id or of a unit; and when it happened.
Reported = tuple[LiveAssignment | str, float] | tuple[LiveAssignment | str, float, At]


@dataclass(frozen=True)
class Status:
    """Where an experiment stands, in numbers.

    Attributes
    ----------
    name, state, created, budget : of the experiment
    assigned, rewarded : by variant
    segments, observed : opened, and of these observed by the policy
    leased : positions that are leased and not reported as used
    arms : of which variants `assigned` and `rewarded` are, by index; None for all of them. Of very
        many variants (`ArmSet.large`) only those that were assigned are counted
    others : assignments and rewards of further variants, where a service reports the most
        frequent ones only
    excluded : assignments that were excluded; they are among the assigned and count nowhere else
    """

    name: str
    state: ExperimentState
    created: datetime
    budget: int
    assigned: tuple[int, ...]
    rewarded: tuple[int, ...]
    segments: int
    observed: int
    leased: int
    arms: tuple[int, ...] | None = None
    others: tuple[int, int] = (0, 0)
    excluded: int = 0

    @property
    def total_assigned(self) -> int:
        """Assignments of all variants."""
        return sum(self.assigned) + self.others[0]

    @property
    def total_rewarded(self) -> int:
        """Rewards of all variants."""
        return sum(self.rewarded) + self.others[1]


@dataclass(frozen=True, eq=False)
class LocalLease:
    """Positions start..stop-1 of a segment, and everything needed to draw their variants.

    Whoever holds it assigns without a request for each unit: the variant of a position is a pure
    function of these values.

    Attributes
    ----------
    id : to report the used positions with
    tag, seed : of the experiment
    names : of the variants that the segment plays, in the order of its columns
    index, segment : of the positions
    until : time (microseconds since 1970) up to which they may be assigned; used positions are to
        be reported within a minute after that
    """

    id: int
    tag: str
    seed: int
    names: Sequence[str]
    index: int
    segment: Segment
    start: int
    stop: int
    until: int

    @classmethod
    def of(
        cls, lease: Lease, segment: Segment, tag: str, seed: int, names: Sequence[str], until: int
    ) -> Self:
        """A stored lease with everything needed to use it elsewhere; names are of all variants."""
        if segment.arms is not None:
            names = tuple(names[arm] for arm in segment.arms.tolist())
        place = lease.segment, segment, lease.start, lease.stop
        return cls(lease.id, tag, seed, names, *place, until)

    def assignment(self, position: int, unit: str, now: int) -> LiveAssignment:
        """The variant of a position, for a unit."""
        column = self._columns[position - self.start]
        return LiveAssignment(
            id_of(self.tag, number_of(self.index, position), unit),
            unit,
            self.segment.arm_at(column),
            self.names[column],
            self._weights[column],
            to_datetime(now),
            True,
        )

    @cached_property
    def _columns(self) -> list[int]:
        drawn: list[int] = columns_between(
            self.segment, self.seed, self.index, self.start, self.stop
        ).tolist()
        return drawn

    @cached_property
    def _weights(self) -> list[float]:
        weights: list[float] = self.segment.weights[0].tolist()
        return weights
