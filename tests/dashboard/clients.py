"""A browser of sorts: the application in this process, with cookies and forms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any

import httpx2

import steadyarm as sa
from steadyarm.dashboard.access import Access, GuardedPage
from steadyarm.dashboard.app import create_app
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages import open_storage
from steadyarm.storages.service import Scope
from steadyarm.storages.storage import Storage
from tests.service.clients import InProcess, add_token
from tests.storages.filling import fill

SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
STOP = "/experiments/shop/stop"


class Browser(InProcess):
    """Keeps cookies, sends forms, follows nothing by itself."""

    def __enter__(self) -> Browser:
        super().__enter__()
        self._client.headers["Accept"] = "text/html,*/*;q=0.8"
        return self

    @property
    def root(self) -> str:
        """The path under which a proxy serves the service; cookies are for it alone."""
        found: str = self.app.state.service.settings.root_path
        return found

    @property
    def cookies(self) -> httpx2.Cookies:
        return self._client.cookies

    def csrf(self) -> str:
        """The key that a page would hold for this browser's session."""
        if not self.cookies:
            self.get(f"{self.root}/sign-in")
        if not self.cookies:  # there are no tokens
            self.get(f"{self.root}/experiments/absent/stop")
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {"type": "http", "scheme": "http", "headers": [(b"cookie", cookies.encode())]}
        access: Access = self.app.state.access
        return access.nobody(access.session(scope)).csrf

    def post_form(
        self, path: str, fields: Mapping[str, Any] | None = None, **given: Any
    ) -> httpx2.Response:
        """Send a form with the session's key, unless the fields hold another."""
        return self.request("POST", path, data={"csrf": self.csrf()} | dict(fields or {}), **given)

    def sign_in(self, token: str, path: str = "/") -> httpx2.Response:
        """As a person does: load the page, fill in the form."""
        self.get(f"{self.root}/sign-in")
        return self.post_form(f"{self.root}/sign-in", {"token": token, "next": path})


@contextmanager
def dashboard(storage: Storage | None = None, **given: Any) -> Iterator[Browser]:
    """The application on a storage, in memory by default, without lines for every request."""
    settings = ServiceSettings(**({"access_log": False, "warm": False} | given))
    with Browser(create_app(storage or open_storage("memory"), settings)) as browser:
        yield browser


def create(
    storage: Storage, budget: int = 400, name: str = "shop", arms: str = "A B", **settings: Any
) -> sa.Experiment:
    """An experiment with usual settings; `arms` are names with spaces between."""
    rules: dict[str, Any] = {"seed": 1, "policy": sa.Steady()}
    rules |= ({} if "metrics" in settings else {"missing": "drop"}) | settings
    return sa.create_experiment(name, arms.split(), budget=budget, storage=storage, **rules)


def add_tokens(storage: Storage, *scopes: Scope) -> dict[Scope, str]:
    return {scope: add_token(storage, scope, scope) for scope in scopes}


def pages_of(browser: Browser) -> list[tuple[str, str, Scope | None]]:
    """Method, an address and the scope of every page."""
    found = [route.page for route in browser.app.routes if isinstance(route, GuardedPage)]
    return [(one.method, _address(one.path), one.scope) for one in found]


def _address(path: str) -> str:
    return re.sub(r"\{.*?\}", "x", path.replace("{name}", "shop"))


def state_of(browser: Browser, name: str = "shop") -> str:
    return str(browser.app.state.service.storage.find(name).state)


Guarded = tuple[Browser, Storage, dict[Scope, str]]


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def stored(test: sa.Experiment, storage: Storage, name: str) -> None:
    snapshot = test.storage.snapshot(test.key, everything=True)
    fill(storage, name, snapshot, [test.storage.log(test.key, most=100_000)])
