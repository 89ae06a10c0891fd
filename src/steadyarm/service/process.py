"""The process of the service: its socket, its workers, its log, and limits of connections."""

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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection as _Pipe
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.importer import import_from_string
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from steadyarm.errors import InvalidInputError
from steadyarm.service.app import MAX_HEAD
from steadyarm.service.settings import LogFormat, ServiceSettings
from steadyarm.storages import open_storage
from steadyarm.storages.storage import Storage

HEAD = 10.0  # seconds in which the head of a request has to come
SPARE = 200  # descriptors for other things: the storage, logs, libraries

TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)


class LimitedProtocol(HttpToolsProtocol):
    """Bounds the head of a request, which uvicorn and httptools do not.

    A connection is closed if the head of a request takes longer than HEAD seconds or MAX_HEAD
    bytes. The h11 protocol has a limit for bytes, but takes three times as long for a request.
    """

    _received = 0  # bytes of a head that is not complete
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self.cycle is None or self.cycle.response_complete:
            self._received += len(data)
            if self._timer is None:
                self._timer = self.loop.call_later(HEAD, self.transport.close)
        super().data_received(data)
        if self._received > MAX_HEAD:
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._end_head()
        super().on_headers_complete()

    def _end_head(self) -> None:
        self._received = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


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


METRICS = "PROMETHEUS_MULTIPROC_DIR"
PATIENCE = 60  # seconds that a worker may take to import everything on a busy machine
GRACE = 30  # seconds in which requests are finished at the end
KEPT = 65  # seconds that idle connections are kept, a bit more than load balancers do
BACKLOG = 2048
COLLECT = (20_000, 20, 50)  # see gc.set_threshold


class _Ended(KeyboardInterrupt):
    """SIGTERM came; a KeyboardInterrupt, because no handler swallows these."""


def _end(number: int, frame: FrameType | None) -> None:
    raise _Ended


def serve(settings: ServiceSettings, create: str) -> None:
    """Serve until a signal ends it.

    create : path of the function that makes the application, such as
        "steadyarm.service.app:create_app"; every worker imports it
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
        closed, tokens = storage.tokens.closed(), len(storage.tokens.all())
        _check_access(settings, storage, closed, tokens)
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


def create_in_worker(settings: ServiceSettings, create: str, alive: _Pipe) -> Starlette:
    """Make the application in one of several workers.

    alive : a pipe whose other end only the supervisor has; when the supervisor ends, however it
        does, that end is closed, and the worker ends, too
    """
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    _set_up_log(settings.log_format)
    app: Starlette = import_from_string(create)(open_storage(settings.storage), settings)
    _spare_the_collector()
    return app


def _end_with(supervisor: _Pipe) -> None:
    with suppress(EOFError, OSError):
        supervisor.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)  # finishes what has begun
    time.sleep(GRACE + 5)
    os._exit(1)


def _serve_alone(
    storage: Storage, settings: ServiceSettings, listening: socket.socket, create: str
) -> None:
    _set_up_log(settings.log_format)
    server = uvicorn.Server(_config(import_from_string(create)(storage, settings), settings))
    _spare_the_collector()
    server.run(sockets=[listening])


def _serve_together(settings: ServiceSettings, listening: socket.socket, create: str) -> None:
    _set_up_log(settings.log_format)
    folder = os.environ[METRICS] = tempfile.mkdtemp(prefix="steadyarm-metrics-")
    try:
        theirs, ours = multiprocessing.Pipe(duplex=False)
        factory = partial(create_in_worker, settings, create, theirs)
        with theirs, ours:  # workers get the first alone
            Multiprocess(_config(factory, settings), sockets=[listening]).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _config(app: Starlette | Callable[[], Any], settings: ServiceSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=LimitedProtocol,
        limit_concurrency=raise_descriptors(settings.max_connections),
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


def _check_access(settings: ServiceSettings, storage: Storage, closed: bool, tokens: int) -> None:
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
        addresses = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
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
        f"  storage: {_describe_storage(storage)}\n  access: {who}"
    )


def _describe_storage(storage: Storage) -> str:
    if storage.in_memory:
        return "memory (gone when the server ends)"
    found = repr(storage).removeprefix("Storage(").removesuffix(")")
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
