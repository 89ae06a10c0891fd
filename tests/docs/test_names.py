"""Every name that a module offers is there, and the reference tells of all that are for users."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import functools
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import steadyarm
import tools.docs
from tools.docs.api import OBJECTS, TOGETHER, Item, further_names, items, object_pages

# Without the migrations, which are no package: Alembic says what these have to hold.
MODULES = [one.name for one in pkgutil.walk_packages(steadyarm.__path__, "steadyarm.")]
TOOLS = [f"tools.docs.{one.name}" for one in pkgutil.iter_modules(tools.docs.__path__)]
CLASSES = [pytest.param(one, id=one.name) for one in items() if inspect.isclass(one.value)]


@functools.cache
def sections(page: str) -> dict[str, str]:
    """What stands under every anchor of a page, without the code of signatures and examples."""
    parts = re.split(r"^#+ .* \{ #(\S+) \}$", page, flags=re.MULTILINE)
    texts = [re.sub(r"```.*?```", "", text, flags=re.DOTALL).strip() for text in parts[2::2]]
    return dict(zip(parts[1::2], texts, strict=True))


def imports_of(name: str) -> Iterator[tuple[str, str]]:
    """Each name that a module imports from another one of the package, with where it is from."""
    for node in ast.walk(ast.parse(inspect.getsource(import_module(name)))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            if node.module and node.module.partition(".")[0] == "steadyarm":
                yield from ((node.module, one.name) for one in node.names)


@pytest.fixture(scope="module")
def api() -> dict[str, str]:
    return {
        name: text for make in object_pages().values() for name, text in sections(make()).items()
    }


def test_every_name_that_a_module_offers_is_there() -> None:
    for module in map(import_module, ["steadyarm", *MODULES]):
        names = getattr(module, "__all__", [])
        assert len(set(names)) == len(names), f"{module.__name__} lists a name twice"
        for name in names:
            assert hasattr(module, name), f"{module.__name__} has no {name}"


def test_modules_import_only_what_others_offer() -> None:
    """A module offers the names in its `__all__`, or else those without an underscore."""
    for name in ["steadyarm", *MODULES]:
        for module, asked in imports_of(name):
            listed = getattr(import_module(module), "__all__", None)
            offered = not asked.startswith("_") if listed is None else asked in listed
            inner = f"{module}.{asked}"
            if asked != "__version__" and inner not in MODULES:
                assert offered, f"{name} imports {inner}, which is private"


def test_every_public_name_has_a_page_and_is_explained(api: dict[str, str]) -> None:
    pages = {one.name for one in items()}
    places = [one.place.lower() for one in items()]
    assert len(set(places)) == len(places), "two pages are one file where case does not count"
    for name in steadyarm.__all__:
        if not isinstance(getattr(steadyarm, name), ModuleType):
            assert name in pages
            assert len(api[name]) > 20, f"{name} is not explained"


@pytest.mark.parametrize("item", CLASSES)
def test_every_method_and_property_is_explained(item: Item, api: dict[str, str]) -> None:
    theirs = {one for base in documented_bases(item.value) for one in dir(base)}
    for member in set(dir(item.value)) - theirs - set(dir(Exception)) - set(dir(str)):
        value: Any = inspect.getattr_static(item.value, member)
        if member.startswith("_") or not defined_here(item.value, member):
            continue
        if isinstance(value, (property, functools.cached_property)):
            assert f"- `{member}`: " in api[item.name], f"{item.name}.{member}"
            assert value.__doc__
        elif inspect.isroutine(value):
            assert len(api[f"{item.shown}.{member}"]) > 10, f"{item.name}.{member} is not explained"


@pytest.mark.parametrize("item", CLASSES)
def test_every_field_is_named_where_its_class_is_explained(item: Item, api: dict[str, str]) -> None:
    if dataclasses.is_dataclass(item.value):
        for field in dataclasses.fields(item.value):
            assert re.search(rf"\b{field.name}\b", api[item.name]), f"{item.name}.{field.name}"


@pytest.mark.parametrize(
    "name",
    [
        "IPSPolicy.allocation",
        "IPSPolicy.segment_end",
        "PhasedPolicy.planned_counts",
        "PhasedPolicy.keep",
    ],
)
def test_hooks_for_subclasses_are_in_the_reference(name: str, api: dict[str, str]) -> None:
    assert "Subclasses must implement it." in api[name]


def test_choices_are_shown_as_such() -> None:
    """No alias of a type is shown as a function of anything."""
    pages = {one.name: object_pages()[one.place]() for one in items()}
    assert "Solver = Literal['exact', 'frank-wolfe']" in pages["steadyarm.policies.base.Solver"]
    for name, page in pages.items():
        assert "*args" not in page, name


@pytest.mark.parametrize("module", [*OBJECTS, *TOGETHER])
def test_what_else_can_be_imported_is_explained(module: str, api: dict[str, str]) -> None:
    for name in further_names(module):
        value = getattr(import_module(module), name)
        described = inspect.isroutine(value) or inspect.isclass(value)
        elsewhere = any(one.value is value for one in items())
        assert not described or elsewhere or api[f"{module}.{name}"], f"{module}.{name}"


@pytest.mark.parametrize("module", TOOLS)
def test_examples_of_the_tools(module: str) -> None:
    assert doctest.testmod(import_module(module)).failed == 0


def documented_bases(made: type) -> list[type]:
    """Bases that have a page themselves and are explained there."""
    values = [one.value for one in items()]
    return [base for base in made.__mro__[1:] if any(base is one for one in values)]


def defined_here(made: type, member: str) -> bool:
    """Whether a class of the package defines a member, not one that it derives from."""
    return any(member in vars(base) for base in made.__mro__ if "steadyarm" in base.__module__)
