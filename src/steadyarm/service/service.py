"""Service: what all handlers share, from its start to its end.

It has the storage, the threads that touch it, and the experiments that were asked for; handlers go
through it and block nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any, Literal, TypeVar

from starlette.requests import Request

from steadyarm.answers import LiveAssignment, Reported
from steadyarm.errors import (
    InvalidInputError,
    SteadyArmError,
    StorageError,
    UnknownExperimentError,
)
from steadyarm.experiment import Experiment
from steadyarm.lifecycle import load_experiment
from steadyarm.service.access import AccessLog
from steadyarm.service.auth import RELOAD, Guard
from steadyarm.service.batching import Batcher
from steadyarm.service.metrics import Metrics
from steadyarm.service.settings import ServiceSettings
from steadyarm.service.warming import Warming
from steadyarm.storages.base import Storage

__all__ = ["Live", "Readiness", "Service"]

T = TypeVar("T")

log = logging.getLogger("steadyarm.service")

READERS = 8  # threads
MANY = 8  # size of batches from which on positions are leased for further ones
AHEAD = 4  # how many further ones
IDLE = 0.2  # seconds after which such leases go back; others wait for the last of them, not long
TICK = 1.0  # seconds between looks at windows
ROUND = 10  # ticks between looks at all experiments
PATIENCE = 3.0  # seconds in which a probe of readiness is answered
LONGEST_NAME = 100


class Live:
    """One experiment as this process holds it, with what waits to be written."""

    def __init__(self, service: Service, experiment: Experiment) -> None:
        self.experiment = experiment
        self.over = False  # archived, so that nothing is left to look at
        self._leases = service.settings.leases_ahead
        self._used = -inf  # when positions were last used, and leased ahead
        metrics = service.metrics
        self.asks: Batcher[str | None, LiveAssignment | SteadyArmError] = Batcher(
            self.ask, service.writers, metrics.asked.observe
        )
        self.tells: Batcher[Reported, Literal["stored", "repeated"] | SteadyArmError] = Batcher(
            experiment.tell_many, service.writers, metrics.told.observe
        )

    def ask(self, units: Sequence[str | None]) -> list[LiveAssignment | SteadyArmError]:
        """Variants for a batch; what it leases beyond serves the next ones."""
        if not self._leases or len(units) < MANY:
            return self.experiment.ask_many(units)
        answers = self.experiment.ask_many(units, ahead=AHEAD * len(units))
        if any(isinstance(answer, LiveAssignment) and answer.new for answer in answers):
            self._used = time.monotonic()
        return answers

    def release(self, idle: float = 0.0) -> None:
        """Give back what was leased ahead, if that was longer ago; what a batch uses stays."""
        if time.monotonic() - self._used >= idle:
            self.experiment.release()


class Readiness:
    """Whether the storage takes durable writes: asked by probes, logged when it changes.

    It has a thread of its own, so that probes wait neither for traffic nor for each other; those
    that come while it is being found out share the answer.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._thread = ThreadPoolExecutor(1, "steadyarm-readiness")
        self._asked: asyncio.Future[str | None] | None = None
        self._said: str | None = None

    async def wrong(self) -> str | None:
        """Why the storage is not ready, in a line that anybody may read; None if it is."""
        if self._asked is None or self._asked.done():
            loop = asyncio.get_running_loop()
            self._asked = loop.run_in_executor(self._thread, self._checked)
        try:
            return await asyncio.wait_for(asyncio.shield(self._asked), PATIENCE)
        except TimeoutError:
            return f"the storage has not answered within {PATIENCE:g} seconds"

    def end(self) -> None:
        """Wait for what is being found out."""
        self._thread.shutdown()

    def _checked(self) -> str | None:
        reason = detail = None
        try:
            self._storage.check()
        except StorageError as error:
            reason, detail = error.reason, str(error)
        except Exception as error:  # a storage that cannot tell is not ready either
            reason, detail = StorageError.reason, f"{type(error).__name__}: {error}"
        if reason != self._said:
            self._said = reason
            if reason is None:
                log.warning("ready again: the storage takes writes")
            else:
                log.error("not ready: %s", detail)
        return reason


class Service:
    """Storage, settings, tokens, counters, threads and the experiments that were asked for."""

    def __init__(self, storage: Storage, settings: ServiceSettings) -> None:
        self.storage, self.settings = storage, settings
        self.guard = Guard(storage, settings.public, settings.allowed_hosts)
        self.metrics = Metrics(storage)
        self.access_log = AccessLog(settings.log_format) if settings.access_log else None
        self.warming = Warming(settings.warm)
        self.readiness = Readiness(storage)
        self.live: dict[str, Live] = {}
        self._strange: set[str] = set()  # names of experiments that only their own program can run
        self.writers = ThreadPoolExecutor(settings.writers, "steadyarm-writer")
        self._readers = ThreadPoolExecutor(READERS, "steadyarm-reader")
        self._keepers = ThreadPoolExecutor(4, "steadyarm-keeper")

    async def read(self, work: Callable[..., T], *given: Any) -> T:
        """Do in a thread what may take a while."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work, *given)

    async def glance(self, work: Callable[..., T], *given: Any) -> T:
        """Do in a thread what is short, and must not wait for what takes a while."""
        return await asyncio.get_running_loop().run_in_executor(self._keepers, work, *given)

    async def write(self, work: Callable[..., T], *given: Any) -> T:
        """Do in turn with batches what writes."""
        return await asyncio.get_running_loop().run_in_executor(self.writers, work, *given)

    async def find(self, name: str) -> Live:
        """The experiment of that name; loaded once, for its settings never change."""
        if found := self.live.get(name):
            return found
        if len(name) > LONGEST_NAME or "\0" in name:
            raise UnknownExperimentError(
                f"there is no experiment of that name; names have up to {LONGEST_NAME} letters, "
                "digits, dots, hyphens and underscores."
            )
        return self.hold(await self.glance(load_experiment, name, self.storage))

    async def experiment(self, request: Request) -> Experiment:
        """The experiment that a request's address names."""
        return (await self.find(request.path_params["name"])).experiment

    def hold(self, experiment: Experiment) -> Live:
        """Keep an experiment; the one that is kept already, if there is one."""
        if experiment.name not in self.live:
            self.live[experiment.name] = Live(self, experiment)
        return self.live[experiment.name]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From the first request to the last."""
        await self.read(self.guard.reload)
        self.warming.start()
        kept = (self._keep_tokens(), self._keep_watch(), self._keep_few_leases())
        tasks = [asyncio.create_task(keeping) for keeping in kept]
        try:
            yield
        finally:
            self.warming.end()
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            for live in self.live.values():
                await live.asks.drained()
                await live.tells.drained()
            await asyncio.to_thread(self._end)
            if self.access_log is not None:
                self.access_log.flush()

    def _end(self) -> None:
        self._keepers.shutdown()
        self.readiness.end()
        for live in self.live.values():
            _logged(live.release)
        self.writers.shutdown()
        self._readers.shutdown()
        self.storage.close()

    async def _keep_tokens(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(RELOAD)
            await loop.run_in_executor(self._keepers, _logged, self.guard.reload)

    async def _keep_watch(self) -> None:
        """Close windows every second, and find experiments that others changed now and then."""
        loop, ticks = asyncio.get_running_loop(), 0
        while True:
            if ticks % ROUND == 0:
                await loop.run_in_executor(self._keepers, _logged, self._look, loop)
            await loop.run_in_executor(self._keepers, self._tick, ticks % ROUND == 0)
            ticks += 1
            await asyncio.sleep(TICK)

    async def _keep_few_leases(self) -> None:
        """Give back what is idle, soon: the last positions of a budget may be among it."""
        loop = asyncio.get_running_loop()
        while self.settings.leases_ahead:
            await asyncio.sleep(IDLE / 2)
            await loop.run_in_executor(self._keepers, self._release)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        for summary in self.storage.summaries():
            live = self.live.get(summary.name)
            if live is not None:
                live.over = summary.state == "archived"
            elif summary.state == "running" and summary.name not in self._strange:
                self._hold(summary.name, loop)

    def _hold(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        record = self.storage.find(name)
        try:
            experiment = Experiment(self.storage, record)
        except InvalidInputError as error:  # such as a policy of somebody's own
            self._strange.add(name)
            log.warning("experiment %r is not looked after here: %s", name, error)
        else:
            loop.call_soon_threadsafe(self.hold, experiment)

    def _tick(self, every: bool) -> None:
        for live in list(self.live.values()):
            if not live.over and (every or live.experiment.settings.window is not None):
                _logged(live.experiment.refresh)

    def _release(self) -> None:
        for live in list(self.live.values()):
            _logged(live.release, IDLE)


def _logged(work: Callable[..., object], *given: Any) -> None:
    """Do it; what goes wrong is logged, for there is nobody to tell."""
    try:
        work(*given)
    except StorageError as error:
        log.warning("%s", error)
    except Exception:
        log.exception("a task in the background failed")
