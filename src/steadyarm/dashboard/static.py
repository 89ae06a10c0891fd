"""Style sheets, scripts and pictures: read once, sent packed, kept by browsers."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.dashboard.access import Viewer
from steadyarm.dashboard.responses import not_modified
from steadyarm.service.auth import header_of
from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service

__all__ = ["asset", "static"]

PLOTLY = "plotly.min.js"
MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
PACKED = {".css", ".js", ".svg", ".webmanifest"}
FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Asset:
    """A file as it is sent.

    Attributes
    ----------
    packed : by gzip; None if that is of no use
    version : changes with what is in it
    """

    body: bytes
    packed: bytes | None
    media: str
    version: str


def asset(name: str) -> str:
    """The address of a file, which changes with what is in it."""
    version = _plotly_version() if name == PLOTLY else _own()[name].version
    return f"/static/{name}?v={version}"


async def static(service: Service, request: Request, viewer: Viewer) -> Response:
    """One of the files; no other can be named, for names are looked up, not opened."""
    name = request.path_params["file"]
    found = await service.read(_plotly) if name == PLOTLY else _own().get(name)
    if found is None:
        raise RefusedError("not-found", "There is no such file.")
    accepted = header_of(request.scope, b"accept-encoding")
    packed = found.packed if "gzip" in accepted else None
    etag = f'"{found.version}{"" if packed is None else "-gzip"}"'
    response = not_modified(request, etag)
    if response is None:
        response = Response(packed or found.body, media_type=found.media, headers={"ETag": etag})
        if packed is not None:
            response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    current = request.query_params.get("v") == found.version
    response.headers["Cache-Control"] = FOREVER if current else "no-cache"
    return response


@cache
def _own() -> dict[str, Asset]:
    folder = resources.files("steadyarm.dashboard").joinpath("static")
    found = {}
    for file in folder.iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in MEDIA and file.is_file():
            found[file.name] = _asset(file.read_bytes(), suffix)
    return found


@cache
def _plotly() -> Asset:
    body = resources.files("plotly").joinpath("package_data", PLOTLY).read_bytes()
    return _asset(body, ".js", _plotly_version())


@cache
def _plotly_version() -> str:
    return metadata.version("plotly")


def _asset(body: bytes, suffix: str, version: str | None = None) -> Asset:
    packed = gzip.compress(body, 6, mtime=0) if suffix in PACKED else None
    return Asset(body, packed, MEDIA[suffix], version or hashlib.sha256(body).hexdigest()[:16])
