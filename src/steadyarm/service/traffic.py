"""Handlers of traffic: assignments, rewards and leases."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.answers import LATEST, At, LiveAssignment, instant, moment, shortened
from steadyarm.errors import InvalidInputError, SteadyArmError, UnknownAssignmentError
from steadyarm.facts import assignment_facts
from steadyarm.service.asked import NewAssignment, NewAssignments, NewLease, NewReward, NewRewards
from steadyarm.service.asked import Used as UsedBody
from steadyarm.service.plumbing import (
    body_of,
    check_size,
    checked,
    json_answer,
    moment_in,
    target_of,
)
from steadyarm.service.problems import RefusedError, answer_to, problem_of
from steadyarm.service.service import Service
from steadyarm.service.wording import not_a_text

__all__ = ["assign", "assign_many", "give_back", "lease", "report", "reward", "reward_many"]

LARGEST = 2**63  # ids of leases are below


async def assign(service: Service, request: Request) -> Response:
    """One variant for one unit, written together with those of other requests."""
    asked = await body_of(request, NewAssignment, service.settings.max_body)
    name = request.path_params["name"]
    live = service.live.get(name) or await service.find(name)
    found = await live.ask(asked.unit)
    if isinstance(found, Exception):
        return answer_to(found, request.scope)
    if found.new:
        service.metrics.assignments.inc()
    return json_answer(assignment_facts(found) | {"new": found.new}, 201 if found.new else 200)


async def assign_many(service: Service, request: Request) -> Response:
    """Variants for many units, in one transaction."""
    units = (await body_of(request, NewAssignments, service.settings.max_body)).units
    check_size(len(units), service.settings.max_batch, "units")
    live = await service.find(request.path_params["name"])
    places = [i for i, unit in enumerate(units) if unit is None or isinstance(unit, str)]
    found = await live.ask_all([units[i] for i in places]) if places else []
    known = dict(zip(places, found, strict=True))
    answers = [
        known[i] if i in known else InvalidInputError(not_a_text("the unit", unit))
        for i, unit in enumerate(units)
    ]
    return _batch(service, request, units, answers)


async def reward(service: Service, request: Request) -> Response:
    """One reward, written together with those of other requests."""
    told = await body_of(request, NewReward, service.settings.max_body)
    name = request.path_params["name"]
    live = service.live.get(name) or await service.find(name)
    target = target_of(live.experiment, told)
    outcome = await live.tell((target, told.reward, _at(told, told.sent)))
    if isinstance(outcome, Exception):
        return answer_to(outcome, request.scope)
    if outcome == "stored":
        service.metrics.rewards.inc()
    return json_answer({"status": outcome}, 201 if outcome == "stored" else 200)


async def reward_many(service: Service, request: Request) -> Response:
    """Many rewards, in one transaction."""
    body = await body_of(request, NewRewards, service.settings.max_body)
    told = body.rewards
    check_size(len(told), service.settings.max_batch, "rewards")
    live = await service.find(request.path_params["name"])
    experiment = live.experiment
    answers: list[dict[str, Any]] = [{} for _ in told]
    good: list[tuple[str, float, At]] = []
    places: list[int] = []
    for i, entry in enumerate(told):
        try:
            one = checked(NewReward, entry)
            good.append((target_of(experiment, one), one.reward, _at(one, one.sent or body.sent)))
            places.append(i)
        except (RefusedError, InvalidInputError, UnknownAssignmentError) as error:
            answers[i] = {"error": problem_of(error, request.scope["request_id"])}
    outcomes = await live.tell_all(good) if good else []
    for i, outcome in zip(places, outcomes, strict=True):
        answers[i] = (
            {"error": problem_of(outcome, request.scope["request_id"])}
            if isinstance(outcome, SteadyArmError)
            else {"status": outcome}
        )
    service.metrics.rewards.inc(outcomes.count("stored"))
    return json_answer({"rewards": answers})


async def lease(service: Service, request: Request) -> Response:
    """Positions that a client hands out by itself."""
    asked = await body_of(request, NewLease, service.settings.max_body)
    check_size(asked.positions, service.settings.max_lease, "positions")
    experiment = await service.experiment(request)
    steps = experiment.leasing(asked.positions, asked.seconds)
    with service.waiting(experiment.name):
        leases = await service.take(steps, experiment.name)
    return json_answer({"leases": [given.to_dict() for given in leases]}, 201)


async def report(service: Service, request: Request) -> Response:
    """Store what was handed out from a lease."""
    used = (await body_of(request, UsedBody, service.settings.max_body)).used
    check_size(len(used), service.settings.max_batch, "positions")
    number = _lease(request)
    experiment = await service.experiment(request)
    rows = [(entry.position, entry.unit, moment_in(entry.created)) for entry in used]
    with service.waiting(experiment.name, len(rows)):
        answers = await service.write(experiment.name, experiment.report, number, rows)
    return _batch(service, request, [entry.unit for entry in used], answers)


async def give_back(service: Service, request: Request) -> Response:
    """Give back what is left of a lease."""
    number = _lease(request)
    experiment = await service.experiment(request)
    with service.waiting(experiment.name):
        released = await service.write(
            experiment.name, experiment.storage.release, experiment.key, [number]
        )
    return json_answer({"released": released})


def _batch(
    service: Service,
    request: Request,
    units: list[Any],
    answers: list[LiveAssignment | SteadyArmError],
) -> Response:
    told = [
        {"unit": unit, "error": problem_of(answer, request.scope["request_id"])}
        if isinstance(answer, SteadyArmError)
        else assignment_facts(answer) | {"new": answer.new}
        for unit, answer in zip(units, answers, strict=True)
    ]
    service.metrics.assignments.inc(sum(answer.get("new", False) for answer in told))
    return json_answer({"assignments": told})


def _lease(request: Request) -> int:
    text = request.path_params["lease"]
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < LARGEST):
        raise RefusedError("not-found", f"{shortened(text)} is no lease; expected its number.")
    return int(text)


def _at(told: NewReward, sent: str | None) -> At:
    """When a reward happened; how long ago, if its sender says when it was sent."""
    if told.at is None:
        return None
    at = instant(moment_in(told.at, "at"), LATEST)
    return at if sent is None else moment(instant(moment_in(sent, "sent"), LATEST)) - moment(at)
