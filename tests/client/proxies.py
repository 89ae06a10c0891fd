"""A proxy that fails on purpose."""

from __future__ import annotations

import socket
import time
from contextlib import closing, suppress
from threading import Thread
from typing import Literal

Mode = Literal["pass", "cut", "hang"]


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
