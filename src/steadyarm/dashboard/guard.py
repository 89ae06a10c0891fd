"""Errors as pages for people; programs get the service's own answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as Asked

from steadyarm.dashboard.access import Access, Session, Viewer, check_origin
from steadyarm.dashboard.forms import SMALL, form_of
from steadyarm.dashboard.responses import dress, local_path, render, see_other, wants_json
from steadyarm.service.auth import header_of
from steadyarm.service.problems import GENERIC, HEADERS, RefusedError, answer_to, problem_of
from steadyarm.service.service import Service
from steadyarm.storages.records import Scope

__all__ = ["GuardedPage", "Handler", "Page", "problem_page"]

# Errors as pages for people; programs get the service's own answer.


TITLES = {
    "malformed": "The form could not be read",
    "forbidden": "This is not allowed",
    "not-found": "There is no such page",
    "too-large": "The form is too large",
}
# What helps a person at a browser; the service's own hints are for programs.
HINTS = {
    "unknown-experiment": "The overview lists the experiments that are there.",
    "not-found": "The overview shows all experiments.",
    "method-not-allowed": "Go to the overview and begin from there.",
    "experiment-exists": "Choose another name.",
    "wrong-state": "Look at the experiment again; somebody else may have changed it meanwhile.",
    "too-large": "Send less.",
    "internal": "Look for the request's id in the service's log.",
    "storage-unavailable": "Load the page again in a moment.",
    "starting": "Load the page again in a moment; the first start may take a minute.",
}


def problem_page(error: Exception, scope: Asked, viewer: Viewer) -> Response:
    """A page that tells an error; a problem in JSON if a script asked."""
    if wants_json(scope):
        return answer_to(error, scope)
    headers = error.headers if isinstance(error, (HTTPException, RefusedError)) else None
    if isinstance(error, HTTPException):  # of the router
        kind = GENERIC.get(error.status_code, "not-found")
        error = RefusedError(kind, "The address may be mistyped, or the page has moved.")
    told = problem_of(error, scope.get("request_id", ""))
    kind = told["type"].rpartition(":")[2]
    own = error.hint if isinstance(error, RefusedError) else None
    detail = told["detail"]
    page = render(
        "problem.html",
        viewer,
        told["status"],
        title=TITLES.get(kind, told["title"]),
        detail=detail[:1].upper() + detail[1:],
        hint=HINTS.get(kind) if own is None else own,
        request_id=told["request_id"] if told["status"] >= 500 else "",
    )
    page.headers.update(headers or HEADERS.get(kind, {}))
    return page


# What every page passes: who looks, whether they may, and headers on the way out.


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
