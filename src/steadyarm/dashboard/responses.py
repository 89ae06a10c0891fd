"""Responses of pages: templates and their filters, static files, headers, redirects."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

import steadyarm
from steadyarm import wording
from steadyarm.plot.spec import note_of
from steadyarm.service.app import with_etag
from steadyarm.service.auth import header_of
from steadyarm.storages.records import AuditEntry, to_datetime

if TYPE_CHECKING:
    from steadyarm.dashboard.access import Viewer

# Filters of the templates: numbers and times as people read them.

UNKNOWN = "\u2013"  # a dash


def percent(share: float) -> str:
    """A share of 1; a dash if it is not known.

    Examples
    --------
    >>> percent(0.0623), percent(1.0), percent(float("nan"))
    ('6.2 %', '100 %', '–')
    """
    return wording.percent(share) if math.isfinite(share) else UNKNOWN


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
    >>> cell(None), cell(0.123456789), cell(1200), cell("A"), cell(True)
    ('–', '0.1235', '1,200', 'A', 'yes')
    """
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return amount(value)
        case _:
            return str(value)


def correction(entry: AuditEntry) -> str:
    """Describe the changes of a correction.

    Examples
    --------
    >>> correction(AuditEntry(7, 0, "ada", "reward.voided", "shop", {"assignments": 1}))
    'Reward voided'
    """
    text, detail = entry.action.replace(".", " ").capitalize(), entry.detail
    if "since" in detail and "until" in detail:
        since, until = (to_datetime(detail[name]) for name in ("since", "until"))
        return f"{text}, {when(since)} to {when(until)}"
    return text


# Templates: the one place where they are loaded, filled in and escaped.


@cache
def environment() -> Environment:
    """Load the templates of this package; values are always shown as text."""
    templates = Environment(
        loader=PackageLoader("steadyarm.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters.update(
        amount=amount,
        cell=cell,
        correction=correction,
        count="{:,}".format,
        day=day,
        note=note_of,
        path=experiment_path,
        percent=percent,
        when=when,
    )
    templates.globals.update(version=steadyarm.__version__)
    return templates


def fill_in(template: str, viewer: Viewer, values: Mapping[str, Any]) -> str:
    """Fill in a template for a viewer."""
    shared = {"viewer": viewer, "root": viewer.root}
    return environment().get_template(template).render(shared | dict(values))


def render(template: str, viewer: Viewer, status: int = 200, /, **values: Any) -> HTMLResponse:
    """Respond with a page that browsers do not keep."""
    return HTMLResponse(fill_in(template, viewer, values), status)


def validated(request: Request, content: bytes, media_type: str) -> Response:
    """Respond with content that the browser keeps, and asks for again each time."""
    response = with_etag(content, request, media_type)
    response.headers["Cache-Control"] = "private, no-cache"
    return response


# Static files: browsers keep them, and ask whether they have changed.

STATIC = Path(__file__).with_name("static")


class Files(StaticFiles):
    """The static files, with the headers of all pages."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Respond with a file, or with 304."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = "no-cache"
        return with_headers(response)


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
    """Add the security headers; nothing is kept unless the handler said so."""
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


def local_path(path: str) -> str:
    """The path if it leads to a page of this service, else that of the overview.

    Examples
    --------
    >>> [local_path(path) for path in ("/experiments/shop?day=2", "//evil.example", "https:evil")]
    ['/experiments/shop?day=2', '/', '/']
    """
    return path if LOCAL.fullmatch(path) else "/"


def wants_json(scope: Scope) -> bool:
    """Whether a script sent the request, not a person at a browser."""
    accepted = header_of(scope, b"accept")
    route = getattr(scope.get("route"), "path", "")  # not the address: names may end so, too
    return (
        route.endswith(".json")
        or header_of(scope, b"sec-fetch-dest") == "empty"
        or ("json" in accepted and "text/html" not in accepted)
    )
