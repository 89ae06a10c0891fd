"""The OpenAPI document, made from the list of routes and the models of what is sent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import steadyarm
from steadyarm.lifecycle import NAME
from steadyarm.service.answered import Problem
from steadyarm.service.asked import NoQuery
from steadyarm.service.problems import KINDS, MEDIA
from steadyarm.service.routes import Route

__all__ = ["document"]

REF = "#/components/schemas/{model}"
TAGS = {
    "experiments": "Create experiments, look at them, change their states.",
    "traffic": "Ask for variants and tell their rewards.",
    "leases": "Hand variants out without asking for each.",
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
        "description": "the id that the lease was answered with",
    },
}
TITLES: dict[int, list[str]] = {}
for _kind, (_status, _title) in KINDS.items():
    TITLES.setdefault(_status, []).append(f"{_title} ({_kind})")


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """All routes as OpenAPI describes them."""
    routes = tuple(routes)
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
            "schemas": _schemas(routes),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [*_places(route.path), *_query(route.query)],
        "responses": _answers(route) | _errors(route),
    }
    if route.scope is not None:
        told["security"] = [{"token": []}]
        told["description"] = f"Needs a token of the scope {route.scope}."
    if route.body is not None:
        told["requestBody"] = {"required": True, "content": _json(route.body)}
    return told


def _places(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": PLACES[name]}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _query(model: type[BaseModel]) -> list[dict[str, Any]]:
    properties = model.model_json_schema().get("properties", {})
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in properties.items()
    ]


def _answers(route: Route) -> dict[str, Any]:
    told = {}
    for status, found in route.answers.items():
        content = (
            {media: {"schema": {"type": "string"}} for media in found}
            if isinstance(found, tuple)
            else _json(found)
        )
        told[str(status)] = {"description": "It is done.", "content": content, "headers": _id()}
    return told


def _errors(route: Route) -> dict[str, Any]:
    statuses = {500, *route.errors}
    if route.scope is not None:
        statuses |= {401, 403, 421, 429, 503}
    if "{" in route.path:
        statuses.add(404)
    if route.body is not None:
        statuses |= {400, 413, 422}
    if route.query is not NoQuery:
        statuses.add(422)
    content = {MEDIA: {"schema": {"$ref": REF.format(model="Problem")}}}
    return {
        str(status): {
            "description": "; ".join(TITLES[status]) + ".",
            "content": content,
            "headers": _id(),
        }
        for status in sorted(statuses)
    }


def _id() -> dict[str, Any]:
    return {"X-Request-ID": {"schema": {"type": "string"}, "description": "to be found in logs"}}


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(model=model.__name__)}}}


def _schemas(routes: tuple[Route, ...]) -> dict[str, Any]:
    bodies = [route.body for route in routes if route.body is not None]
    answers = [
        model
        for route in routes
        for model in route.answers.values()
        if not isinstance(model, tuple)
    ]
    models: dict[type[BaseModel], None] = dict.fromkeys([Problem, *bodies, *answers])
    _, found = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    schemas: dict[str, Any] = found["$defs"]
    return schemas
