"""Services that programs in JavaScript use, pages of a shop beside them, and programs of Node."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import steadyarm as sa
from steadyarm.service.auth import new_key, new_token
from steadyarm.storages import open_storage
from tests.service.clients import listening

ROOT = Path(__file__).parents[3]
SDK = ROOT / "sdk/js"


def run(*command: str, cwd: Path = SDK, env: Mapping[str, str] | None = None) -> str:
    """What a program prints; it must succeed."""
    program = shutil.which(command[0])
    if program is None or not (SDK / "node_modules").exists():
        raise FileNotFoundError(
            f"there is no {command[0]}, or no sdk/js/node_modules; tests of the JavaScript package "
            "need both. Install them with: make browser"
        )
    done = subprocess.run(
        [program, *command[1:]],
        cwd=cwd,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build() -> Path:
    """The package with its `dist` and the tests in `build`, made anew if anything has changed."""
    (SDK / "build").mkdir(exist_ok=True)
    with (SDK / "build/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sources = [SDK / "package.json", *SDK.glob("src/*"), *SDK.glob("test/*")]
        stamp = SDK / "build/stamp"
        newest = max(path.stat().st_mtime_ns for path in sources)
        if not stamp.exists() or stamp.read_text() != str(newest):
            for folder in ("src", "test"):
                run("node", "node_modules/typescript/bin/tsc", "--project", folder)
            stamp.write_text(str(newest))
    return SDK


def node_tests(file: str, env: Mapping[str, str] | None = None) -> int:
    """Run the tests in a file of `build`: how many there were. None may fail or be skipped."""
    said = run("node", "--test", f"build/{file}", cwd=build(), env=env)
    counts = {name: int(count) for name, count in re.findall(r"^# (\w+) (\d+)$", said, re.M)}
    assert counts["pass"] == counts["tests"], said
    assert not counts["fail"] + counts["skipped"] + counts["todo"] + counts["cancelled"], said
    return counts["pass"]


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


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port: int = found.getsockname()[1]
        return port


@dataclass(frozen=True)
class Shop:
    """A service that can be stopped and started again at the same address.

    Attributes
    ----------
    token : with the scope write
    keys : publishable ones by their names: `web` for pages of the shop, `elsewhere` for pages of
        another origin
    """

    folder: Path
    port: int
    token: str
    keys: Mapping[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def open(self) -> Iterator[Shop]:
        with listening(_storage(self.folder), self.port):
            yield self

    def experiment(self, name: str = "shop") -> sa.Experiment:
        """An experiment as its storage has it."""
        return sa.load_experiment(name, storage=_storage(self.folder))

    def counts(self, name: str = "shop") -> tuple[int, int]:
        """How many were assigned, and how many of them have a reward."""
        status = self.experiment(name).status()
        return sum(status.assigned), sum(status.rewarded)


def create_shop(folder: Path, origin: str) -> Shop:
    """A storage with experiments of all kinds, tokens and keys; nobody serves it yet."""
    purchase = sa.Metric("purchase", role="primary", kind="yes/no", window="1h")

    def create(name: str, arms: list[str] | sa.ArmSet, **options: Any) -> None:
        rules: dict[str, Any] = {} if "metrics" in options else {"missing": "drop"}
        sa.create_experiment(
            name, arms, sa.Uniform(), 2000, _storage(folder), seed=1, **rules, **options
        )

    devices = {"device": ["mobile", "desktop"]}
    create("shop", ["A", "B", "C"], metrics=[purchase], attributes=devices)
    create("price", ["low", "high"], values={"low": 9.5, "high": 12})
    create("banner", ["off", "on"], values={"off": False, "on": True})
    create("page", sa.ArmSet.factorial({"headline": ["long", "short"], "image": ["dog", "cat"]}))
    create("draft", ["A", "B"], start=False)
    create("everywhere", ["A", "B"], bulk=True)

    shown, rate = ("shop", "price", "page", "everywhere"), 1_000_000
    made = {
        "shop": new_token("shop", "write"),
        "web": new_key("web", shown, [origin], rate),
        "elsewhere": new_key("elsewhere", shown, ["https://shop.example"], rate),
    }
    with closing(open_storage(_storage(folder))) as storage:
        for _, record in made.values():
            storage.tokens.add(record)
    keys = {name: token for name, (token, _) in made.items() if token.startswith("pk_")}
    return Shop(folder, free_port(), made["shop"][0], keys)


def _storage(folder: Path) -> str:
    return f"sqlite:///{folder}/tests.db"
