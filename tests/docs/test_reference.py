"""Commands, options, routes and settings: all are in the reference, with a description."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from msgspec import structs

from steadyarm.cli.main import build_parser
from steadyarm.environments.families import WORLDS, arms_from_settings
from steadyarm.live.lifecycle import DESCRIBED
from steadyarm.planning.question import TABLES, TOP
from steadyarm.policies import POLICIES
from steadyarm.service.app import Endpoint, create_app
from steadyarm.service.routes import ROUTES, document
from steadyarm.service.settings import ServiceSettings
from steadyarm.storages import open_storage
from steadyarm.wire import responses, results
from tools.docs.command_line import command_line_page
from tools.docs.docstrings import cell
from tools.docs.rest import operations, rest_page
from tools.docs.settings import ARMS, settings_page

ROOT = Path(__file__).parents[2]


def walked(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from walked(inner)


PARSERS = [pytest.param(parser, id=parser.prog) for parser in walked(build_parser())]


def section(page: str, title: str) -> str:
    """What stands under a heading, up to the next one."""
    start = re.search(rf"^#+ {re.escape(title)}(?: \{{.*)?$", page, flags=re.MULTILINE)
    assert start, f"there is no heading {title!r}"
    return re.split(r"^#+ ", page[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> dict[str, list[str]]:
    """Rows of tables by what their first cell has in backticks; cells without it."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        for name in re.findall(r"`([^`]+)`", cells[0]) if line.startswith("|") else []:
            found[name] = cells[1:]
    return found


@pytest.mark.parametrize("parser", PARSERS)
def test_every_command_and_option_is_described(parser: argparse.ArgumentParser) -> None:
    told = section(command_line_page(), parser.prog)
    assert parser.description
    assert parser.description[:40].replace("_", r"\_") in told
    described = rows(told)
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
            continue
        assert action.help, f"{parser.prog} {action.dest} has no help"
        assert not action.help.startswith("default"), f"{parser.prog} {action.dest} says no more"
        name = (action.option_strings or [str(action.metavar or action.dest)])[0]
        cells = [
            cell
            for typed, cell in described.items()
            if typed == name or typed.startswith((f"{name} ", f"{name},"))
        ]
        assert len(cells) == 1, f"{parser.prog} {name} stands there {len(cells)} times"
        assert len(cells[0][0]) > 5


def test_every_route_is_described() -> None:
    page = rest_page().replace("&#123;", "{")
    app = create_app(open_storage("memory"))
    served = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, Endpoint)
        for method in route.methods or ()
    }
    assert served == {(route.method, route.path) for route in ROUTES}
    for method, path in served:
        assert f"| `{method} {path}` |" in page


def test_every_parameter_of_an_address_is_described() -> None:
    for method, path, told in operations():
        for parameter in told["parameters"]:
            assert parameter["schema"]["description"], f"{method} {path}: {parameter['name']}"


def test_every_field_of_requests_and_answers_is_described() -> None:
    page = rest_page()
    objects = document()["components"]["schemas"]
    assert {"NewExperiment", "UsedPosition", "Problem", "ArmEstimate"} <= set(objects)
    for title, schema in objects.items():
        told = section(page, f"{title} {{ #{title} }}")  # a group of routes is called Leases, too
        assert len(told.strip().splitlines()[0]) > 10, f"{title} says not what it is"
        described = rows(told)
        for name, field in schema["properties"].items():
            text = field.get("description", "")
            assert len(text) > 5, f"{title}.{name} has no description"
            assert described[name][-1] == cell(text), f"{title}.{name}"


def test_only_fields_of_a_problem_may_be_left_out_of_responses() -> None:
    for model in (*vars(responses).values(), *vars(results).values()):
        if isinstance(model, type) and issubclass(model, responses.Response):
            free = {field.name for field in structs.fields(model) if not field.required}
            problem = {"hint", "field", "given", "expected", "experiments"}
            assert free == (problem if model is responses.Problem else set()), model


def test_every_variable_of_the_environment_is_described() -> None:
    whole = ServiceSettings(
        storage="memory", secret="sixteen letters!", public_url="https://tests.example.org"
    )
    names = set(whole.to_environment())
    for path in (ROOT / "src").rglob("*.py"):
        names |= set(re.findall(r"STEADYARM_[A-Z_]*[A-Z]", path.read_text()))
    assert len(names) > len(fields(ServiceSettings))
    described = rows(section(settings_page(), "Environment variables"))
    for name in names:
        assert len(described[name][-1]) > 5, f"{name} is not described"


def test_every_setting_of_an_experiment_is_described() -> None:
    page = settings_page()
    described = rows(section(page, "An experiment"))
    assert set(described) >= {"name", *DESCRIBED}
    assert all(cells[-1] for cells in described.values())
    for key in ARMS:
        assert all(cells[-1] for cells in rows(section(page, f"arms: {key}")).values())
    for name, policy in POLICIES.items():
        settings = rows(section(page, name.lower()))
        assert set(policy().to_dict()) - {"name"} <= set(settings)
        assert all(cells[-1] for cells in settings.values()), name


def test_every_kind_of_arms_is_described() -> None:
    with pytest.raises(Exception, match="exactly one of") as refused:
        arms_from_settings({})
    listed = str(refused.value).rpartition("one of ")[2].rstrip(".").split(", ")
    assert listed == list(ARMS)


def test_every_world_is_described() -> None:
    described = rows(section(settings_page(), "Worlds"))
    for name in WORLDS:
        assert described[name][0]


def test_every_key_of_a_plan_is_described() -> None:
    told = section((ROOT / "docs/plan.md").read_text(), "The question")
    described = rows(told)
    for key in [*TOP, *(f"[{table}]" for table in TABLES)]:
        assert len(described[key][0]) > 5
    for table, keys in TABLES.items():
        for key in keys or ():
            text = described[key][0] if key in described else described[f"[{table}]"][0]
            assert key in described or f"`{key}`" in text, f"{table}.{key}"
