"""The list of routes, and the OpenAPI document that is made from it.

The application, its guard and the reference are made from the same list.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

import steadyarm
from steadyarm.live.lifecycle import NAME
from steadyarm.service import handlers
from steadyarm.service.problems import KINDS, MEDIA
from steadyarm.service.service import Service
from steadyarm.storages.changes import Scope
from steadyarm.wire import requests, responses, results

# A handler gets what the route takes, decoded, and gives a status and what is to be encoded.
Handler = Callable[[Service, Request, Any], Awaitable[tuple[int, Struct] | Response]]

EXPERIMENT = "/v1/experiments/{name}"


@dataclass(frozen=True)
class Route:
    """One route.

    Attributes
    ----------
    scope : that a token needs; None if no token is needed
    responses : by status: a struct, or the media types of what is no JSON
    takes : the body of the request, or its query; None if it has neither
    errors : statuses that a handler refuses with, beyond those that follow from the rest
    long : whether it computes results, or sends a whole log, and may take longer than others
    """

    method: str
    path: str
    handler: Handler
    scope: Scope | None
    tag: str
    summary: str
    responses: Mapping[int, type[Struct] | tuple[str, ...]]
    takes: type[Struct] | None = None
    errors: tuple[int, ...] = ()
    long: bool = False

    @property
    def body(self) -> type[requests.Request] | None:
        """What the body contains; None if there is none."""
        takes = self.takes
        return takes if takes is not None and issubclass(takes, requests.Request) else None

    @property
    def query(self) -> type[requests.Query] | None:
        """What the query contains; None if there is none."""
        takes = self.takes
        return takes if takes is not None and issubclass(takes, requests.Query) else None


def _traffic(path: str, handler: Handler, summary: str, **more: Any) -> Route:
    """Routes that programs use all the time."""
    tag = "leases" if path.startswith("/leases") else "traffic"
    method = more.pop("method", "POST")
    return Route(method, EXPERIMENT + path, handler, "write", tag, summary, **more)


def _result(path: str, handler: Handler, summary: str, **more: Any) -> Route:
    """Routes that compute something from the log."""
    scope = more.pop("scope", "read")
    return Route("GET", EXPERIMENT + path, handler, scope, "results", summary, **more)


def _admin(method: str, path: str, handler: Handler, tag: str, summary: str, **more: Any) -> Route:
    """Routes that change experiments, or say who did."""
    return Route(method, path, handler, "admin", tag, summary, **more)


# The busiest come first, because requests are compared with them in this order.
ROUTES: tuple[Route, ...] = (
    _traffic(
        "/assignments",
        handlers.assign,
        "Assign a variant to a unit; 200 if it had one already.",
        responses={201: responses.AssignmentAnswer, 200: responses.AssignmentAnswer},
        takes=requests.NewAssignment,
        errors=(409,),
    ),
    _traffic(
        "/rewards",
        handlers.reward,
        "Report the reward of an assignment; 200 if the same one was there already.",
        responses={201: responses.RewardStatus, 200: responses.RewardStatus},
        takes=requests.NewReward,
        errors=(409,),
    ),
    Route(
        *("GET", "/healthz", handlers.alive, None, "service", "The process is alive."),
        responses={200: responses.Up},
    ),
    _traffic(
        "/assignments:batch",
        handlers.assign_many,
        "Assign variants to many units, in their order; an error takes the place of one refused.",
        responses={200: responses.Assignments},
        takes=requests.NewAssignments,
        errors=(409,),
    ),
    _traffic(
        "/rewards:batch",
        handlers.reward_many,
        "Report many rewards, in their order; an error takes the place of one refused.",
        responses={200: responses.RewardStatuses},
        takes=requests.NewRewards,
        errors=(409,),
    ),
    _traffic(
        "/leases",
        handlers.lease,
        "Lease positions, to assign them without a request for each.",
        responses={201: responses.Leases},
        takes=requests.NewLease,
        errors=(409,),
    ),
    _traffic(
        "/leases/{lease}/assignments",
        handlers.report,
        "Report which positions of a lease were assigned.",
        responses={200: responses.Assignments},
        takes=requests.Used,
        errors=(409,),
    ),
    _traffic(
        "/leases/{lease}",
        handlers.give_back,
        "Give back what is left of a lease.",
        responses={200: responses.Released},
        method="DELETE",
    ),
    _result(
        "/recommendation",
        handlers.recommendation,
        "The best variant so far, with intervals.",
        responses={200: results.Recommendation},
        takes=requests.RecommendationQuery,
        errors=(409,),
        long=True,
    ),
    _result(
        "/health",
        handlers.health,
        "Whether the log can be trusted.",
        responses={200: results.Health},
        errors=(409,),
        long=True,
    ),
    _result(
        "/drift",
        handlers.drift,
        "Whether the means moved, and whether it mattered.",
        responses={200: results.Drift},
        takes=requests.DriftQuery,
        errors=(409,),
        long=True,
    ),
    _result(
        "/export",
        handlers.export,
        "All assignments with their rewards, as a file.",
        responses={200: ("text/csv", "application/vnd.apache.parquet")},
        takes=requests.ExportQuery,
        errors=(501,),
        long=True,
    ),
    _result(
        "/allocation",
        handlers.allocation,
        "The shares with which variants are assigned now.",
        responses={200: results.Allocation},
    ),
    _result(
        "/replay",
        handlers.replay,
        "The whole test computed anew from its log, and compared.",
        responses={200: results.ReplayAnswer},
        scope="admin",
        long=True,
    ),
    _admin(
        *("POST", "/v1/experiments", handlers.create, "experiments"),
        "Create an experiment; 200 if it exists and load_if_exists is true.",
        responses={201: responses.CreatedExperiment, 200: responses.ExperimentAnswer},
        takes=requests.NewExperiment,
        errors=(409,),
        long=True,
    ),
    Route(
        *("GET", "/v1/experiments", handlers.listed, "read", "experiments"),
        "All experiments in short.",
        responses={200: responses.ExperimentList},
    ),
    Route(
        *("GET", EXPERIMENT, handlers.shown, "read", "experiments"),
        "An experiment and its progress.",
        responses={200: responses.ExperimentAnswer},
    ),
    *(
        _admin(
            *("POST", f"{EXPERIMENT}/{action}", handlers.mover(action), "experiments", summary),
            responses={200: responses.ExperimentAnswer},
            errors=(409,),
        )
        for action, summary in (
            ("start", "From draft to running."),
            ("pause", "Assign nothing for now; rewards still count."),
            ("resume", "From paused to running again."),
            ("stop", "Assign nothing any more; rewards still count."),
            ("archive", "End the experiment: neither assignments nor rewards any more."),
        )
    ),
    _admin(
        *("POST", EXPERIMENT + "/corrections", handlers.correct, "corrections"),
        "Void or correct a reward, exclude visits or include them again, erase a unit.",
        responses={201: responses.CorrectedAnswer},
        takes=requests.NewCorrection,
        errors=(409,),
        long=True,
    ),
    _admin(
        *("GET", EXPERIMENT + "/corrections", handlers.corrections, "corrections"),
        "All corrections of an experiment.",
        responses={200: responses.Corrections},
    ),
    _admin(
        *("GET", "/v1/audit", handlers.audit, "corrections"),
        "The audit log: who did what, and when; page by page.",
        responses={200: responses.AuditLog},
        takes=requests.AuditQuery,
    ),
    Route(
        *("GET", "/readyz", handlers.ready, None, "service"),
        "The service has started, and the storage accepts durable writes; 503 says why not.",
        responses={200: responses.Up},
        errors=(503,),
    ),
    Route(
        *("GET", "/metrics", handlers.metrics, "read", "service"),
        "Counters of the service itself, for Prometheus.",
        responses={200: ("text/plain",)},
    ),
)

TAGS = {
    "experiments": "Create experiments, read them, change their states.",
    "traffic": "Assign variants and report their rewards.",
    "leases": "Assign variants without a request for each.",
    "results": "What an experiment has found so far.",
    "corrections": "Correct what was stored, and read who did what.",
    "service": "The service itself.",
}
PLACES = {
    "name": {
        "type": "string",
        "pattern": f"^{NAME.pattern}$",
        "description": "of the experiment",
    },
    "lease": {
        "type": "integer",
        "minimum": 0,
        "maximum": 2**63 - 1,
        "description": "the id of the lease",
    },
}
REQUEST_ID = {"X-Request-ID": {"schema": {"type": "string"}, "description": "for searching logs"}}


def document(routes: tuple[Route, ...] = ROUTES) -> dict[str, Any]:
    """All routes as OpenAPI describes them."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "SteadyArm",
            "version": steadyarm.__version__,
            "description": "Find the best of many variants with a fixed number of trials, and stay "
            "right when the world moves.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _schemas(requests, requests.Request)
            | _schemas(responses)
            | _schemas(results),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    query = {} if route.query is None else _described(route.query)["properties"]
    described: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": PLACES[name]}
            for name in re.findall(r"{(\w+)}", route.path)
        ]
        + [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in query.items()
        ],
        "responses": {
            str(status): {
                "description": "It is done.",
                "content": {media: {"schema": {"type": "string"}} for media in found}
                if isinstance(found, tuple)
                else _content(found),
                "headers": REQUEST_ID,
            }
            for status, found in route.responses.items()
        }
        | {str(status): _refusal(status) for status in sorted(_errors(route))},
    }
    if route.scope is not None:
        described["security"] = [{"token": []}]
        described["description"] = f"Needs a token of the scope {route.scope}."
    if route.body is not None:
        described["requestBody"] = {"required": True, "content": _content(route.body)}
    return described


def _errors(route: Route) -> set[int]:
    statuses = {500, *route.errors}
    if route.scope is not None:
        statuses |= {401, 403, 421, 429, 503}
    if "{" in route.path:
        statuses.add(404)
    if route.body is not None:
        statuses |= {400, 413, 422}
    if route.query is not None:
        statuses.add(422)
    return statuses


def _refusal(status: int) -> dict[str, Any]:
    titles = [f"{title} ({kind})" for kind, (code, title) in KINDS.items() if code == status]
    content = _content(responses.Problem, MEDIA)
    return {"description": "; ".join(titles) + ".", "content": content, "headers": REQUEST_ID}


def _content(model: type[Struct], media: str = "application/json") -> dict[str, Any]:
    return {media: {"schema": {"$ref": responses.REF.format(name=model.__name__)}}}


def _schemas(module: ModuleType, base: type[Struct] = responses.Response) -> dict[str, Any]:
    """The schemas of a module's structs, with what their docstrings say of each field."""
    models = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, base) and one is not base
    ]
    return {model.__name__: _described(model) for model in models}


def _described(model: type[Struct]) -> dict[str, Any]:
    _, found = msgspec.json.schema_components([model], ref_template=responses.REF)
    schema: dict[str, Any] = found[model.__name__]
    schema["description"] = re.split(r"\n\s*\n\w[\w, ]* : ", schema.get("description", ""))[0]
    schema["additionalProperties"] = False
    for name, text in requests.descriptions(model).items():
        if name in schema["properties"]:
            schema["properties"][name]["description"] = text
    return schema
