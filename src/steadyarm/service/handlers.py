"""Handlers of traffic: assignments, rewards and leases."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from itertools import islice
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from steadyarm.errors import (
    ExperimentExistsError,
    InvalidInputError,
    MissingExtraError,
    SteadyArmError,
    UnknownAssignmentError,
)
from steadyarm.live.assignments import LATEST, At, LiveAssignment, shortened, to_datetime, to_micros
from steadyarm.live.experiment import Experiment
from steadyarm.live.lifecycle import create_from_description
from steadyarm.live.serializers import (
    allocation_facts,
    assignment_facts,
    entry_facts,
    experiment_facts,
    record_facts,
    replay_facts,
    verdict_facts,
)
from steadyarm.live.transfer import csv_lines, write_parquet
from steadyarm.service.metrics import CONTENT_TYPE_LATEST
from steadyarm.service.problems import (
    RefusedError,
    answer_to,
    body_of,
    check_size,
    checked,
    json_answer,
    moment_in,
    not_a_text,
    problem_of,
    query_of,
    target_of,
)
from steadyarm.service.service import Service
from steadyarm.storages.base import Storage
from steadyarm.storages.changes import Corrected
from steadyarm.wire import (
    AuditQuery,
    DriftQuery,
    ExportQuery,
    NewAssignment,
    NewAssignments,
    NewCorrection,
    NewExperiment,
    NewLease,
    NewReward,
    NewRewards,
    RecommendationQuery,
)
from steadyarm.wire import Used as UsedBody

__all__ = [
    "alive",
    "allocation",
    "assign",
    "assign_many",
    "audit",
    "correct",
    "corrections",
    "create",
    "drift",
    "export",
    "give_back",
    "health",
    "lease",
    "listed",
    "make",
    "metrics",
    "move",
    "mover",
    "ready",
    "recommendation",
    "replay",
    "report",
    "reward",
    "reward_many",
    "shown",
]

# Handlers of traffic: assignments, rewards and leases.


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
    target = target_of(told)
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
    answers: list[dict[str, Any]] = [{} for _ in told]
    good: list[tuple[str, float, At]] = []
    places: list[int] = []
    for i, entry in enumerate(told):
        try:
            one = checked(NewReward, entry)
            good.append((target_of(one), one.reward, _at(one, one.sent or body.sent)))
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
    at = to_micros(moment_in(told.at, "at"), LATEST)
    return (
        at
        if sent is None
        else to_datetime(to_micros(moment_in(sent, "sent"), LATEST)) - to_datetime(at)
    )


# Handlers that create experiments, show, move and correct them, and the audit log of all that.


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
            return experiment.void(target_of(asked), **why)
        case "correct", ("assignment", "reward") | ("reward", "unit"):
            assert asked.reward is not None
            return experiment.correct(target_of(asked), asked.reward, **why)
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


# Handlers that only read: results, exports, health of the service. They change no experiment.


LINES = 2000  # of a file that are sent at once
CHUNK = 1 << 18  # bytes, the same


async def alive(service: Service, request: Request) -> Response:
    """The process answers; touches nothing."""
    return json_answer({"status": "ok"})


async def ready(service: Service, request: Request) -> Response:
    """The numerical code is there, and the storage takes durable writes."""
    if not service.warming.done:
        raise RefusedError("starting", "Numerical code is being compiled or loaded.")
    if reason := await service.readiness.wrong():
        raise RefusedError(
            "storage-unavailable",
            f"Not ready: {reason}.",
            "The log says more; once that is repaired the service is ready without a restart.",
        )
    return json_answer({"status": "ok"})


async def metrics(service: Service, request: Request) -> Response:
    """What the service counts about itself."""
    return Response(
        await service.read(service.metrics.text), headers={"content-type": CONTENT_TYPE_LATEST}
    )


async def recommendation(service: Service, request: Request) -> Response:
    """The best variant so far."""
    query = query_of(request, RecommendationQuery)
    experiment = await service.experiment(request)
    verdict = await service.read(experiment.recommend, query.level, query.anytime)
    return json_answer(verdict_facts(verdict, experiment.arms.names))


async def health(service: Service, request: Request) -> Response:
    """Whether the log can be trusted."""
    experiment = await service.experiment(request)
    return json_answer(await service.read(lambda: experiment.health().to_dict()))


async def drift(service: Service, request: Request) -> Response:
    """Whether the world moved."""
    query = query_of(request, DriftQuery)
    experiment = await service.experiment(request)
    found = await service.read(experiment.drift, query.periods, query.level)
    return json_answer(found.to_dict())


async def allocation(service: Service, request: Request) -> Response:
    """The segment that is handed out now."""
    experiment = await service.experiment(request)
    snapshot = await service.read(experiment.storage.snapshot, experiment.key)
    if not snapshot.segments:
        raise RefusedError(
            "not-found", "Nothing was handed out yet.", "Ask for an assignment first."
        )
    record, _ = snapshot.segments[-1]
    return json_answer(allocation_facts(record, experiment.arms.names))


async def replay(service: Service, request: Request) -> Response:
    """The whole test computed anew from its log."""
    experiment = await service.experiment(request)
    return json_answer(replay_facts(await service.read(experiment.replay)))


async def export(service: Service, request: Request) -> Response:
    """All assignments with their rewards, as a file."""
    wanted = query_of(request, ExportQuery).format
    experiment = await service.experiment(request)
    if wanted == "csv":
        chunks, kind = _csv(experiment), "text/csv; charset=utf-8"
    else:
        chunks, kind = _parquet(experiment), "application/vnd.apache.parquet"
    try:
        first = await service.read(next, chunks, b"")  # what goes wrong here is told properly
    except MissingExtraError as error:
        raise RefusedError(
            "not-installed", f"{error} on the server.", "Ask for format=csv instead."
        ) from None
    name = f'attachment; filename="{experiment.name}.{wanted}"'
    return StreamingResponse(
        _sent(service, first, chunks),
        headers={"content-type": kind, "content-disposition": name},
    )


async def _sent(
    service: Service, first: bytes, chunks: Generator[bytes, None, None]
) -> AsyncIterator[bytes]:
    chunk = first
    try:
        while chunk:
            yield chunk
            chunk = await service.read(next, chunks, b"")
    finally:  # also if nobody reads on: temporary files go
        chunks.close()


def _csv(experiment: Experiment) -> Generator[bytes, None, None]:
    lines = csv_lines(experiment)
    while chunk := "".join(islice(lines, LINES)):
        yield chunk.encode()


def _parquet(experiment: Experiment) -> Generator[bytes, None, None]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export.parquet"
        write_parquet(experiment, path)
        with path.open("rb") as written:
            while chunk := written.read(CHUNK):
                yield chunk
