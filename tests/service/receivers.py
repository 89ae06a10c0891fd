"""A server on this machine that answers as it is told and keeps what it got."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal


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
