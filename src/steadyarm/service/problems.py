"""Problems: every error as application/problem+json (RFC 9457), translated at this one border."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from steadyarm.errors import (
    InvalidInputError,
    MissingExtraError,
    StorageVersionError,
)
from steadyarm.live.assignments import AssignmentId, shortened
from steadyarm.live.serializers import PROBLEM, PROBLEMS
from steadyarm.wire import NewCorrection, NewReward
from steadyarm.wording import did_you_mean

__all__ = [
    "GENERIC",
    "HEADERS",
    "KINDS",
    "MEDIA",
    "RefusedError",
    "answer_to",
    "body_of",
    "check_size",
    "checked",
    "in_words",
    "json_answer",
    "moment_in",
    "not_a_text",
    "problem_of",
    "query_of",
    "read_body",
    "target_of",
]

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


# What is wrong with a request, in words: what was given, what was expected, what was meant.


SHOWN = 5  # wrong values that are told
MEANT = {"id": ("assignment", "the assignment's id goes into assignment")}
WITH_ARTICLE = {"name", "unit", "reward", "assignment", "position"}


def in_words(error: ValidationError, model: type[BaseModel], given: Any) -> str:
    """Which values are wrong, what was expected, and what was probably meant; whole sentences."""
    told: dict[tuple[Any, ...], str] = {}  # a value that is one of many kinds is told once
    for wrong in error.errors(include_url=False):
        place, sentence = _sentence(wrong, model, given)
        told.setdefault(place, sentence)
    sentences = list(told.values())
    more = [f"And {len(sentences) - SHOWN} more."] if len(sentences) > SHOWN else []
    return " ".join(sentences[:SHOWN] + more)


def not_a_text(what: str, given: Any) -> str:
    """A number or something else where a text must be.

    Examples
    --------
    >>> print(not_a_text("the unit", 3))
    the unit is 3; expected a text: send it as "3".
    """
    number = isinstance(given, int | float) and not isinstance(given, bool)
    how = f': send it as "{shortened(given)}"' if number else ""
    return f"{what} is {shortened(given)}; expected a text{how}."


def _sentence(
    wrong: Any, model: type[BaseModel], given: Any, path: str = "", place: tuple[Any, ...] = ()
) -> tuple[tuple[Any, ...], str]:
    loc: Sequence[Any] = wrong["loc"][len(place) :]
    keys = tuple(model.model_fields)
    if not loc:
        if wrong["type"] == "value_error":
            return (*place, ""), f"{path and path + ': '}{wrong['ctx']['error']}."
        what = path or "the body"
        return (*place, ""), f"{what} is {shortened(given)}; expected an object{_with(keys)}."
    key = loc[0]
    if wrong["type"] == "extra_forbidden":
        return (*place, key), _unknown(str(key), keys, path)
    field = model.model_fields[key]
    name = f"{path}.{key}" if path else f"the {key}" if key in WITH_ARTICLE else key
    if wrong["type"] == "missing" and len(loc) == 1:
        return (
            *place,
            key,
        ), f"there is no {path and path + '.'}{key}; expected {field.description}."
    inner = next((kind for kind in get_args(field.annotation) if _is_model(kind)), None)
    if inner is not None and len(loc) > 1:
        here = f"{path}{key}[{loc[1]}]"
        return _sentence(wrong, inner, given[key][loc[1]], here, (*place, *loc[:2]))
    value = given[key]
    if wrong["type"] == "string_type" and len(loc) == 1:
        return (*place, key), not_a_text(name, value)
    return (*place, key), f"{name} is {shortened(value)}; expected {field.description}."


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _unknown(key: str, keys: tuple[str, ...], path: str) -> str:
    where = f" in {path}" if path else ""
    if not keys:
        return f"there is no key {shortened(key)}{where}; none is expected."
    meant, hint = MEANT.get(key, ("", ""))
    end = f"; {hint}." if meant in keys else did_you_mean(key, keys)
    return f"there is no key {shortened(key)}{where}; the keys are {', '.join(keys)}{end}"


def _with(keys: tuple[str, ...]) -> str:
    return f" with the key{'s' * (len(keys) != 1)} {', '.join(keys)}" if keys else ""


# Reading bodies and queries, writing JSON: the few steps that all handlers share.


M = TypeVar("M", bound=BaseModel)


async def body_of(request: Request, model: type[M], most: int) -> M:
    """The body as a model; never reads more than `most` bytes."""
    data = await read_body(request, most)
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise RefusedError("malformed", f"The body is not JSON: {error}.") from None
    return checked(model, value)


async def read_body(request: Request, most: int) -> bytes:
    """The whole body; RefusedError if it is larger than `most` bytes, or too much waits."""
    parts, size = [], 0
    while True:  # a length that was announced need not be true, so what comes is counted
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise RefusedError("malformed", "The body ended early.")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        request.scope["held"] += len(parts[-1])
        request.scope["load"].hold(len(parts[-1]), request.scope["known"])
        if size > most:
            raise RefusedError(
                "too-large", f"The body is larger than {most:,} bytes.", "Send less at a time."
            )
        if not message.get("more_body", False):
            request.scope["deadline"].extend()
            return b"".join(parts)


def query_of(request: Request, model: type[M]) -> M:
    """What stands behind the question mark."""
    return checked(model, dict(request.query_params))


def checked(model: type[M], value: Any) -> M:
    """A value as a model; RefusedError that says in words what is wrong."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise RefusedError("invalid-input", in_words(error, model, value)) from None


def check_size(count: int, most: int, what: str) -> None:
    """Refuse lists that are too long."""
    if count > most:
        raise RefusedError(
            "too-large", f"{count:,} {what} are more than the {most:,} allowed.", "Send fewer."
        )


def json_answer(data: Any, status: int = 200) -> Response:
    """JSON; null for numbers that are infinite or unknown."""
    return Response(to_json(data, inf_nan_mode="null"), status, media_type="application/json")


def target_of(asked: NewReward | NewCorrection) -> str:
    """Whose reward a request is about."""
    if asked.unit is not None:
        return asked.unit
    assert asked.assignment is not None
    return AssignmentId(asked.assignment)


def moment_in(text: str, what: str = "created") -> datetime:
    """A time that a request gives."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"{what} is {shortened(text)}; expected a time such as 2025-01-31T12:00:00Z."
        ) from None
