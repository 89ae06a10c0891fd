"""Border: what every request passes on its way in and out; pure ASGI, for it must be quick."""

from __future__ import annotations

import itertools
import re
import secrets
import time
from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service

__all__ = ["Border", "Refused"]

Refused = Callable[[Exception, Scope], Awaitable[Response]]

SANE = re.compile(rb"[A-Za-z0-9._:-]{1,100}")
METHODS = {"GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"}


class Border:
    """Gives requests an id, counts them, writes the access log, refuses names of other hosts."""

    def __init__(self, app: ASGIApp, service: Service, refused: Refused) -> None:
        self._app, self._refused, self._guard = app, refused, service.guard
        self._metrics, self._log = service.metrics, service.access_log
        self._load = service.load
        self._prefix, self._counter = secrets.token_hex(6), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        request_id = self._request_id(scope)
        scope["request_id"] = request_id.decode()
        scope["load"], scope["held"] = self._load, 0  # bytes of its body
        scope["known"] = True  # whoever has no token gets no further, but to pages for anybody
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        try:
            try:
                self._guard.check_host(scope)
            except RefusedError as error:
                response = await self._refused(error, scope)
                await response(scope, receive, answer)
            else:
                await self._app(scope, receive, answer)
        finally:
            self._load.let_go(scope["held"], scope["known"])
            seconds = time.perf_counter() - began
            route = scope.get("route")
            path = "unmatched" if route is None else route.path
            method = scope["method"]
            self._metrics.count(method if method in METHODS else "other", path, status, seconds)
            if self._log is not None:
                self._log.add(scope, path, status, seconds)

    def _request_id(self, scope: Scope) -> bytes:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and SANE.fullmatch(value):
                return bytes(value)
        return b"%s-%x" % (self._prefix.encode(), next(self._counter))
