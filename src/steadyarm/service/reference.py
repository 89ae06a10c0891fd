"""What the OpenAPI document says, for people: operations by topic, and schemas in words.

The page at /docs and the documentation's reference are made from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

from steadyarm.service.problems import KINDS
from steadyarm.service.routes import document
from steadyarm.wire import requests

Schema = Mapping[str, Any]
LIMITS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "exclusiveMaximum": "below {}",
}


class Word(NamedTuple):
    """A piece of a description: plain text, the name of an object, or something as it is typed."""

    text: str
    kind: Literal["text", "object", "code"] = "text"


OR, COMMA = Word(" or "), Word(", ")


def words(schema: Schema) -> list[Word]:
    """What values a schema takes, in words.

    Examples
    --------
    >>> found = words({"anyOf": [{"type": "array", "items": {"enum": [1]}}, {"type": "null"}]})
    >>> "".join(word.text for word in found)
    'list of 1 or null'
    """
    if "$ref" in schema:
        return [Word(schema["$ref"].rpartition("/")[2], "object")]
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return _joined(list(dict.fromkeys(tuple(words(one)) for one in schema[several])), OR)
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return _joined([[Word(json.dumps(value), "code")] for value in values], OR)
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            items = [words(one) for one in schema["prefixItems"]]
            return [Word("list of "), *_joined(items, COMMA)]
        return [Word("list of "), *words(schema.get("items", {}))]
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return (
            [Word("object of "), *words(values)] if isinstance(values, dict) else [Word("object")]
        )
    text = str(schema.get("format") or schema.get("type", "anything"))
    limits = [text.format(schema[key]) for key, text in LIMITS.items() if key in schema]
    return [Word(" ".join([text, *limits]))]


def content(told: Mapping[str, Any]) -> list[Word]:
    """What a body or a response contains."""
    found = [
        words(one["schema"]) if "$ref" in one["schema"] else [Word(media, "code")]
        for media, one in told.get("content", {}).items()
    ]
    return _joined(found, COMMA) or [Word(told.get("description", ""))]


def _joined(parts: Sequence[Sequence[Word]], between: Word) -> list[Word]:
    found: list[Word] = []
    for part in parts:
        found += [between, *part] if found else part
    return found


@dataclass(frozen=True)
class Field:
    """A parameter of a route, or a field of an object.

    Attributes
    ----------
    place : where a parameter stands: path, query or header; empty for a field
    default : as JSON; "needed" if there is none, empty if it may be left out
    """

    name: str
    kind: list[Word]
    text: str
    place: str = ""
    default: str = ""


@dataclass(frozen=True)
class Operation:
    """A route as the document describes it."""

    id: str
    method: str
    path: str
    summary: str
    access: str
    parameters: list[Field]
    body: list[Word]
    responses: list[tuple[str, list[Word]]]
    refusals: list[str]


@dataclass(frozen=True)
class Described:
    """An object of requests or responses.

    Attributes
    ----------
    request : whether it is sent to the service
    example : as JSON; empty if there is none
    """

    name: str
    text: str
    request: bool
    fields: list[Field]
    example: str


@dataclass(frozen=True)
class Reference:
    """The whole document.

    Attributes
    ----------
    topics : name, description and operations of each
    problems : statuses of refusals, with the kinds and titles of each
    """

    topics: list[tuple[str, str, list[Operation]]]
    problems: list[tuple[int, list[tuple[str, str]]]]
    objects: list[Described]


@cache
def reference() -> Reference:
    """The document of all routes, for people."""
    found = document()
    operations = [
        (told["tags"][0], _operation(method.upper(), path, told))
        for path, methods in found["paths"].items()
        for method, told in methods.items()
    ]
    problems: dict[int, list[tuple[str, str]]] = {}
    for kind, (status, title) in KINDS.items():
        problems.setdefault(status, []).append((kind, title))
    return Reference(
        [
            (
                tag["name"],
                tag["description"],
                [one for name, one in operations if name == tag["name"]],
            )
            for tag in found["tags"]
        ],
        sorted(problems.items()),
        [_described(name, one) for name, one in found["components"]["schemas"].items()],
    )


def _operation(method: str, path: str, told: Mapping[str, Any]) -> Operation:
    answers = told["responses"].items()
    return Operation(
        told["operationId"],
        method,
        path,
        told["summary"],
        told.get("description", "Needs no token."),
        [
            Field(one["name"], words(one["schema"]), one["schema"]["description"], one["in"])
            for one in told["parameters"]
        ],
        content(told["requestBody"]) if "requestBody" in told else [],
        [(status, content(one)) for status, one in answers if int(status) < 400],
        [status for status, _ in answers if int(status) >= 400],
    )


def _described(name: str, schema: Schema) -> Described:
    fields, request = schema.get("properties", {}), hasattr(requests, name)
    example = {key: field["examples"][0] for key, field in fields.items() if "examples" in field}
    return Described(
        name,
        " ".join(schema.get("description", "").split()),
        request,
        list(_fields(fields, schema.get("required", []))),
        json.dumps(example, indent=2) if example else "",
    )


def _fields(fields: Mapping[str, Schema], needed: Sequence[str]) -> Iterator[Field]:
    for name, field in fields.items():
        default = json.dumps(field["default"]) if "default" in field else ""
        default = "needed" if name in needed else default
        yield Field(name, words(field), field.get("description", ""), default=default)
