"""Looks that are kept for a while, so that pages answer at once however many people watch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from steadyarm.errors import SteadyArmError
from steadyarm.experiment import Experiment
from steadyarm.looks import Look, look_at
from steadyarm.service.service import Service
from steadyarm.storages.records import Summary

__all__ = ["Kept", "Looks"]

log = logging.getLogger("steadyarm.dashboard")

FRESH = 2.0  # seconds for which a look is new enough
SHARE = 5.0  # a look is kept for so many times as long as it took, so that looking stays cheap
PATIENCE = 0.15  # seconds to wait for a new look before the old one is shown once more
MOST = 500  # looks in memory

Mark = tuple[object, ...]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Kept:
    """A look, and until when it serves.

    Attributes
    ----------
    mark : of what it was seen of; the same as long as nothing changes
    until : a time of the monotonic clock
    drawn : what was made of the look, by whoever made it
    """

    look: Look
    mark: Mark
    until: float
    drawn: dict[object, Any] = field(default_factory=dict)

    def once(self, key: object, make: Callable[[Look], T]) -> T:
        """What `make` makes of the look, made once."""
        if key not in self.drawn:
            self.drawn[key] = make(self.look)
        made: T = self.drawn[key]
        return made


class Looks:
    """The latest look at every experiment that somebody watches."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kept: dict[str, Kept] = {}
        self._running: dict[str, asyncio.Task[Kept]] = {}
        self._due: dict[str, None] = {}  # names that wait for their turn, in order
        self._turn: asyncio.Task[None] | None = None

    async def at(self, name: str) -> Kept:
        """The look at an experiment; at most a few seconds old, or as old as looking takes."""
        experiment = (await self._service.find(name)).experiment
        kept = self._kept.get(name)
        if kept is not None and time.monotonic() < kept.until:
            return kept
        task = self._renewed(name, experiment)
        if kept is None:
            return await asyncio.shield(task)
        try:
            return await asyncio.wait_for(asyncio.shield(task), PATIENCE)
        except TimeoutError:
            return kept

    def glance(self, summary: Summary) -> Look | None:
        """The look that is there; None if there is none yet. A new one is made meanwhile."""
        kept, mark = self._kept.get(summary.name), mark_of(summary)
        due = kept is None or (kept.mark != mark and time.monotonic() >= kept.until)
        if due and summary.name not in self._running:
            self._due[summary.name] = None
            if self._turn is None or self._turn.done():
                self._turn = asyncio.create_task(self._take_turns())
        return None if kept is None else kept.look

    async def _take_turns(self) -> None:
        """One at a time, so that a page with many experiments does not hold up all others."""
        while self._due:
            name = next(iter(self._due))
            del self._due[name]
            with suppress(Exception):  # told by `_done`
                await self._renewed(name)

    def forget(self, name: str) -> None:
        """Look anew when somebody asks; for what was changed here."""
        self._kept.pop(name, None)

    def _renewed(self, name: str, experiment: Experiment | None = None) -> asyncio.Task[Kept]:
        if name not in self._running:
            task = asyncio.create_task(self._look(name, experiment))
            self._running[name] = task
            task.add_done_callback(lambda done: self._done(name, done))
        return self._running[name]

    def _done(self, name: str, task: asyncio.Task[Kept]) -> None:
        del self._running[name]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            if len(self._kept) >= MOST and name not in self._kept:
                del self._kept[next(iter(self._kept))]
            self._kept[name] = task.result()
        elif not isinstance(error, SteadyArmError):
            log.error("looking at %r failed", name, exc_info=error)

    async def _look(self, name: str, experiment: Experiment | None) -> Kept:
        if experiment is None:
            experiment = (await self._service.find(name)).experiment
        return await self._service.read(_seen, experiment, self._kept.get(name))


def mark_of(summary: Summary) -> Mark:
    """What changes whenever anything changes that a look shows."""
    return (summary.key, summary.state, summary.version, summary.assigned, summary.rewarded)


def _seen(experiment: Experiment, kept: Kept | None) -> Kept:
    began = time.monotonic()
    (summary,) = experiment.storage.summaries(experiment.key)
    mark = mark_of(summary)
    if kept is not None and kept.mark == mark:
        return replace(kept, until=time.monotonic() + FRESH)
    look, now = look_at(experiment), time.monotonic()
    return Kept(look, mark, now + max(FRESH, SHARE * (now - began)))
