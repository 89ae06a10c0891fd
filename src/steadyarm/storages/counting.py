"""RunningTally: a tally that is being counted."""

from __future__ import annotations

from fractions import Fraction

from steadyarm.storages.records import LogRow, Tally

__all__ = ["RunningTally"]


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
