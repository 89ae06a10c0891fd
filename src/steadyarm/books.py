"""Books: which positions of a live test were handed out, which rewards are in, what is closed.

Knows nothing of policies: it is told which segment to open, and says which are complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from steadyarm.errors import RepeatedRewardError, UnknownAssignmentError
from steadyarm.ledger import OpenSegment
from steadyarm.segments import Segment, SegmentStats
from steadyarm.validation import finite_number, whole_number

__all__ = ["Assignment", "Books"]


@dataclass(frozen=True)
class Assignment:
    """One variant handed out.

    Attributes
    ----------
    number : counts the assignments of the session from 0; give it back with the reward
    arm, name : the variant
    probability : with which it was drawn
    """

    number: int
    arm: int
    name: str
    probability: float


class Books:
    """The assignments of one live test, by segment.

    Attributes
    ----------
    arms : number of variants; budget : assignments in all
    asked : assignments handed out, numbered from 0
    opened : segments opened, numbered from 0
    current : the segment that positions are handed out from; None if one must be opened
    open : segments that wait for rewards, by index
    closed : segments whose rewards are in or given up, in the order of their closing; observed
    waiting : (segment index, arm) of every assignment without a reward, by its number
    least, largest : of the rewards told; None before the first
    """

    def __init__(self, arms: int, budget: int) -> None:
        self.arms, self.budget = arms, budget
        self.asked = self.opened = 0
        self.current: OpenSegment | None = None
        self.open: dict[int, OpenSegment] = {}
        self.closed: list[OpenSegment] = []
        self.waiting: dict[int, tuple[int, int]] = {}
        self.least: float | None = None
        self.largest: float | None = None

    def start(self, segment: Segment, carried_on: bool) -> None:
        """Open a segment and hand out from it from now on."""
        stats = SegmentStats.empty(1, segment.columns)
        self.current = OpenSegment(self.opened, segment, stats, carried_on)
        self.open[self.opened] = self.current
        self.opened += 1

    def hand_out(self, seed: int) -> tuple[int, int, float]:
        """Number, arm and probability of the next assignment."""
        assert self.current is not None
        arm, probability = self.current.next_arm(seed)
        number = self.asked
        self.asked += 1
        self.waiting[number] = (self.current.index, arm)
        return number, arm, probability

    def arm_of(self, number: int) -> int:
        """The arm of an assignment that waits for its reward."""
        if number in self.waiting:
            return self.waiting[number][1]
        if 0 <= number < self.asked:
            raise RepeatedRewardError(
                f"assignment {number} has its reward already (or was forgotten); "
                "a reward is told once."
            )
        raise UnknownAssignmentError(
            f"assignment {number} was never handed out; {self.asked} have been, numbered from 0."
        )

    def tell(self, number: int, reward: float) -> OpenSegment:
        """Count the reward of an assignment that waits for it; its segment."""
        index, arm = self.waiting.pop(number)
        self.open[index].add(arm, reward)
        self.least = reward if self.least is None else min(self.least, reward)
        self.largest = reward if self.largest is None else max(self.largest, reward)
        return self.open[index]

    def forget(self, number: int) -> OpenSegment:
        """Wait no longer for a reward; its segment."""
        index, arm = self.waiting.pop(number)
        self.open[index].forget(arm)
        return self.open[index]

    def close_complete(self, changed: OpenSegment) -> list[OpenSegment]:
        """Close what waits for nothing any more, now that a segment has changed.

        That is this one or the current one; whoever calls hands them to the policy.
        """
        both = [self.open.get(changed.index), self.current]
        complete = [piece for piece in dict.fromkeys(both) if piece and self._is_complete(piece)]
        for opened in complete:
            del self.open[opened.index]
            opened.observed = True
        self.closed += complete
        # A regular segment runs to its end; one that only carried on makes way for news.
        if self.current in complete:
            self.current = None
        elif complete and self.current is not None and self.current.carried_on:
            self.current.supersede()
        return complete

    def pieces(self) -> tuple[OpenSegment, ...]:
        """All segments that were handed out from, by index, as they are now."""
        both = [*self.closed, *deepcopy(list(self.open.values()))]  # closed ones change no more
        handed = (piece for piece in both if piece.handed)
        return tuple(sorted(handed, key=lambda piece: piece.index))

    def _is_complete(self, opened: OpenSegment) -> bool:
        ended = opened is not self.current or opened.exhausted or self.asked >= self.budget
        return ended and not opened.waiting

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists only."""
        return {
            "asked": self.asked,
            "opened": self.opened,
            "current": None if self.current is None else self.current.index,
            "open": [opened.to_dict() for opened in self.open.values()],
            "closed": [closed.to_dict() for closed in self.closed],
            "waiting": [[number, *where] for number, where in self.waiting.items()],
            "least": self.least,
            "largest": self.largest,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], arms: int, budget: int) -> Self:
        """The books that `to_dict` wrote; ValueError if they cannot be right."""
        books = cls(arms, budget)
        books.asked, books.opened = data["asked"], data["opened"]
        books.open = {entry["index"]: OpenSegment.from_dict(entry) for entry in data["open"]}
        books.closed = [OpenSegment.from_dict(entry, observed=True) for entry in data["closed"]]
        current = data["current"]
        books.current = None if current is None else books.open[current]
        books.waiting = {number: (index, arm) for number, index, arm in data["waiting"]}
        books.least, books.largest = data["least"], data["largest"]
        books._check()
        return books

    def _check(self) -> None:
        waiting = {index: np.zeros_like(piece.assigned) for index, piece in self.open.items()}
        for number, (index, arm) in self.waiting.items():
            whole_number(arm, "a waiting arm")
            if not 0 <= whole_number(number, "a waiting number") < self.asked:
                raise ValueError(f"assignment {number} waits but was never handed out")
            if arm >= self.arms:
                raise ValueError(f"arm {arm} waits, but there are {self.arms} arms")
            waiting[index][self.open[index].segment.column_of(arm)] += 1
        pieces = [*self.open.values(), *self.closed]
        indices = [piece.index for piece in pieces]
        whole_number(self.opened, "opened", least=max(indices, default=-1) + 1)
        if len(set(indices)) < len(indices):
            raise ValueError("a segment is there twice")
        if whole_number(self.asked, "asked") > self.budget:
            raise ValueError(f"{self.asked} were handed out of {self.budget}")
        if self.asked != sum(piece.handed for piece in pieces):
            raise ValueError(f"{self.asked} were handed out, but segments say otherwise")
        untold = not any(piece.told for piece in pieces)
        if (self.least is None) != untold or (self.largest is None) != untold:
            raise ValueError("the range of the rewards does not fit their number")
        if self.least is not None and self.largest is not None:
            least, largest = (finite_number(x, "a reward") for x in (self.least, self.largest))
            if least > largest:
                raise ValueError("the least reward exceeds the largest")
        for piece in pieces:
            piece.segment.checked(self.arms)
            sums, m = (
                (piece.stats.sums, piece.stats.squares, piece.stats.counts),
                piece.segment.columns,
            )
            fits = piece.assigned.shape == piece.forgotten.shape == (m,) and all(
                part is not None and part.shape == (1, m) and np.isfinite(part).all()
                for part in sums
            )
            pending = waiting.get(piece.index, 0)
            if not (
                fits
                and _can_be(piece.stats)
                and (piece.forgotten >= 0).all()
                and int(piece.assigned.sum()) == piece.handed
                and np.array_equal(piece.missing, piece.forgotten + pending)
            ):
                raise ValueError(f"the sums of segment {piece.index} do not fit its assignments")


def _can_be(stats: SegmentStats) -> bool:
    """Whether rewards with these sums and squares exist (Cauchy and Schwarz)."""
    assert stats.squares is not None
    with np.errstate(over="ignore"):
        most = stats.counts * stats.squares
        fits = (stats.counts >= 0) & (stats.sums**2 <= most * (1 + 1e-6)) & np.isfinite(most)
    return bool(fits.all())
