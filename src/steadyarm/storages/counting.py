"""Tallies that are being counted, of segments and of their days."""

from __future__ import annotations

from fractions import Fraction

from steadyarm.storages.records import DaySums, LogRow, Tally

__all__ = ["DAY", "RunningDays", "RunningTally", "day_of", "waited_between"]

DAY = 86_400_000_000  # microseconds


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
    assigned, rewarded, sums, squares, last : as in `Tally`
    handed_out : assignments in all

    Examples
    --------
    >>> counted = RunningTally(arms=2)
    >>> counted.enter(arm=1, created=5)
    >>> counted.tell(arm=1, reward=0.5)
    >>> counted.tally().sums
    (Fraction(0, 1), Fraction(1, 2))
    """

    def __init__(self, arms: int) -> None:
        self.assigned, self.rewarded = [0] * arms, [0] * arms
        self.sums, self.squares = [Fraction(0)] * arms, [Fraction(0)] * arms
        self.handed_out = 0
        self.last: int | None = None

    def enter(self, arm: int, created: int) -> None:
        """Count an assignment."""
        self.assigned[arm] += 1
        self.handed_out += 1
        self.last = created if self.last is None else max(self.last, created)

    def tell(self, arm: int, reward: float) -> None:
        """Count a reward."""
        exact = Fraction(reward)
        self.rewarded[arm] += 1
        self.sums[arm] += exact
        self.squares[arm] += exact * exact

    def add(self, row: LogRow) -> None:
        """Count an assignment, and its reward if it has one."""
        self.enter(row.arm, row.created)
        if row.reward is not None:
            self.tell(row.arm, row.reward)

    def tally(self) -> Tally:
        """The sums as they are now."""
        counts = tuple(self.assigned), tuple(self.rewarded)
        return Tally(*counts, tuple(self.sums), tuple(self.squares), self.last)


class RunningDays:
    """Sums of one segment by day, that can be added to.

    Attributes
    ----------
    tallies, waited, late : by day, as in `DaySums`

    Examples
    --------
    >>> counted = RunningDays(arms=2)
    >>> counted.add(LogRow(0, "u", 1, 0.5, created=3 * DAY, reward=0.5, rewarded=4 * DAY))
    >>> [(sums.day, sums.tally.rewarded, sums.waited) for sums in counted.sums(segment=0)]
    [(3, (0, 1), (0, 86400000))]
    """

    def __init__(self, arms: int) -> None:
        self._arms = arms
        self.tallies: dict[int, RunningTally] = {}
        self.waited: dict[int, list[int]] = {}
        self.late: dict[int, list[int]] = {}

    def enter(self, arm: int, created: int) -> None:
        """Count an assignment."""
        day = day_of(created)
        if day not in self.tallies:
            self.tallies[day] = RunningTally(self._arms)
            self.waited[day], self.late[day] = [0] * self._arms, [0] * self._arms
        self.tallies[day].enter(arm, created)

    def tell(self, arm: int, created: int, reward: float, rewarded: int) -> None:
        """Count a reward of an assignment that was counted."""
        day = day_of(created)
        self.tallies[day].tell(arm, reward)
        self.waited[day][arm] += waited_between(created, rewarded)

    def refuse(self, arm: int, created: int) -> None:
        """Count a reward that came too late for an assignment that was counted."""
        self.late[day_of(created)][arm] += 1

    def add(self, row: LogRow) -> None:
        """Count an assignment, and its reward if it has one."""
        self.enter(row.arm, row.created)
        if row.reward is not None:
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
