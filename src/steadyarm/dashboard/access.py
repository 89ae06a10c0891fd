"""Sessions of the dashboard: sign in, sign out, and what a viewer may do.

People sign in with a token. The browser then has a cookie with a random id, and the storage a hash
of that id with the hash of the token. Both are looked up at every request. When somebody signs out
or the token is removed, the session ends in all processes, also for copies of the cookie. The
cookie is signed, because the keys of forms are bound to ids, also before people sign in: no other
site can make up an id and its key.

The cookie is SameSite=Lax, not Strict: people who follow a link in a mail or a chat stay signed
in. With Lax other sites can only make the browser follow links, which change nothing. Every change
is a POST, which also needs the key of the session.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote

from itsdangerous import BadData, Signer, URLSafeSerializer
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Send
from starlette.types import Scope as RequestScope

from steadyarm.dashboard.responses import (
    local_path,
    render,
    see_other,
    wants_json,
    with_headers,
)
from steadyarm.live.metrics import microseconds
from steadyarm.service.app import read_body
from steadyarm.service.auth import RANKS, hash_of, header_of
from steadyarm.service.problems import (
    HEADERS,
    RefusedError,
    explain_router_error,
    problem_of,
    problem_response,
)
from steadyarm.service.service import Service
from steadyarm.storages.service import Scope, SessionRecord, TokenRecord
from steadyarm.wire.responses import PROBLEM

LASTS = 12 * 60 * 60  # seconds that somebody stays signed in
SIGNED: dict[str, Any] = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
MOST_FIELDS = 5_000  # of a form
SMALL_FORM = 8_192  # bytes of a form that anybody may send, signed in or not
TITLES = {
    "malformed": "The form could not be read",
    "forbidden": "This is not allowed",
    "not-found": "The page does not exist",
    "too-large": "The form is too large",
}
# What helps a person at a browser; the service's own hints are for programs.
HINTS = {
    "unknown-experiment": "The overview lists all experiments.",
    "not-found": "The overview lists all experiments.",
    "wrong-state": (
        "Load the page of the experiment again. Somebody else may have changed its state."
    ),
    "storage-unavailable": "Load the page again in a moment.",
    "starting": "Load the page again in a moment.",
}


@dataclass(frozen=True)
class Viewer:
    """A person who visits a page.

    Attributes
    ----------
    name : the name of the token; None without sign-in
    scope : what the viewer may do; None for nothing
    csrf : the key that forms and scripts send along with a POST
    root : the path under which a proxy serves this service; empty for none
    """

    name: str | None
    scope: Scope | None
    csrf: str
    root: str = ""

    def may(self, needed: Scope) -> bool:
        """Whether the viewer may do what needs a scope.

        Examples
        --------
        >>> Viewer("dashboards", "read", "").may("admin"), Viewer(None, None, "").may("read")
        (False, False)
        """
        return self.scope is not None and RANKS[self.scope] >= RANKS[needed]


@dataclass(frozen=True)
class BrowserSession:
    """The content of the cookie.

    Attributes
    ----------
    id : random; keys for forms are bound to it
    new : whether the browser does not know it yet
    """

    id: str
    new: bool = True


Handler = Callable[[Service, Request, Viewer], Awaitable[Response]]


@dataclass(frozen=True)
class Page:
    """One page, or something that pages need; a handler finds what a form sent in `state.form`.

    scope : that a viewer needs; None if anybody may come
    """

    method: str
    path: str
    handler: Handler
    scope: Scope | None


class Access:
    """Recognises viewers by their cookies; begins and ends their sessions."""

    def __init__(self, service: Service) -> None:
        secret = service.settings.secret or secrets.token_urlsafe(32)
        self.service, self._guard, self._settings = service, service.guard, service.settings
        self._cookies = URLSafeSerializer(secret, "steadyarm.live.session-id", signer_kwargs=SIGNED)
        self._keys = Signer(secret, "steadyarm.csrf", **SIGNED)

    def session(self, scope: RequestScope) -> BrowserSession:
        """The session of a request; a new one if its cookie is missing or forged."""
        cookie = Request(scope).cookies.get(self._name(scope), "")
        try:
            return BrowserSession(str(self._cookies.loads(cookie)), new=False)
        except BadData:
            return _new_session()

    async def viewer(self, scope: RequestScope, session: BrowserSession) -> Viewer:
        """The viewer of a session. Before the first token, people on this machine may do all.

        RefusedError if there has been no token and the request comes from elsewhere, or if no token
        is left.
        """
        if self._guard.open:
            self._guard.check_direct(scope)
            return self._viewer(None, "admin", session)
        self._guard.check_any_left()
        storage = self.service.storage

        def find() -> SessionRecord | None:  # in a thread: the clock may be the server's
            return storage.sessions.find(hash_of(session.id), storage.now())

        found = None if session.new else await self.service.run_short(find)
        token = None if found is None else self._guard.with_hash(found.token)
        if token is None:
            return self.nobody(session)
        return self._viewer(token.name, token.scope, session)

    def nobody(self, session: BrowserSession) -> Viewer:
        """A viewer who has not signed in."""
        return self._viewer(None, None, session)

    def _viewer(self, name: str | None, scope: Scope | None, session: BrowserSession) -> Viewer:
        return Viewer(name, scope, self._key(session), self._settings.root_path)

    def knows(self, session: BrowserSession, key: str) -> bool:
        """Whether a key for forms is that of the session."""
        return self._keys.verify_signature(session.id, key)

    def remember(
        self,
        response: Response,
        scope: RequestScope,
        session: BrowserSession,
        lasts: int | None = None,
    ) -> None:
        """Send the session to the browser, for that many seconds, or until it is closed."""
        cookie = self._cookies.dumps(session.id)
        response.set_cookie(self._name(scope), str(cookie), max_age=lasts, **self._options(scope))

    async def sign_in(self, response: Response, scope: RequestScope, token: TokenRecord) -> None:
        """Begin another session, so that one which somebody else may know ends here.

        InvalidInputError if the token was removed meanwhile.
        """
        session, storage = _new_session(), self.service.storage

        def add() -> None:
            now = storage.now()
            expires = now + microseconds(LASTS)
            storage.sessions.add(SessionRecord(hash_of(session.id), token.hash, now, expires))

        await self.service.write(add)
        self.remember(response, scope, session, LASTS)

    async def sign_out(self, response: Response, scope: RequestScope) -> None:
        """End the session, in this browser and wherever else its cookie is."""
        session = self.session(scope)
        await self.service.write(self.service.storage.sessions.remove, hash_of(session.id))
        response.delete_cookie(self._name(scope), **self._options(scope))

    def _key(self, session: BrowserSession) -> str:
        return self._keys.get_signature(session.id).decode()

    def _options(self, scope: RequestScope) -> dict[str, Any]:
        return {
            "path": self._settings.root_path or "/",
            "secure": self._secure(scope),
            "httponly": True,
            "samesite": "lax",
        }

    def _secure(self, scope: RequestScope) -> bool:
        # Anybody may send X-Forwarded-Proto, so a setting says it, or a proxy that is trusted.
        return self._settings.https or scope["scheme"] == "https"

    def _name(self, scope: RequestScope) -> str:
        # Browsers keep cookies by host alone, so services on other ports need other names; the
        # prefix makes them refuse cookies that came by http or from a neighbouring host. Where
        # other services have the same name, cookies are not for theirs, which that prefix forbids.
        prefix = "__Secure-" if self._settings.root_path else "__Host-"
        return (prefix if self._secure(scope) else "") + f"steadyarm-{self._settings.port}"


def _new_session() -> BrowserSession:
    return BrowserSession(secrets.token_urlsafe(32))


class GuardedPage(Route):
    """A page as the application serves it: finds out who comes, whether they may, adds headers.

    Attributes
    ----------
    page : as the list has it
    """

    def __init__(self, access: Access, page: Page) -> None:
        super().__init__(page.path, page.handler, methods=[page.method])
        self.page, self._access, self._service = page, access, access.service
        self.app = self._answer

    async def _answer(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # for metrics and the access log
        session = self._access.session(scope)
        viewer = self._access.nobody(session)
        try:
            # This computes nothing, so it has no longer than other requests.
            viewer = await self._service.in_time(self._viewer(scope, session))
            answer = self._allowed(Request(scope, receive), session, viewer)
            response = await self._service.in_time(answer, long=True)
        except Exception as error:  # foreseen or not: a page that explains it, never a stack trace
            response = problem_page(error, scope, viewer)
        if session.new and response.media_type == "text/html":  # it holds a key for forms
            self._access.remember(response, scope, session)
        await with_headers(response)(scope, receive, send)

    async def _viewer(self, scope: RequestScope, session: BrowserSession) -> Viewer:
        try:
            viewer = await self._access.viewer(scope, session)
        except RefusedError:
            if self.page.scope is not None:
                raise
            return self._access.nobody(session)
        scope["token"] = viewer.name  # for the access log
        return viewer

    async def _allowed(self, request: Request, session: BrowserSession, viewer: Viewer) -> Response:
        needed = self.page.scope
        if needed is not None and viewer.scope is None:
            return _to_sign_in(request.scope, viewer.root)
        request.scope["known"] = viewer.scope is not None
        if self.page.method == "POST":
            await self._check_form(request, session)
        if needed is not None and not viewer.may(needed):
            raise RefusedError(
                "forbidden",
                f"You are signed in with the token {viewer.name!r}, which has the scope "
                f"{viewer.scope}. This needs {needed}.",
                f"Sign in with a token of: steadyarm token create --scope {needed}",
            )
        return await self.page.handler(self._service, request, viewer)

    async def _check_form(self, request: Request, session: BrowserSession) -> None:
        """Read the form and refuse what comes from another site or session."""
        origin = header_of(request.scope, b"origin").lower()
        if origin and origin.partition("://")[2] != header_of(request.scope, b"host").lower():
            raise RefusedError(
                "forbidden",
                "The form was sent from another site.",
                "If the service is behind a proxy, let the proxy pass on the Host header.",
            )
        form: dict[str, list[str]] = {}
        if not session.new:  # a browser without a session has no key, so nothing is read
            most = SMALL_FORM if self.page.scope is None else self._service.settings.max_body
            form = await self._service.in_time(_form(request, most))
            request.state.form = form
        key = header_of(request.scope, b"x-csrf-token") or form.get("csrf", [""])[-1]
        if session.new or not self._access.knows(session, key):
            raise RefusedError(
                "forbidden",
                "The form is too old, or belongs to another session.",
                "Load the page again and retry. The browser must accept cookies.",
            )


async def _form(request: Request, most: int) -> dict[str, list[str]]:
    """The fields of a form, each with all of its values; none if the body is something else."""
    kind = header_of(request.scope, b"content-type").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return {}
    body = await read_body(request, most)
    try:
        return parse_qs(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MOST_FIELDS,
        )
    except ValueError:
        raise RefusedError(
            "malformed",
            f"The form is not text in UTF-8, or has more than {MOST_FIELDS:,} fields.",
            "Load the page again and retry.",
        ) from None


def _to_sign_in(scope: RequestScope, root: str) -> Response:
    if wants_json(scope):
        raise RefusedError("unauthorized", "You are not signed in.", f"Sign in at {root}/sign-in.")
    path = "/"
    if scope["method"] == "GET":
        query = scope["query_string"].decode("latin-1")
        path = local_path(quote(scope["path"]) + ("?" + query if query else ""))
    return see_other(root, "/sign-in" + (f"?next={quote(path)}" if path != "/" else ""))


def problem_page(error: Exception, scope: RequestScope, viewer: Viewer) -> Response:
    """The page that explains an error; a problem in JSON if a script asked."""
    if wants_json(scope):
        return problem_response(error, scope)
    if isinstance(error, HTTPException):
        error = explain_router_error(error, "The address may be mistyped, or the page has moved.")
    headers = error.headers if isinstance(error, RefusedError) else None
    problem = problem_of(error, scope)
    kind, detail = problem.type.removeprefix(PROBLEM), problem.detail
    own = error.hint if isinstance(error, RefusedError) else None
    page = render(
        "problem.html",
        viewer,
        problem.status,
        title=TITLES.get(kind, problem.title),
        detail=detail[:1].upper() + detail[1:],
        hint=HINTS.get(kind) if own is None else own,
        request_id=problem.request_id if problem.status >= 500 else "",
    )
    page.headers.update(headers or HEADERS.get(kind, {}))
    return page
