"""What every page passes: who looks, whether they may, and headers on the way out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as Asked

from steadyarm.dashboard.access import Access, Session, Viewer, check_origin
from steadyarm.dashboard.forms import SMALL, form_of
from steadyarm.dashboard.problems import problem_page
from steadyarm.dashboard.responses import dress, local_path, see_other, wants_json
from steadyarm.service.auth import header_of
from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service
from steadyarm.storages.records import Scope

__all__ = ["GuardedPage", "Handler", "Page"]

Handler = Callable[[Service, Request, Viewer], Awaitable[Response]]


@dataclass(frozen=True)
class Page:
    """One page, or something that pages need.

    Attributes
    ----------
    scope : that a viewer needs; None if anybody may come
    asks_who : whether it matters who comes; if not, the storage is not asked
    """

    method: str
    path: str
    handler: Handler
    scope: Scope | None
    asks_who: bool = True


class GuardedPage(Route):
    """A page as the application serves it.

    Attributes
    ----------
    page : as the list has it
    """

    def __init__(self, service: Service, access: Access, page: Page) -> None:
        super().__init__(page.path, page.handler, methods=[page.method])
        self.page, self._service, self._access = page, service, access
        self.app = self._answer

    async def _answer(self, scope: Asked, receive: Receive, send: Send) -> None:
        scope["route"] = self  # for the border
        session = self._access.session(scope)
        viewer = self._access.nobody(session)
        try:
            if self.page.asks_who:  # which computes nothing, so it has no longer than others
                viewer = await self._service.in_time(self._viewer(scope, session), scope)
            answer = self._allowed(Request(scope, receive), session, viewer)
            response = await self._service.in_time(answer, scope, long=True)
        except Exception as error:  # foreseen or not: a page that tells it, never a stack trace
            response = problem_page(error, scope, viewer)
        if session.new and response.media_type == "text/html":  # it holds a key for forms
            self._access.remember(response, scope, session)
        await dress(response)(scope, receive, send)

    async def _viewer(self, scope: Asked, session: Session) -> Viewer:
        try:
            viewer = await self._access.viewer(scope, session)
        except RefusedError:
            if self.page.scope is not None:
                raise
            return self._access.nobody(session)
        scope["token"] = viewer.name  # for the access log
        return viewer

    async def _allowed(self, request: Request, session: Session, viewer: Viewer) -> Response:
        needed = self.page.scope
        if needed is not None and viewer.scope is None:
            return _to_sign_in(request.scope)
        request.scope["known"] = viewer.scope is not None
        if self.page.method == "POST":
            await self._check_key(request, session)
        if needed is not None and not viewer.may(needed):
            raise RefusedError(
                "forbidden",
                f"You came with the token {viewer.name!r}, which has the scope {viewer.scope}; "
                f"this needs {needed}.",
                f"Sign in with a token of: steadyarm token create --scope {needed}",
            )
        return await self.page.handler(self._service, request, viewer)

    async def _check_key(self, request: Request, session: Session) -> None:
        check_origin(request.scope)
        key = header_of(request.scope, b"x-csrf-token")
        if not key and not session.new:  # whoever has no session has no key: nothing is read
            most = SMALL if self.page.scope is None else self._service.settings.max_body
            key = (await form_of(request, most)).text("csrf")
        if session.new or not self._access.knows(session, key):
            raise RefusedError(
                "forbidden",
                "The page that this was sent from is too old, or of another session.",
                "Load it anew and try again; the browser must accept cookies.",
            )


def _to_sign_in(scope: Asked) -> Response:
    if wants_json(scope):
        raise RefusedError(
            "unauthorized", "You are not signed in, or not any more.", "Sign in at /sign-in."
        )
    path = "/"
    if scope["method"] == "GET":
        query = scope["query_string"].decode("latin-1")
        path = local_path(quote(scope["path"]) + ("?" + query if query else ""))
    return see_other("/sign-in" + (f"?next={quote(path)}" if path != "/" else ""))
