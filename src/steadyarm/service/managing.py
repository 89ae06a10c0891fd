"""Handlers that create experiments, show them and change their states; for pages, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from steadyarm.errors import ExperimentExistsError
from steadyarm.experiment import Experiment
from steadyarm.facts import experiment_facts, record_facts
from steadyarm.lifecycle import create_from_description
from steadyarm.service.asked import NewExperiment
from steadyarm.service.plumbing import body_of, json_answer
from steadyarm.service.service import Service
from steadyarm.storages.base import Storage

__all__ = ["create", "listed", "make", "move", "mover", "shown"]

OWN = {"name", "start", "load_if_exists"}  # not part of the description


async def create(service: Service, request: Request) -> Response:
    """A new experiment, or the one that is there with the same settings."""
    asked = await body_of(request, NewExperiment, service.settings.max_body)
    experiment, new = await make(service, asked)
    told = await service.read(experiment_facts, experiment)
    if not new:
        return json_answer(told)
    return json_answer(told | {"warnings": experiment.settings.cautions()}, 201)


async def make(service: Service, asked: NewExperiment) -> tuple[Experiment, bool]:
    """Create an experiment and hold it; False beside one that was there with the same settings."""
    description = asked.model_dump(exclude=OWN, exclude_unset=True)
    experiment, new = await service.read(_create, service.storage, asked, description)
    return service.hold(experiment).experiment, new


async def listed(service: Service, request: Request) -> Response:
    """All experiments in short."""
    records = await service.read(service.storage.experiments)
    return json_answer({"experiments": [record_facts(record) for record in records]})


async def shown(service: Service, request: Request) -> Response:
    """One experiment and where it stands."""
    experiment = await service.experiment(request)
    return json_answer(await service.read(experiment_facts, experiment))


async def move(service: Service, name: str, action: str) -> Experiment:
    """Start, pause, resume, stop or archive an experiment."""
    live = await service.find(name)
    await service.write(name, getattr(live.experiment, action))
    live.over = action == "archive"
    return live.experiment


def mover(action: str) -> Callable[[Service, Request], Awaitable[Response]]:
    """The handler of start, pause, resume, stop or archive."""

    async def handler(service: Service, request: Request) -> Response:
        experiment = await move(service, request.path_params["name"], action)
        return json_answer(await service.read(experiment_facts, experiment))

    handler.__name__ = action
    return handler


def _create(
    storage: Storage, asked: NewExperiment, description: dict[str, Any]
) -> tuple[Experiment, bool]:
    def made(load: bool) -> Experiment:
        return create_from_description(
            asked.name, description, storage, load_if_exists=load, start=asked.start
        )

    try:
        return made(load=False), True
    except ExperimentExistsError:
        if not asked.load_if_exists:
            raise
    return made(load=True), False
