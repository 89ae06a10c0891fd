"""Handlers that create experiments, show them and change their states."""

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
from steadyarm.service.cautions import cautions_about
from steadyarm.service.plumbing import body_of, json_answer
from steadyarm.service.service import Service
from steadyarm.storages.base import Storage

__all__ = ["create", "listed", "mover", "shown"]

OWN = {"name", "start", "load_if_exists"}  # not part of the description


async def create(service: Service, request: Request) -> Response:
    """A new experiment, or the one that is there with the same settings."""
    asked = await body_of(request, NewExperiment, service.settings.max_body)
    description = asked.model_dump(exclude=OWN, exclude_unset=True)
    experiment, new = await service.read(_create, service.storage, asked, description)
    live = service.hold(experiment)
    told = await service.read(experiment_facts, live.experiment)
    if not new:
        return json_answer(told)
    return json_answer(told | {"warnings": cautions_about(live.experiment.settings)}, 201)


async def listed(service: Service, request: Request) -> Response:
    """All experiments in short."""
    records = await service.read(service.storage.experiments)
    return json_answer({"experiments": [record_facts(record) for record in records]})


async def shown(service: Service, request: Request) -> Response:
    """One experiment and where it stands."""
    experiment = await service.experiment(request)
    return json_answer(await service.read(experiment_facts, experiment))


def mover(action: str) -> Callable[[Service, Request], Awaitable[Response]]:
    """The handler of start, pause, resume, stop or archive."""

    async def move(service: Service, request: Request) -> Response:
        live = await service.find(request.path_params["name"])
        await service.write(getattr(live.experiment, action))
        live.over = action == "archive"
        return json_answer(await service.read(experiment_facts, live.experiment))

    move.__name__ = action
    return move


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
