"""Pools of connections: how requests are sent, by threads that wait or under asyncio.

All that a client decides is written once, as coroutines (`transport.py`, `remote.py`, `client.py`)
that wait for nothing but a pool. Under asyncio they are awaited. With a `BlockingPool` none of them
is ever suspended, so that `run` gets their results at once, in the thread that calls it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from typing import IO, TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from steadyarm.errors import MissingExtraError

if TYPE_CHECKING:
    import httpx2

KEPT_ALIVE = 20.0  # seconds, less than servers keep idle connections: they must not close first

T = TypeVar("T")
P = ParamSpec("P")

# Forks: locks, sockets, threads and leased positions belong to one process.


class Forgetful(Protocol):
    """An object with parts that belong to one process."""

    def forget(self) -> None:
        """Start anew in the child of a fork, where nothing else runs meanwhile."""


_known: WeakSet[Forgetful] = WeakSet()


def forget_after_fork(one: Forgetful) -> None:
    """Call its `forget` in every child forked from now on.

    A check of os.getpid() would come too late where another thread held a lock during the fork.
    """
    _known.add(one)


def _forget() -> None:
    for one in list(_known):
        one.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# Coroutines that nothing suspends.


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that a `BlockingPool` lets run to its end.

    Examples
    --------
    >>> async def add(a, b):
    ...     return a + b
    >>> run(add(1, 2))
    3
    """
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError(f"{work!r} waits for something else than a blocking pool.")


def blocking(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """A method that runs the coroutine of its object's `core`, with the same arguments."""

    @wraps(verb)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(verb(self.core, *args, **kwargs))

    return method


# Requests


class Request(NamedTuple):
    """What is to be sent, and how many seconds that may take."""

    method: str
    url: str
    content: bytes | None
    query: Mapping[str, Any] | None
    timeout: float


class Answer(NamedTuple):
    """What came back, whatever its status."""

    url: str
    status: int
    reason: str
    headers: Mapping[str, str]
    content: bytes


class SendingError(Exception):
    """There was no answer.

    unsent : whether the request cannot have been processed
    slow : whether time ran out
    """

    def __init__(self, message: str, unsent: bool, slow: bool) -> None:
        super().__init__(message)
        self.unsent, self.slow = unsent, slow


class Pool(Protocol):
    """Connections to one service, and how to wait.

    closed : whether it was closed; then nothing is sent any more
    """

    closed: bool

    async def send(self, request: Request) -> Answer:
        """The answer to a request; SendingError if there is none."""

    async def download(self, request: Request, file: IO[bytes]) -> Answer:
        """The same, but good content goes into a file, piece by piece."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def apart(self, work: Callable[[], T]) -> T:
        """The result of work with files, during which other tasks go on."""

    async def close(self) -> None:
        """Close the connections."""


class BlockingPool:
    """Connections that threads share, each of which waits for its answer."""

    def __init__(
        self, url: str, headers: Mapping[str, str], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._httpx2, self.closed = _httpx2(), False
        self._settings = _settings(url, headers)
        self._sleep = sleep
        self._inherited: list[httpx2.Client] = []
        self._pool: httpx2.Client = self._httpx2.Client(**self._settings)
        forget_after_fork(self)

    async def send(self, request: Request) -> Answer:
        """The answer to a request; SendingError if there is none."""
        with _translated(self._httpx2):
            return _answer(self._pool.request(**_given(request), timeout=request.timeout))

    async def download(self, request: Request, file: IO[bytes]) -> Answer:
        """The same, but good content goes into a file, piece by piece."""
        with (
            _translated(self._httpx2),
            self._pool.stream(**_given(request), timeout=request.timeout) as response,
        ):
            if response.status_code != 200:
                response.read()
                return _answer(response)
            for piece in response.iter_bytes():
                file.write(piece)
            return _answer(response, b"")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        self._sleep(seconds)

    async def apart(self, work: Callable[[], T]) -> T:
        """The result of work with files."""
        return work()

    async def close(self) -> None:
        """Close the connections."""
        self.closed = True
        self._pool.close()

    def forget(self) -> None:
        """In the child of a fork connections are the parent's; keep them from being closed here."""
        self._inherited.append(self._pool)
        self._pool = self._httpx2.Client(**self._settings)


class AsyncioPool:
    """Connections that tasks share; every event loop has its own.

    A request has its `timeout` in all. Work with files is done in another thread.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._httpx2, self.closed = _httpx2(), False
        self._settings = _settings(url, headers)
        self._inherited: list[httpx2.AsyncClient] = []
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient]
        self._pools = WeakKeyDictionary()
        forget_after_fork(self)

    @property
    def _pool(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            self._pools[loop] = self._httpx2.AsyncClient(**self._settings)
        return self._pools[loop]

    def _timeout(self, seconds: float) -> httpx2.Timeout:
        # Below the limit of the whole, so that a connection that failed is known to be that.
        soon = 0.9 * seconds
        timeout: httpx2.Timeout = self._httpx2.Timeout(seconds, connect=soon, pool=soon)
        return timeout

    async def send(self, request: Request) -> Answer:
        """The answer to a request; SendingError if there is none."""
        with _translated(self._httpx2):
            async with asyncio.timeout(request.timeout):
                timeout = self._timeout(request.timeout)
                return _answer(await self._pool.request(**_given(request), timeout=timeout))

    async def download(self, request: Request, file: IO[bytes]) -> Answer:
        """The same, but good content goes into a file, piece by piece."""
        timeout = self._timeout(request.timeout)
        with _translated(self._httpx2):
            async with self._pool.stream(**_given(request), timeout=timeout) as response:
                if response.status_code != 200:
                    await response.aread()
                    return _answer(response)
                async for piece in response.aiter_bytes():
                    await asyncio.to_thread(file.write, piece)
                return _answer(response, b"")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def apart(self, work: Callable[[], T]) -> T:
        """The result of work with files, during which other tasks go on."""
        return await asyncio.to_thread(work)

    async def close(self) -> None:
        """Close the connections of this event loop; those of others ended with them."""
        self.closed = True
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    def forget(self) -> None:
        """In the child of a fork connections are the parent's; keep them from being closed here."""
        self._inherited.extend(self._pools.values())
        self._pools = WeakKeyDictionary()


def _given(request: Request) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": request.url,
        "content": request.content,
        "params": request.query,
    }


def _answer(response: httpx2.Response, content: bytes | None = None) -> Answer:
    return Answer(
        str(response.request.url),
        response.status_code,
        response.reason_phrase,
        response.headers,
        response.content if content is None else content,
    )


@contextmanager
def _translated(x: Any) -> Iterator[None]:
    try:
        yield
    except x.RequestError as error:
        unsent = isinstance(error, (x.ConnectError, x.ConnectTimeout, x.PoolTimeout))
        slow = isinstance(error, x.TimeoutException)
        raise SendingError(str(error), unsent, slow) from None
    except TimeoutError as error:
        raise SendingError(str(error), unsent=False, slow=True) from None


def _settings(url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    limits = _httpx2().Limits(keepalive_expiry=KEPT_ALIVE)
    secure = url.startswith("https:")
    # To load the system's certificates takes 0.1 seconds; without TLS nothing asks for any.
    verify = _trusted() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return {"headers": headers, "limits": limits, "verify": verify}


@cache
def _trusted() -> ssl.SSLContext:
    context: ssl.SSLContext = _httpx2().create_ssl_context()
    return context


def _httpx2() -> Any:
    try:
        import httpx2
    except ImportError:
        raise MissingExtraError(
            "the client needs httpx2; install it with: pip install 'steadyarm[client]'"
        ) from None
    return httpx2
