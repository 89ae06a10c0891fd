"""Looks that are kept for a while, so that pages answer at once however many people watch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from steadyarm.errors import SteadyArmError
from steadyarm.live.experiment import Experiment
from steadyarm.live.scorecard import Scorecard
from steadyarm.live.scoring import scorecard_of
from steadyarm.service.service import Service
from steadyarm.storages.records import ExperimentState, Summary

__all__ = ["Kept", "Looks"]

log = logging.getLogger("steadyarm.dashboard")

FRESH, STALE = 2.0, 10.0  # seconds for which a look serves while things change, least and most
SHARE = 5.0  # between these: so many times as long as it took, so that looking stays cheap
OLD = 300.0  # seconds after which time alone makes a new one: paces and windows end
PATIENCE = 0.15  # seconds to wait for a new look before the old one is shown once more
AGAIN = 60.0  # seconds before a look that failed is tried again
MOST = 500  # looks in memory

T = TypeVar("T")


@dataclass(frozen=True)
class Mark:
    """What changes whenever anything is stored that a look shows."""

    key: int
    state: ExperimentState
    version: int
    assigned: int
    rewarded: int
    late: int
    corrected: int

    @classmethod
    def of(cls, summary: Summary) -> Mark:
        """The mark of an experiment as it is now."""
        counts = summary.assigned, summary.rewarded, summary.late, summary.corrected
        return cls(summary.key, summary.state, summary.version, *counts)


@dataclass(frozen=True, eq=False)
class Kept:
    """A look, and how long it serves.

    Attributes
    ----------
    mark : of what it was seen of
    made : a time of the monotonic clock
    took : seconds
    drawn : what was made of the look, by whoever made it
    """

    card: Scorecard
    mark: Mark
    made: float
    took: float
    drawn: dict[object, Any] = field(default_factory=dict)

    def serves(self, mark: Mark) -> bool:
        """Whether it may be shown for what has this mark now."""
        age = time.monotonic() - self.made
        if self.mark == mark:
            return age < OLD
        return self.mark.state == mark.state and age < min(max(FRESH, SHARE * self.took), STALE)

    def once(self, key: object, make: Callable[[Scorecard], T]) -> T:
        """What `make` makes of the look, made once."""
        if key not in self.drawn:
            self.drawn[key] = make(self.card)
        made: T = self.drawn[key]
        return made


class Looks:
    """The latest look at every experiment that somebody watches."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kept: dict[str, Kept] = {}  # those used last come last
        self._failed: dict[str, float] = {}  # when
        self._running: dict[str, asyncio.Task[Kept]] = {}
        self._due: dict[str, None] = {}  # names that wait for their turn, in order
        self._turn: asyncio.Task[None] | None = None

    async def at(self, name: str) -> Kept:
        """The look at an experiment.

        Its state is always the present one; its numbers are a few seconds old at most, or as old
        as looking takes.
        """
        experiment = (await self._service.find(name)).experiment
        mark = await self._service.glance(_mark, experiment)
        kept = self._kept.get(name)
        if kept is None:
            kept = await asyncio.shield(self._renewed(name, experiment))
        elif not kept.serves(mark):
            with suppress(TimeoutError):
                task = self._renewed(name, experiment)
                kept = await asyncio.wait_for(asyncio.shield(task), PATIENCE)
        if kept.mark.state != mark.state:  # one that began before somebody stopped it, say
            with suppress(Exception):  # the next one tells what is wrong
                await asyncio.shield(self._renewed(name, experiment))
            kept = await asyncio.shield(self._renewed(name, experiment))
        if name in self._kept:
            self._kept[name] = self._kept.pop(name)
        return kept

    def glance(self, summary: Summary) -> Scorecard | None:
        """The look that is there; None if there is none yet. A new one is made meanwhile."""
        name, kept = summary.name, self._kept.get(summary.name)
        room = kept is not None or len(self._kept) < MOST
        due = room and not self.failed(name) and name not in self._running
        if due and (kept is None or not kept.serves(Mark.of(summary))):
            self._due[name] = None
            if self._turn is None or self._turn.done():
                self._turn = asyncio.create_task(self._take_turns())
        return None if kept is None else kept.card

    def failed(self, name: str) -> bool:
        """Whether looking failed a short while ago."""
        return time.monotonic() < self._failed.get(name, -AGAIN) + AGAIN

    async def _take_turns(self) -> None:
        """One at a time, so that a page with many experiments does not hold up all others."""
        while self._due:
            name = next(iter(self._due))
            del self._due[name]
            with suppress(Exception):  # told by `_done`
                await self._renewed(name)

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
            self._failed.pop(name, None)
            self._kept.pop(name, None)
            if len(self._kept) >= MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[name] = task.result()
            return
        self._failed[name] = time.monotonic()
        log.error(
            "looking at %r failed: %s",
            name,
            error,
            exc_info=None if isinstance(error, SteadyArmError) else error,
        )

    async def _look(self, name: str, experiment: Experiment | None) -> Kept:
        if experiment is None:
            experiment = (await self._service.find(name)).experiment
        return await self._service.read(_seen, experiment)


def _mark(experiment: Experiment) -> Mark:
    (summary,) = experiment.storage.summaries(experiment.key)
    return Mark.of(summary)


def _seen(experiment: Experiment) -> Kept:
    began, mark = time.monotonic(), _mark(experiment)
    card, now = scorecard_of(experiment), time.monotonic()
    return Kept(card, mark, now, now - began)
