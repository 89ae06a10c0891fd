"""Service: what all handlers share: the storage, the threads that use it, loaded experiments.

Two pools of threads use the storage: one writes, one reads and decides. Each experiment collects
its requests in batches (`Live`). Requests that arrive during a transaction share the next one, and
a busy experiment has no more work in a queue than others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, suppress
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar, cast

from starlette.requests import Request

from steadyarm.errors import (
    InvalidInputError,
    SteadyArmError,
    StorageError,
    UnknownExperimentError,
)
from steadyarm.live.assigner import LiveAssignment, Report, ReportStatus, Visit
from steadyarm.live.experiment import Experiment
from steadyarm.live.lifecycle import load_experiment
from steadyarm.live.settings import events_in
from steadyarm.service.auth import RELOAD, Guard
from steadyarm.service.monitoring import Metrics, Readiness, Run, tiny_tests
from steadyarm.service.problems import RefusedError
from steadyarm.service.settings import ServiceSettings
from steadyarm.service.webhooks import SENDING, WATCHING, Notifier
from steadyarm.storages.records import AssignmentResult, Summary
from steadyarm.storages.service import Refusal
from steadyarm.storages.storage import Storage

log = logging.getLogger("steadyarm.service")

Item = TypeVar("Item")
Answer = TypeVar("Answer")
T = TypeVar("T")

MOST = 500  # items of one transaction
PAUSE = 3  # turns of the event loop between two batches; microseconds if there is little to do
# Threads; with the writers they are no more than SQLite has connections.
READERS, LONG_READS, DECISIONS = 10, 6, 2  # the others are free for what is short
WHOLE_LOGS = 2  # exports and replays at once; more would slow down everything else
BODIES = 64  # bodies of the largest size that may be held in memory
STRANGERS = 8_000_000  # bytes of bodies, likewise, from people who have not signed in
TICK = 1.0  # seconds between checks of reward windows
DAY = 86_400.0  # seconds between searches for damage of the file
ROUND = 10  # ticks between checks of all experiments
LONG = 20  # times as long as others may a request take that computes results
LONGEST_NAME = 100
PAGE = 1000  # entries of the audit log that are read at once
MOST_NOTED = 20  # refused events of each experiment are noted in a period
# Seconds after which an event of the same name and reason, or the use of a token, is noted again.
NOTED_PERIOD = 60.0
EXPERIMENT = "experiment."  # with which the actions begin that change an experiment


class Batcher(Generic[Item, Answer]):
    """Collects items of many requests and passes them to `work`, one batch at a time.

    A batch has what arrived while the last one was worked on. The items of a request stay together.
    All methods are called in the event loop.

    Parameters
    ----------
    work : answers a batch, item by item; an error that it raises is the answer to all requests
    observe : called with the number of requests of every batch
    most : items of one batch, unless a single request has more
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Awaitable[Sequence[Answer]]],
        observe: Callable[[int], object] = lambda _: None,
        most: int = MOST,
    ) -> None:
        self._work, self._observe, self._most = work, observe, most
        self._waiting: list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]] = []
        self._task: asyncio.Task[None] | None = None

    def put(self, items: Sequence[Item]) -> asyncio.Future[list[Answer]]:
        """Add the items of a request; the future gives their answers."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Answer]] = loop.create_future()
        self._waiting.append((items, future))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._work_off())
        return future

    def __len__(self) -> int:
        return len(self._waiting)

    async def drain(self) -> None:
        """Return when nothing waits any more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _work_off(self) -> None:
        while batch := self._take():
            try:
                answers = iter(await self._work([item for items, _ in batch for item in items]))
            except Exception as error:  # the answer to all; handlers know what to make of it
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
            else:
                for items, future in batch:
                    share = list(islice(answers, len(items)))
                    if not future.done():  # a request may have been cancelled
                        future.set_result(share)
            self._observe(len(batch))
            for _ in range(PAUSE):  # responses go out and requests come in: larger batches
                await asyncio.sleep(0)

    def _take(self) -> list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]]:
        """Remove the requests of the next batch from those that wait."""
        waiting = [entry for entry in self._waiting if not entry[1].done()]  # not timed out
        size = end = 0
        for items, _ in waiting:
            size += len(items)
            if end and size > self._most:
                break
            end += 1
        self._waiting = waiting[end:]
        return waiting[:end]


class Live:
    """One experiment in this process, with the requests that wait to be written.

    Attributes
    ----------
    over : whether it is archived, so that no window needs to be closed
    """

    def __init__(self, service: Service, experiment: Experiment) -> None:
        self.experiment, self.over = experiment, False
        self._service, self._deciding = service, asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        metrics = service.metrics
        self._asks: Batcher[Visit, LiveAssignment | SteadyArmError] = Batcher(
            self._assign, metrics.assignment_batches.observe
        )
        self._tells: Batcher[Report, ReportStatus | SteadyArmError] = Batcher(
            self._store, metrics.reward_batches.observe
        )

    @property
    def waiting(self) -> int:
        """The number of requests that wait to be written."""
        return len(self._asks) + len(self._tells)

    def is_of(self, key: int, tag: str) -> bool:
        """Whether it is that experiment, and not another one of the same name."""
        return (self.experiment.key, self.experiment.tag) == (key, tag)

    def ask(self, visits: Sequence[Visit]) -> asyncio.Future[list[LiveAssignment | SteadyArmError]]:
        """Assign variants to the units of a request, in one transaction with other requests."""
        return self._asks.put(visits)

    def tell(
        self, rewards: Sequence[Report]
    ) -> asyncio.Future[list[ReportStatus | SteadyArmError]]:
        """Store the rewards of a request, in one transaction with other requests."""
        return self._tells.put(rewards)

    async def find_known(
        self, unit: str, stored: AssignmentResult | None = None
    ) -> LiveAssignment | None:
        """The variant that a unit already sees; assigns nothing.

        stored : its record in the storage, if that is known
        """
        (known,) = await self._service.run_short(self.experiment.find_visible, [unit], stored)
        return known

    async def drain(self) -> None:
        """Return when nothing waits any more."""
        await self._asks.drain()
        await self._tells.drain()
        if self._closing is not None:
            await asyncio.wait([self._closing])

    def close_windows(self) -> None:
        """Let the policy observe the segments that are over, unless that is going on."""
        if self._closing is None or self._closing.done():
            self._closing = asyncio.create_task(self._close_windows())

    async def _close_windows(self) -> None:
        try:
            await self._decide(self.experiment.refresh)
        except UnknownExperimentError:  # it was pruned
            self._service.drop(self)
        except StorageError as error:
            self._service.readiness.report(error)
        except Exception:
            log.exception("a task in the background failed")

    async def _assign(self, visits: Sequence[Visit]) -> list[LiveAssignment | SteadyArmError]:
        """Assign variants to a batch; decisions, which may take long, delay no other experiment."""
        try:
            answers = await self._service.write(self.experiment.try_visits, visits)
            if answers is None:
                answers = await self._decide(self.experiment.answer_visits, visits)
        except StorageError as error:
            answers = await self._find_assigned(visits, error)
        return answers

    async def _find_assigned(
        self, visits: Sequence[Visit], error: StorageError
    ) -> list[LiveAssignment | SteadyArmError]:
        """Variants that units see already, without writing; the error for all others."""
        if self.experiment.settings.sticky == "none":
            raise error
        units = [visit.unit for visit in visits]
        known = await self._service.run_short(self.experiment.find_visible, units)
        return [answer or error for answer in known]

    async def _store(self, rewards: Sequence[Report]) -> list[ReportStatus | SteadyArmError]:
        experiment = self.experiment

        def write() -> tuple[list[ReportStatus | SteadyArmError], bool]:
            outcomes = experiment.tell_many(rewards, refresh=False)
            return outcomes, "stored" in outcomes and experiment.exhausted and experiment.due

        outcomes, due = await self._service.write(write)
        if due:
            try:
                await self._decide(experiment.refresh)
            except StorageError as error:  # rewards are stored; the next request tries again
                self._service.readiness.report(error)
        return outcomes

    async def _decide(self, work: Callable[..., T], *given: Any) -> T:
        """Run something that may compute for long; an experiment makes one decision at a time."""
        async with self._deciding, self._service.decisions:
            return await self._service.run_short(work, *given)


class BodyLimit:
    """Counts the bytes of bodies that are in memory, and refuses more than there may be.

    Parameters
    ----------
    most : bytes of bodies of requests that are being processed
    strangers : the same for people who have not signed in, who use up no others' share
    """

    def __init__(self, most: int, strangers: int) -> None:
        self._most, self._bytes = {True: most, False: strangers}, {True: 0, False: 0}

    def add(self, size: int, known: bool) -> None:
        """Count bytes that were read; RefusedError if they are too many.

        known : whether the sender may do more than sign in
        """
        self._bytes[known] += size
        if self._bytes[known] > self._most[known]:
            raise RefusedError(
                "overloaded",
                f"The service is overloaded: {self._bytes[known]:,} bytes of requests wait.",
            )

    def remove(self, size: int, known: bool) -> None:
        """Count bytes of a request that was answered."""
        self._bytes[known] -= size


class Measures(NamedTuple):
    """An experiment that measures an event.

    key : the key of the experiment
    """

    name: str
    key: int


class Catalog:
    """Which experiments measure an event, and which are not archived; kept in memory.

    An event names a metric, not an experiment, so every request must know all experiments of the
    storage. They are read when something has changed. Other processes create experiments, too: the
    audit log, in which every change of an experiment is an entry, says whether the catalog is
    complete. Requests that arrive at the same time share one look at the end of that log.

    Parameters
    ----------
    read, write : run a short function in a thread

    Attributes
    ----------
    experiments : in the order of their creation
    """

    def __init__(self, storage: Storage, read: Run, write: Run) -> None:
        self._storage, self._read, self._write = storage, read, write
        self.experiments: tuple[Summary, ...] = ()
        self._measuring: dict[str, tuple[Measures, ...]] = {}
        # When refused events were noted, by experiment, reason and name.
        self._noted: dict[tuple[int, str, str], float] = {}
        self._last: int | None = None  # id of the last entry of the audit log that was seen
        self._looking = asyncio.Lock()
        self._asked = self._covered = 0  # requests that want a look, and those that had one

    def measuring(self, event: str) -> tuple[Measures, ...]:
        """The experiments with a metric of that event, as far as they are known here."""
        return self._measuring.get(event, ())

    async def note_refusals(self, refusals: Iterable[Refusal]) -> None:
        """Note events that were refused in the storage, for pages and health reports."""
        now, new = time.monotonic(), list[Refusal]()
        for refusal in refusals:
            place = refusal.key, refusal.reason, refusal.event
            if not new:  # the first of this call
                noted = self._noted.items()
                self._noted = {one: at for one, at in noted if now - at < NOTED_PERIOD}
            mine = sum(key == refusal.key for key, *_ in self._noted)
            if place not in self._noted and mine < MOST_NOTED:
                self._noted[place] = now
                new.append(refusal)
        if new:
            with suppress(StorageError):  # the events themselves are answered all the same
                await self._write(self._storage.note_refusals, new)

    @property
    def events(self) -> Iterable[str]:
        """The names of all events that are measured."""
        return self._measuring

    async def refresh(self) -> None:
        """Return when everything that was stored before this call is known here."""
        self._asked = ticket = self._asked + 1
        async with self._looking:
            if self._covered >= ticket:
                return  # a look that began after this call has ended
            asked = self._asked
            last, summaries = await self._read(self._read_changes)
            if summaries is not None:
                self._take(summaries)
            self._last, self._covered = last, asked

    async def find_joined(
        self, units: Sequence[str], keys: Sequence[int]
    ) -> Sequence[frozenset[int]]:
        """Which of some experiments, given by their keys, each unit has an assignment in."""
        joined: Sequence[frozenset[int]] = await self._read(
            self._storage.experiments_of, units, keys
        )
        return joined

    def _read_changes(self) -> tuple[int, list[Summary] | None]:
        """The end of the audit log, and the experiments, or None if they are as before."""
        last, changed = self._last or 0, self._last is None
        while page := self._storage.audit(last, PAGE):
            last = page[-1].id
            changed = changed or any(entry.action.startswith(EXPERIMENT) for entry in page)
        return last, self._storage.summaries() if changed else None

    def _take(self, summaries: Iterable[Summary]) -> None:
        """Take over what was read, all at once: other requests are answered meanwhile."""
        self.experiments = tuple(one for one in summaries if one.state != "archived")
        measuring: dict[str, tuple[Measures, ...]] = {}
        for summary in self.experiments:
            for event in events_in(summary.name, summary.config):
                measures = Measures(summary.name, summary.key)
                measuring[event] = (*measuring.get(event, ()), measures)
        self._measuring = measuring
        self._noted = {}  # experiments name the events that came since their creation


class Service:
    """Storage, settings, tokens, metrics, threads and the experiments that were used.

    Attributes
    ----------
    warm : whether warming up is done, so that the service says it is ready
    """

    def __init__(self, storage: Storage, settings: ServiceSettings) -> None:
        self.storage, self.settings = storage, settings
        self.guard = Guard(storage, settings.public)
        self.metrics = Metrics(storage, self._count_waiting)
        self.readiness = Readiness(storage, self.run_short, self.metrics)
        self.catalog = Catalog(storage, self.run_short, self.write)
        self.warm = not settings.warm
        self.live: dict[str, Live] = {}
        self.bodies = BodyLimit(BODIES * settings.max_body, STRANGERS)
        self.decisions = asyncio.Semaphore(DECISIONS)
        self._foreign: set[str] = set()  # tags of experiments that only their own program can run
        self._long_reads = asyncio.Semaphore(LONG_READS)
        self._writers = ThreadPoolExecutor(settings.writers, "steadyarm-writer")
        self._readers = ThreadPoolExecutor(READERS, "steadyarm-reader")
        self._whole_logs = ThreadPoolExecutor(WHOLE_LOGS, "steadyarm-log")
        self._reading_logs = 0

    async def read(self, work: Callable[..., T], *given: Any) -> T:
        """Run something in a thread that may take long."""
        async with self._long_reads:
            return await self.run_short(work, *given)

    async def run_short(self, work: Callable[..., T], *given: Any) -> T:
        """Run something in a thread that is short, and must not wait for what takes long."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, *given)

    async def write(self, work: Callable[..., T], *given: Any) -> T:
        """Run something that writes, after all that was to be written before."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, work, *given)

    async def stream(self, chunks: Iterator[T]) -> AsyncGenerator[T]:
        """Iterate over a whole log in a thread, item by item.

        RefusedError if as many logs are being read already as may be at once.
        """
        if self._reading_logs >= WHOLE_LOGS:
            raise RefusedError(
                "too-many-requests",
                f"{self._reading_logs} exports or replays are running, which is the limit.",
                "Try again when an export or a replay has ended.",
                {"Retry-After": "10"},
            )
        self._reading_logs += 1
        loop, end = asyncio.get_running_loop(), object()
        try:
            while (
                chunk := await loop.run_in_executor(self._whole_logs, next, chunks, end)
            ) is not end:
                yield cast(T, chunk)
        finally:
            self._reading_logs -= 1

    async def run_log(self, work: Callable[[], T]) -> T:
        """Run something that reads a whole log."""
        async with aclosing(self.stream(work() for _ in range(1))) as results:
            return await anext(results)

    async def in_time(self, answer: Awaitable[T], long: bool = False) -> T:
        """Return the response of a handler; RefusedError if it takes longer than requests may.

        long : whether it computes results, which may take longer
        """
        seconds = self.settings.request_timeout * (LONG if long else 1)
        try:
            async with asyncio.timeout(seconds) as deadline:
                return await answer
        except TimeoutError:
            if not deadline.expired():
                raise
            raise RefusedError("timeout", f"There was no answer within {seconds:g} s.") from None

    async def find(self, name: str) -> Live:
        """The experiment of that name; loaded once, because its settings never change."""
        if live := self.live.get(name):
            return live
        if len(name) > LONGEST_NAME or "\0" in name:
            raise UnknownExperimentError(
                f"the experiment does not exist; names have up to {LONGEST_NAME} letters, digits, "
                "dots, hyphens and underscores."
            )
        return self.hold(await self.run_short(load_experiment, name, self.storage))

    async def experiment(self, request: Request) -> Experiment:
        """The experiment in the path of a request."""
        return (await self.find(request.path_params["name"])).experiment

    def hold(self, experiment: Experiment) -> Live:
        """Keep an experiment loaded, in the place of another one that had its name before."""
        live = self.live.get(experiment.name)
        if live is None or not live.is_of(experiment.key, experiment.tag):
            live = self.live[experiment.name] = Live(self, experiment)
        return live

    def drop(self, live: Live) -> None:
        """Unload an experiment that the storage does not have any more."""
        if self.live.get(live.experiment.name) is live:
            del self.live[live.experiment.name]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the tasks in the background, from the first request to the last."""
        await self.read(self.guard.reload)
        notifier = Notifier(
            self.storage,
            self.settings.public_url,
            read=self.read,
            write=self.write,
            count=lambda outcome: self.metrics.deliveries.labels(outcome).inc(),
        )
        tasks = [
            asyncio.create_task(work)
            for work in (
                self._warm_up(),
                self._repeat(lambda: self.run_short(self.guard.reload), RELOAD),
                self._repeat(lambda: self.write(self.guard.note_used), NOTED_PERIOD),
                self._repeat(self.readiness.watch, RELOAD),
                self._repeat(lambda: self.read(self.storage.find_damage), DAY),
                self._repeat(self._close_windows, TICK),
                self._repeat(self.reconcile, ROUND * TICK),
                self._repeat(notifier.watch, WATCHING),
                self._repeat(notifier.send_due, SENDING),
            )
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for live in self.live.values():
                await live.drain()
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._readers.shutdown()
        self._whole_logs.shutdown()
        self._writers.shutdown()
        self.storage.close()

    async def _warm_up(self) -> None:
        """Play tiny tests in memory, which imports what requests need, one step after another."""
        steps = tiny_tests()
        try:
            while not self.warm and (step := await self.read(next, steps, None)) is not None:
                await self.read(step)
        except Exception:  # requests work without it, only slower at first
            log.exception("warming up failed")
        self.warm = True

    async def _close_windows(self) -> None:
        for live in list(self.live.values()):
            if live.experiment.settings.window is not None and not live.over:
                live.close_windows()

    async def reconcile(self) -> None:
        """Find what other processes changed: load what runs, unload what was pruned."""
        kept = dict(self.live)  # what is loaded from now on is newer than the summaries
        for summary in await self.run_short(self.storage.summaries):
            live = kept.get(summary.name)
            if live is not None and live.is_of(summary.key, summary.tag):
                live.over = summary.state == "archived"
                del kept[summary.name]
            elif summary.state == "running" and summary.tag not in self._foreign:
                try:
                    self.hold(await self.run_short(load_experiment, summary.name, self.storage))
                except InvalidInputError as error:  # such as a policy of somebody's own
                    self._foreign.add(summary.tag)
                    log.warning("experiment %r does not run here: %s", summary.name, error)
        for live in kept.values():
            self.drop(live)
        for live in list(self.live.values()):
            if not live.over:
                live.close_windows()

    async def _repeat(self, work: Callable[[], Awaitable[object]], pause: float) -> None:
        """Repeat work in the background, with a pause. Errors are logged."""
        while True:
            try:
                await work()
            except StorageError as error:
                self.readiness.report(error)
            except Exception:
                log.exception("a task in the background failed")
            await asyncio.sleep(pause)

    def _count_waiting(self) -> int:
        return sum(live.waiting for live in list(self.live.values()))
