"""Delivery: sends kept rewards when the service is back, in batches, in a thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Sequence
from datetime import timedelta
from functools import partial
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, TypeVar

from steadyarm.client.buffer import Kept, RewardBuffer, Told
from steadyarm.client.responses import (
    DOWN,
    Outcome,
    ServiceDownError,
    TooLargeError,
    outcome_in,
    results_in,
    understood,
)
from steadyarm.client.transport import PATIENCE, Transport, forget_after_fork
from steadyarm.errors import InvalidInputError, ServiceError, SteadyArmError, StorageError
from steadyarm.live.assignments import (
    LATEST,
    At,
    LiveAssignment,
    Reported,
    parse_assignment_id,
    shortened,
    to_micros,
)
from steadyarm.validation import finite_number

if TYPE_CHECKING:
    from steadyarm.client.client import Client

__all__ = ["BATCH", "Delivery", "Telling", "in_halves", "send_rewards"]

Item = TypeVar("Item")
Result = TypeVar("Result")

log = logging.getLogger("steadyarm.client")

BATCH = 250  # things in one request: well below what services take, unless set up otherwise
SOONEST, LONGEST = 1.0, 30.0  # seconds between tries while the service is down


def send_rewards(
    transport: Transport, experiment: str, rewards: Sequence[Told]
) -> list[Outcome | SteadyArmError]:
    """What the service says to each: "stored", "repeated" or why it refuses; see `in_halves`."""
    return in_halves(partial(_send, transport, experiment), rewards)


def _send(
    transport: Transport, experiment: str, rewards: Sequence[Told]
) -> list[Outcome | SteadyArmError]:
    body = {"rewards": [told.to_dict() for told in rewards]}
    answer = transport.call(
        *("POST", "experiments", experiment, "rewards:batch"),
        body=body,
        within=PATIENCE,
        stamped=True,
    )
    found = understood(results_in, answer, "rewards", len(rewards))
    return [one if isinstance(one, SteadyArmError) else outcome_in(one) for one in found]


def in_halves(
    send: Callable[[Sequence[Item]], list[Result]],
    items: Sequence[Item],
    raising: type[SteadyArmError] | tuple[type[SteadyArmError], ...] = (ServiceError, StorageError),
) -> list[Result | SteadyArmError]:
    """The same results, also if one item makes the service refuse them all, or they are too many.

    raising : errors that say nothing about the items; others stand in the place of each

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
        self._forget_thread()
        self.waiting = self.pending > 0  # may be stale if another process sends; never if we keep
        transport.recovered = self.wake
        forget_after_fork(self)
        if self.waiting:
            self.wake()

    @property
    def pending(self) -> int:
        """How many rewards wait."""
        return self.buffer.count(self._transport.url)

    def keep(self, experiment: str, rewards: Sequence[Told]) -> list[Outcome | SteadyArmError]:
        """Write rewards down and send them later; "kept" for each, or why it is not."""
        outcomes = self.buffer.keep(self._transport.url, experiment, rewards)
        self.waiting = True
        self._start()
        return outcomes

    def holds(self, experiment: str, told: Told) -> bool:
        """Whether this reward waits already; RepeatedRewardError if another one does."""
        return self.waiting and self.buffer.holds(self._transport.url, experiment, told)

    def deliver(self) -> int:
        """Send what waits until nothing does; the number sent. Raises if the service is down."""
        sent = 0
        with self.buffer.sending() as mine:
            while mine and (batch := self.buffer.oldest(self._transport.url, BATCH)):
                sent += len(batch)
                self._deliver(batch)
            if mine:
                self.waiting = False
                if self.pending:  # kept meanwhile
                    self.waiting = True
        return sent

    def _deliver(self, batch: list[Kept]) -> None:
        rewards = [kept.told for kept in batch]
        results = send_rewards(self._transport, batch[0].experiment, rewards)
        refused = [
            (kept, result)
            for kept, result in zip(batch, results, strict=True)
            if isinstance(result, SteadyArmError)
        ]
        self.buffer.settle(batch, refused)
        self.rejected += len(refused)
        for kept, result in refused:
            log.warning("a kept reward of %r was refused: %s", kept.told.target, result)

    def flush(self, within: float) -> None:
        """Return when nothing waits any more; ServiceError if that is not so in time."""
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
        """The child of a fork has no thread."""
        self._forget_thread()

    def _forget_thread(self) -> None:
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
                log.info("kept rewards wait on: %s", error)


# Telling: which rewards are sent, which wait in the buffer, and which are of no test.


Send = Callable[[Sequence[Told]], list[Outcome | SteadyArmError]]


class Telling:
    """Rewards of one experiment, on their way to the service.

    Attributes
    ----------
    tag : that the experiment's ids begin with, once one was seen
    """

    def __init__(self, client: Client, name: str) -> None:
        self.tag: str | None = None
        self._client, self._name = client, name

    def tell(
        self,
        rewards: Sequence[Reported],
        send: Send,
        outside: Container[str] = (),
    ) -> list[Outcome | SteadyArmError]:
        """What becomes of each reward; those that can be sent are, together.

        outside : units whose rewards are of no test, since they were shown a default arm
        """
        outcomes: list[Outcome | SteadyArmError | None] = []
        sending: list[Told] = []
        for target, reward, *at in rewards:
            try:
                told = self._told(target, reward, at[0] if at else None)
                outcomes.append(self._here(told, outside))
            except SteadyArmError as error:
                outcomes.append(error)
            if outcomes[-1] is None:
                sending.append(told)
        sent = iter(self._or_keep(sending, send) if sending else ())
        return [next(sent) if outcome is None else outcome for outcome in outcomes]

    def _here(self, told: Told, outside: Container[str]) -> Outcome | None:
        """What becomes of it without the service; None if that must be asked."""
        if not told.target or (told.kind == "unit" and told.target in outside):
            self._client.count("ignored")
            return "ignored"
        return "kept" if self._client.holds(self._name, told) else None

    def _or_keep(self, rewards: Sequence[Told], send: Send) -> list[Outcome | SteadyArmError]:
        if not self._client.buffers:
            return send(rewards)
        if self._client.transport.breaker.allows():
            try:
                return send(rewards)
            except DOWN:
                pass
        return self._client.keep(self._name, rewards)

    def _told(self, target: LiveAssignment | str, reward: float, at: At) -> Told:
        value = finite_number(reward, "the reward")
        when = time.time()
        if isinstance(at, timedelta):
            when -= at.total_seconds()
        elif at is not None:
            when = to_micros(at, LATEST) / 1e6
        if isinstance(target, LiveAssignment):
            return Told("assignment", target.id, value, when)
        if not isinstance(target, str):
            raise InvalidInputError(
                f"the reward is of {target!r}; expected what ask() gave, its id, or a unit."
            )
        try:
            target.encode()
        except UnicodeEncodeError:  # neither the service nor the buffer can have it
            raise InvalidInputError(
                f"the reward is of {shortened(target)}, which is no proper text; expected one "
                "without halves of characters."
            ) from None
        # The service, too, takes a "unit" in the form of this experiment's ids for an id.
        known = self.tag is not None and parse_assignment_id(target, self.tag) is not None
        return Told("assignment" if known else "unit", target, value, when)
