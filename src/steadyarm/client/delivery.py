"""How rewards reach the service: now, or from the buffer when it is back, in a thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Sequence
from datetime import timedelta
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, TypeVar

from steadyarm.client.buffer import BufferedReward, Outcome, RewardBuffer, RewardReport
from steadyarm.client.transport import (
    DOWN,
    PATIENCE,
    ServiceDownError,
    TooLargeError,
    Transport,
    each_in,
    forget_after_fork,
)
from steadyarm.errors import InvalidInputError, ServiceError, SteadyArmError, StorageError
from steadyarm.live.assignments import At, LiveAssignment, Reported
from steadyarm.storages.records import LATEST, parse_assignment_id, to_micros
from steadyarm.validation import finite_number
from steadyarm.wire.responses import RewardStatus, RewardStatuses
from steadyarm.wording import shortened

if TYPE_CHECKING:
    from steadyarm.client.client import Client


Item = TypeVar("Item")
Result = TypeVar("Result")

log = logging.getLogger("steadyarm.client")

BATCH = 250  # entries of one request: well below what services accept, unless set up otherwise
SOONEST, LONGEST = 1.0, 30.0  # seconds between tries while the service is down


def send_rewards(
    transport: Transport, experiment: str, rewards: Sequence[RewardReport]
) -> list[Outcome | SteadyArmError]:
    """Whether each reward is "stored" or "repeated", or why it is refused; see `in_halves`."""

    def send(part: Sequence[RewardReport]) -> list[Outcome | SteadyArmError]:
        found = transport.call(
            RewardStatuses,
            *("POST", "experiments", experiment, "rewards:batch"),
            body={"rewards": [one.to_dict() for one in part]},
            within=PATIENCE,
            stamped=True,
        )
        each = each_in(found.rewards, RewardStatus, len(part))
        return [one if isinstance(one, SteadyArmError) else one.status for one in each]

    return in_halves(send, rewards)


def in_halves(
    send: Callable[[Sequence[Item]], list[Result]],
    items: Sequence[Item],
    raising: type[SteadyArmError] | tuple[type[SteadyArmError], ...] = (ServiceError, StorageError),
) -> list[Result | SteadyArmError]:
    """Results of `send`, also if one item makes it refuse all of them, or they are too many.

    raising : errors that say nothing about the items; others take the place of each

    Examples
    --------
    >>> def send(items):
    ...     if "bad" in items:
    ...         raise InvalidInputError("one is bad.")
    ...     return [item.upper() for item in items]
    >>> in_halves(send, ["a", "b", "bad", "d"])
    ['A', 'B', InvalidInputError('one is bad.'), 'D']
    """
    try:
        return [*send(items)]
    except (InvalidInputError, TooLargeError) as error:
        if len(items) == 1:
            return [error]
        middle = len(items) // 2
        first = in_halves(send, items[:middle], raising)
        return first + in_halves(send, items[middle:], raising)
    except raising:
        raise
    except SteadyArmError as error:
        return [error] * len(items)


class Delivery:
    """Empties a buffer into a service.

    Attributes
    ----------
    rejected : rewards that the service refused for good, and that were moved aside
    """

    def __init__(self, transport: Transport, buffer: RewardBuffer) -> None:
        self.buffer, self.rejected = buffer, 0
        self._transport = transport
        self.forget()
        # Another process may have sent what waits; what this process buffers is never overlooked.
        self.waiting = self.pending > 0
        transport.recovered = self.wake
        forget_after_fork(self)
        self.wake()

    @property
    def pending(self) -> int:
        """How many rewards wait."""
        return self.buffer.count(self._transport.url)

    def keep(
        self, experiment: str, rewards: Sequence[RewardReport]
    ) -> list[Outcome | SteadyArmError]:
        """Buffer rewards and send them later; "kept" for each, or why it is not."""
        outcomes = self.buffer.keep(self._transport.url, experiment, rewards)
        self.waiting = True
        self._start()
        return outcomes

    def holds(self, experiment: str, report: RewardReport) -> bool:
        """Whether this reward waits already; RepeatedRewardError if another one does."""
        return self.waiting and self.buffer.holds(self._transport.url, experiment, report)

    def deliver(self) -> int:
        """Send until nothing waits; the number sent. Raises if the service is down."""
        sent = 0
        with self.buffer.sending() as mine:
            while mine and (batch := self.buffer.oldest(self._transport.url, BATCH)):
                sent += len(batch)
                self._deliver(batch)
            if mine:
                self.waiting = False
                if self.pending:  # buffered meanwhile
                    self.waiting = True
        return sent

    def _deliver(self, batch: list[BufferedReward]) -> None:
        rewards = [one.report for one in batch]
        results = send_rewards(self._transport, batch[0].experiment, rewards)
        refused = [
            (one, result)
            for one, result in zip(batch, results, strict=True)
            if isinstance(result, SteadyArmError)
        ]
        self.buffer.settle(batch, refused)
        self.rejected += len(refused)
        for one, result in refused:
            log.warning("a buffered reward of %r was refused: %s", one.report.target, result)

    def flush(self, within: float) -> None:
        """Return when nothing waits any more; ServiceError if that takes longer."""
        deadline = time.monotonic() + within
        while self.pending:
            self.deliver()
            if time.monotonic() > deadline:
                raise ServiceDownError(
                    f"{self.pending} rewards still wait after {within:g} seconds; another process "
                    "may be sending them."
                )
            if self.pending:
                time.sleep(0.05)

    def wake(self) -> None:
        """Try now, in the thread."""
        if self.waiting:
            self._start()
            self._awake.set()

    def close(self) -> None:
        """Stop the thread; what waits stays in the file, for the next process."""
        self._stopped = True
        self._awake.set()
        if self._thread is not None:
            self._thread.join(self._transport.timeout)  # it may hang on a service that hangs

    def forget(self) -> None:
        """Start without a thread, as the child of a fork has none."""
        self._lock, self._awake, self._stopped = Lock(), Event(), False
        self._thread: Thread | None = None

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopped:
                self._thread = Thread(target=self._run, name="steadyarm-rewards", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = SOONEST
        while not self._stopped:
            self._awake.wait(pause)
            self._awake.clear()
            if self._stopped or not self.waiting:
                continue
            try:
                self.deliver()
                pause = SOONEST
            except Exception as error:  # a thread has nobody to raise to; closing may cut it short
                pause = min(2 * pause, LONGEST)
                log.info("buffered rewards wait on: %s", error)


Send = Callable[[Sequence[RewardReport]], list[Outcome | SteadyArmError]]


class RewardSender:
    """Decides which rewards of an experiment are sent, buffered or ignored.

    Attributes
    ----------
    tag : with which the experiment's ids begin, once one was seen
    """

    def __init__(self, client: Client, name: str) -> None:
        self.tag: str | None = None
        self._client, self._name = client, name

    def tell(
        self, rewards: Sequence[Reported], send: Send, outside: Container[str] = ()
    ) -> list[Outcome | SteadyArmError]:
        """What becomes of each reward; those that can be sent are sent together.

        outside : units whose rewards are not part of the test, because they saw a default arm
        """
        outcomes: list[Outcome | SteadyArmError | None] = []
        sending: list[RewardReport] = []
        for target, reward, *at in rewards:
            try:
                report = self._report(target, reward, at[0] if at else None)
                outcomes.append(self._here(report, outside))
            except SteadyArmError as error:
                outcomes.append(error)
            if outcomes[-1] is None:
                sending.append(report)
        sent = iter(self._send_or_keep(sending, send) if sending else ())
        return [next(sent) if outcome is None else outcome for outcome in outcomes]

    def _here(self, report: RewardReport, outside: Container[str]) -> Outcome | None:
        """What becomes of a reward without the service; None if it must be sent."""
        if not report.target or (report.kind == "unit" and report.target in outside):
            self._client.count("ignored")
            return "ignored"
        delivery = self._client.delivery
        return "kept" if delivery and delivery.holds(self._name, report) else None

    def _send_or_keep(
        self, rewards: Sequence[RewardReport], send: Send
    ) -> list[Outcome | SteadyArmError]:
        delivery = self._client.delivery
        if delivery is None:
            return send(rewards)
        if self._client.transport.breaker.allows():
            try:
                return send(rewards)
            except DOWN:
                pass
        return delivery.keep(self._name, rewards)

    def _report(self, target: LiveAssignment | str, reward: float, at: At) -> RewardReport:
        value = finite_number(reward, "the reward")
        when = time.time()
        if isinstance(at, timedelta):
            when -= at.total_seconds()
        elif at is not None:
            when = to_micros(at, LATEST) / 1e6
        if isinstance(target, LiveAssignment):
            return RewardReport("assignment", target.id, value, when)
        if not isinstance(target, str):
            raise InvalidInputError(
                f"the reward is of {target!r}; expected an assignment, its id, or a unit."
            )
        try:
            target.encode()
        except UnicodeEncodeError:  # neither the service nor the buffer can store it
            raise InvalidInputError(
                f"the reward is of {shortened(target)}, which is no proper text; expected one "
                "without halves of characters."
            ) from None
        # The service, too, takes a "unit" in the form of this experiment's ids for an id.
        known = self.tag is not None and parse_assignment_id(target, self.tag) is not None
        return RewardReport("assignment" if known else "unit", target, value, when)
