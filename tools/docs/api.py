"""The pages about Python: one for each public object, and an index of them.

Everything said is a docstring or a signature. The objects are the public names, in the groups of
`steadyarm/__init__.pyi`, and those that the modules in `OBJECTS` offer; what the modules in
`TOGETHER` offer stands on one page for each module.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any, get_args, get_origin

import steadyarm
from tools.docs.docstrings import Linked, cell, entries_of, escaped, markdown, read, summary_of
from tools.docs.signatures import signature_of

__all__ = [
    "INDEX",
    "OBJECTS",
    "TOGETHER",
    "Item",
    "docstring_of",
    "further_names",
    "groups",
    "index_page",
    "items",
    "navigation",
    "object_pages",
    "own_members",
]

PROPERTIES = (property, functools.cached_property)
FOLDER = "reference/python"
INDEX = f"{FOLDER}/index.md"
OBJECTS = {  # modules whose objects have a page each, and what they are for
    "steadyarm.live.settings": "Settings of live tests",
    "steadyarm.plot": "Charts",
    "steadyarm.theory": "Theory",
    "steadyarm.environments": "More environments",
    "steadyarm.designs": "More about designs",
    "steadyarm.policies": "Policies by name",
    "steadyarm.policies.base": "Write a policy",
    "steadyarm.policies.ips": "Write a policy by inverse propensities",
    "steadyarm.policies.phased": "Write a policy that eliminates arms",
    "steadyarm.segments": "Segments",
    "steadyarm.inference": "Intervals, drift and health",
    "steadyarm.reports": "Reports",
    "steadyarm.testing.policies": "Check your own policy",
    "steadyarm.testing.environments": "Check your own environment",
    "steadyarm.testing.storages": "Check your own storage",
    "steadyarm.client": "The client",
    "steadyarm.openfeature": "OpenFeature",
}
TOGETHER = (  # modules whose objects share a page
    "steadyarm.paper",
    "steadyarm.storages",
    "steadyarm.plot.matplotlib",
    "steadyarm.plot.chart",
    "steadyarm.plot.charts",
    "steadyarm.live.scorecard",
    "steadyarm.live.scoring",
    "steadyarm.live.effects",
)
ONLY = {"steadyarm.live.settings": ["Settings"]}  # of a module without a list of what it offers
INNER = {  # names that modules offer to each other alone
    "steadyarm.segments": {
        "CACHED",
        "Columns",
        "Draws",
        "columns_between",
        "compact_columns",
        "drawn_together",
    },
    "steadyarm.policies.base": {"best_of_many", "read_array"},
    "steadyarm.policies.ips": {"BLOCKS_PER_FIT"},
}
TOP = """\
# Python

`import steadyarm as sa` gives the names in the first tables; `steadyarm.__all__` is the list.
Names of modules are imported from there, such as `from steadyarm.theory import rho_star`. What is
not listed here may change without notice. Made from the code of version {version}.
"""


@dataclass(frozen=True, eq=False)
class Item:
    """An object with a page of its own.

    Attributes
    ----------
    name : as it is written, with its module unless `steadyarm` itself offers it
    value : the object
    group : the heading in the index
    place : its page
    """

    name: str
    value: Any
    group: str
    place: str

    @property
    def short(self) -> str:
        """The name alone."""
        return self.name.rpartition(".")[2]

    @property
    def module(self) -> str:
        """Where it is imported from."""
        return self.name.rpartition(".")[0] or "steadyarm"

    @property
    def shown(self) -> str:
        """The name as programs write it: functions of `steadyarm.plot` have its name in front."""
        return f"plot.{self.short}" if self.module == "steadyarm.plot" else self.short


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


def further_names(module: str) -> list[str]:
    """What a module offers to users beyond the public names of the package."""
    found = import_module(module)
    known = [getattr(steadyarm, name) for name in steadyarm.__all__]
    return [
        name
        for name in ONLY.get(module, getattr(found, "__all__", []))
        if not any(getattr(found, name) is one for one in known)
        and not isinstance(getattr(found, name), ModuleType)
        and name not in INNER.get(module, ())
    ]


@functools.cache
def items() -> tuple[Item, ...]:
    """All objects with a page of their own, in the order of the index."""
    found: list[Item] = []
    taken: set[str] = set()

    def add(name: str, value: Any, group: str) -> None:
        module, _, short = name.rpartition(".")
        place = posixpath.join(FOLDER, module.removeprefix("steadyarm").lstrip("."), short)
        # `Plan` and `plan` are the same file where file systems ignore the case.
        place += "-class" * (place.lower() in taken)
        taken.add(place.lower())
        found.append(Item(name, value, group, f"{place}.md"))

    for group, names in groups().items():
        for name in sorted(names, key=lambda name: (name[0].isupper(), name)):
            value = getattr(steadyarm, name)
            if not isinstance(value, ModuleType):
                add(name, value, group)
    for module, title in OBJECTS.items():
        for name in further_names(module):
            value = getattr(import_module(module), name)
            twice = callable(value) and any(one.value is value for one in found)
            if not twice:
                add(f"{module}.{name}", value, title)
    return tuple(found)


def index_page() -> str:
    """All objects with their summaries, and the pages of further modules."""
    parts = [TOP.format(version=steadyarm.__version__)]
    for group, module, members in _grouped():
        parts.append(f"## {group}")
        if module != "steadyarm":
            parts.append(f"`{module}`: {_summary(import_module(module).__doc__)}")
        parts.append(
            "\n".join(
                ["| | |", "| --- | --- |"]
                + [
                    f"| [`{one.shown}`]({posixpath.relpath(one.place, FOLDER)}) "
                    f"| {_summary(docstring_of(one.module, one.short))} |"
                    for one in members
                ]
            )
        )
    parts.append("## Further modules")
    parts.append(
        "For those who draw, report, store or infer by themselves; a page for each module."
    )
    parts.append(
        "\n".join(
            ["| | |", "| --- | --- |"]
            + [
                f"| [`{module}`]({posixpath.relpath(_place_of(module), FOLDER)}) "
                f"| {_summary(import_module(module).__doc__)} |"
                for module in TOGETHER
            ]
        )
    )
    return "\n\n".join(parts) + "\n"


def object_pages() -> dict[str, Callable[[], str]]:
    """Pages of objects and of further modules, by their place: what makes each."""
    found: dict[str, Callable[[], str]] = {
        one.place: functools.partial(_object_page, one) for one in items()
    }
    return found | {_place_of(one): functools.partial(_module_page, one) for one in TOGETHER}


def navigation() -> list[dict[str, Any]]:
    """The objects as a part of the site's navigation."""
    found: list[dict[str, Any]] = [{"All objects": INDEX}]
    found += [
        {group: [{one.shown: one.place} for one in members]} for group, _, members in _grouped()
    ]
    modules = [{one.removeprefix("steadyarm."): _place_of(one)} for one in TOGETHER]
    return [*found, {"Further modules": modules}]


def docstring_of(module: str, name: str) -> str:
    """What is written of an object: its docstring, or the text below the assignment of a value."""
    value = getattr(import_module(module), name)
    if inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__"):
        return inspect.cleandoc(value.__doc__ or "")
    return _below(module, name)


def own_members(made: type) -> dict[str, Any]:
    """Methods and properties of a class that no documented base has."""
    known = {name for base in _documented_bases(made) for name in dir(base)}
    found: dict[str, Any] = {}
    for base in made.__mro__:
        if not base.__module__.startswith("steadyarm"):
            continue
        for name, value in vars(base).items():
            inner = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            told = inspect.isfunction(inner) or isinstance(inner, PROPERTIES)
            if told and not name.startswith("_") and name not in known:
                found.setdefault(name, value)
    return found


def _grouped() -> Iterator[tuple[str, str, list[Item]]]:
    for group in dict.fromkeys(one.group for one in items()):
        members = [one for one in items() if one.group == group]
        yield group, members[0].module, members


def _summary(docstring: str | None) -> str:
    return cell(summary_of(docstring))


def _place_of(module: str) -> str:
    return f"reference/modules/{module.removeprefix('steadyarm.')}.md"


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(Path(inspect.getfile(import_module(module))).read_text())


def _below(module: str, name: str) -> str:
    """The text below the assignment of a name, in the module that assigns it."""
    body = _tree(module).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            told = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            return inspect.cleandoc(str(following.value.value)) if told else ""  # type: ignore[union-attr]  # told says so
        if isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                if (one.asname or one.name) == name:
                    return _below(node.module, one.name)
    return ""


@functools.cache
def _places() -> dict[str, str]:
    """Pages by name; names without a module lead to the first object that has them."""
    found = {one.name: one.place for one in items()}
    for one in items():
        found.setdefault(one.shown, one.place)
    for one in items():
        if one.module != "steadyarm.plot":  # others have methods called so
            found.setdefault(one.short, one.place)
    return found


def _object_page(item: Item) -> str:
    linked = _linker(item.place)
    parts = [f"# {item.shown} {{ #{item.name} }}"]
    imported = "import steadyarm as sa" if item.module == "steadyarm" else ""
    if not imported:
        imported = f"from {item.module} import {item.short}"
        if item.module == "steadyarm.plot":
            imported = f"import steadyarm as sa  # sa.{item.shown}"
    else:
        imported += f"  # sa.{item.shown}"
    parts.append(f"```python\n{imported}\n```")
    parts += _about(item.shown, item.value, docstring_of(item.module, item.short), linked, 2)
    return "\n\n".join(part for part in parts if part) + "\n"


def _module_page(module: str) -> str:
    linked = _linker(_place_of(module))
    parts = [f"# {module}", markdown(read(import_module(module).__doc__), linked)]
    for name in further_names(module):
        value = getattr(import_module(module), name)
        parts.append(f"## {name} {{ #{module}.{name} }}")
        parts += _about(name, value, docstring_of(module, name), linked, 3)
    return "\n\n".join(part for part in parts if part) + "\n"


def _about(name: str, made: Any, docstring: str, linked: Linked, level: int) -> Iterator[str]:
    if inspect.isclass(made):
        yield from _about_class(name, made, linked, level)
    elif inspect.isroutine(made) or hasattr(made, "__wrapped__"):
        yield f"```python\n{signature_of(name, made)}\n```"
        yield markdown(read(docstring), linked)
    else:
        yield _about_value(name, made)
        yield markdown(read(docstring), linked)


def _about_class(name: str, made: type, linked: Linked, level: int) -> Iterator[str]:
    if issubclass(made, Enum) or getattr(made, "_is_protocol", False):
        yield f"```python\nclass {name}({made.__mro__[1].__name__})\n```"
    elif not issubclass(made, Exception):
        yield f"```python\nclass {signature_of(name, made)}\n```".replace(" -> None", "")
    bases = _documented_bases(made)
    if bases:
        yield f"A {linked(f'`{bases[0].__name__}`')}, which explains the methods that it shares."
    yield markdown(read(made.__doc__), linked)
    yield _inherited(made, linked)
    members = own_members(made)
    facts = {inner: value for inner, value in members.items() if isinstance(value, PROPERTIES)}
    if facts:
        lines = [
            f"- `{inner}`: {markdown(read(value.__doc__), linked)}"
            for inner, value in facts.items()
        ]
        yield "\n".join(["**Properties**", "", *lines])
    for inner, value in members.items():
        if inner not in facts:
            yield from _member(value, f"{name}.{inner}", linked, level)


def _inherited(made: type, linked: Linked) -> str:
    """Settings that bases explain."""
    own = [name for name, text in entries_of(made.__doc__).items() if text[:5] != "see `"]
    told: dict[str, str] = {}
    for base in made.__mro__[1:]:
        if base.__module__.startswith("steadyarm"):
            told = entries_of(base.__doc__) | told
    fields = (
        [one.name for one in dataclasses.fields(made)] if dataclasses.is_dataclass(made) else []
    )
    lines = [
        f"- `{name}`: {escaped(text, linked)}"
        for name, text in told.items()
        if name in fields and name not in own
    ]
    return "\n".join(["**Parameters it shares with others**", "", *lines]) if lines else ""


def _member(value: Any, shown: str, linked: Linked, level: int) -> Iterator[str]:
    abstract = getattr(value, "__isabstractmethod__", False)
    yield f"{'#' * level} {shown} {{ #{shown} }}"
    inner = value.__func__ if isinstance(value, (classmethod, staticmethod, MethodType)) else value
    bound = not isinstance(value, staticmethod) and "." in inner.__qualname__
    yield f"```python\n{signature_of(shown, inner, bound)}\n```"
    if abstract:
        yield "*Subclasses must implement it.*"
    yield markdown(read(inner.__doc__), linked)


def _about_value(name: str, made: Any) -> str:
    if get_origin(made) is not None or get_args(made):
        shown = inspect.formatannotation(made).replace("typing.", "")
        shown = re.sub(r"\b(?:steadyarm|collections)\.(?:\w+\.)+", "", shown)
        return f"```python\n{name} = {shown}\n```"
    if isinstance(made, dict):
        return f"A dictionary of {', '.join(f'`{key}`' for key in made)}."
    if isinstance(made, (list, tuple)):
        names = [getattr(one, "__name__", repr(one)) for one in made]
        return f"A tuple of {', '.join(f'`{name}`' for name in names)}."
    return f"```text\n{name} = {made}\n```"


@functools.cache
def _documented_bases(made: type) -> list[type]:
    """Bases that have a page themselves, nearest first."""
    known = [one.value for one in items()]
    return [base for base in made.__mro__[1:] if any(base is one for one in known)]


def _linker(page: str) -> Linked:
    folder = posixpath.dirname(page)

    def linked(code: str) -> str:
        name = code.strip("`").removesuffix("()").removeprefix("sa.")
        first, _, rest = name.partition(".")
        place = _places().get(name) or _places().get(first)
        if place is None or place == page:
            return code
        anchor = f"#{name}" if name not in _places() and _is_method(place, rest) else ""
        return f"[{code}]({posixpath.relpath(place, folder)}{anchor})"

    return linked


def _is_method(place: str, member: str) -> bool:
    made = next(one.value for one in items() if one.place == place)
    found = own_members(made).get(member) if inspect.isclass(made) else None
    return found is not None and not isinstance(found, PROPERTIES)
