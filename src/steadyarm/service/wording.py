"""What is wrong with a request, in words: what was given, what was expected, what was meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from steadyarm.answers import shortened
from steadyarm.wording import did_you_mean

__all__ = ["in_words", "not_a_text"]

SHOWN = 5  # wrong values that are told
MEANT = {"id": ("assignment", "the assignment's id goes into assignment")}
WITH_ARTICLE = {"name", "unit", "reward", "assignment", "position"}


def in_words(error: ValidationError, model: type[BaseModel], given: Any) -> str:
    """Which values are wrong, what was expected, and what was probably meant; whole sentences."""
    told: dict[tuple[Any, ...], str] = {}  # a value that is one of many kinds is told once
    for wrong in error.errors(include_url=False):
        place, sentence = _sentence(wrong, model, given)
        told.setdefault(place, sentence)
    sentences = list(told.values())
    more = [f"And {len(sentences) - SHOWN} more."] if len(sentences) > SHOWN else []
    return " ".join(sentences[:SHOWN] + more)


def not_a_text(what: str, given: Any) -> str:
    """A number or something else where a text must be.

    Examples
    --------
    >>> print(not_a_text("the unit", 3))
    the unit is 3; expected a text: send it as "3".
    """
    number = isinstance(given, int | float) and not isinstance(given, bool)
    how = f': send it as "{shortened(given)}"' if number else ""
    return f"{what} is {shortened(given)}; expected a text{how}."


def _sentence(
    wrong: Any, model: type[BaseModel], given: Any, path: str = "", place: tuple[Any, ...] = ()
) -> tuple[tuple[Any, ...], str]:
    loc: Sequence[Any] = wrong["loc"][len(place) :]
    keys = tuple(model.model_fields)
    if not loc:
        if wrong["type"] == "value_error":
            return (*place, ""), f"{path and path + ': '}{wrong['ctx']['error']}."
        what = path or "the body"
        return (*place, ""), f"{what} is {shortened(given)}; expected an object{_with(keys)}."
    key = loc[0]
    if wrong["type"] == "extra_forbidden":
        return (*place, key), _unknown(str(key), keys, path)
    field = model.model_fields[key]
    name = f"{path}.{key}" if path else f"the {key}" if key in WITH_ARTICLE else key
    if wrong["type"] == "missing" and len(loc) == 1:
        return (
            *place,
            key,
        ), f"there is no {path and path + '.'}{key}; expected {field.description}."
    inner = next((kind for kind in get_args(field.annotation) if _is_model(kind)), None)
    if inner is not None and len(loc) > 1:
        here = f"{path}{key}[{loc[1]}]"
        return _sentence(wrong, inner, given[key][loc[1]], here, (*place, *loc[:2]))
    value = given[key]
    if wrong["type"] == "string_type" and len(loc) == 1:
        return (*place, key), not_a_text(name, value)
    return (*place, key), f"{name} is {shortened(value)}; expected {field.description}."


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _unknown(key: str, keys: tuple[str, ...], path: str) -> str:
    where = f" in {path}" if path else ""
    if not keys:
        return f"there is no key {shortened(key)}{where}; none is expected."
    meant, hint = MEANT.get(key, ("", ""))
    end = f"; {hint}." if meant in keys else did_you_mean(key, keys)
    return f"there is no key {shortened(key)}{where}; the keys are {', '.join(keys)}{end}"


def _with(keys: tuple[str, ...]) -> str:
    return f" with the key{'s' * (len(keys) != 1)} {', '.join(keys)}" if keys else ""
