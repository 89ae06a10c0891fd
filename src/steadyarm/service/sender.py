"""Who sends a request, as far as can be known: headers, addresses, host names, proxies."""

from __future__ import annotations

import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from steadyarm.service.settings import is_loopback, network_in

HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:@/\\\[\]]+)(?::[0-9]*)?")
LONGEST = 260  # bytes that are read of a header's name, or of a host's with its port
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
ADDRESS = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?|([0-9.]+):[0-9]+")
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


def host_of(scope: Any) -> str:
    """The name in the one Host header, without the port; empty if there is no proper one."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    return _host(hosts[0][:LONGEST]) if len(hosts) == 1 else ""


def why_not_direct(scope: Any) -> str:
    """What shows that a request may come from elsewhere; empty if nothing does."""
    if name := forwarding(scope):
        return f"this request came through a proxy, which added the header {name}"
    if scope["http_version"] == "1.0":
        return "this request came over HTTP/1.0, as proxies send it"
    if not is_loopback(peer(scope)):
        return "this request came from another machine"
    if not is_loopback(host_of(scope)):
        return "this request has another name in its Host header"
    # A page of another site, open in a browser on this machine, must not get in.
    origin = header_of(scope, b"origin")
    if origin and not is_loopback(_host(origin.partition("://")[2].encode("latin-1")[:LONGEST])):
        return "this request was sent by a page of another site"
    return ""


def forwarding(scope: Any) -> str:
    """The first header that a proxy added; empty if there is none."""
    for name, _ in scope["headers"]:
        if _is_forwarding(name[:LONGEST]):
            return str(name[:LONGEST], "latin-1")
    return ""


@lru_cache(1024)  # every request has the same few
def _is_forwarding(name: bytes) -> bool:
    return name in FORWARDING or name.startswith(FORWARDING_PREFIXES)


@lru_cache(256)
def _host(header: bytes) -> str:
    """The name in a Host header, without the port; empty if it is not proper."""
    found = HOST.fullmatch(header.decode("latin-1"))
    return plain_host(found[1]) if found else ""


def plain_host(host: str) -> str:
    """A name or address as it is compared with others."""
    try:
        return ipaddress.ip_address(host.strip("[]")).compressed
    except ValueError:
        return host.rstrip(".").lower()


@lru_cache(1024)
def network_of(address: str) -> str:
    """Whom an address belongs to: of IPv6 one subscriber has at least 2⁶⁴.

    Examples
    --------
    >>> network_of("2001:db8::17"), network_of("::ffff:10.1.2.3"), network_of("10.1.2.3")
    ('2001:db8::/64', '10.1.2.3', '10.1.2.3')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


class Front:
    """What stands in front of the service: a path of its own, and proxies that are trusted.

    Requests come with the root path or without it, as the proxy passes them on. What a trusted
    proxy says of who sent a request, by which scheme and under which name, takes the place of what
    the connection says. The headers stay, so that such a request is never taken for a direct one.
    """

    def __init__(self, root_path: str, trusted_proxies: Iterable[str]) -> None:
        self._root, self._below = root_path, f"{root_path}/"
        self._networks = tuple(map(network_in, trusted_proxies))
        self._trusted = lru_cache(4096)(self._is_trusted)

    def __bool__(self) -> bool:
        return bool(self._root or self._networks)

    def adapt(self, scope: Any) -> None:
        """Change a request to what it was before the proxy."""
        path = scope["path"]
        if self._root and (path == self._root or path.startswith(self._below)):
            scope["path"] = path[len(self._root) :] or "/"
        if self._networks and self._trusted(peer(scope)):
            self._believe(scope)

    def _believe(self, scope: Any) -> None:
        if address := self._sender(scope):
            scope["client"] = (address, 0)
        # The nearest proxy is the one that is trusted, and writes at the end.
        scheme = _last(scope, b"x-forwarded-proto").lower()
        if scheme in ("http", "https"):
            scope["scheme"] = scheme
        if host := _last(scope, b"x-forwarded-host"):
            kept = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope["headers"] = [*kept, (b"host", host.encode("latin-1"))]

    def _sender(self, scope: Any) -> str:
        """The last address that no trusted proxy has; the first if all have; empty if unknown."""
        found = ""
        for text in reversed(_listed(scope, b"x-forwarded-for")):
            address = _address(text)
            if not address:  # whoever wrote that said nothing, and all before it may be made up
                return found
            found = address
            if not self._trusted(address):
                return found
        return found

    def _is_trusted(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address):
            found = found.ipv4_mapped or found
        return any(found in network for network in self._networks)


def _listed(scope: Any, wanted: bytes) -> list[str]:
    """The values of a header that may come several times, separated by commas."""
    return [one.strip() for text in headers_of(scope, wanted) for one in text.split(",")]


def _last(scope: Any, wanted: bytes) -> str:
    return (_listed(scope, wanted) or [""])[-1]


def _address(text: str) -> str:
    """An address without its port; empty if it is none."""
    found = ADDRESS.fullmatch(text[:LONGEST])
    try:
        return ipaddress.ip_address((found[1] or found[2]) if found else text).compressed
    except ValueError:
        return ""


class PerMinute:
    """Counts what comes from each address; says how long to wait beyond a limit in a minute.

    A minute begins with the first thing that is counted. Only the latest addresses are remembered,
    so memory is bounded. Each worker counts for itself.

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
