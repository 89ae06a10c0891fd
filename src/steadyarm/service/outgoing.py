"""One POST to an address that somebody else has chosen: bounded in time and size, no redirects.

The address of the host is looked up once, checked, and connected to as it was checked, so that a
name cannot lead to a private address by changing in between. Nothing else here opens connections
to other machines; to send by another HTTP library, replace `post`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httptools

from steadyarm.errors import InvalidInputError
from steadyarm.service.settings import is_loopback

TIMEOUT = 10.0  # seconds for a whole request, from the lookup of the name to the response
DRAINED = 0.5  # seconds to read the rest of a response, so that its sender sees no error
MOST = 65_536  # bytes that are read of a response
PORTS = {"http": 80, "https": 443}
LONGEST_URL = 2048
CHARACTERS = re.compile(r"[!-~]+")  # of a URL; others are written as %XX
# IPv6 networks whose addresses contain one of IPv4, and by how many bits that is shifted.
WITHIN = [
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
    (ipaddress.IPv6Network("64:ff9b:1::/48"), 0),
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),
    (ipaddress.IPv6Network("::/96"), 0),
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
]


class DeliveryError(Exception):
    """Why nothing could be sent, or no response came."""


@dataclass(frozen=True)
class ReceiverAnswer:
    """What a receiver answered.

    Attributes
    ----------
    status : of HTTP
    retry_after : seconds after which it wants to be asked again; None if it did not say
    """

    status: int
    retry_after: float | None = None

    @property
    def text(self) -> str:
        """The status in words.

        Examples
        --------
        >>> ReceiverAnswer(503).text, ReceiverAnswer(299).text
        ('503 Service Unavailable', '299')
        """
        with suppress(ValueError):
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        return str(self.status)


def is_public(address: str) -> bool:
    """Whether an address is one of the internet, and not of a private network or this machine.

    Examples
    --------
    >>> [is_public(one) for one in ("93.184.216.34", "10.0.0.7", "169.254.169.254", "::1")]
    [True, False, False, False]
    >>> [is_public(one) for one in ("::ffff:127.0.0.1", "64:ff9b::a00:1", "fec0::1")]
    [False, False, False]
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        for network, shift in WITHIN:
            if found in network:
                return is_public(str(ipaddress.IPv4Address((int(found) >> shift) & 0xFFFF_FFFF)))
        if found.teredo is not None:
            return False
        if found.is_site_local:  # of old networks; it counts as global
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def checked_url(url: str, private: bool = False) -> str:
    """The URL of an endpoint; InvalidInputError if messages cannot be sent there.

    private : whether addresses of private networks and of this machine are allowed

    Examples
    --------
    >>> checked_url("https://hooks.example/steadyarm")
    'https://hooks.example/steadyarm'
    """

    def refuse(expected: str) -> InvalidInputError:
        return InvalidInputError.of("url", url, expected)

    if len(url) > LONGEST_URL or not CHARACTERS.fullmatch(url):
        raise refuse(
            f"a URL of up to {LONGEST_URL} characters without spaces, others written as %XX"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refuse("a URL such as https://hooks.example/steadyarm") from None
    if parts.scheme not in PORTS or not host or port == 0:
        raise refuse("a URL that begins with https:// or http:// and a host")
    if "@" in parts.netloc or parts.fragment:
        raise refuse("a URL without a user, a password and a part after #")
    if not private and _is_private(host):
        raise refuse(
            "an address that the internet can reach; to send to this machine or into a private "
            "network, add it on the command line with: steadyarm webhook add --allow-private"
        )
    return url


def _is_private(host: str) -> bool:
    """Whether a host is certainly private; names are looked up when something is sent."""
    if is_loopback(host) or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return not is_public(host)
    except ValueError:
        return False


async def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    private: bool = False,
    timeout: float = TIMEOUT,
) -> ReceiverAnswer:
    """Send one POST, and return what was answered; DeliveryError if nothing was."""
    try:
        async with asyncio.timeout(timeout):
            return await _post(urlsplit(checked_url(url, private)), headers, body, private)
    except TimeoutError:
        raise DeliveryError(f"no response within {timeout:g} s") from None
    except InvalidInputError as error:
        raise DeliveryError(str(error)) from None
    except ssl.SSLCertVerificationError as error:
        raise DeliveryError(f"the certificate is not valid: {error.verify_message}") from None
    except ssl.SSLError as error:
        raise DeliveryError(f"TLS failed: {error.reason or error}") from None
    except httptools.HttpParserUpgrade:
        raise DeliveryError("answered 101 Switching Protocols, which nobody asked for") from None
    except httptools.HttpParserError:
        raise DeliveryError("what was answered is no HTTP") from None
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        raise DeliveryError(f"the connection failed: {why}") from None
    except UnicodeError:
        raise DeliveryError("the name of the host is not valid") from None


async def _post(
    parts: SplitResult, headers: Mapping[str, str], body: bytes, private: bool
) -> ReceiverAnswer:
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or PORTS[parts.scheme]
    reader, writer = await _connected(host, port, secure, private)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = {
            "Host": parts.netloc,
            "Content-Length": str(len(body)),
            "Connection": "close",
            **headers,
        }
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("ascii") + body)
        return await _answered(reader)
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):  # the answer is known; a peer need not say goodbye
            async with asyncio.timeout(DRAINED):
                await writer.wait_closed()


async def _connected(
    host: str, port: int, secure: bool, private: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the first address of the host that is allowed and can be reached."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise DeliveryError(f"the host {host} is not found: {error.strerror}") from None
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    allowed = [one for one in addresses if private or is_public(one)]
    if not allowed:
        raise DeliveryError(
            f"the host {host} has the private address {addresses[0]}, which is not allowed"
            if addresses
            else f"the host {host} has no address"
        )
    tls: dict[str, Any] = {"ssl": _tls(), "server_hostname": host} if secure else {}
    for last, address in enumerate(allowed, start=1 - len(allowed)):
        try:
            async with asyncio.timeout(None if last == 0 else TIMEOUT / 4):
                return await asyncio.open_connection(address, port, limit=MOST, **tls)
        except (OSError, TimeoutError) as error:
            if last == 0 or isinstance(error, ssl.SSLError):
                raise
    raise AssertionError("the last address returns or raises")


@cache
def _tls() -> ssl.SSLContext:
    """Certificates are checked against those that this machine trusts."""
    return ssl.create_default_context()


class _Response:
    """What a parser has found of a response."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.wait: str | None = None
        self.status: int | None = None  # of the response itself, not of 100 Continue
        self.complete = False

    def feed(self, data: bytes) -> None:
        """Parse more of it; what comes after the response does not matter."""
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if self.status is None:
                raise
            self.complete = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after" and self.status is None:
            self.wait = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= 200 and self.status is None:
            self.status = status

    def on_message_complete(self) -> None:
        self.complete = self.status is not None


async def _answered(reader: asyncio.StreamReader) -> ReceiverAnswer:
    found, size = _Response(), 0
    while found.status is None:
        data = await reader.read(MOST)
        size += len(data)
        if not data:
            raise DeliveryError("the connection was closed before a response came")
        if size > MOST:
            raise DeliveryError(f"the head of the response is larger than {MOST:,} bytes")
        found.feed(data)
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(DRAINED):
            while not found.complete and size <= MOST and (data := await reader.read(MOST)):
                size += len(data)
                found.feed(data)
    wait = found.wait or ""
    seconds = float(wait) if wait.isascii() and wait.isdigit() and len(wait) < 10 else None
    return ReceiverAnswer(found.status, seconds)
