"""The process of the service: its socket, its workers, its log, and which connections stay open.

Uvicorn itself waits for ever for a request. Here a connection is closed if the head of a request
does not arrive within HEAD seconds, or if nobody reads what was sent to it. A process keeps a
limited number open; beyond that it closes the one that has gone longest without a whole request, so
that thousands of silent or half-finished connections lock nobody out.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import multiprocessing
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection as _Pipe
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from uvicorn.importer import import_from_string
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from steadyarm.errors import InvalidInputError
from steadyarm.service.settings import LogFormat, ServiceSettings
from steadyarm.storages import open_storage
from steadyarm.storages.base import Storage

# Connections: which stay open, and for how long.


log = logging.getLogger("steadyarm.service")

HEAD = 10.0  # seconds in which the head of a request has to come
UNREAD = 60.0  # seconds in which somebody has to read on
SWEEP = 1.0  # seconds between checks of all connections
QUIET = 60.0  # seconds between two warnings in the log
SPARE = 200  # descriptors for other things: the storage, logs, libraries

FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)


class Connection(HttpToolsProtocol):
    """One connection, as uvicorn serves it, and since when it has been silent.

    Attributes
    ----------
    refused : whether there is no room for it: its first request is answered with 503
    silent : since when the head of a request has been awaited; None between two requests
    unread : since when nobody has read what was sent
    """

    def __init__(self, together: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._together, self.refused = together, False
        self.silent: float | None = self.loop.time()
        self.unread: float | None = None

    @property
    def answering(self) -> bool:
        """Whether a request is being answered, or its body awaited."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def busy(self) -> bool:
        """Whether a request that has arrived whole is being answered."""
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
    """All connections of a process; uvicorn calls it to make one.

    most : that may be open
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: OrderedDict[Connection, None] = OrderedDict()  # the latest used comes last
        self._swept = False
        self._warned = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def __call__(self, **given: Any) -> Connection:
        """A connection that is about to be made."""
        return Connection(self, **given)

    def add(self, one: Connection) -> None:
        """Keep a new connection; an idle one may be closed for it."""
        self._open[one] = None
        if not self._swept:
            self._swept = True
            one.loop.call_later(SWEEP, self._sweep, one.loop)
        if len(self._open) <= self.most:
            return
        self._warn(one.loop.time())
        idle = next((old for old in self._open if not old.busy and old is not one), None)
        if idle is None:
            one.refused = True
        else:
            self._end(idle)

    def remove(self, one: Connection) -> None:
        """Forget a connection that is closed."""
        self._open.pop(one, None)

    def used(self, one: Connection) -> None:
        """Note that a request has begun, or has arrived whole."""
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

    def _warn(self, now: float) -> None:
        if not self._warned or now - self._warned > QUIET:
            self._warned = now
            log.warning(
                "%d connections are open, as many as max_connections allows; those that for "
                "longest have sent no whole request are closed for new ones",
                self.most,
            )


def raise_descriptors(wanted: int) -> int:
    """Raise the limit of file descriptors; returns how many connections fit into it."""
    with suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        if soft != resource.RLIM_INFINITY:
            return max(1, min(wanted, soft - SPARE))
    return wanted


# Serving: the socket, the workers, the log; what `steadyarm serve` does.


SERVICE = "steadyarm.service.app:create_app"
METRICS = "PROMETHEUS_MULTIPROC_DIR"
PATIENCE = 60  # seconds that a worker may take to import everything on a busy machine
GRACE = 30  # seconds in which requests are finished at the end
KEPT = 65  # seconds that idle connections are kept, a bit more than load balancers do
BACKLOG = 2048
COLLECT = (20_000, 20, 50)  # see gc.set_threshold
ENDING = (signal.SIGINT, signal.SIGTERM)


class _Ended(KeyboardInterrupt):
    """SIGTERM came; a KeyboardInterrupt, because no handler swallows these."""


def _end(number: int, frame: FrameType | None) -> None:
    raise _Ended


def serve(settings: ServiceSettings, create: str = SERVICE) -> None:
    """Serve until a signal ends it.

    Parameters
    ----------
    create : path of the function that makes the application from a storage and settings, such as
        "steadyarm.service.app:create_app"; imported late, and in every worker
    """
    # SIGTERM asks the service to finish its requests, not to fail.
    signal.signal(signal.SIGTERM, _end)
    # A shell lets processes in the background ignore SIGINT; it would be lost until uvicorn starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(_Ended):
        # All workers must know each other's cookies.
        _serve(replace(settings, secret=settings.secret or secrets.token_urlsafe(32)), create)
    print("steadyarm: stopped", file=sys.stderr, flush=True)


def _serve(settings: ServiceSettings, create: str) -> None:
    storage = open_storage(settings.storage)
    try:
        closed, tokens = storage.closed(), len(storage.tokens())
        _check(settings, storage, closed, tokens)
        listening = _bind(settings)
    except BaseException:
        storage.close()
        raise
    with listening:
        settings = replace(settings, port=listening.getsockname()[1])
        greeting = _greeting(settings, storage, closed, tokens)
        if settings.workers > 1:
            storage.close()  # each worker opens its own
        print(greeting, flush=True)
        if settings.workers == 1:
            _serve_alone(storage, settings, listening, create)
        else:
            _serve_together(settings, listening, create)


def app_from_environment(create: str = SERVICE, alive: _Pipe | None = None) -> Starlette:
    """Make the application in one of several workers.

    alive : a pipe whose other end only the supervisor has; when the supervisor ends, however it
        does, that end is closed, and the worker ends, too
    """
    if alive is not None:
        threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    if hasattr(signal, "pthread_sigmask"):  # uvicorn takes signals from here on
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    settings = ServiceSettings.from_environment(os.environ)
    _set_up_log(settings.log_format)
    app = _made(create, open_storage(settings.storage), settings)
    _spare_the_collector()
    return app


def _end_with(supervisor: _Pipe) -> None:
    with suppress(EOFError, OSError):
        supervisor.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)  # finishes what has begun
    time.sleep(GRACE + 5)
    os._exit(1)


def _made(create: str, storage: Storage, settings: ServiceSettings) -> Starlette:
    app: Starlette = import_from_string(create)(storage, settings)
    return app


def _serve_alone(
    storage: Storage, settings: ServiceSettings, listening: socket.socket, create: str
) -> None:
    _set_up_log(settings.log_format)
    server = uvicorn.Server(_config(_made(create, storage, settings), settings))
    _spare_the_collector()
    server.run(sockets=[listening])


def _serve_together(settings: ServiceSettings, listening: socket.socket, create: str) -> None:
    _set_up_log(settings.log_format)
    os.environ.update(settings.to_environment())
    folder = os.environ[METRICS] = tempfile.mkdtemp(prefix="steadyarm-metrics-")
    try:
        theirs, ours = multiprocessing.Pipe(duplex=False)
        made = partial(app_from_environment, create, theirs)
        with theirs, ours:  # workers get the first alone
            _Workers(_config(made, settings), sockets=[listening]).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Workers(Multiprocess):
    """Workers that hold signals back while they start, instead of showing tracebacks."""

    def init_processes(self) -> None:
        if os.name != "nt":
            resource_tracker.ensure_running()  # started later, it would unblock them
        with _held_back():  # workers inherit this
            super().init_processes()


@contextmanager
def _held_back() -> Iterator[None]:
    """Hold back the signals that end the service."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _config(app: Starlette | Callable[[], Any], settings: ServiceSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=cast(Any, Connections(raise_descriptors(settings.max_connections))),
        factory=not isinstance(app, Starlette),
        workers=settings.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEPT,
        timeout_graceful_shutdown=GRACE,
        timeout_worker_healthcheck=PATIENCE,
    )


def _spare_the_collector() -> None:
    """Exclude what was imported and collect less often; else requests wait 0.1 s at times."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


def _check(settings: ServiceSettings, storage: Storage, closed: bool, tokens: int) -> None:
    if settings.public and not tokens:
        why = "all tokens have been removed" if closed else "there is no token yet"
        alone = "" if closed else ", or serve this machine alone with --host 127.0.0.1"
        raise InvalidInputError(
            f"--host is {settings.host}, which others can reach, and {why}, so nobody would be let "
            f"in; create one with: steadyarm token create --name NAME --scope admin{alone}."
        )
    if storage.in_memory and settings.workers > 1:
        raise InvalidInputError(
            f"--workers is {settings.workers}, but a storage in memory belongs to one process; use "
            "--workers 1, or a database such as sqlite:///steadyarm.db."
        )


def _bind(settings: ServiceSettings) -> socket.socket:
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise InvalidInputError(
            f"cannot listen on {settings.host}, port {settings.port}: {error.strerror}; choose "
            "another --port (0 for any that is free) or --host."
        ) from None
    listening.set_inheritable(True)
    return listening


def _greeting(settings: ServiceSettings, storage: Storage, closed: bool, tokens: int) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    if tokens:
        who = f"{tokens} token{'s' * (tokens != 1)} may come in"
    elif closed:
        who = (
            "all tokens have been removed, so nobody may come in; create one with: steadyarm token "
            "create --name NAME --scope admin"
        )
    else:
        who = "no tokens, so whoever connects directly from this machine may do everything"
    workers = f"{settings.workers} worker{'s' * (settings.workers != 1)}"
    return (
        f"SteadyArm serves http://{host}:{settings.port}{settings.root_path} with {workers}.\n"
        f"  storage: {_place(storage)}\n  access: {who}"
    )


def _place(storage: Storage) -> str:
    if storage.in_memory:
        return "memory (gone when the server ends)"
    found = repr(storage).removeprefix("SQLStorage(").removesuffix(")")
    kind, _, file = found.partition(":///")
    return f"SQLite, {Path(file).absolute()}" if kind.startswith("sqlite") else found


class _JSONLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def _set_up_log(form: LogFormat) -> None:
    handler = logging.StreamHandler(sys.stderr if form == "text" else sys.stdout)
    handler.setFormatter(
        _JSONLines()
        if form == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("steadyarm").setLevel(logging.INFO)
