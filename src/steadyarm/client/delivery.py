"""Delivery: sends kept rewards when the service is back, in batches, in a thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Lock, Thread
from typing import TypeVar

from steadyarm.client.buffer import Kept, RewardBuffer, Told
from steadyarm.client.forks import forget_after_fork
from steadyarm.client.problems import ServiceDownError, TooLargeError
from steadyarm.client.reading import Outcome, outcome_in, results_in, understood
from steadyarm.client.transport import PATIENCE, Transport
from steadyarm.errors import InvalidInputError, ServiceError, SteadyArmError, StorageError

__all__ = ["BATCH", "Delivery", "in_halves", "send_rewards"]

Item = TypeVar("Item")
Result = TypeVar("Result")

log = logging.getLogger("steadyarm.client")

BATCH = 250  # things in one request: well below what services take, unless set up otherwise
SOONEST, LATEST = 1.0, 30.0  # seconds between tries while the service is down


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
                pause = min(2 * pause, LATEST)
                log.info("kept rewards wait on: %s", error)
