"""Serving: the socket, the workers, the log; what `steadyarm serve` does."""

from __future__ import annotations

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
from fastapi import FastAPI
from uvicorn.importer import import_from_string
from uvicorn.supervisors import Multiprocess

from steadyarm.errors import InvalidInputError
from steadyarm.service.connections import Connections, raise_descriptors
from steadyarm.service.settings import LogFormat, ServiceSettings
from steadyarm.storages import open_storage
from steadyarm.storages.base import Storage
from steadyarm.storages.memory import MemoryStorage

__all__ = ["app_from_environment", "serve"]

SERVICE = "steadyarm.service.app:create_app"
METRICS = "PROMETHEUS_MULTIPROC_DIR"
PATIENCE = 60  # seconds that a worker may take to import everything on a busy machine
GRACE = 30  # seconds in which requests are finished at the end
KEPT = 65  # seconds that idle connections are kept, a bit more than load balancers do
BACKLOG = 2048
COLLECT = (20_000, 20, 50)  # see gc.set_threshold
ENDING = (signal.SIGINT, signal.SIGTERM)


class _Ended(KeyboardInterrupt):
    """SIGTERM came; a kind of what Ctrl-C raises, for that is let through everywhere."""


def _end(number: int, frame: FrameType | None) -> None:
    raise _Ended


def serve(settings: ServiceSettings, create: str = SERVICE) -> None:
    """Serve until a signal ends it.

    Parameters
    ----------
    create : where the function is that makes the application of a storage and settings, such as
        "steadyarm.service.app:create_app"; imported late, and in every worker
    """
    # Whoever ends a service with SIGTERM wants it to finish, not to fail.
    signal.signal(signal.SIGTERM, _end)
    # In the background of a shell it is ignored at first, and would get lost until uvicorn listens.
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


def app_from_environment(create: str = SERVICE, alive: _Pipe | None = None) -> FastAPI:
    """The application of one of many workers.

    alive : the end of a pipe whose other end only the supervisor has: it is closed when that ends,
        however it does, and then the worker ends, too
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


def _made(create: str, storage: Storage, settings: ServiceSettings) -> FastAPI:
    app: FastAPI = import_from_string(create)(storage, settings)
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
    """Workers that, while they start, keep a signal for later; else they would show tracebacks."""

    def init_processes(self) -> None:
        if os.name != "nt":
            resource_tracker.ensure_running()  # it would let them through
        with _held_back():  # workers inherit this
            super().init_processes()


@contextmanager
def _held_back() -> Iterator[None]:
    """Signals that end it come after what is done here."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _config(app: FastAPI | Callable[[], Any], settings: ServiceSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=cast(Any, Connections(raise_descriptors(settings.max_connections))),
        factory=not isinstance(app, FastAPI),
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
    """Leave out what was imported, and look less often: else requests wait 0.1 s now and then."""
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
    if isinstance(storage, MemoryStorage) and settings.workers > 1:
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
        f"SteadyArm serves http://{host}:{settings.port} with {workers}.\n"
        f"  storage: {_place(storage)}\n  access: {who}"
    )


def _place(storage: Storage) -> str:
    if isinstance(storage, MemoryStorage):
        return "memory (gone when the server ends)"
    found = repr(storage).removeprefix("SQLStorage(").removesuffix(")")
    kind, _, file = found.partition(":///")
    return f"SQLite, {Path(file).absolute()}" if kind.startswith("sqlite") else found


class _JSONLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told)


def _set_up_log(form: LogFormat) -> None:
    handler = logging.StreamHandler(sys.stderr if form == "text" else sys.stdout)
    handler.setFormatter(
        _JSONLines()
        if form == "json"
        else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("steadyarm").setLevel(logging.INFO)
