"""Authentication: tokens, and which requests need none.

A token is 32 random bytes, of which only a hash is kept. A service whose storage has never had a
token serves this machine without one, but only programs that connect directly: what came through a
proxy, or under another name than that of this machine, may come from anywhere. Once there has been
a token, every request needs one, for ever.

Publishable keys are tokens of their own kind, in `publishable`: they open nothing here.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Iterable
from typing import Any

from steadyarm.live.metrics import microseconds
from steadyarm.service.problems import RefusedError
from steadyarm.service.publishable import (
    RATE,
    Key,
    Keys,
    Publishable,
    checked_origin,
)
from steadyarm.service.sender import (
    MINUTE,
    PerMinute,
    forwarding,
    header_of,
    host_of,
    network_of,
    peer,
    plain_host,
    why_not_direct,
)
from steadyarm.service.settings import is_loopback
from steadyarm.storages.base import Storage
from steadyarm.storages.changes import Scope, TokenRecord

log = logging.getLogger("steadyarm.service")

RELOAD = 2.0  # seconds; a token that was removed is refused within five
RANKS: dict[Scope, int] = {"assign": 0, "read": 1, "write": 2, "admin": 3}  # no route needs 0
CREATE = "steadyarm token create --name NAME --scope admin"

FREE = ("/healthz", "/readyz")  # load balancers ask for them by an address
FAILURES = 20  # tokens that are not known, from one address
ADDRESSES = 4096  # of which failures are remembered


def new_token(name: str, scope: Scope) -> tuple[str, TokenRecord]:
    """A new token, and the record of it that the storage keeps."""
    token = "sa_" + secrets.token_urlsafe(32)
    return token, TokenRecord(name, hash_of(token), scope, microseconds(time.time()))


def new_key(
    name: str,
    experiments: Iterable[str],
    origins: Iterable[str],
    rate: int = RATE,
    signed: bool = False,
) -> tuple[str, TokenRecord]:
    """A new publishable key, and the record of it that the storage keeps.

    signed : whether units are signed, with the secret in `signing` of the record
    """
    key, created = "pk_" + secrets.token_urlsafe(24), microseconds(time.time())
    bounds = tuple(experiments), tuple(map(checked_origin, origins)), rate
    secret = "us_" + secrets.token_urlsafe(32) if signed else None
    return key, TokenRecord(name, hash_of(key), "assign", created, *bounds, secret)


def hash_of(token: str) -> str:
    """The hash that is stored: 256 random bits need neither salt nor a slow hash."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class Guard:
    """Allows or refuses requests, by the tokens that the storage had a few seconds ago.

    As long as the storage has never had a token, requests that come directly from this machine are
    allowed; none at all if the service can be reached from elsewhere.
    """

    def __init__(self, storage: Storage, public: bool, allowed_hosts: Iterable[str] = ()) -> None:
        self._storage, self._public = storage, public
        self._allowed = frozenset(map(plain_host, allowed_hosts))
        self._tokens: dict[str, TokenRecord] = {}  # but publishable keys
        self._closed: bool | None = None  # not known yet
        self.keys = Keys()
        self._failures, self._logged = PerMinute(ADDRESSES), -MINUTE

    def reload(self) -> None:
        """Read the tokens again; if the storage does not answer, the old ones stay."""
        closed = self._storage.closed()
        found = self._storage.tokens()
        self._tokens = {token.hash: token for token in found if not token.publishable}
        self.keys.replace(token for token in found if token.publishable)
        # What was closed once stays closed here, even if somebody puts another database in place.
        self._closed = bool(self._closed or closed or found)

    @property
    def open(self) -> bool:
        """Whether there has never been a token."""
        return self._closed is False

    def check(
        self, scope: Any, needed: Scope, publishable: Publishable | None = None
    ) -> str | None:
        """The name of the token that allows a request; RefusedError if none does.

        publishable : what a publishable key may do there; None for nothing
        """
        if self.open:
            self.check_direct(scope)
            return None
        kind, _, token = header_of(scope, b"authorization").partition(" ")
        if kind.lower() != "bearer" or not token:
            token = header_of(scope, b"x-api-key")
        # Found by hash: how long that takes says nothing about tokens, for hashes of guesses are
        # as good as random.
        hashed = hash_of(token.strip())
        found = self._tokens.get(hashed)
        if found is None:
            return self._check_key(scope, token, self.keys.find(hashed), publishable)
        if RANKS[found.scope] < RANKS[needed]:
            raise RefusedError(
                "forbidden",
                f"The token {found.name!r} has the scope {found.scope}; this needs {needed}.",
                f"Use a token of: steadyarm token create --scope {needed}",
            )
        return found.name

    def _check_key(
        self, scope: Any, token: str, key: Key | None, publishable: Publishable | None
    ) -> str:
        """The name of the publishable key that allows a request; RefusedError if none does."""
        if key is None:
            if publishable is not None:
                self.keys.let_read(scope, publishable.experiment(scope))
            self.check_any_left()
            if not token:
                raise RefusedError("unauthorized", "The request has no token.")
            raise self._unknown(scope)
        if publishable is None:
            raise _publishable_only(key.record)
        self.keys.check(scope, key, publishable.experiment(scope))
        return key.record.name

    def find(self, token: str, scope: Any) -> TokenRecord:
        """The record of a token that came with a request; RefusedError if it is not known."""
        hashed = hash_of(token.strip())
        found = self._tokens.get(hashed)
        if found is not None:  # always passes: behind a proxy, all share the address of one
            return found
        if (key := self.keys.find(hashed)) is not None:
            raise _publishable_only(key.record)
        raise self._unknown(scope)

    def _unknown(self, scope: Any) -> RefusedError:
        """The error for a token that is not known, which is counted."""
        address = peer(scope)
        if wait := self._failures.add(address, FAILURES):
            if (now := self._failures.clock()) - self._logged >= MINUTE:
                self._logged = now
                log.warning(
                    "more than %d tokens that are not known came from %s within a minute; "
                    "further ones are answered with 429",
                    FAILURES,
                    network_of(address) or "an unknown address",
                )
            return RefusedError(
                "too-many-failures",
                f"More than {FAILURES} tokens that are not known came from this address within "
                "a minute, and this one is not known either.",
                f"Check the token; another one can be tried in {wait} s.",
                {"Retry-After": str(wait)},
            )
        return RefusedError("unauthorized", "The token is not known, or was removed.")

    def with_hash(self, wanted: str) -> TokenRecord | None:
        """The token with that hash; None if there is none any more."""
        return self._tokens.get(wanted)

    def check_any_left(self) -> None:
        """Refuse all but publishable keys if the tokens there were have all been removed."""
        if not self._tokens:
            raise RefusedError(
                "unauthorized",
                "There is no token for this service, or not any more, so nobody is let in.",
                f"Create one where the storage is, with: {CREATE}",
            )

    def check_direct(self, scope: Any) -> None:
        """Before the first token, refuse all requests but those that come directly from here."""
        if self._public:
            raise RefusedError(
                "unauthorized",
                "There is no token, and the service can be reached from elsewhere.",
                f"Create one with: {CREATE}",
            )
        if reason := why_not_direct(scope):
            raise RefusedError(
                "forbidden",
                "Without tokens only programs on this machine are served, which connect directly "
                f"and by a name such as localhost; {reason}.",
                f"Create a token with: {CREATE}",
            )

    def check_host(self, scope: Any) -> None:
        """Refuse host names that are not allowed; if none are given, those behind a proxy."""
        host = host_of(scope)
        if self._allowed:
            if host in self._allowed:
                return
        elif is_loopback(host) or not forwarding(scope):
            return
        if scope["path"] in FREE:
            return
        shown = f"the name {host!r}" if host else "no name, or no proper one"
        raise RefusedError(
            "misdirected",
            f"The request has {shown} in its Host header, which this service is not declared to "
            "have" + ("." if self._allowed else ", and came through a proxy."),
            f"Declare it with: steadyarm serve --allowed-host {host or 'NAME'} (or in "
            "STEADYARM_ALLOWED_HOSTS, names separated by commas), and let the proxy pass the "
            "Host header on.",
        )


def _publishable_only(key: TokenRecord) -> RefusedError:
    """The error for a publishable key where one opens nothing."""
    return RefusedError(
        "forbidden",
        f"The key {key.name!r} is publishable: it assigns variants and reports rewards of "
        f"{', '.join(key.experiments)}, and opens nothing else.",
        "Use a token of: steadyarm token create --scope read (or write, or admin)",
    )
