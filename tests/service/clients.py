"""Two ways to the service: in this process, and the real server as a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from starlette.applications import Starlette

from steadyarm.service.app import create_app
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages import open_storage
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


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a thread of its own: the main one may have the event loop of browser tests."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@dataclass
class Server:
    """A running `steadyarm serve`."""

    process: subprocess.Popen[str]
    url: str
    greeting: list[str]

    def end(self) -> tuple[int, str]:
        """SIGTERM; its status and what it still wrote."""
        self.process.send_signal(signal.SIGTERM)
        rest, _ = self.process.communicate(timeout=180)
        return self.process.returncode, rest


def command(*words: str, new_session: bool = False, **variables: str) -> subprocess.Popen[str]:
    """Start a command of steadyarm, which compiles nothing ahead; its output is one stream."""
    return subprocess.Popen(
        [sys.executable, "-m", "steadyarm.cli.main", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"STEADYARM_WARM": "false"} | variables,
        start_new_session=new_session,
    )


@contextmanager
def served(folder: Path, *words: str, warm: bool = False, **variables: str) -> Iterator[Server]:
    """The real server on a free port and an SQLite file in the folder."""
    at = ("--port", "0", "--storage", f"sqlite:///{folder}/tests.db")
    variables = {"STEADYARM_WARM": str(warm).lower()} | variables
    process = command("serve", *at, *words, new_session=False, **variables)
    try:
        assert process.stdout is not None
        greeting = [process.stdout.readline()]
        if not greeting[0].startswith("{"):  # else it is one line of JSON
            greeting += [process.stdout.readline() for _ in range(2)]
        found = re.search(r"http://[^:]+:\d+", greeting[0])
        assert found, "".join(greeting) + process.communicate(timeout=180)[0]
        server = Server(process, found[0], greeting)
        for _ in range(1800):  # numerical code may have to be compiled
            try:
                if httpx2.get(f"{server.url}/readyz").status_code == 200:
                    break
            except httpx2.TransportError:
                pass
            time.sleep(0.1)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=180)
