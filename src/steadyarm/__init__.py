"""SteadyArm: find the best of many variants, also when user behaviour changes.

`__init__.pyi` lists the public names, for people, type checkers and this file. Names and submodules
are imported on first use (Scientific Python's SPEC 1).
"""

import ast
from importlib import import_module
from typing import Any

__version__ = "1.0.0"

with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:
    _body = ast.parse(_stub.read()).body
_PLACES = {
    alias.name: node.module
    for node in _body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = next(ast.literal_eval(node.value) for node in _body if isinstance(node, ast.Assign))


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _PLACES[name] == __name__:
        return import_module(f"{__name__}.{name}")
    globals()[name] = value = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
