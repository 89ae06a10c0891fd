"""Who writes when: requests that arrive meanwhile share a transaction, experiments take turns.

And how much may wait, and for how long: neither memory nor anybody's patience must run out where
things cannot be written fast enough.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import inf
from typing import Any, Generic, NoReturn, TypeVar

from starlette.types import Scope

from steadyarm.errors import SteadyArmError
from steadyarm.service.problems import RefusedError

Item = TypeVar("Item")
Answer = TypeVar("Answer")
T = TypeVar("T")

LATE = 0.05  # seconds after which items are looked up that may be known
OFTEN = 0.2  # seconds between looks at deadlines
MOST = 500  # items of one transaction
PAUSE = 3  # turns of the event loop between two batches; microseconds if there is little to do


class _Entry(Generic[Item, Answer]):
    """One item, where its answer goes to, and since when it waits for somebody to look it up."""

    __slots__ = ("future", "item", "since")

    def __init__(self, item: Item, future: asyncio.Future[Answer | Exception], now: float) -> None:
        self.item, self.future, self.since = item, future, now


class Batcher(Generic[Item, Answer]):
    """Collects items of many requests and hands them to `work`, one batch at a time.

    An item that finds nothing running starts at once, with all that arrived in the same turn of
    the event loop. All methods are called in that loop.

    Parameters
    ----------
    work : answers a batch, item by item; what it raises is the answer to all of them
    done : told the size of every batch
    look_up : answers items without waiting for `work`, where it can, and gives None for others;
        told, too, for how many seconds they have waited, which is at least LATE
    most : items of one batch
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

    def put(self, item: Item) -> asyncio.Future[Answer | Exception]:
        """The answer to one item, to be awaited; an error is given, not raised."""
        future: asyncio.Future[Answer | Exception] = self._loop.create_future()
        self._waiting.append(_Entry(item, future, self._loop.time()))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._next)
        return future

    async def drained(self) -> None:
        """Return when nothing waits any more."""
        while self._busy:
            await asyncio.sleep(0.005)

    def _next(self) -> None:
        # Whoever was told that it took too long does not wait any more.
        waiting = [entry for entry in self._waiting if not entry.future.done()]
        self._batch, self._waiting = waiting[: self._most], waiting[self._most :]
        if not self._batch:
            self._busy = False
            return
        self._begin(self._run(self._batch))
        if self._look_up is not None and not self._watched:
            self._watched = True
            self._loop.call_later(LATE, self._watch)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)  # the loop itself would let it go
        task.add_done_callback(self._tasks.discard)

    async def _run(self, batch: list[_Entry[Item, Answer]]) -> None:
        answers: Sequence[Answer | Exception]
        try:
            answers = await self._work([entry.item for entry in batch])
        except Exception as error:  # the answer of all; handlers know what to make of it
            answers = [error] * len(batch)
        self._done(len(batch))
        _answer(batch, answers)
        self._pass(PAUSE)

    def _pass(self, turns: int) -> None:
        """Let answers go out, and what has arrived meanwhile come in: batches are larger so."""
        if turns:
            self._loop.call_soon(self._pass, turns - 1)
        else:
            self._next()

    def _watch(self) -> None:
        """Look up what waits for long, each once."""
        if not self._busy:
            self._watched = False
            return
        self._loop.call_later(LATE, self._watch)
        late = self._loop.time() - LATE
        found = [entry for entry in (*self._batch, *self._waiting) if entry.since <= late]
        for first in range(0, len(found), self._most):
            self._begin(self._find(found[first : first + self._most]))

    async def _find(self, entries: list[_Entry[Item, Answer]]) -> None:
        assert self._look_up is not None
        waited = self._loop.time() - min(entry.since for entry in entries)
        for entry in entries:
            entry.since = inf
        with suppress(SteadyArmError):  # then they wait on
            _answer(entries, await self._look_up([entry.item for entry in entries], waited))


def _answer(
    entries: Sequence[_Entry[Item, Answer]], answers: Sequence[Answer | Exception | None]
) -> None:
    for entry, answer in zip(entries, answers, strict=True):
        # A request may have been cancelled, or answered by looking up.
        if answer is not None and not entry.future.done():
            entry.future.set_result(answer)


class Turns:
    """Threads that work for experiments in turn, one piece of work of each.

    An experiment that has much to write, or slow work, so keeps others waiting for one piece of
    it at most. All methods are called in the event loop.

    alone : whether only one piece of an experiment is done at a time, so that it never has more
        than one of the threads
    """

    def __init__(self, threads: int, name: str, alone: bool = False) -> None:
        self._pool = ThreadPoolExecutor(threads, name)
        self._free, self._alone = threads, alone
        self._served = set[str]()  # who has a thread, where one is all that they may have
        self._waiting: OrderedDict[str, deque[tuple[Callable[[], Any], asyncio.Future[Any]]]]
        self._waiting = OrderedDict()

    def submit(self, whose: str, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do work when it is this experiment's turn; gives what it returns or raises."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(whose, deque()).append((work, future))
        self._start()
        return future

    def shutdown(self) -> None:
        """Wait for the threads."""
        self._pool.shutdown()

    def _start(self) -> None:
        while self._free:
            whose = next((one for one in self._waiting if one not in self._served), None)
            if whose is None:
                return
            queue = self._waiting.pop(whose)
            work, future = queue.popleft()
            if queue:
                self._waiting[whose] = queue  # behind all others
            if not future.cancelled():
                self._free -= 1
                if self._alone:
                    self._served.add(whose)
                self._pool.submit(self._run, whose, work, future)

    def _run(self, whose: str, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        future.get_loop().call_soon_threadsafe(self._end, whose, future, result, failure)

    def _end(
        self, whose: str, future: asyncio.Future[Any], result: Any, failure: Exception | None
    ) -> None:
        self._free += 1
        self._served.discard(whose)
        if future.cancelled():
            pass
        elif failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(result)
        self._start()


class Load:
    """How much waits: things to be written, by experiment and in all, and bytes of bodies.

    Parameters
    ----------
    things : that may wait in all; half as many of one experiment
    most : bytes of bodies that were read and not answered
    strangers : bytes of bodies from people who have not signed in; they have no part in the others

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
        """So many things of an experiment wait from now on; RefusedError if that is too much."""
        before = self._waiting.get(whose, 0)
        if self._all + count > self._things or 2 * (before + count) > self._things:
            self._refuse(
                f"{before:,} assignments and rewards of {whose!r} wait to be written, "
                f"{self._all:,} of all experiments"
            )
        self._waiting[whose] = before + count
        self._all += count

    def remove(self, whose: str, count: int = 1) -> None:
        """They do not wait any more."""
        self._all -= count
        self._waiting[whose] -= count

    def hold(self, size: int, known: bool) -> None:
        """So many bytes of a body were read; RefusedError if that is too much.

        known : whether whoever sends them may do more than sign in
        """
        self._bytes[known] += size
        if self._bytes[known] > self._most[known]:
            self._refuse(f"{self._bytes[known]:,} bytes of requests wait")

    def let_go(self, size: int, known: bool) -> None:
        """The request whose bytes these are was answered."""
        self._bytes[known] -= size

    def _refuse(self, what: str) -> NoReturn:
        self.shed += 1
        raise RefusedError("overloaded", f"The service has too much to do: {what}.")


class Deadline:
    """Until when a request has to be answered; a timer for each would cost more than the rest.

    Attributes
    ----------
    ends : in the time of the event loop
    over : whether the request was ended because of it
    """

    __slots__ = ("_more", "ends", "over", "task")

    def __init__(self, task: asyncio.Task[Any], ends: float, more: float) -> None:
        self.task, self.ends, self._more, self.over = task, ends, more, False

    def extend(self) -> None:
        """The body is there, from now on the time is the service's."""
        self.ends += self._more


class Deadlines:
    """Ends requests that take too long; looks for them a few times in a second."""

    def __init__(self) -> None:
        self._running = set[Deadline]()

    async def keep(self, answer: Awaitable[T], scope: Scope, seconds: float, more: float) -> T:
        """What a handler answers in time; RefusedError if it does not.

        more : seconds that are added once the body is there
        """
        task = asyncio.current_task()
        assert task is not None
        limit = Deadline(task, task.get_loop().time() + seconds, more)
        scope["deadline"] = limit
        self._running.add(limit)
        try:
            return await answer
        except asyncio.CancelledError:
            if not limit.over or task.uncancel() > 0:
                raise
        finally:
            self._running.discard(limit)
        raise RefusedError("timeout", f"There was no answer within {seconds + more:g} s.")

    async def watch(self) -> None:
        """End what takes too long, for ever."""
        while True:
            await asyncio.sleep(OFTEN)
            now = asyncio.get_running_loop().time()
            for limit in [limit for limit in self._running if limit.ends < now and not limit.over]:
                limit.over = True
                limit.task.cancel()
