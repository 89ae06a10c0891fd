"""Authentication: tokens, and which requests need none.

A token is 32 random bytes, of which only a hash is kept. A service whose storage has never had a
token serves this machine without one, but only programs that connect directly: what came through a
proxy, or under another name than that of this machine, may come from anywhere. Once there has been
a token, every request needs one, for ever.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from steadyarm.live.metrics import microseconds
from steadyarm.service.problems import RefusedError
from steadyarm.service.settings import is_loopback
from steadyarm.storages.base import Storage
from steadyarm.storages.changes import Scope, TokenRecord

log = logging.getLogger("steadyarm.service")

RELOAD = 2.0  # seconds; a token that was removed is refused within five
RANKS: dict[Scope, int] = {"read": 1, "write": 2, "admin": 3}
CREATE = "steadyarm token create --name NAME --scope admin"

HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@/\\\[\]]+)(?::[0-9]*)?")
LONGEST = 260  # bytes that are read of a header's name, or of a host's with its port
FREE = ("/healthz", "/readyz")  # load balancers ask for them by an address
# What proxies, load balancers and content delivery networks add to requests that they pass on.
FORWARDING = frozenset(
    (
        *(b"forwarded", b"via", b"cdn-loop", b"client-ip", b"true-client-ip", b"x-client-ip"),
        *(b"x-real-ip", b"x-cluster-client-ip", b"x-remote-ip", b"x-remote-addr", b"x-proxy-user"),
        *(b"cf-connecting-ip", b"cf-connecting-ipv6", b"cf-ray", b"fastly-client-ip"),
        *(b"fly-client-ip", b"x-appengine-user-ip", b"x-azure-clientip", b"x-azure-ref"),
        *(b"x-amz-cf-id", b"x-scheme", b"x-url-scheme", b"x-original-host", b"x-original-url"),
        *(b"x-original-forwarded-for", b"x-original-proto", b"x-proxyuser-ip", b"x-nginx-proxy"),
        *(b"proxy-connection", b"front-end-https", b"x-arr-ssl", b"x-arr-log-id"),
    )
)
FORWARDING_PREFIXES = (b"x-forwarded", b"x-envoy-", b"tailscale-", b"x-vercel-", b"x-goog-iap-")

FAILURES = 20  # tokens that are not known, from one address
MINUTE = 60.0  # seconds in which that many may come
ADDRESSES = 4096  # of which failures are remembered


def new_token(name: str, scope: Scope) -> tuple[str, TokenRecord]:
    """A new token, and the record of it that the storage keeps."""
    token = "sa_" + secrets.token_urlsafe(32)
    return token, TokenRecord(name, hash_of(token), scope, microseconds(time.time()))


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
        self._allowed = frozenset(map(_plain, allowed_hosts))
        self._tokens: dict[str, TokenRecord] = {}
        self._closed: bool | None = None  # not known yet
        self._failures = Failures()

    def reload(self) -> None:
        """Read the tokens again; if the storage does not answer, the old ones stay."""
        closed = self._storage.closed()
        self._tokens = {token.hash: token for token in self._storage.tokens()}
        # What was closed once stays closed here, even if somebody puts another database in place.
        self._closed = bool(self._closed or closed or self._tokens)

    @property
    def open(self) -> bool:
        """Whether there has never been a token."""
        return self._closed is False

    def check(self, scope: Any, needed: Scope) -> str | None:
        """The name of the token that allows a request; RefusedError if none does."""
        if self.open:
            self.check_direct(scope)
            return None
        self.check_any_left()
        kind, _, token = header_of(scope, b"authorization").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise RefusedError("unauthorized", "The request has no token.")
        found = self.find(token, scope)
        if RANKS[found.scope] < RANKS[needed]:
            raise RefusedError(
                "forbidden",
                f"The token {found.name!r} has the scope {found.scope}; this needs {needed}.",
                f"Use a token of: steadyarm token create --scope {needed}",
            )
        return found.name

    def find(self, token: str, scope: Any) -> TokenRecord:
        """The record of a token that came with a request; RefusedError if it is not known."""
        # Found by hash: how long that takes says nothing about tokens, for hashes of guesses are
        # as good as random.
        found = self._tokens.get(hash_of(token.strip()))
        if found is not None:  # always passes: behind a proxy, all share the address of one
            return found
        if wait := self._failures.add(_peer(scope)):
            raise RefusedError(
                "too-many-failures",
                f"More than {FAILURES} tokens that are not known came from this address within "
                "a minute, and this one is not known either.",
                f"Check the token; another one can be tried in {wait} s.",
                {"Retry-After": str(wait)},
            )
        raise RefusedError("unauthorized", "The token is not known, or was removed.")

    def with_hash(self, wanted: str) -> TokenRecord | None:
        """The token with that hash; None if there is none any more."""
        return self._tokens.get(wanted)

    def check_any_left(self) -> None:
        """Refuse everybody if the tokens there were have all been removed."""
        if not self._tokens:
            raise RefusedError(
                "unauthorized",
                "All tokens of this service have been removed, so nobody is let in.",
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
        if reason := _why_not_direct(scope):
            raise RefusedError(
                "forbidden",
                "Without tokens only programs on this machine are served, which connect directly "
                f"and by a name such as localhost; {reason}.",
                f"Create a token with: {CREATE}",
            )

    def check_host(self, scope: Any) -> None:
        """Refuse host names that are not allowed; if none are given, those behind a proxy."""
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        host = _host(hosts[0][:LONGEST]) if len(hosts) == 1 else ""
        if self._allowed:
            if host in self._allowed:
                return
        elif is_loopback(host) or not _forwarding(scope):
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


class Failures:
    """Counts tokens that were not known, by the address that they came from.

    Beyond a limit in each minute, an address has to wait for the end of that minute. Only the
    latest addresses are remembered, so memory is bounded. Each worker counts for itself.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()  # since when, how many
        self._logged = -MINUTE

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, address: str) -> int:
        """Count one; 0 if there were not too many yet, else the seconds to wait."""
        now, network = self._clock(), _network(address)
        since, count = self._seen.pop(network, (now, 0))
        if now - since >= MINUTE:
            since, count = now, 0
        count += 1
        self._seen[network] = since, count
        if len(self._seen) > ADDRESSES:
            self._seen.popitem(last=False)
        if count <= FAILURES:
            return 0
        if now - self._logged >= MINUTE:
            self._logged = now
            log.warning(
                "more than %d tokens that are not known came from %s within a minute; "
                "further ones are answered with 429",
                FAILURES,
                network or "an unknown address",
            )
        return max(1, round(since + MINUTE - now))


def header_of(scope: Any, wanted: bytes) -> str:
    """The first header of that name, which is in lower case; empty if there is none."""
    for name, value in scope["headers"]:
        if name == wanted:
            return str(value, "latin-1")
    return ""


def _why_not_direct(scope: Any) -> str:
    """What shows that a request may come from elsewhere; empty if nothing does."""
    if name := _forwarding(scope):
        return f"this request came through a proxy, which added the header {name}"
    if scope["http_version"] == "1.0":
        return "this request came over HTTP/1.0, as proxies send it"
    if not is_loopback(_peer(scope)):
        return "this request came from another machine"
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) != 1 or not is_loopback(_host(hosts[0][:LONGEST])):
        return "this request has another name in its Host header"
    # A page of another site, open in a browser on this machine, must not get in.
    origin = header_of(scope, b"origin")
    if origin and not is_loopback(_host(origin.partition("://")[2].encode("latin-1")[:LONGEST])):
        return "this request was sent by a page of another site"
    return ""


def _forwarding(scope: Any) -> str:
    """The first header that a proxy added; empty if there is none."""
    for name, _ in scope["headers"]:
        if _is_forwarding(name[:LONGEST]):
            return str(name[:LONGEST], "latin-1")
    return ""


@lru_cache(1024)  # every request has the same few
def _is_forwarding(name: bytes) -> bool:
    return name in FORWARDING or name.startswith(FORWARDING_PREFIXES)


def _peer(scope: Any) -> str:
    """The address at the other end of the connection; empty if it is not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


@lru_cache(256)
def _host(header: bytes) -> str:
    """The name in a Host header, without the port; empty if it is not proper."""
    found = HOST.fullmatch(header.decode("latin-1"))
    return _plain(found[1]) if found else ""


def _plain(host: str) -> str:
    """A name or address as it is compared with others."""
    try:
        return ipaddress.ip_address(host.strip("[]")).compressed
    except ValueError:
        return host.rstrip(".").lower()


def _network(address: str) -> str:
    """Whom an address belongs to: of IPv6 one subscriber has at least 2⁶⁴."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
