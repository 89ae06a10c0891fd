"""Worlds by name, from plain values: what a command line or a TOML file can say."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from steadyarm.arms import ArmSet
from steadyarm.environments.environment import (
    BernoulliReward,
    BoundedNoise,
    Environment,
    GaussianNoise,
    Noise,
)
from steadyarm.environments.families import (
    malicious_switch,
    multivariate,
    published_multivariate,
    random_walk,
    repeating,
    shock,
    soare_oscillating,
    soare_stationary,
    switching,
    trend,
    weekday_weekend,
)
from steadyarm.errors import InvalidInputError
from steadyarm.wording import did_you_mean

T = TypeVar("T")


def table(
    arms: ArmSet,
    means: str | None = None,
    thetas: str | None = None,
    noise: Noise | None = None,
) -> Environment:
    """Your own table from a CSV file without header: means (T, K) or parameters (T, d)."""
    if (means is None) == (thetas is None):
        raise InvalidInputError("the world 'table' needs either means or thetas, a CSV file.")
    path = Path(means or thetas or "")
    try:
        with path.open() as file:
            values = np.array([[float(x) for x in row] for row in csv.reader(file)])
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"the table {path} cannot be read: {error}") from None
    build = Environment.from_means if means else Environment.from_parameters
    return build(arms, values, noise)


WORLDS: dict[str, Callable[..., Environment]] = {
    family.__name__: family
    for family in (
        soare_stationary,
        soare_oscillating,
        malicious_switch,
        multivariate,
        published_multivariate,
        trend,
        random_walk,
        switching,
        shock,
        repeating,
        weekday_weekend,
        table,
    )
}

NOISES: dict[str, Callable[..., Noise]] = {
    "gaussian": GaussianNoise,
    "bounded": BoundedNoise,
    "bernoulli": BernoulliReward,
}


def arms_from_settings(settings: Mapping[str, Any]) -> ArmSet:
    """The arm set that one of the keys one_hot, factorial, bundles or features describes.

    What `ArmSet.to_dict` wrote is read too, with the coordinates in it.

    Examples
    --------
    >>> arms_from_settings({"factorial": {"a": ["x", "y"], "b": ["x", "y"]}, "interactions": 1})
    ArmSet(4 arms, 3 features)
    """
    builders: dict[str, Callable[..., ArmSet]] = {
        "one_hot": ArmSet.one_hot,
        "factorial": ArmSet.factorial,
        "bundles": ArmSet.bundles,
        "features": ArmSet.from_features,
    }
    if "span" in settings:
        return ArmSet.from_dict(settings)
    rest = dict(settings)
    kinds = [kind for kind in builders if kind in rest]
    if len(kinds) != 1:
        raise InvalidInputError(
            f"the arms have the keys {', '.join(settings) or 'none'}; expected exactly one of "
            f"{', '.join(builders)}."
        )
    return _call(builders[kinds[0]], f"arms of kind {kinds[0]}", (rest.pop(kinds[0]),), rest)


def world_from_settings(
    settings: Mapping[str, Any], arms: Mapping[str, Any] | None = None
) -> Environment:
    """The world called settings["name"], its other keys as parameters.

    Examples
    --------
    >>> world_from_settings({"name": "soare_oscillating", "scale": 3, "budget": 400}).budget
    400
    >>> rising = {"name": "trend", "first": [0, 1], "last": [1, 1], "budget": 10}
    >>> world_from_settings(rising | {"noise": "bernoulli"}, {"one_hot": ["A", "B"]}).best_arm
    1
    """
    rest = dict(settings)
    name = str(rest.pop("name", "")).replace("-", "_")
    if name not in WORLDS:
        raise InvalidInputError(
            f"there is no world {name!r}; the worlds are {', '.join(WORLDS)}"
            f"{did_you_mean(name, list(WORLDS))}"
        )
    if "noise" in rest:
        rest["noise"] = _noise(rest["noise"])
    takes_arms = "arms" in inspect.signature(WORLDS[name]).parameters
    if takes_arms and arms is None:
        raise InvalidInputError(f"the world {name!r} needs arms; describe them in a table [arms].")
    if not takes_arms and arms is not None:
        raise InvalidInputError(f"the world {name!r} has its own arms; leave [arms] out.")
    first = (arms_from_settings(arms),) if arms is not None else ()
    return _call(WORLDS[name], f"the world {name}", first, rest)


def _noise(settings: Any) -> Noise:
    rest = dict(settings) if isinstance(settings, Mapping) else {"kind": settings}
    kind = rest.pop("kind", "gaussian")
    if kind not in NOISES:
        raise InvalidInputError(f"there is no noise {kind!r}; there is {', '.join(NOISES)}.")
    return _call(NOISES[kind], f"{kind} noise", (), rest)


def _call(build: Callable[..., T], what: str, first: tuple[Any, ...], rest: dict[str, Any]) -> T:
    signature = inspect.signature(build)
    try:
        signature.bind(*first, **rest)
    except TypeError as error:
        names = list(signature.parameters)[len(first) :]
        raise InvalidInputError(f"{what}: {error}; it takes {', '.join(names)}.") from None
    return build(*first, **rest)
