"""Tokens: who may do what. Each is 32 random bytes, of which only a hash is kept."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any

from steadyarm.service.problems import RefusedError
from steadyarm.service.settings import is_loopback
from steadyarm.settings import microseconds
from steadyarm.storages.base import Storage
from steadyarm.storages.records import Scope, TokenRecord

__all__ = ["RANKS", "RELOAD", "Guard", "hash_of", "header_of", "new_token"]

RELOAD = 2.0  # seconds; a token that was removed is refused within five
RANKS: dict[Scope, int] = {"read": 1, "write": 2, "admin": 3}


def new_token(name: str, scope: Scope) -> tuple[str, TokenRecord]:
    """A token to give away, and what is kept of it."""
    token = "sa_" + secrets.token_urlsafe(32)
    return token, TokenRecord(name, hash_of(token), scope, microseconds(time.time()))


def hash_of(token: str) -> str:
    """What is kept of a token: 256 random bits need neither salt nor a slow hash."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class Guard:
    """Lets requests pass, by the tokens that the storage had some seconds ago.

    Without any token it lets all pass that come from this machine; never any, if the service can
    be reached from elsewhere.
    """

    def __init__(self, storage: Storage, public: bool) -> None:
        self._storage, self._public = storage, public
        self._tokens: dict[str, TokenRecord] = {}

    def reload(self) -> None:
        """Look at the tokens again; if the storage does not answer, the old ones stay."""
        self._tokens = {token.hash: token for token in self._storage.tokens()}

    @property
    def open(self) -> bool:
        """Whether there are no tokens."""
        return not self._tokens

    def check(self, scope: Any, needed: Scope) -> str | None:
        """The name of the token that allows a request; RefusedError if none does."""
        if not self._tokens:
            self.check_local(scope)
            return None
        header = header_of(scope, b"authorization")
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer" or not token:
            raise RefusedError("unauthorized", "The request has no token.")
        found = self.find(token)
        if found is None:
            raise RefusedError("unauthorized", "The token is not known, or was removed.")
        if RANKS[found.scope] < RANKS[needed]:
            raise RefusedError(
                "forbidden",
                f"The token {found.name!r} has the scope {found.scope}; this needs {needed}.",
                f"Use a token of: steadyarm token create --scope {needed}",
            )
        return found.name

    def find(self, token: str) -> TokenRecord | None:
        """What is kept of a token; None if it is not known, or was removed."""
        # Found by hash: how long that takes says nothing about tokens, for hashes of guesses are
        # as good as random.
        return self._tokens.get(hash_of(token.strip()))

    def with_hash(self, beginning: str) -> TokenRecord | None:
        """The token whose hash begins so; None if there is none any more."""
        return next(
            (token for token in self._tokens.values() if token.hash.startswith(beginning)), None
        )

    def check_local(self, scope: Any) -> None:
        """Let pass what comes from this machine, as long as there are no tokens."""
        if self._public:
            raise RefusedError(
                "unauthorized",
                "There is no token, and the service can be reached from elsewhere.",
                "Create one with: steadyarm token create --name NAME --scope admin",
            )
        # A page of another site, open in a browser on this machine, must not get in.
        origin = header_of(scope, b"origin")
        for host in (header_of(scope, b"host"), origin.partition("://")[2] if origin else None):
            if host is not None and not is_loopback(_without_port(host)):
                raise RefusedError(
                    "forbidden",
                    "Without tokens only this machine is served, under a name such as localhost.",
                    "Create a token with: steadyarm token create --name NAME --scope admin",
                )


def header_of(scope: Any, wanted: bytes) -> str:
    """The first header of that name, in small letters; empty if there is none."""
    for name, value in scope["headers"]:
        if name == wanted:
            return str(value, "latin-1")
    return ""


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0][1:]
    return host.partition(":")[0]
