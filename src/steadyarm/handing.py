"""Handing: positions of a live experiment for the units that ask, some of them leased ahead.

Takes positions from the storage, has a segment opened where there are none, and says why if there
can be none. It checks no units and makes no answers: `experiment` does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Lock

from steadyarm.advance import in_flight, open_segment
from steadyarm.errors import SteadyArmError, StorageError, WrongStateError
from steadyarm.settings import Settings, microseconds
from steadyarm.storages.base import Storage
from steadyarm.storages.records import Assigned, Lease

__all__ = ["Handing"]

LEASED = microseconds(10)  # for how long positions are leased to a worker ahead of their use
# Seconds to wait for the last positions: less than the second after which clients try again.
PATIENCE = 0.8
PAUSE = 0.005  # seconds before looking again


class Handing:
    """What one process hands out of an experiment; several threads may share it."""

    def __init__(self, storage: Storage, key: int, settings: Settings) -> None:
        self._storage, self._key, self._settings = storage, key, settings
        self._lock = Lock()
        self._held: tuple[Lease, ...] = ()

    def serve(
        self, units: Sequence[str | SteadyArmError], ahead: int, now: int
    ) -> list[Assigned | SteadyArmError]:
        """A position for each unit, or why it has none; errors among the units stay in their place.

        ahead : positions to lease beyond these, for the next call
        """
        answers: list[Assigned | SteadyArmError | None] = [
            None if isinstance(unit, str) else unit for unit in units
        ]
        began = time.monotonic()
        while waiting := [i for i, answer in enumerate(answers) if answer is None]:
            names, refused = [str(units[i]) for i in waiting], None
            given: Sequence[Assigned | None] = [None] * len(names)
            try:
                given = self._assign(names, ahead, now)
                if None in given:
                    refused = self._refusal(now, began)
                if refused is not None:  # another process may have served some meanwhile
                    later = self._known(names)
                    given = [one or other for one, other in zip(given, later, strict=True)]
            except WrongStateError as error:
                given, refused = self._known(names), error
            except StorageError as error:
                if len(waiting) == len(answers) and not any(given):
                    raise
                refused = error  # others were served
            for i, found in zip(waiting, given, strict=True):
                answers[i] = refused if found is None else found
        return [answer for answer in answers if answer is not None]

    def release(self) -> None:
        """Give back positions that were leased ahead and not used."""
        with self._lock:
            held, self._held = self._held, ()
        if held:
            self._storage.release(self._key, [lease.id for lease in held])

    def _assign(self, units: list[str], ahead: int, now: int) -> Sequence[Assigned | None]:
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

    def _refusal(self, now: int, began: float) -> SteadyArmError | None:
        """Why there are no positions; None if there are some, or may be in a moment."""
        refused = open_segment(self._storage, self._key, self._settings, now)
        waited = time.monotonic() - began
        if refused is None or waited > PATIENCE:
            return refused
        if not in_flight(self._storage, self._key, now + LEASED + microseconds(PATIENCE)):
            return refused
        time.sleep(PAUSE + waited / 8)  # ever longer, for others must be able to write
        return None

    def _known(self, units: list[str]) -> list[Assigned | None]:
        """What units have already."""
        if self._settings.sticky == "none":
            return [None] * len(units)
        return [
            None if row is None else row.assigned()
            for row in self._storage.find_assignments(self._key, units)
        ]
