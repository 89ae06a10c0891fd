"""Unit tokens: a server signs the unit of its visitor, so that no page can speak for another.

A token is text of three parts with dots between them, `v1.<payload>.<signature>`:

- the payload is JSON, `{"u": unit, "e": expiry}`, in base64url without padding. The expiry is in
  seconds since 1970, or null for none;
- the signature is HMAC-SHA256 of `v1.<payload>`, with the secret as it was printed for a key, in
  base64url without padding.

Other languages can produce it in a few lines.
"""

from __future__ import annotations

import hmac
import json
import math
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from datetime import datetime, timedelta

from steadyarm.errors import InvalidInputError

VERSION = "v1"
LONGEST = 4_096  # characters of a token


def sign_unit(secret: str, unit: str, expires: datetime | timedelta | float | None = None) -> str:
    """A token that proves to the service that a request speaks for this unit.

    A server that knows who visits, such as by a session of its own, puts it into the page. The page
    sends it with a publishable key that was created with --signed-units.

    Parameters
    ----------
    secret : as `steadyarm token create --signed-units` printed it; it never leaves the server
    unit : the unit of the visitor, chosen by the server; do not let visitors choose it
    expires : until when the token is good: a time with its time zone, seconds since 1970, or from
        now; None for as long as the key is

    Returns
    -------
    str : the token, to be put into the page

    Examples
    --------
    >>> token = sign_unit("us_a secret of the server", "visitor 1", expires=2_000_000_000)
    >>> token.split(".")[:2]
    ['v1', 'eyJ1IjoidmlzaXRvciAxIiwiZSI6MjAwMDAwMDAwMH0']
    """
    if not isinstance(secret, str) or not secret:
        raise InvalidInputError("the secret is missing; give the one that was printed for the key.")
    if not isinstance(unit, str) or not unit:
        raise InvalidInputError.of("unit", unit, "a text that names who gets the variant")
    content = json.dumps({"u": unit, "e": _seconds(expires)}, separators=(",", ":"))
    payload = _text(content.encode())
    return f"{VERSION}.{payload}.{_signature(secret, payload)}"


def verify_unit(secret: str, token: str, now: float) -> str:
    """The unit of a token; InvalidInputError says why the token proves nothing.

    now : seconds since 1970
    """
    parts = token.split(".") if len(token) <= LONGEST and token.isascii() else []
    if len(parts) != 3 or parts[0] != VERSION:
        raise InvalidInputError("the unit token is not of the form v1.PAYLOAD.SIGNATURE.")
    _, payload, signature = parts
    # In constant time, and before anything of the payload is read.
    if not hmac.compare_digest(_signature(secret, payload), signature):
        raise InvalidInputError("the unit token was not signed with the secret of this key.")
    try:
        found = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        unit, expiry = found["u"], found["e"]
    except (Error, ValueError, KeyError, TypeError, RecursionError):
        unit = expiry = None
    if not isinstance(unit, str) or not isinstance(expiry, int | float | None):
        raise InvalidInputError(
            'the payload of the unit token is not {"u": unit, "e": seconds or null}.'
        )
    if expiry is not None and not now < expiry:
        raise InvalidInputError("the unit token has expired.")
    return unit


def _seconds(expires: datetime | timedelta | float | None) -> float | None:
    if isinstance(expires, timedelta):
        return math.ceil(time.time() + expires.total_seconds())
    if isinstance(expires, datetime) and expires.tzinfo is not None:
        return math.ceil(expires.timestamp())
    if expires is None or (
        isinstance(expires, int | float)
        and not isinstance(expires, bool)
        and math.isfinite(expires)
    ):
        return expires
    expected = "a time with its time zone, seconds since 1970, a timedelta from now, or None"
    raise InvalidInputError.of("expires", expires, expected)


def _signature(secret: str, payload: str) -> str:
    return _text(hmac.digest(secret.encode(), f"{VERSION}.{payload}".encode(), "sha256"))


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()
