"""A receiver of webhooks on this machine, which answers as it is told and keeps what it got."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def content(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """Answers with the next of `statuses`, the last one for ever, after `delay` seconds."""

    statuses: list[int] = field(default_factory=lambda: [204])
    delay: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""
    got: list[Received] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def types(self) -> list[str]:
        return [one.content["type"] for one in self.got]

    def wait(self, count: int, seconds: float = 60) -> None:
        """Until so many requests came."""
        until = time.monotonic() + seconds
        while len(self.got) < count:
            assert time.monotonic() < until, f"{len(self.got)} of {count} came: {self.types}"
            time.sleep(0.05)


@contextmanager
def receiving(port: int = 0, **given: Any) -> Iterator[Receiver]:
    """A receiver that runs; on a port of its own, or on one that is given."""
    receiver = Receiver(**given)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got = {name.lower(): value for name, value in self.headers.items()}
            receiver.got.append(Received(self.path, got, body))
            status = receiver.statuses.pop(0) if receiver.statuses[1:] else receiver.statuses[0]
            time.sleep(receiver.delay)
            try:
                self.send_response(status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(receiver.content)))
                self.end_headers()
                self.wfile.write(receiver.content)
            except OSError:  # the sender has hung up
                self.close_connection = True

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
