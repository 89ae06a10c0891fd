"""Handing: positions of a live experiment for the units that ask, some of them leased ahead.

Takes positions from the storage, has a segment opened where there are none, and says why if there
can be none. It checks no units and makes no answers: `experiment` does. Nothing here waits: who may
have a position in a moment, because others have the last ones in hand, is told so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock
from typing import Any, Self, TypeVar

from steadyarm.errors import InvalidInputError, SteadyArmError, StorageError, WrongStateError
from steadyarm.live.assignments import LiveAssignment, id_of, to_datetime
from steadyarm.live.scheduler import Clock, Step, Steps, in_flight, open_segment
from steadyarm.live.settings import Settings, microseconds
from steadyarm.segments import Segment, columns_between
from steadyarm.storages.base import Storage
from steadyarm.storages.records import Assigned, Lease, number_of

__all__ = ["PATIENCE", "Assigner", "LocalLease", "Soon", "waited_for"]

# Handing: positions of a live experiment for the units that ask, some of them leased ahead.


T = TypeVar("T")

LEASED = microseconds(10)  # for how long positions are leased to a worker ahead of their use
# Seconds to wait for the last positions: less than the second after which clients try again.
PATIENCE = 0.8
PAUSE = 0.005  # seconds before looking again


@dataclass(frozen=True)
class Soon:
    """No position now, but perhaps in a moment; the error is the answer to who waits no longer."""

    error: SteadyArmError


def waited_for(
    answers: Sequence[T | SteadyArmError | Soon],
    again: Callable[[list[int]], Sequence[T | SteadyArmError | Soon]],
) -> list[T | SteadyArmError]:
    """The answers once nobody need wait for the last positions any more, or waited long enough.

    again : asks for those in these places once more
    """
    found, began = list(answers), time.monotonic()
    while places := [i for i, answer in enumerate(found) if isinstance(answer, Soon)]:
        waited = time.monotonic() - began
        if waited > PATIENCE:
            break
        time.sleep(PAUSE + waited / 8)  # ever longer, for others must be able to write
        for i, answer in zip(places, again(places), strict=True):
            found[i] = answer
    return [answer.error if isinstance(answer, Soon) else answer for answer in found]


class Assigner:
    """What one process hands out of an experiment; several threads may share it."""

    def __init__(self, storage: Storage, key: int, settings: Settings) -> None:
        self._storage, self._key, self._settings = storage, key, settings
        self._lock = Lock()
        self._held: tuple[Lease, ...] = ()

    def serve(
        self, units: Sequence[str | SteadyArmError], ahead: int, clock: Clock
    ) -> Steps[list[Assigned | SteadyArmError | Soon]]:
        """A position for each unit, or why it has none; errors among the units stay in their place.

        ahead : positions to lease beyond these, for the next call
        """
        answers: list[Assigned | SteadyArmError | Soon | None] = [
            None if isinstance(unit, str) else unit for unit in units
        ]
        while waiting := [i for i, answer in enumerate(answers) if answer is None]:
            names = [str(units[i]) for i in waiting]
            refused: SteadyArmError | Soon | None = None
            given: Sequence[Assigned | None] = [None] * len(names)
            try:
                given = yield Step(partial(self._assign, names, ahead, clock), writes=True)
                if None in given:
                    refused = yield from self._refusal(clock)
                if refused is not None:  # another process may have served some meanwhile
                    later = yield Step(partial(self.known, names), writes=False)
                    given = [one or other for one, other in zip(given, later, strict=True)]
            except WrongStateError as error:
                given, refused = (yield Step(partial(self.known, names), writes=False)), error
            except StorageError as error:
                if len(waiting) == len(answers) and not any(given):
                    raise
                refused = error  # others were served
            for i, found in zip(waiting, given, strict=True):
                answers[i] = refused if found is None else found
        return [answer for answer in answers if answer is not None]

    def known(self, units: Sequence[str]) -> list[Assigned | None]:
        """What units have already; only reads."""
        if self._settings.sticky == "none":
            return [None] * len(units)
        return [
            None if row is None else row.assigned()
            for row in self._storage.find_assignments(self._key, units)
        ]

    def release(self) -> None:
        """Give back positions that were leased ahead and not used."""
        with self._lock:
            held, self._held = self._held, ()
        if held:
            self._storage.release(self._key, [lease.id for lease in held])

    def _assign(self, units: list[str], ahead: int, clock: Clock) -> Sequence[Assigned | None]:
        now = clock()
        with self._lock:  # who comes meanwhile takes positions of its own
            held, self._held = self._held, ()
        leases = held
        try:
            handed = self._storage.assign(
                self._key, units, held, ahead, expires=now + LEASED, now=now
            )
            leases = handed.leases
        finally:
            with self._lock:
                self._held += leases
        return handed.assigned

    def _refusal(self, clock: Clock) -> Steps[SteadyArmError | Soon | None]:
        """Why there are no positions; None if there are some."""
        refused = yield from open_segment(self._storage, self._key, self._settings, clock)
        if refused is None:
            return None

        def soon() -> bool:
            ends = clock() + LEASED + microseconds(PATIENCE)
            return in_flight(self._storage, self._key, ends)

        return Soon(refused) if (yield Step(soon, writes=False)) else refused


# LocalLease: positions that a client hands out by itself, so that an answer costs no request.


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

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists only."""
        segment = self.segment.to_dict()
        return {
            "id": self.id,
            "tag": self.tag,
            "seed": self.seed,
            "arms": list(self.names),
            "indices": segment["arms"],
            "segment": self.index,
            **{name: segment[name] for name in ("weights", "rounds", "order", "block")},
            "start": self.start,
            "stop": self.stop,
            "until": self.until,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The lease that `to_dict` wrote."""
        try:
            segment = Segment.from_dict({**data, "arms": data.get("indices")}).checked()
            if len(data["arms"]) != segment.columns:
                raise ValueError("not as many names as weights")
            return cls(
                data["id"],
                data["tag"],
                data["seed"],
                tuple(data["arms"]),
                data["segment"],
                segment,
                data["start"],
                data["stop"],
                data["until"],
            )
        except (LookupError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"this is no lease of positions: {error!r}; expected what LocalLease.to_dict wrote."
            ) from None
