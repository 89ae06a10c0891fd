"""The list of routes, and the OpenAPI document.

The application, its guard and the reference are generated from the same list.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import cleandoc
from types import ModuleType
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec import Struct
from starlette.responses import Response

import steadyarm
from steadyarm.live.lifecycle import NAME
from steadyarm.service import flags, handlers
from steadyarm.service.auth import Publishable
from steadyarm.service.problems import KINDS, MEDIA
from steadyarm.storages.service import Scope
from steadyarm.wire import flags as wire_flags
from steadyarm.wire import requests, responses

S = TypeVar("S", bound=Struct)
EXPERIMENT = "/v1/experiments/{name}"
FLAGS = "/ofrep/v1/evaluate/flags"
FILES = ("text/csv", "application/vnd.apache.parquet", "application/zip")


@dataclass(frozen=True)
class Route:
    """One route.

    Attributes
    ----------
    scope : that a token needs; None if no token is needed
    statuses : the statuses of good responses
    media : the media of responses that are no JSON
    long : whether it computes results, or sends a whole log, and may take longer than others
    publishable : what a publishable key may do there; None for nothing
    ofrep : whether its errors are as OFREP has them, and no problems
    etag : whether responses have an ETag, and 304 answers a request that knows it already
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[tuple[int, Any] | Response]]
    scope: Scope | None
    tag: str
    statuses: tuple[int, ...] = (200,)
    media: tuple[str, ...] = ()
    long: bool = False
    publishable: Publishable | None = None
    ofrep: bool = False
    etag: bool = False

    @cached_property
    def body(self) -> type[requests.Request] | None:
        """The model of the body; None if there is none."""
        return self._takes(requests.Request)

    @cached_property
    def query(self) -> type[requests.Query] | None:
        """The model of the query; None if there is none."""
        return self._takes(requests.Query)

    def _takes(self, base: type[S]) -> type[S] | None:
        hints = get_type_hints(self.handler).values()
        return next((one for one in hints if isinstance(one, type) and issubclass(one, base)), None)

    @property
    def responses(self) -> dict[int, type | None]:
        """The structs of good responses by status; None for what is no JSON."""
        if self.media:
            return dict.fromkeys(self.statuses)
        _, model = get_args(get_type_hints(self.handler)["return"])
        models = get_args(model) or [model] * len(self.statuses)
        return dict(zip(self.statuses, models, strict=True))


ACTIONS = {
    "start": "From draft to running.",
    "pause": "Assign nothing for now; rewards still count.",
    "resume": "From paused to running again.",
    "stop": "Assign nothing any more; rewards still count.",
    "archive": "End the experiment: neither assignments nor rewards any more.",
}

NEW = (201, 200)  # statuses of what is there already or not
_one = Publishable(handlers.claims_of_one)
_in_context = partial(Publishable, flags.claims_of_context)
_traffic = partial(Route, "POST", scope="write", tag="traffic")
_flags = partial(Route, "POST", scope="write", tag="flags", ofrep=True)
_results = partial(Route, "GET", scope="read", tag="results", long=True)
_admin = partial(Route, scope="admin", tag="experiments")

# The busiest come first, because requests are compared with them in this order.
ROUTES: tuple[Route, ...] = (
    _traffic(EXPERIMENT + "/assignments", handlers.assign, statuses=NEW, publishable=_one),
    _traffic(EXPERIMENT + "/rewards", handlers.reward, statuses=NEW, publishable=_one),
    _flags(FLAGS + "/{name}", flags.evaluate, publishable=_in_context()),
    _traffic("/v1/events", flags.event, publishable=Publishable(handlers.claims_of_one, None)),
    Route("GET", "/healthz", handlers.alive, scope=None, tag="service"),
    _traffic(EXPERIMENT + "/assignments:batch", handlers.assign_many),
    _traffic(
        EXPERIMENT + "/rewards:batch",
        handlers.reward_many,
        publishable=Publishable(handlers.claims_of_rewards),
    ),
    _traffic(
        "/v1/events:batch", flags.event_many, publishable=Publishable(flags.claims_of_events, None)
    ),
    _flags(FLAGS, flags.evaluate_all, etag=True, publishable=_in_context(None)),
    _results(EXPERIMENT + "/recommendation", handlers.recommendation),
    _results(EXPERIMENT + "/breakdowns/{attribute}", handlers.breakdown),
    _results(EXPERIMENT + "/health", handlers.health),
    _results(EXPERIMENT + "/drift", handlers.drift),
    _results(EXPERIMENT + "/export", handlers.export, media=FILES),
    _results(EXPERIMENT + "/allocation", handlers.allocation, long=False),
    _results(EXPERIMENT + "/replay", handlers.replay, scope="admin"),
    _admin("POST", "/v1/experiments", handlers.create, statuses=NEW, long=True),
    _admin("GET", "/v1/experiments", handlers.list_experiments, scope="read"),
    _admin("GET", EXPERIMENT, handlers.show_experiment, scope="read"),
    *(
        _admin("POST", f"{EXPERIMENT}/{action}", handlers.make_mover(action, text))
        for action, text in ACTIONS.items()
    ),
    _admin("POST", EXPERIMENT + "/reopen", handlers.reopen),
    _admin("POST", EXPERIMENT + "/roll-out", handlers.roll_out, long=True),
    _admin(
        "POST",
        EXPERIMENT + "/corrections",
        handlers.correct,
        tag="corrections",
        statuses=(201,),
        long=True,
    ),
    _admin("GET", EXPERIMENT + "/corrections", handlers.corrections, tag="corrections"),
    _admin("GET", "/v1/audit", handlers.audit, tag="corrections"),
    Route("GET", "/readyz", handlers.ready, scope=None, tag="service"),
    Route("GET", "/metrics", handlers.metrics, scope="read", tag="service", media=("text/plain",)),
)

TAGS = {
    "experiments": "Create experiments, read them, change their states.",
    "traffic": "Assign variants and report their rewards.",
    "flags": "Assign variants to programs that know OpenFeature; OFREP describes it.",
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
    "attribute": {"type": "string", "description": "an attribute of units that was declared"},
}
UNIT = {
    "name": "X-SteadyArm-Unit",
    "in": "header",
    "required": False,
    "schema": {
        "type": "string",
        "description": "the unit token that a publishable key with signed units needs",
    },
}
REQUEST_ID = {"X-Request-ID": {"schema": {"type": "string"}, "description": "for searching logs"}}
ETAG = {"ETag": {"schema": {"type": "string"}, "description": "of this response"}}
REFUSAL = {
    "description": "It is refused: "
    + "; ".join(f"{status} {kind}" for kind, (status, _) in KINDS.items()),
    "headers": REQUEST_ID,
}
UNCHANGED = {"description": "Nothing has changed.", "headers": REQUEST_ID | ETAG}
IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "description": "the ETag of a response that is known already"},
}


def document(root_path: str = "") -> dict[str, Any]:
    """All routes as OpenAPI describes them.

    root_path : under which a proxy serves them
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "SteadyArm",
            "version": steadyarm.__version__,
            "description": "Find the best of many variants with a fixed number of trials.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        **({"servers": [{"url": root_path}]} if root_path else {}),
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _schemas(requests, requests.Request)
            | _schemas(responses)
            | _schemas(wire_flags)
            | {model.__name__: _described(model) for model in responses.SHARED},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    query = {} if route.query is None else _described(route.query)["properties"]
    flag_problem = _content(wire_flags.FlagProblem) if route.ofrep else {}
    described: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": cleandoc(route.handler.__doc__ or ""),
        "tags": [route.tag],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": PLACES[name]}
            for name in re.findall(r"{(\w+)}", route.path)
        ]
        + [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in query.items()
        ]
        + ([IF_NONE_MATCH] if route.etag else [])
        + ([UNIT] if route.publishable is not None else []),
        "responses": {
            str(status): {
                "description": "It is done.",
                "content": {media: {"schema": {"type": "string"}} for media in route.media}
                if model is None
                else _content(model),
                "headers": REQUEST_ID | (ETAG if route.etag else {}),
            }
            for status, model in route.responses.items()
        }
        | ({"304": UNCHANGED} if route.etag else {})
        | {"default": REFUSAL | {"content": _content(responses.Problem, MEDIA) | flag_problem}},
    }
    if route.scope is not None:
        described["security"] = [{"token": []}, {"key": []}]
        described["description"] = f"Needs a token of the scope {route.scope}" + (
            "." if route.publishable is None else ", or a publishable key of the experiment."
        )
    if route.body is not None:
        described["requestBody"] = {"required": True, "content": _content(route.body)}
    return described


def _content(model: type, media: str = "application/json") -> dict[str, Any]:
    return {media: {"schema": {"$ref": responses.REF.format(name=model.__name__)}}}


def _schemas(module: ModuleType, base: type[Struct] = responses.Response) -> dict[str, Any]:
    """The schemas of a module's structs, with what their docstrings say of each field."""
    models = [
        model
        for model in vars(module).values()
        if isinstance(model, type) and issubclass(model, base) and model is not base
    ]
    return {model.__name__: _described(model) for model in models}


def _described(model: type) -> dict[str, Any]:
    _, found = msgspec.json.schema_components([model], ref_template=responses.REF)
    schema: dict[str, Any] = found[model.__name__]
    text = cleandoc(schema.get("description", ""))  # Python before 3.13 keeps its indentation
    schema["description"] = re.split(r"\n\s*\n(?:Attributes\n-+\n)?\w[\w, ]* : ", text)[0]
    # What a response has is known; a request may have more only if that is ignored.
    schema["additionalProperties"] = (
        issubclass(model, requests.Request) and not model.__struct_config__.forbid_unknown_fields
    )
    kind = cast(msgspec.inspect.StructType, msgspec.inspect.type_info(model))
    written = {field.name: field.encode_name for field in kind.fields}
    for name, text in requests.descriptions(model).items():
        if written.get(name) in schema["properties"]:
            schema["properties"][written[name]]["description"] = text
    return schema
