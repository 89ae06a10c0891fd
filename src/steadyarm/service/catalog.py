"""Which experiments measure an event, and which may be evaluated in bulk; kept in memory.

An event names a metric, not an experiment, so every request must know all experiments of the
storage. The catalog reads them when something has changed. Other processes create experiments, too:
the audit log, in which every change of an experiment is an entry, says whether the catalog is
complete. Requests that arrive at the same time share one look at the end of that log, and their
writing goes on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from steadyarm.live.settings import events_in
from steadyarm.service.batching import Batcher
from steadyarm.storages.base import Storage
from steadyarm.storages.records import Summary

SPARE = 0.005  # seconds from one look at the audit log to the next
PAGE = 1000  # entries of the audit log that are read at once
EXPERIMENT = "experiment."  # with which the actions begin that change an experiment


class Measures(NamedTuple):
    """An experiment that measures an event, and the metric that the event is a value of."""

    name: str
    metric: str


class Catalog:
    """The experiments of a storage that are not archived.

    Parameters
    ----------
    look_up : runs a function that only reads in a thread

    Attributes
    ----------
    experiments : in the order of their creation
    """

    def __init__(self, storage: Storage, look_up: Callable[..., Awaitable[Any]]) -> None:
        self._storage, self._look_up = storage, look_up
        self.experiments: tuple[Summary, ...] = ()
        self._measuring: dict[str, tuple[Measures, ...]] = {}
        self._last = 0  # id of the last entry of the audit log that was seen
        self._complete = False  # whether the storage was read at all
        self._looked = 0.0
        self._looks: Batcher[None, None] | None = None  # needs the event loop

    def measuring(self, event: str) -> tuple[Measures, ...]:
        """The experiments that have a metric of that name, as far as they are known here."""
        return self._measuring.get(event, ())

    def refreshed(self) -> asyncio.Future[list[None]]:
        """Is done when everything that was stored before this call is known here."""
        if self._looks is None:
            self._looks = Batcher(self._refresh, lambda _: None)
        return self._looks.put([None])

    async def drained(self) -> None:
        """Return when nobody waits any more."""
        if self._looks is not None:
            await self._looks.drained()

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
        self.experiments = tuple(one for one in found if one.state != "archived")
        measuring: dict[str, list[Measures]] = {}
        for one in self.experiments:
            for event, metric in _events(one).items():
                measuring.setdefault(event, []).append(Measures(one.name, metric))
        self._measuring = {event: tuple(found) for event, found in measuring.items()}
        self._last, self._complete = last, True


def _events(found: Summary) -> Mapping[str, str]:
    return events_in(found.name, found.config)
