"""Access: tokens, publishable keys, and requests that need neither.

A token is 32 random bytes, of which only a hash is stored. If a storage has never had a token, its
service accepts requests without one, but only from programs on this machine that connect directly:
a request through a proxy, or under another host name, may come from anywhere. After the first
token, every request needs one, even when all tokens are removed.

A publishable key is a token in the source of a page, so everybody can read it. It grants access
only to routes that assign variants and report rewards, for the experiments that it names, from
pages of the origins that it declares, up to a number of requests per minute and address. It can
also require units that a server has signed. Browsers send the true origin of a page and other
programs may not, so origins exclude other sites, and the rate and signatures limit everything else.

A page of another origin may only read the response if CORS headers allow it. They are sent for
these routes alone, for origins that a key of the experiment declares, and never with credentials.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from steadyarm.errors import InvalidInputError
from steadyarm.live.metrics import microseconds
from steadyarm.service.problems import RefusedError
from steadyarm.service.settings import is_loopback
from steadyarm.storages.service import Scope, TokenRecord
from steadyarm.storages.storage import Storage
from steadyarm.wire.signing import verify_unit

log = logging.getLogger("steadyarm.service")

# Who sends a request: headers, addresses, host names


HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@/\\\[\]]+)(?::[0-9]*)?")
LONGEST = 260  # bytes that are read of a host's name with its port
# With what the headers begin that proxies and load balancers add.
FORWARDING = (
    *(b"forwarded", b"via", b"x-forwarded", b"x-real-ip", b"x-envoy-", b"cf-"),
    *(b"true-client-ip", b"tailscale-", b"client-ip", b"x-client-ip"),
)
MINUTE = 60.0  # seconds


def header_of(scope: Any, wanted: bytes) -> str:
    """The first header of that name, which is in lower case; empty if there is none."""
    for name, value in scope["headers"]:
        if name == wanted:
            return str(value, "latin-1")
    return ""


def headers_of(scope: Any, wanted: bytes) -> list[str]:
    """All headers of that name, which is in lower case, in their order."""
    return [str(value, "latin-1") for name, value in scope["headers"] if name == wanted]


def peer(scope: Any) -> str:
    """The address that a request comes from; empty if it is not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def why_not_direct(scope: Any) -> str:
    """The sign that a request may come from elsewhere; empty if there is none."""
    for name, _ in scope["headers"]:
        if name.startswith(FORWARDING):
            return f"this request came through a proxy, which added the header {name.decode()}"
    if scope["http_version"] == "1.0":
        return "this request came over HTTP/1.0, as proxies send it"
    if not is_loopback(peer(scope)):
        return "this request came from another machine"
    hosts = headers_of(scope, b"host")
    if len(hosts) != 1 or not is_loopback(_host(hosts[0])):
        return "this request has another name in its Host header"
    # A page of another site, open in a browser on this machine, must not get in.
    origin = header_of(scope, b"origin")
    if origin and not is_loopback(_host(origin.partition("://")[2])):
        return "this request was sent by a page of another site"
    return ""


def _host(header: str) -> str:
    """The name in a Host header, without the port; empty if it is not proper."""
    match = HOST.fullmatch(header[:LONGEST])
    return match[1].strip("[]") if match else ""


@lru_cache(1024)
def network_of(address: str) -> str:
    """Whom an address belongs to: of IPv6 one subscriber has at least 2⁶⁴.

    Examples
    --------
    >>> network_of("2001:db8::17"), network_of("::ffff:10.1.2.3"), network_of("10.1.2.3")
    ('2001:db8::/64', '10.1.2.3', '10.1.2.3')
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if parsed.version == 4:
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))


class PerMinute:
    """Counts what comes from each address; says how long to wait beyond a limit in a minute.

    A minute begins with the first thing that is counted. Only the latest addresses are remembered,
    so memory is bounded. Each process counts for itself.

    addresses : that are remembered

    Examples
    --------
    >>> calls = PerMinute(addresses=1000, clock=lambda: 17.0)
    >>> [calls.add("10.1.2.3", most=2) for _ in range(3)]
    [0, 0, 60]
    """

    def __init__(self, addresses: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self.clock = addresses, clock
        # Since when and how many, by what is counted and from where.
        self._seen: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, address: str, most: int, count: int = 1, what: str = "") -> int:
        """Count something; 0 if there was not too much yet, else the seconds to wait.

        what : counted apart from anything else
        """
        now, who = self.clock(), (what, network_of(address))
        since, before = self._seen.pop(who, (now, 0))
        if now - since >= MINUTE:
            since, before = now, 0
        self._seen[who] = since, before + count
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)
        return 0 if before + count <= most else max(1, round(since + MINUTE - now))


# Publishable keys


RATE = 120  # requests in a minute from one address, unless the key says otherwise
KEY_ADDRESSES = 32_768  # times keys, of which requests are remembered
MAX_BODY = 65_536  # bytes, as many as a browser sends when a page is left
NO_ORIGIN = "none"  # declared for programs that are no browsers
DEFAULT_PORTS = {"http": ":80", "https": ":443"}
ORIGIN = re.compile(r"(https?)://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")

UNIT_HEADER = b"x-steadyarm-unit"
EXPOSED = "ETag, Retry-After, X-Request-ID"
SENT = "Authorization, Content-Type, If-None-Match, X-API-Key, X-SteadyArm-Unit"
PREFLIGHT_AGE = "600"  # seconds that a browser need not ask again


class Claims(NamedTuple):
    """Whom the body of a request speaks for.

    Attributes
    ----------
    units : one for each item of the body; None where an item names no unit
    token : a unit token in the body, for those who cannot set headers
    """

    units: Sequence[str | None]
    token: str | None = None


@dataclass(frozen=True)
class Publishable:
    """The rights of a publishable key on a route.

    Attributes
    ----------
    claims : whom a decoded body speaks for
    parameter : of the route's path, which names the experiment; None if the handler finds the
        experiments itself and asks `allowed` for each
    """

    claims: Callable[[Any], Claims]
    parameter: str | None = "name"

    def experiment(self, scope: Any) -> str | None:
        """The experiment in the path of a request."""
        return None if self.parameter is None else str(scope["path_params"][self.parameter])


def allowed(scope: Any, experiment: str) -> bool:
    """Whether a request may touch an experiment: a publishable key only those that it names.

    For handlers whose experiments are not in the address; others were checked before.
    """
    key: TokenRecord | None = scope.get("key")
    return key is None or experiment in key.experiments


def _check_units(scope: Any, secret: str, claims: Claims) -> None:
    """Refuse claims for units other than that of the unit token."""
    token = header_of(scope, UNIT_HEADER) or claims.token or ""
    if not token:
        raise _unproven("The request does not prove its unit.")
    try:
        proven = verify_unit(secret, token, time.time())
    except InvalidInputError as error:
        reason = str(error)
        raise _unproven(reason[0].upper() + reason[1:]) from None
    if any(unit != proven for unit in claims.units):
        raise _unproven(
            "The request names another unit than its unit token, or an assignment instead of a "
            "unit."
        )


def _unproven(detail: str) -> RefusedError:
    return RefusedError(
        "forbidden",
        detail,
        "This key needs signed units. Make a token on your server with sign_unit(secret, unit), "
        "and send it in the header X-SteadyArm-Unit, with the same unit in the body.",
    )


def cors_headers(origin: str) -> dict[str, str]:
    """Headers that allow a page of that origin to read a response."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": EXPOSED,
        "Vary": "Origin",
    }


def preflight_headers(origin: str, method: str) -> dict[str, str]:
    """Headers that allow a page of that origin to send a request."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": method,
        "Access-Control-Allow-Headers": SENT,
        "Access-Control-Max-Age": PREFLIGHT_AGE,
        "Vary": "Origin",
    }


def validate_origin(text: str) -> str:
    """An origin as browsers send it: scheme, host, and a port unless it is the usual one.

    Examples
    --------
    >>> validate_origin("https://Shop.example:443/"), validate_origin("http://localhost:3000")
    ('https://shop.example', 'http://localhost:3000')
    """
    origin = text.strip().lower().removesuffix("/")
    if origin == NO_ORIGIN:
        return origin
    match = ORIGIN.fullmatch(origin)
    if match is None:
        raise InvalidInputError.of(
            "origin",
            text,
            "https://HOST or https://HOST:PORT, without a path and without *; or none, for "
            "programs that are not browsers",
        )
    scheme, host, port = match.groups()
    port = "" if port in (None, DEFAULT_PORTS[scheme]) else port
    return f"{scheme}://{host}{port}"


# Tokens


RELOAD = 2.0  # seconds; a token that was removed is refused within five
RANKS: dict[Scope, int] = {"assign": 0, "read": 1, "write": 2, "admin": 3}  # no route needs 0
CREATE = "steadyarm token create --name NAME --scope admin"

FAILURES = 20  # tokens that are not known, from one address
TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
ADDRESSES = 4096  # of which failures are remembered


def check_token_name(name: str, what: str) -> None:
    """Refuse what cannot be the name of a token."""
    if not TOKEN_NAME.fullmatch(name):
        expected = "up to 100 letters, digits and . _ @ -, the first a letter or digit"
        raise InvalidInputError.of(what, name, expected)


def new_token(name: str, scope: Scope, lasts: float | None = None) -> tuple[str, TokenRecord]:
    """A new token, and the record of it that the storage keeps.

    lasts : seconds until it expires; None for ever
    """
    token, created = "sa_" + secrets.token_urlsafe(32), time.time()
    expires = None if lasts is None else microseconds(created + lasts)
    return token, TokenRecord(name, hash_of(token), scope, microseconds(created), expires=expires)


def new_key(
    name: str,
    experiments: Iterable[str],
    origins: Iterable[str],
    rate: int = RATE,
    signed: bool = False,
    lasts: float | None = None,
) -> tuple[str, TokenRecord]:
    """A new publishable key, and the record of it that the storage keeps.

    signed : whether units are signed, with the secret in `signing` of the record
    lasts : seconds until it expires; None for ever
    """
    key, created = "pk_" + secrets.token_urlsafe(24), time.time()
    bounds = tuple(experiments), tuple(map(validate_origin, origins)), rate
    secret = "us_" + secrets.token_urlsafe(32) if signed else None
    expires = None if lasts is None else microseconds(created + lasts)
    made = microseconds(created)
    return key, TokenRecord(name, hash_of(key), "assign", made, *bounds, secret, expires)


def hash_of(token: str) -> str:
    """The hash that is stored: 256 random bits need neither salt nor a slow hash."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class Guard:
    """Allows or refuses requests, by the tokens that the storage had a few seconds ago.

    As long as the storage has never had a token, requests that come directly from this machine are
    allowed; none at all if the service can be reached from elsewhere.
    """

    def __init__(self, storage: Storage, public: bool) -> None:
        self._storage, self._public = storage, public
        self._tokens: dict[str, TokenRecord] = {}  # by hash; publishable keys apart
        self._keys: dict[str, TokenRecord] = {}
        self._closed: bool | None = None  # not known yet
        self._used: set[str] = set()  # hashes, since they were noted
        self._sent = PerMinute(KEY_ADDRESSES)
        self._failures, self._logged = PerMinute(ADDRESSES), -MINUTE

    def reload(self) -> None:
        """Read the tokens again; if the storage does not answer, the old ones stay."""
        closed = self._storage.tokens.closed()
        records, now = self._storage.tokens.all(), microseconds(time.time())
        valid = [record for record in records if record.is_valid(now)]
        self._tokens = {record.hash: record for record in valid if not record.publishable}
        self._keys = {record.hash: record for record in valid if record.publishable}
        # What was closed once stays closed here, even if somebody puts another database in place.
        self._closed = bool(self._closed or closed or records)

    def note_used(self) -> None:
        """Write down which tokens were used since the last call."""
        used, self._used = self._used, set()
        if used:
            self._storage.tokens.note_used(used, microseconds(time.time()))

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
        if record := self._tokens.get(hashed):
            self._used.add(hashed)
            if RANKS[record.scope] < RANKS[needed]:
                raise RefusedError(
                    "forbidden",
                    f"The token {record.name!r} has the scope {record.scope}; this needs {needed}.",
                    f"Use a token of: steadyarm token create --scope {needed}",
                )
            return record.name
        experiment = None if publishable is None else publishable.experiment(scope)
        if key := self._keys.get(hashed):
            if publishable is None:
                raise _publishable_only(key)
            self._check_key(scope, key, experiment)
            self._used.add(hashed)
            return key.name
        origin = header_of(scope, b"origin")
        if publishable is not None and origin and self.declares(origin, experiment):
            scope["cors"] = origin  # so that the page can read why it is refused
        self.check_any_left()
        if not token:
            raise RefusedError("unauthorized", "The request has no token.")
        raise self._unknown(scope)

    def declares(self, origin: str, experiment: str | None) -> bool:
        """Whether some key lets pages of an origin use an experiment, or any if it is None."""
        return origin != NO_ORIGIN and any(
            origin in key.origins and (experiment is None or experiment in key.experiments)
            for key in self._keys.values()
        )

    def check_claims(self, scope: Any, claims: Claims) -> None:
        """Refuse a body that speaks for too many, or for others than the unit that is proven."""
        key: TokenRecord = scope["key"]
        if (more := len(claims.units) - 1) > 0:
            self._count(scope, key, more)
        if key.signing is not None:
            _check_units(scope, key.signing, claims)

    def find(self, token: str, scope: Any) -> TokenRecord:
        """The record of a token that came with a request; RefusedError if it is not known."""
        hashed = hash_of(token.strip())
        if record := self._tokens.get(hashed):  # always passes: behind a proxy all have one address
            return record
        if key := self._keys.get(hashed):
            raise _publishable_only(key)
        raise self._unknown(scope)

    def _check_key(self, scope: Any, key: TokenRecord, experiment: str | None) -> None:
        """Refuse what a key does not allow; else keep it for those who handle the request."""
        origins = headers_of(scope, b"origin")
        if len(origins) == 1 and origins[0] in key.origins and origins[0] != NO_ORIGIN:
            scope["cors"] = origins[0]
        elif origins or NO_ORIGIN not in key.origins:
            raise RefusedError(
                "forbidden",
                f"The publishable key {key.name!r} does not allow pages of this origin."
                if origins
                else f"The publishable key {key.name!r} may only be used by pages, and the request "
                "has no Origin header.",
                "Declare the origin of the page with: steadyarm token create --scope assign "
                "--origin https://HOST. Programs that are not browsers use a token with the "
                "scope write.",
            )
        self._count(scope, key, 1)
        if experiment is not None and experiment not in key.experiments:
            raise RefusedError(
                "forbidden",
                f"The publishable key {key.name!r} is not for this experiment.",
                "Create a key with: steadyarm token create --scope assign --experiment NAME",
            )
        scope["key"], scope["known"] = key, False  # its body counts as that of a stranger

    def _count(self, scope: Any, key: TokenRecord, count: int) -> None:
        most = key.rate or RATE
        if wait := self._sent.add(peer(scope), most, count, key.name):
            raise RefusedError(
                "too-many-requests",
                f"More than {most:,} requests with the publishable key {key.name!r} came from this "
                "address within a minute.",
                f"Send the next one in {wait} s.",
                {"Retry-After": str(wait)},
            )

    def _unknown(self, scope: Any) -> RefusedError:
        """The error for a token that is not known, which is counted."""
        address = peer(scope)
        if wait := self._failures.add(address, FAILURES):
            if (now := self._failures.clock()) - self._logged >= MINUTE:
                self._logged = now
                log.warning(
                    "more than %d unknown tokens came from %s within a minute; "
                    "further ones are answered with 429",
                    FAILURES,
                    network_of(address) or "an unknown address",
                )
            return RefusedError(
                "too-many-failures",
                f"More than {FAILURES} unknown tokens came from this address within a minute, and "
                "this token is unknown, too.",
                f"Check the token. You can try another one in {wait} s.",
                {"Retry-After": str(wait)},
            )
        return RefusedError("unauthorized", "The token is unknown, was removed or has expired.")

    def with_hash(self, wanted: str) -> TokenRecord | None:
        """The token with that hash, which is used; None if there is none any more."""
        record = self._tokens.get(wanted)
        if record is not None:
            self._used.add(wanted)
        return record

    def check_any_left(self) -> None:
        """Refuse all but publishable keys if the tokens there were have all been removed."""
        if not self._tokens:
            raise RefusedError(
                "unauthorized",
                "All tokens were removed, so the service refuses every request.",
                f"Create a token on the machine of the storage: {CREATE}",
            )

    def check_direct(self, scope: Any) -> None:
        """Before the first token, refuse all requests but those that come directly from here."""
        if self._public:
            raise RefusedError(
                "unauthorized",
                "There is no token yet, and the service can be reached from other machines.",
                f"Create a token with: {CREATE}",
            )
        if reason := why_not_direct(scope):
            raise RefusedError(
                "forbidden",
                "Without tokens only direct connections from this machine are accepted, by a "
                f"name such as localhost; {reason}.",
                f"Create a token with: {CREATE}",
            )


def _publishable_only(key: TokenRecord) -> RefusedError:
    """The error for a publishable key where one opens nothing."""
    return RefusedError(
        "forbidden",
        f"The key {key.name!r} is publishable. It assigns variants and reports rewards of "
        f"{', '.join(key.experiments)}, and allows nothing else.",
        "Use a token of: steadyarm token create --scope read (or write, or admin)",
    )
