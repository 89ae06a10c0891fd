"""Which experiments measure an event, and which may be evaluated in bulk; kept in memory.

An event names a metric, not an experiment, so every request must know all experiments of the
storage. The catalog reads them when something has changed. Other processes create experiments, too:
the audit log, in which every change of an experiment is an entry, says whether the catalog is
complete. Requests that arrive at the same time share one look at the end of that log, and their
writing goes on meanwhile. They also share one look at which experiments their units are in, so that
an event or a poll costs the same however many others there are.

What follows units after a roll-out is no flag: the experiment that made it evaluates them, and
passes their events on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from steadyarm.errors import StorageError
from steadyarm.live.settings import events_in
from steadyarm.service.batching import Batcher
from steadyarm.storages.records import Summary
from steadyarm.storages.storage import Storage

SPARE = 0.005  # seconds from one look at the audit log to the next
PAGE = 1000  # entries of the audit log that are read at once
MOST_UNMATCHED = 20  # names of events that no experiment measures are noted in a period
UNMATCHED_PERIOD = 60.0  # seconds after which the same name is noted again
EXPERIMENT = "experiment."  # with which the actions begin that change an experiment

Sought = tuple[str, tuple[int, ...]]  # a unit, and keys of experiments that it may be in


class Measures(NamedTuple):
    """An experiment that measures an event, and the metric that the event is a value of.

    key : of the experiment
    yes_no : whether the metric is 0 or 1, so that an event counts as 1 whatever its value
    """

    name: str
    metric: str
    key: int
    yes_no: bool


class Catalog:
    """The experiments of a storage that are not archived, without follow-ups.

    Parameters
    ----------
    look_up : runs a short function in a thread

    Attributes
    ----------
    experiments : in the order of their creation
    """

    def __init__(self, storage: Storage, look_up: Callable[..., Awaitable[Any]]) -> None:
        self._storage, self._look_up = storage, look_up
        self.experiments: tuple[Summary, ...] = ()
        self._measuring: dict[str, tuple[Measures, ...]] = {}
        self._unmatched: dict[str, float] = {}  # when events that nobody measures were noted
        self._last = 0  # id of the last entry of the audit log that was seen
        self._complete = False  # whether the storage was read at all
        self._looked = 0.0
        self._looks: Batcher[None, None] | None = None  # needs the event loop
        self._joins: Batcher[Sought, frozenset[int]] | None = None  # likewise

    def measuring(self, event: str) -> tuple[Measures, ...]:
        """The experiments that have a metric of that name, as far as they are known here."""
        return self._measuring.get(event, ())

    async def note_unmatched(self, events: Iterable[str]) -> None:
        """Note in the storage which events no experiment measures; health reports name them."""
        names = {event for event in events if event not in self._measuring}
        if not names:
            return
        now = time.monotonic()
        recent = {name: at for name, at in self._unmatched.items() if now - at < UNMATCHED_PERIOD}
        new = sorted(names - recent.keys())[: MOST_UNMATCHED - len(recent)]
        self._unmatched = recent | dict.fromkeys(new, now)
        if new:
            with suppress(StorageError):  # the events themselves are answered all the same
                await self._look_up(self._storage.note_unmatched, new)

    @property
    def events(self) -> Iterable[str]:
        """The names of all events that are measured."""
        return self._measuring

    def refreshed(self) -> asyncio.Future[list[None]]:
        """Is done when everything that was stored before this call is known here."""
        if self._looks is None:
            self._looks = Batcher(self._refresh, lambda _: None)
        return self._looks.put([None])

    def joined(self, sought: Sequence[Sought]) -> asyncio.Future[list[frozenset[int]]]:
        """Which of some experiments, given by their keys, each unit has an assignment in."""
        if self._joins is None:
            self._joins = Batcher(self._find, lambda _: None)
        return self._joins.put(sought)

    async def drained(self) -> None:
        """Return when nobody waits any more."""
        for waiting in (self._looks, self._joins):
            if waiting is not None:
                await waiting.drained()

    async def _find(self, sought: Sequence[Sought]) -> Sequence[frozenset[int]]:
        def read() -> dict[Sought, frozenset[int]]:
            units: dict[tuple[int, ...], list[str]] = {}
            for unit, keys in dict.fromkeys(sought):
                units.setdefault(keys, []).append(unit)
            return {
                (unit, keys): found
                for keys, some in units.items()
                for unit, found in zip(some, self._storage.experiments_of(some, keys), strict=True)
            }

        found: dict[Sought, frozenset[int]] = await self._look_up(read)
        return [found[one] for one in sought]

    async def _refresh(self, waiting: Sequence[None]) -> Sequence[None]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._looked + SPARE - loop.time()))
        self._looked = loop.time()
        found = await self._look_up(self._changes)
        if found is not None:
            self._take(*found)
        return waiting

    def _changes(self) -> tuple[int, list[Summary]] | None:
        """The experiments as they are now; None if nothing has changed since the last look."""
        last, changed = self._last, not self._complete
        while page := self._storage.audit(last, PAGE):
            last = page[-1].id
            changed = changed or any(entry.action.startswith(EXPERIMENT) for entry in page)
            if len(page) < PAGE:
                break
        if not changed:
            self._last = last
            return None
        return last, self._storage.summaries()

    def _take(self, last: int, found: Iterable[Summary]) -> None:
        """Take over what was read, all at once: other requests are answered meanwhile."""
        known = [one for one in found if one.state != "archived"]
        self.experiments = tuple(known)
        measuring: dict[str, list[Measures]] = {}
        for one in known:
            kinds = {each["name"]: each.get("kind") for each in one.config.get("metrics", ())}
            for event, metric in _events(one).items():
                measures = Measures(one.name, metric, one.key, kinds.get(metric) == "yes/no")
                measuring.setdefault(event, []).append(measures)
        self._measuring = {event: tuple(found) for event, found in measuring.items()}
        self._last, self._complete = last, True


def _events(found: Summary) -> Mapping[str, str]:
    return events_in(found.name, found.config)
