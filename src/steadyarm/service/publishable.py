"""Publishable keys: tokens that stand in pages, and what browsers must know to send them.

Anybody may read such a key, so it opens little: routes that assign variants and report rewards, of
the experiments that it names, from pages of the origins that it declares, so many requests in a
minute from each address, and if it was made so only for units that a server has signed. A browser
states truly which page sends a request; other programs may state what they like, so origins keep
away other sites, the rate and signatures everybody else.

A page of another origin may only read the response if CORS headers allow it. They are sent for
these routes alone, for origins that a key of the experiment declares, and never with credentials.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from steadyarm.errors import InvalidInputError, RepeatedRewardError, UnknownExperimentError
from steadyarm.service.problems import RefusedError
from steadyarm.service.sender import PerMinute, header_of, headers_of, peer
from steadyarm.signing import signed_unit
from steadyarm.storages.changes import TokenRecord

RATE = 120  # requests in a minute from one address, unless the key says otherwise
ADDRESSES = 32_768  # times keys, of which requests are remembered
MAX_BODY = 65_536  # bytes, as many as a browser sends when a page is left
NO_ORIGIN = "none"  # declared for programs that are no browsers
DEFAULT_PORTS = {"http": ":80", "https": ":443"}
ORIGIN = re.compile(r"(https?)://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")

UNIT_HEADER = b"x-steadyarm-unit"
EXPOSED = "ETag, Retry-After, X-Request-ID"
SENT = "Authorization, Content-Type, If-None-Match, X-API-Key, X-SteadyArm-Unit"
KEPT = "600"  # seconds that a browser need not ask again


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
    """What a publishable key may do on a route.

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
    key: Key | None = scope.get("key")
    return key is None or experiment in key.experiments


def discreet(scope: Any, error: Exception) -> Exception:
    """An error as its sender may read it: a publishable key reads no rewards and no other names."""
    if "key" in scope:
        if isinstance(error, RepeatedRewardError):
            return RepeatedRewardError("another value was reported before; the first one counts.")
        if isinstance(error, UnknownExperimentError):
            return UnknownExperimentError("there is no experiment of that name yet.")
    return error


@dataclass(frozen=True)
class Key:
    """A publishable key as requests are checked with it.

    Attributes
    ----------
    record : as the storage has it
    experiments, origins : the same, to be looked up
    """

    record: TokenRecord
    experiments: frozenset[str] = field(init=False)
    origins: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "experiments", frozenset(self.record.experiments))
        object.__setattr__(self, "origins", frozenset(self.record.origins))


class Keys:
    """All publishable keys of the storage, by the hash of each, and how often they are used."""

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}
        self._used = PerMinute(ADDRESSES)

    def replace(self, records: Iterable[TokenRecord]) -> None:
        """Take these keys from now on."""
        self._keys = {record.hash: Key(record) for record in records}

    def find(self, hash: str) -> Key | None:
        """The key with that hash; None if there is none."""
        return self._keys.get(hash)

    def declare(self, origin: str, experiment: str | None) -> bool:
        """Whether some key lets pages of an origin use an experiment, or any if it is None."""
        return origin != NO_ORIGIN and any(
            origin in key.origins and (experiment is None or experiment in key.experiments)
            for key in self._keys.values()
        )

    def let_read(self, scope: Any, experiment: str | None) -> None:
        """Let a page read why it is refused, if it is of an origin that some key declares."""
        if (origin := header_of(scope, b"origin")) and self.declare(origin, experiment):
            scope["cors"] = origin

    def check(self, scope: Any, key: Key, experiment: str | None) -> None:
        """Refuse what a key does not allow; else keep it for those who handle the request."""
        record = key.record
        self._check_origin(scope, key)
        self._count(scope, key, 1)
        if experiment is not None and experiment not in key.experiments:
            raise RefusedError(
                "forbidden",
                f"The publishable key {record.name!r} is not for this experiment.",
                "Create a key with: steadyarm token create --scope assign --experiment NAME",
            )
        scope["key"], scope["known"] = key, False  # its body counts as that of a stranger

    def check_claims(self, scope: Any, claims: Claims) -> None:
        """Refuse a body that speaks for too many, or for others than the unit that is proven."""
        key: Key = scope["key"]
        if (more := len(claims.units) - 1) > 0:
            self._count(scope, key, more)
        if key.record.signing is not None:
            _check_units(scope, key.record.signing, claims)

    def _check_origin(self, scope: Any, key: Key) -> None:
        origins = headers_of(scope, b"origin")
        if not origins and NO_ORIGIN in key.origins:
            return
        if len(origins) == 1 and origins[0] in key.origins and origins[0] != NO_ORIGIN:
            scope["cors"] = origins[0]
            return
        raise RefusedError(
            "forbidden",
            f"The publishable key {key.record.name!r} may not be used by pages of this origin."
            if origins
            else f"The publishable key {key.record.name!r} may only be used by pages, and the "
            "request has no Origin header.",
            "Declare the origin of the page with: steadyarm token create --scope assign --origin "
            "https://HOST; programs that are no browsers use a token of the scope write.",
        )

    def _count(self, scope: Any, key: Key, count: int) -> None:
        most = key.record.rate or RATE
        if wait := self._used.add(peer(scope), most, count, key.record.name):
            raise RefusedError(
                "too-many-requests",
                f"More than {most:,} requests with the publishable key {key.record.name!r} came "
                "from this address within a minute.",
                f"Send the next one in {wait} s.",
                {"Retry-After": str(wait)},
            )


def _check_units(scope: Any, secret: str, claims: Claims) -> None:
    """Refuse claims for units other than that of the unit token."""
    token = header_of(scope, UNIT_HEADER) or claims.token or ""
    if not token:
        raise _unproven("The request does not prove whom it speaks for.")
    try:
        proven = signed_unit(secret, token, time.time())
    except InvalidInputError as error:
        reason = str(error)
        raise _unproven(reason[0].upper() + reason[1:]) from None
    if any(unit != proven for unit in claims.units):
        raise _unproven(
            "The request speaks for another unit than its unit token, or names an assignment "
            "instead of a unit."
        )


def _unproven(detail: str) -> RefusedError:
    return RefusedError(
        "forbidden",
        detail,
        "Units of this key are signed: let your server make a token with sign_unit(secret, unit), "
        "and send it in the header X-SteadyArm-Unit, with the same unit in the body.",
    )


def cors_headers(origin: str) -> dict[str, str]:
    """What lets a page of that origin read a response."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": EXPOSED,
        "Vary": "Origin",
    }


def preflight_headers(origin: str, method: str) -> dict[str, str]:
    """What lets a page of that origin send a request."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": method,
        "Access-Control-Allow-Headers": SENT,
        "Access-Control-Max-Age": KEPT,
        "Vary": "Origin",
    }


def asked_before(scope: Any, method: str) -> str:
    """The origin whose page asks whether it may send a request; empty if none properly does."""
    origins = headers_of(scope, b"origin")
    wanted = header_of(scope, b"access-control-request-method")
    return origins[0] if len(origins) == 1 and wanted == method else ""


def checked_origin(text: str) -> str:
    """An origin as browsers send it: scheme, host, and a port unless it is the usual one.

    Examples
    --------
    >>> checked_origin("https://Shop.example:443/"), checked_origin("http://localhost:3000")
    ('https://shop.example', 'http://localhost:3000')
    """
    given = text.strip().lower().removesuffix("/")
    if given == NO_ORIGIN:
        return given
    found = ORIGIN.fullmatch(given)
    if found is None:
        raise InvalidInputError.of(
            "origin",
            text,
            "https://HOST or https://HOST:PORT of the pages, without a path and without *; none "
            "for programs that are no browsers",
        )
    scheme, host, port = found.groups()
    port = "" if port in (None, DEFAULT_PORTS[scheme]) else port
    return f"{scheme}://{host}{port}"
