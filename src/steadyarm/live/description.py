"""Descriptions: an experiment's settings as the few words of TOML that create it again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from steadyarm.arms import CONSTANT, ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.live.settings import UNITS, Settings, usual_grace
from steadyarm.policies import POLICIES, Policy
from steadyarm.wording import factors_of

__all__ = ["arms_of", "description_of", "toml_of"]

WIDTH = 88  # characters of a line, up to which lists and small tables stay in one
BARE = re.compile(r"[A-Za-z0-9_-]+")
ESCAPES = {"\\": r"\\", '"': r"\"", "\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r"}
USUAL = {field.name: field.default for field in fields(Settings)}


def description_of(settings: Settings) -> dict[str, Any]:
    """What `create_from_description` makes equal settings of; what is usual is left out.

    Examples
    --------
    >>> import steadyarm as sa
    >>> arms = sa.ArmSet.one_hot(["A", "B"])
    >>> description_of(Settings(arms, sa.Steady(), 1000, seed=1, missing="drop"))
    {'arms': ['A', 'B'], 'budget': 1000, 'policy': 'steady', 'seed': 1, 'missing': 'drop'}
    """
    found: dict[str, Any] = {
        "arms": arms_of(settings.arms),
        "budget": settings.budget,
        "policy": _policy(settings.policy),
        "seed": settings.seed,
    }
    for key in ("direction", "missing", "sticky"):
        if getattr(settings, key) != USUAL[key]:
            found[key] = getattr(settings, key)
    if settings.reward_range is not None:
        found["reward_range"] = list(settings.reward_range)
    if settings.reward_window is not None:
        found["reward_window"] = _window(settings.reward_window)
        if settings.reward_grace != usual_grace(settings.reward_window):
            found["reward_grace"] = _window(settings.reward_grace or 0.0)
    if settings.control:
        found["control"] = dict(settings.control)
    if settings.min_share:
        found["min_share"] = _min_share(settings)
    return found


def toml_of(name: str, description: Mapping[str, Any]) -> str:
    """The file for `steadyarm experiment create`; keys whose value is None are left out.

    Examples
    --------
    >>> print(toml_of("shop", {"arms": ["A", "B"], "budget": 1000, "control": {"A": 0.2}}), end="")
    name = "shop"
    arms = ["A", "B"]
    budget = 1000
    control = { A = 0.2 }
    """
    given = {key: value for key, value in description.items() if value is not None}
    return "\n".join(_table({"name": name} | given, ())) + "\n"


def arms_of(arms: ArmSet) -> Any:
    """The variants as a description has them: names, factors, items, or all features."""
    if arms.recipe is not None:
        return _recipe(arms.recipe.to_dict())
    if arms.feature_names == arms.names and np.array_equal(arms.features, np.eye(arms.size)):
        return list(arms.names)
    found = None if arms.large else _factorial(arms)
    if found is not None:
        return found
    return {
        "features": arms.features.tolist(),
        "names": list(arms.names),
        "feature_names": list(arms.feature_names),
    }


def _recipe(found: dict[str, Any]) -> dict[str, Any]:
    if "factorial" in found:
        found["factorial"] = dict(found["factorial"])
        if found["constant"]:
            del found["constant"]
    return found


def _factorial(arms: ArmSet) -> dict[str, Any] | None:
    factors = factors_of(arms.names)
    if factors is None:
        return None
    constant = arms.feature_names[0] == CONSTANT
    # products of polynomials 1 + (levels - 1) x: their coefficients count the columns by order
    columns = np.ones(1)
    for levels in factors.values():
        columns = np.convolve(columns, [1, len(levels) - 1])
    for order in range(1, len(factors) + 1):
        if columns[1 : order + 1].sum() + constant == arms.dimension:
            found: dict[str, Any] = {
                "factorial": {factor: list(levels) for factor, levels in factors.items()},
                "interactions": order,
            }
            if not constant:
                found["constant"] = False
            try:
                made = ArmSet.factorial(factors, interactions=order, constant=constant)
            except InvalidInputError:  # names may look like factors that nobody could create
                return None
            return found if made == arms else None
    return None


def _policy(policy: Policy[Any]) -> str | dict[str, Any]:
    """The name alone if all else is as usual; None cannot be written and is usual where it is."""
    settings = policy.to_dict()
    name = settings.pop("name")
    if name in POLICIES:
        usual = {field.name: field.default for field in fields(type(policy))}
        settings = {
            key: value for key, value in settings.items() if usual.get(key, MISSING) != value
        }
        name = name.lower()
    settings = {key: value for key, value in settings.items() if value is not None}
    return {"name": name} | settings if settings else name


def _window(seconds: float) -> float | str:
    for unit, length in reversed(UNITS.items()):
        if seconds % length == 0 and unit != "w":
            return f"{seconds / length:.0f}{unit}"
    return seconds


def _min_share(settings: Settings) -> float | dict[str, float]:
    others = settings.arms.size - len(settings.control)  # the control is none of them
    shares = set(settings.min_share.values())
    if len(shares) == 1 and len(settings.min_share) == others:
        return shares.pop()
    return dict(settings.min_share)


def _table(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Lines of a table: first what fits on lines of its own, then the tables within."""
    later: list[tuple[str, Mapping[str, Any]]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            line = f"{_key(key)} = {_value(value)}"
            if len(line) > WIDTH or any(isinstance(v, (Mapping, list)) for v in value.values()):
                later.append((key, value))
                continue
            yield line
        else:
            yield from _line(_key(key), value)
    for key, value in later:
        yield ""
        yield f"[{'.'.join(map(_key, (*path, key)))}]"
        yield from _table(value, (*path, key))


def _line(key: str, value: Any) -> Iterator[str]:
    line = f"{key} = {_value(value)}"
    if len(line) <= WIDTH or not isinstance(value, (list, tuple)):
        yield line
        return
    yield f"{key} = ["
    yield from (f"    {_value(entry)}," for entry in value)
    yield "]"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f"{value:f}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(entry)}" for key, entry in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    raise InvalidInputError(f"{value!r} cannot be written as TOML; expected texts and numbers.")


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    return '"' + "".join(map(_character, text)) + '"'


def _character(character: str) -> str:
    if character in ESCAPES:
        return ESCAPES[character]
    if character < " " or character == "\x7f":
        return f"\\u{ord(character):04X}"
    return character
