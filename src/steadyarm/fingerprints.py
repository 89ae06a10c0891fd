"""Hashes of what functions and objects hold, the same in every process: never of an address.

A world or policy of a user is code and data: a function with what it closes over, its defaults and
the global variables it reads; an object with its fields and the code of its class. Two of them are
taken for the same only if all of that is the same.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

SCALARS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
GENERATED = (  # methods that @dataclass writes
    "__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__replace__",
    "__lt__", "__le__", "__gt__", "__ge__", "__getstate__", "__setstate__",
)  # fmt: skip  # a table reads better so
INSTALLED = ("site-packages", "dist-packages")


class Content(NamedTuple):
    """What something holds.

    fingerprint : the same in every process that has the same; empty if there is none
    sources : hash of the text of all modules that its code is from, but for SteadyArm's and
        Python's own; empty if there are none
    obstacle : what has no content that could be compared; empty if there is a fingerprint
    """

    fingerprint: str
    sources: str
    obstacle: str


def content_of(thing: Any) -> Content:
    """What a function, class or object holds.

    An object whose class has an attribute `fingerprint` of its own is known by that.

    Examples
    --------
    >>> def maker(slope):
    ...     return lambda x: slope * x
    >>> one, same, other = (content_of(maker(slope)).fingerprint for slope in (1, 1, 2))
    >>> one == same, one == other
    (True, False)
    >>> import threading
    >>> content_of(threading.Lock()).obstacle
    'an object of the type _thread.lock'
    """
    walk = _Walk()
    obstacle = ""
    try:
        walk.visit(thing)
    except _NothingToCompareError as found:
        obstacle = str(found)
    return Content("" if obstacle else walk.hexdigest(), _sources(walk.modules), obstacle)


def declared_fingerprint(thing: Any) -> str | None:
    """What an object says itself; None if its class adds to one of ours without saying so."""
    kind = type(thing)
    owner = next((c for c in kind.__mro__ if "fingerprint" in vars(c)), None)
    if owner is None or (_ours(owner.__module__) and not _ours(kind.__module__)):
        return None
    return str(thing.fingerprint)


class _NothingToCompareError(Exception):
    """Something has no content that is the same in another process."""


class _Walk:
    """Visits everything that something refers to, in an order that does not depend on addresses."""

    def __init__(self) -> None:
        self.modules: set[str | None] = set()
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}  # by address, in the order of the visits
        self._kept: list[Any] = []  # so that addresses are not used again

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def _put(self, kind: str, content: str | bytes = b"") -> None:
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        self._hash.update(f"{kind} {len(data)} ".encode() + data)

    def visit(self, thing: Any) -> None:
        """Add what this is, with all that it refers to."""
        kind = type(thing)
        if kind in SCALARS:
            self._put(kind.__name__, repr(thing))
        elif kind is tuple:
            self._several("tuple", thing)
        elif kind is frozenset or kind is set:
            self._unordered(kind.__name__, thing)
        elif kind is np.ndarray or kind is np.memmap or isinstance(thing, np.generic):
            self._array(np.asarray(thing))
        elif kind is types.CodeType:
            self._code(thing)
        elif kind is types.ModuleType:
            self.modules.add(thing.__name__)
            self._put("module", _proper(thing.__name__))
        elif id(thing) in self._seen:
            self._put("again", str(self._seen[id(thing)]))
        else:
            self._seen[id(thing)] = len(self._seen)
            self._kept.append(thing)
            self._visit_new(thing, kind)

    def _visit_new(self, thing: Any, kind: type) -> None:
        if kind is list:
            self._several("list", thing)
        elif kind is dict:
            self._several("dict", [part for pair in thing.items() for part in pair])
        elif kind is types.FunctionType:
            self._function(thing)
        elif isinstance(thing, type):
            self._class(thing)
        elif isinstance(thing, property):
            self._several("property", (thing.fget, thing.fset, thing.fdel))
        elif isinstance(thing, staticmethod | classmethod):
            self._several(kind.__name__, (thing.__func__,))
        elif isinstance(thing, functools.cached_property):
            self._several("cached_property", (thing.func,))
        elif callable(thing) and hasattr(thing, "__wrapped__"):  # a cache, or a compiled function
            self._several("wrapper", (thing.__wrapped__,))
        elif thing is np.random.mtrand._rand:  # the global one
            self._put("numpy.random")
        else:
            self._object(thing, kind)

    def _several(self, kind: str, parts: Iterable[Any]) -> None:
        listed = list(parts)
        self._put(kind, str(len(listed)))
        for part in listed:
            self.visit(part)

    def _unordered(self, kind: str, parts: Iterable[Any]) -> None:
        found = [content_of(part) for part in parts]
        for one in found:
            if one.obstacle:
                raise _NothingToCompareError(one.obstacle)
        self._put(kind, " ".join(sorted(one.fingerprint for one in found)))

    def _array(self, array: Any) -> None:
        self._put("array", f"{array.dtype.descr} {array.shape}")
        if array.dtype.hasobject:
            self._several("objects", array.ravel().tolist())
        else:
            self._put("data", array.tobytes())

    def _code(self, code: types.CodeType) -> None:
        self._put("code", code.co_code)
        signature = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        self._several("code", (*signature, *names, code.co_consts))

    def _named(self, thing: Any) -> None:
        """What comes with SteadyArm, Python or another package is known by its name."""
        self._put("named", f"{thing.__module__}:{thing.__qualname__}")

    def _function(self, function: types.FunctionType) -> None:
        self.modules.add(function.__module__)
        own = _own(function.__module__)
        if own:
            self.visit(function.__code__)
            self.visit(function.__defaults__)
            self.visit(function.__kwdefaults__)
            attributes = {k: v for k, v in vars(function).items() if k != "__wrapped__"}
            self._several("attributes", attributes.items())
        else:
            self._named(function)
        for cell in function.__closure__ or ():
            try:
                self.visit(cell.cell_contents)
            except ValueError:
                self._put("empty cell")
        if own:
            for name in _global_names(function.__code__):
                if name in function.__globals__:
                    self._put("global", name)
                    self._visit_or_name(function.__globals__[name])

    def _class(self, given: type) -> None:
        self.modules.add(given.__module__)
        if not _own(given.__module__):
            self._named(given)
            return
        self._put("class", given.__qualname__)
        self._several("bases", given.__bases__)
        generated = GENERATED if "__dataclass_fields__" in vars(given) else ()
        for name, member in sorted(vars(given).items()):
            special = name.startswith("__") and name.endswith("__")
            if name.startswith("_abc_") or name in generated or name.startswith("__annotat"):
                continue
            if special and not isinstance(member, types.FunctionType | staticmethod | classmethod):
                continue
            self._put("member", name)
            self._visit_or_name(member)

    def _visit_or_name(self, value: Any) -> None:
        """A global variable or member of a class; their modules' text says what else they are."""
        before, known = self._hash.copy(), len(self._kept)
        try:
            self.visit(value)
        except _NothingToCompareError:
            self._hash = before
            for thing in self._kept[known:]:
                del self._seen[id(thing)]
            del self._kept[known:]
            self._put("something", type(value).__qualname__)

    def _object(self, thing: Any, kind: type) -> None:
        if declared := declared_fingerprint(thing):
            self.visit(kind)
            self._put("fingerprint", declared)
            for value in getattr(thing, "__dict__", {}).values():
                if callable(value):  # of a world of ours, with the text of its module
                    self.visit(value)
            return
        try:
            reduced = thing.__reduce_ex__(4)
        except Exception:  # whatever its class raises: locks, files, connections
            reduced = None
        if reduced is None:
            name = f"{kind.__module__}.{kind.__qualname__}"
            raise _NothingToCompareError(f"an object of the type {name}")
        if isinstance(reduced, str):
            self._put("named", f"{getattr(thing, '__module__', '')}:{reduced}")
            return
        for part in reduced:
            if isinstance(part, Iterator):
                self._several("items", part)
            elif type(part) is dict:
                self._several("state", _without_caches(part, kind).items())
            else:
                self.visit(part)


def _without_caches(state: dict[Any, Any], kind: type) -> dict[Any, Any]:
    """The fields of an object; what it has computed from them is left out."""
    computed = {
        name
        for each in kind.__mro__
        for name, member in vars(each).items()
        if isinstance(member, functools.cached_property)
    }
    return {name: value for name, value in state.items() if name not in computed}


@functools.lru_cache(maxsize=4096)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """Names of the global variables that a function reads, its inner functions included."""
    names = {
        step.argval
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_global_names(constant))
    return tuple(sorted(names))


# Where code is from.


def _proper(module: str) -> str:
    """A script is called otherwise in the processes that it starts."""
    return "__main__" if module == "__mp_main__" else module


def _ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] == "steadyarm"


def _own(module: str | None) -> bool:
    """Whether a user wrote it: not SteadyArm's, not Python's, not an installed package's."""
    if module is None or _ours(module):
        return module is None
    if module.partition(".")[0] in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not any(folder in file for folder in INSTALLED)


def _sources(modules: Iterable[str | None]) -> str:
    """Hash of the text of these modules and of the user's modules that they import."""
    waiting, found = {name for name in modules if name and not _ours(name)}, set()
    while waiting:
        name = waiting.pop()
        found.add(name)
        if _own(name):
            waiting |= _imported(name) - found
    texts = sorted(filter(None, map(_text, found)))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest() if texts else ""


def _imported(name: str) -> set[str]:
    """The user's modules that a module has something of."""
    names = set()
    for value in list(vars(sys.modules.get(name, types)).values()):
        of = value.__name__ if isinstance(value, types.ModuleType) else None
        of = of or getattr(value, "__module__", None)
        if isinstance(of, str) and of in sys.modules and _own(of):
            names.add(of)
    return names


@functools.cache
def _text(module: str) -> str:
    """The text of a module that was loaded; empty for Python's own and what was typed in."""
    if module.partition(".")[0] in sys.stdlib_module_names or module not in sys.modules:
        return ""
    try:
        return inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return ""
