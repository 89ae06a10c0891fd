"""Reading bodies and queries, writing JSON: the few steps that all handlers share."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response

from steadyarm.answers import shortened, ticket_in
from steadyarm.errors import InvalidInputError, UnknownAssignmentError
from steadyarm.experiment import Experiment
from steadyarm.service.asked import NewCorrection, NewReward
from steadyarm.service.problems import RefusedError
from steadyarm.service.wording import in_words

__all__ = [
    "body_of",
    "check_size",
    "checked",
    "json_answer",
    "moment_in",
    "query_of",
    "read_body",
    "target_of",
]

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


def target_of(experiment: Experiment, asked: NewReward | NewCorrection) -> str:
    """Whose reward a request is about."""
    if asked.unit is not None:
        return asked.unit
    assert asked.assignment is not None
    if ticket_in(asked.assignment, experiment.tag) is None:  # or it would be taken for a unit
        raise UnknownAssignmentError(
            f"{shortened(asked.assignment)} is no id of an assignment of {experiment.name!r}."
        )
    return asked.assignment


def moment_in(text: str, what: str = "created") -> datetime:
    """A time that a request gives."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"{what} is {shortened(text)}; expected a time such as 2025-01-31T12:00:00Z."
        ) from None
