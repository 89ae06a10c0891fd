"""Errors as pages for people; programs get the service's own answer."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from steadyarm.dashboard.access import Viewer
from steadyarm.dashboard.rendering import render
from steadyarm.dashboard.responses import wants_json
from steadyarm.service.problems import GENERIC, HEADERS, RefusedError, answer_to, problem_of

__all__ = ["problem_page"]

TITLES = {
    "malformed": "The form could not be read",
    "forbidden": "This is not allowed",
    "not-found": "There is no such page",
    "too-large": "The form is too large",
}
# What helps a person at a browser; the service's own hints are for programs.
HINTS = {
    "unknown-experiment": "The overview lists the experiments that are there.",
    "not-found": "The overview shows all experiments.",
    "method-not-allowed": "Go to the overview and begin from there.",
    "experiment-exists": "Choose another name.",
    "wrong-state": "Look at the experiment again; somebody else may have changed it meanwhile.",
    "too-large": "Send less.",
    "internal": "Look for the request's id in the service's log.",
    "storage-unavailable": "Load the page again in a moment.",
    "starting": "Load the page again in a moment; the first start may take a minute.",
}


def problem_page(error: Exception, scope: Scope, viewer: Viewer) -> Response:
    """A page that tells an error; a problem in JSON if a script asked."""
    if wants_json(scope):
        return answer_to(error, scope)
    headers = error.headers if isinstance(error, (HTTPException, RefusedError)) else None
    if isinstance(error, HTTPException):  # of the router
        kind = GENERIC.get(error.status_code, "not-found")
        error = RefusedError(kind, "The address may be mistyped, or the page has moved.")
    told = problem_of(error, scope.get("request_id", ""))
    kind = told["type"].rpartition(":")[2]
    own = error.hint if isinstance(error, RefusedError) else None
    detail = told["detail"]
    page = render(
        "problem.html",
        viewer,
        told["status"],
        title=TITLES.get(kind, told["title"]),
        detail=detail[:1].upper() + detail[1:],
        hint=HINTS.get(kind) if own is None else own,
        request_id=told["request_id"] if told["status"] >= 500 else "",
    )
    page.headers.update(headers or HEADERS.get(kind, {}))
    return page
