"""OpenSegment: the book of one live segment: positions handed out, sums of the rewards told."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import RepeatedRewardError, UnknownAssignmentError
from steadyarm.policies import Policy
from steadyarm.segments import Order, Segment, SegmentStats, columns_between
from steadyarm.validation import check_choice, finite_number, whole_number

__all__ = ["Assignment", "Books", "OpenSegment", "part_of", "why_it_waits"]

# OpenSegment: the book of one live segment: positions handed out, sums of the rewards told.


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


# Books: which positions of a live test were handed out, which rewards are in, what is closed.


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
