"""The one border where the service's answers become the errors that `Experiment` raises."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.recipes import recipe_from_dict
from steadyarm.errors import (
    InvalidInputError,
    ServiceError,
    SteadyArmError,
    StorageError,
)
from steadyarm.inference import DriftReport, HealthReport
from steadyarm.inference.health import Finding
from steadyarm.live.assignments import LATEST, LiveAssignment, Status, shortened, to_micros
from steadyarm.live.serializers import PROBLEM, PROBLEMS
from steadyarm.live.verdict import Verdict
from steadyarm.storages.changes import AuditEntry, Corrected
from steadyarm.storages.records import ExperimentState

if TYPE_CHECKING:
    import httpx

__all__ = [
    "DOWN",
    "KINDS",
    "ListedExperiment",
    "Outcome",
    "ServiceDownError",
    "TooLargeError",
    "body_of",
    "corrected_in",
    "drift_in",
    "encoded",
    "entries_in",
    "error_in",
    "error_of",
    "health_in",
    "listed_in",
    "names_in",
    "outcome_in",
    "read_assignment",
    "results_in",
    "status_in",
    "understood",
    "verdict_in",
]

# The one border where the service's answers become the errors that `Experiment` raises.


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


# The service's answers as the objects that `Experiment` gives.


Outcome = Literal["stored", "repeated", "kept", "ignored"]
T = TypeVar("T")


@dataclass(frozen=True)
class ListedExperiment:
    """One line in the list of a service's experiments.

    Attributes
    ----------
    arms : how many variants it has
    """

    name: str
    state: ExperimentState
    created: datetime
    budget: int
    policy: str
    arms: int


def understood(read: Callable[..., T], answer: Any, *more: Any) -> T:
    """What is read in an answer; ServiceError if it is none of a SteadyArm service."""
    try:
        return read(answer, *more)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ServiceError(
            f"the service's answer cannot be read ({error!r}); is it of another version than "
            "this client?"
        ) from None


def read_assignment(
    data: Mapping[str, Any], names: Sequence[str], new: bool | None = None
) -> LiveAssignment:
    """One assignment; `names` gives the variant its number, or -1 where they are not known."""
    name = data["arm"]
    return LiveAssignment(
        id=data["id"],
        unit=data["unit"],
        arm=names.index(name) if name in names else -1,
        name=name,
        probability=data["probability"],
        created=datetime.fromisoformat(data["created"]),
        new=data["new"] if new is None else new,
    )


def results_in(answer: Any, key: str, count: int) -> list[Mapping[str, Any] | SteadyArmError]:
    """One result or error for each of the things that were sent."""
    found = answer[key]
    if len(found) != count:
        raise ServiceError(
            f"the service answered with {len(found)} {key}, {count} were asked for; is it of "
            "another version than this client?"
        )
    results = [error_in(one["error"]) if "error" in one else one for one in found]
    for result in results:
        if isinstance(result, DOWN):  # no word on the others, then: ask again later
            raise result
    return results


def outcome_in(answer: Mapping[str, Any]) -> Outcome:
    """What became of one reward."""
    return "stored" if answer["status"] == "stored" else "repeated"


def listed_in(answer: Mapping[str, Any]) -> list[ListedExperiment]:
    """The list of experiments."""
    return [
        ListedExperiment(
            name=one["name"],
            state=one["state"],
            created=datetime.fromisoformat(one["created"]),
            budget=one["budget"],
            policy=one["policy"],
            arms=one["arms"],
        )
        for one in answer["experiments"]
    ]


def status_in(answer: Mapping[str, Any]) -> Status:
    """Where an experiment stands."""
    indices, assigned, rewarded = answer.get("indices"), answer["assigned"], answer["rewarded"]
    names = list(answer["settings"]["arms"]["names"] if indices is None else indices)
    counts = tuple(assigned[name] for name in names), tuple(rewarded[name] for name in names)
    others = (0, 0)
    if indices is not None:
        totals = answer["totals"]
        others = totals["assigned"] - sum(counts[0]), totals["rewarded"] - sum(counts[1])
    return Status(
        name=answer["name"],
        state=answer["state"],
        created=datetime.fromisoformat(answer["created"]),
        budget=answer["settings"]["budget"],
        assigned=counts[0],
        rewarded=counts[1],
        segments=answer["segments"],
        observed=answer["observed"],
        leased=answer["leased"],
        arms=None if indices is None else tuple(indices.values()),
        others=others,
        excluded=answer.get("totals", {}).get("excluded", 0),
    )


def corrected_in(answer: Mapping[str, Any]) -> Corrected:
    """What a correction did."""
    return Corrected(int(answer["entry"]), int(answer["assignments"]))


def entries_in(answer: Mapping[str, Any], key: str) -> list[AuditEntry]:
    """Entries of the audit log."""
    return [
        AuditEntry(
            int(entry["id"]),
            _instant(entry["created"]),
            entry["author"],
            entry["action"],
            entry["experiment"],
            {
                name: _instant(value) if name in ("since", "until") else value
                for name, value in entry["detail"].items()
            },
        )
        for entry in answer[key]
    ]


def _instant(text: str) -> int:
    return to_micros(datetime.fromisoformat(text), LATEST)


def names_in(settings: Mapping[str, Any]) -> Sequence[str]:
    """The names of all variants; none of very many that only the service has."""
    recipe = recipe_from_dict(settings["arms"])
    if recipe is not None:
        return recipe.names
    return tuple(settings["arms"].get("names", ()))


def verdict_in(answer: Mapping[str, Any]) -> Verdict:
    """The recommendation; JSON has no infinite numbers, null stands for them."""
    arms = answer["arms"]
    places = {one["name"]: one["index"] for one in arms}
    few = len(arms) < answer["variants"]

    def column(key: str, unknown: float = np.nan) -> NDArray[np.float64]:
        return np.array([unknown if one[key] is None else one[key] for one in arms])

    def between(low: str, high: str) -> NDArray[np.float64]:
        return np.column_stack([column(low, -np.inf), column(high, np.inf)])

    return Verdict(
        arm=places[answer["arm"]],
        name=answer["arm"],
        estimates=column("estimate"),
        standard_errors=column("standard_error", np.inf),
        intervals=between("low", "high"),
        gaps=column("gap"),
        gap_intervals=between("gap_low", "gap_high"),
        plausible=tuple(answer["plausible"]),
        level=answer["level"],
        anytime=answer["anytime"],
        method=answer["method"],
        assumption=answer["assumption"],
        rewards=answer["rewards"],
        missing=answer["missing"],
        judged=answer["judged"],
        waiting=answer["waiting"],
        pending=answer["pending"],
        until=None if answer["until"] is None else datetime.fromisoformat(answer["until"]),
        unhealthy=answer["unhealthy"],
        caution=answer["caution"],
        shown=np.array(list(places.values()), dtype=np.int64) if few else None,
        others=answer["others"],
        size=answer["variants"] if few else 0,
        names=tuple(places),
    )


def health_in(answer: Mapping[str, Any]) -> HealthReport:
    """The findings."""
    keys = [field.name for field in fields(Finding)]
    return HealthReport(
        tuple(Finding(**{key: one[key] for key in keys}) for one in answer["findings"])
    )


def drift_in(answer: Mapping[str, Any]) -> DriftReport:
    """Estimates by period; nan where the service had no finite number."""
    values: dict[str, Any] = {field.name: answer[field.name] for field in fields(DriftReport)}
    for key in ("names", "periods", "leaders", "looks"):
        values[key] = None if values[key] is None else tuple(values[key])
    tables = ("estimates", "errors", "intervals", "gaps", "gap_errors", "arm_p_values", "averages")
    for key in tables:
        values[key] = np.array(values[key], dtype=np.float64)
    for key in ("gap_p_value", "level_p_value"):
        values[key] = np.nan if values[key] is None else values[key]
    return DriftReport(**values | {"rounds": np.array(values["rounds"], dtype=np.int64)})
