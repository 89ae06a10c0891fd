"""The page about the service's interface, made from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from steadyarm.service.reference import Described, Operation, Word, reference
from steadyarm.service.routes import document
from tools.docs.docstrings import cell, escaped, table

__all__ = ["operations", "rest_page"]

HEAD = """\
# REST

The document at `/openapi.json` as a page; [the service](../service.md) explains how to use it.
Requests and responses are JSON. Errors are problems as RFC 9457 describes them
([Problem](#Problem)), except for those of [flags](#flags), which are as OFREP has them
([FlagProblem](#FlagProblem)); every response has an `X-Request-ID`. Tokens go into the header
`Authorization: Bearer …`.
"""
OBJECTS = """\
Requests and responses. All fields of a response are always there, except for some of a
[Problem](#Problem) and of [flags](#FlagAnswer).
"""
WRITTEN = {"text": "{0}", "object": "[{0}](#{0})", "code": "`{0}`"}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every route."""
    for path, methods in document()["paths"].items():
        for method, told in methods.items():
            yield method.upper(), path, told


def rest_page() -> str:
    """The page about all routes and what they take and answer."""
    found = reference()
    parts = [HEAD]
    for name, text, routes in found.topics:
        parts += [f"## {name.capitalize()}", escaped(text)]
        for route in routes:
            parts += _route(route)
    rows = [
        f"| {status} | {'; '.join(f'`{kind}`: {cell(title)}' for kind, title in kinds)} |"
        for status, kinds in found.problems
    ]
    parts += ["## Errors", table("status", "kinds", rows=rows)]
    parts += ["## Objects", OBJECTS]
    for one in found.objects:
        parts += _object(one)
    return "\n\n".join(part for part in parts if part) + "\n"


def _route(route: Operation) -> Iterator[str]:
    yield f"### {route.method} {route.path.replace('{', '&#123;')} {{ #{route.id} }}"
    yield f"{escaped(route.summary)} {escaped(route.access)}"
    if route.parameters:
        rows = [
            f"| `{one.name}` | {one.place} | {_kind(one.kind)} | {cell(one.text)} |"
            for one in route.parameters
        ]
        yield table("parameter", "in", "kind", "what it is", rows=rows)
    rows = [f"| body | {_kind(route.body)} |"] if route.body else []
    rows += [f"| {status} | {_kind(one)} |" for status, one in route.responses]
    yield table("", "", rows=rows)
    refused = [f"[{status}](#errors)" for status in route.refusals]
    yield f"Refused with {', '.join(refused)}."


def _object(one: Described) -> Iterator[str]:
    yield f"### {one.name} {{ #{one.name} }}"
    yield escaped(one.text)
    if one.request:
        rows = [
            f"| `{field.name}` | {_kind(field.kind)} | {_default(field.default)} "
            f"| {cell(field.text)} |"
            for field in one.fields
        ]
        yield table("field", "kind", "default", "expected", rows=rows)
    else:
        rows = [
            f"| `{field.name}` | {_kind(field.kind)} | {cell(field.text)} |" for field in one.fields
        ]
        yield table("field", "kind", "what it is", rows=rows)
    if one.example:
        yield f"```json\n{one.example}\n```"


def _kind(words: Sequence[Word]) -> str:
    return "".join(
        escaped(text) if kind == "text" else WRITTEN[kind].format(text) for text, kind in words
    )


def _default(text: str) -> str:
    return text if text in ("", "needed") else f"`{text}`"
