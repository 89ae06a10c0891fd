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
from tools.docs.api import FURTHER, api_page, modules_page

# Without the migrations, which are no package: Alembic says what these have to hold.
MODULES = [one.name for one in pkgutil.walk_packages(steadyarm.__path__, "steadyarm.")]
TOOLS = [f"tools.docs.{one.name}" for one in pkgutil.iter_modules(tools.docs.__path__)]
CLASSES = [name for name in steadyarm.__all__ if inspect.isclass(getattr(steadyarm, name))]


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
    return sections(api_page())


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


def test_every_public_name_is_in_the_reference_and_explained(api: dict[str, str]) -> None:
    for name in steadyarm.__all__:
        assert len(api[name]) > 20, f"{name} is not explained"


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_and_property_is_explained(name: str, api: dict[str, str]) -> None:
    made = getattr(steadyarm, name)
    theirs = {one for base in public_bases(made) for one in dir(base)}
    for member in set(dir(made)) - theirs - set(dir(Exception)):
        value: Any = inspect.getattr_static(made, member)
        if member.startswith("_"):
            continue
        if isinstance(value, (property, functools.cached_property)):
            assert public_bases(made) or f"- `{member}`: " in api[name], f"{name}.{member}"
            assert value.__doc__
        elif inspect.isroutine(value) and not public_bases(made):
            assert len(api[f"{name}.{member}"]) > 10, f"{name}.{member} is not explained"


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_is_named_where_its_class_is_explained(name: str, api: dict[str, str]) -> None:
    made = getattr(steadyarm, name)
    if dataclasses.is_dataclass(made):
        for field in dataclasses.fields(made):
            assert re.search(rf"\b{field.name}\b", api[name]), f"{name}.{field.name}"


@pytest.mark.parametrize("module", FURTHER)
def test_what_else_can_be_imported_is_explained(module: str) -> None:
    page = sections(modules_page())
    found = import_module(module)
    for name in getattr(found, "__all__", []):
        value = getattr(found, name)
        public = any(value is getattr(steadyarm, one) for one in steadyarm.__all__)
        if not public and not isinstance(value, ModuleType):
            described = inspect.isroutine(value) or inspect.isclass(value)
            assert not described or page[f"{module}.{name}"], f"{module}.{name} is not explained"


@pytest.mark.parametrize("module", TOOLS)
def test_examples_of_the_tools(module: str) -> None:
    assert doctest.testmod(import_module(module)).failed == 0


def public_bases(made: type) -> list[type]:
    """Bases that are public names themselves and explained there."""
    names = [getattr(steadyarm, name) for name in steadyarm.__all__]
    return [base for base in made.__mro__[1:] if base in names]
