"""The process of the service: its socket, its signals, its log, and limits of connections."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import secrets
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO

import uvicorn
from starlette.applications import Starlette
from uvicorn.importer import import_from_string
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from steadyarm.errors import InvalidInputError, SteadyArmError
from steadyarm.live.metrics import microseconds
from steadyarm.service.app import MAX_HEAD, format_utc
from steadyarm.service.settings import ServiceSettings, explain_unknown
from steadyarm.storages import open_storage
from steadyarm.storages.records import LATEST, to_micros
from steadyarm.storages.storage import Storage

log = logging.getLogger("steadyarm.service")

HEAD = 10.0  # seconds in which the head of a request has to come
LINGER = 0.5  # seconds in which a request may still come on an open connection at the end
SPARE = 200  # descriptors for other things: the storage, logs, libraries

TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
    b"content-length: 0\r\n\r\n"
)


class LimitedProtocol(HttpToolsProtocol):
    """Bounds the head of a request, which uvicorn and httptools do not.

    A connection is closed if the head of a request takes longer than HEAD seconds or MAX_HEAD
    bytes. The h11 protocol has a limit for bytes, but takes three times as long for a request.
    At the end of the process, requests that are on their way are still answered.
    """

    _ending = False
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
        super().data_received(data)
        if self._received and self._timer is None:
            self._timer = self.loop.call_later(HEAD, self.transport.close)
        if self._received > MAX_HEAD:
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._end_head()
        super().on_headers_complete()
        if self._ending:
            super().shutdown()  # close after the response

    def shutdown(self) -> None:
        """See uvicorn: it would close connections whose request has not been read yet."""
        self._ending = True
        self.loop.call_later(LINGER, super().shutdown)
        if self.cycle is not None and not self.cycle.response_complete:
            super().shutdown()

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


# Serving: what `steadyarm serve` does.


GRACE = 30  # seconds in which requests are finished at the end
KEPT = 65  # seconds that idle connections are kept, a bit more than load balancers do
BACKLOG = 2048
COLLECT = (20_000, 20, 50)  # see gc.set_threshold
RELOADS = hasattr(signal, "SIGHUP") and not os.isatty(0)  # a terminal that closes ends the service
INHERITED = 3  # descriptor of a socket from systemd, or from this process before a reload


class _Ended(KeyboardInterrupt):
    """SIGTERM came; a KeyboardInterrupt, because no handler swallows these."""


def _end(number: int, frame: FrameType | None) -> None:
    raise _Ended


def serve(settings: ServiceSettings, create: str) -> None:
    """Serve until a signal ends it.

    create : path of the function that makes the application, such as
        "steadyarm.service.app:create_app"; it is imported after the socket is open
    """
    # SIGTERM asks the service to finish its requests, not to fail.
    signal.signal(signal.SIGTERM, _end)
    # A shell lets processes in the background ignore SIGINT; it would be lost until uvicorn starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if RELOADS:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a server to reload
    set_up_log(settings)
    try:
        # All processes must know each other's cookies, also the one after a reload.
        _serve(replace(settings, secret=settings.secret or secrets.token_urlsafe(32)), create)
    except _Ended:
        pass
    except SteadyArmError as error:
        if settings.log_format == "text":
            raise
        log.error("%s", error)
        sys.exit(1)
    _say(settings, "steadyarm: stopped", sys.stderr)


def _serve(settings: ServiceSettings, create: str) -> None:
    listening = _inherit()
    if listening is not None:
        settings = replace(settings, host=listening.getsockname()[0])
    storage = open_storage(settings.storage)
    try:
        closed, tokens = storage.tokens.closed(), len(storage.tokens.all())
        _check_access(settings, closed, tokens)
        _start_clock(settings, storage, closed)
        listening = listening or _bind(settings)
    except BaseException:
        storage.close()
        raise
    with listening:
        settings = replace(settings, port=listening.getsockname()[1])
        _say(settings, _greeting(settings, storage, closed, tokens), sys.stdout)
        for warning in explain_unknown(os.environ):
            log.warning("%s", warning)
        app: Starlette = import_from_string(create)(storage, settings)
        server = ReloadableServer(_config(app, settings), listening)
        app.state.service.metrics.connections = lambda: len(server.server_state.connections)
        if RELOADS:
            signal.signal(signal.SIGHUP, server.reload)
        _spare_the_collector()
        server.run(sockets=[listening.dup()])  # which uvicorn closes
        if server.reloading:
            _start_again(settings, listening)


class ReloadableServer(uvicorn.Server):
    """Ends at SIGHUP, too, and then leaves its socket open for the next process.

    If there is none, connections are refused from the first moment of the end on, so that a proxy
    takes another process.
    """

    def __init__(self, config: uvicorn.Config, listening: socket.socket) -> None:
        super().__init__(config)
        self._listening, self.reloading = listening, False

    def reload(self, number: int, frame: FrameType | None) -> None:
        """End, to be started again."""
        self.reloading = self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        if not self.reloading:
            self._listening.close()
        await super().shutdown(sockets)


def _start_again(settings: ServiceSettings, listening: socket.socket) -> NoReturn:
    """Replace this process by a new one with the same id; connections wait in its open socket."""
    log.info("reloading")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the new process begins with this
    os.dup2(listening.fileno(), INHERITED)
    os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
    os.environ["STEADYARM_SECRET"] = settings.secret or ""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _inherit() -> socket.socket | None:
    """The socket that systemd passes to this process, if it does."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    return socket.socket(fileno=INHERITED)


def _config(app: Starlette, settings: ServiceSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=LimitedProtocol,
        limit_concurrency=raise_descriptors(settings.max_connections),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEPT,
        timeout_graceful_shutdown=GRACE,
    )


def _spare_the_collector() -> None:
    """Exclude what was imported and collect less often; else requests wait 0.1 s at times."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


def _check_access(settings: ServiceSettings, closed: bool, tokens: int) -> None:
    if settings.public and not tokens:
        why = "all tokens have been removed" if closed else "there is no token yet"
        alone = "" if closed else ", or serve this machine alone with --host 127.0.0.1"
        raise InvalidInputError(
            f"--host is {settings.host}, which others can reach, and {why}; create one with: "
            f"steadyarm token create --name NAME --scope admin{alone}."
        )


def _start_clock(settings: ServiceSettings, storage: Storage, closed: bool) -> None:
    """Let the storage's clock start at another time, for a rehearsal."""
    start = settings.clock_start
    if start is None:
        return
    if closed:
        raise InvalidInputError(
            "--clock-from is for rehearsals, and this storage has had tokens, so its tests are "
            "real. Rehearse with another --storage."
        )
    begin, began = to_micros(start, LATEST), time.monotonic()
    storage.now = lambda: begin + microseconds(settings.clock_speed * (time.monotonic() - began))


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
    return listening


def _greeting(settings: ServiceSettings, storage: Storage, closed: bool, tokens: int) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    if tokens:
        who = f"{tokens} token{'s' * (tokens != 1)} may come in"
    elif closed:
        who = (
            "all tokens were removed, so every request is refused; create a token with: "
            "steadyarm token create --name NAME --scope admin"
        )
    else:
        who = "no tokens; direct connections from this machine have full access"
    if settings.clock_from is not None:
        who += f"\n  rehearsal: the clock starts at {settings.clock_from}"
    return (
        f"SteadyArm serves http://{host}:{settings.port}{settings.root_path}\n"
        f"  storage: {_describe_storage(storage)}\n  access: {who}"
    )


def _describe_storage(storage: Storage) -> str:
    if storage.in_memory:
        return "memory (gone when the server ends)"
    found = repr(storage).removeprefix("Storage(").removesuffix(")")
    kind, _, file = found.partition(":///")
    return f"SQLite, {Path(file).absolute()}" if kind.startswith("sqlite") else found


# The log


def _say(settings: ServiceSettings, text: str, file: TextIO) -> None:
    """Tell people something, or write it to the log if programs read everything."""
    if settings.log_format == "json":
        log.info("%s", text)
    else:
        print(text, file=file, flush=True)


class _JSONLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": format_utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up_log(settings: ServiceSettings) -> None:
    """Write what all libraries log to one place, in one form, with times in UTC."""
    as_json = settings.log_format == "json"
    handler = logging.StreamHandler(sys.stdout if as_json else sys.stderr)
    form = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"
    text = logging.Formatter(form, "%Y-%m-%dT%H:%M:%S")
    text.converter = time.gmtime
    handler.setFormatter(_JSONLines() if as_json else text)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    logging.getLogger("steadyarm").setLevel(settings.log_level.upper())
    # Connections that break are reported once, by the calls that they break.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
