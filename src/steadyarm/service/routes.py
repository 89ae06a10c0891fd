"""The list of routes: what each needs, takes and answers.

The application, its guard, the OpenAPI document and the reference are all made from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from steadyarm import wire as conclude
from steadyarm import wire as give
from steadyarm import wire as take
from steadyarm.service import handlers
from steadyarm.service.service import Service
from steadyarm.storages.changes import Scope

__all__ = ["ROUTES", "Route"]

Handler = Callable[[Service, Request], Awaitable[Response]]
EXPERIMENT = "/v1/experiments/{name}"


@dataclass(frozen=True)
class Route:
    """One route.

    Attributes
    ----------
    scope : that a token needs; None if anybody may come
    body, query : what is read
    answers : by status: a model, or media types of what is no JSON
    errors : statuses that a handler refuses with, beyond those that follow from the rest
    long : whether it computes results, or sends all of a log, and may take longer than others
    """

    method: str
    path: str
    handler: Handler
    scope: Scope | None
    tag: str
    summary: str
    answers: Mapping[int, type[BaseModel] | tuple[str, ...]]
    body: type[BaseModel] | None = None
    query: type[BaseModel] = take.NoQuery
    errors: tuple[int, ...] = field(default=())
    long: bool = False


# The busiest come first, for they are compared in this order.
ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        EXPERIMENT + "/assignments",
        handlers.assign,
        "write",
        "traffic",
        "The variant for a unit; 200 if it had one already.",
        {201: give.AssignmentAnswer, 200: give.AssignmentAnswer},
        body=take.NewAssignment,
        errors=(409,),
    ),
    Route(
        "POST",
        EXPERIMENT + "/rewards",
        handlers.reward,
        "write",
        "traffic",
        "The reward of an assignment; 200 if the same one was there already.",
        {201: give.RewardStatus, 200: give.RewardStatus},
        body=take.NewReward,
        errors=(409,),
    ),
    Route(
        "GET",
        "/healthz",
        handlers.alive,
        None,
        "service",
        "The process is alive.",
        {200: give.Up},
    ),
    Route(
        "POST",
        EXPERIMENT + "/assignments:batch",
        handlers.assign_many,
        "write",
        "traffic",
        "Variants for many units, in their order; an error stands where a unit got none.",
        {200: give.Assignments},
        body=take.NewAssignments,
        errors=(409,),
    ),
    Route(
        "POST",
        EXPERIMENT + "/rewards:batch",
        handlers.reward_many,
        "write",
        "traffic",
        "Rewards of many assignments, in their order; an error stands where one was refused.",
        {200: give.RewardStatuses},
        body=take.NewRewards,
        errors=(409,),
    ),
    Route(
        "POST",
        EXPERIMENT + "/leases",
        handlers.lease,
        "write",
        "leases",
        "Positions to hand out without asking for each.",
        {201: give.Leases},
        body=take.NewLease,
        errors=(409,),
    ),
    Route(
        "POST",
        EXPERIMENT + "/leases/{lease}/assignments",
        handlers.report,
        "write",
        "leases",
        "What was handed out from a lease.",
        {200: give.Assignments},
        body=take.Used,
        errors=(409,),
    ),
    Route(
        "DELETE",
        EXPERIMENT + "/leases/{lease}",
        handlers.give_back,
        "write",
        "leases",
        "Give back what is left of a lease.",
        {200: give.Released},
    ),
    Route(
        "GET",
        EXPERIMENT + "/recommendation",
        handlers.recommendation,
        "read",
        "results",
        "The best variant so far, with intervals.",
        {200: conclude.Recommendation},
        query=take.RecommendationQuery,
        errors=(409,),
        long=True,
    ),
    Route(
        "GET",
        EXPERIMENT + "/health",
        handlers.health,
        "read",
        "results",
        "Whether the log can be trusted.",
        {200: conclude.Health},
        errors=(409,),
        long=True,
    ),
    Route(
        "GET",
        EXPERIMENT + "/drift",
        handlers.drift,
        "read",
        "results",
        "Whether the world moved, and whether it mattered.",
        {200: conclude.Drift},
        query=take.DriftQuery,
        errors=(409,),
        long=True,
    ),
    Route(
        "GET",
        EXPERIMENT + "/export",
        handlers.export,
        "read",
        "results",
        "All assignments with their rewards, as a file.",
        {200: ("text/csv", "application/vnd.apache.parquet")},
        query=take.ExportQuery,
        errors=(501,),
        long=True,
    ),
    Route(
        "GET",
        EXPERIMENT + "/allocation",
        handlers.allocation,
        "read",
        "results",
        "The shares with which variants are handed out now.",
        {200: conclude.Allocation},
    ),
    Route(
        "GET",
        EXPERIMENT + "/replay",
        handlers.replay,
        "admin",
        "results",
        "The whole test computed anew from its log, and compared.",
        {200: conclude.ReplayAnswer},
        long=True,
    ),
    Route(
        "POST",
        "/v1/experiments",
        handlers.create,
        "admin",
        "experiments",
        "Create an experiment; 200 if it was there and load_if_exists is true.",
        {201: give.CreatedExperiment, 200: give.ExperimentAnswer},
        body=take.NewExperiment,
        errors=(409,),
        long=True,
    ),
    Route(
        "GET",
        "/v1/experiments",
        handlers.listed,
        "read",
        "experiments",
        "All experiments in short.",
        {200: give.ExperimentList},
    ),
    Route(
        "GET",
        EXPERIMENT,
        handlers.shown,
        "read",
        "experiments",
        "An experiment and where it stands.",
        {200: give.ExperimentAnswer},
    ),
    *(
        Route(
            "POST",
            f"{EXPERIMENT}/{action}",
            handlers.mover(action),
            "admin",
            "experiments",
            summary,
            {200: give.ExperimentAnswer},
            errors=(409,),
        )
        for action, summary in (
            ("start", "From draft to running."),
            ("pause", "Hand nothing out for now; rewards are still counted."),
            ("resume", "From paused to running again."),
            ("stop", "Hand nothing out any more; rewards are still counted."),
            ("archive", "Close the books: neither assignments nor rewards any more."),
        )
    ),
    Route(
        "POST",
        EXPERIMENT + "/corrections",
        handlers.correct,
        "admin",
        "corrections",
        "Void or correct a reward, exclude visits or include them again, erase a unit.",
        {201: give.CorrectedAnswer},
        body=take.NewCorrection,
        errors=(409,),
        long=True,
    ),
    Route(
        "GET",
        EXPERIMENT + "/corrections",
        handlers.corrections,
        "admin",
        "corrections",
        "All corrections of an experiment.",
        {200: give.Corrections},
    ),
    Route(
        "GET",
        "/v1/audit",
        handlers.audit,
        "admin",
        "corrections",
        "The audit log: who did what, and when; page by page.",
        {200: give.AuditLog},
        query=take.AuditQuery,
    ),
    Route(
        "GET",
        "/readyz",
        handlers.ready,
        None,
        "service",
        "The service has started, and the storage takes durable writes; 503 says why not.",
        {200: give.Up},
        errors=(503,),
    ),
    Route(
        "GET",
        "/metrics",
        handlers.metrics,
        "read",
        "service",
        "What the service counts about itself, for Prometheus.",
        {200: ("text/plain",)},
    ),
)
