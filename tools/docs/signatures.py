"""Signatures as people write them: annotations from the source, one line if it fits."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["signature_of"]

WIDTH = 88
KINDS = inspect.Parameter
STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}


def signature_of(name: str, made: Any, bound: bool = False) -> str:
    """How something is called.

    Parameters
    ----------
    bound : whether the first parameter, self or cls, is left out

    Examples
    --------
    >>> def draw(self, size: int, *, seed: int | None = None) -> list[int]: ...
    >>> signature_of("draw", draw, bound=True)
    'draw(size: int, *, seed: int | None = None) -> list[int]'
    """
    try:
        found = inspect.signature(made)
    except (TypeError, ValueError):  # exceptions and protocols have none of their own
        return name
    parameters = list(found.parameters.values())[1 if bound else 0 :]
    pieces, star = [], False
    for parameter in parameters:
        if parameter.kind is KINDS.KEYWORD_ONLY and not star:
            pieces.append("*")
            star = True
        star = star or parameter.kind is KINDS.VAR_POSITIONAL
        pieces.append(_piece(parameter))
    returned = found.return_annotation
    answer = "" if returned is inspect.Signature.empty else f" -> {_type(returned)}"
    line = f"{name}({', '.join(pieces)}){answer}"
    if len(line) <= WIDTH or not pieces:
        return line
    return f"{name}(\n" + "".join(f"    {piece},\n" for piece in pieces) + f"){answer}"


def _piece(parameter: inspect.Parameter) -> str:
    text = STARS.get(parameter.kind.name, "") + parameter.name
    annotated = parameter.annotation is not KINDS.empty
    if annotated:
        text += f": {_type(parameter.annotation)}"
    if parameter.default is not KINDS.empty:
        text += (" = " if annotated else "=") + _default(parameter.default)
    return text


def _type(annotation: Any) -> str:
    return str(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


def _default(value: Any) -> str:
    if inspect.isroutine(value):
        return f"{value.__module__}.{value.__qualname__}"
    text = repr(value)
    return "…" if text.startswith("<") else text
