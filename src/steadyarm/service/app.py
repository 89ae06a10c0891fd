"""The application: the list of routes behind one border, on a storage that it is given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

import steadyarm
from steadyarm.service.border import Border, Refused
from steadyarm.service.openapi import document
from steadyarm.service.problems import answer_to
from steadyarm.service.routes import ROUTES, Route
from steadyarm.service.service import Service
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages.base import Storage

__all__ = ["Endpoint", "create_app"]


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
