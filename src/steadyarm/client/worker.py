"""Worker: the traffic of a LocalExperiment with the service, in a thread of its own."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby, islice
from threading import Event, Lock, Thread
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from steadyarm.client.delivery import BATCH, in_halves
from steadyarm.client.fallback import RecentUnits
from steadyarm.client.transport import PATIENCE, TooLargeError, understood
from steadyarm.errors import (
    ServiceError,
    SteadyArmError,
    StorageError,
)
from steadyarm.live.assignments import At, LiveAssignment, LocalLease, Reported
from steadyarm.wire.responses import Assignments, Leases, Released

if TYPE_CHECKING:
    from steadyarm.client.remote import RemoteExperiment

# Places: leased positions and what was handed out from them, without any network.


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


log = logging.getLogger("steadyarm.client")

INTERVAL = 0.2  # seconds between reports
LEAST = 0.01  # seconds between rounds of work, however often it is woken
AGAIN = 1.0  # seconds after a lease was refused until the next try
WAITING = 100_000  # rewards in the queue
VOID = 100_000  # ids that do not count which are remembered


class Worker:
    """Leases positions, reports what was handed out, then sends rewards, in this order.

    Attributes
    ----------
    lock : for `places`, `memory` and the queues; never held during a request
    offset : what the service's clock is ahead of this machine's monotonic one, microseconds
    conflicts : units that turned out to have another assignment; that one counts from then on
    expired : positions handed out whose report came too late, so that they do not count
    refused : rewards that the service did not take
    """

    def __init__(
        self,
        remote: RemoteExperiment,
        positions: int,
        seconds: float,
        memory: RecentUnits[LiveAssignment],
    ) -> None:
        self.memory, self.positions, self.seconds = memory, positions, seconds
        self.conflicts = self.expired = self.refused = 0
        self._remote = remote
        self.reset()

    def reset(self) -> None:
        """Without positions, queues and thread; what a forked child starts with."""
        self.lock, self.places, self.offset = Lock(), Places(), 0
        self.asked = True  # since the last lease: an idle process needs no new one
        self.threshold = 0  # positions that should be ready: what a moment needs, not more, for
        # leases ahead of their use let the policy decide on old rewards
        self._rewards: list[Reported] = []
        self._void: RecentUnits[None] = RecentUnits(VOID)
        self._turn, self._awake, self._stopped = Lock(), Event(), False
        self._not_before, self._looked = 0.0, time.monotonic()
        self._thread: Thread | None = None

    def now(self) -> int:
        """The service's time, never behind it; see `lease`."""
        return monotonic_ns() // 1000 + self.offset

    def start(self) -> None:
        """Begin to work, if that was not done."""
        with self.lock:
            if self._thread is None and not self._stopped:
                self._thread = Thread(target=self._run, name="steadyarm-local", daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Positions run out."""
        self._awake.set()

    def await_turn(self) -> None:
        """Return when a round that is going on has ended."""
        with self._turn:
            pass

    def queue(self, target: LiveAssignment | str, reward: float, at: At) -> None:
        """Send a reward, after the report of its assignment."""
        with self.lock:
            if len(self._rewards) >= WAITING:
                raise ServiceError(
                    f"{WAITING} rewards wait for the service already; this one was not kept. "
                    "Tell it again when the service is back."
                )
            self._rewards.append((target, reward, at))

    def work(self, closing: bool = False) -> None:
        """One round; raises if the service is down, and then nothing is lost."""
        with self._turn:
            self.lease()
            with self.lock:  # all assignments of these rewards are in `used` or were reported
                rewards, count = self._rewards, len(self.places.used)
                self._rewards = []
            self._pace(count)
            try:
                self._report(count)
                self._tell(rewards)
            except BaseException:
                with self.lock:
                    self._rewards = rewards + self._rewards
                raise
            with self.lock:
                done = self.places.finished(self.now(), every=closing)
            for lease in done:
                self._remote.call(Released, "DELETE", "leases", str(lease), within=PATIENCE)

    def close(self) -> None:
        """Report and tell what is left, and give positions back."""
        self._stopped = True
        self._awake.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self.work(closing=True)
        except SteadyArmError as error:
            lost, untold = len(self.places.used), len(self._rewards)
            self.expired += lost
            self.refused += untold
            log.warning("%d assignments, %d rewards were not delivered: %s", lost, untold, error)

    def lease(self) -> SteadyArmError | None:
        """Get positions before they run out or expire; the error if that was refused."""
        margin = round(1e6 * min(self.seconds / 4, 5.0))
        with self.lock:
            enough = self.places.left(self.now() + margin) > self.threshold
        waits = self._stopped or not self.asked or time.monotonic() < self._not_before
        if enough or waits:
            return None
        before = monotonic_ns() // 1000
        try:
            body = {"positions": self.positions, "seconds": self.seconds}
            found = self._remote.call(Leases, "POST", "leases", body=body, repeatable=False)
            leases = understood(lambda: [lease.to_lease() for lease in found.leases])
        except SteadyArmError as error:
            self._not_before = time.monotonic() + AGAIN
            log.info("no positions to hand out locally: %s", error)
            return error
        # Granted after `before`, by the service's clock at until - seconds: so the time that we
        # count is ahead of the service's by the way of the request, and nothing is used too late.
        self.offset = max(lease.until for lease in leases) - round(1e6 * self.seconds) - before
        for lease in leases:
            lease.assignment(lease.start, "", 0)  # draws all its variants, here and not in ask()
        with self.lock:
            self.places.add(leases)
            self.asked = False
        return None

    def _pace(self, used: int) -> None:
        now = time.monotonic()
        passed, self._looked = max(now - self._looked, LEAST), now
        self.threshold = min(round(used / passed * INTERVAL), self.positions // 2)

    def _report(self, count: int) -> None:
        with self.lock:
            places = list(islice(self.places.used, count))
        for lease, group in groupby(places, key=lambda place: place.lease):
            of_lease = list(group)
            for i in range(0, len(of_lease), BATCH):
                part = of_lease[i : i + BATCH]
                answers = in_halves(partial(self._send, lease), part)
                with self.lock:
                    for place, answer in zip(part, answers, strict=True):
                        self.places.used.popleft()
                        self._settle(place, answer)
                self.lease()  # positions may run out during a long report

    def _send(self, lease: int, places: Sequence[Place]) -> list[LiveAssignment | SteadyArmError]:
        used = [
            {
                "position": place.position,
                "unit": place.answer.unit,
                "created": place.answer.created.isoformat(),
            }
            for place in places
        ]
        found = self._remote.call(
            Assignments,
            *("POST", "leases", str(lease), "assignments"),
            body={"used": used},
            within=PATIENCE,
        )
        return self._remote.assignments_in(found, len(used))

    def _settle(self, place: Place, answer: LiveAssignment | SteadyArmError) -> None:
        mine = place.answer
        counts = isinstance(answer, LiveAssignment) and answer.id == mine.id
        self.places.reported(place, spare=not counts)
        if counts:
            return
        # Somebody else may get this position later: a reward of ours must not become theirs.
        self._void[mine.id] = None
        if isinstance(answer, LiveAssignment):
            self.conflicts += 1
            self.memory[mine.unit] = answer
        else:
            self.expired += 1
            if self.memory.get(mine.unit) == mine:
                self.memory.pop(mine.unit)
            log.warning("an assignment does not count: %s", answer)

    def _tell(self, rewards: list[Reported]) -> None:
        """Send rewards and take out what was answered to."""
        while rewards:
            part = rewards[:BATCH]
            valid = [one for one in part if _id_of(one[0]) not in self._void]
            outcomes = self._remote.tell_checked(valid)
            self.refused += len(part) - len(valid)
            again, failure = [], None
            for one, outcome in zip(valid, outcomes, strict=True):
                if _may_work_later(outcome):
                    again.append(one)
                    failure = outcome
                elif isinstance(outcome, SteadyArmError):
                    self.refused += 1
                    log.warning("a reward was refused: %s", outcome)
            rewards[: len(part)] = again
            if failure is not None:
                raise failure
            self.lease()

    def _run(self) -> None:
        while not self._stopped:
            try:
                self.work()
            except Exception as error:  # a thread has nobody to raise to
                log.info("local assignments wait to be reported: %s", error)
                self._awake.clear()
                self._awake.wait(AGAIN)
            self._awake.wait(INTERVAL)
            self._awake.clear()
            time.sleep(LEAST)


def _id_of(target: LiveAssignment | str) -> str:
    return target.id if isinstance(target, LiveAssignment) else target


def _may_work_later(outcome: object) -> TypeGuard[SteadyArmError]:
    """Whether this says nothing about the reward itself: the buffer is full, or cannot be used."""
    return isinstance(outcome, (ServiceError, StorageError)) and not isinstance(
        outcome, TooLargeError
    )
