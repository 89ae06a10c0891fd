"""Docstrings of public objects: a summary, all parameters, what is returned, and an example."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tools.docs import completeness
from tools.docs.api import Item, items
from tools.docs.completeness import left_out, left_out_of_methods

ITEMS = [pytest.param(one, id=one.name) for one in items()]
CLASSES = [pytest.param(one, id=one.name) for one in items() if inspect.isclass(one.value)]


@pytest.mark.parametrize("item", ITEMS)
def test_every_object_says_what_it_takes_and_returns_and_has_an_example(item: Item) -> None:
    """Pytest runs the examples: it collects the doctests of all modules."""
    assert left_out(item.module, item.short, item.value) == []


@pytest.mark.parametrize("item", CLASSES)
def test_every_method_says_what_it_takes(item: Item) -> None:
    assert list(left_out_of_methods(item.value)) == []


class Silent:
    """Something."""

    def move(self, step: int, far: bool = False) -> int:
        """Go one step."""
        return step

    def turn(self, angle: float) -> None:
        return None


def test_what_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(value: float, part: int = 2) -> float:
        """A share of a value.

        Parameters
        ----------
        value : any number
        """
        return value / part

    monkeypatch.setattr(completeness, "docstring_of", _docstring)
    missing = ["the parameter part", "what it returns", "an example"]
    assert left_out("tests", "half", half) == missing
    found = list(left_out_of_methods(Silent))
    assert found == []  # a class that is not of the package has no members of its own
    monkeypatch.setattr(Silent, "__module__", "steadyarm.silent")
    found = list(left_out_of_methods(Silent))
    assert found == [
        ("move", "the parameter far"),
        ("turn", "a summary"),
        ("turn", "the parameter angle"),
    ]


def _docstring(module: str, name: str) -> str:
    texts: dict[str, Any] = {
        "half": "A share of a value.\n\nParameters\n----------\nvalue : any number"
    }
    return str(texts[name])
