"""Ways to the service: in this process, on sockets, as a process; and what it sends to."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx2
import uvicorn
from starlette.applications import Starlette

from steadyarm.dashboard.app import create_app as create_dashboard
from steadyarm.service.app import create_app
from steadyarm.service.auth import new_token
from steadyarm.service.process import _config
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages import open_storage
from steadyarm.storages.service import Scope
from steadyarm.storages.storage import Storage

T = TypeVar("T")

SHOP = {"name": "shop", "arms": ["A", "B", "C"], "budget": 1000, "seed": 1, "missing": "drop"}


class InProcess:
    """The application in a loop of its own thread; requests may come from any thread."""

    def __init__(self, app: Starlette) -> None:
        self.app = app
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> InProcess:
        self._thread.start()
        self._lifespan = self.app.router.lifespan_context(self.app)
        self.run(self._lifespan.__aenter__())
        transport = httpx2.ASGITransport(self.app, raise_app_exceptions=False)
        self._client = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._client.aclose())
        self.run(self._lifespan.__aexit__(None, None, None))
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Any) -> Any:
        """What a coroutine gives that runs in the application's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def limit(self, seconds: float) -> None:
        """From now on, requests are answered in this time or refused."""
        service = self.app.state.service
        service.settings = replace(service.settings, request_timeout=seconds)

    def request(self, method: str, path: str, **given: Any) -> httpx2.Response:
        answer: httpx2.Response = self.run(self._client.request(method, path, **given))
        return answer

    def get(self, path: str, **given: Any) -> httpx2.Response:
        return self.request("GET", path, **given)

    def post(self, path: str, json: Any = None, **given: Any) -> httpx2.Response:
        return self.request("POST", path, **({"json": json} if json is not None else {}), **given)


@contextmanager
def in_process(storage: Storage | None = None, **given: Any) -> Iterator[InProcess]:
    """The application on a storage, in memory by default, without lines for every request."""
    settings = ServiceSettings(**({"access_log": False, "warm": False} | given))
    with InProcess(create_app(storage or open_storage("memory"), settings)) as client:
        yield client


def add_token(storage: Storage, name: str = "me", scope: Scope = "admin", **given: Any) -> str:
    token, record = new_token(name, scope, **given)
    storage.tokens.add(record)
    return token


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def until(met: Callable[[], object], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a thread of its own: the main one may have the event loop of browser tests."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@contextmanager
def running(config: uvicorn.Config, port: int = 0) -> Iterator[tuple[str, int]]:
    """A server on real sockets in a thread of this process; its host and port."""
    with socket.create_server(("127.0.0.1", port), backlog=500) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**18)  # who reads slowly is felt
        server, place = uvicorn.Server(config), bound.getsockname()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield place
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def listening(storage: str, at: int = 0, **given: Any) -> Iterator[str]:
    """The service and its pages, as `steadyarm serve` sets them up; the address."""
    usual: Any = {"access_log": False, "warm": False, "secret": "a secret of the service alone"}
    settings = ServiceSettings(**(usual | given), storage=storage)
    app = create_dashboard(open_storage(storage), settings)
    with running(_config(app, settings), at) as (host, port):
        yield f"http://{host}:{port}"


@dataclass
class Server:
    process: subprocess.Popen[str]
    log: Path
    url: str = ""

    @property
    def said(self) -> str:
        """All that it has written."""
        return self.log.read_text()

    def is_ready(self) -> bool:
        """Whether it answers, at which address."""
        assert self.process.poll() is None, self.said
        if found := re.search(r"serves (http://[^:]+:\d+)", self.said):
            self.url = found[1]
            with suppress(httpx2.TransportError):
                return httpx2.get(f"{self.url}/readyz", timeout=60).status_code == 200
        return False

    def end(self) -> int:
        """SIGTERM; its status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(180)


@contextmanager
def served(folder: Path, *words: str, **variables: str) -> Iterator[Server]:
    """The real server on a free port and an SQLite file; quickly begun and silent by default."""
    typed = ("--port", "0", "--storage", f"sqlite:///{folder}/tests.db", *words)
    quick = {"STEADYARM_WARM": "false", "STEADYARM_ACCESS_LOG": "false"}
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "steadyarm", "serve", *typed],
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | quick | variables,
        )
        server = Server(process, Path(log.name))
        try:
            until(server.is_ready)  # numerical code may have to be compiled
            yield server
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(180)


@dataclass(frozen=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def content(self) -> Any:
        return json.loads(self.body or "null")


Answer = int | Literal["drop"] | tuple[int, Any] | Callable[[str, Any], Any]


@dataclass
class Receiver:
    """Answers with the next of `answers`, the last one for ever, after `delay` seconds.

    An answer is a status, a status and JSON, "drop" to close the connection unanswered, or a
    function of path and content that gives one of these.
    """

    answers: list[Answer] = field(default_factory=lambda: [204])
    delay: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    got: list[Received] = field(default_factory=list)
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.address}/hook"

    @property
    def types(self) -> list[str]:
        return [one.content["type"] for one in self.got]


@contextmanager
def receiving(port: int = 0, **given: Any) -> Iterator[Receiver]:
    """A receiver that runs; on a port of its own, or on one that is given."""
    receiver = Receiver(**given)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            got = {name.lower(): value for name, value in self.headers.items()}
            receiver.got.append(Received(self.path, got, body))
            answers = receiver.answers
            answer = answers.pop(0) if answers[1:] else answers[0]
            if callable(answer):
                answer = answer(self.path, receiver.got[-1].content)
            time.sleep(receiver.delay)
            if answer == "drop":
                self.close_connection = True
                return
            status, content = answer if isinstance(answer, tuple) else (answer, None)
            text = b"" if content is None else json.dumps(content).encode()
            try:
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except OSError:  # the sender has hung up
                self.close_connection = True

        do_GET = do_POST = handle_one  # noqa: N815  # names that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
