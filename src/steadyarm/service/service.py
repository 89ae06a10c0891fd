"""Service: what all handlers share: the storage, the threads that use it, loaded experiments."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.types import Scope

from steadyarm.errors import (
    InvalidInputError,
    SteadyArmError,
    StorageError,
    UnknownExperimentError,
)
from steadyarm.live.assigner import LiveAssignment, Report, ReportStatus, Visit
from steadyarm.live.experiment import Experiment
from steadyarm.live.lifecycle import load_experiment
from steadyarm.service.auth import RELOAD, Guard
from steadyarm.service.batching import Batcher, Load, Turns
from steadyarm.service.catalog import Catalog
from steadyarm.service.monitoring import Metrics, Readiness, Warming
from steadyarm.service.problems import RefusedError
from steadyarm.service.settings import ServiceSettings
from steadyarm.service.webhooks import Notifier
from steadyarm.storages.records import to_datetime
from steadyarm.storages.storage import Storage

log = logging.getLogger("steadyarm.service")

T = TypeVar("T")
Stored = ReportStatus | SteadyArmError


# Threads; all of them together are no more than SQLite has connections.
READERS, LONG_READS, DECISIONS = 10, 6, 2  # the others are free for what is short
BODIES = 64  # bodies of the largest size that may be held in memory
STRANGERS = 8_000_000  # bytes of bodies, likewise, from people who have not signed in
TICK = 1.0  # seconds between checks of reward windows
LONG = 20  # times as long as others may a request take that computes results
ROUND = 10  # ticks between checks of all experiments
LONGEST_NAME = 100
SOON = 1.0  # seconds that a reward may wait and still count as happening now


class Arrived(NamedTuple):
    """A reward, and its arrival by the monotonic clock: waiting here must not make it late."""

    reward: Report
    at: float

    def event(self, now: float) -> Report:
        """The reward, which happened before it began to wait."""
        report = self.reward
        if isinstance(report.at, (datetime, int)) or (report.at is None and now - self.at < SOON):
            return report
        waited = timedelta(seconds=now - self.at)
        return report._replace(at=(report.at or timedelta(0)) + waited)


class Live:
    """One experiment in this process, with the requests that wait to be written."""

    def __init__(self, service: Service, experiment: Experiment) -> None:
        self.experiment = experiment
        self.over = False  # archived, so that no window needs to be closed
        self._service = service
        metrics = service.metrics
        sticky = experiment.settings.sticky == "unit"
        self._asks: Batcher[Visit, LiveAssignment | SteadyArmError] = Batcher(
            self._assign, metrics.assignment_batches.observe, self._find if sticky else None
        )
        self._tells: Batcher[Arrived, Stored] = Batcher(self._tell, metrics.reward_batches.observe)
        self._finds: Batcher[str, LiveAssignment | None] = Batcher(self._look, lambda _: None)

    def is_of(self, key: int, tag: str) -> bool:
        """Whether it is that experiment, and not another one of the same name."""
        return (self.experiment.key, self.experiment.tag) == (key, tag)

    async def ask(self, visits: Sequence[Visit]) -> list[LiveAssignment | SteadyArmError]:
        """Assign variants to the units of a request, in one transaction with other requests."""
        load, name = self._service.load, self.experiment.name
        load.add(name, len(visits))
        try:
            return await self._asks.put(visits)
        finally:
            load.remove(name, len(visits))

    async def known(self, unit: str) -> LiveAssignment | None:
        """What a unit sees already; reads share a transaction, and nothing is assigned."""
        with self._service.waiting(self.experiment.name):
            (found,) = await self._finds.put([unit])
            return found

    async def _look(self, units: Sequence[str]) -> Sequence[LiveAssignment | None]:
        return await self._service.run_short(self.experiment.known, units)

    async def tell(self, rewards: Sequence[Report]) -> list[Stored]:
        """Store the rewards of a request, in one transaction with other requests."""
        load, name = self._service.load, self.experiment.name
        load.add(name, len(rewards))
        try:
            now = time.monotonic()
            return await self._tells.put([Arrived(reward, now) for reward in rewards])
        finally:
            load.remove(name, len(rewards))

    async def _tell(self, rewards: Sequence[Arrived]) -> list[Stored]:
        experiment = self.experiment

        def written() -> tuple[list[Stored], bool]:
            now = time.monotonic()
            found = experiment.tell_many((one.event(now) for one in rewards), refresh=False)
            return found, "stored" in found and experiment.due

        answers, due = await self._service.write(experiment.name, written)
        if due:
            try:
                await self._service.decide(experiment.name, experiment.refresh)
            except StorageError as error:  # rewards are stored; the next request tries again
                log.warning("%s", error)
        return answers

    async def drained(self) -> None:
        """Return when nothing waits any more."""
        await self._asks.drained()
        await self._tells.drained()
        await self._finds.drained()

    async def _find(self, visits: Sequence[Visit], since: float) -> list[LiveAssignment | None]:
        """The assignments that units had before their requests; reading waits for no writer.

        What they got meanwhile is answered, as new, by the transaction that wrote it.

        since : when the first of them arrived, in the time of the event loop
        """
        experiment, clock = self.experiment, asyncio.get_running_loop().time

        def known() -> list[LiveAssignment | None]:
            # This thread may be halted anywhere: that makes `before` earlier, never later.
            before = to_datetime(experiment.now()) - timedelta(seconds=clock() - since)
            found = experiment.known([str(visit.unit) for visit in visits])
            return [
                one if one and (not one.in_test or one.created < before) else None for one in found
            ]

        return await self._service.run_short(known)

    async def _assign(self, visits: Sequence[Visit]) -> list[LiveAssignment | SteadyArmError]:
        """Assign variants to a batch; decisions, which may take long, delay no other experiment."""
        service, experiment = self._service, self.experiment
        answers = await service.write(experiment.name, experiment.try_visits, visits)
        if answers is None:
            answers = await service.decide(experiment.name, experiment.answer_visits, visits)
        return answers


class Service:
    """Storage, settings, tokens, metrics, threads and the experiments that were used."""

    def __init__(self, storage: Storage, settings: ServiceSettings) -> None:
        self.storage, self.settings = storage, settings
        self.guard = Guard(storage, settings.public)
        self.metrics = Metrics(storage)
        self.warming = Warming(settings.warm)
        self.readiness = Readiness(storage)
        self.live: dict[str, Live] = {}
        self.catalog = Catalog(storage, self.run_short)
        self._closing: dict[str, asyncio.Task[None]] = {}  # by name, tasks that close segments
        self._foreign: set[str] = set()  # tags of experiments that only their own program can run
        self.load = Load(settings.max_waiting, BODIES * settings.max_body, STRANGERS)
        self._writers = Turns(settings.writers, "steadyarm-writer")
        self._readers = ThreadPoolExecutor(READERS, "steadyarm-reader")
        self._long_reads = asyncio.Semaphore(LONG_READS)
        self._decisions = asyncio.Semaphore(DECISIONS)
        self._deciding: dict[str, asyncio.Lock] = {}  # by name

    async def read(self, work: Callable[..., T], *given: Any) -> T:
        """Run something in a thread that may take long."""
        async with self._long_reads:
            return await self.run_short(work, *given)

    async def run_short(self, work: Callable[..., T], *given: Any) -> T:
        """Run something in a thread that is short, and must not wait for what takes long."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, *given)

    async def write(self, whose: str, work: Callable[..., T], *given: Any) -> T:
        """Run something that writes, when it is the experiment's turn."""
        return await self._writers.submit(whose, partial(work, *given))

    async def decide(self, whose: str, work: Callable[..., T], *given: Any) -> T:
        """Run something that may compute for long; an experiment makes one decision at a time."""
        async with self._deciding.setdefault(whose, asyncio.Lock()), self._decisions:
            return await self.run_short(work, *given)

    async def in_time(self, answer: Awaitable[T], scope: Scope, long: bool = False) -> T:
        """Return the response of a handler; RefusedError if it takes longer than requests may.

        long : whether it computes results, which may take longer, once its body has arrived
        """
        seconds = self.settings.request_timeout
        scope["seconds"] = allowed = seconds * LONG if long else seconds
        first = allowed if scope["method"] == "GET" else seconds  # for the body
        try:
            async with asyncio.timeout(first) as scope["deadline"]:
                return await answer
        except TimeoutError:
            if not scope["deadline"].expired():
                raise
            raise RefusedError("timeout", f"There was no answer within {allowed:g} s.") from None

    @contextmanager
    def waiting(self, name: str, count: int = 1) -> Iterator[None]:
        """Count requests of an experiment as waiting; RefusedError if they are too many."""
        self.load.add(name, count)
        try:
            yield
        finally:
            self.load.remove(name, count)

    async def find(self, name: str) -> Live:
        """The experiment of that name; loaded once, because its settings never change."""
        if found := self.live.get(name):
            return found
        if len(name) > LONGEST_NAME or "\0" in name:
            raise UnknownExperimentError(
                f"there is no experiment of that name; names have up to {LONGEST_NAME} letters, "
                "digits, dots, hyphens and underscores."
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
        self.warming.start()
        kept = [
            self._keep_tokens(),
            self._keep_watch(),
        ]
        write, url = partial(self.write, ""), self.settings.public_url
        kept.append(Notifier(self.storage, url, read=self.read, write=write).run())
        tasks = [asyncio.create_task(keeping) for keeping in kept]
        try:
            yield
        finally:
            self.warming.end()
            tasks.extend(self._closing.values())
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            for live in self.live.values():
                await live.drained()
            await self.catalog.drained()
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        for part in (self._readers, self.readiness, self._writers):
            part.shutdown()
        self.storage.close()

    async def _keep_tokens(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(RELOAD)
            await loop.run_in_executor(self._readers, _logged, self.guard.reload)

    async def _keep_watch(self) -> None:
        """Close windows every second, and now and then find what other processes changed."""
        loop, ticks = asyncio.get_running_loop(), 0
        while True:
            if ticks % ROUND == 0:
                await loop.run_in_executor(self._readers, _logged, self._reconcile, loop)
            await self._tick(ticks % ROUND == 0)
            ticks += 1
            await asyncio.sleep(TICK)

    def _reconcile(self, loop: asyncio.AbstractEventLoop) -> None:
        kept = dict(self.live)  # what is loaded from now on is newer than the summaries
        for summary in self.storage.summaries():
            live = kept.get(summary.name)
            if live is not None and live.is_of(summary.key, summary.tag):
                live.over = summary.state == "archived"
                del kept[summary.name]
            elif summary.state == "running" and summary.tag not in self._foreign:
                self._hold(summary.name, loop)
        for live in kept.values():
            loop.call_soon_threadsafe(self.drop, live)

    def _hold(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        record = self.storage.find(name)
        try:
            experiment = Experiment(self.storage, record)
        except InvalidInputError as error:  # such as a policy of somebody's own
            self._foreign.add(record.tag)
            log.warning("experiment %r does not run here: %s", name, error)
        else:
            loop.call_soon_threadsafe(self.hold, experiment)

    async def _tick(self, every: bool) -> None:
        for live in list(self.live.values()):
            name, settings = live.experiment.name, live.experiment.settings
            if live.over or name in self._closing or not (every or settings.window is not None):
                continue
            # A decision that takes long must not delay the windows of other experiments.
            task = self._closing[name] = asyncio.create_task(self._close(live))
            await asyncio.wait([task], timeout=TICK / 10)

    async def _close(self, live: Live) -> None:
        """Let the policy observe the segments that are over."""
        name = live.experiment.name
        try:
            await self.decide(name, live.experiment.refresh)
        except UnknownExperimentError:  # it was pruned
            self.drop(live)
        except StorageError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("a task in the background failed")
        finally:
            del self._closing[name]


def extend_deadline(scope: Scope) -> None:
    """Give a request whose body has arrived all of its time."""
    scope["deadline"].reschedule(asyncio.get_running_loop().time() + scope["seconds"])


def _logged(work: Callable[..., object], *given: Any) -> None:
    """Run something; log its errors, because nobody waits for it."""
    try:
        work(*given)
    except StorageError as error:
        log.warning("%s", error)
    except Exception:
        log.exception("a task in the background failed")
