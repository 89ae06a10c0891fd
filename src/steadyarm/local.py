"""LocalLease: positions that a client hands out by itself, so that an answer costs no request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from steadyarm.answers import LiveAssignment, id_of, moment
from steadyarm.errors import InvalidInputError
from steadyarm.segments import Segment, columns_between
from steadyarm.storages.records import Lease, number_of

__all__ = ["LocalLease"]


@dataclass(frozen=True, eq=False)
class LocalLease:
    """Positions start..stop-1 of a segment, and all that is needed to know their variants.

    Attributes
    ----------
    id : to report with what was handed out
    tag, seed : of the experiment
    names : of the variants that the segment plays, in the order of its columns
    index, segment : of the positions
    until : time (microseconds since 1970) up to which they may be handed out; what was handed out
        is to be reported within a minute after that
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
        """A stored lease with what is needed to use it elsewhere; names are of all variants."""
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
            moment(now),
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

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists only."""
        arms = self.segment.arms
        return {
            "id": self.id,
            "tag": self.tag,
            "seed": self.seed,
            "arms": list(self.names),
            "indices": None if arms is None else arms.tolist(),
            "segment": self.index,
            "weights": self._weights,
            "rounds": int(self.segment.rounds[0]),
            "order": self.segment.order,
            "block": self.segment.block,
            "start": self.start,
            "stop": self.stop,
            "until": self.until,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The lease that `to_dict` wrote."""
        try:
            weights, rounds = np.array([data["weights"]]), np.array([data["rounds"]])
            given = data.get("indices")
            arms = None if given is None else np.array(given, dtype=np.int64)
            segment = Segment(weights, rounds, data["order"], data["block"], arms=arms)
            if len(data["arms"]) != segment.columns:
                raise ValueError("not as many names as weights")
            return cls(
                data["id"],
                data["tag"],
                data["seed"],
                tuple(data["arms"]),
                data["segment"],
                segment.checked(segment.columns if given is None else max(given, default=0) + 1),
                data["start"],
                data["stop"],
                data["until"],
            )
        except (LookupError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"this is no lease of positions: {error!r}; expected what LocalLease.to_dict wrote."
            ) from None
