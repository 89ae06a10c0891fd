"""Services to look at, with experiments that had traffic; what is read off their pages."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    WebError,
    expect,
)

import steadyarm as sa
from steadyarm.storages import open_storage
from tests.dashboard.clients import stored
from tests.live.scorecards import played
from tests.service.clients import add_token, listening

HOSTILE_TOKEN = "<img src=x onerror=alert(5)> {{7*7}}"
HOSTILE_EXPERIMENT = '"><img src=x onerror=alert(4)> & {{7*7}}'
HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "'-alert(1)-' ${alert(1)} %3Cscript%3E",
    "</script></style></textarea></title><svg onload=alert(1)>",
    "שלום עולם (abc) 123",
    "w" * 200,
    "🦊 fox & 🎉 party &amp; &lt;i&gt;",
)
LAYOUTS = {"headline": ["short", "long"], "picture": ["dog", "cat"], "button": ["buy", "add"]}
CHECKOUT = ("standard", "one page", "guest checkout", "long form", "no form")


def experiments() -> Iterator[tuple[str, sa.Experiment]]:
    two = sa.ArmSet.one_hot(["old", "new"])
    rates: dict[str, Any] = {"reward_range": (0.0, 1.0)}
    layouts = sa.ArmSet.factorial(LAYOUTS)
    yield "landing-page", played(layouts, 8000, 4000, days=14, step=100, **rates)
    checkout = sa.ArmSet.one_hot(CHECKOUT)
    yield "checkout", played(checkout, 6000, 6000, days=7, control="standard", step=100, **rates)
    yield "not-started", played(two, visits=0, start=False)
    yield "no-visitors-yet", played(two, visits=0)
    finished = played(two, 1000, 600, days=3)
    finished.stop()
    yield "finished", finished
    hostile = sa.ArmSet.one_hot(HOSTILE_NAMES)
    yield HOSTILE_EXPERIMENT, played(hostile, 4000, 1000, days=2, control=HOSTILE_NAMES[0])


@dataclass(frozen=True)
class Site:
    """A service that runs.

    Attributes
    ----------
    tokens : by scope; empty if none is needed
    """

    url: str
    tokens: Mapping[str, str]

    def api(self) -> httpx2.Client:
        """For requests as programs send them."""
        headers = {"authorization": f"Bearer {self.tokens['admin']}"} if self.tokens else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60)


def store_experiments(folder: Path) -> Path:
    """Store them in a file, once, however many processes ask for it at the same time."""
    path = folder / "experiments.db"
    with (folder / "experiments.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = folder / "unfinished.db"
            with closing(open_storage(f"sqlite:///{unfinished}")) as storage:
                for name, experiment in experiments():
                    stored(experiment, storage, name)
            unfinished.rename(path)
    return path


@contextmanager
def site(folder: Path, stored: Path | None, guarded: bool = False) -> Iterator[Site]:
    """A service on a copy of the stored experiments; without a file, it has none."""
    tokens = {}
    if stored is not None:
        shutil.copy(stored, folder / "tests.db")
    if guarded:
        with closing(open_storage(f"sqlite:///{folder}/tests.db")) as storage:
            for scope in ("read", "write", "admin"):
                tokens[scope] = add_token(storage, f"{HOSTILE_TOKEN} {scope}", scope)
    with listening(f"sqlite:///{folder}/tests.db") as url:
        yield Site(url, tokens)


# Pages ask for news every four seconds, and less often after a failure; tests cannot wait so long.
HURRIED = """{
  const slow = window.setTimeout;
  window.setTimeout = (work, wait, ...rest) => slow(work, wait >= 4000 ? wait / 16 : wait, ...rest);
}"""


def address(name: str) -> str:
    return f"/experiments/{quote(name, safe='')}"


def headline(page: Page) -> Locator:
    return page.locator("[data-live=headline]")


def hurry(page: Page) -> None:
    """Let the pages that are loaded from now on ask for news 16 times as often."""
    page.add_init_script(HURRIED)


def draw_all(page: Page) -> None:
    """Unfold and scroll through the page until every chart is drawn; then back."""
    page.evaluate("for (const fold of document.querySelectorAll('.fold')) fold.open = true")
    for picture in page.locator("[data-chart]").all():
        picture.scroll_into_view_if_needed()
        expect(picture.locator("svg").first).to_be_attached()
    page.evaluate("scrollTo(0, 0)")


def send_traffic(
    api: httpx2.Client, name: str, prefix: str, count: int, rewards: Mapping[str, float]
) -> None:
    """Send visitors, and report the reward of each by the variant that it got."""
    path = f"/v1{address(name)}"
    units = [f"{prefix} {number}" for number in range(count)]
    answer = api.post(f"{path}/assignments:batch", json={"units": units}).raise_for_status()
    reported = [
        {"assignment": assigned["id"], "reward": rewards[assigned["arm"]]}
        for assigned in answer.json()["assignments"]
    ]
    api.post(f"{path}/rewards:batch", json={"rewards": reported}).raise_for_status()


VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error("policy: " + event.violatedDirective + " " + event.blockedURI));
"""


class Watch:
    """Notes complaints of the console, requests to elsewhere and dialogs, for pages use none.

    Attributes
    ----------
    context : of the browser, whose pages are watched
    faults : what happened, as texts
    navigations : addresses that were loaded anew, one after the other
    """

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self._host = context, urlsplit(url).netloc
        self.begin()
        context.add_init_script(VIOLATIONS)
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("request", self._request)
        context.on("dialog", self._dialog)

    def begin(self) -> None:
        """Forget what happened, and who was signed in: somebody else comes."""
        self.faults: list[str] = []
        self.navigations: list[str] = []
        self._allowed: list[str] = []
        self.context.clear_cookies()
        self.context.set_offline(False)

    def allow(self, text: str) -> None:
        """Complaints with this text are part of the test, such as a refused sign-in."""
        self._allowed.append(text)

    def check(self) -> None:
        """Fail if anything happened."""
        bad = [fault for fault in self.faults if not any(text in fault for text in self._allowed)]
        assert not bad, "\n".join(bad)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            where = message.location.get("url", "")
            self.faults.append(f"console {message.type}: {message.text} ({where})")

    def _error(self, error: WebError) -> None:
        stack = " ".join((error.error.stack or str(error.error)).split())
        self.faults.append(f"error on {_address(error.page)}: {stack[:500]}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self._host:
            self.faults.append(f"request to elsewhere: {request.url[:200]}")
        if request.is_navigation_request():
            self.navigations.append(request.url)

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def _address(page: Page | None) -> str:
    return "no page" if page is None else page.url
