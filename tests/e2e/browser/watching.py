"""Watch: everything about a page that must not happen."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Page, Request, WebError

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
