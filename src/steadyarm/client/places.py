"""Places: leased positions and what was handed out from them, without any network."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

from steadyarm.answers import LiveAssignment
from steadyarm.local import LocalLease

__all__ = ["Memory", "Place", "Places"]


class Place(NamedTuple):
    """One position that was handed out, to be reported."""

    lease: int
    position: int
    answer: LiveAssignment


class _Held:
    """A lease and how far it is used."""

    __slots__ = ("lease", "next", "open", "spare")

    def __init__(self, lease: LocalLease) -> None:
        self.lease, self.next = lease, lease.start
        self.open = 0  # handed out and not reported
        self.spare = 0  # handed out and not needed: the unit had another


class Places:
    """Positions in the order of their leases; whoever calls holds a lock.

    Times are those of the service's clock, in microseconds.
    """

    def __init__(self) -> None:
        self._ready: deque[_Held] = deque()
        self._spent: dict[int, _Held] = {}  # by lease: nothing more is handed out from these
        self.used: deque[Place] = deque()
        self.remaining = 0  # positions that are ready, some of which may have expired

    def add(self, leases: Iterable[LocalLease]) -> None:
        """Positions to hand out."""
        for lease in leases:
            self._ready.append(_Held(lease))
            self.remaining += lease.stop - lease.start

    def draw(self, unit: str, now: int) -> LiveAssignment | None:
        """The next position's variant; None if there is none whose time is not over."""
        while self._ready:
            held = self._ready[0]
            if held.next < held.lease.stop and now < held.lease.until:
                answer = held.lease.assignment(held.next, unit, now)
                self.used.append(Place(held.lease.id, held.next, answer))
                held.next += 1
                held.open += 1
                self.remaining -= 1
                return answer
            self._retire()
        return None

    def _retire(self) -> None:
        held = self._ready.popleft()
        self._spent[held.lease.id] = held
        self.remaining -= held.lease.stop - held.next

    def left(self, now: int) -> int:
        """How many can be handed out at that time."""
        return sum(h.lease.stop - h.next for h in self._ready if now < h.lease.until)

    def reported(self, place: Place, spare: bool) -> None:
        """The service knows of it; spare if it did not need the position."""
        for held in (self._spent.get(place.lease), *self._ready):
            if held is not None and held.lease.id == place.lease:
                held.open -= 1
                held.spare += spare
                return

    def finished(self, now: int, every: bool = False) -> list[int]:
        """Leases of which nothing is open and positions are left, to be given back; forgets them.

        every : also those that could still be used
        """
        while self._ready and (every or now >= self._ready[0].lease.until):
            self._retire()
        done = [held for held in self._spent.values() if not held.open]
        for held in done:
            del self._spent[held.lease.id]
        return [held.lease.id for held in done if held.next < held.lease.stop or held.spare]


class Memory:
    """What units were given, of the units seen last.

    Examples
    --------
    >>> memory = Memory(most=2)
    >>> for unit in ["u1", "u2"]:
    ...     memory[unit] = unit.upper()
    >>> memory.get("u1")
    'U1'
    >>> memory["u3"] = "U3"
    >>> memory.get("u2"), memory.get("u1")
    (None, 'U1')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._given: OrderedDict[str, LiveAssignment] = OrderedDict()

    def get(self, unit: str) -> LiveAssignment | None:
        """What a unit was given; None if it is not known."""
        found = self._given.get(unit)
        if found is not None:
            self._given.move_to_end(unit)
        return found

    def __setitem__(self, unit: str, answer: LiveAssignment) -> None:
        given = self._given
        given[unit] = answer
        if len(given) > self._most:
            given.popitem(last=False)

    def forget(self, answer: LiveAssignment) -> None:
        """The unit's answer does not count."""
        if self._given.get(answer.unit) == answer:
            del self._given[answer.unit]
