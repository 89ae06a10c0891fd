"""How pages are answered: templates and their filters, static files, headers, redirects."""

from __future__ import annotations

import gzip
import hashlib
import math
import re
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from importlib import metadata, resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Scope

import steadyarm
from steadyarm.service.auth import header_of
from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service
from steadyarm.storages.changes import AuditEntry
from steadyarm.storages.records import to_datetime

if TYPE_CHECKING:
    from steadyarm.dashboard.access import Viewer

# Filters of the templates: numbers and times as people read them.


UNKNOWN = "\u2013"  # a dash


def percent(share: float, digits: int = 1) -> str:
    """A share of 1.

    Examples
    --------
    >>> percent(0.0623), percent(1.0), percent(0.00004), percent(float("nan"))
    ('6.2 %', '100 %', '<0.1 %', '–')
    """
    if not math.isfinite(share):
        return UNKNOWN
    least = 10.0**-digits
    if 0 < 100 * share < least / 2:
        return f"<{least:.{digits}f} %"
    text = f"{100 * share:.{digits}f}"
    return (text.rstrip("0").rstrip(".") if float(text) in (0.0, 100.0) else text) + " %"


def amount(value: float, shares: bool = False) -> str:
    """A reward: in per cent if rewards are shares (0 or 1), else with four digits.

    Examples
    --------
    >>> amount(0.12345, shares=True), amount(12.3456), amount(-1234567.8), amount(float("inf"))
    ('12.35 %', '12.35', '-1,234,568', '–')
    """
    if not math.isfinite(value):
        return UNKNOWN
    if shares:
        return f"{100 * value:.2f} %"
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.3e}"
    return f"{value:.4g}"


def when(time: datetime | int | None) -> str:
    """A time, or microseconds since 1970; a dash if there is none.

    Examples
    --------
    >>> when(datetime(2026, 11, 5, 9, 30)), when(0)
    ('5 Nov 2026, 09:30', '1 Jan 1970, 00:00')
    """
    if time is None:
        return UNKNOWN
    at = to_datetime(time) if isinstance(time, int) else time
    return f"{day(at)}, {at:%H:%M}"


def day(time: datetime | date | int | None) -> str:
    """A date; a dash if there is none.

    Examples
    --------
    >>> day(date(2026, 11, 5)), day(None)
    ('5 Nov 2026', '–')
    """
    at = to_datetime(time) if isinstance(time, int) else time
    return UNKNOWN if at is None else f"{at.day} {at:%b %Y}"


def cell(value: Any) -> str:
    """A value of a table.

    Examples
    --------
    >>> cell(None), cell(0.123456789), cell(1200), cell("A"), cell(datetime(2026, 11, 5, 9, 30))
    ('–', '0.1235', '1,200', 'A', '5 Nov 2026, 09:30')
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return amount(value)
    if isinstance(value, datetime):
        return when(value)
    return day(value) if isinstance(value, date) else str(value)


def corrected(entry: AuditEntry) -> str:
    """What a correction changed.

    Examples
    --------
    >>> corrected(AuditEntry(7, 0, "ada", "visits.included", "shop", {"entry": 5}))
    'Visits included, see entry 5'
    """
    said, detail = entry.action.replace(".", " ").capitalize(), entry.detail
    if "since" in detail and "until" in detail:
        return (
            f"{said}, {when(to_datetime(detail['since']))} to {when(to_datetime(detail['until']))}"
        )
    return f"{said}, see entry {detail['entry']}" if "entry" in detail else said


# Style sheets, scripts and pictures: read once, sent packed, kept by browsers.

PLOTLY = "plotly.min.js"
MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Asset:
    """A file as it is sent: as it is, packed by gzip, and a version that changes with it."""

    body: bytes
    packed: bytes
    media: str
    version: str


def asset(name: str) -> str:
    """The address of a file, which changes with its content."""
    version = metadata.version("plotly") if name == PLOTLY else _own()[name].version
    return f"/static/{name}?v={version}"


async def static(service: Service, request: Request, viewer: Viewer) -> Response:
    """Answer with one of the files; names are looked up, not opened, so there are no others."""
    name = request.path_params["file"]
    found = await service.read(_plotly) if name == PLOTLY else _own().get(name)
    if found is None:
        raise RefusedError("not-found", "There is no such file.")
    packed = "gzip" in header_of(request.scope, b"accept-encoding")
    etag = f'"{found.version}{"-gzip" if packed else ""}"'
    response = not_modified(request, etag)
    if response is None:
        body = found.packed if packed else found.body
        response = Response(body, media_type=found.media, headers={"ETag": etag})
        if packed:
            response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    current = request.query_params.get("v") == found.version
    response.headers["Cache-Control"] = FOREVER if current else "no-cache"
    return response


@cache
def _own() -> dict[str, Asset]:
    folder = resources.files("steadyarm.dashboard").joinpath("static")
    return {
        file.name: _asset(file.read_bytes(), "." + file.name.rpartition(".")[2])
        for file in folder.iterdir()
        if file.name.endswith(tuple(MEDIA))
    }


@cache
def _plotly() -> Asset:
    body = resources.files("plotly").joinpath("package_data", PLOTLY).read_bytes()
    return _asset(body, ".js", metadata.version("plotly"))


def _asset(body: bytes, suffix: str, version: str = "") -> Asset:
    version = version or hashlib.sha256(body).hexdigest()[:16]
    return Asset(body, gzip.compress(body, 6, mtime=0), MEDIA[suffix], version)


# Templates to pages: the one place where they are loaded, filled in and escaped.


@cache
def environment() -> Environment:
    """Load the templates of this package; whatever they are given is shown as text."""
    made = Environment(
        loader=PackageLoader("steadyarm.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        amount=amount,
        cell=cell,
        corrected=corrected,
        count="{:,}".format,
        day=day,
        path=experiment_path,
        percent=percent,
        when=when,
    )
    made.globals.update(asset=asset, version=steadyarm.__version__)
    return made


def render(template: str, viewer: Viewer, status: int = 200, /, **values: Any) -> HTMLResponse:
    """Fill in a template for a viewer."""
    page = environment().get_template(template)
    return HTMLResponse(page.render(viewer=viewer, **values), status)


POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self' 'unsafe-inline'",  # Plotly writes style elements and attributes
    "img-src": "'self' data: blob:",  # Plotly makes pictures to save from both
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{what} {where}" for what, where in POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# Browsers drop tabs and line ends from addresses, and read a backslash as a slash.
LOCAL = re.compile(r"/(?!/)[!-\[\]-~]{0,1999}")


def with_headers(response: Response) -> Response:
    """Add the headers for safety and caching that the handler has not set."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    kept = "private, no-cache" if "etag" in response.headers else "no-store"
    response.headers.setdefault("Cache-Control", kept)
    return response


def see_other(path: str) -> Response:
    """Redirect to another page after a form."""
    return RedirectResponse(path, 303)


def experiment_path(name: str) -> str:
    """The address of an experiment's page.

    Examples
    --------
    >>> experiment_path("a/b")
    '/experiments/a%2Fb'
    """
    return f"/experiments/{quote(name, safe='')}"


def attachment(text: str, kind: str, *name: str) -> Response:
    """A file to be saved, whose name has these parts; the last is its ending.

    Examples
    --------
    >>> attachment("a,b", "text/csv", "my test", "drift", "csv").headers["content-disposition"]
    'attachment; filename="my_test-drift.csv"'
    """
    *parts, ending = (re.sub(r"[^A-Za-z0-9._-]+", "_", part) for part in name)
    headers = {
        "content-type": f"{kind}; charset=utf-8",
        "content-disposition": f'attachment; filename="{"-".join(parts)}.{ending}"',
    }
    return Response(text, headers=headers)


def local_path(given: str) -> str:
    """The path if it leads to a page of this service, else that of the overview.

    Examples
    --------
    >>> [local_path(path) for path in ("/experiments/shop?day=2", "//evil.example", "https:evil")]
    ['/experiments/shop?day=2', '/', '/']
    """
    return given if LOCAL.fullmatch(given) else "/"


def not_modified(request: Request, etag: str) -> Response | None:
    """Answer 304 if the browser has what the tag, with its quotes, stands for; else None."""
    known = header_of(request.scope, b"if-none-match")
    if etag in (one.strip().removeprefix("W/") for one in known.split(",")):
        return Response(status_code=304, headers={"ETag": etag})
    return None


def wants_json(scope: Scope) -> bool:
    """Whether a script sent the request, not a person at a browser."""
    accepted = header_of(scope, b"accept")
    route = getattr(scope.get("route"), "path", "")  # not the address: names may end so, too
    return (
        route.endswith(".json")
        or header_of(scope, b"sec-fetch-dest") == "empty"
        or ("json" in accepted and "text/html" not in accepted)
    )
