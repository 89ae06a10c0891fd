"""The page about the service's interface, made from its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from steadyarm.service.problems import KINDS
from steadyarm.service.routes import document
from steadyarm.wire import requests
from tools.docs.docstrings import cell, escaped, table

__all__ = ["operations", "rest_page"]

Schema = Mapping[str, Any]
HEAD = """\
# REST

The document at `/openapi.json` as a page; [the service](../service.md) explains how to use it.
Requests and responses are JSON. Errors are problems as RFC 9457 describes them
([Problem](#Problem)); every response has an `X-Request-ID`. Tokens go into the header
`Authorization: Bearer …`.
"""
OBJECTS = """\
Requests and responses. All fields of a response are always there, except for some of a
[Problem](#Problem).
"""
LIMITS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "exclusiveMaximum": "below {}",
}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every route."""
    for path, methods in document()["paths"].items():
        for method, told in methods.items():
            yield method.upper(), path, told


def rest_page() -> str:
    """The page about all routes and what they take and answer."""
    found = document()
    parts = [HEAD]
    for tag in found["tags"]:
        parts += [f"## {tag['name'].capitalize()}", escaped(tag["description"])]
        for method, path, told in operations():
            if tag["name"] in told["tags"]:
                parts += _route(method, path, told)
    parts += ["## Errors", table("status", "kinds", rows=_errors())]
    parts += ["## Objects", OBJECTS]
    for name, schema in found["components"]["schemas"].items():
        parts += _object(name, schema)
    return "\n\n".join(part for part in parts if part) + "\n"


def _errors() -> list[str]:
    found: dict[int, list[str]] = {}
    for name, (status, title) in KINDS.items():
        found.setdefault(status, []).append(f"`{name}`: {cell(title)}")
    return [f"| {status} | {'; '.join(kinds)} |" for status, kinds in sorted(found.items())]


def _route(method: str, path: str, told: dict[str, Any]) -> Iterator[str]:
    yield f"### {method} {path.replace('{', '&#123;')} {{ #{told['operationId']} }}"
    yield f"{escaped(told['summary'])} {escaped(told.get('description', 'Needs no token.'))}"
    if told["parameters"]:
        rows = [
            f"| `{one['name']}` | {one['in']} | {kind(one['schema'])} "
            f"| {cell(one['schema'].get('description', ''))} |"
            for one in told["parameters"]
        ]
        yield table("parameter", "in", "kind", "what it is", rows=rows)
    rows = [f"| body | {_content(told['requestBody'])} |"] if "requestBody" in told else []
    answers = told["responses"].items()
    rows += [f"| {status} | {_content(one)} |" for status, one in answers if int(status) < 400]
    yield table("", "", rows=rows)
    refused = [f"[{status}](#errors)" for status, _ in answers if int(status) >= 400]
    yield f"Refused with {', '.join(refused)}."


def _object(name: str, schema: Schema) -> Iterator[str]:
    yield f"### {name} {{ #{name} }}"
    yield escaped(" ".join(schema.get("description", "").split()))
    needed = schema.get("required", [])
    fields = schema.get("properties", {})
    if hasattr(requests, name):
        rows = [
            f"| `{key}` | {kind(field)} | {'needed' if key in needed else _default(field)} "
            f"| {cell(field.get('description', ''))} |"
            for key, field in fields.items()
        ]
        yield table("field", "kind", "default", "expected", rows=rows)
    else:
        rows = [
            f"| `{key}` | {kind(field)} | {cell(field.get('description', ''))} |"
            for key, field in fields.items()
        ]
        yield table("field", "kind", "what it is", rows=rows)
    example = {key: field["examples"][0] for key, field in fields.items() if "examples" in field}
    if example:
        yield f"```json\n{json.dumps(example, indent=2)}\n```"


def kind(schema: Schema) -> str:
    """What values a schema takes, in words.

    Examples
    --------
    >>> kind({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]})
    'list of string or null'
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(kind(one) for one in schema[several]))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"`{json.dumps(value)}`" for value in values)
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return f"list of {', '.join(kind(one) for one in schema['prefixItems'])}"
        return f"list of {kind(schema.get('items', {}))}"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"object of {kind(values)}" if isinstance(values, dict) else "object"
    text = str(schema.get("type", "anything"))
    if schema.get("format"):
        text = str(schema["format"])
    limits = [text.format(schema[key]) for key, text in LIMITS.items() if key in schema]
    return " ".join([text, *limits])


def _content(told: dict[str, Any]) -> str:
    return ", ".join(
        kind(content["schema"]) if "$ref" in content["schema"] else f"`{media}`"
        for media, content in told["content"].items()
    )


def _default(field: Schema) -> str:
    return f"`{json.dumps(field['default'])}`" if "default" in field else ""
