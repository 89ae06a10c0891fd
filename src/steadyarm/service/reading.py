"""Handlers that only read: results, exports, health of the service. They change no experiment."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Generator
from itertools import islice
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from steadyarm.errors import MissingExtraError
from steadyarm.experiment import Experiment
from steadyarm.facts import allocation_facts, replay_facts, verdict_facts
from steadyarm.service.asked import DriftQuery, ExportQuery, RecommendationQuery
from steadyarm.service.metrics import CONTENT_TYPE_LATEST
from steadyarm.service.plumbing import json_answer, query_of
from steadyarm.service.problems import RefusedError
from steadyarm.service.service import Service
from steadyarm.transfer import csv_lines, write_parquet

__all__ = [
    "alive",
    "allocation",
    "drift",
    "export",
    "health",
    "metrics",
    "ready",
    "recommendation",
    "replay",
]

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
