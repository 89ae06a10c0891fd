"""LoggedSegment: what a log says of one segment, all that health checks need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.segments import Segment

__all__ = ["LoggedSegment", "names_of"]

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LoggedSegment:
    """What a log says of one segment; n = 1 for a single test.

    Attributes
    ----------
    segment : its allocation, and how its rounds were drawn
    assigned : (n, K) rows in the log, per arm
    handed : (n,) positions handed out so far; None for all of the segment's rounds
    rewarded : (n, K) rows that have a reward; None if this is not known

    Examples
    --------
    >>> segment = Segment(np.array([[0.5, 0.5]]), np.array([100]))
    >>> LoggedSegment(segment, np.array([[48, 51]])).lost
    array([1])
    """

    segment: Segment
    assigned: Integers
    handed: Integers | None = None
    rewarded: Integers | None = None

    def __post_init__(self) -> None:
        shape = self.segment.weights.shape
        for what, counts, expected in (
            ("assigned", self.assigned, shape),
            ("handed", self.handed, shape[:1]),
            ("rewarded", self.rewarded, shape),
        ):
            if counts is None:
                continue
            if not isinstance(counts, np.ndarray) or not np.issubdtype(counts.dtype, np.integer):
                raise InvalidInputError(
                    f"{what} is {counts!r}; expected an array of whole numbers."
                )
            if counts.shape != expected or (counts < 0).any():
                raise InvalidInputError(
                    f"{what} has shape {counts.shape} and least value "
                    f"{counts.min(initial=0)}; expected shape {expected} and no negative counts."
                )
        if self.rewarded is not None and (self.rewarded > self.assigned).any():
            raise InvalidInputError(
                "rewarded exceeds assigned for some arm; count each assignment once, with or "
                "without its reward."
            )
        if (self.positions > self.segment.rounds).any():
            raise InvalidInputError(
                f"handed is {self.positions.tolist()}, more than the segment's rounds "
                f"{self.segment.rounds.tolist()}; a segment has one position a round."
            )

    @property
    def rows(self) -> Integers:
        """(n,) rows in the log."""
        return np.asarray(self.assigned.sum(axis=1))

    @property
    def positions(self) -> Integers:
        """(n,) positions handed out."""
        return self.segment.rounds if self.handed is None else self.handed

    @property
    def lost(self) -> Integers:
        """(n,) positions without a row."""
        return np.asarray(np.maximum(self.positions - self.rows, 0))


def names_of(names: Sequence[str], pieces: Sequence[LoggedSegment]) -> tuple[str, ...]:
    """Checked names of the arms of a single test."""
    names = tuple(str(name) for name in names)
    for piece in pieces:
        if piece.assigned.shape != (1, len(names)):
            raise InvalidInputError(
                f"a segment has counts of shape {piece.assigned.shape}; expected "
                f"(1, {len(names)}): a single test and one column for each name."
            )
    return names
