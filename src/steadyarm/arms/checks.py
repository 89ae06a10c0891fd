"""What names, factors and tables of features must be, with errors that say what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.validation import whole_number

__all__ = [
    "LARGE",
    "check_count",
    "check_factors",
    "check_names",
    "check_shape",
    "feature_matrix",
    "is_large",
    "listing",
    "name_list",
]

MAX_ARMS = 2**24  # numbers for each of them are kept, eight bytes each
MANY, LARGE = 2**12, 2**18  # arms, and numbers in their table, above which a set is large


def is_large(arms: int, columns: int) -> bool:
    """Whether a set is worked on in passes over its arms, with few of them in play at a time."""
    return arms > MANY and arms * columns > LARGE


def feature_matrix(X: ArrayLike) -> NDArray[np.float64]:
    """A checked copy; a large array of float64, or a memory map, as it is."""
    try:
        features = np.asarray(X)
        if features.dtype != np.float64 or features.size <= LARGE:
            features = np.array(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the features are not a table of numbers ({error}); "
            "give one row per arm, all of the same length."
        ) from None
    check_shape(features.shape)
    _check_values(features)
    return features


def check_shape(shape: tuple[int, ...]) -> None:
    """One row per arm, one column per feature, at least two arms and a feature."""
    if len(shape) != 2:
        raise InvalidInputError(
            f"the features have {len(shape)} axes (shape {shape}); "
            "expected 2: one row per arm, one column per feature."
        )
    K, d = shape
    if K < 2:
        raise InvalidInputError(f"there are {K} arms; a test needs at least 2.")
    if d < 1:
        raise InvalidInputError("the arms have no features; give at least one column.")


def _check_values(features: NDArray[np.float64]) -> None:
    K, d = features.shape
    step, something = max(LARGE // d, 1), False
    for start in range(0, K, step):
        block = features[start : start + step]
        if not np.isfinite(block).all():
            k, j = np.argwhere(~np.isfinite(block))[0]
            raise InvalidInputError(
                f"the feature in row {start + k}, column {j} is {block[k, j]}; all must be "
                "finite numbers."
            )
        something = something or bool(block.any())
    if not something:
        raise InvalidInputError("all features are zero; nothing tells the arms apart.")


def name_list(names: Any, what: str) -> tuple[str, ...]:
    """A tuple, of what is no single text."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidInputError(f"{what} is {names!r}; expected a list of strings.")
    return tuple(names)


def check_names(names: tuple[str, ...], count: int, what: str, of: str) -> None:
    """As many distinct names as there are things to name, each of them readable."""
    if len(names) != count:
        raise InvalidInputError(f"there are {len(names)} {what} names for {count} {of}.")
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise InvalidInputError(
                f"{what} name {i} is {name!r}; every name must be a string that can be read, in "
                "one line and not empty."
            )
        if name in seen:
            raise InvalidInputError(
                f"the {what} name {name!r} stands at {seen[name]} and again at {i}; "
                "names must differ."
            )
        seen[name] = i


def check_factors(
    factors: Mapping[str, Sequence[str]], interactions: int
) -> dict[str, tuple[str, ...]]:
    """The levels of every factor, as texts."""
    if not isinstance(factors, Mapping):
        raise InvalidInputError(f"factors is {factors!r}; expected a mapping of names to levels.")
    if not factors:
        raise InvalidInputError("there are no factors; give at least one with its levels.")
    check_names(tuple(factors), len(factors), "factor", "factors")
    levels = {}
    for name, values in factors.items():
        levels[name] = tuple(map(str, name_list(values, f"the levels of factor {name!r}")))
        check_names(levels[name], len(levels[name]), f"level of factor {name!r}:", "levels")
        if len(levels[name]) < 2:
            raise InvalidInputError(
                f"factor {name!r} has {len(levels[name])} level; a factor needs at least 2."
            )
    whole_number(interactions, "interactions", least=1)
    count = int(np.prod([len(values) for values in levels.values()], dtype=object))
    check_count(count, "combinations of the factors' levels")
    return levels


def check_count(count: int, what: str) -> None:
    """Not more arms than can be worked with."""
    if count > MAX_ARMS:
        raise InvalidInputError(
            f"there are {count:,} {what}; at most {MAX_ARMS:,} are supported. "
            "Leave some out or build the arms you need with from_features."
        )


def listing(names: Sequence[str], most: int = 8) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
