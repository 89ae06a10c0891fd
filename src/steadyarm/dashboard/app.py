"""The application: the service, and the dashboard's pages beside it."""

from __future__ import annotations

from contextlib import suppress

from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import Scope

from steadyarm.dashboard import creating, pages
from steadyarm.dashboard.access import Access
from steadyarm.dashboard.guard import GuardedPage, Page, problem_page
from steadyarm.dashboard.pages import sign_in_pages
from steadyarm.dashboard.responses import dress, static
from steadyarm.errors import StorageError
from steadyarm.service import app as service_app
from steadyarm.service.auth import header_of
from steadyarm.service.problems import RefusedError, answer_to
from steadyarm.service.service import Service
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages.base import Storage

__all__ = ["create_app"]

# The first that fits counts.
PAGES: tuple[Page, ...] = (
    Page("GET", "/static/{file}", static, None, asks_who=False),
    *pages.PAGES,
    *creating.PAGES,
    *pages.ACTION_PAGES,
)


def create_app(storage: Storage, settings: ServiceSettings | None = None) -> FastAPI:
    """The service with the dashboard on a storage, which it closes in the end."""
    app = service_app.create_app(storage, settings, _refused)
    service: Service = app.state.service
    access = app.state.access = Access(service)
    found = (*sign_in_pages(access), *PAGES)
    app.router.routes.extend(GuardedPage(service, access, page) for page in found)
    return app


async def _refused(error: Exception, scope: Scope) -> Response:
    """A page where no route fits, for people; programs get what the service alone answers."""
    if scope["path"].startswith("/v1/") or "text/html" not in header_of(scope, b"accept"):
        return answer_to(error, scope)
    access: Access = scope["app"].state.access
    session = access.session(scope)
    viewer = access.nobody(session)
    with suppress(RefusedError, StorageError):
        service: Service = scope["app"].state.service
        viewer = await service.in_time(access.viewer(scope, session), scope)
    return dress(problem_page(error, scope, viewer))
