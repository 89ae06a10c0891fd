"""Tallies that are being counted, of segments and of their days; the same in every storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from steadyarm.errors import InvalidInputError
from steadyarm.segments import Segment
from steadyarm.storages.records import DaySums, Decision, LogRow, SegmentRecord, Tally

__all__ = [
    "DAY",
    "Columns",
    "RunningDays",
    "RunningTally",
    "columns_of",
    "day_of",
    "superseded",
    "waited_between",
]

# Superseding: what a decision may ask for, the same in every storage.


def superseded(decision: Decision, last: SegmentRecord) -> SegmentRecord:
    """The last segment as it is after a decision that supersedes it; refused if it may not."""
    if decision.opened is not None:
        raise InvalidInputError(
            f"the decision supersedes segment {last.index} and opens another, so that the rest of "
            "its block would never be handed out; open one when the block has ended."
        )
    if last.segment.order == "shuffled":
        raise InvalidInputError(
            f"segment {last.index} is shuffled, and its plan is kept only as a whole; supersede "
            "segments in blocks or drawn independently."
        )
    return last.cut()


DAY = 86_400_000_000  # microseconds

Columns: TypeAlias = Sequence[int] | Mapping[int, int]  # the column of each arm that is played


class _Some(dict[int, int]):
    """Columns of some of the arms."""

    def __missing__(self, arm: int) -> int:
        raise InvalidInputError(
            f"arm {arm} was not handed out from this segment, which plays {len(self)} others; the "
            "log and the segments do not belong together."
        )


def columns_of(segment: Segment) -> Columns:
    """Where a segment has the numbers of each arm that it plays.

    Examples
    --------
    >>> import numpy as np
    >>> some = Segment(np.array([[0.5, 0.5]]), np.array([9]), arms=np.array([3, 7000]))
    >>> columns_of(some)[7000]
    1
    """
    if segment.arms is None:
        return range(segment.columns)
    return _Some((arm, column) for column, arm in enumerate(segment.arms.tolist()))


def day_of(time: int) -> int:
    """Days since 1970 (UTC)."""
    return time // DAY


def waited_between(created: int, rewarded: int) -> int:
    """Whole milliseconds from an assignment to its reward; 0 where clocks say it came before."""
    return max(0, rewarded - created) // 1000


class RunningTally:
    """A tally of one segment that can be added to, exact all the time.

    Attributes
    ----------
    assigned, rewarded, sums, squares, last, excluded : as in `Tally`
    handed_out, told, left_out : assignments, rewards and excluded assignments in all

    Examples
    --------
    >>> counted = RunningTally(range(2))
    >>> counted.enter(arm=1, created=5)
    >>> counted.tell(arm=1, reward=0.5)
    >>> counted.tally().sums
    (Fraction(0, 1), Fraction(1, 2))
    """

    def __init__(self, columns: Columns) -> None:
        m, self._columns = len(columns), columns
        self.assigned, self.rewarded = [0] * m, [0] * m
        self.sums, self.squares = [Fraction(0)] * m, [Fraction(0)] * m
        self.excluded = [0] * m
        self.handed_out = self.told = self.left_out = 0
        self.last: int | None = None

    def enter(self, arm: int, created: int) -> None:
        """Count an assignment."""
        self.assigned[self._columns[arm]] += 1
        self.handed_out += 1
        self.last = created if self.last is None else max(self.last, created)

    def tell(self, arm: int, reward: float, times: int = 1) -> None:
        """Count a reward; -1 times to take it back."""
        exact, column = Fraction(reward), self._columns[arm]
        self.rewarded[column] += times
        self.told += times
        self.sums[column] += times * exact
        self.squares[column] += times * exact * exact

    def exclude(self, arm: int, times: int = 1) -> None:
        """Count an assignment as excluded; -1 times to take that back."""
        self.excluded[self._columns[arm]] += times
        self.left_out += times

    def add(self, row: LogRow) -> None:
        """Count an assignment, and its reward if it has one, unless it was excluded."""
        self.enter(row.arm, row.created)
        if row.excluded is not None:
            self.exclude(row.arm)
        elif row.reward is not None:
            self.tell(row.arm, row.reward)

    def tally(self) -> Tally:
        """The sums as they are now."""
        counts = tuple(self.assigned), tuple(self.rewarded)
        sums = tuple(self.sums), tuple(self.squares)
        return Tally(*counts, *sums, self.last, tuple(self.excluded))


class RunningDays:
    """Sums of one segment by day, that can be added to.

    Attributes
    ----------
    tallies, waited, late : by day, as in `DaySums`

    Examples
    --------
    >>> counted = RunningDays(range(2))
    >>> counted.add(LogRow(0, "u", 1, 0.5, created=3 * DAY, reward=0.5, rewarded=4 * DAY))
    >>> [(sums.day, sums.tally.rewarded, sums.waited) for sums in counted.sums(segment=0)]
    [(3, (0, 1), (0, 86400000))]
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.tallies: dict[int, RunningTally] = {}
        self.waited: dict[int, list[int]] = {}
        self.late: dict[int, list[int]] = {}

    def enter(self, arm: int, created: int) -> None:
        """Count an assignment."""
        day = day_of(created)
        if day not in self.tallies:
            m = len(self._columns)
            self.tallies[day] = RunningTally(self._columns)
            self.waited[day], self.late[day] = [0] * m, [0] * m
        self.tallies[day].enter(arm, created)

    def tell(self, arm: int, created: int, reward: float, rewarded: int, times: int = 1) -> None:
        """Count a reward of an assignment that was counted; -1 times to take it back."""
        day = day_of(created)
        self.tallies[day].tell(arm, reward, times)
        self.waited[day][self._columns[arm]] += times * waited_between(created, rewarded)

    def exclude(self, arm: int, created: int, times: int = 1) -> None:
        """Count an assignment as excluded; -1 times to take that back."""
        self.tallies[day_of(created)].exclude(arm, times)

    def refuse(self, arm: int, created: int) -> None:
        """Count a reward that came too late for an assignment that was counted."""
        self.late[day_of(created)][self._columns[arm]] += 1

    def add(self, row: LogRow) -> None:
        """Count an assignment, and its reward if it has one, unless it was excluded."""
        self.enter(row.arm, row.created)
        if row.excluded is not None:
            self.exclude(row.arm, row.created)
        elif row.reward is not None:
            told = row.created if row.rewarded is None else row.rewarded
            self.tell(row.arm, row.created, row.reward, told)

    def handed_out(self) -> int:
        """Assignments in all."""
        return sum(tally.handed_out for tally in self.tallies.values())

    def refused(self) -> int:
        """Rewards that came too late in all."""
        return sum(map(sum, self.late.values()))

    def sums(self, segment: int) -> tuple[DaySums, ...]:
        """The days in order, as they are now."""
        return tuple(
            DaySums(segment, day, tally.tally(), tuple(self.waited[day]), tuple(self.late[day]))
            for day, tally in sorted(self.tallies.items())
        )
