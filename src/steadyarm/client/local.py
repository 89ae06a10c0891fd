"""LocalExperiment: variants assigned in this process, without a request for each.

A thread leases positions ahead from the service, reports those that were used, then sends rewards.
"""

from __future__ import annotations

import atexit
import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, islice
from threading import Event, Lock, Thread
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from steadyarm.client.pools import forget_after_fork, run
from steadyarm.client.transport import (
    BATCH,
    DOWN,
    PATIENCE,
    RecentUnits,
    TooLargeError,
    in_halves,
    understood,
)
from steadyarm.covariates import with_expected
from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    RewardsPendingError,
    ServiceError,
    SteadyArmError,
    StorageError,
)
from steadyarm.live.assignments import (
    At,
    LiveAssignment,
    LocalLease,
    Reported,
    Values,
    checked_unit,
    finite_values,
)
from steadyarm.live.attributes import Given, levels_in
from steadyarm.live.covariates import Covariates, values_in
from steadyarm.live.experiment import check_lease_time
from steadyarm.validation import whole_number
from steadyarm.wire.responses import Assignments, Leases, Released

if TYPE_CHECKING:
    from steadyarm.client.blocking import RemoteExperiment

log = logging.getLogger("steadyarm.client")

NAMELESS = "-"  # requests without a unit; reports need a name
INTERVAL = 0.2  # seconds between reports
LEAST = 0.01  # seconds between rounds of work, however often it is woken
AGAIN = 1.0  # seconds after a lease was refused until the next try
WAITING = 100_000  # rewards in the queue
VOID = 100_000  # ids that do not count which are remembered


class Known(NamedTuple):
    """What is known of a unit; the names are those of requests."""

    attributes: Given | None = None
    covariates: Covariates | None = None

    def given(self) -> dict[str, Any]:
        """For a request: what is given alone."""
        return {name: dict(each) for name, each in self._asdict().items() if each is not None}


NOTHING = Known()


class Place(NamedTuple):
    """One position that was assigned, to be reported."""

    lease: int
    position: int
    answer: LiveAssignment
    known: Known = NOTHING


class _Held:
    """A lease and how far it is used."""

    __slots__ = ("lease", "next", "open", "spare")

    def __init__(self, lease: LocalLease) -> None:
        self.lease, self.next = lease, lease.start
        self.open = 0  # assigned and not reported
        self.spare = 0  # assigned and not needed: the unit had another


class Places:
    """Leased positions in the order of their leases; whoever calls holds a lock.

    Times are those of the service's clock, in microseconds.
    """

    def __init__(self) -> None:
        self._ready: deque[_Held] = deque()
        self._spent: dict[int, _Held] = {}  # by lease: nothing more is assigned from these
        self.used: deque[Place] = deque()
        self.remaining = 0  # positions that are ready, some of which may have expired

    def add(self, leases: Iterable[LocalLease]) -> None:
        """Add positions to assign."""
        for lease in leases:
            self._ready.append(_Held(lease))
            self.remaining += lease.stop - lease.start

    def draw(self, unit: str, now: int, known: Known = NOTHING) -> LiveAssignment | None:
        """The next position's variant; None if there is none whose time is not over."""
        while self._ready:
            held = self._ready[0]
            if held.next < held.lease.stop and now < held.lease.until:
                answer = held.lease.assignment(held.next, unit, now)
                self.used.append(Place(held.lease.id, held.next, answer, known))
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
        """How many can be assigned at that time."""
        return sum(h.lease.stop - h.next for h in self._ready if now < h.lease.until)

    def reported(self, place: Place, spare: bool) -> None:
        """Note that the service knows of a position; spare if it did not need it."""
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


class LocalExperiment:
    """Assigns positions that were leased from the service; `RemoteExperiment.local` makes one.

    `ask` takes some microseconds and no request. A thread leases positions ahead, reports those
    used five times a second, and then sends the rewards reported here. Where there is no position,
    since the budget is spent or the service is down, `ask` asks the service after all, which takes
    some milliseconds, and answers with the default arm, if there is one, where that gives nothing.

    What that costs: a unit that another process knows, or this one before it was restarted, is new
    here. It may see another variant until its report is answered; the first one reported counts
    (`conflicts`). So this is for units that stay with a process, such as sessions; ask the service
    for visitors who come back. Pausing and stopping take effect when leases end. What was assigned
    in the last fifth of a second before a crash is lost, and so is what could not be reported until
    `close`, with its rewards: the client's buffer keeps rewards only. Positions that are leased
    cannot be used elsewhere and delay the policy's next decision, so lease few compared with the
    budget.

    While leases last a unit sees what it was given here. After that the service is asked, which may
    have stopped the test or rolled out a variant; if it is down the unit keeps what it had.

    Parameters
    ----------
    remote : the experiment
    positions : how many to lease at a time
    seconds : for how long

    Attributes
    ----------
    conflicts : units that had another assignment elsewhere, which counts from then on
    expired : assignments that do not count, since their report came too late
    refused : rewards that the service did not take, or whose assignment does not count
    closed : whether it was closed

    Examples
    --------
    Without a service it gives the default arm:

    >>> import steadyarm as sa
    >>> with sa.Client("http://127.0.0.1:9", retries=0, default_arm="A") as client:
    ...     with client.experiment("shop").local() as local:
    ...         local.ask("visitor 1").name
    'A'
    """

    def __init__(self, remote: RemoteExperiment, positions: int = 1000, seconds: float = 60.0):
        self.remote = remote
        self._positions = whole_number(positions, "positions", least=1)
        self._seconds = check_lease_time(seconds)
        self.conflicts = self.expired = self.refused = 0
        self.closed = False
        self._sticky: bool | None = None
        self._memory: RecentUnits[LiveAssignment] = RecentUnits()
        # Kept in the child of a fork: it must not ask again for what its parent has yet to report.
        self._until = 0  # the end of the last lease, up to which the test goes on for sure
        self._offset = 0  # microseconds: the service's clock minus this machine's monotonic one
        self.forget()
        try:
            self._sticky = remote.sticky
            error = self._lease()
            if isinstance(error, (InvalidInputError, ServiceError)):
                raise error
        except DOWN as error:  # the thread goes on trying
            log.warning("%r starts without positions to assign: %s", self, error)
        self._start()
        forget_after_fork(self)
        atexit.register(self.close)

    def __repr__(self) -> str:
        return f"LocalExperiment({self.remote.name!r}, {self.remote.client.url})"

    def forget(self) -> None:
        """Start without positions, queues and thread: in the child of a fork they are the parent's.

        What units were given is remembered, for the parent reports it; so is the end of its lease.
        """
        # The lock is for positions, memory and queues, and never held during a request.
        self._lock, self._places, self._asking = Lock(), Places(), Counter[str]()
        self._asked = True  # since the last lease: an idle process needs no new one
        self._threshold = 0  # positions that should be ready: what a moment needs, not more, for
        # leases ahead of their use let the policy decide on old rewards
        self._rewards: list[Reported] = []
        self._void: RecentUnits[None] = RecentUnits(VOID)
        self._turn, self._awake = Lock(), Event()
        self._not_before, self._paced = 0.0, time.monotonic()
        self._thread: Thread | None = None

    # Assignments and rewards

    def ask(
        self,
        unit: str | None = None,
        attributes: Given | None = None,
        covariates: Covariates | None = None,
        expected: float | None = None,
    ) -> LiveAssignment:
        """The variant to show to a unit.

        attributes, covariates, expected : what is known of the unit, as in `Experiment.ask`;
            reported with the assignment
        """
        name = self._checked(unit)
        known = NOTHING
        if attributes is not None or covariates is not None or expected is not None:
            known = Known(attributes, with_expected(covariates, expected))
            if self._sticky is not None:  # else the service checks them
                levels_in(self.remote.attributes, known.attributes)
                values_in(self.remote.covariates, known.covariates)
        answer = self._here(name, known)
        if answer is None:
            self._start()
        if answer is None or self._places.remaining <= self._threshold:
            self._awake.set()
        if answer is None and (before := self._memory.get(name)) is not None:
            answer = self._still(before, unit, known)
        if answer is None:
            ask = partial(self._elsewhere, unit, name, known)
            return run(self.remote.core.one_or_default(unit, ask))
        self.remote.outside.pop(unit or "")
        return answer

    def _still(self, before: LiveAssignment, unit: str | None, known: Known) -> LiveAssignment:
        """What a unit sees that had a variant before the last lease ended: the test may be over."""
        if self.remote.client.transport.breaker.allows():
            try:
                return run(self._elsewhere(unit, before.unit, known))
            except DOWN:
                pass
        return replace(before, new=False)

    def _here(self, name: str, known: Known) -> LiveAssignment | None:
        """What the unit was given, or else a leased position; None if there is none."""
        sticky = self._sticky
        with self._lock:
            before = self._memory.get(name) if sticky else None
            if before is not None and self._now() < self._until:
                return replace(before, new=False)
            self._asked = True
            if (
                before is not None
                or sticky is None
                or self.closed
                or (sticky and name in self._asking)
            ):
                return None
            answer = self._places.draw(name, self._now(), known)
            if sticky and answer is not None:
                self._memory[name] = answer
            return answer

    async def _elsewhere(self, unit: str | None, name: str, known: Known) -> LiveAssignment:
        refused: SteadyArmError | None = None
        try:
            with self._claimed(name):
                answer = await self.remote.core.ask_service(unit, *known)
                self._sticky = self.remote.sticky
                if self._sticky and answer.in_test:
                    with self._lock:
                        self._memory[name] = answer
                if answer.in_test:
                    return answer
        except (BudgetSpentError, RewardsPendingError) as error:
            refused = error
        # The last positions may be those that the thread is leasing just now.
        with self._turn:
            pass
        if (found := self._here(name, known)) is not None:
            return found
        if refused is not None:
            raise refused
        return answer

    @contextmanager
    def _claimed(self, name: str) -> Iterator[None]:
        """While the service is asked for a unit no other thread draws another variant for it."""
        with self._lock:
            self._asking[name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking[name] -= 1
                if not self._asking[name]:
                    del self._asking[name]

    def _checked(self, unit: str | None) -> str:
        # As the service checks: one bad unit must not come back with a whole report.
        return NAMELESS if unit is None and not self._sticky else checked_unit(unit)

    def tell(
        self,
        assignment: LiveAssignment | str,
        reward: Values,
        at: At = None,
        event: str | None = None,
    ) -> None:
        """The reward of an assignment, of its id, or of a unit; sent by the thread.

        It follows the report of its assignment. What the service does not take is logged and
        counted in `refused`.

        Parameters
        ----------
        assignment : what `ask` gave, its id, or a unit
        reward : what it brought
        at : when that happened; now by default
        event : identifies the report, so that it counts once
        """
        value = finite_values(reward)
        if isinstance(assignment, LiveAssignment):
            outside = not assignment.id
        else:
            outside = not isinstance(assignment, str) or assignment in self.remote.outside
        if outside:
            # Of a default arm, which is counted there; or of no kind.
            self.remote.tell(assignment, value, event=event)
            return
        with self._lock:
            if len(self._rewards) >= WAITING:
                raise ServiceError(
                    f"{WAITING} rewards wait for the service already; this one was not kept. "
                    "Report it again when the service is back."
                )
            self._rewards.append(
                (assignment, value, datetime.now(UTC) if at is None else at, event)
            )

    def flush(self) -> None:
        """Report assignments and rewards now; raises if the service is down, and loses nothing."""
        self._work()

    def close(self) -> None:
        """Report what is left, and give positions back."""
        if self.closed:
            return
        self.closed = True
        atexit.unregister(self.close)
        self._awake.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self._work()
        except SteadyArmError as error:
            visits, rewards = len(self._places.used), len(self._rewards)
            self.expired += visits
            self.refused += rewards
            log.warning("%d assignments, %d rewards were not delivered: %s", visits, rewards, error)

    def __enter__(self) -> LocalExperiment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The thread: it leases positions, reports what was assigned, then sends rewards

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self.closed:
                self._thread = Thread(target=self._run, name="steadyarm-local", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self.closed:
            try:
                self._work()
            except Exception as error:  # a thread has nobody to raise to
                log.info("local assignments wait to be reported: %s", error)
                self._awake.clear()
                self._awake.wait(AGAIN)
            self._awake.wait(INTERVAL)
            self._awake.clear()
            time.sleep(LEAST)

    def _work(self) -> None:
        """One round; raises if the service is down, and then nothing is lost."""
        with self._turn:
            self._lease()
            with self._lock:  # all assignments of these rewards are in `used` or were reported
                rewards, count = self._rewards, len(self._places.used)
                self._rewards = []
            now = time.monotonic()
            passed, self._paced = max(now - self._paced, LEAST), now
            self._threshold = min(round(count / passed * INTERVAL), self._positions // 2)
            try:
                self._report(count)
                self._send_rewards(rewards)
            except BaseException:
                with self._lock:
                    self._rewards = rewards + self._rewards
                raise
            with self._lock:
                done = self._places.finished(self._now(), every=self.closed)
            for lease in done:
                self.remote.call(Released, "DELETE", "leases", str(lease), within=PATIENCE)

    def _now(self) -> int:
        """The service's time, never behind it; see `_lease`."""
        return monotonic_ns() // 1000 + self._offset

    def _lease(self) -> SteadyArmError | None:
        """Get positions before they run out or expire; the error if that was refused."""
        margin = round(1e6 * min(self._seconds / 4, 5.0))
        with self._lock:
            enough = self._places.left(self._now() + margin) > self._threshold
        if enough or self.closed or not self._asked or time.monotonic() < self._not_before:
            return None
        before = monotonic_ns() // 1000
        try:
            body = {"positions": self._positions, "seconds": self._seconds}
            found = self.remote.call(Leases, "POST", "leases", body=body, repeatable=False)
            values = self.remote.values
            leases = understood(lambda: [lease.to_lease(values) for lease in found.leases])
        except SteadyArmError as error:
            self._not_before = time.monotonic() + AGAIN
            log.info("no positions to assign locally: %s", error)
            return error
        # Granted after `before`, by the service's clock at until - seconds: so the time that we
        # count is ahead of the service's by the way of the request, and nothing is used too late.
        self._until = max(lease.until for lease in leases)
        self._offset = self._until - round(1e6 * self._seconds) - before
        for lease in leases:
            lease.assignment(lease.start, "", 0)  # draws all its variants, here and not in `ask`
        with self._lock:
            self._places.add(leases)
            self._asked = False
        return None

    def _report(self, count: int) -> None:
        with self._lock:
            places = list(islice(self._places.used, count))
        for lease, group in groupby(places, key=lambda place: place.lease):
            of_lease = list(group)
            for i in range(0, len(of_lease), BATCH):
                part = of_lease[i : i + BATCH]
                reporting = in_halves(partial(self._send_report, lease), part)
                answers = run(reporting)
                with self._lock:
                    for place, answer in zip(part, answers, strict=True):
                        self._places.used.popleft()
                        self._settle(place, answer)
                self._lease()  # positions may run out during a long report

    async def _send_report(
        self, lease: int, places: Sequence[Place]
    ) -> list[LiveAssignment | SteadyArmError]:
        used = [
            {
                "position": place.position,
                "unit": place.answer.unit,
                "created": place.answer.created.isoformat(),
                **place.known.given(),
            }
            for place in places
        ]
        path = ("POST", "leases", str(lease), "assignments")
        core = self.remote.core
        found = await core.call(Assignments, *path, body={"used": used}, within=PATIENCE)
        return core.assignments_in(found, len(used))

    def _settle(self, place: Place, answer: LiveAssignment | SteadyArmError) -> None:
        mine = place.answer
        counts = isinstance(answer, LiveAssignment) and answer.id == mine.id
        self._places.reported(place, spare=not counts)
        if counts:
            return
        # Somebody else may get this position later: a reward of ours must not become theirs.
        self._void[mine.id] = None
        if isinstance(answer, LiveAssignment):
            self.conflicts += 1
            self._memory[mine.unit] = answer
        else:
            self.expired += 1
            if self._memory.get(mine.unit) == mine:
                self._memory.pop(mine.unit)
            log.warning("an assignment does not count: %s", answer)

    def _send_rewards(self, rewards: list[Reported]) -> None:
        """Send rewards and take out what was answered to."""
        while rewards:
            part = rewards[:BATCH]
            valid = [one for one in part if _id_of(one[0]) not in self._void]
            outcomes = self.remote.tell_checked(valid)
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
            self._lease()


def _id_of(target: LiveAssignment | str) -> str:
    return target.id if isinstance(target, LiveAssignment) else target


def _may_work_later(outcome: object) -> TypeGuard[SteadyArmError]:
    """Whether this says nothing about the reward itself: the buffer is full, or cannot be used."""
    return isinstance(outcome, (ServiceError, StorageError)) and not isinstance(
        outcome, TooLargeError
    )
