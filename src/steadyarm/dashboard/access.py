"""Who looks at a page: people sign in with a token, and a session remembers it for a while.

The browser has a cookie with a random id, and the storage a hash of that id with the hash of the
token. Both are looked up at every request, so that a session ends for all workers at once when
somebody signs out or the token is removed, whoever has copied the cookie. The cookie is signed,
since keys for forms are bound to ids, also of people who have not signed in: no other site can make
up an id and its key.

The cookie is SameSite=Lax, not Strict: a link in a mail or a chat must not ask people to sign in
who have done so. With Lax other sites can only make the browser follow links, which change
nothing; whatever changes something is a POST, and that needs the key of the session as well.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadData, Signer, URLSafeSerializer
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope as Asked

from steadyarm.live.settings import microseconds
from steadyarm.service.auth import RANKS, hash_of, header_of
from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service
from steadyarm.storages.records import Scope, SessionRecord, TokenRecord

__all__ = ["LASTS", "Access", "Session", "Viewer", "check_origin"]

LASTS = 12 * 60 * 60  # seconds that somebody stays signed in
SIGNED: dict[str, Any] = {"key_derivation": "hmac", "digest_method": hashlib.sha256}


@dataclass(frozen=True)
class Viewer:
    """Whoever looks at a page.

    Attributes
    ----------
    name : of the token; None if nobody signed in, or nobody has to
    scope : what the viewer may do; None for nobody
    csrf : the key that forms and scripts send along with a POST
    """

    name: str | None
    scope: Scope | None
    csrf: str

    @property
    def signed_in(self) -> bool:
        """Whether a token was used."""
        return self.name is not None

    def may(self, needed: Scope) -> bool:
        """Whether the viewer may do what needs a scope.

        Examples
        --------
        >>> Viewer("dashboards", "read", "").may("admin"), Viewer(None, None, "").may("read")
        (False, False)
        """
        return self.scope is not None and RANKS[self.scope] >= RANKS[needed]


@dataclass(frozen=True)
class Session:
    """What the cookie says.

    Attributes
    ----------
    id : random; keys for forms are bound to it
    new : whether the browser does not know it yet
    """

    id: str
    new: bool = True


class Access:
    """Tells viewers by their cookies."""

    def __init__(self, service: Service) -> None:
        secret = service.settings.secret or secrets.token_urlsafe(32)
        self._service, self._guard, self._settings = service, service.guard, service.settings
        self._cookies = URLSafeSerializer(secret, "steadyarm.live.session-id", signer_kwargs=SIGNED)
        self._keys = Signer(secret, "steadyarm.csrf", **SIGNED)

    def session(self, scope: Asked) -> Session:
        """The session of a request; a new one if it has none, or a forged one."""
        cookie = Request(scope).cookies.get(self._name(scope), "")
        try:
            return Session(str(self._cookies.loads(cookie)), new=False)
        except BadData:
            return _new_session()

    async def viewer(self, scope: Asked, session: Session) -> Viewer:
        """Who a session belongs to; whoever is on this machine may do all before the first token.

        RefusedError if there has been no token and the request comes from elsewhere, or if no token
        is left.
        """
        if self._guard.open:
            self._guard.check_direct(scope)
            return Viewer(None, "admin", self._key(session))
        self._guard.check_any_left()
        token = None if session.new else await self._token(session)
        if token is None:
            return self.nobody(session)
        return Viewer(token.name, token.scope, self._key(session))

    async def _token(self, session: Session) -> TokenRecord | None:
        storage = self._service.storage

        def find() -> SessionRecord | None:  # in a thread: the clock may be the server's
            return storage.find_session(hash_of(session.id), storage.now())

        found = await self._service.look_up(find)
        return None if found is None else self._guard.with_hash(found.token)

    def nobody(self, session: Session) -> Viewer:
        """Somebody who has not signed in."""
        return Viewer(None, None, self._key(session))

    def knows(self, session: Session, key: str) -> bool:
        """Whether a key for forms is that of the session."""
        return self._keys.verify_signature(session.id, key)

    def remember(
        self, response: Response, scope: Asked, session: Session, lasts: int | None = None
    ) -> None:
        """Send the session to the browser, for that many seconds, or until it is closed."""
        cookie = self._cookies.dumps(session.id)
        response.set_cookie(self._name(scope), str(cookie), max_age=lasts, **self._manner(scope))

    async def sign_in(self, response: Response, scope: Asked, token: TokenRecord) -> None:
        """Begin another session, so that one which somebody else may know ends here.

        InvalidInputError if the token was removed meanwhile.
        """
        session, storage = _new_session(), self._service.storage

        def add() -> None:
            now = storage.now()
            expires = now + microseconds(LASTS)
            storage.add_session(SessionRecord(hash_of(session.id), token.hash, now, expires))

        await self._service.write("", add)
        self.remember(response, scope, session, LASTS)

    async def sign_out(self, response: Response, scope: Asked, session: Session) -> None:
        """End the session, in this browser and wherever else its cookie is."""
        await self._service.write("", self._service.storage.remove_session, hash_of(session.id))
        response.delete_cookie(self._name(scope), **self._manner(scope))

    def _key(self, session: Session) -> str:
        return self._keys.get_signature(session.id).decode()

    def _manner(self, scope: Asked) -> dict[str, Any]:
        return {"path": "/", "secure": self._secure(scope), "httponly": True, "samesite": "lax"}

    def _secure(self, scope: Asked) -> bool:
        # What a proxy says in X-Forwarded-Proto anybody may say, so a setting tells it.
        return self._settings.https or scope["scheme"] == "https"

    def _name(self, scope: Asked) -> str:
        # Browsers keep cookies by host alone, so services on other ports need other names; the
        # prefix makes them refuse cookies that came by http or from a neighbouring host.
        return ("__Host-" if self._secure(scope) else "") + f"steadyarm-{self._settings.port}"


def _new_session() -> Session:
    return Session(secrets.token_urlsafe(32))


def check_origin(scope: Asked) -> None:
    """Refuse what a page of another site sends."""
    origin = header_of(scope, b"origin").lower()
    if origin and origin.partition("://")[2] != header_of(scope, b"host").lower():
        raise RefusedError(
            "forbidden",
            "The form was sent from a page of another site.",
            "If a proxy stands in front of the service, let it pass the Host header on.",
        )
