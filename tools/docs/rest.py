"""The page about the service's interface, made from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steadyarm.service.problems import KINDS
from steadyarm.service.routes import document
from tools.docs.docstrings import cell, escaped, table

__all__ = ["operations", "rest_page"]

HEAD = """\
# REST

The document at `/openapi.json` as a page; [the service](../service.md) explains how to use it.
Requests and responses are JSON. Errors are problems as RFC 9457 describes them
([Problem](#Problem)), except for those of flags, which are as OFREP has them
([FlagProblem](#FlagProblem)); every response has an `X-Request-ID`. Tokens go into the header
`Authorization: Bearer …`.
"""


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every route."""
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def rest_page() -> str:
    """The page about all routes and what they take and answer."""
    parts, described = [HEAD], document()
    for tag in described["tags"]:
        rows = [
            f"| `{method} {path}` | {cell(operation['summary'])} | {_body(operation)} |"
            for method, path, operation in operations()
            if operation["tags"] == [tag["name"]]
        ]
        parts += [f"## {tag['name'].capitalize()}", escaped(tag["description"])]
        parts.append(table("route", "what it does", "body", rows=rows))
    kinds = [f"| {status} | `{kind}` | {cell(title)} |" for kind, (status, title) in KINDS.items()]
    parts += ["## Errors", table("status", "kind", "meaning", rows=kinds), "## Objects"]
    for name, schema in described["components"]["schemas"].items():
        fields = schema["properties"].items()
        rows = [f"| `{field}` | {cell(one.get('description', ''))} |" for field, one in fields]
        parts += [f"### {name} {{ #{name} }}", escaped(schema["description"])]
        if rows:
            parts.append(table("field", "what it is", rows=rows))
    return "\n\n".join(parts) + "\n"


def _body(operation: dict[str, Any]) -> str:
    if "requestBody" not in operation:
        return ""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    name = schema["$ref"].rpartition("/")[2]
    return f"[{name}](#{name})"
