"""Servers for tests: the real one, a proxy that fails on purpose, and one that follows a script."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Literal

Mode = Literal["pass", "cut", "hang"]
Answer = tuple[int, dict[str, str], Any]
Line = Answer | Literal["drop"] | float | Callable[[str, Any], Answer]


@contextmanager
def serving(folder: Path, *more: str) -> Iterator[str]:
    """`steadyarm serve` in a process of its own, which compiles nothing ahead."""
    command = [sys.executable, "-m", "steadyarm.cli.main", "serve"]
    command += ["--storage", f"sqlite:///{folder}/service.db", "--port", "0", "--no-access-log"]
    command += more
    log = (folder / "service.log").open("wb")
    cold = os.environ | {"STEADYARM_WARM": "false"}
    with log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=cold) as process:
        try:
            for _ in range(600):
                if found := re.search(r"serves (http://\S+)", (folder / "service.log").read_text()):
                    break
                assert process.poll() is None, (folder / "service.log").read_text()
                time.sleep(0.05)
            assert found, "the service did not start"
            yield found[1]
        finally:
            process.terminate()
            process.wait(30)


class Proxy:
    """Stands before a service: passes all on, cuts answers off, hangs, or is not there."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._target = (host, int(port))
        self.mode: Mode = "pass"
        self._open: set[socket.socket] = set()
        self._port = 0
        self.up()
        self.url = f"http://127.0.0.1:{self._port}"

    def up(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listening.getsockname()[1]
        self._thread = Thread(target=self._accept, args=(self._listening,), daemon=True)
        self._thread.start()

    def down(self) -> None:
        for one in [self._listening, *self._open]:
            _shut(one)
        self._thread.join()

    def _accept(self, listening: socket.socket) -> None:
        with listening, suppress(OSError):
            while True:
                one, _ = listening.accept()
                self._open.add(one)
                Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with closing(one), closing(socket.create_connection(self._target)) as other:
            self._open.add(other)
            back = Thread(target=self._answers, args=(other, one), daemon=True)
            back.start()
            with suppress(OSError):
                while data := one.recv(65536):
                    while self.mode == "hang":
                        time.sleep(0.01)
                    other.sendall(data)
            _shut(other)
            back.join()
        self._open -= {one, other}

    def _answers(self, other: socket.socket, one: socket.socket) -> None:
        with suppress(OSError):
            while data := other.recv(65536):
                if self.mode == "cut":
                    break
                one.sendall(data)
        _shut(one)


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


class Scripted:
    """Answers requests one after the other as its script says; the last line is repeated.

    A line is (status, headers, body), "drop" to close the connection unanswered, a number of
    seconds to wait before an empty answer, or a function of path and body that answers.
    """

    def __init__(self, *script: Line) -> None:
        self.script, self.requests = list(script), list[tuple[str, str, Any, dict[str, str]]]()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                server.requests.append((self.command, self.path, body, dict(self.headers)))
                line = server.script.pop(0) if len(server.script) > 1 else server.script[0]
                if callable(line):
                    line = line(self.path, body)
                if line == "drop":
                    self.close_connection = True
                    return
                if isinstance(line, (int, float)):
                    time.sleep(line)
                    line = (200, {}, {})
                status, headers, answer = line
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                with suppress(OSError):
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            do_GET = do_POST = do_DELETE = handle_one  # noqa: N815  # names that http.server calls

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Scripted:
        self._thread = Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
