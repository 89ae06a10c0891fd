"""What the docstrings of public objects leave out: `python -m tools.docs.completeness` lists it.

A public object needs a summary, all parameters described, a section Returns if it returns
something, and an example. A method needs a summary that names its parameters, or a list of them.
What a base describes counts, and what an interface of another library defines is described there.
Answers of the service need no example: their docstrings are part of the OpenAPI document.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from types import MethodType
from typing import Any

from tools.docs.api import PROPERTIES, docstring_of, items, own_members
from tools.docs.docstrings import entries_of, read, summary_of

__all__ = ["left_out", "left_out_of_methods"]

NOTHING = ("None", "NoReturn", "Iterator[None]")


def left_out(module: str, name: str, value: Any) -> list[str]:
    """What the docstring of an object leaves out, in words."""
    text = docstring_of(module, name)
    found = [] if summary_of(text) else ["a summary"]
    if not (inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__")):
        return found  # a value says in its text what it is for
    described = entries_of(text)
    if inspect.isclass(value):
        for base in value.__mro__[1:]:
            described = entries_of(base.__doc__) | described
    found += [f"the parameter {one}" for one in _parameters(value) if one not in described]
    if not inspect.isclass(value) and _returns(value) and not _has(text, "Returns", "Yields"):
        found.append("what it returns")
    if not (_has(text, "Examples") and ">>> " in text) and "steadyarm.wire" not in value.__module__:
        found.append("an example")
    return found


def left_out_of_methods(made: type) -> Iterator[tuple[str, str]]:
    """Methods of a class, and what their docstrings leave out."""
    for name, value in own_members(made).items():
        text = inspect.cleandoc(value.__doc__ or "")
        if not summary_of(text):
            yield name, "a summary"
        if isinstance(value, PROPERTIES) or _foreign(made, name):
            continue
        inner: Callable[..., Any] = getattr(value, "__func__", value)
        told = entries_of(text).keys() | entries_of(made.__doc__).keys()
        bound = not isinstance(value, staticmethod)
        for one in _parameters(inner, bound):
            if one not in told and not re.search(rf"\b{one}\b", text):
                yield name, f"the parameter {one}"


def _foreign(made: type, name: str) -> bool:
    """Whether a base from another library has a method of that name."""
    others = [base for base in made.__mro__ if not base.__module__.startswith("steadyarm")]
    return any(name in vars(base) for base in others)


def _has(text: str, *titles: str) -> bool:
    return any(block.kind == "title" and block.text in titles for block in read(text))


def _parameters(made: Any, bound: bool = False) -> list[str]:
    if inspect.isclass(made) and (
        issubclass(made, Exception | Enum) or getattr(made, "_is_protocol", False)
    ):
        return []
    names = list(inspect.signature(made).parameters)
    skip = bound and not isinstance(made, MethodType)
    return [name for name in names[1 if skip else 0 :] if not name.startswith("_")]


def _returns(made: Any) -> bool:
    annotation = inspect.signature(made).return_annotation
    return annotation is not None and str(annotation) not in NOTHING


if __name__ == "__main__":
    for item in items():
        gaps = left_out(item.module, item.short, item.value)
        if gaps:
            print(f"{item.name}: {', '.join(gaps)}")
        if inspect.isclass(item.value):
            for method, gap in left_out_of_methods(item.value):
                print(f"    {item.name}.{method}: {gap}")
