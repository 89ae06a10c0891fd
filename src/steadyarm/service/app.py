"""The application of the service: routes, middleware and a storage."""

from __future__ import annotations

import itertools
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec
from starlette import routing
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from steadyarm.service.auth import (
    MAX_BODY,
    cors_headers,
    header_of,
    headers_of,
    peer,
    preflight_headers,
)
from steadyarm.service.problems import RefusedError, json_response, problem_response
from steadyarm.service.routes import ROUTES, Route, document
from steadyarm.service.service import Service
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages.storage import Storage
from steadyarm.wire.requests import convert, decode
from steadyarm.wording import shortened

# Turns what the router refuses into a response.
Refused = Callable[[Exception, Scope], Awaitable[Response]]

SANE = re.compile(rb"[A-Za-z0-9._:-]{1,100}")
METHODS = {"GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"}
ASKED_METHOD = b"access-control-request-method"
FREE = ("/healthz", "/readyz")  # load balancers ask for them by an address
MAX_HEAD = 65_536  # bytes of all headers


class RequestMiddleware:
    """Gives requests an id, counts and logs them; cuts the root path off, if a proxy has not.

    It is plain ASGI, because every request passes it.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._root = service.settings.root_path
        self._logs = service.settings.access_log and service.settings.log_level in ("debug", "info")
        self._prefix, self._counter = secrets.token_hex(6), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        path = scope["path"]
        if self._root and (path == self._root or path.startswith(f"{self._root}/")):
            scope["path"] = path[len(self._root) :] or "/"
        request_id = self._request_id(scope)
        scope["request_id"] = request_id.decode()
        scope["service"], scope["held"] = self._service, 0  # bytes of its body
        scope["known"] = True  # without a token only pages that need none are reached
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        try:
            if error := _head_error(scope):
                await problem_response(error, scope)(scope, receive, answer)
            else:
                await self._app(scope, receive, answer)
        finally:
            self._service.bodies.remove(scope["held"], scope["known"])
            seconds = time.perf_counter() - began
            route = scope.get("route")
            path = "unmatched" if route is None else route.path
            method = scope["method"]
            known = method if method in METHODS else "other"
            requests, durations = self._service.metrics.of_request(known, path, status)
            requests.inc()
            durations.observe(seconds)
            if self._logs:
                log_request(self._service.settings.log_format, scope, path, status, seconds)

    def _request_id(self, scope: Scope) -> bytes:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and SANE.fullmatch(value):
                return bytes(value)
        return b"%s-%x" % (self._prefix.encode(), next(self._counter))


def _head_error(scope: Scope) -> RefusedError | None:
    """Why a request is refused for its headers alone."""
    size = hosts = 0
    for name, value in scope["headers"]:
        size += len(name) + len(value)
        hosts += name == b"host"
    if size > MAX_HEAD:
        return RefusedError("large-head", f"The headers exceed {MAX_HEAD:,} bytes.")
    if hosts > 1 or (hosts == 0 and scope["http_version"] == "1.1"):  # as RFC 9112 wants it
        return RefusedError("wrong-host", f"The request has {hosts} Host headers; expected one.")
    return None


class HostMiddleware(TrustedHostMiddleware):
    """Refuses requests under other names than those of the settings, except for probes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it."""
        free = scope["type"] == "http" and scope["path"] in FREE
        await (self.app if free else super().__call__)(scope, receive, send)


def format_utc(seconds: float) -> str:
    """A time of the log, in UTC.

    Examples
    --------
    >>> format_utc(1_700_000_000.25)
    '2023-11-14T22:13:20.250Z'
    """
    time_ = datetime.fromtimestamp(seconds, UTC)
    return time_.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_request(form: str, scope: Scope, route: str, status: int, seconds: float) -> None:
    """Print a line about a request; its path is written as it came, in plain characters."""
    entry: dict[str, Any] = {
        "time": format_utc(time.time()),
        "level": "info",
        "client": peer(scope),
        "token": scope.get("token"),
        "method": scope["method"],
        "path": scope.get("raw_path", b"").decode("ascii", "backslashreplace"),
        "route": route,
        "status": status,
        "ms": round(1000 * seconds, 2),
        "request_id": scope["request_id"],
    }
    if form == "json":
        line = json.dumps(entry)
    else:
        entry["token"] = entry["token"] or "-"
        line = "{time} {client} {token} {method} {path} {status} {ms} ms {request_id}"
        line = line.format_map(entry)
    print(f"{line}\n", end="", flush=True)  # in one piece: threads write, too


class Endpoint(routing.Route):
    """A route that checks the token, decodes the request, runs the handler and reports errors.

    Attributes
    ----------
    route : as the list has it
    """

    def __init__(self, service: Service, route: Route) -> None:
        super().__init__(route.path, self._called, name=route.handler.__name__)
        self.route, self._service = route, service
        self.methods = {route.method}  # Starlette adds HEAD to GET
        self.app = self._answer
        self._body, self._query = route.body, route.query

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # for metrics and the access log
        service, route = self._service, self.route
        try:
            if route.scope is not None:
                scope["token"] = service.guard.check(scope, route.scope, route.publishable)
            called = self._called(Request(scope, receive))
            response = await service.in_time(called, route.long)
        except Exception as error:  # foreseen or not: a problem, never a stack trace
            response = problem_response(error, scope, route.ofrep)
        if "cors" in scope:
            response.headers.update(cors_headers(scope["cors"]))
        await response(scope, receive, send)

    async def _called(self, request: Request) -> Response:
        service, handler = self._service, self.route.handler
        if self._body is not None:
            if "key" in request.scope:
                body = await self._of_key(request)
            else:
                body = decode(self._body, await read_body(request, service.settings.max_body))
            answer = await handler(service, request, body)
        elif self._query is not None:
            query = convert(self._query, dict(request.query_params), strict=False)
            answer = await handler(service, request, query)
        else:
            answer = await handler(service, request)
        if isinstance(answer, Response):
            return answer
        status, content = answer
        encoded = msgspec.json.encode(content)
        if self.route.etag:
            return with_etag(encoded, request, status=status)
        return Response(encoded, status, media_type="application/json")

    async def _of_key(self, request: Request) -> Any:
        """The body that came with a publishable key, which must allow what it claims."""
        assert self._body is not None
        assert self.route.publishable is not None
        most = min(MAX_BODY, self._service.settings.max_body)
        body = decode(self._body, await read_body(request, most))
        self._service.guard.check_claims(request.scope, self.route.publishable.claims(body))
        return body


def with_etag(
    content: bytes, request: Request, media_type: str = "application/json", status: int = 200
) -> Response:
    """A response with an ETag, or 304 without content if the sender has this one already."""
    tag = f'"{blake2b(content, digest_size=16).hexdigest()}"'
    known = request.headers.get("if-none-match", "").split(",")
    # Proxies that compress a response mark its tag as weak.
    if any(entry.strip().removeprefix("W/") in (tag, "*") for entry in known):
        return Response(status_code=304, headers={"ETag": tag})
    return Response(content, status, {"ETag": tag}, media_type=media_type)


class Preflight(routing.Route):
    """Answers browsers that ask whether a page of another site may send a request.

    Attributes
    ----------
    route : that the request would be for
    """

    def __init__(self, service: Service, route: Route) -> None:
        super().__init__(route.path, self._answer, name=f"{route.handler.__name__}-preflight")
        self.route, self._guard = route, service.guard
        self.methods = {"OPTIONS"}
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self.route
        assert route.publishable is not None
        scope["route"] = self  # for metrics and the access log
        origins = headers_of(scope, b"origin")
        if len(origins) != 1 or header_of(scope, ASKED_METHOD) != route.method:
            why = "An OPTIONS request needs an Origin and an Access-Control-Request-Method."
            raise RefusedError("method-not-allowed", why, headers={"Allow": route.method})
        (origin,) = origins
        if not self._guard.declares(origin, route.publishable.experiment(scope)):
            why = f"No publishable key for this experiment declares the origin {shortened(origin)}."
            raise RefusedError("method-not-allowed", why, headers={"Allow": route.method})
        response = Response(status_code=204, headers=preflight_headers(origin, route.method))
        await response(scope, receive, send)


async def read_body(request: Request, most: int) -> bytes:
    """The whole body; RefusedError if it is larger than `most` bytes, or too much waits."""
    scope, body, more = request.scope, bytearray(), True
    announced = header_of(scope, b"content-length")
    if announced.isdecimal() and int(announced) > most:
        raise _too_large(most)
    service: Service = scope["service"]
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise RefusedError("malformed", "The body ended early.")
        part, more = message.get("body", b""), message.get("more_body", False)
        scope["held"] += len(part)
        service.bodies.add(len(part), scope["known"])
        body += part
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


def _too_large(most: int) -> RefusedError:
    return RefusedError("too-large", f"The body is larger than {most:,} bytes.", "Send less.")


async def _problem(error: Exception, scope: Scope) -> Response:
    return problem_response(error, scope)


def create_app(
    storage: Storage,
    settings: ServiceSettings | None = None,
    refused: Refused = _problem,
) -> Starlette:
    """The service on a storage, which it closes in the end.

    Parameters
    ----------
    refused : responds where no route fits
    """
    settings = settings or ServiceSettings()
    service = Service(storage, settings)
    described = document(settings.root_path)
    middleware = [Middleware(RequestMiddleware, service=service)]
    if settings.trusted_proxies:
        proxies = list(settings.trusted_proxies)
        middleware.append(Middleware(ProxyHeadersMiddleware, trusted_hosts=proxies))
    if settings.allowed_hosts:
        names = (host.strip("[]") for host in settings.allowed_hosts)
        hosts = [f"[{name}]" if ":" in name else name for name in names]
        middleware.append(Middleware(HostMiddleware, allowed_hosts=hosts, www_redirect=False))

    async def openapi(request: Request) -> Response:
        return json_response(described)

    async def unrouted(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 405:
            scope = request.scope  # the router names the methods of one route alone
            matching = [r for r in app.routes if r.matches(scope)[0] is not routing.Match.NONE]
            methods = {m for r in matching if isinstance(r, routing.Route) for m in r.methods or ()}
            error.headers = {"Allow": ", ".join(sorted(methods))}
        return await refused(error, request.scope)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = Starlette(
        routes=[
            *(Endpoint(service, route) for route in ROUTES),
            routing.Route("/openapi.json", openapi),
            *(Preflight(service, route) for route in ROUTES if route.publishable is not None),
        ],
        middleware=middleware,
        exception_handlers={HTTPException: unrouted, RefusedError: unrouted},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.service = service
    return app
