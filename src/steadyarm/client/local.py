"""LocalExperiment: variants assigned in this process, without a request for each."""

from __future__ import annotations

import atexit
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from steadyarm.client.fallback import RecentUnits
from steadyarm.client.transport import DOWN, forget_after_fork
from steadyarm.client.worker import Worker
from steadyarm.errors import (
    BudgetSpentError,
    InvalidInputError,
    RewardsPendingError,
    ServiceError,
)
from steadyarm.live.assignments import At, LiveAssignment
from steadyarm.live.experiment import LONGEST, LONGEST_LEASE
from steadyarm.validation import finite_number, whole_number
from steadyarm.wording import shortened

if TYPE_CHECKING:
    from steadyarm.client.remote import RemoteExperiment


log = logging.getLogger("steadyarm.client")

NAMELESS = "-"  # requests without a unit; reports want a name


class LocalExperiment:
    """Hands out positions that were leased from the service; `RemoteExperiment.local` makes one.

    `ask` takes some microseconds and no request. A thread leases positions ahead, reports those
    used five times a second, and then sends the rewards told here. Where there is no position,
    since the budget is spent or the service is down, `ask` asks the service after all, which takes
    some milliseconds, and answers with the default arm, if there is one, where that gives nothing.

    What that costs: a unit that another process knows, or this one before it was restarted, is new
    here. It may see another variant until its report is answered; the first one reported counts
    (`conflicts`). So this is for units that stay with a process, such as sessions; ask the service
    for visitors who come back. Pausing and stopping take effect when leases end. What was handed
    out in the last fifth of a second before a crash is lost, and so is what could not be reported
    until `close`, with its rewards: the client's buffer keeps rewards only. Positions that are
    leased cannot be used elsewhere and hold up the policy's next look, so lease few compared with
    the budget.

    Attributes
    ----------
    conflicts : units that had another assignment elsewhere, which counts from then on
    expired : assignments that do not count, since their report came too late
    refused : rewards that the service did not take, or whose assignment does not count
    """

    def __init__(self, remote: RemoteExperiment, positions: int = 1000, seconds: float = 60.0):
        whole_number(positions, "positions", least=1)
        if not 0 < finite_number(seconds, "seconds") <= LONGEST_LEASE:
            raise InvalidInputError(
                f"seconds is {seconds:g}; expected a time above 0 and up to {LONGEST_LEASE}."
            )
        self.remote = remote
        self._sticky: bool | None = None
        self._memory: RecentUnits[LiveAssignment] = RecentUnits()
        self._asking: Counter[str] = Counter()
        self._worker = Worker(remote, positions, float(seconds), self._memory)
        self.closed = False
        try:
            self._sticky = remote.sticky
            error = self._worker.lease()
            if isinstance(error, (InvalidInputError, ServiceError)):
                raise error
        except DOWN as error:  # the thread goes on trying
            log.warning("%r starts without positions to hand out: %s", self, error)
        self._worker.start()
        forget_after_fork(self)
        atexit.register(self.close)

    def __repr__(self) -> str:
        return f"LocalExperiment({self.remote.name!r}, {self.remote.client.url})"

    @property
    def conflicts(self) -> int:
        """Units that had another assignment elsewhere."""
        return self._worker.conflicts

    @property
    def expired(self) -> int:
        """Assignments whose report came too late."""
        return self._worker.expired

    @property
    def refused(self) -> int:
        """Rewards that the service did not take."""
        return self._worker.refused

    def ask(self, unit: str | None = None) -> LiveAssignment:
        """The variant to show to a unit."""
        worker = self._worker
        answer = self._here(self._checked(unit))
        if answer is None and not self.closed:
            worker.start()
        if answer is None or worker.places.remaining <= worker.threshold:
            worker.wake()
        if answer is None:
            return self.remote.one_or_default(unit, lambda: self._elsewhere(unit))
        self.remote.outside.pop(unit or "")
        return answer

    def _here(self, name: str) -> LiveAssignment | None:
        """What the unit was given, or else a leased position; None if there is none."""
        worker, sticky = self._worker, self._sticky
        with worker.lock:
            if sticky and (known := self._memory.get(name)) is not None:
                return LiveAssignment(
                    known.id,
                    name,
                    known.arm,
                    known.name,
                    known.probability,
                    known.created,
                    False,
                )
            worker.asked = True
            if sticky is None or self.closed or (sticky and name in self._asking):
                return None
            answer = worker.places.draw(name, worker.now())
            if sticky and answer is not None:
                self._memory[name] = answer
            return answer

    def _elsewhere(self, unit: str | None) -> LiveAssignment:
        name, worker = self._checked(unit), self._worker
        try:
            with self._claimed(name):
                answer = self.remote.ask_service(unit)
                self._sticky = self.remote.sticky
                if self._sticky:
                    with worker.lock:
                        self._memory[name] = answer
                return answer
        except (BudgetSpentError, RewardsPendingError):
            # The last positions may be those that the thread has leased just now.
            worker.await_turn()
            if (found := self._here(name)) is None:
                raise
            return found

    @contextmanager
    def _claimed(self, name: str) -> Iterator[None]:
        """While the service is asked for a unit no other thread draws another variant for it."""
        with self._worker.lock:
            self._asking[name] += 1
        try:
            yield
        finally:
            with self._worker.lock:
                self._asking[name] -= 1
                if not self._asking[name]:
                    del self._asking[name]

    def tell(self, assignment: LiveAssignment | str, reward: float, at: At = None) -> None:
        """The reward of an assignment, of its id, or of a unit; sent by the thread.

        It follows the report of its assignment. What the service does not take is logged and
        counted in `refused`.
        """
        value = finite_number(reward, "the reward")
        if isinstance(assignment, LiveAssignment):
            outside = not assignment.id
        else:
            outside = not isinstance(assignment, str) or assignment in self.remote.outside
        if outside:
            self.remote.tell(assignment, value)  # of a default arm: counted there; or of no kind
            return
        self._worker.queue(assignment, value, datetime.now(UTC) if at is None else at)

    def flush(self) -> None:
        """Report and tell now; ServiceError if the service is down, and then nothing is lost."""
        self._worker.work()

    def close(self) -> None:
        """Report and tell what is left, and give positions back."""
        if not self.closed:
            self.closed = True
            atexit.unregister(self.close)
            self._worker.close()

    def __enter__(self) -> LocalExperiment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def forget(self) -> None:
        """In the child of a fork: positions, queues and the thread are the parent's.

        What units were given is remembered, for the parent reports it.
        """
        self._worker.reset()
        self._asking.clear()

    def _checked(self, unit: str | None) -> str:
        # As the service checks: one bad unit must not come back with a whole report.
        if unit is None and not self._sticky:
            return NAMELESS
        if isinstance(unit, str) and 0 < len(unit) <= LONGEST and "\0" not in unit:
            if unit.isascii():
                return unit
            try:
                unit.encode()
                return unit
            except UnicodeEncodeError:
                pass
        raise InvalidInputError(
            f"the unit is {shortened(unit)}; expected a text of 1 to {LONGEST} characters that "
            "names who gets the variant, such as a visitor's id."
        )
