"""Handlers that create experiments, show, move and correct them, and the audit log of all that.

Pages use them, too. Whoever came with a token is the author of what is noted in the audit log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.errors import ExperimentExistsError
from steadyarm.experiment import Experiment
from steadyarm.facts import entry_facts, experiment_facts, record_facts
from steadyarm.lifecycle import create_from_description
from steadyarm.service.asked import AuditQuery, NewCorrection, NewExperiment
from steadyarm.service.plumbing import body_of, json_answer, moment_in, query_of, target_of
from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service
from steadyarm.storages.base import Storage
from steadyarm.storages.changes import Corrected

__all__ = [
    "audit",
    "correct",
    "corrections",
    "create",
    "listed",
    "make",
    "move",
    "mover",
    "shown",
]

OWN = {"name", "start", "load_if_exists"}  # not part of the description
GIVEN = {  # what each kind of correction needs
    "void": "assignment or unit",
    "correct": "reward, and assignment or unit",
    "exclude": "unit, or since and until",
    "include": "entry",
    "erase": "unit",
}


async def create(service: Service, request: Request) -> Response:
    """A new experiment, or the one that is there with the same settings."""
    asked = await body_of(request, NewExperiment, service.settings.max_body)
    experiment, new = await make(service, asked, _author(request))
    told = await service.read(experiment_facts, experiment)
    if not new:
        return json_answer(told)
    return json_answer(told | {"warnings": experiment.settings.cautions()}, 201)


async def make(service: Service, asked: NewExperiment, by: str) -> tuple[Experiment, bool]:
    """Create an experiment and hold it; False beside one that was there with the same settings."""
    description = asked.model_dump(exclude=OWN, exclude_unset=True)
    experiment, new = await service.read(_create, service.storage, asked, description, by)
    return service.hold(experiment).experiment, new


async def listed(service: Service, request: Request) -> Response:
    """All experiments in short."""
    records = await service.read(service.storage.experiments)
    return json_answer({"experiments": [record_facts(record) for record in records]})


async def shown(service: Service, request: Request) -> Response:
    """One experiment and where it stands."""
    experiment = await service.experiment(request)
    return json_answer(await service.read(experiment_facts, experiment))


async def move(service: Service, name: str, action: str, by: str) -> Experiment:
    """Start, pause, resume, stop or archive an experiment."""
    live = await service.find(name)
    await service.write(name, getattr(live.experiment, action), by)
    live.over = action == "archive"
    return live.experiment


def mover(action: str) -> Callable[[Service, Request], Awaitable[Response]]:
    """The handler of start, pause, resume, stop or archive."""

    async def handler(service: Service, request: Request) -> Response:
        experiment = await move(service, request.path_params["name"], action, _author(request))
        return json_answer(await service.read(experiment_facts, experiment))

    handler.__name__ = action
    return handler


async def correct(service: Service, request: Request) -> Response:
    """Void or correct a reward, exclude or include visits, erase a unit."""
    asked = await body_of(request, NewCorrection, service.settings.max_body)
    experiment = await service.experiment(request)
    # Not in turn with batches: a long period takes its time, and others go on meanwhile.
    done = await service.read(_correct, experiment, asked, _author(request))
    return json_answer({"entry": done.entry, "assignments": done.assignments}, 201)


def _correct(experiment: Experiment, asked: NewCorrection, by: str) -> Corrected:
    why: dict[str, Any] = {"reason": asked.reason, "by": by}
    given = set(asked.model_dump(exclude={"kind", "reason"}, exclude_none=True))
    match asked.kind, tuple(sorted(given)):
        case "void", ("assignment",) | ("unit",):
            return experiment.void(target_of(experiment, asked), **why)
        case "correct", ("assignment", "reward") | ("reward", "unit"):
            assert asked.reward is not None
            return experiment.correct(target_of(experiment, asked), asked.reward, **why)
        case "exclude", ("unit",):
            return experiment.exclude(unit=asked.unit, **why)
        case "exclude", ("since", "until"):
            since, until = (
                moment_in(text or "", name)
                for name, text in (("since", asked.since), ("until", asked.until))
            )
            return experiment.exclude(since=since, until=until, **why)
        case "include", ("entry",):
            assert asked.entry is not None
            return experiment.include(asked.entry, **why)
        case "erase", ("unit",):
            assert asked.unit is not None
            return experiment.erase(asked.unit, **why)
        case _:
            raise RefusedError(
                "invalid-input",
                f"To {asked.kind}, give {GIVEN[asked.kind]}, and nothing else but the reason; "
                f"given: {', '.join(sorted(given)) or 'nothing'}.",
            )


async def corrections(service: Service, request: Request) -> Response:
    """All corrections of an experiment."""
    experiment = await service.experiment(request)
    found = await service.read(experiment.corrections)
    return json_answer({"corrections": [entry_facts(entry) for entry in found]})


async def audit(service: Service, request: Request) -> Response:
    """Who did what, and when."""
    query = query_of(request, AuditQuery)
    found = await service.read(service.storage.audit, query.after, query.most, query.experiment)
    return json_answer({"entries": [entry_facts(entry) for entry in found]})


def _author(request: Request) -> str:
    """The name of the token that a request came with; empty where none is needed."""
    return request.scope.get("token") or ""


def _create(
    storage: Storage, asked: NewExperiment, description: dict[str, Any], by: str
) -> tuple[Experiment, bool]:
    def made(load: bool) -> Experiment:
        return create_from_description(
            asked.name, description, storage, load_if_exists=load, start=asked.start, by=by
        )

    try:
        return made(load=False), True
    except ExperimentExistsError:
        if not asked.load_if_exists:
            raise
    return made(load=True), False
