"""Breaker: after a failure nobody waits for the service for some seconds, but one who looks."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

__all__ = ["Breaker"]


class Breaker:
    """Remembers that the service is down, so that a page need not find out each time.

    Examples
    --------
    >>> now = 0.0
    >>> breaker = Breaker(cooldown=5.0, clock=lambda: now)
    >>> breaker.allows(), breaker.failed(), breaker.allows()
    (True, None, False)
    >>> now = 6.0
    >>> breaker.allows(), breaker.allows()  # one looks again, others go on
    (True, False)
    >>> breaker.worked(), breaker.allows()
    (True, True)
    """

    def __init__(self, cooldown: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.cooldown = cooldown
        self._clock = clock
        self._until: float | None = None  # None: all is well
        self._lock = Lock()

    @property
    def open(self) -> bool:
        """Whether the last call failed."""
        return self._until is not None

    def allows(self) -> bool:
        """Whether to try; after the cooldown the first who asks looks for all."""
        if self._until is None:
            return True
        with self._lock:
            now = self._clock()
            if self._until is not None and now < self._until:
                return False
            self._until = now + self.cooldown
            return True

    def failed(self) -> None:
        """The service could not be reached, after all retries."""
        with self._lock:
            self._until = self._clock() + self.cooldown

    def worked(self) -> bool:
        """It answered; True if it had failed before."""
        if self._until is None:
            return False
        with self._lock:
            recovered, self._until = self._until is not None, None
            return recovered

    def forget(self) -> None:
        """In the child of a fork another thread may have held the lock."""
        self._lock = Lock()
