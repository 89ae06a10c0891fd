"""Problems: errors as application/problem+json (RFC 9457). All errors are translated here."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from steadyarm.errors import InvalidInputError, MissingExtraError, StorageVersionError
from steadyarm.wire.flags import FlagProblem
from steadyarm.wire.requests import MalformedError
from steadyarm.wire.responses import PROBLEM, PROBLEMS, Problem, RefusedEvent
from steadyarm.wording import shortened

log = logging.getLogger("steadyarm.service")

MEDIA = "application/problem+json"
KINDS: dict[str, tuple[int, str]] = {
    "malformed": (400, "The body is not JSON"),
    "wrong-host": (400, "The Host header is wrong"),
    "unauthorized": (401, "A token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "not-found": (404, "The address does not exist"),
    "unknown-experiment": (404, "The experiment does not exist"),
    "unknown-assignment": (404, "The assignment does not exist"),
    "method-not-allowed": (405, "The method is not allowed"),
    "experiment-exists": (409, "The name is taken"),
    "wrong-state": (409, "The experiment's state does not allow this"),
    "budget-spent": (409, "The budget is spent"),
    "rewards-pending": (409, "Rewards are missing"),
    "visits-pending": (409, "More visits are needed"),
    "reward-conflict": (409, "The assignment has another reward"),
    "reward-too-late": (409, "The reward came too late"),
    "too-large": (413, "The request is too large"),
    "invalid-input": (422, "A value is not accepted"),
    "event-not-counted": (422, "No experiment counted the event"),
    "too-many-failures": (429, "Too many unknown tokens"),
    "too-many-requests": (429, "Too many requests from this address"),
    "large-head": (431, "The headers are too large"),
    "internal": (500, "The service failed"),
    "not-installed": (501, "The server lacks an optional part"),
    "storage-unavailable": (503, "The storage does not answer"),
    "starting": (503, "The service is starting"),
    "timeout": (503, "The request took too long"),
    "overloaded": (503, "The service is overloaded"),
}
HINTS = {
    "unauthorized": "Send Authorization: Bearer with a token of: steadyarm token create",
    "unknown-experiment": "GET /v1/experiments lists the experiments.",
    "unknown-assignment": "Send the id of the assignment, or its unit.",
    "method-not-allowed": "GET /openapi.json lists what can be done.",
    "not-found": "GET /openapi.json lists what can be done.",
    "experiment-exists": "Choose another name, or send load_if_exists: true.",
    "wrong-state": "Start a draft, resume a paused experiment, or reopen one "
    "that was stopped by mistake.",
    "budget-spent": "Read the recommendation, or create an experiment with a larger budget.",
    "rewards-pending": "Send the rewards of the assignments, then try again.",
    "visits-pending": "Assign more visits first, send their rewards, then try again.",
    "reward-conflict": "The first reward counts. If it is right, do nothing.",
    "reward-too-late": "Send rewards within the experiment's reward_window and reward_grace. "
    "For rewards that were delayed on the way, send the time of the event as at.",
    "malformed": "Send JSON in UTF-8. NaN and Infinity are not valid JSON.",
    "internal": "Search for the request id in the service's log.",
    "storage-unavailable": (
        "Try again in a second. GET /readyz shows when the storage answers again."
    ),
    "timeout": "The request may have been carried out. You can send rewards, and assignments of "
    "units that keep their variant, again without effect. Check before you repeat anything else.",
    "overloaded": "Nothing was changed. Try again in a second, or send less at a time.",
    "starting": "Try again in a second.",
}
DISCREET = {  # what a publishable key reads instead
    "reward-conflict": "another value was reported before; the first one counts.",
    "unknown-experiment": "there is no experiment of that name yet.",
}
OF: dict[type[Exception], str] = {
    **{error: kind for kind, error in PROBLEMS.items()},
    MalformedError: "malformed",
    MissingExtraError: "not-installed",
    StorageVersionError: "storage-unavailable",
}
HEADERS: dict[str, Mapping[str, str]] = {
    "unauthorized": {"WWW-Authenticate": 'Bearer realm="steadyarm"'},
    "storage-unavailable": {"Retry-After": "1"},
    "starting": {"Retry-After": "1"},
    "timeout": {"Retry-After": "1", "Connection": "close"},  # its body may still be on the way
    "overloaded": {"Retry-After": "1"},
    "large-head": {"Connection": "close"},
    "too-large": {"Connection": "close"},  # the rest of the body is not read
}


class RefusedError(Exception):
    """A request that the service itself refuses.

    kind : one of KINDS
    experiments : those that did not count an event, each with its reason
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
        experiments: list[RefusedEvent] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind, self.hint, self.headers = kind, hint, headers
        self.experiments = experiments


def kind_of(error: Exception) -> str:
    """The kind of problem that an error is, one of KINDS."""
    return error.kind if isinstance(error, RefusedError) else OF.get(type(error), "internal")


def problem_of(error: Exception, scope: Scope) -> Problem:
    """An error as a problem. An unexpected error is logged, and its details are not sent.

    A publishable key reads no rewards and no names of other experiments.
    """
    kind, request_id = kind_of(error), scope.get("request_id", "")
    detail, hint = str(error), HINTS.get(kind)
    if "key" in scope:
        detail = DISCREET.get(kind, detail)
    if isinstance(error, RefusedError) and error.hint is not None:
        hint = error.hint
    elif kind == "internal":
        log.error("request %s failed", request_id, exc_info=error)
        detail = "An unexpected error occurred. It was logged."
    elif kind == "storage-unavailable":
        scope["service"].readiness.report(error)
        detail = "The storage does not answer. See the log of the service."
    status, title = KINDS[kind]
    about: dict[str, Any] = {}
    if isinstance(error, InvalidInputError) and error.field is not None:
        about = {"field": error.field, "expected": error.expected, "given": _short(error.given)}
    elif isinstance(error, RefusedError):
        about = {"experiments": error.experiments}
    return Problem(PROBLEM + kind, title, status, detail, request_id, hint, **about)


def problem_response(error: Exception, scope: Scope, ofrep: bool = False) -> Response:
    """The response that reports an error.

    ofrep : True for a client of OFREP, which does not know problem details
    """
    if isinstance(error, HTTPException):
        error = explain_router_error(
            error, f"There is no {scope['method']} of {shortened(scope['path'])}."
        )
    problem = problem_of(error, scope)
    scope["service"].metrics.problems.labels(problem.type.removeprefix(PROBLEM)).inc()
    headers = error.headers if isinstance(error, RefusedError) else None
    headers = headers or HEADERS.get(problem.type.removeprefix(PROBLEM))
    if ofrep:
        described = FlagProblem.of(problem, scope["path_params"].get("name"))
        return Response(
            msgspec.json.encode(described),
            400 if problem.status == 422 else problem.status,
            headers,
            media_type="application/json",
        )
    return Response(msgspec.json.encode(problem), problem.status, headers, media_type=MEDIA)


def explain_router_error(error: HTTPException, detail: str) -> RefusedError:
    """Explain an error of Starlette's router: an unknown path, or another method."""
    kind = "method-not-allowed" if error.status_code == 405 else "not-found"
    return RefusedError(kind, detail, headers=error.headers)


def json_response(content: Any, status: int = 200) -> Response:
    """JSON; null for numbers that are infinite or unknown."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def check_size(count: int, most: int, what: str) -> None:
    """Refuse lists that are too long."""
    if count > most:
        raise RefusedError(
            "too-large", f"{count:,} {what} are more than the {most:,} allowed.", "Send fewer."
        )


def _short(value: Any) -> Any:
    """A value that was refused; as text if it is long, or nothing that JSON has."""
    plain = value is None or isinstance(value, str | int | float)
    return value if plain and len(str(value)) <= 60 else shortened(value)
