"""Fallback: when the default arm is shown, what is logged about it, and which units saw it."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from steadyarm.client.transport import forget_after_fork
from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.live.assignments import LiveAssignment
from steadyarm.wording import shortened

if TYPE_CHECKING:
    from steadyarm.client.client import Client


log = logging.getLogger("steadyarm.client")

T = TypeVar("T")
REMEMBERED = 100_000  # units
LISTED = 20  # variants; no more fit into a message
EVERY = 60.0  # seconds between two lines in the log for the same kind of reason


class RecentUnits(Generic[T]):
    """Something about each of the units that were added or read last.

    Examples
    --------
    >>> units = RecentUnits(most=2)
    >>> for unit in ["u1", "u2", "u1", "u3"]:
    ...     units[unit] = unit.upper()
    >>> [unit in units for unit in ["u1", "u2", "u3"]]
    [True, False, True]
    >>> units.get("u1"), units.pop("u1"), units.get("u1")
    ('U1', 'U1', None)
    """

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._units: OrderedDict[str, T] = OrderedDict()
        self._lock = Lock()
        forget_after_fork(self)

    def __contains__(self, unit: object) -> bool:
        return unit in self._units

    def __setitem__(self, unit: str, value: T) -> None:
        with self._lock:
            self._units[unit] = value
            self._units.move_to_end(unit)
            if len(self._units) > self._most:
                self._units.popitem(last=False)

    def get(self, unit: str) -> T | None:
        """What was added about a unit; None if it is not remembered."""
        with self._lock:
            if unit in self._units:
                self._units.move_to_end(unit)
            return self._units.get(unit)

    def pop(self, unit: str) -> T | None:
        """The same, and forget it."""
        with self._lock:
            return self._units.pop(unit, None)

    def forget(self) -> None:
        """Renew the lock, which another thread may have held during a fork."""
        self._lock = Lock()


class Fallback:
    """The default arm of one experiment; `arm` is None if there is none.

    units : which saw it last. A reward that is reported by such a unit must not count for a
        variant that the unit was given elsewhere
    """

    def __init__(
        self,
        client: Client,
        experiment: str,
        arm: str | None,
        units: RecentUnits[None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.arm, self.units = arm, units
        self._client, self._experiment, self._clock = client, experiment, clock
        self._names: Sequence[str] | None = None
        self._logged: dict[type[SteadyArmError], float] = {}

    def learn(self, names: Sequence[str]) -> None:
        """Remember the experiment's variants; the default arm should be one of them."""
        if self._names is None and self.arm is not None and names and self.arm not in names:
            log.warning(
                "the default arm %r is no variant of the experiment %r; it has %s",
                self.arm,
                self._experiment,
                shortened(list(names[:LISTED])),
            )
        self._names = names

    def settle(
        self, unit: str | None, answer: LiveAssignment | SteadyArmError
    ) -> LiveAssignment | SteadyArmError:
        """The same answer, or the default arm instead of an error that is not the unit's fault."""
        if isinstance(answer, LiveAssignment):
            self.units.pop(unit or "")
            return answer
        if self.arm is None or isinstance(answer, InvalidInputError):
            return answer
        self._log(answer)
        if unit and isinstance(unit, str):
            self.units[unit] = None
        self._client.count("defaulted")
        names = self._names or ()
        arm = names.index(self.arm) if self.arm in names else -1
        return LiveAssignment("", unit or "", arm, self.arm, math.nan, datetime.now(UTC), False)

    def _log(self, reason: SteadyArmError) -> None:
        now, kind = self._clock(), type(reason)
        if now - self._logged.get(kind, -math.inf) >= EVERY:
            self._logged[kind] = now
            log.warning(
                "the experiment %r answers with its default arm %r, outside the test: %s: %s",
                self._experiment,
                self.arm,
                kind.__name__,
                reason,
            )
