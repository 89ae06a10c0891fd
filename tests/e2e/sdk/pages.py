"""Pages of a shop on an origin of their own, beside the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.e2e.sdk.node import ROOT

# What a page without a bundler needs: where the packages are that modules import by their names.
IMPORTS = """<script type="importmap">
{ "imports": {
  "@openfeature/core": "/sdk/js/node_modules/@openfeature/core/dist/esm/index.js",
  "@openfeature/web-sdk": "/sdk/js/node_modules/@openfeature/web-sdk/dist/esm/index.js",
  "@openfeature/ofrep-core": "/js/ofrep-core.js",
  "@openfeature/ofrep-web-provider": "/js/ofrep-web-provider.js",
  "@steadyarm/openfeature/web": "/sdk/js/dist/web.js" } }
</script>
"""


WEB = "/sdk/js/node_modules/@openfeature/ofrep-web-provider"
MOVED = {  # where a site without the repository has these files: docs/integrate/browser.md
    "/js/core.js": "/sdk/js/node_modules/@openfeature/core/dist/esm/index.js",
    "/js/web-sdk.js": "/sdk/js/node_modules/@openfeature/web-sdk/dist/esm/index.js",
    "/js/ofrep-core.js": f"{WEB}/node_modules/@openfeature/ofrep-core/index.esm.js",
    "/js/ofrep-web-provider.js": f"{WEB}/index.esm.js",
    "/js/steadyarm/": "/sdk/js/dist/",
}


class PageServer:
    """The files of the repository, and pages by their paths, which may change at any time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pages: dict[str, str] = {"/favicon.ico": ""}


class _Handler(SimpleHTTPRequestHandler):
    extensions_map: Mapping[str, str] = {  # type: ignore[assignment]
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
    }

    def __init__(self, pages: dict[str, str], *args: object) -> None:
        self._pages = pages
        super().__init__(*args, directory=str(ROOT))  # type: ignore[arg-type]

    def do_GET(self) -> None:
        text = self._pages.get(self.path.partition("?")[0])
        if text is None:
            super().do_GET()
            return
        content = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def translate_path(self, path: str) -> str:
        for place, file in MOVED.items():
            if path.startswith(place):
                path = file + path.removeprefix(place)
        return super().translate_path(path)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving_pages() -> Iterator[PageServer]:
    """A server of pages on a free port."""
    pages = PageServer("")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, pages.pages)) as http:
        pages.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield pages
        finally:
            http.shutdown()
            thread.join()
