"""Problems: every error as application/problem+json (RFC 9457), translated at this one border."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from steadyarm.answers import shortened
from steadyarm.errors import (
    MissingExtraError,
    StorageVersionError,
)
from steadyarm.facts import PROBLEM, PROBLEMS

__all__ = ["GENERIC", "HEADERS", "KINDS", "MEDIA", "RefusedError", "answer_to", "problem_of"]

log = logging.getLogger("steadyarm.service")

MEDIA = "application/problem+json"
KINDS: dict[str, tuple[int, str]] = {
    "malformed": (400, "The body is not JSON"),
    "unauthorized": (401, "A token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "not-found": (404, "There is nothing here"),
    "unknown-experiment": (404, "There is no such experiment"),
    "unknown-assignment": (404, "There is no such assignment"),
    "method-not-allowed": (405, "This cannot be done here"),
    "experiment-exists": (409, "The name is taken"),
    "wrong-state": (409, "The experiment's state does not allow this"),
    "budget-spent": (409, "The budget has been handed out"),
    "rewards-pending": (409, "Rewards must come first"),
    "reward-conflict": (409, "The assignment has another reward"),
    "reward-too-late": (409, "The reward came too late"),
    "lease-expired": (409, "The lease has run out"),
    "too-large": (413, "The request is too large"),
    "misdirected": (421, "The service does not have this name"),
    "invalid-input": (422, "A value is not accepted"),
    "too-many-failures": (429, "Too many tokens were not known"),
    "internal": (500, "The service failed"),
    "not-installed": (501, "The server lacks an optional part"),
    "storage-unavailable": (503, "The storage does not answer"),
    "starting": (503, "The service is getting ready"),
    "timeout": (503, "The request took too long"),
    "overloaded": (503, "The service has too much to do"),
}
HINTS = {
    "unauthorized": "Send Authorization: Bearer with a token of: steadyarm token create",
    "unknown-experiment": "GET /v1/experiments lists those that are there.",
    "unknown-assignment": "Send the id that the assignment was answered with, or its unit.",
    "method-not-allowed": "GET /openapi.json lists what can be done.",
    "not-found": "GET /openapi.json lists what can be done.",
    "experiment-exists": "Choose another name, or send load_if_exists: true.",
    "wrong-state": "Look at its state; start, resume or create another one.",
    "budget-spent": "Read the recommendation, or create an experiment with a larger budget.",
    "rewards-pending": "Send the rewards of what was handed out, then try again.",
    "reward-conflict": "The first reward counts; nothing is to be done if it is right.",
    "lease-expired": "Take another lease, and report what is used within a minute after its end.",
    "malformed": "Send JSON in UTF-8; NaN and Infinity are no JSON.",
    "internal": "Look for the request id in the service's log.",
    "storage-unavailable": "Try again in a second; GET /readyz says when it is back.",
    "timeout": "What was asked may have been done. Rewards, and assignments of units that keep "
    "their variant, may be sent again, which changes nothing; before anything else, look first.",
    "overloaded": "Nothing was done; try again in a second, or send less at a time.",
    "starting": "Try again in a second; the first start may take a minute, others a few seconds.",
}
OF: dict[type[Exception], str] = {
    **{error: kind for kind, error in PROBLEMS.items()},
    MissingExtraError: "not-installed",
    StorageVersionError: "storage-unavailable",
}
HEADERS: dict[str, Mapping[str, str]] = {
    "unauthorized": {"WWW-Authenticate": 'Bearer realm="steadyarm"'},
    "storage-unavailable": {"Retry-After": "1"},
    "starting": {"Retry-After": "1"},
    "timeout": {"Retry-After": "1", "Connection": "close"},  # its body may still be on the way
    "overloaded": {"Retry-After": "1"},
    "too-large": {"Connection": "close"},  # what is left of the body is not read
}
GENERIC = {404: "not-found", 405: "method-not-allowed"}


class RefusedError(Exception):
    """What the service itself refuses, by its kind."""

    def __init__(
        self,
        kind: str,
        detail: str,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind, self.hint, self.headers = kind, hint, headers


def problem_of(error: Exception, request_id: str) -> dict[str, Any]:
    """An error as a problem; what nobody foresaw is logged and told without its details."""
    kind = error.kind if isinstance(error, RefusedError) else OF.get(type(error), "internal")
    detail, hint = str(error), HINTS.get(kind)
    if isinstance(error, RefusedError) and error.hint is not None:
        hint = error.hint
    elif kind == "internal":
        log.error("request %s failed", request_id, exc_info=error)
        detail = "Something unforeseen happened; it was logged."
    elif kind == "storage-unavailable":
        log.error("request %s: %s", request_id, error)
        detail = "The storage does not answer; the log says why."
    status, title = KINDS[kind]
    told = {
        "type": PROBLEM + kind,
        "title": title,
        "status": status,
        "detail": detail,
    }
    if hint is not None:
        told["hint"] = hint
    return told | {"request_id": request_id}


def answer_to(error: Exception, scope: Scope) -> Response:
    """The answer that tells an error."""
    headers = error.headers if isinstance(error, (HTTPException, RefusedError)) else None
    if isinstance(error, HTTPException):  # of the router
        error = RefusedError(
            GENERIC.get(error.status_code, "not-found"),
            f"There is no {scope['method']} of {shortened(scope['path'])}.",
        )
    told = problem_of(error, scope.get("request_id", ""))
    kind = told["type"].rpartition(":")[2]
    return Response(to_json(told), told["status"], headers or HEADERS.get(kind), media_type=MEDIA)
