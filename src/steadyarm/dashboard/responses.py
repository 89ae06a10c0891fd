"""How pages are answered: templates and their filters, static files, headers, redirects."""

from __future__ import annotations

import gzip
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Scope

import steadyarm
from steadyarm import wording
from steadyarm.plot.spec import note_of
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
    >>> percent(1.0, 0), percent(0.1, 0), percent(0.0, 0), percent(0.0)
    ('100 %', '10 %', '0 %', '0 %')
    """
    if not math.isfinite(share):
        return UNKNOWN
    least = 10.0**-digits
    if 0 < 100 * share < least / 2:
        return f"<{least:.{digits}f} %"
    text = f"{100 * share:.{digits}f}"
    return (f"{float(text):.0f}" if float(text) in (0.0, 100.0) else text) + " %"


def amount(value: float, rates: bool = False) -> str:
    """A mean reward, in per cent if it is a rate; a dash if it is not known.

    Examples
    --------
    >>> amount(0.12345, rates=True), amount(12.3456), amount(-1234567.8), amount(float("inf"))
    ('12.35 %', '12.35', '-1,234,568', '–')
    """
    return wording.amount(value, rates) if math.isfinite(value) else UNKNOWN


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
    >>> corrected(AuditEntry(7, 0, "ada", "reward.voided", "shop", {"assignments": 1}))
    'Reward voided'
    """
    said, detail = entry.action.replace(".", " ").capitalize(), entry.detail
    if "since" in detail and "until" in detail:
        return (
            f"{said}, {when(to_datetime(detail['since']))} to {when(to_datetime(detail['until']))}"
        )
    return said


# What is sent: packed by gzip where browsers accept that, and not again while they have it.

MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FOREVER = "public, max-age=31536000, immutable"
LEVEL = 5  # of gzip; more costs time and saves little


@dataclass(frozen=True)
class Content:
    """Something to be sent: as it is, packed, and a tag that changes with it."""

    body: bytes
    media: str
    tag: str
    packed: bytes

    @classmethod
    def of(cls, body: bytes, media: str, tag: str = "") -> Content:
        """Pack something; its tag is a hash of it unless one is given."""
        tag = tag or hashlib.blake2b(body, digest_size=12).hexdigest()
        return cls(body, media, tag, gzip.compress(body, LEVEL, mtime=0))

    def response(self, scope: Scope, caching: str = "private, no-cache") -> Response:
        """The content as the browser wants it, or 304 if the browser has it.

        A page whose address has a query is not packed: it may repeat the query, and the size of
        both packed together would say how much of the key for forms the query has guessed.
        """
        repeats = self.media == "text/html" and scope["query_string"]
        packs = "gzip" in header_of(scope, b"accept-encoding") and not repeats
        etag = f'"{self.tag}{"-gzip" if packs else ""}"'
        headers = {"ETag": etag, "Vary": "Accept-Encoding", "Cache-Control": caching}
        known = header_of(scope, b"if-none-match").split(",")
        if etag in (one.strip().removeprefix("W/") for one in known):
            return Response(status_code=304, headers=headers)
        if packs:
            headers["Content-Encoding"] = "gzip"
        body = self.packed if packs else self.body
        return Response(body, headers=headers, media_type=self.media)


def asset(root: str, name: str) -> str:
    """The address of a file, which changes with its content."""
    return f"{root}/static/{name}?v={_own()[name].tag}"


async def static(service: Service, request: Request, viewer: Viewer) -> Response:
    """Respond with one of the files; names are looked up, not opened, so there are no others."""
    found = _own().get(request.path_params["file"])
    if found is None:
        raise RefusedError("not-found", "There is no such file.")
    current = request.query_params.get("v") == found.tag
    return found.response(request.scope, FOREVER if current else "no-cache")


@cache
def _own() -> dict[str, Content]:
    folder = resources.files("steadyarm.dashboard").joinpath("static")
    files = ((file, MEDIA.get("." + file.name.rpartition(".")[2])) for file in folder.iterdir())
    return {file.name: Content.of(file.read_bytes(), media) for file, media in files if media}


def prepare() -> None:
    """Read and pack all files and compile the templates, before somebody waits for them."""
    for name in environment().list_templates():
        environment().get_template(name)
    _own()


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
        note=note_of,
        path=experiment_path,
        percent=percent,
        when=when,
    )
    made.globals.update(version=steadyarm.__version__)
    return made


def render(template: str, viewer: Viewer, status: int = 200, /, **values: Any) -> HTMLResponse:
    """Fill in a template for a viewer; the page is not kept."""
    return HTMLResponse(_filled(template, viewer, values), status)


def page(template: str, viewer: Viewer, /, **values: Any) -> Content:
    """Fill in a template for a viewer; what has not changed is not sent again."""
    return Content.of(_filled(template, viewer, values).encode(), "text/html")


def _filled(template: str, viewer: Viewer, values: Mapping[str, Any]) -> str:
    root = viewer.root
    given = {"viewer": viewer, "root": root, "asset": partial(asset, root)}
    return environment().get_template(template).render(given | dict(values))


POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self' 'unsafe-inline'",  # Vega writes style elements and attributes
    "img-src": "'self' data:",
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
    """Add the headers for safety; nothing is kept unless the handler said so."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def see_other(root: str, path: str) -> Response:
    """Redirect to another page after a form.

    root : the path under which a proxy serves this service
    """
    return RedirectResponse(root + path, 303)


def experiment_path(name: str) -> str:
    """The address of an experiment's page, below the root.

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


def wants_json(scope: Scope) -> bool:
    """Whether a script sent the request, not a person at a browser."""
    accepted = header_of(scope, b"accept")
    route = getattr(scope.get("route"), "path", "")  # not the address: names may end so, too
    return (
        route.endswith(".json")
        or header_of(scope, b"sec-fetch-dest") == "empty"
        or ("json" in accepted and "text/html" not in accepted)
    )
