"""Pages of the reference: the Python API, the command line, REST and settings."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator

import griffe

import steadyarm
from steadyarm.cli.main import build_parser
from steadyarm.service.routes import document

CLI_HEAD = "# Command line\n\nStatus 0: all went well; 1: an error; 2: a wrong command line."
REST_HEAD = """\
# REST

The service serves its OpenAPI document at `/openapi.json` and renders it at `/docs`, with all
fields; [REST API](../integrate/rest.md) explains how to use it. Requests and responses are
JSON. Errors are problems as in RFC 9457; those of flags are as in OFREP.
"""
SETTINGS = """\
# Settings

Options of a command take precedence over environment variables, and these over defaults.

## The service

Each field is an environment variable, `STEADYARM_` and its name in capitals.

::: steadyarm.service.settings.ServiceSettings

## An experiment

Keys of `experiment create` files, of `POST /v1/experiments` and of `create_experiment`.

::: steadyarm.live.settings.Settings

## A plan

The keys of the file for `steadyarm plan` are in [Plan a budget](../run/plan.md).
"""


def python_page() -> str:
    """All public names of the package, by the module that defines them."""
    parts = ["# Python"]
    modules: dict[str, list[str]] = {}
    for name in steadyarm.__all__:
        value = getattr(steadyarm, name)
        if not inspect.ismodule(value):
            modules.setdefault(value.__module__, []).append(f"{value.__module__}.{name}")
    for module in sorted(modules):
        parts.append(f"## {module.removeprefix('steadyarm.')}")
        parts += [f"::: {path}" for path in modules[module]]
    return "\n\n".join(parts) + "\n"


def command_line_page() -> str:
    """What `--help` says, for each command."""
    parts = [CLI_HEAD]
    for parser in _commands(build_parser()):
        level = min(len(parser.prog.split()) + 1, 3)
        shown = f"```text\n{parser.format_help().rstrip()}\n```"
        parts.append(f"{'#' * level} {parser.prog}\n\n{shown}")
    return "\n\n".join(parts) + "\n"


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _commands(inner)


def rest_page() -> str:
    """All routes with their summaries."""
    lines = [REST_HEAD, "| method | path | summary |", "| --- | --- | --- |"]
    for path, methods in document()["paths"].items():
        for method, told in methods.items():
            summary = told["summary"].replace("|", "&#124;")
            lines.append(f"| {method.upper()} | `{path}` | {summary} |")
    return "\n".join(lines) + "\n"


PAGES = {
    "reference/python.md": python_page,
    "reference/cli.md": command_line_page,
    "reference/rest.md": rest_page,
    "reference/settings.md": lambda: SETTINGS,
}


class DescriptionsAfterColons(griffe.Extension):
    """Read "name : description", as docstrings here have it, as numpydoc's name and description."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Move the text after the colon to a line of its own."""
        if obj.docstring is not None:
            text = inspect.cleandoc(obj.docstring.value)
            obj.docstring.value = re.sub(r"^([\w*, ]+?) : (.*)$", r"\1\n    \2", text, flags=re.M)
