"""The page about settings: variables of the environment, and the keys of descriptions in TOML."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from typing import Any

from msgspec import structs

import steadyarm
from steadyarm.cli.service import POSTGRES_WRITERS
from steadyarm.environments.families import WORLDS
from steadyarm.live.lifecycle import DESCRIBED
from steadyarm.live.settings import Settings
from steadyarm.paper.specification import YAHOO_FILE
from steadyarm.policies import POLICIES
from steadyarm.service.settings import PREFIX, ServiceSettings
from steadyarm.storages import DEFAULT, VARIABLE
from steadyarm.wire.requests import NewExperiment, descriptions
from tools.docs.command_line import arguments, commands
from tools.docs.docstrings import cell, entries_of, escaped, summary_of, table

__all__ = ["ARMS", "described", "policy_settings", "settings_page", "variables"]

TOKEN = "STEADYARM_TOKEN"
HEAD = """\
# Settings

Made from the code. Options of a command count more than variables of the environment, these more
than defaults.
"""
VARIABLES = f"""\
## Environment variables

For the service ([how to run it](../service.md)), but for three: `{VARIABLE}` counts wherever
experiments are opened, by every command and by [`create_experiment`](python/create_experiment.md),
`{TOKEN}` is for commands [against a service](../service.md), and `{YAHOO_FILE}` is for
[the paper's Yahoo! experiment](../data.md).
"""
DESCRIPTION = """\
## An experiment

The keys of the file for `steadyarm experiment create` ([live experiments](../live.md)), of the body
of `POST /v1/experiments` ([REST](rest.md#NewExperiment)), and of
[`create_experiment`](python/create_experiment.md) in Python.
"""
ARMS_HEAD = """\
## Variants: arms

A list of names, or a table with exactly one of these keys. They mean the same in descriptions of
experiments, in files for `steadyarm plan` and `steadyarm simulate`, and for
`steadyarm analyze --arms`.
"""
POLICY_HEAD = """\
## Policies

A name, in any spelling of capitals, or a table with `name` and some of these:
`policy = { name = "steady", robustness = 0.8 }`.
"""
WORLD_HEAD = """\
## Worlds

For `steadyarm simulate`: `--world NAME --set KEY=VALUE`, or a table `[world]` with `name` and these
keys. `noise` is `gaussian`, `bounded` or `bernoulli`, or a table with `kind` and `sd` or `bound`.
"""
PLAN = """\
## The file for steadyarm plan

Its keys are explained in [the question](../plan.md#the-question).
"""
ARMS: dict[str, Callable[..., steadyarm.ArmSet]] = {
    "one_hot": steadyarm.ArmSet.one_hot,
    "factorial": steadyarm.ArmSet.factorial,
    "bundles": steadyarm.ArmSet.bundles,
    "features": steadyarm.ArmSet.from_features,
}
UNUSUAL = {  # defaults that are chosen when the service starts
    "storage": f"`{DEFAULT}`",
    "writers": f"`1`, with PostgreSQL `{POSTGRES_WRITERS}`",
    "secret": "a new one at every start",
}


def variables() -> dict[str, tuple[str, str, str]]:
    """Option, default and meaning of every variable of the environment."""
    told = entries_of(ServiceSettings.__doc__)
    serve = next(parser for parser in commands() if parser.prog == "steadyarm serve")
    options = {one.dest: ", ".join(one.option_strings) for one in arguments(serve)}
    found = {
        PREFIX + one.name.upper(): (
            f"`{options[one.name]}`" if one.name in options else "",
            UNUSUAL.get(one.name, f"`{json.dumps(one.default)}`"),
            told.get(one.name, ""),
        )
        for one in fields(ServiceSettings)
    }
    text = "the file that `steadyarm data yahoo` wrote, for `steadyarm reproduce yahoo`"
    token = "of a service, for commands against it; `--token` in its place"
    return found | {TOKEN: ("", "", token), YAHOO_FILE: ("", "", text)}


def described() -> dict[str, tuple[str, str]]:
    """Default and meaning of every key that describes an experiment."""
    told = entries_of(Settings.__doc__)
    taken = {field.name: field for field in structs.fields(NewExperiment)}
    found = {"name": ("needed", "of the experiment: " + descriptions(NewExperiment)["name"])}
    for key in DESCRIBED:
        usual = "needed" if taken[key].required else _plain(taken[key].default)
        if key == "seed":
            usual = "drawn and stored"
        found[key] = (usual, told.get(key, ""))
    return found


def policy_settings(policy: type) -> dict[str, tuple[str, str]]:
    """Default and meaning of every setting of a policy."""
    told: dict[str, str] = {}
    for base in reversed(policy.__mro__):
        if base.__module__.startswith("steadyarm"):
            own = entries_of(base.__doc__)
            told |= {key: text for key, text in own.items() if not text.startswith("see `")}
    return {
        one.name: (
            "needed" if one.default is MISSING else _plain(one.default),
            told.get(one.name, ""),
        )
        for one in fields(policy)
    }


def settings_page() -> str:
    """The page about all settings."""
    parts = [HEAD, VARIABLES]
    rows = [
        f"| `{name}` | {option} | {usual} | {cell(text)} |"
        for name, (option, usual, text) in variables().items()
    ]
    parts += [
        table("variable", "option of serve", "default", "what it says", rows=rows),
        DESCRIPTION,
    ]
    rows = [f"| `{key}` | {usual} | {cell(text)} |" for key, (usual, text) in described().items()]
    parts += [table("key", "default", "what it says", rows=rows), ARMS_HEAD, *_arms()]
    parts += [POLICY_HEAD, *_policies(), PLAN, WORLD_HEAD, *_worlds()]
    return "\n\n".join(parts) + "\n"


def _arms() -> Iterator[str]:
    for key, build in ARMS.items():
        yield f"### arms: {key} {{ #arms-{key} }}"
        see = f"[`ArmSet.{build.__name__}`](python/ArmSet.md#ArmSet.{build.__name__})"
        yield f"{escaped(summary_of(build.__doc__))} See {see}."
        told = entries_of(build.__doc__)
        others = list(inspect.signature(build).parameters.values())[1:]
        if others:
            rows = [
                f"| `{one.name}` | {_usual(one)} | {cell(told.get(one.name, ''))} |"
                for one in others
            ]
            yield table("key beside it", "default", "what it says", rows=rows)


def _policies() -> Iterator[str]:
    for policy in POLICIES.values():
        name = policy.name.lower()
        yield f"### {name} {{ #policy-{name} }}"
        called = policy.__name__
        yield f"{escaped(summary_of(policy.__doc__))} See [`{called}`](python/{called}.md)."
        rows = [
            f"| `{key}` | {usual} | {cell(text)} |"
            for key, (usual, text) in policy_settings(policy).items()
        ]
        if rows:
            yield table("key", "default", "what it says", rows=rows)


def _worlds() -> Iterator[str]:
    rows = []
    for name, build in WORLDS.items():
        keys = [
            f"`{one.name}` ({_usual(one)})"
            for one in inspect.signature(build).parameters.values()
            if one.name != "arms"
        ]
        rows.append(f"| `{name}` | {cell(summary_of(build.__doc__))} | {', '.join(keys)} |")
    yield table("world", "what it is", "keys (default)", rows=rows)


def _usual(parameter: inspect.Parameter) -> str:
    given = parameter.default is not inspect.Parameter.empty
    return _plain(parameter.default) if given else "needed"


def _plain(value: Any) -> str:
    return "none" if value is None else f"`{json.dumps(value)}`"
