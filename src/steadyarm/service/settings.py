"""ServiceSettings: how the service runs; read from STEADYARM_… variables."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from math import inf
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

import msgspec

from steadyarm.errors import InvalidInputError
from steadyarm.validation import check_choice
from steadyarm.wording import did_you_mean

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
PREFIX = "STEADYARM_"
OTHERS = {"url", "token", "yahoo"}  # variables of clients and of commands for research
FASTEST = 10_000  # times as quick as real clocks: a day in nine seconds
SECRET = 16  # characters that a secret has at least
FEWEST_IN_BATCH = 100  # items in a request of the Python client
HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
PUBLIC = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
ROOT = re.compile(r"(/[A-Za-z0-9._~-]+)+")
# First parts of the service's own paths. A root path must not begin with one of them: the service
# could not tell whether a proxy has removed the root path.
OWN_PATHS = frozenset(
    (
        *("v1", "ofrep", "experiments", "new", "tokens", "static", "sign-in", "sign-out"),
        *("docs", "openapi.json", "healthz", "readyz", "metrics"),
    )
)


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of the service.

    Attributes
    ----------
    host, port : where it listens; without tokens it answers on loopback hosts only
    storage : URL of the database with the experiments; None for what `open_storage` takes
    writers : threads that write; one is best for SQLite, which has one writer
    max_body, max_batch : most bytes of a request's body, items of a batch
    max_connections : that are kept open; beyond that requests are answered with 503
    request_timeout : seconds in which a request is answered or refused; results may take 20 times
        as long
    log_format : the log format of lines on standard output, "text" or "json"
    log_level : the least important messages that are logged; lines of requests are "info"
    access_log : whether every request gets a line
    warm : whether it is ready only when numerical code is loaded, and then compiles what is new
    secret : signs the cookies of people who signed in; None for a new one at every start, after
        which they sign in again
    allowed_hosts : host names that requests may have in their Host header, without ports; others
        are refused. If none is given all are allowed
    https : whether a proxy serves the pages over https, so that cookies are sent over https only
    root_path : path under which a proxy serves this service, such as "/ab", if it is not alone on
        its host; links, redirects and cookies begin with it. Requests may come with or without it
    trusted_proxies : addresses or networks of proxies; only what these say in X-Forwarded-For and
        X-Forwarded-Proto is believed
    clock_from : the time at which the service's clock starts, for rehearsals; None for the present
    clock_speed : how many times as quick that clock goes
    public_url : address under which people open the dashboard, such as https://tests.example.org,
        for links in webhooks; None to send no links
    """

    host: str = "127.0.0.1"
    port: int = 8000
    storage: str | None = None
    writers: int = 1
    max_body: int = 1_000_000
    max_batch: int = 1_000
    max_connections: int = 4_000
    request_timeout: float = 15.0
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"
    access_log: bool = True
    warm: bool = True
    secret: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    https: bool = False
    root_path: str = ""
    trusted_proxies: tuple[str, ...] = ()
    clock_from: str | None = None
    clock_speed: float = 1.0
    public_url: str | None = None

    def __post_init__(self) -> None:
        for name in ("writers", "max_body", "max_batch", "max_connections"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} is {getattr(self, name)}; expected at least 1.")
        if self.max_batch < FEWEST_IN_BATCH:
            raise InvalidInputError(
                f"max_batch is {self.max_batch}; expected at least {FEWEST_IN_BATCH}, the size of "
                "the clients' batches."
            )
        if not 0 < self.request_timeout < inf:
            raise InvalidInputError(
                f"request_timeout is {self.request_timeout}; expected seconds above 0."
            )
        if not 0 < self.clock_speed <= FASTEST or (self.clock_speed != 1 and not self.clock_from):
            raise InvalidInputError(
                f"clock_speed is {self.clock_speed:g}; expected a number above 0 and at most "
                f"{FASTEST:,}, beside clock_from."
            )
        _ = self.clock_start
        if not 0 <= self.port < 65536:
            raise InvalidInputError(f"port is {self.port}; expected 0 to 65535, 0 for a free one.")
        check_choice(self.log_format, "log_format", get_args(LogFormat))
        check_choice(self.log_level, "log_level", get_args(LogLevel))
        for host in self.allowed_hosts:
            if not _is_host(host):
                raise InvalidInputError(
                    f"allowed_hosts has {host!r}; expected names of hosts without scheme and port, "
                    "such as experiments.example.org, or addresses such as 10.0.0.7."
                )
        if self.public_url is not None and not PUBLIC.fullmatch(self.public_url):
            raise InvalidInputError(
                f"public_url is {self.public_url!r}; expected an address such as "
                "https://tests.example.org, without a query."
            )
        object.__setattr__(self, "root_path", _root_path(self.root_path))
        for proxy in self.trusted_proxies:
            network_in(proxy)
        if self.secret is not None and len(self.secret) < SECRET:
            raise InvalidInputError(
                f"secret has {len(self.secret)} characters; expected at least {SECRET}, at random, "
                "such as those of: openssl rand -hex 32"
            )

    @property
    def clock_start(self) -> datetime | None:
        """The time at which a rehearsal begins, in UTC unless it says another zone."""
        if self.clock_from is None:
            return None
        try:
            start = datetime.fromisoformat(self.clock_from)
        except ValueError:
            expected = "a time such as 2026-03-01T08:00"
            raise InvalidInputError.of("clock_from", self.clock_from, expected) from None
        return start if start.tzinfo else start.replace(tzinfo=UTC)

    @property
    def public(self) -> bool:
        """Whether others than this machine may reach it."""
        return not is_loopback(self.host)

    @classmethod
    def from_environment(cls, variables: Mapping[str, str], **given: Any) -> Self:
        """Read settings from variables; arguments that are not None take precedence."""
        values: dict[str, Any] = {}
        for name, kind in get_type_hints(cls).items():
            variable = PREFIX + name.upper()
            if (text := variables.get(variable)) is not None:
                values[name] = _convert(variable, text, kind)
        return cls(**(values | {name: value for name, value in given.items() if value is not None}))


def explain_unknown(variables: Iterable[str]) -> list[str]:
    """Explain unknown variables that begin like a setting, with the closest names.

    Examples
    --------
    >>> explain_unknown(["STEADYARM_PROT", "STEADYARM_PORT", "STEADYARM_TOKEN", "PATH"])
    ['STEADYARM_PROT is not a setting and has no effect; did you mean STEADYARM_PORT?']
    """
    known = [PREFIX + name.upper() for name in {*get_type_hints(ServiceSettings), *OTHERS}]
    unknown = sorted(name for name in variables if name.startswith(PREFIX) and name not in known)
    return [f"{n} is not a setting and has no effect{did_you_mean(n, known)}" for n in unknown]


def _convert(variable: str, text: str, kind: Any) -> Any:
    """The value of an environment variable; lists are separated by commas."""
    entries = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return msgspec.convert(entries if get_origin(kind) is tuple else text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"{variable} is {text!r}. {error}.") from None


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def network_in(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """The network of trusted proxies that a text names; all addresses are no such network.

    Examples
    --------
    >>> network_in("10.0.0.7"), network_in("fd00::/8")
    (IPv4Network('10.0.0.7/32'), IPv6Network('fd00::/8'))
    """
    try:
        network = ipaddress.ip_network(text.strip().strip("[]"), strict=False)
    except ValueError:
        network = None
    if network is None or not network.prefixlen:
        raise InvalidInputError(
            f"trusted_proxies has {text!r}; expected the address or the network of a proxy, such "
            "as 127.0.0.1 or 10.0.0.0/8, but not all addresses."
        )
    return network


def _root_path(text: str) -> str:
    path = text.rstrip("/")
    parts = path.split("/")[1:]
    if path and (not ROOT.fullmatch(path) or {".", ".."} & {*parts}):
        raise InvalidInputError.of(
            "root_path", text, "a path of letters, digits and - . _ ~, such as /ab or /tools/ab"
        )
    if path and parts[0] in OWN_PATHS:
        raise InvalidInputError(
            f"root_path is {text!r}, which is a page of the service; use another path, such as /ab."
        )
    return path


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return HOST.fullmatch(text) is not None
    return True
