"""The handlers of the routes; `routes` lists them.

A handler gets the service, the request and, if it has a third argument, the decoded body or query.
It returns a status and a struct, or a response that is not JSON. Errors become problems. The
OpenAPI document describes the route with its signature and docstring.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from steadyarm.errors import (
    ExperimentExistsError,
    InvalidInputError,
    MissingExtraError,
    SteadyArmError,
)
from steadyarm.live.assigner import AssignmentId, At, LiveAssignment, Report, ReportStatus
from steadyarm.live.experiment import Experiment
from steadyarm.live.export import csv_chunks, parquet_chunks, zip_chunks
from steadyarm.live.lifecycle import create_from_description
from steadyarm.service.auth import Claims
from steadyarm.service.problems import RefusedError, check_size, kind_of, problem_of
from steadyarm.service.service import Service
from steadyarm.storages.records import LATEST, CorrectionResult, to_datetime, to_micros
from steadyarm.storages.service import Refusal
from steadyarm.storages.storage import Storage
from steadyarm.wire import requests, responses
from steadyarm.wire.requests import convert, time_in
from steadyarm.wording import shortened

E = TypeVar("E", requests.NewReward, requests.NewEvent)

# Traffic: assignments and rewards


async def assign(
    service: Service, request: Request, body: requests.NewAssignment
) -> tuple[int, responses.AssignmentAnswer]:
    """Assign a variant to a unit; 200 if it had one already."""
    live = await service.find(request.path_params["name"])
    visit = live.experiment.validate_visit(
        body.unit, body.attributes, body.covariates, body.expected, body.preview
    )
    (answer,) = await live.ask([visit])
    if isinstance(answer, SteadyArmError):
        raise answer
    if answer.new:
        service.metrics.assignments.inc()
    return 201 if answer.new else 200, responses.AssignmentAnswer.of(answer)


async def assign_many(
    service: Service, request: Request, body: requests.NewAssignments
) -> tuple[int, responses.Assignments]:
    """Assign variants to many units, in their order; an error takes the place of one refused."""
    check_size(len(body.units), service.settings.max_batch, "units")
    live = await service.find(request.path_params["name"])
    visits = live.experiment.visits(body.units, body.attributes, body.covariates, body.expected)
    answers = await live.ask(visits)
    new = sum(isinstance(answer, LiveAssignment) and answer.new for answer in answers)
    service.metrics.assignments.inc(new)
    return 200, responses.Assignments(
        [
            responses.RefusedAssignment(unit, problem_of(answer, request.scope))
            if isinstance(answer, SteadyArmError)
            else responses.AssignmentAnswer.of(answer)
            for unit, answer in zip(body.units, answers, strict=True)
        ]
    )


async def reward(
    service: Service, request: Request, body: requests.NewReward
) -> tuple[int, responses.RewardStatus]:
    """Report the reward of an assignment; 200 if the same one was there already."""
    live = await service.find(request.path_params["name"])
    (outcome,) = await live.tell([_report(body, happened_at(body.at, body.sent))])
    _count(service, [outcome])
    if isinstance(outcome, SteadyArmError):
        await service.catalog.note_refusals(_refusals(live.experiment, [body], [outcome]))
        raise outcome
    return 201 if outcome == "stored" else 200, responses.RewardStatus(outcome)


async def reward_many(
    service: Service, request: Request, body: requests.NewRewards
) -> tuple[int, responses.RewardStatuses]:
    """Report many rewards, in their order; an error takes the place of one refused."""
    check_size(len(body.rewards), service.settings.max_batch, "rewards")
    live = await service.find(request.path_params["name"])
    entries = check_entries(requests.NewReward, body.rewards, body.sent)
    reports = [_report(*entry) for entry in entries if isinstance(entry, tuple)]
    answers = await live.tell(reports)
    bodies = [entry[0] for entry in entries if isinstance(entry, tuple)]
    await service.catalog.note_refusals(_refusals(live.experiment, bodies, answers))
    told = iter(answers)
    outcomes = [next(told) if isinstance(entry, tuple) else entry for entry in entries]
    _count(service, outcomes)
    return 200, responses.RewardStatuses(
        [
            responses.RefusedReward(problem_of(outcome, request.scope))
            if isinstance(outcome, SteadyArmError)
            else responses.RewardStatus(outcome)
            for outcome in outcomes
        ]
    )


def claims_of_one(
    body: requests.NewAssignment | requests.NewReward | requests.NewEvent,
) -> Claims:
    """Whom an assignment, a reward or an event is for."""
    return Claims([body.unit])


def claims_of_rewards(body: requests.NewRewards) -> Claims:
    """Whom many rewards are for."""
    return claims_of_many(body.rewards)


def claims_of_many(items: list[Any]) -> Claims:
    """Whom the items of a body are for, which are not decoded yet."""
    return Claims([one.get("unit") if isinstance(one, dict) else None for one in items])


def check_entries(
    model: type[E], entries: Sequence[Any], sent: str | None
) -> list[tuple[E, At] | InvalidInputError]:
    """The rewards or events of a batch, each with its time, or what is wrong with it."""
    results: list[tuple[E, At] | InvalidInputError] = []
    for entry in entries:
        try:
            item = convert(model, entry)
            results.append((item, happened_at(item.at, item.sent or sent)))
        except InvalidInputError as error:
            results.append(error)
    return results


def _report(body: requests.NewReward, at: At) -> Report:
    return Report(_target(body), body.values, at, body.event)


def _count(service: Service, outcomes: Sequence[ReportStatus | SteadyArmError]) -> None:
    service.metrics.rewards.inc(outcomes.count("stored"))
    for outcome in outcomes:
        if isinstance(outcome, SteadyArmError):
            service.metrics.refused.labels(kind_of(outcome)).inc()


def _refusals(
    experiment: Experiment,
    bodies: Sequence[requests.NewReward],
    outcomes: Sequence[ReportStatus | SteadyArmError],
) -> Iterator[Refusal]:
    """The rewards that an experiment refused."""
    for body, outcome in zip(bodies, outcomes, strict=True):
        if isinstance(outcome, SteadyArmError):
            names = [experiment.settings.primary.name]
            if isinstance(body.values, Mapping):
                names = list(body.values)
            event, reason = ", ".join(names), kind_of(outcome)
            yield Refusal(event, reason, body.unit or "", str(outcome), experiment.key)


def happened_at(at: str | None, sent: str | None) -> At:
    """When something happened; how long ago, if its sender says when the request was sent."""
    if at is None:
        return None
    happened = to_micros(time_in(at, "at"), LATEST)
    if sent is None:
        return happened
    return to_datetime(to_micros(time_in(sent, "sent"), LATEST)) - to_datetime(happened)


def _target(body: requests.NewReward | requests.NewCorrection) -> str:
    """Whose reward a request is about."""
    if body.assignment is not None:
        return AssignmentId(body.assignment)
    assert body.unit is not None
    return body.unit


# Experiments: creating, showing, moving and correcting them, and the audit log of all that


OWN = ("name", "start", "load_if_exists")  # not part of the description
NEEDED = {  # by each kind of correction
    "void": "assignment or unit",
    "exclude": "unit, or since and until",
    "erase": "unit",
}


async def create(
    service: Service, request: Request, body: requests.NewExperiment
) -> tuple[int, responses.CreatedExperiment | responses.ExperimentAnswer]:
    """Create an experiment; 200 if it exists and load_if_exists is true."""
    experiment, new = await create_experiment(service, body, author(request))
    if not new:
        return 200, await service.read(responses.ExperimentAnswer.of, experiment)
    warnings = experiment.settings.cautions()
    return 201, await service.read(
        lambda: responses.CreatedExperiment.of(experiment, warnings=warnings)
    )


async def create_experiment(
    service: Service, body: requests.NewExperiment, by: str
) -> tuple[Experiment, bool]:
    """Create an experiment; False beside one that existed with the same settings."""
    experiment, new = await service.read(_create, service.storage, body, by)
    return service.hold(experiment).experiment, new


def _create(storage: Storage, body: requests.NewExperiment, by: str) -> tuple[Experiment, bool]:
    description = msgspec.to_builtins(body)  # without what is left out
    for key in OWN:
        description.pop(key, None)

    def made(load: bool) -> Experiment:
        return create_from_description(
            body.name, description, storage, load_if_exists=load, start=body.start, by=by
        )

    try:
        return made(load=False), True
    except ExperimentExistsError:
        if not body.load_if_exists:
            raise
    return made(load=True), False


async def list_experiments(
    service: Service, request: Request, query: requests.ExperimentsQuery
) -> tuple[int, responses.ExperimentList]:
    """List experiments in short, page by page."""
    summaries = await service.run_short(service.storage.summaries)
    return 200, responses.ExperimentList.of(summaries, query.cursor, query.limit)


async def show_experiment(
    service: Service, request: Request
) -> tuple[int, responses.ExperimentAnswer]:
    """Show an experiment and its progress."""
    experiment = await service.experiment(request)
    return 200, await service.read(responses.ExperimentAnswer.of, experiment)


async def move(
    service: Service, name: str, action: str, by: str, reason: str | None = None
) -> Experiment:
    """Start, pause, resume, stop, reopen, archive or delete; only reopening has a reason."""
    live = await service.find(name)
    why = {} if reason is None else {"reason": reason}
    await service.write(partial(getattr(live.experiment, action), by=by, **why))
    live.over = action == "archive"
    if action == "delete":
        service.drop(live)
    return live.experiment


def make_mover(action: str, summary: str) -> Callable[..., Any]:
    """The handler of start, pause, resume, stop or archive."""

    async def handler(service: Service, request: Request) -> tuple[int, responses.ExperimentAnswer]:
        experiment = await move(service, request.path_params["name"], action, author(request))
        return 200, await service.read(responses.ExperimentAnswer.of, experiment)

    handler.__name__, handler.__doc__ = action, summary
    return handler


async def reopen(
    service: Service, request: Request, body: requests.NewReopening
) -> tuple[int, responses.ExperimentAnswer]:
    """From stopped to running again, if it was stopped by mistake."""
    name = request.path_params["name"]
    experiment = await move(service, name, "reopen", author(request), body.reason)
    return 200, await service.read(responses.ExperimentAnswer.of, experiment)


async def roll_out(
    service: Service, request: Request, body: requests.NewRollOut
) -> tuple[int, responses.ExperimentAnswer]:
    """Show a variant to new and old units, outside of the test."""
    experiment = await roll_out_variant(service, request.path_params["name"], body, author(request))
    return 200, await service.read(responses.ExperimentAnswer.of, experiment)


async def roll_out_variant(
    service: Service, name: str, body: requests.NewRollOut, by: str
) -> Experiment:
    """Roll out a variant of an experiment."""
    experiment = (await service.find(name)).experiment
    # Not in turn with batches: it may have to compute the recommendation.
    await service.read(lambda: experiment.roll_out(by=by, **msgspec.structs.asdict(body)))
    return experiment


async def correct(
    service: Service, request: Request, body: requests.NewCorrection
) -> tuple[int, CorrectionResult]:
    """Void a reward, exclude visits, or erase a unit."""
    experiment = await service.experiment(request)
    # Not in turn with batches: a long period takes its time, and others go on meanwhile.
    return 201, await service.read(_correct, experiment, body, author(request))


def _correct(experiment: Experiment, body: requests.NewCorrection, by: str) -> CorrectionResult:
    why: dict[str, Any] = {"reason": body.reason, "by": by}
    given = {
        name
        for name, value in msgspec.structs.asdict(body).items()
        if value is not None and name not in ("kind", "reason")
    }
    match body.kind, tuple(sorted(given)):
        case "void", ("assignment",) | ("unit",):
            return experiment.void(_target(body), **why)
        case "exclude", ("unit",):
            return experiment.exclude(unit=body.unit, **why)
        case "exclude", ("since", "until"):
            since, until = time_in(body.since or "", "since"), time_in(body.until or "", "until")
            return experiment.exclude(since=since, until=until, **why)
        case "erase", ("unit",):
            assert body.unit is not None
            return experiment.erase(body.unit, **why)
        case _:
            raise InvalidInputError(
                f"To {body.kind}, give {NEEDED[body.kind]}, and nothing else but the reason; "
                f"given: {', '.join(sorted(given)) or 'nothing'}."
            )


async def corrections(service: Service, request: Request) -> tuple[int, responses.Corrections]:
    """List all corrections of an experiment."""
    experiment = await service.experiment(request)
    found = await service.read(experiment.corrections)
    return 200, responses.Corrections([responses.AuditEntryAnswer.of(entry) for entry in found])


async def audit(
    service: Service, request: Request, query: requests.AuditQuery
) -> tuple[int, responses.AuditLog]:
    """Read the audit log: who did what, and when; page by page."""
    found = await service.read(service.storage.audit, query.after, query.most, query.experiment)
    return 200, responses.AuditLog([responses.AuditEntryAnswer.of(entry) for entry in found])


def author(request: Request) -> str:
    """The name of the token that a request came with; empty where none is needed."""
    return request.scope.get("token") or ""


# The service itself


async def alive(service: Service, request: Request) -> tuple[int, responses.Up]:
    """The process is alive."""
    return 200, responses.Up("ok")


async def ready(service: Service, request: Request) -> tuple[int, responses.Up]:
    """The service has started, and the storage accepts durable writes; 503 says why not."""
    if not service.warm:
        raise RefusedError("starting", "Numerical code is being loaded.")
    if reason := await service.readiness.find_obstacle():
        raise RefusedError(
            "storage-unavailable",
            f"Not ready: {reason}.",
            "See the log of the service. It becomes ready again without a restart.",
        )
    return 200, responses.Up("ok")


async def metrics(service: Service, request: Request) -> Response:
    """Counters of the service itself, for Prometheus."""
    await service.readiness.find_obstacle()  # which is one of the metrics
    text = await service.run_short(service.metrics.text)
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})


# Results; they change no experiment


LONGEST = 3600.0  # seconds in which a client has to receive an export


async def recommendation(
    service: Service, request: Request, query: requests.RecommendationQuery
) -> tuple[int, responses.Recommendation]:
    """The best variant so far, with intervals."""
    experiment = await service.experiment(request)
    verdict = await service.read(experiment.recommend, query.level, query.anytime)
    return 200, responses.Recommendation.of(verdict)


async def breakdown(
    service: Service, request: Request, query: requests.RecommendationQuery
) -> tuple[int, responses.BreakdownAnswer]:
    """Results of all variants in each level of an attribute of units; exploratory."""
    experiment, attribute = await service.experiment(request), request.path_params["attribute"]
    if attribute not in experiment.settings.attributes:
        known = ", ".join(experiment.settings.attributes) or "none"
        raise RefusedError(
            "not-found", f"{shortened(attribute)} is no attribute; those declared: {known}."
        )
    found = await service.read(
        lambda: experiment.recommend(query.level, query.anytime, by=attribute)
    )
    return 200, responses.BreakdownAnswer.of(found)


async def health(service: Service, request: Request) -> tuple[int, responses.Health]:
    """Whether the log can be trusted."""
    experiment = await service.experiment(request)
    return 200, responses.Health.read(await service.read(experiment.health))


async def drift(
    service: Service, request: Request, query: requests.DriftQuery
) -> tuple[int, responses.Drift]:
    """Whether the means moved, and whether it mattered."""
    experiment = await service.experiment(request)
    return 200, responses.Drift.of(await service.read(experiment.drift, query.periods, query.level))


async def allocation(service: Service, request: Request) -> tuple[int, responses.Allocation]:
    """The shares with which variants are assigned now."""
    experiment = await service.experiment(request)
    snapshot = await service.read(experiment.storage.snapshot, experiment.key)
    if not snapshot.segments:
        raise RefusedError("not-found", "Nothing was assigned yet.", "Request an assignment first.")
    record, _sums = snapshot.segments[-1]
    return 200, responses.Allocation.of(record, experiment.arms.names)


async def replay(service: Service, request: Request) -> tuple[int, responses.ReplayAnswer]:
    """The whole test computed anew from its log, and compared."""
    experiment = await service.experiment(request)
    return 200, responses.ReplayAnswer.read(await service.run_log(experiment.replay))


async def export(service: Service, request: Request, query: requests.ExportQuery) -> Response:
    """All assignments with their rewards, as a file."""
    experiment = await service.experiment(request)
    write, media = EXPORTS[query.format]
    chunks = service.stream(write(experiment))
    try:
        first = await anext(chunks)  # what is wrong from the start is a problem
    except MissingExtraError as error:
        raise RefusedError(
            "not-installed", f"{error} on the server.", "Request format=csv instead."
        ) from None

    name = f'attachment; filename="{experiment.name}.{query.format}"'
    return LogResponse(first, chunks, {"content-type": media, "content-disposition": name})


class LogResponse(StreamingResponse):
    """Sends a file while it is made; the next part is made when the client has taken the last."""

    def __init__(
        self, first: bytes, rest: AsyncGenerator[bytes], headers: Mapping[str, str]
    ) -> None:
        super().__init__(self._content(first), headers=headers)
        self._rest = rest

    async def _content(self, first: bytes) -> AsyncIterator[bytes]:
        yield first
        async for chunk in self._rest:
            yield chunk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See Starlette; others may read a log when this one has ended, however it does."""
        try:
            async with asyncio.timeout(LONGEST):
                await super().__call__(scope, receive, send)
        finally:
            await self._rest.aclose()


EXPORTS: dict[str, tuple[Callable[[Experiment], Iterator[bytes]], str]] = {
    "csv": (csv_chunks, "text/csv; charset=utf-8"),
    "parquet": (parquet_chunks, "application/vnd.apache.parquet"),
    "zip": (zip_chunks, "application/zip"),
}
