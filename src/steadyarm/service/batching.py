"""Group commit: requests that arrive while a transaction runs share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

__all__ = ["Batcher"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST = 500  # items of one transaction
TURNS = 3  # of the event loop between two batches; microseconds if there is little to do


class Batcher(Generic[Item, Answer]):
    """Collects items of many requests and hands them to `work` in a thread, one batch at a time.

    No timers: an item that finds nothing running starts at once, with all that arrived in the same
    turn of the event loop. All methods are called in that loop.

    Parameters
    ----------
    work : answers a batch, item by item; what it raises is the answer to all of them
    pool : where it runs
    done : told the size of every batch
    most : items of one batch
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Sequence[Answer]],
        pool: Executor,
        done: Callable[[int], object],
        most: int = MOST,
    ) -> None:
        self._work, self._pool, self._done, self._most = work, pool, done, most
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Item, asyncio.Future[Answer | Exception]]] = []
        self._busy = False

    def put(self, item: Item) -> asyncio.Future[Answer | Exception]:
        """The answer to one item, to be awaited; an error is given, not raised."""
        future: asyncio.Future[Answer | Exception] = self._loop.create_future()
        self._waiting.append((item, future))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._next)
        return future

    async def drained(self) -> None:
        """Return when nothing waits any more."""
        while self._busy:
            await asyncio.sleep(0.005)

    def _next(self) -> None:
        batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        if batch:
            self._pool.submit(self._run, batch)
        else:
            self._busy = False

    def _run(self, batch: list[tuple[Item, asyncio.Future[Answer | Exception]]]) -> None:
        answers: Sequence[Answer | Exception]
        try:
            answers = self._work([item for item, _ in batch])
        except Exception as error:  # the answer of all; handlers know what to make of it
            answers = [error] * len(batch)
        futures = [future for _, future in batch]
        self._loop.call_soon_threadsafe(self._deliver, futures, answers)

    def _deliver(
        self,
        futures: list[asyncio.Future[Answer | Exception]],
        answers: Sequence[Answer | Exception],
    ) -> None:
        self._done(len(futures))
        for future, answer in zip(futures, answers, strict=True):
            if not future.done():  # its request may have been cancelled
                future.set_result(answer)
        self._pass(TURNS)

    def _pass(self, turns: int) -> None:
        """Let answers go out, and what has arrived meanwhile come in: batches are larger so."""
        if turns:
            self._loop.call_soon(self._pass, turns - 1)
        else:
            self._next()
