"""The one border where the service's answers become the errors that `Experiment` raises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steadyarm.answers import shortened
from steadyarm.errors import (
    InvalidInputError,
    ServiceError,
    SteadyArmError,
    StorageError,
)
from steadyarm.facts import PROBLEM, PROBLEMS

if TYPE_CHECKING:
    import httpx

__all__ = [
    "DOWN",
    "KINDS",
    "ServiceDownError",
    "TooLargeError",
    "body_of",
    "encoded",
    "error_in",
    "error_of",
]

KINDS: dict[str, type[SteadyArmError]] = PROBLEMS | {"malformed": InvalidInputError}
ADVICE = {401: "Give a token: Client(url, token=…).", 403: "Use a token of a wider scope."}


class ServiceDownError(ServiceError):
    """The service cannot be reached or fails on its side; the same may work later."""


class TooLargeError(ServiceError):
    """The service, or a proxy before it, takes no request of this size; less at a time may work."""


DOWN = (ServiceDownError, StorageError)  # what default arms and kept rewards are for


def error_in(problem: Mapping[str, Any], status: int | None = None) -> SteadyArmError:
    """The error that a problem describes, with the service's own words.

    Examples
    --------
    >>> error_in({"type": "urn:steadyarm:problem:budget-spent", "detail": "All 10 are out."})
    BudgetSpentError('All 10 are out.')
    """
    status = problem.get("status", status)
    detail = str(problem.get("detail") or problem.get("title") or "the service gave no reason.")
    hint = str(problem.get("hint") or ADVICE.get(status or 0, ""))
    message = f"{detail} {hint}".strip()
    kind = str(problem.get("type", "")).removeprefix(PROBLEM)
    if kind in KINDS:
        return KINDS[kind](message)
    if identity := problem.get("request_id"):
        message = f"{message} (request {identity})"
    return _kind_of(413 if kind == "too-large" else status)(message)


def error_of(response: httpx.Response) -> SteadyArmError:
    """The error that an answer of 3xx, 4xx or 5xx means."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if isinstance(problem, Mapping) and "type" in problem:
        return error_in(problem, response.status_code)
    # Somebody else answered: a proxy, a load balancer, another program on that port.
    return _kind_of(response.status_code)(
        f"{response.request.url} answered {response.status_code} {response.reason_phrase}, and not "
        "as a SteadyArm service does; is the address right, and the service behind it running?"
    )


def _kind_of(status: Any) -> type[ServiceError]:
    if status == 413:
        return TooLargeError
    later = isinstance(status, int) and (status == 429 or status >= 500)
    return ServiceDownError if later else ServiceError


def body_of(response: httpx.Response) -> Any:
    """What a good answer holds."""
    try:
        return response.json()
    except ValueError:
        raise ServiceError(
            f"{response.request.url} answered with {shortened(response.text)}, which is no JSON; "
            "is this the address of a SteadyArm service?"
        ) from None


def encoded(body: Any) -> bytes:
    """A request's body."""
    try:
        return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{shortened(body)} cannot be sent: {error}; expected numbers, texts and lists."
        ) from None
