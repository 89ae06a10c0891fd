"""The pages about Python: the public names in the groups of `steadyarm/__init__.pyi`, and what else
the packages offer. Everything said is a docstring or a signature.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import steadyarm
from tools.docs.docstrings import Linked, entries_of, escaped, markdown, read
from tools.docs.signatures import signature_of

__all__ = ["FURTHER", "api_page", "further_names", "groups", "modules_page", "public_members"]

PROPERTIES = (property, functools.cached_property)
FURTHER = (
    "steadyarm.environments",
    "steadyarm.paper",
    "steadyarm.theory",
    "steadyarm.designs",
    "steadyarm.segments",
    "steadyarm.policies",
    "steadyarm.policies.base",
    "steadyarm.testing.policies",
    "steadyarm.testing.environments",
    "steadyarm.policies.ips",
    "steadyarm.policies.phased",
    "steadyarm.inference",
    "steadyarm.live.scorecard",
    "steadyarm.live.scoring",
    "steadyarm.live.effects",
    "steadyarm.plot.chart",
    "steadyarm.plot.charts",
    "steadyarm.plot.matplotlib",
    "steadyarm.reports",
    "steadyarm.storages",
    "steadyarm.testing.storages",
)
API = """\
# Python

`import steadyarm as sa` gives all of these; `steadyarm.__all__` is the list. Made from the code of
version {version}. What else can be imported is in [other modules](modules.md).
"""
MODULES = """\
# Other modules

Names beyond those of [`steadyarm`](api.md) itself, for those who simulate, draw or extend. Made
from the code of version {version}. What is not listed may change without notice.
"""


def groups() -> dict[str, list[str]]:
    """The public names, by the comments above them in the package's own list."""
    text = Path(inspect.getfile(steadyarm)).with_suffix(".pyi").read_text()
    listed = text.partition("__all__ = [")[2].partition("]")[0]
    found: dict[str, list[str]] = {}
    for comment, name in re.findall(r'# (.+)|"(\w+)",', listed):
        if comment:
            found[comment[0].upper() + comment[1:]] = names = []
        else:
            names.append(name)
    return found


def api_page() -> str:
    """The page about the public names."""
    parts = [API.format(version=steadyarm.__version__)]
    linked = _linker({name: f"#{name}" for name in steadyarm.__all__})
    for title, names in groups().items():
        parts.append(f"## {title}")
        for name in names:
            parts += _about(name, getattr(steadyarm, name), name, linked)
    return "\n\n".join(parts) + "\n"


def further_names(module: str) -> list[str]:
    """What a module offers beyond the public names of the package."""
    found = import_module(module)
    known = [getattr(steadyarm, name) for name in steadyarm.__all__]
    return [
        name
        for name in getattr(found, "__all__", [])
        if not any(getattr(found, name) is one for one in known)
        and not isinstance(getattr(found, name), ModuleType)
    ]


def modules_page() -> str:
    """The page about what else can be imported."""
    parts = [MODULES.format(version=steadyarm.__version__)]
    places = {name: f"api.md#{name}" for name in steadyarm.__all__}
    for module in FURTHER:
        names = further_names(module)
        here = {name: f"#{module}.{name}" for name in names}
        linked = _linker(places | here)
        parts += [f"## {module}", markdown(read(import_module(module).__doc__), linked)]
        for name in names:
            made = getattr(import_module(module), name)
            parts += _about(name, made, f"{module}.{name}", linked)
    return "\n\n".join(part for part in parts if part) + "\n"


def public_members(made: type) -> dict[str, Any]:
    """What a class offers itself; what a public base offers is told there."""
    if any(base in _public() for base in made.__mro__[1:]):
        return {}
    found: dict[str, Any] = {}
    for base in made.__mro__:
        if not base.__module__.startswith("steadyarm"):
            continue
        for name, value in vars(base).items():
            inner = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            told = inspect.isfunction(inner) or isinstance(inner, PROPERTIES)
            if told and not name.startswith("_"):
                found.setdefault(name, value)
    return found


def _public() -> list[Any]:
    return [getattr(steadyarm, name) for name in steadyarm.__all__]


def _about(name: str, made: Any, anchor: str, linked: Linked) -> Iterator[str]:
    yield f"### {name} {{ #{anchor} }}"
    if isinstance(made, ModuleType):
        yield markdown(read(made.__doc__), linked)
        for inner in made.__all__:
            value = getattr(made, inner)
            if not isinstance(value, ModuleType):
                yield from _member(value, f"{anchor}.{inner}", f"{name}.{inner}", linked)
    elif inspect.isclass(made):
        yield from _about_class(name, made, anchor, linked)
    elif callable(made):
        yield f"```python\n{signature_of(name, made)}\n```"
        yield markdown(read(made.__doc__), linked)
    else:
        yield _about_value(made)


def _about_class(name: str, made: type, anchor: str, linked: Linked) -> Iterator[str]:
    if not issubclass(made, Exception):
        yield f"```python\nclass {signature_of(name, made)}\n```".replace(" -> None", "")
    base = next((one for one in made.__mro__[1:] if one in _public()), None)
    if base is not None:
        yield f"A {linked(f'`{base.__name__}`')}."
    yield markdown(read(made.__doc__), linked)
    yield _inherited(made, linked)
    members = public_members(made)
    facts = {inner: value for inner, value in members.items() if isinstance(value, PROPERTIES)}
    if facts:
        lines = [
            f"- `{inner}`: {markdown(read(value.__doc__), linked)}"
            for inner, value in facts.items()
        ]
        yield "\n".join(["**Properties**", "", *lines])
    for inner, value in members.items():
        if inner not in facts:
            yield from _member(value, f"{anchor}.{inner}", f"{name}.{inner}", linked)


def _inherited(made: type, linked: Linked) -> str:
    """Settings that bases explain."""
    own = [name for name, text in entries_of(made.__doc__).items() if text[:5] != "see `"]
    told: dict[str, str] = {}
    for base in made.__mro__[1:]:
        if base.__module__.startswith("steadyarm") and base not in _public():
            told = entries_of(base.__doc__) | told
    fields = getattr(made, "__dataclass_fields__", {})
    lines = [
        f"- `{name}`: {escaped(text, linked)}"
        for name, text in told.items()
        if name in fields and name not in own
    ]
    return "\n".join(["**Parameters it shares with others**", "", *lines]) if lines else ""


def _member(value: Any, anchor: str, shown: str, linked: Linked) -> Iterator[str]:
    yield f"#### {shown} {{ #{anchor} }}"
    inner = value.__func__ if isinstance(value, (classmethod, staticmethod, MethodType)) else value
    bound = not isinstance(value, staticmethod) and "." in inner.__qualname__
    yield f"```python\n{signature_of(shown, inner, bound)}\n```"
    yield markdown(read(inner.__doc__), linked)


def _about_value(made: Any) -> str:
    if isinstance(made, dict):
        return f"A dictionary of {', '.join(f'`{key}`' for key in made)}."
    if isinstance(made, (list, tuple)):
        names = [getattr(one, "__name__", repr(one)) for one in made]
        return f"A list of {', '.join(f'`{name}`' for name in names)}."
    return f"```text\n{made}\n```"


def _linker(places: dict[str, str]) -> Linked:
    def linked(code: str) -> str:
        name = code.strip("`").removesuffix("()").removeprefix("sa.")
        place = places.get(name) or places.get(name.partition(".")[0])
        if place is None:
            return code
        rest = f".{name.partition('.')[2]}" if _is_method(name) else ""
        return f"[{code}]({place}{rest})"

    return linked


def _is_method(name: str) -> bool:
    first, _, rest = name.partition(".")
    made = getattr(steadyarm, first, None)
    if inspect.isclass(made):
        members = public_members(made)
        return rest in members and not isinstance(members[rest], PROPERTIES)
    return isinstance(made, ModuleType) and rest in made.__all__
