"""Fallback: when the default arm stands in, what the log hears of it, and who was shown it."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING

from steadyarm.client.transport import forget_after_fork
from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.live.assignments import LiveAssignment, shortened

if TYPE_CHECKING:
    from steadyarm.client.client import Client

__all__ = ["Fallback", "UnitsOutside"]

log = logging.getLogger("steadyarm.client")

REMEMBERED = 100_000  # units
LISTED = 20  # variants; no more fit into a message
EVERY = 60.0  # seconds between two lines in the log for the same kind of reason


class UnitsOutside:
    """Units whose last answer was a default arm, the most recent of them.

    A reward told by such a unit must not count for a variant that the unit was given elsewhere.

    Examples
    --------
    >>> units = UnitsOutside(most=2)
    >>> for unit in ["u1", "u2", "u1", "u3"]:
    ...     units.add(unit)
    >>> [unit in units for unit in ["u1", "u2", "u3"]]
    [True, False, True]
    >>> units.discard("u1")
    >>> "u1" in units
    False
    """

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._units: OrderedDict[str, None] = OrderedDict()
        self._lock = Lock()
        forget_after_fork(self)

    def __contains__(self, unit: object) -> bool:
        return unit in self._units

    def add(self, unit: str) -> None:
        """It was shown the default arm."""
        with self._lock:
            self._units[unit] = None
            self._units.move_to_end(unit)
            if len(self._units) > self._most:
                self._units.popitem(last=False)

    def discard(self, unit: str | None) -> None:
        """It has an assignment of the test."""
        if self._units:
            with self._lock:
                self._units.pop(unit or "", None)

    def forget(self) -> None:
        """In the child of a fork another thread may have held the lock."""
        self._lock = Lock()


class Fallback:
    """The default arm of one experiment; None for `arm` if there is none."""

    def __init__(
        self,
        client: Client,
        experiment: str,
        arm: str | None,
        units: UnitsOutside,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.arm, self.units = arm, units
        self._client, self._experiment, self._clock = client, experiment, clock
        self._names: Sequence[str] | None = None
        self._said: dict[type[SteadyArmError], float] = {}

    def learn(self, names: Sequence[str]) -> None:
        """The experiment's variants: the default arm should be one of them."""
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
        """The same answer, or the default arm in the place of one that is not the unit's fault."""
        if isinstance(answer, LiveAssignment):
            self.units.discard(unit)
            return answer
        if self.arm is None or isinstance(answer, InvalidInputError):
            return answer
        self._say(answer)
        if unit and isinstance(unit, str):
            self.units.add(unit)
        self._client.count("defaulted")
        names = self._names or ()
        arm = names.index(self.arm) if self.arm in names else -1
        return LiveAssignment("", unit or "", arm, self.arm, math.nan, datetime.now(UTC), False)

    def _say(self, reason: SteadyArmError) -> None:
        now, kind = self._clock(), type(reason)
        if now - self._said.get(kind, -math.inf) >= EVERY:
            self._said[kind] = now
            log.warning(
                "the experiment %r answers with its default arm %r, outside the test: %s: %s",
                self._experiment,
                self.arm,
                kind.__name__,
                reason,
            )
