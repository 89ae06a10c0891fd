"""Batches, turns and limits: how requests share transactions and threads.

Requests that arrive while a transaction is being written share the next one, and experiments take
turns. Limits say how much may wait, and for how long, if storage is slower than traffic.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from math import inf
from typing import Any, Generic, NoReturn, TypeVar

from steadyarm.errors import SteadyArmError
from steadyarm.service.problems import RefusedError

Item = TypeVar("Item")
Answer = TypeVar("Answer")
T = TypeVar("T")

LATE = 0.05  # seconds after which waiting items are looked up
MOST = 500  # items of one transaction
PAUSE = 3  # turns of the event loop between two batches; microseconds if there is little to do


class _Entry(Generic[Item, Answer]):
    """The items of a request, where their answers go, and since when they wait to be looked up."""

    __slots__ = ("future", "items", "since")

    def __init__(
        self, items: Sequence[Item], future: asyncio.Future[list[Answer]], now: float
    ) -> None:
        self.items, self.future, self.since = items, future, now


class Batcher(Generic[Item, Answer]):
    """Collects items of many requests and passes them to `work`, one batch at a time.

    If nothing runs, a request starts at once, with all that arrived in the same turn of the event
    loop. The items of a request stay together. All methods are called in that loop.

    Parameters
    ----------
    work : answers a batch, item by item; an error that it raises is the answer to all requests
    done : called with the number of requests of every batch
    look_up : answers items without waiting for `work` if it can, and gives None for others; it is
        also given since when they wait, in the time of the event loop, which is LATE ago or more
    most : items of one batch, unless a single request has more
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Awaitable[Sequence[Answer]]],
        done: Callable[[int], object],
        look_up: Callable[[list[Item], float], Awaitable[Sequence[Answer | None]]] | None = None,
        most: int = MOST,
    ) -> None:
        self._work, self._done, self._look_up, self._most = work, done, look_up, most
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Entry[Item, Answer]] = []
        self._batch: list[_Entry[Item, Answer]] = []
        self._busy = self._watched = False
        self._tasks = set[asyncio.Task[None]]()

    def put(self, items: Sequence[Item]) -> asyncio.Future[list[Answer]]:
        """Add the items of a request; the future gives their answers."""
        future: asyncio.Future[list[Answer]] = self._loop.create_future()
        self._waiting.append(_Entry(items, future, self._loop.time()))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._next)
        return future

    async def drained(self) -> None:
        """Return when nothing waits any more."""
        while self._busy:
            await asyncio.sleep(0.005)

    def _next(self) -> None:
        # A request that timed out does not wait any more.
        waiting = [entry for entry in self._waiting if not entry.future.done()]
        self._batch, self._waiting = self._first(waiting)
        if not self._batch:
            self._busy = False
            return
        self._begin(self._run(self._batch))
        if self._look_up is not None and not self._watched:
            self._watched = True
            self._loop.call_later(LATE, self._watch)

    def _first(
        self, entries: list[_Entry[Item, Answer]]
    ) -> tuple[list[_Entry[Item, Answer]], list[_Entry[Item, Answer]]]:
        """The requests of the next batch, and the others."""
        size = 0
        for i, entry in enumerate(entries):
            size += len(entry.items)
            if i and size > self._most:
                return entries[:i], entries[i:]
        return entries, []

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)  # the loop itself would let it go
        task.add_done_callback(self._tasks.discard)

    async def _run(self, batch: list[_Entry[Item, Answer]]) -> None:
        try:
            answers = iter(await self._work([item for entry in batch for item in entry.items]))
        except Exception as error:  # the answer to all; handlers know what to make of it
            for entry in batch:
                if not entry.future.done():
                    entry.future.set_exception(error)
        else:
            for entry in batch:
                mine = list(islice(answers, len(entry.items)))
                # A request may have been cancelled, or answered by looking up.
                if not entry.future.done():
                    entry.future.set_result(mine)
        self._done(len(batch))
        self._pass(PAUSE)

    def _pass(self, turns: int) -> None:
        """Let responses go out and requests come in first, which makes batches larger."""
        if turns:
            self._loop.call_soon(self._pass, turns - 1)
        else:
            self._next()

    def _watch(self) -> None:
        """Look up items that wait long, each once."""
        if not self._busy:
            self._watched = False
            return
        self._loop.call_later(LATE, self._watch)
        late = self._loop.time() - LATE
        found = [entry for entry in (*self._batch, *self._waiting) if entry.since <= late]
        while found:
            some, found = self._first(found)
            self._begin(self._find(some))

    async def _find(self, entries: list[_Entry[Item, Answer]]) -> None:
        """Answer the requests of which all items are found."""
        assert self._look_up is not None
        since = min(entry.since for entry in entries)
        for entry in entries:
            entry.since = inf
        with suppress(SteadyArmError):  # then they wait on
            items = [item for entry in entries for item in entry.items]
            answers = iter(await self._look_up(items, since))
            for entry in entries:
                mine = [one for one in islice(answers, len(entry.items)) if one is not None]
                if len(mine) == len(entry.items) and not entry.future.done():
                    entry.future.set_result(mine)


class Turns:
    """Threads that work for experiments in turn, one piece of work of each.

    So an experiment with much or slow work delays others by one piece of it at most. All methods
    are called in the event loop.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool, self._free = ThreadPoolExecutor(threads, name), threads
        self._waiting: OrderedDict[str, deque[tuple[Callable[[], Any], asyncio.Future[Any]]]]
        self._waiting = OrderedDict()

    def submit(self, whose: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run work when it is this experiment's turn; the future gives its result or error."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(whose, deque()).append((work, future))
        self._start()
        return future

    def shutdown(self) -> None:
        """Wait for the threads."""
        self._pool.shutdown()

    def _start(self) -> None:
        while self._free and self._waiting:
            whose, queue = self._waiting.popitem(last=False)
            work, future = queue.popleft()
            if queue:
                self._waiting[whose] = queue  # behind all others
            if not future.cancelled():
                self._free -= 1
                self._pool.submit(self._run, work, future)

    def _run(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        future.get_loop().call_soon_threadsafe(self._end, future, result, failure)

    def _end(self, future: asyncio.Future[Any], result: Any, failure: Exception | None) -> None:
        self._free += 1
        if future.cancelled():
            pass
        elif failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(result)
        self._start()


class Load:
    """Counts what waits: items to be written, by experiment and in all, and bytes of bodies.

    Parameters
    ----------
    things : items that may wait in all; half as many of one experiment
    most : bytes of bodies of requests that are being processed
    strangers : the same for people who have not signed in, who use up no others' share

    Attributes
    ----------
    shed : requests that were refused
    """

    def __init__(self, things: int, most: int, strangers: int) -> None:
        self.shed = 0
        self._things, self._most = things, {True: most, False: strangers}
        self._waiting: dict[str, int] = {}
        self._all, self._bytes = 0, {True: 0, False: 0}

    def add(self, whose: str, count: int = 1) -> None:
        """Count items of an experiment that begin to wait; RefusedError if they are too many."""
        before = self._waiting.get(whose, 0)
        if self._all + count > self._things or 2 * (before + count) > self._things:
            self._refuse(
                f"{before:,} assignments and rewards of {whose!r} wait to be written, "
                f"{self._all:,} of all experiments"
            )
        self._waiting[whose] = before + count
        self._all += count

    def remove(self, whose: str, count: int = 1) -> None:
        """Count items that do not wait any more."""
        self._all -= count
        self._waiting[whose] -= count

    def hold(self, size: int, known: bool) -> None:
        """Count bytes of a body that were read; RefusedError if they are too many.

        known : whether the sender may do more than sign in
        """
        self._bytes[known] += size
        if self._bytes[known] > self._most[known]:
            self._refuse(f"{self._bytes[known]:,} bytes of requests wait")

    def let_go(self, size: int, known: bool) -> None:
        """Count bytes of a request that was answered."""
        self._bytes[known] -= size

    def _refuse(self, what: str) -> NoReturn:
        self.shed += 1
        raise RefusedError("overloaded", f"The service has too much to do: {what}.")
