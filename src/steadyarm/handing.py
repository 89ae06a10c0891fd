"""Handing: positions of a live experiment for the units that ask, some of them leased ahead.

Takes positions from the storage, has a segment opened where there are none, and says why if there
can be none. It checks no units and makes no answers: `experiment` does. Nothing here waits: who may
have a position in a moment, because others have the last ones in hand, is told so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TypeVar

from steadyarm.advance import Clock, Step, Steps, in_flight, open_segment
from steadyarm.errors import SteadyArmError, StorageError, WrongStateError
from steadyarm.settings import Settings, microseconds
from steadyarm.storages.base import Storage
from steadyarm.storages.records import Assigned, Lease

__all__ = ["PATIENCE", "Handing", "Soon", "waited_for"]

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


class Handing:
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
