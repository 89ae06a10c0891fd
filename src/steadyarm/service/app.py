"""The application: the list of routes behind one border, on a storage that it is given."""

from __future__ import annotations

import itertools
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import steadyarm
from steadyarm.live.lifecycle import NAME
from steadyarm.service.problems import KINDS, MEDIA, RefusedError, answer_to
from steadyarm.service.routes import ROUTES, Route
from steadyarm.service.service import Service
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages.base import Storage
from steadyarm.wire import NoQuery, Problem

__all__ = ["Border", "Endpoint", "Refused", "create_app", "document"]

# Border: what every request passes on its way in and out; pure ASGI, for it must be quick.


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


# The OpenAPI document, made from the list of routes and the models of what is sent.


REF = "#/components/schemas/{model}"
TAGS = {
    "experiments": "Create experiments, look at them, change their states.",
    "traffic": "Ask for variants and tell their rewards.",
    "leases": "Hand variants out without asking for each.",
    "results": "What an experiment has found so far.",
    "corrections": "Correct what was stored, and read who did what.",
    "service": "The service itself.",
}
PLACES = {
    "name": {
        "type": "string",
        "pattern": f"^{NAME.pattern}$",
        "description": "of the experiment",
    },
    "lease": {
        "type": "integer",
        "minimum": 0,
        "maximum": 2**63 - 1,
        "description": "the id that the lease was answered with",
    },
}
TITLES: dict[int, list[str]] = {}
for _kind, (_status, _title) in KINDS.items():
    TITLES.setdefault(_status, []).append(f"{_title} ({_kind})")


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """All routes as OpenAPI describes them."""
    routes = tuple(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "SteadyArm",
            "version": steadyarm.__version__,
            "description": "Find the best of many variants with a fixed number of trials, and stay "
            "right when the world moves.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _schemas(routes),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [*_places(route.path), *_query(route.query)],
        "responses": _answers(route) | _errors(route),
    }
    if route.scope is not None:
        told["security"] = [{"token": []}]
        told["description"] = f"Needs a token of the scope {route.scope}."
    if route.body is not None:
        told["requestBody"] = {"required": True, "content": _json(route.body)}
    return told


def _places(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": PLACES[name]}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _query(model: type[BaseModel]) -> list[dict[str, Any]]:
    properties = model.model_json_schema().get("properties", {})
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in properties.items()
    ]


def _answers(route: Route) -> dict[str, Any]:
    told = {}
    for status, found in route.answers.items():
        content = (
            {media: {"schema": {"type": "string"}} for media in found}
            if isinstance(found, tuple)
            else _json(found)
        )
        told[str(status)] = {"description": "It is done.", "content": content, "headers": _id()}
    return told


def _errors(route: Route) -> dict[str, Any]:
    statuses = {500, *route.errors}
    if route.scope is not None:
        statuses |= {401, 403, 421, 429, 503}
    if "{" in route.path:
        statuses.add(404)
    if route.body is not None:
        statuses |= {400, 413, 422}
    if route.query is not NoQuery:
        statuses.add(422)
    content = {MEDIA: {"schema": {"$ref": REF.format(model="Problem")}}}
    return {
        str(status): {
            "description": "; ".join(TITLES[status]) + ".",
            "content": content,
            "headers": _id(),
        }
        for status in sorted(statuses)
    }


def _id() -> dict[str, Any]:
    return {"X-Request-ID": {"schema": {"type": "string"}, "description": "to be found in logs"}}


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(model=model.__name__)}}}


def _schemas(routes: tuple[Route, ...]) -> dict[str, Any]:
    bodies = [route.body for route in routes if route.body is not None]
    answers = [
        model
        for route in routes
        for model in route.answers.values()
        if not isinstance(model, tuple)
    ]
    models: dict[type[BaseModel], None] = dict.fromkeys([Problem, *bodies, *answers])
    _, found = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    schemas: dict[str, Any] = found["$defs"]
    return schemas


class Endpoint(APIRoute):
    """A route that checks the token, runs the handler and tells errors; no dependencies.

    Attributes
    ----------
    route : as the list has it
    """

    def __init__(self, service: Service, route: Route) -> None:
        async def answer(request: Request) -> Response:
            return await route.handler(service, request)

        super().__init__(
            route.path,
            answer,
            methods=[route.method],
            name=route.handler.__name__,
            response_model=None,
        )
        self.route, self._service = route, service
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, route = self._service, self.route
        try:
            if route.scope is not None:
                scope["token"] = service.guard.check(scope, route.scope)
            answer = route.handler(service, Request(scope, receive))
            response = await service.in_time(answer, scope, route.long)
        except Exception as error:  # foreseen or not: a problem, never a stack trace
            response = answer_to(error, scope)
        await response(scope, receive, send)


class App(FastAPI):
    """FastAPI with nothing between the border and the routes but what tells errors."""

    def __init__(self, service: Service, refused: Refused, **given: Any) -> None:
        super().__init__(**given)
        self.state.service, self._refused = service, refused

    def build_middleware_stack(self) -> ASGIApp:
        """See FastAPI; its own layers are for dependencies and tracing, which are not used here."""

        async def refused(request: Request, error: Exception) -> Response:
            return await self._refused(error, request.scope)

        handlers = {HTTPException: refused}
        inner = ExceptionMiddleware(self.router, handlers=handlers)
        return Border(inner, self.state.service, self._refused)


async def _told(error: Exception, scope: Scope) -> Response:
    return answer_to(error, scope)


def create_app(
    storage: Storage,
    settings: ServiceSettings | None = None,
    refused: Refused = _told,
) -> FastAPI:
    """The service on a storage, which it closes in the end.

    Parameters
    ----------
    refused : answers what no route takes, and requests under the name of another host
    """
    service = Service(storage, settings or ServiceSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = App(
        service,
        refused,
        title="SteadyArm",
        version=steadyarm.__version__,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        telemetry=dict.fromkeys(("tracing", "metrics", "logs"), False),  # else looked for each time
        lifespan=lifespan,
    )
    app.router.routes[:0] = [Endpoint(service, route) for route in ROUTES]
    described = document(ROUTES)
    app.openapi = lambda: described  # type: ignore[method-assign]  # as FastAPI's manual has it
    return app
