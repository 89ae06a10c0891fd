"""Answers that pages share, and the headers that all of them carry."""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from steadyarm.service.auth import header_of

__all__ = [
    "attachment",
    "dress",
    "experiment_path",
    "local_path",
    "not_modified",
    "see_other",
    "wants_json",
]

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


def dress(response: Response) -> Response:
    """Add the headers for safety, and how long to keep it, where the handler has said nothing."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    kept = "private, no-cache" if "etag" in response.headers else "no-store"
    response.headers.setdefault("Cache-Control", kept)
    return response


def see_other(path: str) -> Response:
    """Go on to another page."""
    return RedirectResponse(path, 303)


def experiment_path(name: str) -> str:
    """Where an experiment's page is.

    Examples
    --------
    >>> experiment_path("a/b")
    '/experiments/a%2Fb'
    """
    return f"/experiments/{quote(name, safe='')}"


def attachment(text: str, kind: str, *name: str) -> Response:
    """A file to be saved; its name is made of these and the last is its ending.

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
    """The path, if it is one of this service; else that of the overview.

    Examples
    --------
    >>> [local_path(path) for path in ("/experiments/shop?day=2", "//evil.example", "https:evil")]
    ['/experiments/shop?day=2', '/', '/']
    """
    return given if LOCAL.fullmatch(given) else "/"


def not_modified(request: Request, etag: str) -> Response | None:
    """304 if the browser has what the tag, with its quotes, stands for; else None."""
    known = header_of(request.scope, b"if-none-match")
    if etag in (one.strip().removeprefix("W/") for one in known.split(",")):
        return Response(status_code=304, headers={"ETag": etag})
    return None


def wants_json(scope: Scope) -> bool:
    """Whether a script asks, not a person."""
    accepted = header_of(scope, b"accept")
    route = getattr(scope.get("route"), "path", "")  # not the address: names may end so, too
    return (
        route.endswith(".json")
        or header_of(scope, b"sec-fetch-dest") == "empty"
        or ("json" in accepted and "text/html" not in accepted)
    )
