"""Who looks at a page: people sign in with a token, and a signed cookie remembers it for a while.

The cookie holds the beginning of the token's hash and a random id, never the token or what it
allows: that is looked up at every request, so a session ends when its token is removed.

The cookie is SameSite=Lax, not Strict: a link in a mail or a chat must not ask people to sign in
who have done so. With Lax other sites can only make the browser follow links, which change
nothing; whatever changes something is a POST, and that needs the key of the session as well.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass
from typing import Any

from itsdangerous import BadData, Signer, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope as Asked

from steadyarm.service.auth import RANKS, Guard, header_of
from steadyarm.service.problems import RefusedError
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages.records import Scope, TokenRecord

__all__ = ["LASTS", "Access", "Session", "Viewer", "check_origin"]

LASTS = 12 * 60 * 60  # seconds that somebody stays signed in
MARK = 32  # characters of a token's hash, 128 bits
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
    mark : the beginning of the token's hash; None without a token
    new : whether the browser does not know it yet
    """

    id: str
    mark: str | None = None
    new: bool = True


class Access:
    """Tells viewers by their cookies."""

    def __init__(self, guard: Guard, settings: ServiceSettings) -> None:
        secret = settings.secret or secrets.token_urlsafe(32)
        self._guard, self._settings = guard, settings
        self._cookies = URLSafeTimedSerializer(secret, "steadyarm.session", signer_kwargs=SIGNED)
        self._keys = Signer(secret, "steadyarm.csrf", **SIGNED)

    def session(self, scope: Asked) -> Session:
        """The session of a request; a new one if it has none, or a forged one."""
        cookie = Request(scope).cookies.get(self._name(scope), "")
        try:
            (id_, mark), signed = self._cookies.loads(cookie, return_timestamp=True)
        except BadData:
            return Session(secrets.token_urlsafe(16))
        if time.time() - signed.timestamp() >= LASTS:
            mark = None
        return Session(id_, mark, new=False)

    def viewer(self, scope: Asked, session: Session) -> Viewer:
        """Who a session belongs to; whoever is on this machine may do all if there are no tokens.

        RefusedError if there are no tokens and the request comes from elsewhere.
        """
        if self._guard.open:
            self._guard.check_local(scope)
            return Viewer(None, "admin", self._key(session))
        token = None if session.mark is None else self._guard.with_hash(session.mark)
        if token is None:
            return self.nobody(session)
        return Viewer(token.name, token.scope, self._key(session))

    def nobody(self, session: Session) -> Viewer:
        """Somebody who has not signed in."""
        return Viewer(None, None, self._key(session))

    def knows(self, session: Session, key: str) -> bool:
        """Whether a key for forms is that of the session."""
        return self._keys.verify_signature(session.id, key)

    def remember(self, response: Response, scope: Asked, session: Session) -> None:
        """Send the session to the browser."""
        response.set_cookie(
            self._name(scope),
            self._cookies.dumps((session.id, session.mark)),
            max_age=None if session.mark is None else LASTS,
            **self._manner(scope),
        )

    def sign_in(self, response: Response, scope: Asked, token: TokenRecord) -> None:
        """Begin another session, so that one which somebody else may know ends here."""
        session = Session(secrets.token_urlsafe(16), token.hash[:MARK])
        self.remember(response, scope, session)

    def forget(self, response: Response, scope: Asked) -> None:
        """End the session in this browser."""
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


def check_origin(scope: Asked) -> None:
    """Refuse what a page of another site sends."""
    origin = header_of(scope, b"origin").lower()
    if origin and origin.partition("://")[2] != header_of(scope, b"host").lower():
        raise RefusedError(
            "forbidden",
            "The form was sent from a page of another site.",
            "If a proxy stands in front of the service, let it pass the Host header on.",
        )
