"""Superseding: what a decision may ask for, the same in every storage."""

from __future__ import annotations

from steadyarm.errors import InvalidInputError
from steadyarm.storages.records import Decision, SegmentRecord

__all__ = ["superseded"]


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
