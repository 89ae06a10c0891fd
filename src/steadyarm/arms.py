"""ArmSet: the finite set of variants, their names and their features, validated once.

Every later part works on `coordinates`, the arms written in an orthonormal basis of their own
span, and speaks to the user in `features`, the columns the user gave.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.validation import whole_number

__all__ = ["ArmSet"]

CONSTANT = "(constant)"  # name of the feature that is 1 for every arm
MOST_SPREAD = 1e3  # of singular values and column sizes, up to which features stay as they are
MAX_ARMS = 2**22  # beyond this an explicit matrix of arms no longer fits a laptop


@dataclass(frozen=True, eq=False, repr=False)
class ArmSet:
    """A finite set of arms: K names and a (K, d) feature matrix, immutable.

    Build one with `from_features`, `one_hot`, `factorial` or `bundles`.

    Attributes
    ----------
    features : (K, d) read-only array, as the user gave them
    names : K distinct strings
    feature_names : d strings
    coordinates : (K, r) read-only array: the arms in a basis of their span
    basis : (d, r) read-only array, that basis: ``features = coordinates @ basis.T``
    dual : (d, r) read-only array, its inverse: ``coordinates = features @ dual``

    Examples
    --------
    >>> arms = ArmSet.factorial({"headline": ["short", "long"], "image": ["cat", "dog", "none"]})
    >>> arms
    ArmSet(6 arms, 6 features)
    >>> arms.names[1]
    'headline=short, image=dog'
    """

    features: NDArray[np.float64]
    names: tuple[str, ...]
    feature_names: tuple[str, ...]
    coordinates: NDArray[np.float64]
    basis: NDArray[np.float64]
    dual: NDArray[np.float64]

    @classmethod
    def from_features(
        cls,
        X: ArrayLike,
        names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> ArmSet:
        """Arms given by their feature vectors, one row an arm.

        Examples
        --------
        >>> arms = ArmSet.from_features([[1, 0], [0, 1], [1, 1]], names=["a", "b", "both"])
        >>> arms.size, arms.rank
        (3, 2)
        """
        features = _matrix(X)
        K, d = features.shape
        names = tuple(f"arm {k}" for k in range(K)) if names is None else _names(names, "names")
        _check_names(names, K, "arm", "rows")
        if feature_names is None:
            feature_names = tuple(f"x{j}" for j in range(d))
        feature_names = _names(feature_names, "feature_names")
        _check_names(feature_names, d, "feature", "columns")
        _check_distinct_rows(features, names)
        coordinates, basis, dual = _span(features, names)
        return cls(
            features=_frozen(features),
            names=names,
            feature_names=feature_names,
            coordinates=_frozen(coordinates),
            basis=_frozen(basis),
            dual=_frozen(dual),
        )

    @classmethod
    def one_hot(cls, names: Sequence[str]) -> ArmSet:
        """Arms that share nothing: the classic A/B/n test.

        Examples
        --------
        >>> ArmSet.one_hot(["A", "B", "C"]).features[1].tolist()
        [0.0, 1.0, 0.0]
        """
        names = _names(names, "names")
        return cls.from_features(np.eye(len(names)), names=names, feature_names=names)

    @classmethod
    def factorial(
        cls, factors: Mapping[str, Sequence[str]], interactions: int = 2, constant: bool = True
    ) -> ArmSet:
        """Every combination of the factors' levels, with effects up to order `interactions`.

        A factor of L levels has L - 1 columns: its first level is -1 in all of them, level l is
        +1 in column l. Two levels are thus coded -1 and +1, and D two-level factors give the
        features of the paper's multivariate example. Interactions are products of columns. Arms
        are ordered with the last factor varying fastest.

        Parameters
        ----------
        factors : name of each factor and its levels
        interactions : 1 for main effects only, 2 adds pairs, and so on
        constant : whether the first column is the constant one

        Examples
        --------
        >>> arms = ArmSet.factorial({"a": ["lo", "hi"], "b": ["lo", "hi"]}, interactions=2)
        >>> arms.features.astype(int).tolist()
        [[1, -1, -1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, 1, 1, 1]]
        >>> arms.feature_names
        ('(constant)', 'a=hi', 'b=hi', 'a=hi:b=hi')
        """
        levels = _check_factors(factors, interactions)
        codes = {name: _deviation_codes(len(values)) for name, values in levels.items()}
        grid = list(product(*(range(len(values)) for values in levels.values())))
        index = np.array(grid)
        columns: dict[str, list[tuple[str, NDArray[np.float64]]]] = {
            name: [
                (f"{name}={values[column + 1]}", codes[name][index[:, f], column])
                for column in range(len(values) - 1)
            ]
            for f, (name, values) in enumerate(levels.items())
        }
        features = [np.ones(len(grid))] if constant else []
        feature_names = [CONSTANT] if constant else []
        for order in range(1, min(interactions, len(levels)) + 1):
            for subset in combinations(levels, order):
                for terms in product(*(columns[name] for name in subset)):
                    feature_names.append(":".join(label for label, _ in terms))
                    features.append(np.prod([values for _, values in terms], axis=0))
        names = [
            ", ".join(f"{name}={levels[name][i]}" for name, i in zip(levels, row, strict=True))
            for row in grid
        ]
        return cls.from_features(np.column_stack(features), names, feature_names)

    @classmethod
    def bundles(cls, items: Sequence[str], size: int, interactions: int = 2) -> ArmSet:
        """Every bundle of `size` of the items: "the best 6 of n pieces of content".

        Features are a constant, 0/1 inclusion of each item, and for interactions of order two
        and more the products of inclusions. Since every bundle has the same size these columns
        are linearly dependent; the arm set works in their span and answers in these columns.

        Examples
        --------
        >>> arms = ArmSet.bundles(["news", "sport", "weather", "games"], size=2)
        >>> arms
        ArmSet(6 arms, 11 features of rank 6)
        >>> arms.names[0]
        'news + sport'
        """
        items = _names(items, "items")
        _check_names(items, len(items), "item", "items")
        n = len(items)
        size = whole_number(size, "size")
        if not 1 <= size < n:
            raise InvalidInputError(
                f"size is {size} for {n} items; a bundle has at least 1 item and not all of them."
            )
        whole_number(interactions, "interactions", least=1)
        _check_count(comb(n, size), f"bundles of {size} of {n} items")
        chosen = list(combinations(range(n), size))
        included = np.zeros((len(chosen), n))
        included[np.repeat(np.arange(len(chosen)), size), np.ravel(chosen)] = 1.0
        features = [np.ones(len(chosen))]
        feature_names = [CONSTANT]
        for order in range(1, min(interactions, size) + 1):
            for subset in combinations(range(n), order):
                features.append(included[:, subset].prod(axis=1))
                feature_names.append(":".join(items[i] for i in subset))
        names = [" + ".join(items[i] for i in row) for row in chosen]
        return cls.from_features(np.column_stack(features), names, feature_names)

    @property
    def size(self) -> int:
        """Number of arms, the paper's K."""
        return len(self.names)

    @property
    def dimension(self) -> int:
        """Number of features the user gave, d."""
        return int(self.features.shape[1])

    @property
    def rank(self) -> int:
        """Dimension of the span of the arms; the paper's d when the features are independent."""
        return int(self.coordinates.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """Hash of names and features: equal for arm sets of equal content."""
        digest = hashlib.sha256("\x00".join((*self.names, "", *self.feature_names)).encode())
        digest.update(np.ascontiguousarray(self.features).tobytes())
        return digest.hexdigest()

    def parameters(self, theta: ArrayLike) -> NDArray[np.float64]:
        """Parameters in the user's features from parameters in `coordinates` (last axis).

        Where the features are dependent this is one of the vectors that give the same values.
        """
        return np.asarray(theta, dtype=np.float64) @ self.dual.T

    def index(self, name: str) -> int:
        """Position of the arm called `name`."""
        try:
            return self.names.index(name)
        except ValueError:
            raise InvalidInputError(
                f"there is no arm {name!r}; the arms are {_listing(self.names)}."
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and strings, from which `from_dict` makes the same arm set."""
        return {
            "names": list(self.names),
            "feature_names": list(self.feature_names),
            "features": self.features.tolist(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ArmSet:
        """The arm set that `to_dict` described."""
        return cls.from_features(data["features"], data["names"], data["feature_names"])

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArmSet) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        rank = "" if self.rank == self.dimension else f" of rank {self.rank}"
        return f"ArmSet({self.size} arms, {self.dimension} features{rank})"


def _matrix(X: ArrayLike) -> NDArray[np.float64]:
    try:
        features = np.array(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the features are not a table of numbers ({error}); "
            "give one row per arm, all of the same length."
        ) from None
    if features.ndim != 2:
        raise InvalidInputError(
            f"the features have {features.ndim} axes (shape {features.shape}); "
            "expected 2: one row per arm, one column per feature."
        )
    K, d = features.shape
    if K < 2:
        raise InvalidInputError(f"there are {K} arms; a test needs at least 2.")
    if d < 1:
        raise InvalidInputError("the arms have no features; give at least one column.")
    if not np.isfinite(features).all():
        k, j = np.argwhere(~np.isfinite(features))[0]
        raise InvalidInputError(
            f"the feature in row {k}, column {j} is {features[k, j]}; all must be finite numbers."
        )
    if not features.any():
        raise InvalidInputError("all features are zero; nothing tells the arms apart.")
    return features


def _names(names: Any, what: str) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidInputError(f"{what} is {names!r}; expected a list of strings.")
    return tuple(names)


def _check_names(names: tuple[str, ...], count: int, what: str, of: str) -> None:
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


def _check_distinct_rows(features: NDArray[np.float64], names: tuple[str, ...]) -> None:
    _, first, group = np.unique(features + 0.0, axis=0, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[group.ravel()] != np.arange(len(names)))
    if repeated.size:
        k = int(repeated[0])
        twin = int(first[group.ravel()[k]])
        raise InvalidInputError(
            f"arms {twin} ({names[twin]!r}) and {k} ({names[k]!r}) have identical features, so no "
            "data can tell them apart; remove one or add a feature in which they differ."
        )


def _span(
    features: NDArray[np.float64], names: tuple[str, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Coordinates of the arms in their span, its basis, and the dual basis.

    Independent features of similar scale are the coordinates themselves. Otherwise columns are
    scaled and the arms written in their left singular vectors, so that a year beside a share, or
    a column that repeats others, does no harm to later arithmetic.
    """
    K, d = features.shape
    size = np.abs(features).max(axis=0)
    size[size == 0] = 1.0
    left, singular, rows = np.linalg.svd(features / size, full_matrices=False)
    rank = int((singular > singular[0] * max(K, d) * np.finfo(np.float64).eps).sum())
    spread = singular[0] / singular[rank - 1] * size.max() / size.min()
    if rank == d and spread <= MOST_SPREAD:
        return features, np.eye(d), np.eye(d)
    scale = singular[:rank] / np.sqrt(K)
    coordinates = left[:, :rank] * np.sqrt(K)
    _, first = np.unique(np.round(coordinates, 12), axis=0, return_index=True)
    if len(first) < K:
        twin = sorted(set(range(K)) - set(first.tolist()))[0]
        raise InvalidInputError(
            f"arm {twin} ({names[twin]!r}) differs from another only by rounding errors of its "
            "largest features; rescale or centre the features."
        )
    return coordinates, size[:, None] * rows[:rank].T * scale, rows[:rank].T / scale / size[:, None]


def _check_factors(
    factors: Mapping[str, Sequence[str]], interactions: int
) -> dict[str, tuple[str, ...]]:
    if not isinstance(factors, Mapping):
        raise InvalidInputError(f"factors is {factors!r}; expected a mapping of names to levels.")
    if not factors:
        raise InvalidInputError("there are no factors; give at least one with its levels.")
    levels = {}
    for name, values in factors.items():
        levels[name] = tuple(map(str, _names(values, f"the levels of factor {name!r}")))
        _check_names(levels[name], len(levels[name]), f"level of factor {name!r}:", "levels")
        if len(levels[name]) < 2:
            raise InvalidInputError(
                f"factor {name!r} has {len(levels[name])} level; a factor needs at least 2."
            )
    whole_number(interactions, "interactions", least=1)
    count = int(np.prod([len(values) for values in levels.values()], dtype=object))
    _check_count(count, "combinations of the factors' levels")
    return levels


def _check_count(count: int, what: str) -> None:
    if count > MAX_ARMS:
        raise InvalidInputError(
            f"there are {count:,} {what}; at most {MAX_ARMS:,} are supported. "
            "Leave some out or build the arms you need with from_features."
        )


def _deviation_codes(levels: int) -> NDArray[np.float64]:
    """(L, L-1) codes: first level -1 everywhere, level l is +1 in column l - 1."""
    return np.vstack([-np.ones(levels - 1), np.eye(levels - 1)])


def _listing(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _frozen(array: NDArray[np.float64]) -> NDArray[np.float64]:
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array
