"""Connections: which stay open, and for how long; uvicorn itself waits for ever for a request.

A connection is ended if the head of a request does not come within HEAD seconds, or if nobody reads
what was sent to it. A process keeps so many open; beyond that the one goes that for longest has
sent no whole request, so that thousands that send nothing, or half of something, lock nobody out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["Connection", "Connections", "raise_descriptors"]

log = logging.getLogger("steadyarm.service")

HEAD = 10.0  # seconds in which the head of a request has to come
UNREAD = 60.0  # seconds in which somebody has to read on
SWEEP = 1.0  # seconds between looks at them
QUIET = 60.0  # seconds between two lines in the log about the same
SPARE = 200  # descriptors for other things: the storage, logs, libraries

FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)


class Connection(HttpToolsProtocol):
    """One connection, as uvicorn serves it; and since when it is silent.

    Attributes
    ----------
    refused : whether there is no room for it: its first request is answered with 503
    silent : since when the head of a request is waited for; None between two requests
    unread : since when nobody has read what was sent
    """

    def __init__(self, together: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._together, self.refused = together, False
        self.silent: float | None = self.loop.time()
        self.unread: float | None = None

    @property
    def answering(self) -> bool:
        """Whether a request is being answered, or its body waited for."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def busy(self) -> bool:
        """Whether a request is being answered that has come as a whole."""
        return self.answering and (bool(self.pipeline) or not self.cycle.more_body)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._together.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._together.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self.refused:
            self.transport.write(FULL)
            self.transport.close()
            return
        before = self.cycle
        super().data_received(data)
        if self.answering:
            self.silent = None
            if self.busy or self.cycle is not before:  # a body that drips makes it no younger
                self._together.used(self)
        elif self.silent is None:  # a head that has begun
            self.silent = self.loop.time()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self.unread = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self.unread = None
        super().resume_writing()


class Connections:
    """All connections of a process; what uvicorn calls to make one.

    most : that may be open
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: OrderedDict[Connection, None] = OrderedDict()  # used last, last
        self._swept = False
        self._told = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def __call__(self, **given: Any) -> Connection:
        """A connection that is about to be made."""
        return Connection(self, **given)

    def add(self, one: Connection) -> None:
        """It is open; another may have to go for it."""
        self._open[one] = None
        if not self._swept:
            self._swept = True
            one.loop.call_later(SWEEP, self._sweep, one.loop)
        if len(self._open) <= self.most:
            return
        self._tell(one.loop.time())
        idle = next((old for old in self._open if not old.busy and old is not one), None)
        if idle is None:
            one.refused = True
        else:
            self._end(idle)

    def remove(self, one: Connection) -> None:
        """It is closed."""
        self._open.pop(one, None)

    def used(self, one: Connection) -> None:
        """A request has begun or is whole."""
        if one in self._open:
            self._open.move_to_end(one)

    def _end(self, one: Connection) -> None:
        self.remove(one)
        one.transport.close()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        for one in [*self._too_slow(loop.time())]:
            self._end(one)
        self._swept = bool(self._open)
        if self._swept:
            loop.call_later(SWEEP, self._sweep, loop)

    def _too_slow(self, now: float) -> Iterator[Connection]:
        for one in self._open:
            if one.unread is not None and now - one.unread > UNREAD:
                one.transport.abort()  # it would wait for what is to be sent
                yield one
            elif one.silent is not None and now - one.silent > HEAD and not one.answering:
                yield one

    def _tell(self, now: float) -> None:
        if not self._told or now - self._told > QUIET:
            self._told = now
            log.warning(
                "%d connections are open, as many as max_connections allows; those that for "
                "longest have sent no whole request are closed for new ones",
                self.most,
            )


def raise_descriptors(wanted: int) -> int:
    """Have as many descriptors as the system allows; how many connections fit into them."""
    with suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        if soft != resource.RLIM_INFINITY:
            return max(1, min(wanted, soft - SPARE))
    return wanted
